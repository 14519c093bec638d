#include "plugin/simple_cpu/load_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

LoadFlow::LoadFlow(SchedulerCore& core, Admissions& admissions, LookupFlow& lookups)
    : core_(core), admissions_(admissions), lookups_(lookups) {
  if (core.limits.max_total_tokens == no_token_limit) return;
  std::uint64_t blocks = 0;
  for (const GroupId g : core.geometry.cacheable()) {
    blocks += core.geometry.end_position(g, core.limits.max_total_tokens);
  }
  held_.reserve(blocks);
}

Status LoadFlow::check(const Request& r, Tokens accepted, std::span<const TableView> tables) const {
  if (accepted > r.offered || accepted.n % core_.geometry.hash_unit().n != 0) {
    return {Code::arg, fmt::format("request {} accepts {} tokens; {} were offered, in units of {}",
                                   r.id, accepted.n, r.offered.n, core_.geometry.hash_unit().n)};
  }
  Status status;
  for_each_needed(core_.geometry, r.device, r.device + accepted, [&](GroupId g, std::uint64_t p) {
    if (!status.ok()) return;
    const bool there = g < tables.size() && p < tables[g].count;
    if (there && core_.holds.real(tables[g].blocks[p])) return;
    status = {Code::arg,
              fmt::format("request {}: group {} position {} must be loaded, and its table entry is "
                          "{}",
                          r.id, g, p,
                          !there                                  ? "missing"
                          : core_.holds.null(tables[g].blocks[p]) ? "the null block"
                                                                  : "no block of the pool")};
  });
  return status;
}

Status LoadFlow::check_private(const Request& r, Tokens accepted,
                               std::span<const TableView> tables) {
  Status status;
  // A hold on each while looking: a block named twice shows as held.
  for_each_needed(core_.geometry, r.device, r.device + accepted, [&](GroupId g, std::uint64_t p) {
    if (!status.ok()) return;
    const BlockId block = tables[g].blocks[p];
    if (core_.holds.held_by_job(g, block)) {
      status = {Code::arg,
                fmt::format("request {}: group {} position {} must be loaded into block {}, which "
                            "an open job or another position holds (design 2.3 Destination)",
                            r.id, g, p, block)};
      return;
    }
    core_.holds.hold(g, block);
    held_.push_back({g, block, p});
  });
  for (const HeldBlock& h : held_) core_.holds.release(h.group, h.block);
  held_.clear();
  return status;
}

void LoadFlow::fill(Job& job, RequestIndex index, const Hit& hit,
                    std::span<const TableView> tables) {
  Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  for (const GroupId g : core_.geometry.cacheable()) {
    const auto add = [&](std::uint64_t position, SlotId entry) {
      KVC_OP(entry, 1);
      CopyRecord copy;
      copy.group = g;
      copy.position = position;
      copy.block = tables[g].blocks[position];
      copy.entry = entry;
      copy.request = index;
      core_.tier.pin(copy.entry, PinKind::job);
      core_.tier.use(copy.entry, r.run, core_.requests.keys(r));
      core_.holds.hold(g, copy.block);
      core_.jobs.add_copy(job, copy, r.open_parts);
      ++r.open_copies;
      held_.push_back({g, copy.block, copy.position});
    };
    for_each_slot(core_.geometry, core_.tier.index(), keys, g, hit.groups[g], add);
  }
  std::sort(held_.begin(), held_.end(), DeepestFirst{core_.geometry});
}

Result<AllocResult> LoadFlow::alloc_update(RequestId request, Tokens accepted,
                                           std::span<const TableView> tables) {
  held_.clear();
  RequestIndex index = no_request;
  switch (core_.requests.find(request, index)) {
    case RequestTable::Known::unknown:
      return {Code::arg, fmt::format("request {} is unknown", request)};
    case RequestTable::Known::untracked:
      return AllocResult{};
    case RequestTable::Known::live:
      break;
  }
  Request& r = core_.requests[index];
  if (accepted == Tokens{}) {
    core_.end_lease(r);
    if (r.load != 0) return AllocResult{};
    admissions_.set_tables(index, tables);
    if (!tables.empty()) {
      if (r.device == Tokens{}) r.stale = false;
      admissions_.admit(index);
      core_.tier.schedule(r.run);
    }
    return AllocResult{};
  }
  if (r.load != 0) {
    return {Code::state, fmt::format("request {}: load job {} has no verdict", r.id, r.load)};
  }
  if (Status s = check(r, accepted, tables); !s.ok()) return s;
  if (Status s = check_private(r, accepted, tables); !s.ok()) return s;

  const Hit* hit = lookups_.resolve(r, accepted);
  Job& job = core_.jobs.create(JobKind::load, r.id, index);
  job.begin = r.device;
  job.end = r.device + accepted;
  job.started_ns = core_.host.now_ns();
  core_.tier.schedule(r.run);
  if (hit != nullptr) {
    fill(job, index, *hit, tables);
  } else {
    job.without_copies = true;
    job.forced = Code::io;
  }
  core_.end_lease(r);
  r.load = job.id;
  r.offered = Tokens{};
  if (r.device == Tokens{}) r.stale = false;
  admissions_.set_tables(index, tables);
  admissions_.admit(index);
  ++r.explain.loads;
  medium_ = {Medium::host, accepted};
  return AllocResult{job.id, held_, {&medium_, 1}};
}

void LoadFlow::cancel_unplanned(Request& r) {
  if (r.load == 0) return;
  Job* job = core_.jobs.find(r.load);
  KVC_CHECK(job != nullptr);
  if (job->planned || job->forced != Code::ok) return;
  job->without_copies = true;
  job->forced = Code::cancelled;
}

}  // namespace kvc
