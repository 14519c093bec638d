// Units as types: tokens, blocks, bytes and hash units do not add to one another, and every
// rounding is spelled out at the call. Units come last in names (docs/semantics.md).
#pragma once
#include <compare>
#include <cstdint>

namespace kvc {

template <class Tag>
struct Amount {
  std::uint64_t n = 0;
  friend constexpr auto operator<=>(Amount, Amount) = default;
  friend constexpr Amount operator+(Amount a, Amount b) { return {a.n + b.n}; }
  // Requires a >= b.
  friend constexpr Amount operator-(Amount a, Amount b) { return {a.n - b.n}; }
  constexpr Amount& operator+=(Amount b) {
    n += b.n;
    return *this;
  }
  constexpr Amount& operator-=(Amount b) {
    n -= b.n;
    return *this;
  }
  friend constexpr Amount operator*(Amount a, std::uint64_t k) { return {a.n * k}; }
};

using Tokens = Amount<struct TokensTag>;
using Blocks = Amount<struct BlocksTag>;
using Bytes = Amount<struct BytesTag>;

inline constexpr Tokens no_token_limit{UINT64_MAX};

// Requires per > 0 in all four.
constexpr std::uint64_t ceil_div(std::uint64_t a, std::uint64_t per) {
  return a / per + (a % per != 0);
}
constexpr Tokens round_down(Tokens t, Tokens unit) { return {t.n - t.n % unit.n}; }
constexpr Blocks blocks_full(Tokens t, Tokens per_block) { return {t.n / per_block.n}; }
constexpr Blocks blocks_touched(Tokens t, Tokens per_block) { return {ceil_div(t.n, per_block.n)}; }
constexpr Tokens operator*(Blocks b, Tokens per_block) { return {b.n * per_block.n}; }

}  // namespace kvc
