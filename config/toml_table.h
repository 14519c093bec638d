// Reading one TOML table with errors that name file, line, column, key, value and what is allowed.
// Internal to config/: other folders see only the option structs.
#pragma once
#include <toml++/toml.h>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.h"

namespace kvc::config {

// Thrown and caught inside config/ only; carries the finished line.
struct Refused {
  std::string text;
};

// Runs `parse` (which returns T and may throw Refused or anything of the TOML library) and turns
// every exception into a ParseError, so that none leaves config/.
template <class T, class Parse>
Parsed<T> without_exceptions(std::string_view file, Parse&& parse) {
  try {
    return Parsed<T>(parse());
  } catch (const Refused& refused) {
    return ParseError{refused.text};
  } catch (const std::exception& e) {
    return ParseError{one_line(file) + ": " + one_line(e.what())};
  }
}

// The document, or Refused with the place of the first syntax error.
[[nodiscard]] toml::table parse_document(std::string_view text, std::string_view file);

// One table of a document while it is read.
//
// Threads:    one.
// Owns:       nothing; the document outlives it.
// Invariants: every key that was asked for is an allowed key; refuse_unknown_keys() refuses all
// others.
class TomlTable {
 public:
  // `path` is what messages call the table: "" for the document itself, "host", "group[2]".
  TomlTable(const toml::table& table, std::string path, std::string_view file)
      : table_(table), path_(std::move(path)), file_(file) {}

  // Each getter returns nothing when the key is absent and throws Refused when the value has
  // another type or lies outside the range.
  std::optional<std::uint64_t> integer(std::string_view key, std::uint64_t min, std::uint64_t max);
  // As integer(), and also the text `word`, which gives `word_value`.
  std::optional<std::uint64_t> integer_or_word(std::string_view key, std::uint64_t min,
                                               std::uint64_t max, std::string_view word,
                                               std::uint64_t word_value);
  // An integer number of bytes or a text such as "8GiB", "512 MB", "1.5TiB"; 1 to 2^60 bytes.
  std::optional<std::uint64_t> bytes(std::string_view key);
  std::optional<bool> boolean(std::string_view key);
  std::optional<std::string> text(std::string_view key);
  // An array of texts; absent reads as nothing.
  std::optional<std::vector<std::string>> texts(std::string_view key);
  // A text out of `words`; the answer is its index.
  std::optional<std::size_t> word(std::string_view key,
                                  std::initializer_list<std::string_view> words);
  // A sub-table; an absent one reads as empty.
  TomlTable table(std::string_view key);
  // An array of tables ([[key]]); absent reads as empty.
  std::vector<TomlTable> tables(std::string_view key);

  // Requires: all allowed keys were asked for. Throws Refused for the first other key in the file.
  void refuse_unknown_keys() const;
  // Throws Refused at the place of `key` (of the table if it is absent): "key = value: why".
  [[noreturn]] void refuse(std::string_view key, const std::string& why) const;
  // Where `key` stands (the table if it is absent), for texts about another one: "host.blocks at
  // line 4".
  [[nodiscard]] std::string where(std::string_view key) const;

 private:
  const toml::node* find(std::string_view key);
  [[nodiscard]] std::string place(const toml::source_region& region) const;
  [[nodiscard]] std::string full_name(std::string_view key) const;

  const toml::table& table_;
  std::string path_;
  std::string_view file_;
  std::vector<std::string> allowed_;
};

// A value that was given replaces the default.
template <class Field, class Value>
void take(Field& field, const std::optional<Value>& given) {
  if (given) field = static_cast<Field>(*given);
}

// `text` as a TOML basic string with quotes.
[[nodiscard]] std::string toml_quoted(std::string_view text);

}  // namespace kvc::config
