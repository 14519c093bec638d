// The numbers of kvc.h and those of the core are the same numbers: asserted here, so that the edge
// converts by cast.
#pragma once
#include <kvc/kvc.h>

#include <string_view>

#include "plugin/core/result.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc::edge {

constexpr kvc_status to_abi(Code code) { return static_cast<kvc_status>(code); }

template <class E>
constexpr bool same(E ours, std::int32_t theirs) {
  return static_cast<std::int32_t>(ours) == theirs;
}

static_assert(same(Code::ok, KVC_OK) && same(Code::more, KVC_MORE) && same(Code::later, KVC_LATER));
static_assert(same(Code::arg, KVC_E_ARG) && same(Code::state, KVC_E_STATE));
static_assert(same(Code::room, KVC_E_ROOM) && same(Code::unsupported, KVC_E_UNSUPPORTED));
static_assert(same(Code::full, KVC_E_FULL) && same(Code::io, KVC_E_IO));
static_assert(same(Code::cancelled, KVC_E_CANCELLED) && same(Code::deadline, KVC_E_DEADLINE));
static_assert(same(Code::internal, KVC_E_INTERNAL));

static_assert(same(LogLevel::debug, KVC_LOG_DEBUG) && same(LogLevel::info, KVC_LOG_INFO));
static_assert(same(LogLevel::warn, KVC_LOG_WARN) && same(LogLevel::error, KVC_LOG_ERROR));
static_assert(same(LogLevel::peer_fault, KVC_LOG_PEER_FAULT));

static_assert(same(Why::none, KVC_WHY_NONE) && same(Why::miss, KVC_WHY_MISS));
static_assert(same(Why::local_unaligned, KVC_WHY_LOCAL_UNALIGNED));
static_assert(same(Why::no_ranks, KVC_WHY_NO_RANKS) && same(Why::no_read, KVC_WHY_NO_READ));
static_assert(same(Why::load_failed, KVC_WHY_LOAD_FAILED) && same(Why::reset, KVC_WHY_RESET));
static_assert(same(Why::cost_gate, KVC_WHY_COST_GATE) && same(Why::attached, KVC_WHY_ATTACHED));
static_assert(same(Why::not_tracked, KVC_WHY_NOT_TRACKED));

static_assert(same(Medium::host, KVC_MEDIUM_HOST) && same(Medium::disk, KVC_MEDIUM_DISK));
static_assert(same(Medium::remote, KVC_MEDIUM_REMOTE));
static_assert(same(JobKind::load, KVC_JOB_LOAD) && same(JobKind::store, KVC_JOB_STORE));
static_assert(same(FailedSide::source, KVC_SIDE_SOURCE));
static_assert(same(FailedSide::destination, KVC_SIDE_DESTINATION));
static_assert(same(EndReason::stop, KVC_END_STOP) && same(EndReason::length, KVC_END_LENGTH));
static_assert(same(EndReason::abort, KVC_END_ABORT) && same(EndReason::error, KVC_END_ERROR));
static_assert(same(EventKind::stored, KVC_EVENT_STORED));
static_assert(same(EventKind::removed, KVC_EVENT_REMOVED));
static_assert(same(EventKind::cleared, KVC_EVENT_CLEARED));
static_assert(no_token_limit.n == KVC_NO_LIMIT);

// The rows of counts are the same numbers in the same order, so one copy of bytes converts them.
static_assert(sizeof(OfferCounts) == sizeof(kvc_offer_counts) &&
              sizeof(kvc_offer_counts) == std::size_t{17} * 8);
static_assert(offsetof(OfferCounts, published) == offsetof(kvc_offer_counts, published));
static_assert(offsetof(OfferCounts, skipped_not_hashed) ==
              offsetof(kvc_offer_counts, skipped_not_hashed));
static_assert(offsetof(OfferCounts, dropped_leased) == offsetof(kvc_offer_counts, dropped_leased));
static_assert(offsetof(OfferCounts, dropped_plan_full) ==
              offsetof(kvc_offer_counts, dropped_plan_full));

}  // namespace kvc::edge
