// The numbers of stats(): one list of names and where each comes from.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "plugin/offload/flows/core.h"

namespace kvc {

// Monotonic unless the name ends in _now. The counters of aliases and directories are 0 in this
// connector: no slot has two keys, and the offsets of tails never overflow. Those of the disk tier
// count entries of all ranks as one.
inline constexpr std::array<std::string_view, 101> stat_names{
    "host_slots_total",
    "host_slots_used_now",
    "host_slots_leaked_now",
    "host_slots_evictable_now",
    "host_slots_pinned_now",
    "host_slots_reserved_now",
    "host_evictions",
    "host_refusals",
    "host_published_now",
    "leases_open_now",
    "leases_dropped",
    "holds_open_now",
    "holds_orphaned_now",
    "holds_budget",
    "held_blocks_quarantined_now",
    "jobs_open_now",
    "loads_ok",
    "loads_failed",
    "loads_cancelled",
    "load_blocks",
    "store_blocks",
    "loaded_bytes",
    "stored_bytes",
    "lookups",
    "lookup_hit_tokens",
    "lookups_attached",
    "tokens_lost_no_state",
    "draft_dropped_tokens",
    "requests_live_now",
    "requests_draining_now",
    "requests_untracked_now",
    "requests_begun",
    "requests_refused",
    "request_key_bytes_now",
    "preemptions",
    "peer_faults",
    "reports_rejected",
    "resets",
    "events_lost",
    "events_waiting_now",
    "steps",
    "index_bad_entries",
    "index_rewritten_entries",
    "index_aliases_refused",
    "index_bisections",
    "index_linear_walks",
    "index_unsupported_entries_now",
    "index_directory_overflows",
    "index_bytes_now",
    "writer_pins_now",
    "disk_blocks_now",
    "candidates_unreachable",
    "lazy_mode_now",
    "stores_below_threshold",
    "policy_declined",
    "policy_classes_now",
    "policy_refreshes",
    "policy_ghosts_now",
    "policy_bytes_now",
    "retention_questions",
    "retention_boundaries",
    "loads_in_step",
    "hints_taken",
    "hint_refusals",
    "ttl_expired_entries",
    "pins_open_now",
    "pin_blocks_now",
    "pins_refused",
    "pins_lost",
    "prefetched_entries",
    "cost_gate_decisions",
    "cost_gate_refused",
    "cost_gate_refused_tokens",
    "cost_gate_disk_left",
    "cost_gate_unmeasured",
    "cost_gate_probes",
    "cost_gate_host_bytes_per_second_now",
    "cost_gate_disk_bytes_per_second_now",
    "cost_gate_prefill_tokens_per_second_now",
    "disk_used_bytes_now",
    "disk_budget_bytes_now",
    "disk_evictions",
    "disk_refusals",
    "disk_lost",
    "disk_hit_tokens",
    "disk_lookups_pending",
    "disk_lookups_warming",
    "disk_hits_cut",
    "disk_spills_ok",
    "disk_spills_failed",
    "disk_spills_skipped",
    "disk_fills_ok",
    "disk_fills_failed",
    "disk_lost_on_eviction",
    "disk_drops",
    "disk_resets",
    "disk_switched_off",
    "disk_ranks_off_now",
    "disk_restored",
    "disk_restore_dropped",
    "disk_jobs_open_now",
};

struct RoleNumbers {
  BoundaryStats offers;
  PendingWork pending;
  std::array<std::uint64_t, stat_names.size()> stats{};
};

// What is true now.
[[nodiscard]] RoleNumbers numbers_of(const SchedulerCore& core);

// Slots that are neither free, evictable, pinned by an open lease or job, written by an open job,
// nor waiting for one: 0 when all is right (design 2.5.4).
[[nodiscard]] std::uint64_t leaked_slots(const SchedulerCore& core);

}  // namespace kvc
