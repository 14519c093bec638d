// Every offer has exactly one outcome (design 2.3 "Offers", 2.5.2).
#pragma once
#include <cstdint>
#include <string_view>

#include "plugin/core/check.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

enum class Outcome : std::uint8_t {
  stored,
  skipped_already_cached,
  skipped_in_flight,
  skipped_not_hashed,
  dropped_pool_full,
  dropped_request_gone,
  dropped_null_block,
  dropped_bad_offer,
  dropped_no_parent,
  dropped_parent_failed,
  dropped_copy_failed,
  dropped_leased,
  dropped_hold_budget,
  dropped_reset,
  dropped_plan_full,
};

[[nodiscard]] std::string_view name_of(Outcome outcome);
// The counter of an outcome inside a row.
[[nodiscard]] std::uint64_t& counter_of(OfferCounts& counts, Outcome outcome);

// Threads:    scheduler role only.
// Owns:       two rows: hand-offs alone, and all offers together.
// Invariants: published == pending + sum of outcomes in both rows, between any two calls.
class OfferLedger {
 public:
  // An offer was made; it is pending.
  void publish(bool handoff, OfferCounts& of_request) {
    open(counts_.all_offers);
    open(of_request);
    if (handoff) open(counts_.handoffs);
  }
  // A pending offer has its outcome.
  void end(bool handoff, Outcome outcome, OfferCounts& of_request) {
    close(counts_.all_offers, outcome);
    close(of_request, outcome);
    if (handoff) close(counts_.handoffs, outcome);
  }
  // An offer was made and has its outcome.
  void publish_ended(bool handoff, Outcome outcome, OfferCounts& of_request) {
    publish(handoff, of_request);
    end(handoff, outcome, of_request);
  }
  // n positional offers at once; n may be any number.
  void publish_ended_many(std::uint64_t n, Outcome outcome, OfferCounts& of_request) {
    for (OfferCounts* row : {&counts_.all_offers, &of_request}) {
      row->published += n;
      counter_of(*row, outcome) += n;
    }
  }
  [[nodiscard]] const BoundaryStats& counts() const { return counts_; }
  // Called at the end of every scheduler call (design 2.5.2).
  void check_balanced() const {
    KVC_CHECK(counts_.handoffs.balanced());
    KVC_CHECK(counts_.all_offers.balanced());
  }

 private:
  static void open(OfferCounts& row) {
    ++row.published;
    ++row.pending;
  }
  static void close(OfferCounts& row, Outcome outcome) {
    KVC_CHECK(row.pending > 0);
    --row.pending;
    ++counter_of(row, outcome);
  }

  BoundaryStats counts_;
};

}  // namespace kvc
