// Fetching memory that will be used soon.
#pragma once

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

}  // namespace kvc
