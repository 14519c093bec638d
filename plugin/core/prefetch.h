// Fetching memory that will be used soon.
#pragma once
#include <cstddef>
#include <cstdint>

namespace kvc {

// The compiler takes a function that does nothing but prefetch for one without effect and drops the
// calls (GCC 12 does): the empty statement that needs the address keeps them.
[[gnu::always_inline]] inline void prefetch(const void* at) {
  __builtin_prefetch(at);
  asm volatile("" : : "r"(at));
}

// The same, to write there.
[[gnu::always_inline]] inline void prefetch_write(const void* at) {
  __builtin_prefetch(at, 1);
  asm volatile("" : : "r"(at));
}

// All of an object.
inline void prefetch_write_all(const void* first, std::size_t bytes) {
  constexpr std::size_t line = 64;
  const auto at = reinterpret_cast<std::uintptr_t>(first);
  for (std::uintptr_t p = at / line * line; p < at + bytes; p += line) {
    prefetch_write(reinterpret_cast<const void*>(p));
  }
}

}  // namespace kvc
