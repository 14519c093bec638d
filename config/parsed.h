// Values and errors of config/. This folder includes nothing of the project, so it has its own
// small result type.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kvc::config {

// Why a text was refused: one line, "file:line:column: key = value: what is wrong; what is
// allowed". Control characters of the input are escaped, long values are cut, so the line can be
// shown as it is.
struct ParseError {
  std::string text;
};

// A value or a ParseError. value() of an error and error() of a value are programming errors
// (std::bad_variant_access); nothing else in config/ lets an exception out.
template <class T>
class [[nodiscard]] Parsed {
 public:
  Parsed(T value) : v_(std::in_place_index<0>, std::move(value)) {}           // NOLINT: implicit
  Parsed(ParseError error) : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit
  [[nodiscard]] bool ok() const { return v_.index() == 0; }
  [[nodiscard]] const T& value() const { return std::get<0>(v_); }
  [[nodiscard]] T& value() { return std::get<0>(v_); }
  [[nodiscard]] const ParseError& error() const { return std::get<1>(v_); }

 private:
  std::variant<T, ParseError> v_;
};

// `text` as one printable line of at most `bytes_max` bytes: control bytes and what is no
// UTF-8 become \xNN, a cut ends in "...".
[[nodiscard]] std::string one_line(std::string_view text, std::size_t bytes_max = 200);

// The whole of a file of at most 16 MiB, or an error that names it. For programs that read their
// own configuration; a connector gets its text from the engine.
Parsed<std::string> read_text_file(const std::string& path);

}  // namespace kvc::config
