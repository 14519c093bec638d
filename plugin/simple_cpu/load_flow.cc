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
  held_.resize(blocks);
  entries_.reserve(blocks);
}

Status LoadFlow::take_blocks(const Request& r, Tokens accepted, std::span<const TableView> tables) {
  if (accepted > r.offered || accepted.n % core_.geometry.hash_unit().n != 0) {
    return {Code::arg, fmt::format("request {} accepts {} tokens; {} were offered, in units of {}",
                                   r.id, accepted.n, r.offered.n, core_.geometry.hash_unit().n)};
  }
  std::size_t count = 0;
  const Tokens end = r.device + accepted;
  for_each_needed_range(
      core_.geometry, r.device, end,
      [&](GroupId, std::uint64_t first, std::uint64_t behind) { count += behind - first; });
  if (held_.size() < count) held_.resize(count);
  room_ = count;
  used_ = count;  // filled from the end: deepest first
  Status status;
  for_each_needed_range(core_.geometry, r.device, end,
                        [&](GroupId g, std::uint64_t first, std::uint64_t behind) {
                          const TableView table = g < tables.size() ? tables[g] : TableView{};
                          for (std::uint64_t p = first; p < behind && status.ok(); ++p) {
                            if (p + prefetched < table.count)
                              core_.holds.prefetch(g, table.blocks[p + prefetched]);
                            if (p >= table.count || !core_.holds.real(table.blocks[p])) {
                              status = refuse_entry(r, g, p, table);
                            } else if (!core_.holds.hold_alone(g, table.blocks[p])) {
                              status = refuse_held(r, g, p, table.blocks[p]);
                            } else {
                              held_[--used_] = {g, table.blocks[p], p};
                            }
                          }
                        });
  return status;
}

Status LoadFlow::refuse_held(const Request& r, GroupId group, std::uint64_t position,
                             BlockId block) {
  return {Code::arg,
          fmt::format("request {}: group {} position {} must be loaded into block {}, which an "
                      "open job or another position holds (design 2.3 Destination)",
                      r.id, group, position, block)};
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
  for (const HeldBlock& h : held()) core_.holds.release(h.group, h.block);
  room_ = used_ = 0;
}

// The blocks that are held are those of for_each_needed, which are the hit's.
void LoadFlow::fill(Job& job, RequestIndex index, const Hit& hit) {
  Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  std::size_t left = held().size();
  for (const GroupId g : core_.geometry.cacheable()) {
    const GroupHit& found = hit.groups[g];
    entries_.clear();
    for_each_slot(core_.geometry, core_.tier.index(), keys, g, found,
                  [this](std::uint64_t, SlotId entry) { entries_.push_back(entry); });
    if (entries_.empty()) continue;
    KVC_OP(entry, entries_.size());
    KVC_CHECK(entries_.size() <= left);
    left -= entries_.size();
    const std::span<const HeldBlock> blocks = held().subspan(left, entries_.size());
    KVC_CHECK(blocks.back().group == g && blocks.back().position == found.first_position &&
              blocks.front().group == g && blocks.front().position == found.list_length() - 1);
    // Every entry is pinned by itself, so that neither a reset nor a rewrite gives away what is
    // being read. A hit stamps of the chain only its deepest block (design 3.1 "Order of
    // eviction").
    core_.tier.pin_all(entries_, PinKind::job);
    const std::size_t first_used = found.brief && found.whole > 0 ? found.whole - 1 : 0;
    for (std::size_t i = first_used; i < entries_.size(); ++i) {
      core_.tier.use(entries_[i], r.run, keys);
    }
    core_.jobs.add_copies(job, index, blocks, entries_, r.open_parts);
  }
  KVC_CHECK(left == 0);
  r.open_copies += static_cast<std::uint32_t>(held().size());
  if (core_.geometry.cacheable().size() > 1) sort_held(core_.geometry, held());
}

Result<AllocResult> LoadFlow::alloc_update(RequestId request, Tokens accepted,
                                           std::span<const TableView> tables) {
  room_ = used_ = 0;
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
  return AllocResult{job.id, held(), {&medium_, 1}};
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
