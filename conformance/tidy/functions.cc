#include <algorithm>
#include <cctype>
#include <regex>

#include "conformance/tidy/tidy.h"

namespace kvc::tidy {
namespace {

constexpr std::size_t function_lines_max = 70;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The text with comments, literals and preprocessor lines blanked out; line breaks stay where they
// are.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : in_(text) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return out_;
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }
  void blank() {
    out_ += peek() == '\n' ? '\n' : ' ';
    ++at_;
  }
  void keep() {
    out_ += in_[at_];
    ++at_;
  }
  bool at_line_start() const {
    const std::size_t nl = out_.rfind('\n');
    return out_.find_first_not_of(' ', nl == std::string::npos ? 0 : nl + 1) == std::string::npos;
  }
  void quoted(char quote) {
    blank();
    while (at_ < in_.size() && peek() != quote && peek() != '\n') {
      if (peek() == '\\') blank();
      if (at_ < in_.size()) blank();
    }
    if (at_ < in_.size()) blank();
  }
  void raw_string() {
    const std::size_t open = in_.find('(', at_);
    const std::string end = ")" + in_.substr(at_ + 2, open - at_ - 2) + "\"";
    const std::size_t stop = in_.find(end, open);
    const std::size_t last = stop == std::string::npos ? in_.size() : stop + end.size();
    while (at_ < last) blank();
  }
  void directive() {
    while (at_ < in_.size() && peek() != '\n') {
      if (peek() == '\\' && peek(1) == '\n') blank();
      blank();
    }
  }
  void step() {
    const bool in_word = at_ > 0 && is_word(in_[at_ - 1]);
    if (peek() == '/' && peek(1) == '/') {
      while (at_ < in_.size() && peek() != '\n') blank();
    } else if (peek() == '/' && peek(1) == '*') {
      const std::size_t end = in_.find("*/", at_ + 2);
      const std::size_t last = end == std::string::npos ? in_.size() : end + 2;
      while (at_ < last) blank();
    } else if (peek() == 'R' && peek(1) == '"' && !in_word) {
      raw_string();
    } else if (peek() == '"') {
      quoted('"');
    } else if (peek() == '\'' && !in_word) {  // 1'000 is a number
      quoted('\'');
    } else if (peek() == '#' && at_line_start()) {
      directive();
    } else {
      keep();
    }
  }

  const std::string& in_;
  std::string out_;
  std::size_t at_ = 0;
};

enum class Brace { scope, function, member_init, other };

// What the brace after this text opens. Only asked outside of functions.
Brace kind_of(const std::string& before) {
  static const std::regex scope(R"((^|[^\w])(namespace|class|struct|union|enum|extern)\b[^()=]*$)");
  static const std::regex member_init(R"(\)[^:;]*[^:]:[^:][^;]*[\w>]\s*$)");
  static const std::regex qualified(R"(\b(const|noexcept|override|final|mutable|try)\s*$)");
  if (std::regex_search(before, scope)) return Brace::scope;
  if (before.find('(') == std::string::npos) return Brace::other;
  if (std::regex_search(before, std::regex(R"(=\s*$)"))) return Brace::other;
  if (std::regex_search(before, member_init) && !std::regex_search(before, qualified)) {
    return Brace::member_init;
  }
  return Brace::function;
}

// The position behind the brace that closes the one at `open`.
std::size_t closing(const std::string& text, std::size_t open) {
  std::size_t depth = 0;
  for (std::size_t at = open; at < text.size(); ++at) {
    if (text[at] == '{') ++depth;
    if (text[at] == '}' && --depth == 0) return at + 1;
  }
  return text.size();
}

std::size_t line_at(const std::string& text, std::size_t at) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

}  // namespace

Findings check_functions(const File& file) {
  Findings findings;
  const std::string text = Blanker(file.text).run();
  std::size_t start = 0;  // of the declaration that is being read
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == ';' || c == '}') {
      start = ++at;
      continue;
    }
    if (c != '{') {
      ++at;
      continue;
    }
    const std::size_t first = text.find_first_not_of(" \n", start);
    const Brace kind = kind_of(text.substr(start, at - start));
    if (kind == Brace::scope) {
      start = ++at;
      continue;
    }
    const std::size_t end = closing(text, at);
    if (kind == Brace::function) {
      const std::size_t from = line_at(text, first);
      const std::size_t lines = line_at(text, end - 1) - from + 1;
      if (lines > function_lines_max) {
        findings.push_back({file.path, from,
                            "the function has " + std::to_string(lines) + " lines, allowed are " +
                                std::to_string(function_lines_max)});
      }
    }
    at = end;
    if (kind != Brace::member_init) start = at;
  }
  return findings;
}

}  // namespace kvc::tidy
