// The connectors whose options this product reads, by the name that a library gives itself.
#pragma once
#include <string>
#include <string_view>

#include "config/parsed.h"

namespace kvc::config {

// The options of other connectors are theirs alone.
[[nodiscard]] bool knows_connector(std::string_view name);

// The effective options of a connector: all values, defaults included, as TOML. Requires
// knows_connector(name). Errors: those of its parser.
Parsed<std::string> effective_options(std::string_view name, std::string_view text,
                                      std::string_view file);

}  // namespace kvc::config
