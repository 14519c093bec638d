// The hash and comparison of keys that every index uses.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "plugin/coordinator/geometry.h"

namespace kvc::key_hash {

__extension__ using Wide = unsigned __int128;

inline std::uint64_t load64(const std::byte* p) {
  std::uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const Wide m = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(m) ^ static_cast<std::uint64_t>(m >> 64);
}

// Hosts choose the keys; all bytes count, so that no family of keys collapses on one place. The odd
// constants are digits of pi and e. Requires key_bytes >= 8.
inline std::uint32_t tag_of(GroupId group, const std::byte* key, std::uint32_t key_bytes) {
  std::uint64_t h = 0x243f6a8885a308d3u + group;
  for (std::uint32_t i = 0; i + 8 <= key_bytes; i += 8)
    h = mix(h ^ load64(key + i), 0xb7e151628aed2a6bu ^ (h << 1));
  if (key_bytes % 8 != 0) h = mix(h ^ load64(key + key_bytes - 8), 0xb7e151628aed2a6bu ^ (h << 1));
  return static_cast<std::uint32_t>(mix(h, 0x9e3779b97f4a7c15u) >> 32);
}

// Requires n >= 8. Faster than a call of memcmp for these few bytes.
inline bool equal(const std::byte* a, const std::byte* b, std::uint32_t n) {
  std::uint64_t differ = load64(a + n - 8) ^ load64(b + n - 8);
  for (std::uint32_t i = 0; i + 8 < n; i += 8) differ |= load64(a + i) ^ load64(b + i);
  return differ == 0;
}

}  // namespace kvc::key_hash
