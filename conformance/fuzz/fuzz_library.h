// The connector that targets call through its table: KVC_FUZZ_LIBRARY, else libkvc_simple_cpu.so of
// the build.
#pragma once
#include <cstdlib>
#include <string>

#include "conformance/fuzz/fuzz_target.h"
#include "conformance/rig/world.h"
#include "host_stub/loader/loader.h"

namespace kvc::fuzz {

inline const rig::Library& library() {
  static const rig::Library one = [] {
    const char* const given = std::getenv("KVC_FUZZ_LIBRARY");
    const auto loaded =
        host::load_connector(given != nullptr ? given : KVC_LIB_DIR "/libkvc_simple_cpu.so");
    promise(loaded.ok(), loaded.ok() ? "" : loaded.error().text);
    return rig::Library(loaded.value().api);
  }();
  return one;
}

}  // namespace kvc::fuzz
