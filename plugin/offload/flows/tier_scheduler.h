// The scheduler role that the connectors share: a host tier beside the engine's own prefix cache
// (spec R-601..R-696 with the deviations of design section 3). What one of them adds is its
// StorePolicy.
#pragma once
#include <memory>
#include <vector>

#include "plugin/core/counters.h"
#include "plugin/offload/flows/completion_flow.h"
#include "plugin/offload/flows/finish_flow.h"
#include "plugin/offload/flows/hints.h"
#include "plugin/offload/flows/plan_flow.h"
#include "plugin/offload/flows/retention.h"
#include "plugin/offload/flows/stat_list.h"

namespace kvc {

// The layout of a tier with chunks of so many blocks of the engine's layout: what the scheduler
// role and every rank must agree on. Errors: those of Geometry::make.
Result<Geometry> tier_geometry_of(const Geometry& geometry, std::uint32_t blocks_per_chunk);

// Checks options against the layout and makes the role. Errors: Code::arg with the numbers (a plan
// that cannot hold one load, lease_steps or max_leases out of range, a key length outside 8..32,
// blocks_per_chunk outside 1..64).
// `host` must outlive the role. Gates that switch a feature off for this layout are logged once.
Result<std::unique_ptr<SchedulerRole>> make_tier_scheduler(Geometry geometry,
                                                           const OpenLimits& limits,
                                                           const FlowOptions& options,
                                                           std::unique_ptr<StorePolicy> policy,
                                                           HostServices& host);

// Threads:    as SchedulerRole.
// Owns:       the policy, the core and the flows over it; the numbers it publishes after every
// call. Invariants: after every call offers are balanced and the published numbers are those of the
// call.
class TierScheduler final : public SchedulerRole {
 public:
  TierScheduler(Geometry geometry, Geometry tier_geometry, const OpenLimits& limits,
                const FlowOptions& options, std::unique_ptr<StorePolicy> policy, HostServices& host,
                std::uint64_t plan_bytes_max);

  Result<std::span<const SlotClass>> set_ranks(std::span<const RankInfo> ranks) override;
  Status request_begin(const RequestBegin& begin) override;
  Status request_extend(RequestId request, std::uint64_t first_key, const std::uint8_t* keys,
                        std::uint64_t key_count) override;
  Result<LookupAnswer> lookup(const LookupQuery& query) override;
  Status lookup_cancel(RequestId request) override;
  Result<AllocResult> alloc_update(RequestId request, Tokens accepted,
                                   std::span<const TableView> tables) override;
  Result<PlanResult> build_store_jobs(const StepRecord& step) override;
  Result<CompleteResult> complete(std::span<const std::span<const std::uint8_t>> reports) override;
  Result<EndResult> request_end(const RequestEnd& end) override;
  Result<RetentionAnswer> retained(RequestId request, Tokens begin) override;
  Status load_in_step(RequestId request, JobId job) override;
  Status hint(RequestId request, const Hint& hint) override;
  Result<PinAnswer> pin(RequestId request, Tokens most) override;
  Status unpin(PinId pin) override;
  bool take_events(std::span<CacheEvent> out, std::size_t& count) override;
  Status reset(bool invalidate) override;
  Status pump(std::uint32_t budget) override;

  [[nodiscard]] BoundaryStats counts() const override;
  [[nodiscard]] PendingWork pending() const override;
  [[nodiscard]] std::size_t stat_count() const override;
  void stats(std::span<Stat> out) const override;
  [[nodiscard]] Result<std::string> explain(RequestId request) const override;
  [[nodiscard]] std::string verify() const override;

  // Its parts, for tests and measurements.
  [[nodiscard]] const SchedulerCore& core() const { return core_; }

 private:
  // A scheduler call is over: checks that offers are balanced, publishes the numbers and the
  // records of the requests that changed. Returns its argument.
  template <class T>
  T done(T result) {
    publish();
    return result;
  }
  void publish();
  // A call ends soon: what publish reads and writes is fetched beside the call's own work.
  void expect_publish() const;
  void note_gates();
  void note_policy();
  void reserve();
  [[nodiscard]] std::uint64_t runs_expected(std::uint64_t pages) const;
  // So many keys end where the index can keep an entry.
  [[nodiscard]] bool indexable(std::uint64_t keys) const;
  [[nodiscard]] std::string unindexable(RequestId request, std::uint64_t keys) const;
  [[nodiscard]] Status check_begin(const RequestBegin& begin) const;
  [[nodiscard]] std::string explain_all() const;

  std::unique_ptr<StorePolicy> policy_;
  SchedulerCore core_;
  StorePlanner planner_;
  Admissions admissions_;
  LookupFlow lookups_;
  HintFlow hints_;
  Retention retention_;
  LoadFlow loads_;
  HandoffPlanner handoffs_;
  PlanFlow plans_;
  FinishFlow finishes_;
  CompletionFlow completions_;
  std::vector<SlotClass> usable_;
  std::vector<std::string> gate_labels_;  // "feature=..,why=..": of stats
  std::vector<Gate> gates_;
  std::vector<std::string> bucket_labels_;  // "bucket=..": of stats, under auto
  std::vector<std::string> rank_labels_;    // "rank=.."
  std::uint64_t learned_ = 0;               // refreshes of the policy that report_ knows
  Snapshot<RoleNumbers> numbers_;
  Snapshot<PolicyReport> report_;
  std::uint64_t gate_measured_ = 0;  // measurements that gate_report_ knows
  Snapshot<CostGateReport> gate_report_;
};

}  // namespace kvc
