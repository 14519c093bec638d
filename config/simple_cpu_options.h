// Options of the simple_cpu connector: TOML text to a plain struct, and back.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "config/parsed.h"

namespace kvc::config {

enum class StoreMode { eager, lazy };
enum class IndexKind { chained, flat };

// What is stored, how much of it, and how long anything may take. Validated once by
// parse_simple_cpu, immutable after.
struct SimpleCpuOptions {
  // [host] Exactly one rule sizes the host pool of a rank: unlimited, else host_blocks if not 0,
  // else host_bytes.
  std::uint64_t host_bytes = std::uint64_t{8}
                             << 30U;  // per rank, 1 .. 2^60 (R-601: the peer's default, 8 GiB)
  std::uint64_t host_blocks =
      0;  // blocks of the largest group, 2 .. 2^40; 0: not given, host_bytes counts
  bool host_unlimited = false;     // for measuring only: grows in slabs (design section 4)
  std::uint32_t copy_threads = 1;  // 1 .. 64, per rank

  // [connector]
  // eager: a block is stored in the step that fills it; lazy: when the engine is about to evict it
  StoreMode mode = StoreMode::eager;
  IndexKind index = IndexKind::chained;  // flat: also where the layout has a chain (design 3.1)
  std::uint32_t lease_steps = 1;         // 1 .. 8 (design 2.3 Lease)
  std::uint32_t max_leases = 64;         // 1 .. 65536 (design 2.3 Lease)
  std::uint64_t attach_steps =
      UINT64_MAX;  // LATER answers per admission; UINT64_MAX: no limit (design section 3)
  std::uint64_t held_device_blocks_max = 0;  // 0: the rule of design 2.3 Holds
  std::uint64_t load_deadline_ms = 30'000;   // design 2.4
  std::uint64_t store_deadline_ms = 60'000;  // design 2.4
  bool store_decode_blocks = true;  // false: only positions below the prompt's end are stored
  bool single_flight = true;        // false: lookup never answers LATER for another request's load
  std::uint32_t event_ring_entries = 65'536;  // 0: no events are kept
  std::uint64_t plan_bytes_max =
      0;  // 0: large enough for one load of max_total_tokens (design 2.3 Jobs)

  friend bool operator==(const SimpleCpuOptions&, const SimpleCpuOptions&) = default;
};

// Options from TOML text; an empty text gives the defaults above. `file` is the name used in
// messages. Errors: not TOML, unknown table or key (with the allowed ones and the nearest), wrong
// type, value out of range, store_decode_blocks = false in lazy mode (the connector cannot know
// which request filled a block), a pool below two blocks. Any bytes are safe input.
Parsed<SimpleCpuOptions> parse_simple_cpu(std::string_view text, std::string_view file);

// All values, defaults included, as TOML that parse_simple_cpu reads back to an equal struct.
[[nodiscard]] std::string effective_toml(const SimpleCpuOptions& options);

// `text` with [host] blocks = `blocks` and unlimited = false, everything else kept (comments are
// lost); the text may belong to any connector. For programs that override the pool size from their
// command line. Errors: not TOML, host is no table.
Parsed<std::string> with_host_blocks(std::string_view text, std::string_view file,
                                     std::uint64_t blocks);

}  // namespace kvc::config
