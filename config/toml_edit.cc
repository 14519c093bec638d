#include "config/toml_edit.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <sstream>
#include <utility>
#include <vector>

#include "config/toml_table.h"

namespace kvc::config {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

char first_char(const std::string& line) {
  const std::size_t at = line.find_first_not_of(" \t\r");
  return at == std::string::npos ? '\0' : line[at];
}

// Whether the text is what was wanted: only then does it matter how it came about.
bool is(const std::string& text, std::string_view file, const toml::table& wanted) {
  try {
    return parse_document(text, file) == wanted;
  } catch (const Refused&) {
    return false;
  }
}

std::string at_end(std::vector<std::string> lines, std::initializer_list<std::string> more) {
  lines.insert(lines.end(), more);
  return joined(lines);
}

// Numbers of lines count from 1; 0: there is none.
std::uint32_t line_of(const toml::node* node) {
  return node == nullptr ? 0 : node->source().begin.line;
}

std::optional<std::string> in_place(const std::vector<std::string>& lines, std::string_view file,
                                    const toml::table& before, const toml::table& wanted,
                                    const std::string& table, const std::string& key,
                                    const std::string& entry) {
  const auto if_wanted = [&](std::string text) {
    return is(text, file, wanted) ? std::optional(std::move(text)) : std::nullopt;
  };
  const auto replaced = [&](std::size_t line) {
    std::vector<std::string> changed = lines;
    changed[line] = entry;
    return if_wanted(joined(changed));
  };
  const toml::node* const node = before.get(table);
  if (node == nullptr) return if_wanted(at_end(lines, {"[" + table + "]", entry}));
  const std::size_t own = line_of(node->as_table()->get(key));
  if (own != 0 && own <= lines.size()) return replaced(own - 1);
  const std::size_t header = line_of(node);
  if (header == 0 || header > lines.size()) return std::nullopt;
  std::size_t line = header;
  for (; line < lines.size() && first_char(lines[line]) != '['; ++line) {
    if (first_char(lines[line]) != '\0' && first_char(lines[line]) != '#') continue;
    if (auto text = replaced(line)) return text;
  }
  if (line == lines.size()) return if_wanted(at_end(lines, {entry}));
  std::vector<std::string> longer = lines;
  longer.insert(longer.begin() + static_cast<std::ptrdiff_t>(header), entry);
  return if_wanted(joined(longer));
}

}  // namespace

std::string with_value(std::string_view text, std::string_view file, std::string_view table,
                       std::string_view key, std::string_view value) {
  const std::string name(table);
  const std::string entry = std::string(key) + " = " + std::string(value);
  const toml::table before = parse_document(text, file);
  TomlTable root(before, "", file);
  static_cast<void>(root.table(name));  // refuses what is no table
  toml::table wanted = before;
  const toml::table one = parse_document(entry, file);
  if (wanted.get(name) == nullptr) wanted.insert(name, toml::table{});
  wanted.get(name)->as_table()->insert_or_assign(key, *one.get(key));
  auto edited = in_place(lines_of(text), file, before, wanted, name, std::string(key), entry);
  if (edited) return *std::move(edited);
  std::ostringstream out;
  out << wanted << "\n";
  return out.str();
}

}  // namespace kvc::config
