// Lazy mode: blocks are stored when the engine is about to evict them (design 2.3 "Step record",
// R-670..R-672).
#pragma once
#include <span>

#include "plugin/offload/flows/core.h"

namespace kvc {

// One offer is one (candidate, call). It is final in the call, or pending until its copy ends; it
// belongs to no request. A candidate whose key ends inside a block is no offer, only counted: lazy
// mode has no fine hits, so no lookup could reach it. In eager mode no candidate is an offer.
//
// Threads:    scheduler role only.
// Owns:       nothing; the job is the table's.
// Invariants: the key is the candidate's, kept from selection on (CW-8); a key is written by one
//             open copy at most (CW-9); what is there already is refreshed (CW-10), and nothing of
//             this call is evicted by it; every block taken counts against the budget of holds,
//             since no table names it.
class CandidatePlanner {
 public:
  explicit CandidatePlanner(SchedulerCore& core) : core_(core) {}

  // Offers the candidates in their order, the engine's order of eviction; at most `room` are taken.
  // The job that copies them, or null. A wrong candidate is a bad element: PEER_FAULT, then
  // dropped_bad_offer.
  [[nodiscard]] Job* offer(std::span<const Candidate> candidates, std::uint64_t room);

 private:
  // Group, block and end can be true at all.
  [[nodiscard]] bool legal(const Candidate& c) const;
  // `stored`: no open job names the block, and the engine's own query has its key.
  [[nodiscard]] Outcome confirm(const Candidate& c) const;
  // What stands against the candidate, or `stored`: `entry` is its slot.
  [[nodiscard]] Outcome judge(const Candidate& c, std::uint64_t room, SlotId& entry);
  void commit(const Candidate& c, SlotId entry, Job*& job);

  SchedulerCore& core_;
};

}  // namespace kvc
