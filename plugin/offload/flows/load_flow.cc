#include "plugin/offload/flows/load_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

LoadFlow::LoadFlow(SchedulerCore& core, Admissions& admissions, LookupFlow& lookups)
    : core_(core), admissions_(admissions), lookups_(lookups), named_(core.geometry.groups()) {
  held_.reserve(core.geometry.groups());
  parts_.reserve(core.geometry.groups());
  media_.reserve(2);
  if (core.limits.max_total_tokens == no_token_limit) return;
  std::uint64_t blocks = 0;
  for (const GroupId g : core.geometry.cacheable()) {
    blocks += core.geometry.end_position(g, core.limits.max_total_tokens);
  }
  entries_.reserve(blocks);
}

// Reads the tables in one go, too: the walk of the path finds them in the core's caches.
Status LoadFlow::check(const Request& r, Tokens accepted, std::span<const TableView> tables) const {
  if (accepted > r.offered || accepted.n % core_.geometry.hash_unit().n != 0) {
    return {Code::arg, fmt::format("request {} accepts {} tokens; {} were offered, in units of {}",
                                   r.id, accepted.n, r.offered.n, core_.geometry.hash_unit().n)};
  }
  Status status;
  for_each_needed_range(
      core_.geometry, r.device, r.device + accepted,
      [&](GroupId g, std::uint64_t first, std::uint64_t behind) {
        const TableView table = g < tables.size() ? tables[g] : TableView{};
        const std::uint64_t there = std::max(first, std::min(behind, table.count));
        const std::uint64_t stop = core_.holds.first_unreal(table.blocks, first, there);
        if (status.ok() && stop < behind) status = refuse_entry(r, g, stop, table);
      });
  return status;
}

Status LoadFlow::take_blocks(const Request& r, Tokens accepted, std::span<const TableView> tables) {
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

namespace {

// The hold cells of a table's blocks come while the path is walked.
class HoldsComing final : public PathListener {
 public:
  // `first`: the position of the tier at which the path begins, of `per` blocks.
  HoldsComing(const HoldBook& holds, GroupId group, const TableView& table, std::uint64_t first,
              std::uint64_t per)
      : holds_(holds), group_(group), table_(table), first_(first), per_(per) {}
  void passed(std::size_t first, std::size_t count) override {
    const std::uint64_t end = std::min((first_ + first + count) * per_, table_.count);
    for (std::uint64_t p = (first_ + first) * per_; p < end; ++p) {
      holds_.prefetch(group_, table_.blocks[p]);
    }
  }

 private:
  const HoldBook& holds_;
  GroupId group_;
  TableView table_;
  std::uint64_t first_;
  std::uint64_t per_;
};

}  // namespace

// entries_ and parts_. Of a path only the deepest block is pinned, as by a lease
// (Hit::for_each_pinned): it keeps its ancestors.
// False: the keys are those of no path, and nothing of the hit can be relied on.
bool LoadFlow::find_entries(const Request& r, const Hit& hit, std::span<const TableView> tables) {
  const KeyView keys = core_.requests.keys(r);
  entries_.clear();
  parts_.clear();
  for (const GroupId g : core_.geometry.cacheable()) {
    const GroupHit& found = hit.groups[g];
    if (found.count() == 0) continue;
    const std::size_t first = entries_.size();
    const std::size_t walked = found.brief && found.whole > 0 ? found.whole - 1 : 0;
    if (found.listed()) {
      entries_.insert(entries_.end(), found.slots.begin(), found.slots.end());
    } else {
      KVC_CHECK(found.whole == 0 || found.deepest != no_slot);
      entries_.resize(first + found.whole);
      if (found.whole > 0) {
        HoldsComing coming(core_.holds, g, g < tables.size() ? tables[g] : TableView{},
                           found.first_position, core_.tier_geometry.blocks_per_chunk(g));
        if (!core_.tier.index().find_path(
                g, block_keys(core_.tier_geometry, keys, g, found.first_position, found.whole),
                std::span(entries_).subspan(first), &coming)) {
          return false;
        }
      }
      if (found.inside != no_slot) entries_.push_back(found.inside);
    }
    KVC_CHECK(entries_.size() - first == found.count());
    KVC_OP(entry, found.count());
    parts_.push_back({g, first, walked});
  }
  return true;
}

// The blocks that are held are those of for_each_needed, which are the hit's.
void LoadFlow::fill(Job& job, RequestIndex index) {
  Request& r = core_.requests[index];
  const KeyView keys = core_.requests.keys(r);
  KVC_CHECK(parts_.size() == held_.size());
  job.gate_beats_ns = probe_of(r, job.end);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const HeldRange& range = held_[i];
    const std::size_t end = i + 1 < parts_.size() ? parts_[i + 1].first : entries_.size();
    const std::span<const SlotId> entries(entries_.data() + parts_[i].first, end - parts_[i].first);
    const std::uint32_t per = core_.tier_geometry.blocks_per_chunk(range.group);
    KVC_CHECK(range.group == parts_[i].group &&
              (per > 1 || range.behind - range.first == entries.size()));
    const std::span<const SlotId> pinned = entries.subspan(parts_[i].walked);
    core_.tier.pin_all(pinned, PinKind::job);
    // A hit stamps of the chain only its deepest block (design 3.1 "Order of eviction").
    for (const SlotId entry : pinned) {
      core_.tier.use(entry, r.run, keys);
      core_.disk.note_used(entry, index);
    }
    core_.jobs.add_copies(job,
                          {index, range.group, range.first, range.blocks + range.first, entries,
                           parts_[i].walked, per, range.behind - range.first},
                          r.open_parts);
  }
  r.open_copies += static_cast<std::uint32_t>(job.copies);
}

