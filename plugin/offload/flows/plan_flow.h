// build_store_jobs: the step record in, the plan out (design 2.3).
#pragma once
#include <algorithm>
#include <vector>

#include "plugin/offload/flows/handoff_planner.h"
#include "plugin/offload/flows/lookup_flow.h"
#include "plugin/offload/flows/store_policy.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/zeroed_array.h"

namespace kvc {

// Bytes of a plan: the option, or by the largest request and step. Code::arg when the option has no
// room for one load of max_total_tokens.
Result<std::uint64_t> plan_room_bytes(const Geometry& geometry, const OpenLimits& limits,
                                      const FlowOptions& options);

// Threads:    scheduler role only.
// Owns:       the plan's bytes and lists, valid until the next plan.
// Invariants: every job id that was handed out stands in exactly one plan; the work of a call is in
//             proportion to what changed and to the scheduled requests, never to their lengths.
class PlanFlow {
 public:
  PlanFlow(SchedulerCore& core, Admissions& admissions, StorePlanner& planner,
           HandoffPlanner& handoffs, StorePolicy& policy, LookupFlow& lookups,
           std::uint64_t plan_bytes_max);

  [[nodiscard]] Result<PlanResult> build(const StepRecord& step);
  // Promises that the load is in the next plan, as one in step; Code::later: it cannot be promised.
  // Errors: arg (unknown id, not its open load), state (planned already).
  [[nodiscard]] Status load_in_step(RequestId request, JobId job);
  // How many copies the store job of a request_end may have now: the next plan has room for it,
  // for those that wait already, and for the longest load or those in step. Loads wait for a plan
  // with room, stores never do.
  [[nodiscard]] std::uint64_t finish_room() const {
    const std::uint64_t loads = std::max(load_copies_, promised_);
    const std::uint64_t taken = loads + waiting_stores_ + job_copies;
    return copies_max_ - std::min(copies_max_, taken);
  }
  // A request_end made a store job of so many copies. Requires: finish_room() allowed it.
  void expect_store(std::uint64_t copies) { waiting_stores_ += copies + job_copies; }

 private:
  void preempt(std::span<const RequestId> ids);
  void expect(const ScheduledRequest& s, RequestIndex guess, std::size_t blocks_ahead) const;
  void schedule_all(std::span<const ScheduledRequest> scheduled, StoreSelection& selection);
  // `row`: the request in this row of the last step; becomes the one of this.
  void schedule(const ScheduledRequest& s, RequestIndex& row, StoreSelection& selection);
  // False: this element is bad, nothing is offered.
  [[nodiscard]] bool take_confirmed(RequestIndex index, const ScheduledRequest& s);
  // The cost gate learns what the step computes of the request's prompt, behind `before`.
  void note_prefill(Request& r, Tokens before);
  void encode_waiting_loads();
  void encode_waiting_stores();
  [[nodiscard]] bool encode(Job& job);
  void encode_new(Job* job);
  [[nodiscard]] std::uint64_t room_for_new() const;
  // Whether every load that waits, up to this one, is going to be in the next plan; then it stays
  // so.
  [[nodiscard]] bool next_plan_has(const Job& wanted);

  SchedulerCore& core_;
  Admissions& admissions_;
  StorePlanner& planner_;
  HandoffPlanner& handoffs_;
  StorePolicy& policy_;
  LookupFlow& lookups_;
  ZeroedArray<std::uint8_t> buffer_;  // resident as far as the largest plan was
  PlanEncoder encoder_;
  // What the entry of a job takes, in copies.
  static constexpr std::uint64_t job_copies = ceil_div(plan_job_bytes, plan_copy_bytes);
  std::uint64_t copies_max_ = 0;   // of one job alone
  std::uint64_t load_copies_ = 0;  // of the longest load
  // Copies of store jobs that no plan has yet, and job_copies each.
  std::uint64_t waiting_stores_ = 0;
  const Job* counted_ = nullptr;  // the last load in line whose copies_in_line is right; null: none
  std::uint64_t promised_ = 0;    // of loads that the next plan has for sure, counted like those
  std::uint64_t disk_room_ = 0;   // bytes of a plan for disk jobs
  std::uint64_t fill_room_ = 0;   // of them that fills may still take in the plan at hand
  std::vector<PlannedJob> jobs_;
  std::vector<HeldBlock> held_;
  std::vector<RequestIndex> rows_;  // of the last step; a guess
};

}  // namespace kvc
