// The scheduler handle: the role, the host, and the lists between them.
#pragma once
#include <kvc/kvc.h>
#include <kvc/kvc_retention.h>

#include <memory>
#include <span>

#include "plugin/edge/arena.h"
#include "plugin/edge/at_edge.h"
#include "plugin/edge/bounds.h"
#include "plugin/edge/open_config.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc::edge {

// In-lists in C++ types. Filled before the role is called; the spans handed to it die with the
// call.
//
// Threads:    [sched]. Owns: arenas of the host's memory. Invariants: a failed read leaves nothing
// behind that the next
//             read does not clear.
class SchedInputs {
 public:
  SchedInputs(const InBounds& bounds, const Reserved& reserved, std::pmr::memory_resource* memory);

  Result<std::span<const RankInfo>> ranks(const kvc_list& list);
  // An empty list, or one table per group in group order.
  Result<std::span<const TableView>> tables(const kvc_list& list);
  Result<StepRecord> step(const kvc_step& step);
  Result<std::span<const Handoff>> handoffs(const kvc_list& list);
  Result<std::span<const std::span<const std::uint8_t>>> reports(const kvc_bytes* reports,
                                                                 std::uint64_t count);

 private:
  Status check_tables(std::string_view field, const kvc_list& list) const;
  Status add_tables(std::string_view field, const kvc_list& list);
  Status read_scheduled(const kvc_list& list);
  Status read_candidates(const kvc_list& list);

  const InBounds& bounds_;
  Arena<TableView> tables_;
  Arena<ScheduledRequest> scheduled_;
  Arena<Handoff> handoffs_;
  Arena<Candidate> candidates_;
  Arena<RankInfo> ranks_;
  Arena<SlotClass> classes_;
  Arena<std::span<const std::uint8_t>> reports_;
};

// Out-lists in C types, one set per slot: each is valid until the next call of its slot.
//
// Threads:    [sched]. Owns: arenas of the host's memory.
class SchedOutputs {
 public:
  SchedOutputs(const Reserved& reserved, std::pmr::memory_resource* memory);

  kvc_list usable(std::span<const SlotClass> classes);
  kvc_alloc_out alloc(const AllocResult& result);
  kvc_plan plan(const PlanResult& result);
  kvc_complete_out complete(const CompleteResult& result);
  kvc_end_out end(const EndResult& result);
  kvc_retention_out retention(const RetentionAnswer& answer);

 private:
  Arena<kvc_class> classes_;
  Arena<kvc_block> alloc_held_;
  Arena<kvc_medium_tokens> media_;
  Arena<kvc_plan_job> plan_jobs_;
  Arena<kvc_block> plan_held_;
  Arena<kvc_ended_job> ended_;
  Arena<kvc_failed_block> failed_;
  Arena<kvc_block> released_;
  Arena<kvc_verdict> verdicts_;
  Arena<kvc_rejected> rejected_;
  Arena<kvc_block> end_held_;
  Arena<std::uint64_t> boundaries_;
};

}  // namespace kvc::edge

// Threads:    as the slots say; the [any] queries read only the role's snapshots.
// Owns:       the role, which is gone before the host's table is.
struct kvc_sched : kvc::edge::HandleBase {
  kvc_sched(const kvc_host_api& table, kvc::edge::OpenConfig opened);

  kvc::edge::OpenConfig config;
  kvc::edge::InBounds bounds;
  kvc::edge::Reserved reserved;
  kvc::edge::SchedInputs in;
  kvc::edge::SchedOutputs out;
  std::unique_ptr<kvc::SchedulerRole> role;
};
