// Recordings made from calls of others: all lengths and the checksum are right.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/validate/recording.h"
#include "plugin/core/prng.h"

#include <xxhash.h>

namespace kvc::validate::testing {

// These calls in a recording of that version. change(i, bytes) may change those of call i.
template <class Change>
std::string sealed(const std::vector<RecordedCall>& calls, std::uint16_t version,
                   const Change& change) {
  std::string bytes(recording_magic);
  bytes += static_cast<char>(version);
  bytes += std::string("\0\x10\0\0\0\0\0\0\0\0\0", 11);
  std::uint64_t hash = XXH3_64bits_withSeed(bytes.data(), bytes.size(), 0);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    std::string payload;
    Writer w(payload);
    w(calls[i].head);
    payload += calls[i].body;
    change(i, payload);
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

// A few bytes of one call are changed.
inline std::string resealed(const Recording& whole, Prng& draw) {
  const auto& calls = whole.calls();
  // Few calls, so that many recordings can be tried: the first ones open and join.
  const std::size_t kept = 20 + draw.below(calls.size() / 4);
  const std::size_t victim = draw.below(kept);
  const std::vector<RecordedCall> first(calls.begin(),
                                        calls.begin() + static_cast<std::ptrdiff_t>(kept));
  return sealed(first, recording_version, [&](std::size_t i, std::string& payload) {
    if (i != victim) return;
    for (std::uint64_t n = 1 + draw.below(3); n > 0; --n) {
      payload[draw.below(payload.size())] = static_cast<char>(draw.below(256));
    }
  });
}

}  // namespace kvc::validate::testing
