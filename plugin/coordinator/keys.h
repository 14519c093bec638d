// Keys are opaque fixed-length bytes made by the host: never recomputed, never interpreted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "plugin/core/check.h"
#include "plugin/core/units.h"

namespace kvc {

inline constexpr std::uint32_t key_bytes_min = 8;
inline constexpr std::uint32_t key_bytes_max = 32;

// A request's keys, contiguous: key i covers tokens [i * h, (i + 1) * h) and names the whole prefix
// of (i + 1) * h tokens. A view: the owner keeps the bytes alive and unmoved while
// it is used.
struct KeyView {
  const std::byte* data = nullptr;
  std::uint32_t key_bytes = 0;  // 8..32, the same for the whole instance
  std::uint64_t count = 0;

  // Requires i < count.
  [[nodiscard]] const std::byte* at(std::uint64_t i) const {
    KVC_CHECK(i < count);
    return data + i * key_bytes;
  }
};

// The key of the prefix of `end` tokens, for every group and block size: key end / h - 1.
// Requires end > 0, end % h == 0 and end / h <= keys.count.
inline const std::byte* block_key(const KeyView& keys, Tokens end, Tokens hash_unit) {
  KVC_CHECK(end.n > 0 && end.n % hash_unit.n == 0);
  return keys.at(end.n / hash_unit.n - 1);
}

// Keys with equal distances from `first`: key i is at first + i * stride. The stride may be
// negative. The distance of two positions of a group is B_g / h keys.
struct KeyRun {
  const std::byte* first = nullptr;
  std::ptrdiff_t stride = 0;  // bytes
  std::size_t count = 0;
};

}  // namespace kvc
