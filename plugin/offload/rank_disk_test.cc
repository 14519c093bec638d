// Disk jobs of plans, from the bytes of the plan to those of the report.
#include "plugin/offload/rank_disk.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>

#include "plugin/offload/disk/tests/block_bytes.h"
#include "plugin/offload/disk/tests/folder.h"
#include "plugin/offload/tests/rank_world.h"

namespace kvc {
namespace {

using disk_test::Folder;
using disk_test::key_number;
using rank_test::PlannedCopies;
using rank_test::Seen;
using rank_test::World;

struct DiskJob {
  JobKind kind = JobKind::spill;
  JobId job = 0;
  std::vector<PlanDiskBlock> blocks;
};

PlanDiskBlock block_of(std::uint32_t group, std::uint32_t slot, std::uint64_t number) {
  PlanDiskBlock b;
  b.group = group;
  b.slot = slot;
  b.end_tokens = 16 * number;
  b.has_parent = number > 1;
  b.key = key_number(number);
  if (b.has_parent) b.parent = key_number(number - 1);
  return b;
}

RankOptions options(const std::string& folder) {
  RankOptions o = World::options();
  disk::DiskTierOptions d;
  d.paths = {folder};
  d.store.namespace_id = {'n'};
  d.store.budget = {std::uint64_t{1} << 20U};
  d.store.engine = disk::EngineChoice::stepped;
  d.store.read_deadline_ns = 1000;
  d.store.write_deadline_ns = 1000;
  o.disk = d;
  return o;
}

struct DiskWorld {
  DiskWorld() : w(std::make_unique<World>(nullptr, options(folder.path()))) {}

  Status submit(const std::vector<PlannedCopies>& loads, const std::vector<PlannedCopies>& stores,
                const std::vector<DiskJob>& disk) {
    std::vector<std::uint8_t> room(4096);
    PlanEncoder e(room);
    e.begin(World::epoch, ++w->step);
    for (const auto& j : loads) {
      BOOST_REQUIRE(e.add_job(JobKind::load, j.job, j.request, j.copies));
    }
    for (const auto& j : stores) {
      BOOST_REQUIRE(e.add_job(JobKind::store, j.job, j.request, j.copies));
    }
    for (const auto& j : disk) BOOST_REQUIRE(e.add_disk_job(j.kind, j.job, 0, j.blocks));
    const auto bytes = e.finish();
    const std::vector<std::uint8_t> plan(bytes.begin(), bytes.end());
    if (Status s = w->rank->submit_loads(plan, {}); !s.ok()) return s;
    return w->rank->submit_stores(plan, {});
  }
  void restart() {
    w.reset();
    w = std::make_unique<World>(nullptr, options(folder.path()));
  }

