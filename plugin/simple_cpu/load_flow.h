// alloc_update: acceptance of a hit and the load job it becomes (design 2.3 "Acceptance",
// "Destination"; R-620..R-625, CW-3, CW-5).
#pragma once
#include <vector>

#include "plugin/simple_cpu/lookup_flow.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       the lists of its last answer.
// Invariants: a load job has exactly the needed set of [device, device + accepted) or no copies at
//             all; every entry it reads is pinned until the job ends.
class LoadFlow {
 public:
  LoadFlow(SchedulerCore& core, Admissions& admissions, LookupFlow& lookups);

  [[nodiscard]] Result<AllocResult> alloc_update(RequestId request, Tokens accepted,
                                                 std::span<const TableView> tables);
  // The load of this request was not planned yet and is not wanted any more.
  void cancel_unplanned(Request& r);

 private:
  [[nodiscard]] Status check(const Request& r, Tokens accepted,
                             std::span<const TableView> tables) const;
  // Every destination is named once and no open job reads or writes it.
  [[nodiscard]] Status check_private(const Request& r, Tokens accepted,
                                     std::span<const TableView> tables);
  void fill(Job& job, RequestIndex index, const Hit& hit, std::span<const TableView> tables);

  SchedulerCore& core_;
  Admissions& admissions_;
  LookupFlow& lookups_;
  std::vector<HeldBlock> held_;
  MediumTokens medium_;
};

}  // namespace kvc
