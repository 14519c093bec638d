// The requirements of the line (rules.def) for those who check them: a finding or a case that names
// a rule which does not exist is no program.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace kvc::rules {

struct Rule {
  std::string_view id;
  std::string_view text;
  std::string_view otherwise;
  std::string_view ctest;  // a test of this tree; empty: none
};

inline constexpr std::array all_rules = std::to_array<Rule>({
#define KVC_RULE(id, text, otherwise, ctest) {id, text, otherwise, ctest},
#include "conformance/rules/rules.def"
#undef KVC_RULE
});

// The rule with that id; NULL: there is none.
constexpr const Rule* find_rule(std::string_view id) {
  const auto* const end = all_rules.data() + all_rules.size();
  const auto* const it =
      std::find_if(all_rules.data(), end, [id](const Rule& r) { return r.id == id; });
  return it == end ? nullptr : it;
}

// The id of an existing rule. A literal of another rule does not compile.
class RuleId {
 public:
  template <std::size_t n>
  consteval RuleId(const char (&id)[n]) {  // NOLINT: implicit
    // An index: under the undefined sanitizer gcc 12 takes no pointer as a constant.
    while (at_ < all_rules.size() && all_rules[at_].id != std::string_view(id, n - 1)) ++at_;
    if (at_ == all_rules.size()) throw "no such rule in conformance/rules/rules.def";
  }

  [[nodiscard]] constexpr const Rule& rule() const { return all_rules[at_]; }
  [[nodiscard]] constexpr std::string_view text() const { return rule().id; }
  constexpr bool operator==(const RuleId&) const = default;

 private:
  std::size_t at_ = 0;
};

}  // namespace kvc::rules
