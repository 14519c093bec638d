// What an engine says of the blocks of a request (kvc.hints/1, docs/hints.md).
#pragma once
#include <cstdint>

namespace kvc {

inline constexpr std::int32_t priority_least = -2;
inline constexpr std::int32_t priority_most = 2;

struct Hint {
  std::int32_t priority = 0;  // priority_least .. priority_most: lower ones go first
  std::uint64_t ttl_ns = 0;   // so long after their last use they go before all others; 0: never
  bool prefetch = false;  // what slower tiers have of the prefix is wanted in the host tier soon
  friend bool operator==(const Hint&, const Hint&) = default;
};

}  // namespace kvc
