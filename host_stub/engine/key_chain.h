// Keys of a request: one 16-byte chained hash per complete hash unit, language neutral
//
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "host_stub/engine/options.h"
#include "plugin/coordinator/keys.h"

namespace kvc::host {

inline constexpr std::uint32_t engine_key_bytes = 16;

// key i = XXH3-128(key i - 1 | tokens of unit i as little-endian u32 | extra bytes of unit i); key
// -1 is a root made of the seed. Extra bytes (salt) belong to unit 0: every later key follows from
// it.
//
// Threads:    one user.
// Owns:       the key bytes, contiguous.
// Invariants: count() * h <= tokens seen; append only.
class KeyChain {
 public:
  // Requires hash_unit > 0.
  KeyChain(std::uint64_t hash_unit, std::uint64_t seed, std::string_view salt);

  // Adds the keys of all complete units of `tokens`, which starts with the tokens seen before.
  // Returns how many.
  std::uint64_t extend(std::span<const TokenId> tokens);

  [[nodiscard]] std::uint64_t count() const { return bytes_.size() / engine_key_bytes; }
  [[nodiscard]] const std::byte* data() const { return bytes_.data(); }
  [[nodiscard]] KeyView view() const { return {bytes_.data(), engine_key_bytes, count()}; }
  void reserve(std::uint64_t keys) { bytes_.reserve(keys * engine_key_bytes); }

 private:
  std::uint64_t unit_;
  std::vector<std::byte> bytes_;
  std::byte root_[engine_key_bytes]{};
  std::vector<std::byte> extra_;
  std::vector<std::byte> input_;
};

}  // namespace kvc::host
