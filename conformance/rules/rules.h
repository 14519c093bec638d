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
  consteval RuleId(const char (&id)[n]) : rule_(find_rule({id, n - 1})) {  // NOLINT: implicit
    if (rule_ == nullptr) throw "no such rule in conformance/rules/rules.def";
  }

  [[nodiscard]] constexpr const Rule& rule() const { return *rule_; }
  [[nodiscard]] constexpr std::string_view text() const { return rule_->id; }
  constexpr bool operator==(const RuleId&) const = default;

 private:
  const Rule* rule_;
};

}  // namespace kvc::rules
