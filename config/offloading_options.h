// Options of the offloading connector: TOML text to a plain struct, and back.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "config/parsed.h"
#include "config/shared_options.h"

namespace kvc::config {

// Validated once by parse_offloading, immutable after.
struct OffloadingOptions : SharedOptions {
  // [connector]
  // 1 .. 64: so many consecutive blocks of a group make one chunk, which has one slot (O-005).
  std::uint32_t blocks_per_chunk = 1;
  // 0 .. 2^31: a chunk is stored from its n-th offer on; 0 and 1 store all (O-240).
  std::uint32_t store_threshold = 0;
  // 1 .. 2^24: keys whose offers are counted at the same time (O-240).
  std::uint32_t max_tracker_size = 64'000;

  friend bool operator==(const OffloadingOptions&, const OffloadingOptions&) = default;
};

// Options from TOML text; an empty text gives the defaults above. `file` is the name used in
// messages. Errors: not TOML, unknown table or key (with the allowed ones and the nearest), wrong
// type, value out of range, another mode than "eager" (what the engine evicts is simple_cpu's to
// store). Any bytes are safe input.
Parsed<OffloadingOptions> parse_offloading(std::string_view text, std::string_view file);

// All values, defaults included, as TOML that parse_offloading reads back to an equal struct.
[[nodiscard]] std::string effective_toml(const OffloadingOptions& options);

}  // namespace kvc::config
