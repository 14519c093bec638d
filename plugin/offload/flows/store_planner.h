// What a request offers by position, and its attention tails: order, cursors, refusals, outcomes
// (design 2.3 "Order inside build_store_jobs", "Offers"; CW-4, CW-8, CW-9, CW-10, CW-14).
#pragma once
#include <array>
#include <vector>

#include "plugin/offload/flows/store_selection.h"

namespace kvc {

// How pending offers of a request end when it stops offering.
enum class Settle : std::uint8_t {
  departing,      // preempted or over: the last refusal's name; what was never reached too
  reset,          // the last refusal's name; what was never reached is offered again
  bad_confirmed,  // its confirmed count fell: dropped_bad_offer
};

// Threads:    scheduler role only.
// Owns:       the order of groups; empty where filled blocks are not offered.
// Invariants: positions of a group are offered ascending; every offer is counted once per admission
//             and has one outcome.
class StorePlanner {
 public:
  explicit StorePlanner(SchedulerCore& core);

  // The request's offers of this step. Requires: live, admitted; r.confirmed is this step's.
  void offer_step(RequestIndex index, StoreSelection& selection);
  // offer_step with so many confirmed tokens comes soon: what it reads is fetched. Called with
  // `calls_left` 3, 2 and 1: each fetches what the last one's points to. Cheap where nothing is
  // due.
  void expect_step(RequestIndex index, Tokens confirmed, std::size_t calls_left) const;
  // Its last offers: final at once. Requires: live; the selection is finishing it.
  void offer_last(RequestIndex index, StoreSelection& selection);
  // Groups whose entry for a prefix of `boundary` tokens ends inside a block or chunk, but for the
  // prompt's tail, which is offered by itself: appended to `out`.
  void list_tails(const Request& r, Tokens boundary, std::vector<GroupId>& out) const;
  // The candidate of such a group. False: it has its outcome. Requires the key.
  [[nodiscard]] bool tail_candidate(RequestIndex index, GroupId group, Tokens boundary,
                                    const StoreSelection& selection, StoreCandidate& candidate,
                                    Outcome& outcome);
  // Ends what is pending at the cursor and behind other requests' copies.
  void settle(RequestIndex index, Settle how);

 private:
  enum class Decision : std::uint8_t {
    selected,  // a copy was planned
    decided,   // it has its outcome
    refused,   // may be offered again
    waits,     // another copy of the key is open
  };
  struct Verdict {
    Decision decision = Decision::decided;
    Outcome outcome = Outcome::dropped_bad_offer;
  };

  [[nodiscard]] bool writes(const Request& r) const { return !r.no_write && !r.stale; }
  // Positions [0, result) of the group in the tier are final and allowed to be stored.
  [[nodiscard]] std::uint64_t ready(const Request& r, GroupId group) const;
  [[nodiscard]] std::uint64_t keyed(const Request& r, GroupId group) const;
  void expect_position(RequestIndex index, GroupId group, std::uint64_t position) const;
  [[nodiscard]] Verdict try_position(RequestIndex index, GroupId group, std::uint64_t position,
                                     bool counted, StoreSelection& selection);
  [[nodiscard]] Verdict try_candidate(StoreCandidate& candidate, StoreSelection& selection);
  // The blocks that the candidate needs: all real, or decided.
  [[nodiscard]] bool find_blocks(RequestIndex index, StoreCandidate& candidate, Verdict& verdict);
  [[nodiscard]] bool find_block(RequestIndex index, const StoreCandidate& candidate,
                                std::uint64_t position, const std::byte* key, BlockId& block,
                                Verdict& verdict);
  // O-240: the keys of positions and tails that are due are counted, each once per admission.
  void count_keys(RequestIndex index);
  // The position is no offer: no hit can need it, or its key did not come often enough.
  [[nodiscard]] bool passed_over(RequestIndex index, GroupId group, std::uint64_t position);
  // The key is absent and did not come often enough; counts that once.
  [[nodiscard]] bool below_threshold(GroupId group, const std::byte* key, bool first_time);
  void retry_waiting(RequestIndex index, GroupId group, StoreSelection& selection);
  void offer_positions(RequestIndex index, GroupId group, StoreSelection& selection);
  void offer_tail(RequestIndex index, GroupId group, StoreSelection& selection);
  void go_back(RequestIndex index, GroupId group);
  void end_pending(RequestIndex index, GroupId group, Outcome outcome);
  void end_rest(RequestIndex index, GroupId group, bool after_refusal);
  // Counts the offer if it is counted: published before, or now.
  void count(RequestIndex index, bool counted, bool published, const Verdict& verdict);
  void end_waiting(RequestIndex index, GroupId group, const Outcome* forced);
  [[nodiscard]] Tokens next_due(const Request& r) const;

  SchedulerCore& core_;
  std::vector<GroupId> order_;  // groups stored by position, in the order of offering
  std::vector<GroupId> tails_;  // full-attention groups that may end inside a block or chunk
  std::array<BlockId, chunk_max> earlier_{};  // of the candidate at hand
  std::vector<OfferedKey> offered_;
};

}  // namespace kvc
