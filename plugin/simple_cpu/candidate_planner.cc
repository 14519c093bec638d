#include "plugin/simple_cpu/candidate_planner.h"

#include "plugin/offload/flows/store_selection.h"

namespace kvc {

bool CandidatePlanner::legal(const Candidate& c) const {
  const Geometry& geometry = core_.geometry;
  if (c.group >= geometry.groups() || !geometry.group(c.group).cacheable) {
    core_.faults.report("KVC-H-048, candidate-group",
                        "a candidate is of group {}, which is not cached", c.group);
    return false;
  }
  if (!core_.holds.real(c.block)) {
    core_.faults.report("KVC-H-048, candidate-block",
                        "block {} of group {} is a candidate and no block of "
                        "the pool",
                        c.block, c.group);
    return false;
  }
  if (c.end == Tokens{} || c.end.n % geometry.hash_unit().n != 0 ||
      c.end > std::min(core_.limits.max_total_tokens, indexed_end_max)) {
    core_.faults.report("KVC-H-048, candidate-end",
                        "candidate block {} of group {} has a key of {} tokens; multiples of {} "
                        "up to {} are possible",
                        c.block, c.group, c.end.n, geometry.hash_unit().n,
                        std::min(core_.limits.max_total_tokens, indexed_end_max).n);
    return false;
  }
  return true;
}

Outcome CandidatePlanner::confirm(const Candidate& c) const {
  if (core_.holds.held_by_job(c.group, c.block)) {
    core_.faults.report("KVC-H-047, candidate-held",
                        "candidate block {} of group {} is held by an open job: it cannot be "
                        "evicted (design 2.3 Holds)",
                        c.block, c.group);
    return Outcome::dropped_bad_offer;
  }
  if (!core_.host.can_query_blocks()) return Outcome::stored;
  Tokens end;
  if (!core_.host.has_key(c.group, c.block, c.key, end)) return Outcome::skipped_not_hashed;
  if (end == c.end || end == Tokens{}) return Outcome::stored;
  core_.faults.report("KVC-H-048, candidate-end",
                      "candidate block {} of group {} has a key of {} tokens, the engine's query "
                      "says {}",
                      c.block, c.group, c.end.n, end.n);
  return Outcome::dropped_bad_offer;
}

Outcome CandidatePlanner::judge(const Candidate& c, std::uint64_t room, SlotId& entry) {
  if (!legal(c)) return Outcome::dropped_bad_offer;
  const auto* key = reinterpret_cast<const std::byte*>(c.key);
  switch (core_.tier.find(c.group, key, entry)) {
    case Presence::published:
      core_.tier.use(entry, core_.candidate_run, KeyView{});
      return Outcome::skipped_already_cached;
    case Presence::reserved:
      return Outcome::skipped_in_flight;
    case Presence::absent:
      break;
  }
  if (const Outcome o = confirm(c); o != Outcome::stored) return o;
  if (room == 0) return Outcome::dropped_plan_full;
  if (core_.budget_left(0) == 0) return Outcome::dropped_hold_budget;
  Refusal refusal = Refusal::none;
  entry = core_.tier.reserve(c.group, key, KeyView{}, c.end, core_.candidate_run, entry, refusal);
  return entry == no_slot ? outcome_of(refusal) : Outcome::stored;
}

void CandidatePlanner::commit(const Candidate& c, SlotId entry, Job*& job) {
  if (job == nullptr) job = &core_.jobs.create(JobKind::store, 0, no_request);
  CopyRecord copy;
  copy.block = c.block;
  copy.position =
      static_cast<std::uint32_t>((c.end.n - 1) / core_.geometry.block_tokens(c.group).n);
  copy.entry = entry;
  copy.group = static_cast<std::uint8_t>(c.group);
  copy.offer_open = true;
  core_.holds.hold(c.group, c.block);
  core_.jobs.add_copy(*job, copy, core_.parts_of_nobody);
}

Job* CandidatePlanner::offer(std::span<const Candidate> candidates, std::uint64_t room) {
  Job* job = nullptr;
  if (candidates.empty()) return job;
  core_.renew_candidate_run();
  for (const Candidate& c : candidates) {
    if (c.group < core_.geometry.groups() && core_.geometry.group(c.group).cacheable &&
        c.end.n % core_.geometry.block_tokens(c.group).n != 0 &&
        c.end.n % core_.geometry.hash_unit().n == 0) {
      ++core_.counters.candidates_unreachable;
      continue;
    }
    core_.ledger.publish(false, core_.nobody);
    SlotId entry = no_slot;
    const Outcome outcome = judge(c, room, entry);
    if (outcome != Outcome::stored) {
      core_.ledger.end(false, outcome, core_.nobody);
      continue;
    }
    commit(c, entry, job);
    --room;
  }
  return job;
}

}  // namespace kvc
