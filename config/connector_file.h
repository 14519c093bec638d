// A file of connector options of any connector of this product, told apart by [connector] kind.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.h"
#include "config/shared_options.h"

namespace kvc::config {

struct ConnectorFile {
  std::string kind;     // "simple_cpu" or "offloading"
  std::string options;  // the text without the table [layer], for the connector
  std::uint32_t blocks_per_chunk = 1;
  DiskOptions disk;
  std::string effective;              // all values, defaults included, as TOML
  std::vector<std::string> warnings;  // one line each: legal, and hardly what was meant
};

// `kind_of_library`: whose options these are if the file does not say it, as who is asked with a
// library knows; "" or a kind of no connector of this product: not known.
// Errors: not TOML; a kind that no connector of this product has; no kind and none known, if the
// options are right for one of the connectors (they have different ones, so somebody must say it);
// what that connector refuses, in its words; a wrong table [layer]. Any bytes are safe input.
Parsed<ConnectorFile> parse_connector_file(std::string_view text, std::string_view file,
                                           std::string_view kind_of_library = {});

}  // namespace kvc::config
