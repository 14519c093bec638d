// What the programs' command lines have in common.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/nearest.h"

namespace kvc::host {

// One line, without control characters.
[[nodiscard]] inline std::string first_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  return text;
}

// The whole numbers that an option may have.
struct Range {
  std::uint64_t min = 0;
  std::uint64_t max = UINT64_MAX;
  const char* note = "";
};

// An option with a whole number, read by us: the parser library takes -1 and what is too large for
// the largest, and every refusal names option, value and what is allowed in one line.
inline CLI::Option* add_number(CLI::App& app, const std::string& name, const std::string& help,
                               Range range, std::function<void(std::uint64_t)> set) {
  return app
      .add_option_function<std::string>(
          name,
          [name, range, set = std::move(set)](const std::string& text) {
            std::uint64_t value = 0;
            const char* const end = text.data() + text.size();
            const auto [at, error] = std::from_chars(text.data(), end, value);
            if (error != std::errc{} || at != end || value < range.min || value > range.max) {
              throw CLI::ValidationError(
                  name, fmt::format("\"{}\" is not allowed; a whole number from {} to {} is{}",
                                    text, range.min, range.max, range.note));
            }
            set(value);
          },
          help)
      ->type_name("N");
}

// Why what `app` could not place is wrong, with the option that was probably meant; nothing when
// all was placed. The parser itself would name a missing option first, whose absence is often only
// the consequence of a slip in its name: so programs mark no option as required, allow extras, ask
// here after parsing, and only then see what is missing.
[[nodiscard]] inline std::optional<std::string> unknown_argument(const CLI::App& app) {
  std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return std::nullopt;
  const auto is_option = [](const std::string& s) { return s.size() > 1 && s.front() == '-'; };
  const auto option = std::find_if(extras.begin(), extras.end(), is_option);
  if (option == extras.end()) return "unexpected argument \"" + first_line(extras.front()) + "\"";
  const std::string name = option->substr(0, option->find('='));
  std::vector<std::string> names;
  for (const CLI::Option* known : app.get_options()) {
    for (const std::string& word : known->get_lnames()) names.push_back("--" + word);
  }
  std::string why = "unknown option " + first_line(name);
  if (const auto near = config::nearest(name, names)) why += "; did you mean " + *near + "?";
  return why;
}

}  // namespace kvc::host
