// complete: reports of the ranks in, ended jobs and verdicts out (design 2.3, 2.4; R-680..R-684,
// CW-6, CW-8, K2-15, K3-21).
#pragma once
#include <vector>

#include "plugin/offload/flows/core.h"
#include "plugin/offload/report_format.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       the lists of its last answer.
// Invariants: a job ends once, when every rank said so; a load has one verdict; an entry of a
// report
//             is used or stands in `rejected`.
class CompletionFlow final : private TierListener {
 public:
  explicit CompletionFlow(SchedulerCore& core) : core_(core) { core.tier.set_listener(*this); }
  CompletionFlow(const CompletionFlow&) = delete;
  CompletionFlow& operator=(const CompletionFlow&) = delete;
  // No heap below these numbers.
  void reserve(std::uint64_t jobs, std::uint64_t blocks);

  // A reset: offers of open copies end; with `invalidate` open loads end failed, those not planned
  // yet without copies.
  void reset_jobs(bool invalidate);
  // Shells of ended requests whose last entry is published or gone.
  void release_drained();

  [[nodiscard]] CompleteResult complete(std::span<const std::span<const std::uint8_t>> reports);

 private:
  struct Ended {
    EndedJob job;
    std::size_t failed_first = 0;
    std::size_t released_first = 0;
  };

  void take_report(std::uint64_t number, std::span<const std::uint8_t> bytes);
  void take_entry(std::uint64_t number, std::uint32_t rank, const ReportEntry& entry);
  void reject(std::uint32_t rank, std::uint64_t number, JobId job, Code status);
  void take_failures(Job& job, const ReportEntry& entry);
  void condemn(SlotId entry);
  void overdue(Job& job);
  void give_verdict(Job& job);
  void tell_gate(const Job& job);
  void end_job(Job& job);
  void end_store_copy(const Job& job, CopyRecord& copy);
  void end_copy(CopyRecord& copy);
  void pin_alone(CopyRecord& copy);
  void stored_event(RequestIndex index, SlotId entry);
  void published(SlotId entry, std::uint32_t tag) override;
  void landed_ended(std::uint32_t tag, bool by_reset) override;
  void evicted(const SlotKey& key) override;
  [[nodiscard]] bool take_disk_entry(std::uint64_t number, std::uint32_t rank,
                                     const ReportEntry& entry);
  void leave_landed(std::uint32_t tag);
  void end_tagged(std::uint32_t tag, Outcome outcome);
  [[nodiscard]] bool needs(const Request& r, Tokens begin, Tokens end, const SlotKey& key) const;
  void end_offer(CopyRecord& copy, Outcome outcome);

  SchedulerCore& core_;
  SlotId publishing_ = no_slot;  // of the copy that ends now: it did not land before
  std::vector<Ended> ended_;
  std::vector<EndedJob> jobs_;
  std::vector<Verdict> verdicts_;
  std::vector<RejectedEntry> rejected_;
  std::vector<FailedBlock> failed_;
  std::vector<HeldBlock> released_;
  std::vector<RequestIndex> drained_;
};

}  // namespace kvc
