#include "plugin/simple_cpu/load_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

// Positions ahead of the one at hand whose hold cells are asked for: as many as the core can have
// under way.
constexpr std::uint64_t prefetched = 24;

}  // namespace

LoadFlow::LoadFlow(SchedulerCore& core, Admissions& admissions, LookupFlow& lookups)
    : core_(core), admissions_(admissions), lookups_(lookups) {
  if (core.limits.max_total_tokens == no_token_limit) return;
  std::uint64_t blocks = 0;
  for (const GroupId g : core.geometry.cacheable()) {
    blocks += core.geometry.end_position(g, core.limits.max_total_tokens);
  }
  held_.reserve(blocks);
}

Status LoadFlow::take_blocks(const Request& r, Tokens accepted, std::span<const TableView> tables) {
  if (accepted > r.offered || accepted.n % core_.geometry.hash_unit().n != 0) {
    return {Code::arg, fmt::format("request {} accepts {} tokens; {} were offered, in units of {}",
                                   r.id, accepted.n, r.offered.n, core_.geometry.hash_unit().n)};
  }
  Status status;
  for_each_needed(core_.geometry, r.device, r.device + accepted, [&](GroupId g, std::uint64_t p) {
    if (!status.ok()) return;
    const TableView table = g < tables.size() ? tables[g] : TableView{};
    if (p + prefetched < table.count) core_.holds.prefetch(g, table.blocks[p + prefetched]);
    if (p >= table.count || !core_.holds.real(table.blocks[p])) {
      status = refuse_entry(r, g, p, table);
    } else if (!core_.holds.hold_alone(g, table.blocks[p])) {
      status = {Code::arg,
                fmt::format("request {}: group {} position {} must be loaded into block {}, which "
                            "an open job or another position holds (design 2.3 Destination)",
                            r.id, g, p, table.blocks[p])};
    } else {
      held_.push_back({g, table.blocks[p], p});
    }
  });
  return status;
}

Status LoadFlow::refuse_entry(const Request& r, GroupId group, std::uint64_t position,
                              const TableView& table) const {
  const bool there = position < table.count;
  return {Code::arg,
          fmt::format("request {}: group {} position {} must be loaded, and its table entry is {}",
                      r.id, group, position,
                      !there                                     ? "missing"
                      : core_.holds.null(table.blocks[position]) ? "the null block"
                                                                 : "no block of the pool")};
}

void LoadFlow::drop_blocks() {
  for (const HeldBlock& h : held_) core_.holds.release(h.group, h.block);
  held_.clear();
}

// The blocks that are held, in the order of for_each_needed, which is the hit's.
void LoadFlow::fill(Job& job, RequestIndex index, const Hit& hit) {
  Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  std::size_t next = 0;
  for (const GroupId g : core_.geometry.cacheable()) {
    const GroupHit& found = hit.groups[g];
    // A hit stamps of the chain only its deepest block (design 3.1 "Order of eviction"). Every
    // entry is pinned by itself, so that neither a reset nor a rewrite gives away what is being
    // read.
    const std::uint64_t first_used =
        found.brief && found.whole > 0 ? found.first_position + found.whole - 1 : 0;
    for_each_slot(core_.geometry, core_.tier.index(), keys, g, found,
                  [&](std::uint64_t position, SlotId entry) {
                    KVC_OP(entry, 1);
                    const HeldBlock& held = held_[next++];
                    KVC_CHECK(held.group == g && held.position == position);
                    CopyRecord copy;
                    copy.group = static_cast<std::uint8_t>(g);
                    copy.position = position;
                    copy.block = held.block;
                    copy.entry = entry;
                    copy.request = index;
                    core_.tier.pin(entry, PinKind::job);
                    if (position >= first_used) core_.tier.use(entry, r.run, keys);
                    core_.jobs.add_copy(job, copy, r.open_parts);
                  });
  }
  KVC_CHECK(next == held_.size());
  r.open_copies += static_cast<std::uint32_t>(next);
  sort_deepest_first(core_.geometry, held_);
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
  Holding holding(*this);
  if (Status s = take_blocks(r, accepted, tables); !s.ok()) return s;

  const Hit* hit = lookups_.resolve(r, accepted);
  Job& job = core_.jobs.create(JobKind::load, r.id, index);
  job.begin = r.device;
  job.end = r.device + accepted;
  job.started_ns = core_.host.now_ns();
  core_.tier.schedule(r.run);
  if (hit != nullptr) {
    holding.hand_over();
    fill(job, index, *hit);
  } else {
    drop_blocks();
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
