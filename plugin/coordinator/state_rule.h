// At which boundaries of a prompt states are worth keeping (docs/policies.md, "States").
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

#include "plugin/coordinator/geometry.h"

namespace kvc {

// dense: at every block end and at the prompt's tail. tail: there only. automatic: there, where the
// prompt leaves what it shares with earlier ones, and, unless eviction is lru, at blocks 1, 2, 4,
// 8, ...
enum class StateRule : std::uint8_t { dense, tail, automatic };
[[nodiscard]] std::string_view name_of(StateRule rule);

struct PromptFacts {
  Tokens prompt;
  Tokens begin;   // what is computed begins here
  Tokens shared;  // with earlier prompts, by PrefixTags
  bool shared_at_end = false;
};

// What a rule asks for in one layout.
//
// Threads:    immutable; any thread.
// Owns:       nothing.
// Invariants: boundaries ascend, none twice, in (begin, prompt], and begin itself where prompts
//             part there; every group can serve a prefix that ends there.
class StatePlan {
 public:
  // `log_spaced`: automatic keeps blocks 1, 2, 4, 8, ... too. The layout must outlive the plan.
  StatePlan(const Geometry& geometry, StateRule rule, bool log_spaced);

  // False: the layout has no states that are handed off, or no hit can use them.
  [[nodiscard]] bool any() const { return block_ != Tokens{}; }
  // Uses the prefixes that prompts share.
  [[nodiscard]] bool wants_shared() const { return any() && rule_ == StateRule::automatic; }
  // Replaces the content of `out`.
  void list(const PromptFacts& facts, std::vector<Tokens>& out) const;
  // So many boundaries at most, but under dense.
  static constexpr std::size_t most = 70;

 private:
  void add(Tokens end, Tokens after, const PromptFacts& facts, std::vector<Tokens>& out) const;

  const Geometry& geometry_;
  StateRule rule_;
  bool log_spaced_;
  Tokens block_;         // the largest of the state groups
  GroupId tail_of_ = 0;  // the first of them
};

}  // namespace kvc
