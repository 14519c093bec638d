// Little-endian integers in flat bytes, aligned or not: what the plan and the report are made of.
#pragma once
#include <xxhash.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace kvc::wire {

template <class T>
inline void put(std::uint8_t* at, T value) {
  auto v = static_cast<std::make_unsigned_t<T>>(value);
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(at, &v, sizeof v);
  } else {
    for (std::size_t i = 0; i < sizeof v; ++i) at[i] = static_cast<std::uint8_t>(v >> (8 * i));
  }
}

template <class T>
[[nodiscard]] inline T get(const std::uint8_t* at) {
  std::make_unsigned_t<T> v = 0;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&v, at, sizeof v);
  } else {
    for (std::size_t i = 0; i < sizeof v; ++i) {
      v = static_cast<std::make_unsigned_t<T>>(v | static_cast<std::make_unsigned_t<T>>(at[i])
                                                       << (8 * i));
    }
  }
  return static_cast<T>(v);
}

// XXH3-64 of everything behind the 8-byte checksum field at `field`, seeded with XXH3-64 of
// everything before it: covers every byte but the field itself. Requires field + 8 <= bytes.size().
[[nodiscard]] inline std::uint64_t checksum(std::span<const std::uint8_t> bytes,
                                            std::size_t field) {
  const std::uint64_t head = XXH3_64bits(bytes.data(), field);
  return XXH3_64bits_withSeed(bytes.data() + field + 8, bytes.size() - field - 8, head);
}

}  // namespace kvc::wire
