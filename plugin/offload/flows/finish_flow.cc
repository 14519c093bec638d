#include "plugin/offload/flows/finish_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

FinishFlow::FinishFlow(SchedulerCore& core, Admissions& admissions, StorePlanner& planner,
                       HandoffPlanner& handoffs, LoadFlow& loads, PlanFlow& plans)
    : core_(core),
      admissions_(admissions),
      planner_(planner),
      handoffs_(handoffs),
      loads_(loads),
      plans_(plans) {
  if (core.limits.max_total_tokens == no_token_limit) return;
  std::uint64_t blocks = 0;
  for (const GroupId g : core.geometry.cacheable()) {
    blocks += 2 * core.geometry.end_position(g, core.limits.max_total_tokens);
  }
  held_.reserve(blocks);
}

void FinishFlow::last_offers(RequestIndex index, const RequestEnd& end, JobId& job) {
  Request& r = core_.requests[index];
  r.confirmed = end.confirmed;
  StoreSelection selection(core_, plans_.finish_room(), index, admissions_.future_orphans(index));
  planner_.offer_last(index, selection);
  handoffs_.offer(end.handoffs, selection);
  if (selection.job() == nullptr) return;
  plans_.expect_store(selection.job()->copies);
  job = selection.job()->id;
}

// Every device block of the request that open jobs hold, once per hold, deepest position first.
void FinishFlow::list_held(RequestIndex index) {
  core_.jobs.for_each_copy(core_.requests[index].open_parts, [&](const CopyRecord& copy) {
    held_.push_back({copy.group, copy.block, copy.position});
  });
  sort_deepest_first(core_.geometry, held_);
}

void FinishFlow::leave(RequestIndex index) {
  Request& r = core_.requests[index];
  core_.end_lease(r);
  loads_.cancel_unplanned(r);
  admissions_.disown_handoffs(index);
  // The token that was sampled last has no KV.
  const Tokens answer = r.confirmed < r.prompt ? Tokens{} : r.confirmed - r.prompt + Tokens{1};
  core_.tier.end_request(r.run, core_.requests.keys(r), answer);
  core_.tier.release_path(r.run);
  core_.disk.settle_notes();
  core_.disk.release_path(r);
  r.explain.phase = RequestPhase::over;
  core_.touch_explain(index);
  core_.requests.end(index);
  core_.release_if_drained(index);
}

Result<EndResult> FinishFlow::request_end(const RequestEnd& end) {
  held_.clear();
  const FoundRequest found = core_.find(end.request);
  if (!found.live()) {
    core_.requests.forget(end.request);
    return found.or_answer(EndResult{});
  }
  const RequestIndex index = found.index;
  Request& r = core_.requests[index];
  const Tokens before = r.confirmed;
  const bool fell =
      r.admitted && (end.confirmed < before || end.confirmed > core_.limits.max_total_tokens);
  // Under rank verdicts the engine may know the end of the load before we do.
  const bool loading = r.load != 0 && !core_.limits.rank_verdicts;
  EndResult out;
  if (fell) {
    planner_.settle(index, Settle::bad_confirmed);
    handoffs_.end_all(end.handoffs, index, Outcome::dropped_bad_offer);
  } else if (!r.admitted || loading || end.tables.empty()) {
    // It owns no blocks, or none that are written.
    planner_.settle(index, Settle::departing);
    handoffs_.end_all(end.handoffs, index, Outcome::dropped_request_gone);
  } else {
    admissions_.set_tables(index, end.tables);
    last_offers(index, end, out.job);
  }
  list_held(index);
  leave(index);
  if (fell) {
    core_.faults.report("KVC-H-041, confirmed-fell",
                        "request {} ends with {} confirmed tokens after {}", end.request,
                        end.confirmed.n, before.n);
    return {Code::arg,
            fmt::format("request {} ended with {} confirmed tokens after {}; it is over, its last "
                        "blocks are not stored",
                        end.request, end.confirmed.n, before.n)};
  }
  out.held = held_;
  return out;
}

}  // namespace kvc
