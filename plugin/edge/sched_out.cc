#include "plugin/edge/abi_codes.h"
#include "plugin/edge/sched_handle.h"

#include <kvc/kvc_util.h>

#include "plugin/coordinator/state_rule.h"

namespace kvc::edge {

namespace {

template <class T>
kvc_list list_of(std::span<const T> items) {
  return kvc_list_of(items.data(), items.size(), sizeof(T));
}

// Appends the blocks and returns them as a list.
kvc_list add_blocks(Arena<kvc_block>& arena, std::span<const HeldBlock> blocks) {
  const std::uint64_t first = arena.size();
  for (const HeldBlock& b : blocks) {
    arena.add({sizeof(kvc_block), b.group, b.block, b.position});
  }
  return list_of(arena.from(first));
}

kvc_list add_failed(Arena<kvc_failed_block>& arena, std::span<const FailedBlock> blocks) {
  const std::uint64_t first = arena.size();
  for (const FailedBlock& b : blocks) {
    arena.add({sizeof(kvc_failed_block), b.group, b.block, b.position, b.rank, to_abi(b.status),
               static_cast<std::int32_t>(b.side), 0});
  }
  return list_of(arena.from(first));
}

}  // namespace

SchedOutputs::SchedOutputs(const Reserved& reserved, std::pmr::memory_resource* memory)
    : classes_(KVC_GROUPS_MAX, memory),
      alloc_held_(reserved.blocks, memory),
      media_(4, memory),
      plan_jobs_(reserved.jobs, memory),
      plan_held_(reserved.blocks, memory),
      ended_(reserved.jobs, memory),
      failed_(reserved.blocks, memory),
      released_(reserved.blocks, memory),
      verdicts_(reserved.jobs, memory),
      rejected_(reserved.jobs, memory),
      end_held_(reserved.blocks, memory),
      boundaries_(StatePlan::most, memory) {}

kvc_list SchedOutputs::usable(std::span<const SlotClass> classes) {
  classes_.begin(classes.size());
  for (const SlotClass& c : classes) {
    classes_.add({sizeof(kvc_class), c.class_id, c.group_mask, c.slots_per_page,
                  c.bytes_per_block.n, c.usable_slots});
  }
  return list_of(classes_.all());
}

kvc_alloc_out SchedOutputs::alloc(const AllocResult& result) {
  std::uint64_t blocks = 0;
  for (const HeldRange& range : result.held) blocks += range.behind - range.first;
  alloc_held_.begin(blocks);
  for (const HeldRange& range : result.held) {
    for (std::uint64_t p = range.first; p < range.behind; ++p) {
      alloc_held_.add({sizeof(kvc_block), range.group, range.blocks[p], p});
    }
  }
  media_.begin(result.media.size());
  for (const MediumTokens& m : result.media) {
    media_.add({sizeof(kvc_medium_tokens), static_cast<std::int32_t>(m.medium), m.tokens.n});
  }
  return {sizeof(kvc_alloc_out), 0, result.job, list_of(alloc_held_.all()), list_of(media_.all())};
}

kvc_plan SchedOutputs::plan(const PlanResult& result) {
  std::uint64_t blocks = 0;
  for (const PlannedJob& j : result.jobs) blocks += j.held.size();
  plan_held_.begin(blocks);
  plan_jobs_.begin(result.jobs.size());
  for (const PlannedJob& j : result.jobs) {
    plan_jobs_.add({sizeof(kvc_plan_job), static_cast<std::int32_t>(j.kind), j.job, j.request,
                    add_blocks(plan_held_, j.held)});
  }
  return {sizeof(kvc_plan), 0, result.step, list_of(plan_jobs_.all()),
          kvc_bytes_of(result.bytes.data(), result.bytes.size())};
}

kvc_complete_out SchedOutputs::complete(const CompleteResult& result) {
  std::uint64_t failed = 0;
  std::uint64_t released = 0;
  for (const EndedJob& j : result.jobs) {
    failed += j.failed.size();
    released += j.released.size();
  }
  failed_.begin(failed);
  released_.begin(released);
  ended_.begin(result.jobs.size());
  verdicts_.begin(result.verdicts.size());
  rejected_.begin(result.rejected.size());
  for (const EndedJob& j : result.jobs) {
    const kvc_list lost = add_failed(failed_, j.failed);
    const kvc_list freed = add_blocks(released_, j.released);
    ended_.add({sizeof(kvc_ended_job), static_cast<std::int32_t>(j.kind), j.job, j.request,
                to_abi(j.status), 0, lost, freed});
  }
  for (const Verdict& v : result.verdicts) {
    verdicts_.add({sizeof(kvc_verdict), to_abi(v.status), v.request, v.job});
  }
  for (const RejectedEntry& r : result.rejected) {
    rejected_.add({sizeof(kvc_rejected), r.rank, r.report, r.job, to_abi(r.status), 0});
  }
  return {sizeof(kvc_complete_out), 0, list_of(ended_.all()), list_of(verdicts_.all()),
          list_of(rejected_.all())};
}

kvc_end_out SchedOutputs::end(const EndResult& result) {
  end_held_.begin(result.held.size());
  return {sizeof(kvc_end_out), 0, result.job, add_blocks(end_held_, result.held)};
}

kvc_retention_out SchedOutputs::retention(const RetentionAnswer& answer) {
  boundaries_.begin(answer.boundaries.size());
  for (const Tokens end : answer.boundaries) boundaries_.add(end.n);
  kvc_retention_out out{};
  out.struct_size = sizeof out;
  out.mode = answer.listed ? KVC_RETENTION_LISTED : KVC_RETENTION_ENGINE;
  out.boundaries = boundaries_.data();
  out.n_boundaries = boundaries_.size();
  return out;
}

}  // namespace kvc::edge
