#include "plugin/offload/offer_ledger.h"

#include <array>

namespace kvc {

namespace {

struct Row {
  std::string_view name;
  std::uint64_t OfferCounts::*field;
};

// In the order of Outcome.
constexpr std::array rows{
    Row{"stored", &OfferCounts::stored},
    Row{"skipped_already_cached", &OfferCounts::skipped_already_cached},
    Row{"skipped_in_flight", &OfferCounts::skipped_in_flight},
    Row{"skipped_not_hashed", &OfferCounts::skipped_not_hashed},
    Row{"dropped_pool_full", &OfferCounts::dropped_pool_full},
    Row{"dropped_request_gone", &OfferCounts::dropped_request_gone},
    Row{"dropped_null_block", &OfferCounts::dropped_null_block},
    Row{"dropped_bad_offer", &OfferCounts::dropped_bad_offer},
    Row{"dropped_no_parent", &OfferCounts::dropped_no_parent},
    Row{"dropped_parent_failed", &OfferCounts::dropped_parent_failed},
    Row{"dropped_copy_failed", &OfferCounts::dropped_copy_failed},
    Row{"dropped_leased", &OfferCounts::dropped_leased},
    Row{"dropped_hold_budget", &OfferCounts::dropped_hold_budget},
    Row{"dropped_reset", &OfferCounts::dropped_reset},
    Row{"dropped_plan_full", &OfferCounts::dropped_plan_full},
};

const Row& row_of(Outcome outcome) {
  const auto i = static_cast<std::size_t>(outcome);
  KVC_CHECK(i < rows.size());
  return rows[i];
}

}  // namespace

std::string_view name_of(Outcome outcome) { return row_of(outcome).name; }

std::uint64_t& counter_of(OfferCounts& counts, Outcome outcome) {
  return counts.*row_of(outcome).field;
}

}  // namespace kvc
