#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "conformance/tidy/tidy.h"

namespace kvc::tidy {
namespace {

constexpr std::size_t columns_max = 100;
constexpr std::size_t lines_max = 700;

// The line between host and plugin is one header on purpose, and its golden layout one text.
const std::set<std::string> long_files = {"abi/include/kvc/kvc.h"};

// UTF-8: a character is one column, whatever its bytes.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u;
  }));
}

bool has_name(const std::string& path, const char* name) {
  return path == name || path.ends_with(std::string("/") + name);
}

}  // namespace

Findings check_text(const File& file) {
  // Written in pieces: this file is checked too.
  static const std::regex unfinished(
      "\\b(TO"
      "DO|FIX"
      "ME|HA"
      "CK)\\b");
  static const std::regex sleeps(
      "\\b(sleep"
      "_for|sleep"
      "_until|us"
      "leep|nano"
      "sleep|sl"
      "eep) *\\(");
  static const std::string bare_prefetch =
      "__builtin"
      "_prefetch";
  const bool document = file.path.ends_with(".md");
  const bool limited = is_code(file.path) || file.path.ends_with(".cmake") ||
                       file.path.ends_with(".sh") || has_name(file.path, "CMakeLists.txt") ||
                       file.path == "dev";
  Findings findings;
  std::istringstream in(file.text);
  std::string line;
  std::size_t number = 0;
  while (std::getline(in, line)) {
    ++number;
    const auto add = [&](std::string text) {
      findings.push_back({file.path, number, std::move(text)});
    };
    const bool raw_text = line.find("R\"") != std::string::npos;  // data, cannot be broken
    if (limited && !raw_text && columns(line) > columns_max) {
      add("the line has " + std::to_string(columns(line)) + " columns, allowed are " +
          std::to_string(columns_max));
    }
    if (line.find('\t') != std::string::npos) add("a tab");
    if (!document && !line.empty() && line.back() == ' ') add("a space at the end of the line");
    if (std::regex_search(line, unfinished)) add("a mark of unfinished work");
    if (file.path.starts_with("plugin/") && file.path != "plugin/core/prefetch.h" &&
        line.find(bare_prefetch) != std::string::npos) {
      add("a bare prefetch, which the compiler may drop: plugin/core/prefetch.h");
    }
    if (is_code(file.path) && is_test(file.path) && std::regex_search(line, sleeps)) {
      add("a sleep in a test: wait on the stepped clock or on an event");
    }
  }
  if (is_code(file.path) && number > lines_max && long_files.count(file.path) == 0 &&
      !file.path.starts_with("abi/frozen/")) {
    findings.push_back({file.path, 0,
                        "the file has " + std::to_string(number) + " lines, allowed are " +
                            std::to_string(lines_max)});
  }
  return findings;
}

Findings check_registered(const std::vector<File>& files) {
  const auto is_source = [](const std::string& path) {
    return path.ends_with(".cc") || path.ends_with(".c") || path.ends_with(".cu");
  };
  const auto ends_word = [](char c) {
    return c == ' ' || c == '\n' || c == ')' || c == '"' || c == '(' || c == ';';
  };
  // Does the text name the path as a whole word, or behind a variable: ${CMAKE_SOURCE_DIR}/path?
  const auto names = [&](const std::string& text, const std::string& path) {
    for (std::size_t at = text.find(path); at != std::string::npos; at = text.find(path, at + 1)) {
      const std::size_t end = at + path.size();
      const bool starts = at == 0 || ends_word(text[at - 1]) ||
                          (at >= 2 && text[at - 1] == '/' && text[at - 2] == '}');
      if (starts && (end == text.size() || ends_word(text[end]))) return true;
    }
    return false;
  };
  Findings findings;
  for (const File& file : files) {
    if (!is_source(file.path)) continue;
    const bool named = std::any_of(files.begin(), files.end(), [&](const File& list) {
      if (!has_name(list.path, "CMakeLists.txt")) return false;
      const std::string folder = list.path.substr(0, list.path.size() - 14);  // CMakeLists.txt
      return file.path.starts_with(folder) && names(list.text, file.path.substr(folder.size()));
    });
    if (!named) findings.push_back({file.path, 0, "no CMakeLists.txt names this file"});
  }
  return findings;
}

Findings check_fault_points(const std::vector<File>& files) {
  static const std::regex point(
      "KVC_"
      "FAULT\\(\"([^\"]+)\"\\)");
  static const std::regex row("\\n\\|([^|]*)\\|");  // the first cell may name several points
  static const std::regex name_in_row("`([^`]+)`");
  const std::string document = "docs/testing.md";
  std::set<std::string> in_code;
  std::set<std::string> listed;
  const auto collect = [](const std::string& text, const std::regex& what,
                          std::set<std::string>& into) {
    for (std::sregex_iterator i(text.begin(), text.end(), what), end; i != end; ++i) {
      into.insert((*i)[1]);
    }
  };
  for (const File& file : files) {
    if (is_code(file.path) && !is_test(file.path) && !file.path.ends_with("/fault.h")) {
      collect(file.text, point, in_code);
    }
    if (file.path != document) continue;
    const std::size_t from = file.text.find("## Fault points");
    if (from == std::string::npos) continue;
    const std::size_t to = file.text.find("\n## ", from);
    std::set<std::string> cells;
    collect(file.text.substr(from, to == std::string::npos ? to : to - from), row, cells);
    for (const std::string& cell : cells) collect(cell, name_in_row, listed);
  }
  Findings findings;
  for (const std::string& name : in_code) {
    if (listed.count(name) == 0) findings.push_back({document, 0, "lacks fault point " + name});
  }
  for (const std::string& name : listed) {
    if (in_code.count(name) == 0) findings.push_back({document, 0, "no fault point " + name});
  }
  return findings;
}

Findings check_rule_names(const std::vector<File>& files) {
  static const std::regex name("\\b((?:R|CW|O|OW|K[0-9]+|T)-[0-9]+|AR[0-9]+)\\b");
  static const std::regex row("(?:^|\\n)\\| *([A-Z0-9]+-?[0-9]+) *\\|");
  const std::string document = "docs/rules.md";
  std::set<std::string> explained;
  for (const File& file : files) {
    if (file.path != document) continue;
    for (std::sregex_iterator i(file.text.begin(), file.text.end(), row), end; i != end; ++i) {
      explained.insert((*i)[1]);
    }
  }
  Findings findings;
  for (const File& file : files) {
    std::istringstream in(file.text);
    std::string line;
    for (std::size_t number = 1; std::getline(in, line); ++number) {
      for (std::sregex_iterator i(line.begin(), line.end(), name), end; i != end; ++i) {
        if (explained.insert((*i)[1]).second) {
          findings.push_back({file.path, number, document + " has no row for " + (*i)[1].str()});
        }
      }
    }
  }
  return findings;
}

}  // namespace kvc::tidy
