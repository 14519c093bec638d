// Options of the simple_cpu scheduler role; the edge fills them from the parsed TOML.
#pragma once
#include <cstdint>

namespace kvc {

struct SimpleCpuSchedulerOptions {
  // Blocks are stored when the engine is about to evict them, not when they are filled.
  bool lazy = false;
  std::uint32_t lease_steps = 1;             // 1..8: plans that a lease survives
  std::uint32_t max_leases = 64;             // >= 1
  std::uint64_t attach_steps = UINT64_MAX;   // LATER answers per admission; UINT64_MAX: no limit
  std::uint64_t held_device_blocks_max = 0;  // 0: the rule of design 2.3 "Holds"
  std::uint64_t load_deadline_ms = 30'000;   // of the ranks; single flight waits half of it
  bool chained_index = true;        // false: the flat index, also where the layout has a chain
  bool store_decode_blocks = true;  // false: only positions below the prompt's end are stored
  bool single_flight = true;        // false: lookup never answers LATER
  std::uint32_t event_ring_entries = 65'536;  // 0: no events
  std::uint64_t plan_bytes_max = 0;           // 0: by the largest request and step
};

}  // namespace kvc
