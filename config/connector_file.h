// A file of connector options of any connector of this product, told apart by [connector] kind.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.h"

namespace kvc::config {

struct ConnectorFile {
  std::string kind;                   // "simple_cpu" or "offloading"
  std::string effective;              // all values, defaults included, as TOML
  std::vector<std::string> warnings;  // one line each: legal, and hardly what was meant
};

// Errors: not TOML; a kind that no connector of this product has, or none (the file must say whose
// options it holds: connectors have different ones); what that connector refuses, in its words. Any
// bytes are safe input.
Parsed<ConnectorFile> parse_connector_file(std::string_view text, std::string_view file);

}  // namespace kvc::config
