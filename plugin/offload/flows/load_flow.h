// alloc_update: acceptance of a hit and the load job it becomes (design 2.3 "Acceptance",
// "Destination"; R-620..R-625, CW-3, CW-5).
#pragma once
#include <vector>

#include "plugin/core/zeroed.h"
#include "plugin/offload/flows/lookup_flow.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       the lists of its last answer.
// Invariants: a load job has exactly the needed set of [device, device + accepted) or no copies at
//             all; every entry it reads stays until the job ends: pinned by itself, or as an
//             ancestor of one that is (design 3.1 "Pins"). What an ancestor's pin does not stop, a
//             reset and the rewriting of a bad entry, pins it first (CompletionFlow).
class LoadFlow {
 public:
  LoadFlow(SchedulerCore& core, Admissions& admissions, LookupFlow& lookups);

  [[nodiscard]] Result<AllocResult> alloc_update(RequestId request, Tokens accepted,
                                                 std::span<const TableView> tables);
  // The load of this request was not planned yet and is not wanted any more.
  void cancel_unplanned(Request& r);

 private:
  // Of entries_ what one group has, one for every position of the tier.
  struct Part {
    GroupId group = 0;
    std::size_t first = 0;
    std::size_t walked = 0;  // so many are kept by the one behind them, the rest is to be pinned
  };

  [[nodiscard]] Status check(const Request& r, Tokens accepted,
                             std::span<const TableView> tables) const;
  // The entries that the load reads, by group, in the order of positions.
  [[nodiscard]] bool find_entries(const Request& r, const Hit& hit,
                                  std::span<const TableView> tables);
  // Puts a hold on every block that must be loaded: held_, by group. Where the request has no table
  // yet, its blocks count as named by it from then on: named_, for set_tables. A block that an open
  // job or an earlier position holds is refused (design 2.3 Destination), and then nothing is held
  // or named.
  [[nodiscard]] Status take_blocks(const Request& r, Tokens accepted,
                                   std::span<const TableView> tables);
  [[nodiscard]] std::uint64_t hold_range(const Request& r, GroupId group, const TableView& table,
                                         std::uint64_t first, std::uint64_t behind);
  [[nodiscard]] Status refuse_entry(const Request& r, GroupId group, std::uint64_t position,
                                    const TableView& table) const;
  [[nodiscard]] static Status refuse_held(const Request& r, GroupId group, std::uint64_t position,
                                          BlockId block);
  void drop_holds();
  void unname(std::span<const TableView> tables);
  [[nodiscard]] static std::uint64_t probe_of(const Request& r, Tokens end);
  void fill(Job& job, RequestIndex index);
  // The hit counts blocks on disk: opens the fill, and the copies read its slots. False: it cannot
  // be served, nothing changed.
  [[nodiscard]] bool fill_from_disk(Job& job, RequestIndex index, const Hit& hit);

  SchedulerCore& core_;
  Admissions& admissions_;
  LookupFlow& lookups_;
  std::vector<HeldRange> held_;
  PagedVector<SlotId> entries_;
  std::vector<Part> parts_;
  std::vector<NamedRange> named_;  // per group
  std::vector<MediumTokens> media_;
  bool disk_refused_ = false;  // a hit on disk could not be served
};

}  // namespace kvc
