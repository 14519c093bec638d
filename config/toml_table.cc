#include "config/toml_table.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <sstream>
#include <utility>

#include "config/nearest.h"

namespace kvc::config {
namespace {

constexpr std::uint64_t bytes_largest = std::uint64_t{1} << 60U;

std::string shown(const toml::node& node) {
  std::ostringstream out;
  if (node.is_table()) {
    out << "{...}";
  } else if (node.is_array()) {
    out << "[...]";
  } else if (const auto* text = node.as_string()) {
    out << '"' << text->get().substr(0, 50) << '"';
  } else {
    node.visit([&](const auto& value) {
      if constexpr (toml::is_value<decltype(value)>) out << value;
    });
  }
  return one_line(out.str(), 60);
}

std::string_view type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a fraction";
    case toml::node_type::boolean:
      return "a truth value";
    default:
      return "a date or time";
  }
}

std::string range_text(std::uint64_t min, std::uint64_t max) {
  return "an integer from " + std::to_string(min) + " to " + std::to_string(max);
}

struct ByteUnit {
  std::string_view name;
  double bytes;
};
constexpr std::array<ByteUnit, 12> byte_units{{{"", 1.0},
                                               {"B", 1.0},
                                               {"KiB", 1024.0},
                                               {"MiB", 1048576.0},
                                               {"GiB", 1073741824.0},
                                               {"TiB", 1099511627776.0},
                                               {"PiB", 1125899906842624.0},
                                               {"kB", 1e3},
                                               {"MB", 1e6},
                                               {"GB", 1e9},
                                               {"TB", 1e12},
                                               {"PB", 1e15}}};

// "8GiB", "1.5 TiB": bytes, or nothing.
std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (read.ec != std::errc{} || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(read.ptr, static_cast<std::size_t>(end - read.ptr));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  for (const auto& known : byte_units) {
    if (known.name != unit) continue;
    const double bytes = number * known.bytes;
    if (bytes < 1.0 || bytes > static_cast<double>(bytes_largest)) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
  }
  return std::nullopt;
}

}  // namespace

namespace {

// Every dot of a name nests a table; the parser limits brackets and braces, but no dots, and what
// is nested is destroyed by recursion.
constexpr std::size_t dots_most = 256;

// Behind the string that begins at `begin` with a quotation mark.
std::size_t skip_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const std::string three(3, quote);
  const bool long_one = text.substr(begin, 3) == three;
  for (std::size_t i = begin + (long_one ? 3 : 1); i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (long_one && text.substr(i, 3) == three) {
      i += 3;
      for (int more = 0; more < 2 && i < text.size() && text[i] == quote; ++more) ++i;
      return i;
    } else if (!long_one && (text[i] == quote || text[i] == '\n')) {
      return i + 1;
    }
  }
  return text.size();
}

// Dots outside of comments and strings.
std::size_t count_dots(std::string_view text) {
  std::size_t dots = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == '"' || text[i] == '\'') {
      i = skip_string(text, i);
    } else if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else {
      dots += text[i++] == '.' ? 1 : 0;
    }
  }
  return dots;
}

}  // namespace

toml::table parse_document(std::string_view text, std::string_view file) {
  if (const std::size_t dots = count_dots(text); dots > dots_most) {
    throw Refused{one_line(file) + ": " + std::to_string(dots) +
                  " dots outside of strings and comments; at most " + std::to_string(dots_most) +
                  " are allowed"};
  }
  try {
    return toml::parse(text, file);
  } catch (const toml::parse_error& e) {
    throw Refused{one_line(file) + ":" + std::to_string(e.source().begin.line) + ":" +
                  std::to_string(e.source().begin.column) +
                  ": not TOML: " + one_line(e.description())};
  }
}

std::string TomlTable::place(const toml::source_region& region) const {
  if (region.begin.line == 0) return one_line(file_) + ": ";
  return one_line(file_) + ":" + std::to_string(region.begin.line) + ":" +
         std::to_string(region.begin.column) + ": ";
}

std::string TomlTable::full_name(std::string_view key) const {
  return path_.empty() ? one_line(key, 60) : path_ + "." + one_line(key, 60);
}

const toml::node* TomlTable::find(std::string_view key) {
  if (std::find(allowed_.begin(), allowed_.end(), key) == allowed_.end())
    allowed_.emplace_back(key);
  return table_.get(key);
}

void TomlTable::refuse(std::string_view key, const std::string& why) const {
  const toml::node* node = table_.get(key);
  if (node == nullptr) throw Refused{place(table_.source()) + full_name(key) + ": " + why};
  throw Refused{place(node->source()) + full_name(key) + " = " + shown(*node) + ": " + why};
}

std::string TomlTable::where(std::string_view key) const {
  const toml::node* node = table_.get(key);
  const std::uint32_t line = (node == nullptr ? table_ : *node).source().begin.line;
  return full_name(key) + (line == 0 ? std::string() : " at line " + std::to_string(line));
}

std::optional<std::uint64_t> TomlTable::integer(std::string_view key, std::uint64_t min,
                                                std::uint64_t max) {
  const toml::node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto* number = node->as_integer();
  if (number == nullptr) {
    refuse(key, std::string(type_name(*node)) + ", but it must be " + range_text(min, max));
  }
  const std::int64_t n = number->get();
  if (n < 0 || static_cast<std::uint64_t>(n) < min || static_cast<std::uint64_t>(n) > max) {
    refuse(key, "out of range, it must be " + range_text(min, max));
  }
  return static_cast<std::uint64_t>(n);
}

