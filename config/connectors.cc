#include "config/connectors.h"

#include <algorithm>
#include <array>

#include "config/offloading_options.h"
#include "config/simple_cpu_options.h"

namespace kvc::config {
namespace {

template <class Options>
Parsed<std::string> effective(const Parsed<Options>& parsed) {
  if (!parsed.ok()) return parsed.error();
  return effective_toml(parsed.value());
}

struct Known {
  std::string_view name;
  Parsed<std::string> (*effective)(std::string_view text, std::string_view file);
};

constexpr std::array<Known, 2> connectors{{
    {"simple_cpu", [](std::string_view text,
                      std::string_view file) { return effective(parse_simple_cpu(text, file)); }},
    {"offloading", [](std::string_view text,
                      std::string_view file) { return effective(parse_offloading(text, file)); }},
}};

const Known* find(std::string_view name) {
  const auto* it = std::find_if(connectors.begin(), connectors.end(),
                                [&](const Known& known) { return known.name == name; });
  return it == connectors.end() ? nullptr : it;
}

}  // namespace

bool knows_connector(std::string_view name) { return find(name) != nullptr; }

Parsed<std::string> effective_options(std::string_view name, std::string_view text,
                                      std::string_view file) {
  const Known* known = find(name);
  if (known != nullptr) return known->effective(text, file);
  return ParseError{one_line(file) + ": no options of a connector \"" + one_line(name) + "\""};
}

}  // namespace kvc::config
