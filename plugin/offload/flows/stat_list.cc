#include "plugin/offload/flows/stat_list.h"

#include <algorithm>

namespace kvc {

std::uint64_t leaked_slots(const SchedulerCore& core) {
  const HostTier& tier = core.tier;
  std::uint64_t leaked = tier.unaccounted();
  const std::uint64_t writing = core.jobs.entries_written() + core.disk.filling();
  if (tier.reserved() > writing) leaked += tier.reserved() - writing;
  const bool readers = core.leases.open_leases() != 0 || core.pins.open_pins() != 0 ||
                       core.jobs.copies_of(JobKind::load) != 0 || tier.numbers().rewriting != 0 ||
                       core.disk.open_spills() != 0;
  if (!readers) leaked += tier.pinned();
  return leaked;
}

namespace {

PendingWork pending_of(const SchedulerCore& core) {
  PendingWork out;
  out.load_jobs = core.jobs.open_of(JobKind::load);
  out.store_jobs = core.jobs.open_of(JobKind::store);
  out.held_blocks = core.holds.held();
  out.quarantined_blocks = core.quarantined;
  out.tier_jobs = core.disk.pending_jobs();
  return out;
}

constexpr std::size_t of_disk = 22;

// The last of stat_names.
std::array<std::uint64_t, of_disk> disk_numbers(const DiskFlow& d) {
  const DiskFlowCounters& c = d.counters();
  return {
      d.index().used_bytes(),
      d.index().budget_bytes(),
      d.index().counters().evictions,
      d.index().counters().refusals,
      d.index().counters().lost,
      c.hit_tokens,
      c.lookups_pending,
      c.lookups_warming,
      c.hits_cut,
      c.spills_ok,
      c.spills_failed,
      c.spills_skipped,
      c.fills_ok,
      c.fills_failed,
      c.lost_on_eviction,
      c.drops,
      c.resets,
      c.switched_off,
      d.ranks_off(),
      c.restored,
      c.restore_no_parent + c.restore_no_room + d.inventory().disagreed,
      d.pending_jobs(),
  };
}

constexpr std::size_t of_gate = 9;

// Those before them.
std::array<std::uint64_t, of_gate> gate_numbers(const CostGate& gate) {
  const CostGateCounters& c = gate.counters();
  return {
      c.decisions,
      c.refused,
      c.refused_tokens.n,
      c.disk_left,
      c.unmeasured,
      c.probes,
      gate.report().host.bytes_per_second,
      gate.report().disk.bytes_per_second,
      gate.report().prefill_tokens_per_second,
  };
}

constexpr std::size_t of_hints = 8;

// Those before them.
std::array<std::uint64_t, of_hints> hint_numbers(const SchedulerCore& core) {
  const TierIndexCounters& index = core.tier.numbers();
  return {
      core.counters.hints_taken,
      index.outranked,
      index.expired,
      core.pins.open_pins(),
      core.pins.blocks(),
      core.pins.counters().refused,
      core.pins.counters().lost,
      core.disk.counters().prefetched,
  };
}

// And the rest.
std::array<std::uint64_t, stat_names.size() - of_disk - of_gate - of_hints> role_numbers(
    const SchedulerCore& core) {
  const TierIndexCounters& index = core.tier.numbers();
  const PolicyNumbers policy = core.tier.policy();
  const RoleCounters& c = core.counters;
  return {
      core.tier.slots_total(),
      core.tier.slots_used(),
      leaked_slots(core),
      core.tier.evictable(),
      core.tier.pinned(),
      core.tier.reserved(),
      core.tier.counters().evictions,
      core.tier.counters().refusals,
      core.tier.published_entries(),
      core.leases.open_leases(),
      core.leases.dropped(),
      core.holds.held(),
      core.holds.orphaned(),
      core.hold_budget,
      core.quarantined,
      core.jobs.open(),
      c.loads_ok,
      c.loads_failed,
      c.loads_cancelled,
      c.load_blocks,
      c.store_blocks,
      c.loaded_bytes,
      c.stored_bytes,
      c.lookups,
      c.lookup_hit_tokens,
      c.lookups_attached,
      c.tokens_lost_no_state,
      c.draft_dropped_tokens,
      core.requests.live(),
      core.requests.shells(),
      core.requests.untracked(),
      c.requests_begun,
      c.requests_refused,
      core.requests.key_bytes_used(),
      c.preemptions,
      core.faults.count(),
      c.reports_rejected,
      c.resets,
      core.events.lost(),
      core.events.size(),
      core.step,
      core.tier.counters().bad_entries,
      core.tier.counters().rewritten_entries,
      0,
      c.bisections,
      c.linear_walks,
      index.unsupported,
      0,
      index.bytes,
      index.writer_pins,
      core.disk.index().numbers().published,
      c.candidates_unreachable,
      core.options.store_when_filled ? 0U : 1U,
      c.stores_below_threshold,
      policy.declined,
      policy.classes,
      policy.refreshes,
      policy.ghosts,
      policy.bytes,
      c.retention_questions,
      c.retention_boundaries,
      c.loads_in_step,
  };
}

}  // namespace

RoleNumbers numbers_of(const SchedulerCore& core) {
  RoleNumbers n;
  n.offers = core.ledger.counts();
  n.pending = pending_of(core);
  const auto role = role_numbers(core);
  const auto hints = hint_numbers(core);
  const auto gate = gate_numbers(core.gate);
  const auto disk = disk_numbers(core.disk);
  auto* at = std::copy(role.begin(), role.end(), n.stats.begin());
  at = std::copy(hints.begin(), hints.end(), at);
  at = std::copy(gate.begin(), gate.end(), at);
  std::copy(disk.begin(), disk.end(), at);
  return n;
}

}  // namespace kvc
