// Field reports of kinds K5, K10, K11 and K14 in the scheduler role (docs/conformance.md).
#include "plugin/offloading/tests/disk_rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

Layout one_group() { return {{full(16)}, 16, 16, 1}; }

constexpr MakeRole both_roles[] = {make_simple_cpu_scheduler, make_offloading};

// What the disk of every rank holds of so many blocks of these prompts.
DiskRig::Entries on_disk(std::initializer_list<TokenIds> prompts, std::uint64_t blocks) {
  DiskRig::Entries out;
  for (const TokenIds& prompt : prompts) {
    for (std::uint64_t b = 1; b <= blocks; ++b) {
      out.push_back(DiskRig::make_entry(16, 0, prompt, 16 * b, 16 * (b - 1)));
    }
  }
  return out;
}

std::vector<CacheEvent> events_of(SchedulerRole& role) {
  std::vector<CacheEvent> out(256);
  std::size_t count = 0;
  BOOST_TEST(!role.take_events(out, count));
  out.resize(count);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(field_reports)

// K5-40: 2,000 blocks for a disk that takes none of them, and room for 290 on their way.
BOOST_AUTO_TEST_CASE(a_disk_that_takes_nothing_costs_writes_and_neither_steps_nor_holds) {
  SimpleCpuSchedulerOptions o = with_disk();
  o.disk.open_blocks = 290;
  DiskRig rig(one_group(), 2100, o);
  rig.checks = false;
  std::uint64_t on_their_way = 0;
  for (std::uint32_t id = 1; id <= 20; ++id) {
    const TokenIds prompt = tokens_of(id, 1601);
    rig.begin(id, prompt);
    const Tables tables = rig.fresh_tables(1600, 100);
    rig.alloc(id, 0, tables);
    rig.step({{id, 1600, tables}});
    on_their_way += rig.count(JobKind::spill);
    rig.finish_all();
    // The next step has the request's blocks free, the disk or no disk.
    BOOST_TEST(rig.end(id, 1600, tables) == 0u);
    BOOST_TEST(rig.role->pending().held_blocks == 0u);
    rig.step();
    on_their_way += rig.count(JobKind::spill);
  }
  BOOST_TEST(rig.offers().stored == 2000u);
  BOOST_TEST(on_their_way == 290u);
  BOOST_TEST(rig.stat("disk_spills_skipped") == 1710u);
  // Only what is being written is kept; the rest of the pool serves others.
  BOOST_TEST(rig.stat("host_slots_pinned_now") == 290u);
  rig.begin(99, tokens_of(20, 1601));
  BOOST_TEST(rig.hit(99) == 1600u);
  rig.end(99);
  rig.finish_disk();
  rig.settle_all();
  BOOST_TEST(rig.role->verify() == "");
  rig.check_quiet();
}

// K5-41: a host pool that is only the way from and to the disk, all of it taken by reads.
BOOST_AUTO_TEST_CASE(a_host_pool_full_of_waiting_reads_refuses_and_nobody_waits) {
  const TokenIds a = tokens_of(1, 33);
  const TokenIds b = tokens_of(2, 33);
  DiskRig rig(one_group(), 2, with_disk(), {on_disk({a, b}, 2)});
  rig.begin(1, a);
  BOOST_TEST(rig.hit(1) == 32u);
  const JobId load = rig.alloc(1, 32, rig.fresh_tables(32, 10));
  rig.step();
  BOOST_TEST(rig.count(JobKind::fill) == 2u);
  // A second reader has its answer at once, and it is not "ask again".
  rig.begin(2, b);
  const LookupAnswer answer = rig.lookup(2);
  BOOST_TEST((answer.code == Code::ok));
  BOOST_TEST(answer.external.n == 0u);
  // A writer is told at its end why nothing was stored, in the calls that it makes anyway.
  rig.begin(3, tokens_of(3, 33));
  const Tables tables = rig.fresh_tables(32, 20);
  rig.alloc(3, 0, tables);
  rig.step({{3, 32, tables}});
  BOOST_TEST(rig.end(3, 32, tables) == 0u);
  BOOST_TEST(rig.offers().dropped_pool_full == 1u);
  BOOST_TEST(rig.offers().dropped_no_parent == 1u);
  rig.finish_disk();
  rig.finish(load);
  rig.end(1);
  BOOST_TEST(rig.hit(2) == 32u);
  rig.end(2);
  rig.settle_all();
  rig.check_quiet();
}

// K5-42: the second rank is always one step behind. What both are told is the same, in the same
// order, and nobody waits for an answer that does not come.
BOOST_AUTO_TEST_CASE(a_rank_that_is_one_step_behind_does_the_same_in_the_same_order) {
  DiskRig rig(one_group(), 64, with_disk(), {{}, {}});
  std::vector<JobId> last;
  std::vector<JobId> done[2];
  std::map<JobId, std::uint64_t> ended;
  const auto report = [&](std::uint32_t rank, const std::vector<JobId>& jobs) {
    for (const JobId job : jobs) {
      const Completed c = rig.report(job, rank);
      BOOST_TEST(c.rejected.empty());
      for (const EndedCopy& e : c.jobs) ++ended[e.job];
      done[rank].push_back(job);
    }
  };
  const auto step = [&](const std::vector<Sched>& scheduled) {
    rig.disk_open.clear();
    std::vector<JobId> jobs;
    for (const PlanCopyOf& job : rig.step(scheduled)) jobs.push_back(job.job);
    for (const DiskJobOf& job : rig.disk_jobs()) jobs.push_back(job.job);
    rig.disk_open.clear();
    report(0, jobs);
    report(1, last);
    last = jobs;
  };
  std::uint64_t hits = 0;
  for (RequestId id = 1; id <= 40; ++id) {
    const TokenIds prompt = tokens_of(static_cast<std::uint32_t>(id % 12), 65);
    rig.begin(id, prompt);
    const LookupAnswer answer = rig.lookup(id);
    const Tables tables = rig.fresh_tables(64, 100);
    const bool loads = answer.code == Code::ok && answer.external.n > 0;
    hits += loads ? answer.external.n : 0;
    rig.alloc(id, loads ? answer.external.n : 0, tables);
    if (loads) {
      step({});
      step({});
    }
    step({{id, 64, tables}});
    step({});
    rig.end(id, 64, tables);
  }
  for (int i = 0; i < 4; ++i) step({});
  BOOST_TEST(done[0] == done[1], boost::test_tools::per_element());
  BOOST_TEST(done[0].size() > 40u);
  for (const auto& [job, times] : ended) BOOST_TEST(times == 1u, "job " << job);
  BOOST_TEST(hits > 40u * 32u);
  rig.check_quiet();
}

// K11-112, K11-116: both media say what came and that all is gone.
BOOST_AUTO_TEST_CASE(events_of_both_media_are_whole_and_a_reset_clears_both) {
  DiskRig rig(one_group(), 8);
  const TokenIds prompt = tokens_of(1, 40);
  rig.serve(1, prompt, 100);
  rig.settle_all();
  std::map<Medium, std::uint64_t> stored;
  for (const CacheEvent& e : events_of(*rig.role)) {
    BOOST_REQUIRE((e.kind == EventKind::stored));
    const std::uint64_t i = stored[e.medium]++;
    const disk::InventoryEntry expected = rig.entry(0, prompt, 16 * (i + 1), 16 * i);
    BOOST_TEST(e.group == 0u);
    BOOST_TEST(e.begin.n == 16 * i);
    BOOST_TEST(e.end.n == 16 * (i + 1));
    BOOST_TEST((std::equal(e.key.begin(), e.key.begin() + key_bytes, expected.what.key.begin())));
    BOOST_TEST(e.has_parent == (i > 0));
    if (i == 0) continue;
    BOOST_TEST((std::equal(e.parent_key.begin(), e.parent_key.begin() + key_bytes,
                           expected.what.parent.begin())));
  }
  BOOST_TEST(stored[Medium::host] == 2u);
  BOOST_TEST(stored[Medium::disk] == 2u);
  // With a load of it under way.
  rig.begin(2, prompt);
  BOOST_TEST(rig.hit(2) == 32u);
  const JobId load = rig.alloc(2, 32, rig.fresh_tables(32, 200));
  rig.step();
  BOOST_TEST((rig.role->reset(false).code == Code::later));
  std::map<Medium, std::uint64_t> cleared;
  for (const CacheEvent& e : events_of(*rig.role)) {
    if (e.kind == EventKind::cleared) ++cleared[e.medium];
  }
  BOOST_TEST(cleared[Medium::host] == 1u);
  BOOST_TEST(cleared[Medium::disk] == 1u);
  rig.begin(3, prompt);
  BOOST_TEST(rig.hit(3) == 0u);
  rig.finish(load);
  rig.settle_all();
  BOOST_TEST((rig.role->reset(false).code == Code::ok));
  BOOST_TEST(rig.hit(3) == 0u);
  for (const CacheEvent& e : events_of(*rig.role)) {
    BOOST_TEST((e.kind == EventKind::cleared));  // once more for the question
  }
  rig.end(2);
  rig.end(3);
  rig.settle_all();
  rig.check_quiet();
}

// K14-138: what was stored stays; the rest is declined, and a hit never crosses a hole.
BOOST_AUTO_TEST_CASE(six_blocks_in_a_pool_of_four_keep_the_first_four) {
  for (const MakeRole make : both_roles) {
    Rig rig({{full(16)}, 16, 16, 1}, 4, {}, limits_of(), make);
    // Block by block, as it runs.
    const TokenIds prompt = tokens_of(1, 97);
    rig.begin(1, prompt);
    const Tables tables = rig.fresh_tables(96, 1);
    rig.alloc(1, 0, tables);
    for (std::uint64_t b = 1; b <= 6; ++b) {
      rig.step({{1, 16 * b, tables}});
      rig.finish_all();
    }
    rig.end(1, 96, tables);
    rig.drain();
    BOOST_TEST(rig.offers().stored == 4u);
    BOOST_TEST(rig.offers().dropped_pool_full == 1u);
    BOOST_TEST(rig.offers().dropped_no_parent == 1u);
    rig.begin(2, prompt);
    BOOST_TEST(rig.hit(2) == 64u);
    rig.end(2);
    rig.check_quiet();
  }
}

// K14-139: on every path: positions, states, the tail inside a block, what the end brings.
BOOST_AUTO_TEST_CASE(who_may_not_write_writes_on_no_path_and_reads) {
  for (const MakeRole make : both_roles) {
    Rig rig({{full(16), state(16)}, 4, 16, 1}, 32, {}, limits_of(), make);
    const TokenIds prompt = tokens_of(1, 30);
    for (const bool no_write : {false, true}) {
      const RequestId id = no_write ? 2 : 1;
      const OfferCounts before = rig.offers();
      rig.begin(id, no_write ? tokens_of(1, 60) : prompt, false, no_write);
      BOOST_TEST(rig.hit(id) == (no_write ? 28u : 0u));
      const std::uint64_t all = no_write ? 60 : 30;
      const Tables tables{rig.fresh_tables(all, 100 * static_cast<BlockId>(id))[0], {}};
      rig.alloc(id, 0, tables);
      rig.step({{id, 16, tables}}, {}, {{1, id, 500, Tokens{16}}});
      rig.step({{id, all, tables}}, {}, {{1, id, 501, Tokens{28}}});
      rig.end(id, all, tables, {{1, id, 502, Tokens{no_write ? 60u : 28u}}});
      rig.drain();
      BOOST_TEST((rig.offers().published == before.published) == no_write);
    }
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_SUITE_END()
