// A recording with a few bytes of one call changed, and all lengths and the checksum right again.
#pragma once
#include <string>

#include "conformance/validate/recording.h"
#include "plugin/core/prng.h"

#include <xxhash.h>

namespace kvc::validate::testing {

inline std::string resealed(const Recording& whole, Prng& draw) {
  const auto& calls = whole.calls();
  // Few calls, so that many recordings can be tried: the first ones open and join.
  const std::size_t kept = 20 + draw.below(calls.size() / 4);
  const std::size_t victim = draw.below(kept);
  std::string bytes(recording_magic);
  bytes += std::string("\x01\0\x10\0\0\0\0\0\0\0\0\0", 12);
  std::uint64_t hash = XXH3_64bits_withSeed(bytes.data(), bytes.size(), 0);
  for (std::size_t i = 0; i < kept; ++i) {
    std::string payload;
    Writer w(payload);
    w(calls[i].head);
    payload += calls[i].body;
    if (i == victim) {
      for (std::uint64_t n = 1 + draw.below(3); n > 0; --n) {
        payload[draw.below(payload.size())] = static_cast<char>(draw.below(256));
      }
    }
    std::string record;
    Writer(record).number(payload.size());
    record += payload;
    hash = XXH3_64bits_withSeed(record.data(), record.size(), hash);
    bytes += record;
  }
  bytes += '\0';
  for (unsigned shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(hash >> shift);
  return bytes;
}

}  // namespace kvc::validate::testing
