// The rig with a disk tier: reads the disk jobs of plans and reports them as ranks do.
#pragma once
#include <algorithm>
#include <string>
#include <vector>

#include "plugin/offload/disk/format.h"
#include "plugin/offloading/tests/offloading_rig.h"

namespace kvc::test {

struct DiskJobOf {
  JobKind kind = JobKind::spill;
  JobId job = 0;
  RequestId request = 0;
  std::vector<PlanDiskBlock> blocks;
};

inline SimpleCpuSchedulerOptions with_disk(SimpleCpuSchedulerOptions o = {},
                                           std::uint64_t bytes = std::uint64_t{1} << 24U) {
  o.disk.bytes = bytes;
  return o;
}

inline OpenLimits ranks_of(std::uint32_t ranks) {
  OpenLimits l = limits_of();
  l.ranks = ranks;
  return l;
}

class DiskRig : public Rig {
 public:
  using Entries = std::vector<disk::InventoryEntry>;

  // A host pool of `slots`; what each rank has on disk already, by rank.
  explicit DiskRig(Layout layout_in, std::uint64_t slots,
                   SimpleCpuSchedulerOptions options = with_disk(),
                   const std::vector<Entries>& there = {{}})
      : Rig(std::move(layout_in), 0, options, ranks_of(static_cast<std::uint32_t>(there.size())),
            make_offloading) {
    SlotClass cls{0, (std::uint64_t{1} << layout.groups.size()) - 1, 1, Bytes{1024}, 0};
    std::vector<std::vector<std::uint8_t>> pieces;
    for (std::uint32_t r = 0; r < there.size(); ++r) pieces.push_back(inventory(r, there[r]));
    std::vector<RankInfo> infos;
    for (std::uint32_t r = 0; r < there.size(); ++r) {
      infos.push_back({r, slots, {&cls, 1}, pieces[r]});
    }
    BOOST_REQUIRE_EQUAL(error_of(role->set_ranks(infos)), "");
    check();
  }

  static std::vector<std::uint8_t> inventory(std::uint32_t rank, const Entries& entries) {
    std::vector<std::uint8_t> out(disk::inventory_bytes(entries.size()));
    for (std::size_t i = 0; i < entries.size(); ++i) {
      disk::write_inventory_entry(entries[i], std::span(out).subspan(disk::inventory_bytes(i),
                                                                     disk::inventory_entry_bytes));
    }
    disk::seal_inventory({1, entries.size(), 0, rank, static_cast<std::uint32_t>(entries.size())},
                         out);
    return out;
  }
  // The block of a group that ends at `end` of these tokens; `parent`: 0 has none.
  disk::InventoryEntry entry(std::uint32_t group, const TokenIds& all, std::uint64_t end,
                             std::uint64_t parent, std::uint64_t sequence = 1) const {
    return make_entry(layout.h, group, all, end, parent, sequence);
  }
  static disk::InventoryEntry make_entry(std::uint64_t h, std::uint32_t group, const TokenIds& all,
                                         std::uint64_t end, std::uint64_t parent,
                                         std::uint64_t sequence = 1) {
    const std::vector<std::uint8_t> keys = keys_of(all, h);
    disk::InventoryEntry e;
    e.what.group = group;
    e.what.end_tokens = end;
    e.what.has_parent = parent != 0;
    std::copy_n(keys.data() + (end / h - 1) * key_bytes, key_bytes, e.what.key.data());
    if (parent != 0) {
      std::copy_n(keys.data() + (parent / h - 1) * key_bytes, key_bytes, e.what.parent.data());
    }
    e.sequence = sequence;
    return e;
  }

  // The disk jobs of the last plan.
  std::vector<DiskJobOf> disk_jobs() {
    std::vector<DiskJobOf> out;
    const Result<PlanView> view = PlanView::read(last_plan);
    BOOST_REQUIRE(view.ok());
    PlanReader reader = view.value().disk();
    for (PlanJob job; reader.next(job);) {
      DiskJobOf one{job.kind(), job.job(), job.request(), {}};
      for (std::uint64_t i = 0; i < job.size(); ++i) one.blocks.push_back(job.disk_block(i));
      out.push_back(one);
    }
    return out;
  }
  DiskJobOf only(JobKind kind) {
    std::vector<DiskJobOf> found = disk_jobs();
    std::erase_if(found, [&](const DiskJobOf& j) { return j.kind != kind; });
    BOOST_REQUIRE_EQUAL(found.size(), 1u);
    return found.front();
  }
  std::size_t count(JobKind kind) {
    std::size_t blocks = 0;
    for (const DiskJobOf& j : disk_jobs()) {
      if (j.kind == kind) blocks += j.kind == JobKind::disk_reset ? 1 : j.blocks.size();
    }
    return blocks;
  }
  // All ranks did all disk jobs of all plans so far.
  void finish_disk() {
    while (!disk_open.empty()) finish(disk_open.front());
  }
  // Steps until nothing is pending.
  void settle_all() {
    for (int i = 0; i < 100; ++i) {
      const PendingWork p = role->pending();
      if (p.load_jobs + p.store_jobs + p.tier_jobs == 0) return;
      step();
      finish_disk();
      finish_all();
    }
    BOOST_FAIL("the tiers never come to rest");
  }
  static FailedBlock lost(std::uint64_t number) {
    FailedBlock f;
    f.block = -1;
    f.position = number;
    f.status = Code::io;
    f.side = FailedSide::source;
    return f;
  }
  std::vector<std::pair<EventKind, Medium>> events() {
    std::vector<std::pair<EventKind, Medium>> out;
    CacheEvent some[64];
    std::size_t n = 0;
    for (bool more = true; more;) {
      more = role->take_events(some, n);
      for (std::size_t i = 0; i < n; ++i) out.emplace_back(some[i].kind, some[i].medium);
    }
    return out;
  }
};

}  // namespace kvc::test
