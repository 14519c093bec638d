#include "plugin/simple_cpu/load_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

LoadFlow::LoadFlow(SchedulerCore& core, Admissions& admissions, LookupFlow& lookups)
    : core_(core), admissions_(admissions), lookups_(lookups), named_(core.geometry.groups()) {
  held_.reserve(core.geometry.groups());
  if (core.limits.max_total_tokens == no_token_limit) return;
  std::uint64_t blocks = 0;
  for (const GroupId g : core.geometry.cacheable()) {
    blocks = std::max(blocks, core.geometry.end_position(g, core.limits.max_total_tokens));
  }
  entries_.reserve(blocks);
}

Status LoadFlow::take_blocks(const Request& r, Tokens accepted, std::span<const TableView> tables) {
  if (accepted > r.offered || accepted.n % core_.geometry.hash_unit().n != 0) {
    return {Code::arg, fmt::format("request {} accepts {} tokens; {} were offered, in units of {}",
                                   r.id, accepted.n, r.offered.n, core_.geometry.hash_unit().n)};
  }
  held_.clear();
  std::fill(named_.begin(), named_.end(), NamedRange{});
  Status status;
  for_each_needed_range(core_.geometry, r.device, r.device + accepted,
                        [&](GroupId g, std::uint64_t first, std::uint64_t behind) {
                          if (!status.ok()) return;
                          const TableView table = g < tables.size() ? tables[g] : TableView{};
                          const std::uint64_t stop = hold_range(r, g, table, first, behind);
                          held_.push_back({g, table.blocks, first, stop});
                          if (stop == behind) return;
                          status = stop < table.count && core_.holds.real(table.blocks[stop])
                                       ? refuse_held(r, g, stop, table.blocks[stop])
                                       : refuse_entry(r, g, stop, table);
                        });
  if (!status.ok()) {
    drop_holds();
    unname(tables);
  }
  return status;
}

// The position that cannot be held, or `behind`.
std::uint64_t LoadFlow::hold_range(const Request& r, GroupId group, const TableView& table,
                                   std::uint64_t first, std::uint64_t behind) {
  const std::uint64_t there = std::max(first, std::min(behind, table.count));
  if (admissions_.fills_table(r, group, table)) {
    const std::uint64_t stop = core_.holds.name_and_hold(group, table.blocks, first, there);
    named_[group] = {first, stop};
    return stop;
  }
  for (std::uint64_t p = first; p < there; ++p) {
    if (p + HoldBook::ahead < there) core_.holds.prefetch(group, table.blocks[p + HoldBook::ahead]);
    const BlockId block = table.blocks[p];
    if (!core_.holds.real(block) || !core_.holds.hold_alone(group, block)) return p;
  }
  return there;
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

void LoadFlow::drop_holds() {
  for (const HeldRange& range : held_) {
    for (std::uint64_t p = range.first; p < range.behind; ++p) {
      core_.holds.release(range.group, range.blocks[p]);
    }
  }
  held_.clear();
}

void LoadFlow::unname(std::span<const TableView> tables) {
  for (GroupId g = 0; g < named_.size(); ++g) {
    for (std::uint64_t p = named_[g].first; p < named_[g].behind; ++p) {
      core_.holds.table_remove(g, tables[g].blocks[p]);
    }
  }
}

// The entries of the group's hit, in the order of positions: entries_. Pins the same as a lease on
// the hit does (Hit::for_each_pinned), from the returned place on: of a path the deepest block,
// which keeps its ancestors.
std::size_t LoadFlow::pin_entries(const KeyView& keys, GroupId g, const GroupHit& found) {
  entries_.clear();
  std::size_t walked = 0;
  if (!found.brief) {
    entries_.insert(entries_.end(), found.slots.begin(), found.slots.end());
  } else if (found.listed()) {
    entries_.insert(entries_.end(), found.slots.begin(), found.slots.end());
    walked = found.whole > 0 ? found.whole - 1 : 0;
  } else {
    KVC_CHECK(found.whole == 0 || found.deepest != no_slot);
    walked = found.whole > 0 ? found.whole - 1 : 0;
    entries_.resize(walked);
    if (walked > 0) {
      core_.tier.index().find_path(
          g, block_keys(core_.geometry, keys, g, found.first_position, walked), entries_);
    }
    if (found.whole > 0) entries_.push_back(found.deepest);
    if (found.inside != no_slot) entries_.push_back(found.inside);
  }
  core_.tier.pin_all(std::span(entries_).subspan(walked), PinKind::job);
  return walked;
}

// The blocks that are held are those of for_each_needed, which are the hit's.
void LoadFlow::fill(Job& job, RequestIndex index, const Hit& hit) {
  Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  auto range = held_.begin();
  for (const GroupId g : core_.geometry.cacheable()) {
    const GroupHit& found = hit.groups[g];
    if (found.count() == 0) continue;
    KVC_CHECK(range != held_.end() && range->group == g && range->first == found.first_position &&
              range->behind == found.list_length());
    const std::size_t pinned_from = pin_entries(keys, g, found);
    KVC_OP(entry, entries_.size());
    KVC_CHECK(entries_.size() == found.count());
    // A hit stamps of the chain only its deepest block (design 3.1 "Order of eviction").
    for (std::size_t i = pinned_from; i < entries_.size(); ++i) {
      core_.tier.use(entries_[i], r.run, keys);
    }
    core_.jobs.add_copies(
        job, {index, g, range->first, range->blocks + range->first, entries_, pinned_from},
        r.open_parts);
    ++range;
  }
  KVC_CHECK(range == held_.end());
  r.open_copies += static_cast<std::uint32_t>(job.copies);
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
  if (Status s = take_blocks(r, accepted, tables); !s.ok()) return s;

  const Hit* hit = lookups_.resolve(r, accepted);
  Job& job = core_.jobs.create(JobKind::load, r.id, index);
  job.begin = r.device;
  job.end = r.device + accepted;
  job.started_ns = core_.host.now_ns();
  core_.tier.schedule(r.run);
  if (hit != nullptr) {
    fill(job, index, *hit);
  } else {
    drop_holds();
    job.without_copies = true;
    job.forced = Code::io;
  }
  core_.end_lease(r);
  r.load = job.id;
  r.offered = Tokens{};
  if (r.device == Tokens{}) r.stale = false;
  admissions_.set_tables(index, tables, named_);
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
