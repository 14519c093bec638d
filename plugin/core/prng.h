// A small seeded generator for tests, simulations and jitter: the same numbers on every platform
// and compiler (the distributions of <random> are not specified bit for bit).
#pragma once
#include <cstdint>

#include "plugin/core/check.h"

namespace kvc {

// SplitMix64: 64 bits of state, full period, any seed is good.
//
// Threads: one user. Owns: nothing. Invariants: the sequence depends on the seed alone.
class Prng {
 public:
  explicit constexpr Prng(std::uint64_t seed) : state_(seed) {}

  constexpr std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

  // A number in [0, bound). Requires bound > 0. The bias of the modulo is below 2^-32 for bounds
  // below 2^32.
  std::uint64_t below(std::uint64_t bound) {
    KVC_CHECK(bound > 0);
    return next() % bound;
  }

  // A number in [low, high]. Requires low <= high and not the whole 64-bit range.
  std::uint64_t between(std::uint64_t low, std::uint64_t high) {
    KVC_CHECK(low <= high);
    return low + below(high - low + 1);
  }

  // True in `times` of `of` draws on average. Requires of > 0.
  bool chance(std::uint64_t times, std::uint64_t of) { return below(of) < times; }

 private:
  std::uint64_t state_;
};

}  // namespace kvc