std::optional<std::uint64_t> TomlTable::integer_or_word(std::string_view key, std::uint64_t min,
                                                        std::uint64_t max, std::string_view word,
                                                        std::uint64_t word_value) {
  const toml::node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto* text = node->as_string();
  if (text != nullptr && text->get() == word) return word_value;
  const auto* number = node->as_integer();
  const bool fits = number != nullptr && number->get() >= 0 &&
                    static_cast<std::uint64_t>(number->get()) >= min &&
                    static_cast<std::uint64_t>(number->get()) <= max;
  if (!fits) {
    refuse(key, "it must be " + range_text(min, max) + ", or \"" + std::string(word) + "\"");
  }
  return static_cast<std::uint64_t>(number->get());
}

std::optional<std::uint64_t> TomlTable::bytes(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return std::nullopt;
  static const std::string allowed =
      "it must be 1 byte to 2^60 bytes, an integer or a text such as \"8GiB\" (units B KiB MiB GiB "
      "TiB PiB kB MB GB TB PB)";
  if (const auto* number = node->as_integer()) {
    if (number->get() >= 1 && static_cast<std::uint64_t>(number->get()) <= bytes_largest) {
      return static_cast<std::uint64_t>(number->get());
    }
    refuse(key, allowed);
  }
  if (const auto* text = node->as_string()) {
    if (const auto amount = parse_bytes(text->get())) return amount;
  }
  refuse(key, allowed);
}

std::optional<bool> TomlTable::boolean(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto* flag = node->as_boolean();
  if (flag == nullptr)
    refuse(key, std::string(type_name(*node)) + ", but it must be true or false");
  return flag->get();
}

std::optional<std::string> TomlTable::text(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto* text = node->as_string();
  if (text == nullptr) refuse(key, std::string(type_name(*node)) + ", but it must be a text");
  return text->get();
}

std::optional<std::vector<std::string>> TomlTable::texts(std::string_view key) {
  const toml::node* node = find(key);
  if (node == nullptr) return std::nullopt;
  const auto* array = node->as_array();
  if (array == nullptr) {
    refuse(key, std::string(type_name(*node)) + ", but it must be an array of texts");
  }
  std::vector<std::string> all;
  for (const toml::node& one : *array) {
    const auto* text = one.as_string();
    if (text == nullptr) {
      refuse(key, std::string(type_name(one)) + " in it, but it must be an array of texts");
    }
    all.push_back(text->get());
  }
  return all;
}

std::optional<std::size_t> TomlTable::word(std::string_view key,
                                           std::initializer_list<std::string_view> words) {
  const auto given = text(key);
  if (!given) return std::nullopt;
  std::string allowed;
  std::size_t index = 0;
  for (const auto& one : words) {
    if (one == *given) return index;
    allowed += (index++ == 0 ? "\"" : ", \"") + std::string(one) + "\"";
  }
  refuse(key, "it must be one of " + allowed);
}

TomlTable TomlTable::table(std::string_view key) {
  static const toml::table empty;
  const toml::node* node = find(key);
  if (node == nullptr) return {empty, full_name(key), file_};
  const auto* table = node->as_table();
  if (table == nullptr) {
    refuse(key,
           std::string(type_name(*node)) + ", but it must be a table: [" + full_name(key) + "]");
  }
  return {*table, full_name(key), file_};
}

std::vector<TomlTable> TomlTable::tables(std::string_view key) {
  std::vector<TomlTable> all;
  const toml::node* node = find(key);
  if (node == nullptr) return all;
  const auto* array = node->as_array();
  const std::string why = "it must be an array of tables: [[" + full_name(key) + "]]";
  if (array == nullptr) refuse(key, why);
  for (const auto& element : *array) {
    const auto* table = element.as_table();
    if (table == nullptr) refuse(key, why);
    all.emplace_back(*table, full_name(key) + "[" + std::to_string(all.size()) + "]", file_);
  }
  return all;
}

void TomlTable::refuse_unknown_keys() const {
  const toml::key* first = nullptr;
  for (const auto& [key, node] : table_) {
    static_cast<void>(node);
    if (std::find(allowed_.begin(), allowed_.end(), key.str()) != allowed_.end()) continue;
    const auto at = [](const toml::key& k) {
      return std::pair(k.source().begin.line, k.source().begin.column);
    };
    if (first == nullptr || at(key) < at(*first)) first = &key;
  }
  if (first == nullptr) return;
  auto sorted = allowed_;
  std::sort(sorted.begin(), sorted.end());
  std::string list;
  for (const auto& name : sorted) list += (list.empty() ? "" : ", ") + name;
  std::string text = place(first->source()) + "unknown key \"" + one_line(first->str(), 60) + "\"" +
                     (path_.empty() ? "" : " in [" + path_ + "]");
  const auto near = nearest(first->str(), sorted);
  text += near ? "; did you mean \"" + *near + "\"?" : std::string(".");
  throw Refused{text + " Allowed here: " + list};
}

std::string toml_quoted(std::string_view text) {
  std::string out = "\"";
  static constexpr char hex[] = "0123456789ABCDEF";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\u00";
      out += hex[byte >> 4U];
      out += hex[byte & 15U];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace kvc::config
