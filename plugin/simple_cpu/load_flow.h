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
  // Drops the holds of held() unless they were handed to a job.
  class Holding {
   public:
    explicit Holding(LoadFlow& flow) : flow_(&flow) {}
    Holding(const Holding&) = delete;
    Holding& operator=(const Holding&) = delete;
    ~Holding() {
      if (flow_ != nullptr) flow_->drop_blocks();
    }
    void hand_over() { flow_ = nullptr; }

   private:
    LoadFlow* flow_;
  };

  // Puts a hold on every block that must be loaded: held(), in the order of for_each_needed
  // backwards.
  // A block that an open job or an earlier position holds is refused (design 2.3 Destination).
  [[nodiscard]] Status take_blocks(const Request& r, Tokens accepted,
                                   std::span<const TableView> tables);
  [[nodiscard]] Status refuse_entry(const Request& r, GroupId group, std::uint64_t position,
                                    const TableView& table) const;
  [[nodiscard]] static Status refuse_held(const Request& r, GroupId group, std::uint64_t position,
                                          BlockId block);
  void drop_blocks();
  [[nodiscard]] std::span<HeldBlock> held() { return {held_.data() + used_, room_ - used_}; }
  void fill(Job& job, RequestIndex index, const Hit& hit);

  SchedulerCore& core_;
  Admissions& admissions_;
  LookupFlow& lookups_;
  std::vector<HeldBlock> held_;  // of it, [used_, room_)
  std::size_t used_ = 0;
  std::size_t room_ = 0;
  std::vector<SlotId> entries_;  // of one group
  MediumTokens medium_;
};

}  // namespace kvc
