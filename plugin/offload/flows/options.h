// What every connector of this library may set of the flows; the edge fills it from the parsed
// TOML.
#pragma once
#include <cstdint>

#include "plugin/coordinator/state_rule.h"
#include "plugin/coordinator/tier_index.h"
#include "plugin/offload/cost_gate.h"

namespace kvc {

// The disk tiers of the ranks, as the scheduler role uses them (docs/semantics.md, "The disk
// tier").
struct DiskFlowOptions {
  std::uint64_t bytes = 0;  // of one rank, over all its paths; 0: there is no disk tier
  std::uint32_t paths = 1;
  bool on_eviction = false;         // false: write through
  std::uint32_t open_blocks = 256;  // >= 1: entries on their way to disk at the same time
};

struct FlowOptions {
  // False: filled blocks, tails and hand-offs are no offers; the connector's StorePolicy stores.
  bool store_when_filled = true;
  std::uint32_t blocks_per_chunk = 1;        // 1 .. 64: blocks of a group that share one slot
  std::uint32_t lease_steps = 1;             // 1..8: plans that a lease survives
  std::uint32_t max_leases = 64;             // >= 1
  std::uint32_t max_pins = 32;               // 0 .. 256 (kvc.hints/1)
  std::uint32_t max_pinned_percent = 50;     // 0 .. 100: of the host tier, that pins may hold
  std::uint64_t attach_steps = UINT64_MAX;   // LATER answers per admission; UINT64_MAX: no limit
  std::uint64_t held_device_blocks_max = 0;  // 0: the rule of design 2.3 "Holds"
  std::uint64_t load_deadline_ms = 30'000;   // of the ranks; single flight waits half of it
  bool chained_index = true;            // false: the flat index, also where the layout has a chain
  Eviction eviction = Eviction::lru;    // lru where the index has no chain
  StateRule states = StateRule::dense;  // which states an engine with kvc.retention/1 is asked for
  bool store_decode_blocks = true;      // false: only positions below the prompt's end are stored
  bool single_flight = true;            // false: lookup never answers LATER
  bool store_reachable_only = false;    // windows and states that no hit can need are passed over
  std::uint32_t store_threshold = 0;    // 2 and more: keys are stored from that offer on (O-240)
  std::uint32_t max_tracker_size = 64'000;    // >= 1: keys whose offers are counted
  std::uint32_t event_ring_entries = 65'536;  // 0: no events
  // 0: by the largest request and step. Of loads and stores: disk jobs come on top.
  std::uint64_t plan_bytes_max = 0;
  DiskFlowOptions disk;
  CostGateOptions cost_gate;  // which hits are worth a load (docs/cost_gate.md)
};

}  // namespace kvc
