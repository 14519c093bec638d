#include "conformance/validate/settings.h"

#include <cstdlib>

#include <fmt/format.h>
#include "config/toml_table.h"

namespace kvc::validate {
namespace {

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool opens_table(std::string_view line, bool& layer) {
  const std::size_t from = line.find_first_not_of(" \t");
  if (from == std::string_view::npos || line[from] != '[') return false;
  std::string name;
  for (std::size_t i = from + 1; i < line.size() && line[i] != ']'; ++i) {
    if (line[i] != ' ' && line[i] != '\t' && line[i] != '"') name += line[i];
  }
  layer = name == "layer";
  return true;
}

// The lines of [layer] empty, all others as they are, but for a mark of UTF-8 in front.
std::string without_layer(std::string_view toml) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  if (toml.starts_with(mark)) toml.remove_prefix(mark.size());
  std::string rest;
  bool inside = false;
  for (std::size_t at = 0; at < toml.size();) {
    std::size_t end = toml.find('\n', at);
    const bool last = end == std::string_view::npos;
    if (last) end = toml.size();
    const std::string_view line = toml.substr(at, end - at);
    bool layer = false;
    if (opens_table(line, layer)) inside = layer;
    if (!inside) rest += line;
    if (!last) rest += '\n';
    at = end + 1;
  }
  return rest;
}

// Throws config::Refused.
Settings read_table(const toml::table& document, const Settings& base) {
  Settings s = base;
  config::TomlTable root(document, "", "config_toml");
  config::TomlTable layer = root.table("layer");
  if (auto v = layer.text("next")) s.next = *v;
  if (auto v = layer.text("record")) s.record = *v;
  if (auto v = layer.text("findings")) s.findings = *v;
  if (auto v = layer.boolean("guard")) s.guard = *v;
  layer.refuse_unknown_keys();
  return s;
}

}  // namespace

Settings environment_settings() {
  Settings s;
  s.next = environment("KVC_LAYER_NEXT");
  s.record = environment("KVC_LAYER_RECORD");
  s.findings = environment("KVC_LAYER_FINDINGS");
  const std::string guard = environment("KVC_LAYER_GUARD");
  s.guard = guard == "1" || guard == "true";
  return s;
}

Result<LayerText> split_layer_table(std::string_view toml, const Settings& from_environment) {
  LayerText text{from_environment, std::string(toml), false};
  toml::table document;
  try {
    document = config::parse_document(toml, "config_toml");
  } catch (const config::Refused&) {
    return text;
  }
  if (document.get("layer") == nullptr) return text;
  try {
    text.settings = read_table(document, from_environment);
    text.rest = without_layer(toml);
    text.had_table = true;
    toml::table rest = config::parse_document(text.rest, "config_toml");
    document.erase("layer");
    if (rest.get("layer") == nullptr && rest == document) return text;
  } catch (const config::Refused& refused) {
    return Status{Code::arg, refused.text};
  }
  return Status{Code::arg, "config_toml: the options of the layer must stand in a table [layer]"};
}

}  // namespace kvc::validate
