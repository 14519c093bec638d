#include "config/layer_table.h"

#include <fmt/format.h>

#include "config/toml_table.h"

namespace kvc::config {
namespace {

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

// Throws Refused.
LayerTable read(toml::table document, std::string_view text, std::string_view file) {
  LayerTable out;
  out.there = true;
  TomlTable root(document, "", file);
  TomlTable layer = root.table("layer");
  out.next = layer.text("next");
  out.record = layer.text("record");
  out.findings = layer.text("findings");
  out.guard = layer.boolean("guard");
  layer.refuse_unknown_keys();
  out.rest = without_layer(text);
  toml::table rest = parse_document(out.rest, file);
  document.erase("layer");
  if (rest.get("layer") != nullptr || !(rest == document)) {
    throw Refused{
        fmt::format("{}: the options of the layer must stand in a table [layer]", one_line(file))};
  }
  return out;
}

}  // namespace

Parsed<LayerTable> take_layer_table(std::string_view text, std::string_view file) {
  return without_exceptions<LayerTable>(file, [&] {
    LayerTable unchanged;
    unchanged.rest = text;
    toml::table document;
    try {
      document = parse_document(text, file);
    } catch (const Refused&) {
      return unchanged;
    }
    return document.get("layer") == nullptr ? unchanged : read(std::move(document), text, file);
  });
}

}  // namespace kvc::config
