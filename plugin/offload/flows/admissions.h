// Admission of a request and its end by preemption (design 2.3).
#pragma once
#include <span>

#include "plugin/offload/flows/store_planner.h"

namespace kvc {

// Threads: scheduler role only. Owns: nothing.
class Admissions {
 public:
  Admissions(SchedulerCore& core, StorePlanner& planner) : core_(core), planner_(planner) {}

  // It is told to the policy of the tier, once, before anything of it is used.
  void ask(RequestIndex index);
  // The request owns blocks from now on.
  void admit(RequestIndex index);
  // It lost them: pending offers end, tables and cursors are empty. Its open copies go on.
  void preempt(RequestIndex index);
  // set_tables comes soon: called with `calls_left` 3, 2 and 1, each fetches what the last one's
  // points to.
  void expect_tables(RequestIndex index, std::span<const TableView> tables,
                     std::size_t calls_left) const;
  // Takes the tables over. Groups that are not stored by position are passed over. `named`: per
  // group what the hold book counts already; empty: nothing.
  void set_tables(RequestIndex index, std::span<const TableView> tables,
                  std::span<const NamedRange> named = {});
  // set_tables would fill the empty table of the group, whatever the entries are.
  [[nodiscard]] bool fills_table(const Request& r, GroupId group, const TableView& table) const;
  // The cost gate is asked anew.
  static void forget_gate(Request& r) {
    r.gate = {};
    r.gate_disk = {};
  }
  // Blocks handed off by the request no longer count as named by it. Requires nothing.
  void disown_handoffs(RequestIndex index);
  // How many held blocks of the request will be in no table once it is over.
  [[nodiscard]] std::uint64_t future_orphans(RequestIndex index);

 private:
  [[nodiscard]] bool size_fits(GroupId group, const TableView& table) const;

  SchedulerCore& core_;
  StorePlanner& planner_;
};

}  // namespace kvc
