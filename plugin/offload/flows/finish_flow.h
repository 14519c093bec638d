// request_end: the last offers of a request, and what it leaves behind (design 2.3,
// CW-15, K4-24, K4-26, K4-28).
#pragma once
#include <vector>

#include "plugin/offload/flows/handoff_planner.h"
#include "plugin/offload/flows/load_flow.h"
#include "plugin/offload/flows/plan_flow.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       the list of its last answer.
// Invariants: the id is unknown afterwards, also when the call answers an error for the confirmed
//             count; open jobs of the request still end.
class FinishFlow {
 public:
  FinishFlow(SchedulerCore& core, Admissions& admissions, StorePlanner& planner,
             HandoffPlanner& handoffs, LoadFlow& loads, PlanFlow& plans);

  [[nodiscard]] Result<EndResult> request_end(const RequestEnd& end);

 private:
  void last_offers(RequestIndex index, const RequestEnd& end, JobId& job);
  void list_held(RequestIndex index);
  void leave(RequestIndex index);

  SchedulerCore& core_;
  Admissions& admissions_;
  StorePlanner& planner_;
  HandoffPlanner& handoffs_;
  LoadFlow& loads_;
  PlanFlow& plans_;
  std::vector<HeldBlock> held_;
};

}  // namespace kvc