// entries_ and parts_ as find_entries, but here every entry that is there already is pinned by
// itself, and the others are reserved, which keeps them, too, until their fill is over.
bool LoadFlow::fill_from_disk(Job& job, RequestIndex index, const Hit& hit) {
  Request& r = core_.requests[index];
  DiskNeed need;
  if (!core_.disk.open_fill(index, hit, job.id, entries_, need)) {
    disk_refused_ = !need.pending;
    return false;
  }
  parts_.clear();
  std::size_t first = 0;
  for (const GroupId g : core_.geometry.cacheable()) {
    if (hit.groups[g].count() == 0) continue;
    parts_.push_back({g, first, 0});
    first += hit.groups[g].count();
  }
  KVC_CHECK(first == entries_.size() && parts_.size() == held_.size());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const HeldRange& range = held_[i];
    const std::size_t end = i + 1 < parts_.size() ? parts_[i + 1].first : entries_.size();
    const std::span<const SlotId> entries(entries_.data() + parts_[i].first, end - parts_[i].first);
    const std::uint32_t per = core_.tier_geometry.blocks_per_chunk(range.group);
    KVC_CHECK(range.group == parts_[i].group &&
              (per > 1 || range.behind - range.first == entries.size()));
    core_.jobs.add_copies(job,
                          {index, range.group, range.first, range.blocks + range.first, entries, 0,
                           per, range.behind - range.first},
                          r.open_parts);
  }
  core_.jobs.for_each_copy(
      job, [&](CopyRecord& copy) { copy.pinned = copy.pinned && core_.tier.readable(copy.entry); });
  r.open_copies += static_cast<std::uint32_t>(job.copies);
  const Tokens disk = std::min(need.tokens, job.end - job.begin);
  job.from_disk = disk;
  job.gate_beats_ns = probe_of(r, job.end);
  if (disk > Tokens{}) media_.push_back({Medium::disk, disk});
  return true;
}

Result<AllocResult> LoadFlow::alloc_update(RequestId request, Tokens accepted,
                                           std::span<const TableView> tables) {
  held_.clear();
  media_.clear();
  disk_refused_ = false;
  const FoundRequest found = core_.find(request);
  if (!found.live()) return found.or_answer(AllocResult{});
  const RequestIndex index = found.index;
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
  const Hit* hit = lookups_.resolve(r, accepted);
  const bool deep = hit != nullptr && DiskFlow::counts_disk(*hit);
  const bool broken = hit != nullptr && !deep && !find_entries(r, *hit, tables);
  if (Status s = take_blocks(r, accepted, tables); !s.ok()) return s;
  Job& job = core_.jobs.create(JobKind::load, r.id, index);
  job.begin = r.device;
  r.computed_from = job.end = r.device + accepted;
  job.started_ns = core_.host.now_ns();
  core_.tier.schedule(r.run);
  admissions_.ask(index);
  if (broken) {
    core_.faults.report("KVC-H-022, keys-of-one-path",
                        "request {}: a key within {} tokens names another prefix than those before "
                        "it; what it hits is searched block by block from now on",
                        r.id, job.end.n);
    r.keys_broken = true;
    hit = nullptr;
  }
  if (hit != nullptr && !deep) {
    fill(job, index);
  } else if (hit == nullptr || !fill_from_disk(job, index, *hit)) {
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
  // What could not be served is not offered again: the next lookup asks the host tier alone.
  r.host_only = disk_refused_;
  ++r.explain.loads;
  const Tokens disk = media_.empty() ? Tokens{} : media_.front().tokens;
  core_.disk.count_hit(disk);
  core_.disk.settle_notes();
  if (disk < accepted) media_.insert(media_.begin(), {Medium::host, accepted - disk});
  return AllocResult{job.id, held_, media_};
}

// What the load must take less than to prove the cost gate wrong; 0: it is no probe.
std::uint64_t LoadFlow::probe_of(const Request& r, Tokens end) {
  const GateMemo& memo = r.gate;
  if (memo.answer.decision == GateDecision::probe && memo.start == r.device && memo.end == end) {
    return memo.answer.recompute_ns;
  }
  const DiskMemo& disk = r.gate_disk;
  const bool probed = disk.answer.choice == DiskChoice::probe && disk.start == r.device;
  return probed && disk.with_disk == end ? disk.answer.beats_ns : 0;
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
