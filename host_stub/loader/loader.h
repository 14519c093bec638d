// Loads a connector's library and checks its table once, so that no later call needs a test (AR13,
// AR19).
#pragma once
#include <cstdint>
#include <string>

#include <kvc/kvc.h>

#include "plugin/core/result.h"

namespace kvc::host {

// A connector whose table is complete: every slot may be called. Optional slots that the library
// left empty answer KVC_E_UNSUPPORTED.
//
// Threads:    immutable, any thread.
// Owns:       nothing; the library stays loaded until the process ends (AR19).
struct LoadedConnector {
  kvc_plugin_api api{};
  std::string path;  // as given
  std::string name;
  std::string version;
  std::string build_id;

  [[nodiscard]] bool can(std::uint64_t capability) const { return (api.caps & capability) != 0; }
};

// Loads the library at `path` with RTLD_NOW | RTLD_LOCAL and never unloads it; a path that was
// loaded before is not loaded again. A path without a slash is a file in the current directory.
// Errors, one line that names the path and the rule (KVC-L-nnn, docs/abi.md): Code::arg: no such
// library (the loader's own words), no entry symbol of this major (the text says which majors it
// has), a table that ends before a required slot, a required slot that is NULL, a capability bit
// whose slot is NULL; Code::unsupported: the entry refused this host.
Result<LoadedConnector> load_connector(const std::string& path);

// The checks that load_connector makes after it found the symbol, for a table of another origin
// (tests, wrappers).
Result<LoadedConnector> check_connector(const std::string& path, kvc_plugin_entry_fn entry);

}  // namespace kvc::host
