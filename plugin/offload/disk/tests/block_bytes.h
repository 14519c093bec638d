// Keys and bytes that follow from a number, so that everybody knows what a block must hold.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/offload/disk/format.h"

namespace kvc::disk_test {

using disk::Key;

inline Key key_number(std::uint64_t number) {
  Key key{};
  Prng rng(number);
  for (int i = 0; i < 2; ++i) {
    const std::uint64_t word = rng.next();
    std::memcpy(key.data() + i * 8, &word, sizeof word);
  }
  return key;
}

// The bytes that belong to a key of a group, whoever wrote them.
inline std::vector<std::byte> bytes_of(std::uint32_t group, std::uint64_t number,
                                       std::uint64_t count) {
  std::vector<std::byte> bytes(count);
  Prng rng(number * 64 + group);
  for (std::uint64_t i = 0; i < count; i += 8) {
    const std::uint64_t word = rng.next();
    std::memcpy(bytes.data() + i, &word, std::min<std::uint64_t>(8, count - i));
  }
  return bytes;
}

}  // namespace kvc::disk_test
