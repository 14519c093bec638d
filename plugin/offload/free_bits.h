// A set of small numbers that gives out its lowest one: free pages of a tier.
#pragma once
#include <array>
#include <bit>
#include <cstdint>

#include "plugin/core/check.h"
#include "plugin/offload/zeroed_array.h"

namespace kvc {

// Threads:    one user.
// Owns:       one bit per number, and a 64th of that for each level above: bit i of a level says
//             that word i of the level below is not 0.
// Invariants: numbers below 2^36. No heap in insert and take once ensure() was told the range.
class FreeBits {
 public:
  // Numbers below `count` may be inserted.
  void ensure(std::uint64_t count) {
    for (ZeroedArray<std::uint64_t>& level : levels_) {
      count = (count + 63) / 64;
      level.ensure(count);
    }
  }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] bool contains(std::uint64_t n) const {
    return n / 64 < levels_[0].size() && (levels_[0][n / 64] >> n % 64 & 1U) != 0;
  }
  // Requires: ensured, not contained.
  void insert(std::uint64_t n) {
    KVC_CHECK(!contains(n));
    ++size_;
    for (ZeroedArray<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[n / 64];
      const bool known_above = word != 0;
      word |= std::uint64_t{1} << n % 64;
      if (known_above) return;
      n /= 64;
    }
  }
  // The lowest number, no longer contained. Requires !empty().
  std::uint64_t take() {
    KVC_CHECK(!empty());
    std::uint64_t n = 0;
    for (std::size_t level = levels_.size(); level-- > 0;) {
      n = n * 64 + static_cast<std::uint64_t>(std::countr_zero(levels_[level][n]));
    }
    --size_;
    std::uint64_t at = n;
    for (ZeroedArray<std::uint64_t>& level : levels_) {
      std::uint64_t& word = level[at / 64];
      word &= ~(std::uint64_t{1} << at % 64);
      if (word != 0) break;
      at /= 64;
    }
    return n;
  }

 private:
  std::array<ZeroedArray<std::uint64_t>, 6> levels_;
  std::uint64_t size_ = 0;
};

}  // namespace kvc
