// How long the lists of one open may be, from its numbers.
#pragma once
#include <cstdint>
#include <vector>

#include "plugin/edge/open_config.h"

namespace kvc::edge {

// The longest list that an engine which keeps its own limits can pass. A longer one is a malformed
// struct: KVC_E_ARG with the numbers, nothing changed.
struct InBounds {
  std::uint64_t groups = 0;
  std::uint64_t scheduled = 0;
  std::uint64_t preempted = 0;
  std::uint64_t handoffs = 0;
  std::uint64_t candidates = 0;
  std::uint64_t ranks = 0;
  std::uint64_t reports = 0;
  std::vector<std::uint64_t> table_entries;  // per group

  [[nodiscard]] static InBounds of(const OpenConfig& config);
};

// Elements reserved at open for the lists that are copied.
struct Reserved {
  std::uint64_t tables = 0;
  std::uint64_t handoffs = 0;
  std::uint64_t blocks = 0;  // of one output
  std::uint64_t jobs = 0;    // of one output

  [[nodiscard]] static Reserved of(const OpenConfig& config, const InBounds& bounds);
};

}  // namespace kvc::edge
