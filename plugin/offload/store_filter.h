// Which positions of a request any hit can need: what else is filled is not worth a slot (O-375).
#pragma once
#include <cstdint>
#include <vector>

#include "plugin/coordinator/geometry.h"

namespace kvc {

// Positions are those of the tier. A boundary is useful if hits may end there: every multiple of
// the hit alignment A, or, with a retention interval R of the engine, every multiple of R and the
// last multiple of A inside the prompt; with R = 0 the latter alone. Attention is needed whole,
// windows as far as they reach back from a useful boundary, states at one. States of a tier with
// chunks are kept at the ends of as many tokens as a chunk of them would have, rounded up to A, and
// at the prompt's last useful boundary. Layouts with draft groups keep all: their hits need what is
// behind them.
//
// Threads:    immutable; any thread. Owns: nothing; the geometry outlives it.
class StoreFilter {
 public:
  // off: everything is wanted.
  StoreFilter(const Geometry& tier, bool on);

  // The group keeps everything.
  [[nodiscard]] bool keeps_all(GroupId group) const { return steps_[group] == Tokens{1}; }
  [[nodiscard]] bool wanted(GroupId group, std::uint64_t position, Tokens prompt) const;
  // How many of positions [first, behind) are wanted. In O(period), whatever the range.
  [[nodiscard]] std::uint64_t count(GroupId group, std::uint64_t first, std::uint64_t behind,
                                    Tokens prompt) const;

 private:
  // The useful boundary of an ordinary kind behind `after` tokens; none with R = 0.
  [[nodiscard]] bool wanted_by_step(GroupId group, std::uint64_t position) const;
  [[nodiscard]] bool wanted_by_prompt(GroupId group, std::uint64_t position, Tokens prompt) const;
  [[nodiscard]] std::uint64_t count_by_step(GroupId group, std::uint64_t behind) const;

  const Geometry& tier_;
  std::vector<Tokens> steps_;              // per group: 1 keeps all, 0 has no ordinary boundaries
  std::vector<std::uint64_t> periods_;     // positions after which wanted_by_step repeats
  std::vector<std::uint64_t> per_period_;  // wanted ones among them
  bool prompts_ = false;                   // the prompt's own boundary counts
};

}  // namespace kvc
