#include "config/parsed.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace kvc::config {

namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<unsigned char>(text[i]) : 0;
}

// Bytes of the printable UTF-8 character at i; 0: a control byte, or none of UTF-8.
std::size_t printable_bytes(std::string_view text, std::size_t i) {
  const unsigned char first = byte_at(text, i);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  // Two to four bytes; 0xc0, 0xc1 and 0xf5 and up begin none.
  const std::size_t n = first < 0xc2   ? 0
                        : first < 0xe0 ? 2
                        : first < 0xf0 ? 3
                        : first < 0xf5 ? 4
                                       : 0;
  for (std::size_t k = 1; k < n; ++k) {
    if ((byte_at(text, i + k) & 0xc0U) != 0x80) return 0;
  }
  const unsigned char second = byte_at(text, i + 1);
  const bool overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool surrogate = first == 0xed && second >= 0xa0;
  const bool beyond = first == 0xf4 && second >= 0x90;
  const bool control = first == 0xc2 && second < 0xa0;  // U+0080 .. U+009F
  return overlong || surrogate || beyond || control ? 0 : n;
}

}  // namespace

std::string one_line(std::string_view text, std::size_t bytes_max) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string line;
  for (std::size_t i = 0; i < text.size();) {
    if (line.size() >= bytes_max) return line + "...";
    const std::size_t n = printable_bytes(text, i);
    if (n != 0) {
      line += text.substr(i, n);
      i += n;
      continue;
    }
    const unsigned char byte = byte_at(text, i++);
    line += "\\x";
    line += hex[byte >> 4U];
    line += hex[byte & 15U];
  }
  return line;
}

Parsed<std::string> read_text_file(const std::string& path) {
  constexpr std::size_t bytes_max = std::size_t{16} << 20U;
  const auto close = [](std::FILE* f) { std::fclose(f); };
  const std::unique_ptr<std::FILE, decltype(close)> file(std::fopen(path.c_str(), "rb"), close);
  if (!file) return ParseError{one_line(path) + ": cannot be opened: " + std::strerror(errno)};
  std::string text;
  std::array<char, 65536> part{};
  for (;;) {
    const std::size_t got = std::fread(part.data(), 1, part.size(), file.get());
    text.append(part.data(), got);
    if (text.size() > bytes_max) {
      return ParseError{one_line(path) + ": larger than 16 MiB, which no configuration is"};
    }
    if (got < part.size()) break;
  }
  if (std::ferror(file.get()) != 0) {
    return ParseError{one_line(path) + ": cannot be read: " + std::strerror(errno)};
  }
  return text;
}

}  // namespace kvc::config
