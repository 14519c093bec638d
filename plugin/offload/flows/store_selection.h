// The store job that one call builds: reservations, holds and copies.
#pragma once
#include <cstdint>

#include "plugin/offload/flows/core.h"

namespace kvc {

// What shall be stored under one key: a block, or the blocks of a chunk.
struct StoreCandidate {
  RequestIndex request = no_request;
  GroupId group = 0;
  std::uint64_t position = 0;  // of the last block, in the engine's table
  BlockId block = 0;           // the last one
  // The blocks before it in its chunk, at the positions before its own.
  const BlockId* earlier = nullptr;
  std::uint32_t earlier_count = 0;
  const std::byte* key = nullptr;
  Tokens end;
  bool handoff = false;
  bool counted = true;  // its offer is counted: false when offered again after its outcome
  // The budget of holds may refuse it: positions, and everything of request_end (design "Holds").
  bool budgeted = true;
};

// Threads:    scheduler role only; lives for one call.
// Owns:       nothing; the job is the table's.
// Invariants: at most `room` copies are taken, a chunk's all or none; the job exists from the first
//             copy on.
class StoreSelection {
 public:
  // `finishing`: for request_end of that request, whose blocks lose their owner with this call;
  // `orphans` of its blocks will be orphans anyway.
  StoreSelection(SchedulerCore& core, std::uint64_t room) : core_(core), room_(room) {}
  StoreSelection(SchedulerCore& core, std::uint64_t room, RequestIndex finishing,
                 std::uint64_t orphans)
      : core_(core), room_(room), finishing_(finishing), new_orphans_(orphans) {}

  [[nodiscard]] bool finishing() const { return finishing_ != no_request; }
  [[nodiscard]] std::uint64_t room() const { return room_; }

  // There is room for its blocks.
  [[nodiscard]] bool fits(const StoreCandidate& c) const { return room_ > c.earlier_count; }
  // With block queries: the engine says that the blocks have their keys for this prefix.
  [[nodiscard]] bool hashed(const StoreCandidate& c) const;
  // Whether the budget of holds allows these blocks.
  [[nodiscard]] bool within_budget(const StoreCandidate& c) const;
  // Finishing: so many blocks will be held and in no table; how many more of those are allowed.
  [[nodiscard]] std::uint64_t new_orphans(const StoreCandidate& c) const;
  [[nodiscard]] std::uint64_t orphans_left() const { return core_.budget_left(new_orphans_); }
  // A slot, or no_slot with why. Requires: the key is absent; `bad` is what the tier's find said.
  [[nodiscard]] SlotId reserve(const StoreCandidate& c, SlotId bad, Refusal& refusal);
  // The blocks are copied into the slot: job, holds, copies. Requires: fits(c).
  void commit(const StoreCandidate& c, SlotId entry);

  // Null until something was committed.
  [[nodiscard]] Job* job() const { return job_; }

 private:
  void copy_block(const StoreCandidate& c, std::uint64_t position, BlockId block, SlotId entry);

  SchedulerCore& core_;
  std::uint64_t room_;
  RequestIndex finishing_ = no_request;
  std::uint64_t new_orphans_ = 0;
  Job* job_ = nullptr;
};

// The outcome that a refusal stands for.
[[nodiscard]] constexpr Outcome outcome_of(Refusal refusal) {
  switch (refusal) {
    case Refusal::leased:
      return Outcome::dropped_leased;
    case Refusal::no_parent:
      return Outcome::dropped_no_parent;
    case Refusal::none:
    case Refusal::declined:  // of what the pool holds nothing is worth less (docs/policies.md)
    case Refusal::pool_full:
      break;
  }
  return Outcome::dropped_pool_full;
}

}  // namespace kvc
