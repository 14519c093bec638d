#include "config/parsed.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace kvc::config {

std::string one_line(std::string_view text, std::size_t bytes_max) {
  static constexpr char hex[] = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    if (line.size() >= bytes_max) return line + "...";
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f) {
      line += c;
    } else {
      line += "\\x";
      line += hex[byte >> 4U];
      line += hex[byte & 15U];
    }
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
