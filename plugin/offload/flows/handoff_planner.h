// State boundaries that the engine hands over (design 2.3 "Step record", R-338, R-339, R-640,
// R-645, CW-15).
#pragma once
#include <span>
#include <vector>

#include "plugin/offload/flows/store_planner.h"
#include "plugin/offload/flows/store_selection.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       scratch space, sized at construction; grows if a record has more hand-offs.
// Invariants: every hand-off of a tracked, writing request is counted and final in the call, but
//             none where filled blocks are not offered (R-672: states come as candidates, by
//             their keys); the states of one (request, boundary) get all their slots or none. Of a
//             request that asked for a list (kvc.retention/1) the attention tails there are offered
//             with them, one offer each, all together or none.
class HandoffPlanner {
 public:
  HandoffPlanner(SchedulerCore& core, StorePlanner& planner, std::uint64_t expected);

  // Hand-offs in order of boundary. `confirmed_of` of a request is r.confirmed, this step's.
  void offer(std::span<const Handoff> handoffs, StoreSelection& selection);
  // All of them end with this outcome: their request is over and cannot store.
  void end_all(std::span<const Handoff> handoffs, RequestIndex index, Outcome outcome);

 private:
  struct Item {
    Handoff handoff;
    std::uint32_t order = 0;
    RequestIndex request = no_request;
    StoreCandidate candidate;
    SlotId entry = no_slot;
    bool ready = false;
    bool tail = false;  // of attention, offered beside its states
  };
  enum class Checked : std::uint8_t { not_counted, ended, ready };

  [[nodiscard]] Checked check(Item& item, Outcome& outcome, StoreSelection& selection);
  [[nodiscard]] bool legal(const Handoff& h) const;
  // O-240, for the keys of the set together: false, none of them is an offer.
  [[nodiscard]] bool often_enough(std::span<const Item> set);
  // Into set_: the attention tails and states of one boundary. False: all have their outcome.
  [[nodiscard]] bool collect_set(std::span<const Item> states, StoreSelection& selection);
  void offer_set(std::span<Item> set, StoreSelection& selection);
  void end(Item& item, Outcome outcome);
  [[nodiscard]] OfferCounts& counts_of(RequestIndex index);

  SchedulerCore& core_;
  StorePlanner& planner_;
  std::vector<Item> items_;
  std::vector<Item> set_;
  std::vector<GroupId> tails_;
  std::vector<BlockId>
      earlier_;  // of the tails of set_: the blocks before the last in their chunks
  std::vector<OfferedKey> offered_;
  OfferCounts nobody_;  // offers of ids that are unknown
};

}  // namespace kvc