  Folder folder;
  std::unique_ptr<World> w;
};

// The end of the job, which must be there once.
ReportJob end_of(const Seen& seen, JobId job) {
  ReportJob found;
  for (const ReportJob& r : seen.reported) {
    if (r.job != job) continue;
    BOOST_REQUIRE(found.job == 0u);
    found = r;
  }
  BOOST_REQUIRE(found.job == job);
  return found;
}

BOOST_AUTO_TEST_SUITE(rank_disk)

BOOST_AUTO_TEST_CASE(what_was_spilled_is_filled_after_a_restart_and_loaded) {
  DiskWorld d;
  const auto a = d.w->block(0, 3);
  const auto b = d.w->block(2, 4);
  // In one plan: the spill waits for the stores that fill its slots.
  BOOST_REQUIRE(d.submit({}, {{10, {{0, 1, 3, 0}, {2, 9, 4, 1}}}},
                         {{JobKind::spill, 20, {block_of(0, 1, 1), block_of(2, 9, 2)}}})
                    .ok());
  BOOST_TEST(d.w->rank->verify() == "");
  Seen seen = d.w->run();
  BOOST_TEST((end_of(seen, 20) == ReportJob{20, JobKind::spill, ReportPhase::ended, Code::ok, 64}));
  BOOST_TEST(d.w->rank->verify() == "");
  // A piece without entries says that there is a disk tier.
  const auto empty = disk::InventoryView::read(d.w->info.inventory);
  BOOST_REQUIRE(empty.ok());
  BOOST_TEST(empty.value().piece().entries_all == 0u);

  d.restart();
  const auto view = disk::InventoryView::read(d.w->info.inventory);
  BOOST_REQUIRE(view.ok());
  BOOST_TEST(view.value().piece().rank == 5u);
  BOOST_REQUIRE(view.value().piece().entries == 2u);
  BOOST_TEST((view.value().entry(1).what.parent == key_number(1)));
  BOOST_REQUIRE(
      d.submit({}, {}, {{JobKind::fill, 21, {block_of(0, 5, 1), block_of(2, 20, 2)}}}).ok());
  // A load that comes before the fill has ended waits for it.
  BOOST_REQUIRE(d.submit({{30, {{0, 5, 8, 0}, {2, 20, 9, 1}}}}, {}, {}).ok());
  BOOST_TEST(d.w->rank->verify() == "");
  seen = d.w->run();
  BOOST_TEST((end_of(seen, 21) == ReportJob{21, JobKind::fill, ReportPhase::ended, Code::ok, 64}));
  BOOST_TEST((end_of(seen, 30).status == Code::ok));
  BOOST_TEST((d.w->block(0, 8) == a));
  BOOST_TEST((d.w->block(2, 9) == b));
  BOOST_TEST(d.w->rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_load_may_stand_in_the_plan_of_the_fill_that_it_needs) {
  DiskWorld d;
  const auto a = d.w->block(0, 3);
  BOOST_REQUIRE(
      d.submit({}, {{10, {{0, 1, 3, 0}}}}, {{JobKind::spill, 20, {block_of(0, 1, 1)}}}).ok());
  d.w->run();
  d.restart();
  // One slot is filled, of the other there is nothing on disk.
  BOOST_REQUIRE(d.submit({{30, {{0, 5, 8, 0}}}, {31, {{0, 6, 9, 0}}}}, {},
                         {{JobKind::fill, 21, {block_of(0, 5, 1), block_of(0, 6, 7)}}})
                    .ok());
  BOOST_TEST(d.w->rank->verify() == "");
  const Seen seen = d.w->run();
  BOOST_TEST((end_of(seen, 30).status == Code::ok));
  BOOST_TEST((end_of(seen, 31).status == Code::io));
  BOOST_REQUIRE(seen.failed.at(21).size() == 1u);
  BOOST_TEST((seen.failed.at(21)[0].side == FailedSide::source));
  BOOST_TEST((d.w->block(0, 8) == a));
  BOOST_TEST(d.w->rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_chunk_that_is_not_full_comes_back_as_it_was) {
  DiskWorld d;
  RankOptions chunks = options(d.folder.path());
  chunks.layout.blocks_per_slot = {3, 1, 1};
  d.w.reset();
  d.w = std::make_unique<World>(nullptr, chunks);
  const auto a = d.w->block(0, 3);
  const auto b = d.w->block(0, 4);
  BOOST_REQUIRE(d.submit({}, {{10, {{0, 1, 3, 0}, {0, 1, 4, 1}}}},
                         {{JobKind::spill, 20, {block_of(0, 1, 1)}}})
                    .ok());
  BOOST_TEST(end_of(d.w->run(), 20).moved_bytes == 96u);
  BOOST_REQUIRE(d.submit({}, {}, {{JobKind::fill, 21, {block_of(0, 0, 1)}}}).ok());
  BOOST_TEST((end_of(d.w->run(), 21).status == Code::ok));
  BOOST_REQUIRE(d.submit({{30, {{0, 0, 8, 0}, {0, 0, 9, 1}}}, {31, {{0, 0, 10, 2}}}}, {}, {}).ok());
  const Seen seen = d.w->run();
  BOOST_TEST((end_of(seen, 30).status == Code::ok));
  BOOST_TEST((end_of(seen, 31).status == Code::io));  // the third was never written
  BOOST_TEST((d.w->block(0, 8) == a));
  BOOST_TEST((d.w->block(0, 9) == b));
  BOOST_TEST(d.w->rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(blocks_that_fail_are_named_and_the_others_are_done) {
  DiskWorld d;
  BOOST_REQUIRE(d.submit({}, {{10, {{0, 1, 3, 0}}}}, {}).ok());
  d.w->run();
  BOOST_REQUIRE(
      d.submit({}, {},
               {{JobKind::spill,
                 20,
                 {block_of(0, 2, 2), block_of(0, 1, 1), block_of(7, 1, 3), block_of(0, 99, 4)}}})
          .ok());
  Seen seen = d.w->run();
  BOOST_TEST((end_of(seen, 20) == ReportJob{20, JobKind::spill, ReportPhase::ended, Code::io, 48}));
  const auto& failed = seen.failed[20];
  BOOST_REQUIRE(failed.size() == 3u);
  BOOST_TEST(failed[0].position == 0u);  // nothing was stored in slot 2
  BOOST_TEST((failed[0].side == FailedSide::source));
  BOOST_TEST((failed[1].status == Code::arg));
  BOOST_TEST((failed[2].status == Code::arg));
  // A fill of what is not there, and into a slot that is read.
  BOOST_REQUIRE(d.submit({}, {},
                         {{JobKind::fill, 21, {block_of(0, 3, 9), block_of(0, 4, 1)}},
                          {JobKind::spill, 22, {block_of(0, 1, 1)}}})
                    .ok());
  seen = d.w->run();
  BOOST_TEST((end_of(seen, 21).status == Code::io));
  BOOST_REQUIRE(seen.failed[21].size() == 1u);
  BOOST_TEST(seen.failed[21][0].position == 0u);
  BOOST_TEST(end_of(seen, 21).moved_bytes == 48u);
  BOOST_TEST((end_of(seen, 22).status == Code::ok));  // it is on disk already
  BOOST_TEST(d.w->rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_slot_at_the_disk_is_not_given_to_another) {
  DiskWorld d;
  BOOST_REQUIRE(d.submit({}, {{10, {{0, 1, 3, 0}}}}, {}).ok());
  d.w->run();
  BOOST_REQUIRE(d.submit({}, {}, {{JobKind::spill, 20, {block_of(0, 1, 1)}}}).ok());
  BOOST_REQUIRE(d.submit({}, {{11, {{0, 1, 4, 0}}}}, {}).ok());
  Seen seen = d.w->run();
  BOOST_TEST((end_of(seen, 11).status == Code::state));
  BOOST_TEST((end_of(seen, 20).status == Code::ok));
  BOOST_REQUIRE(d.submit({}, {}, {{JobKind::fill, 21, {block_of(0, 2, 1)}}}).ok());
  BOOST_REQUIRE(d.submit({}, {{12, {{0, 2, 4, 0}}}}, {}).ok());
  seen = d.w->run();
  BOOST_TEST((end_of(seen, 12).status == Code::state));
  BOOST_TEST((end_of(seen, 21).status == Code::ok));
  BOOST_TEST(d.w->rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(drops_and_resets_hold_over_a_restart) {
  DiskWorld d;
  BOOST_REQUIRE(d.submit({}, {{10, {{0, 1, 3, 0}, {0, 2, 4, 0}, {0, 3, 5, 0}}}},
                         {{JobKind::spill, 20, {block_of(0, 1, 1), block_of(0, 2, 2)}}})
                    .ok());
  d.w->run();
  BOOST_REQUIRE(
      d.submit({}, {}, {{JobKind::drop, 21, {block_of(0, 0, 1), block_of(0, 0, 9)}}}).ok());
  BOOST_TEST((end_of(d.w->run(), 21).status == Code::ok));
  BOOST_TEST(d.w->rank->disk()->blocks() == 1u);
  // Behind the reset: of the new generation.
  BOOST_REQUIRE(
      d.submit({}, {}, {{JobKind::disk_reset, 22, {}}, {JobKind::spill, 23, {block_of(0, 3, 3)}}})
          .ok());
  const Seen seen = d.w->run();
  BOOST_TEST((end_of(seen, 22).status == Code::ok));
  BOOST_TEST((end_of(seen, 23).status == Code::ok));
  d.restart();
  BOOST_TEST(d.w->rank->disk()->blocks() == 1u);
  BOOST_TEST(d.w->rank->disk()->contains(0, key_number(3)));
}

BOOST_AUTO_TEST_CASE(plans_with_disk_jobs_are_refused_where_they_cannot_be_done) {
  DiskWorld d;
  BOOST_REQUIRE(d.submit({}, {}, {{JobKind::drop, 20, {}}, {JobKind::drop, 21, {}}}).ok());
  d.w->run();
  BOOST_TEST(
      (d.submit({}, {}, {{JobKind::drop, 22, {}}, {JobKind::drop, 22, {}}}).code == Code::arg));
  d.w = std::make_unique<World>();
  const Status s = d.submit({}, {}, {{JobKind::drop, 20, {}}});
  BOOST_TEST((s.code == Code::unsupported));
  BOOST_TEST(s.text.find("no disk tier") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_opened_fails_the_registration) {
  DiskWorld d;
  const auto second = [&] {
    auto engine = HostCopyEngine::create(World::copies());
    auto rank = RankEngine::create(options(d.folder.path()), std::move(engine.value()), d.w->host);
    return rank.value()->register_regions(d.w->regions());
  }();
  BOOST_REQUIRE(!second.ok());
  BOOST_TEST((second.error().code == Code::state));
  BOOST_TEST(second.error().text.find("rank 5") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_long_inventory_continues_in_reports) {
  DiskWorld d;
  for (std::uint64_t n = 0; n < 60; ++n) {
    BOOST_REQUIRE(d.submit({}, {{100 + n, {{0, 1, 3, 0}}}},
                           {{JobKind::spill, 200 + n, {block_of(0, 1, n + 1)}}})
                      .ok());
    d.w->run();
  }
  d.w.reset();
  RankOptions small = options(d.folder.path());
  small.report_bytes_max = 4096;
  small.first_inventory_bytes = 2048;
  d.w = std::make_unique<World>(nullptr, small);
  std::uint64_t told = 0;
  const auto take = [&](std::span<const std::uint8_t> bytes) {
    const auto view = disk::InventoryView::read(bytes);
    BOOST_REQUIRE(view.ok());
    BOOST_TEST(view.value().piece().first == told);
    BOOST_TEST(view.value().piece().entries_all == 60u);
    for (std::uint32_t i = 0; i < view.value().piece().entries; ++i) {
      BOOST_TEST((view.value().entry(i).what.key == key_number(++told)));
    }
  };
  take(d.w->info.inventory);
  BOOST_REQUIRE(d.submit({}, {}, {}).ok());
  for (int i = 0; i < 10; ++i) {
    const RankProgress p = d.w->rank->progress();
    if (p.report.empty()) break;
    const auto view = ReportView::read(p.report);
    BOOST_REQUIRE(view.ok());
    take(view.value().inventory());
  }
  BOOST_TEST(told == 60u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
