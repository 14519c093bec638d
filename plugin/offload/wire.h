// Little-endian integers in flat bytes, aligned or not: what the plan and the report are made of.
#pragma once
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "plugin/core/result.h"

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

// Every format begins with: magic (4 bytes), version (2), bytes of the header (2), bytes of the
// whole (8). Where the checksum and the bytes that must be 0 stand is the format's own; all of it
// lies in the header.
inline constexpr std::size_t at_magic = 0;
inline constexpr std::size_t at_version = 4;
inline constexpr std::size_t at_header_bytes = 6;
inline constexpr std::size_t at_total = 8;

struct HeaderRules {
  const char* format;  // in texts of errors
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::size_t checksum;        // offset of 8 bytes
  std::size_t reserved;        // offset
  std::size_t reserved_bytes;  // a multiple of 4
};

template <class... Args>
[[nodiscard]] Status bad(const char* format, fmt::format_string<Args...> text, Args&&... args) {
  return {Code::arg, fmt::format("{}: ", format) + fmt::format(text, std::forward<Args>(args)...)};
}

// Whether a checksum stands in a header and is compared. Without one its place is 0.
enum class Sum : bool { none, whole };

// Whether `bytes` are a whole of this format as far as its header tells. Code::arg with the
// numbers; any bytes may be given.
[[nodiscard]] inline Status check_header(std::span<const std::uint8_t> bytes,
                                         const HeaderRules& rules, Sum summed = Sum::whole) {
  const char* name = rules.format;
  if (bytes.size() < rules.header_bytes) {
    return bad(name, "{} bytes are shorter than the header of {}", bytes.size(),
               rules.header_bytes);
  }
  const std::uint8_t* p = bytes.data();
  if (const auto magic = get<std::uint32_t>(p + at_magic); magic != rules.magic) {
    return bad(name, "magic {:#010x} is not {:#010x}", magic, rules.magic);
  }
  if (const auto version = get<std::uint16_t>(p + at_version); version != rules.version) {
    return bad(name, "version {} is not {}", version, rules.version);
  }
  if (const auto size = get<std::uint16_t>(p + at_header_bytes); size != rules.header_bytes) {
    return bad(name, "header of {} bytes, not {}", size, rules.header_bytes);
  }
  if (const auto total = get<std::uint64_t>(p + at_total); total != bytes.size()) {
    return bad(name, "{} bytes given, {} named in the header", bytes.size(), total);
  }
  if (summed == Sum::whole) {
    const auto stored = get<std::uint64_t>(p + rules.checksum);
    if (const auto sum = checksum(bytes, rules.checksum); sum != stored) {
      return bad(name, "checksum {:#018x} does not match the bytes ({:#018x})", stored, sum);
    }
  }
  for (std::size_t i = 0; i < rules.reserved_bytes; i += 4) {
    if (get<std::uint32_t>(p + rules.reserved + i) != 0) {
      return bad(name, "reserved header bytes are not 0");
    }
  }
  return {};
}

// The leading fields and the zeroes of a header whose total is `bytes`, and, last, the checksum.
inline void seal_header(std::span<std::uint8_t> bytes, const HeaderRules& rules,
                        Sum summed = Sum::whole) {
  std::uint8_t* p = bytes.data();
  put(p + at_magic, rules.magic);
  put(p + at_version, rules.version);
  put(p + at_header_bytes, rules.header_bytes);
  put(p + at_total, std::uint64_t{bytes.size()});
  for (std::size_t i = 0; i < rules.reserved_bytes; i += 4) {
    put(p + rules.reserved + i, std::uint32_t{0});
  }
  put(p + rules.checksum,
      summed == Sum::whole ? checksum(bytes, rules.checksum) : std::uint64_t{0});
}

}  // namespace kvc::wire
