// The disk tier in the scheduler role: what is written and read when, and what ranks may say of it.
#include "plugin/offloading/tests/disk_rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

Layout one_group() { return {{full(16)}, 16, 16, 1}; }

// Prompts of 64 tokens and a little: four blocks.
TokenIds prompt_of(std::uint32_t seed) { return tokens_of(seed, 70); }

// Four blocks of each of these prompts go through a host pool of eight: what is first leaves it.
void serve_all(DiskRig& rig, std::initializer_list<std::uint32_t> seeds) {
  for (const std::uint32_t seed : seeds) {
    rig.serve(seed, prompt_of(seed), 100 + 10 * static_cast<BlockId>(seed));
    rig.settle_all();
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(disk_in_the_scheduler_role)

BOOST_AUTO_TEST_CASE(a_stored_block_is_written_to_disk_behind_its_parent) {
  DiskRig rig(one_group(), 8);
  rig.serve(1, prompt_of(1), 100);
  BOOST_TEST(rig.role->pending().tier_jobs > 0u);
  rig.step();
  const DiskJobOf spill = rig.only(JobKind::spill);
  BOOST_REQUIRE_EQUAL(spill.blocks.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    const disk::InventoryEntry e = rig.entry(0, prompt_of(1), 16 * (i + 1), 16 * i);
    BOOST_TEST(spill.blocks[i].end_tokens == e.what.end_tokens);
    BOOST_TEST(spill.blocks[i].has_parent == (i > 0));
    BOOST_TEST((spill.blocks[i].key == e.what.key));
    BOOST_TEST((spill.blocks[i].parent == e.what.parent));
  }
  BOOST_TEST(rig.stat("disk_blocks_now") == 0u);
  rig.finish_disk();
  BOOST_TEST(rig.stat("disk_blocks_now") == 4u);
  BOOST_TEST(rig.stat("disk_spills_ok") == 4u);
  std::size_t stored = 0;
  for (const auto& [kind, medium] : rig.events()) {
    stored += kind == EventKind::stored && medium == Medium::disk;
  }
  BOOST_TEST(stored == 4u);
  BOOST_TEST(rig.role->pending().tier_jobs == 0u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_lookup_counts_blocks_on_disk_and_starts_nothing) {
  DiskRig rig(one_group(), 8);
  serve_all(rig, {1, 2, 3});
  rig.begin(9, prompt_of(1));
  const std::uint64_t used = rig.stat("host_slots_used_now");
  for (int i = 0; i < 3; ++i) BOOST_TEST(rig.hit(9) == 64u);
  rig.step();
  BOOST_TEST(rig.disk_jobs().empty());
  BOOST_TEST(rig.stat("host_slots_used_now") == used);
  rig.end(9);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_hit_on_disk_is_filled_and_loaded_by_one_plan) {
  DiskRig rig(one_group(), 8);
  serve_all(rig, {1, 2, 3});
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 64u);
  const Tables tables = rig.fresh_tables(64, 500);
  const Result<AllocResult> out = rig.role->alloc_update(9, Tokens{64}, views(tables));
  BOOST_REQUIRE_EQUAL(error_of(out), "");
  BOOST_REQUIRE_EQUAL(out.value().media.size(), 1u);
  BOOST_TEST((out.value().media[0].medium == Medium::disk));
  BOOST_TEST(out.value().media[0].tokens.n == 64u);
  const JobId load = out.value().job;
  const auto jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  const DiskJobOf fill = rig.only(JobKind::fill);
  BOOST_TEST(fill.request == 9u);
  BOOST_REQUIRE_EQUAL(fill.blocks.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) {
    BOOST_TEST(fill.blocks[i].slot == jobs[0].copies[i].slot);
    BOOST_TEST(fill.blocks[i].end_tokens == 16 * (i + 1));
  }
  rig.finish_disk();
  const Completed done = rig.finish(load);
  BOOST_REQUIRE_EQUAL(done.verdicts.size(), 1u);
  BOOST_TEST((done.verdicts[0].status == Code::ok));
  BOOST_TEST(rig.stat("disk_fills_ok") == 4u);
  BOOST_TEST(rig.stat("disk_hit_tokens") == 64u);
  // It is in the host tier now.
  rig.begin(10, prompt_of(1));
  BOOST_TEST(rig.hit(10) == 64u);
  rig.alloc(10, 64, rig.fresh_tables(64, 600));
  rig.step();
  BOOST_TEST(rig.count(JobKind::fill) == 0u);
  rig.finish_all();
  rig.end(9);
  rig.end(10);
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_hit_in_both_tiers_says_how_many_tokens_each_has) {
  DiskRig rig(one_group(), 6);
  serve_all(rig, {1, 2});  // of the first, two blocks are left in the host tier
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 64u);
  const Tables tables = rig.fresh_tables(64, 500);
  const Result<AllocResult> out = rig.role->alloc_update(9, Tokens{64}, views(tables));
  BOOST_REQUIRE_EQUAL(error_of(out), "");
  BOOST_REQUIRE_EQUAL(out.value().media.size(), 2u);
  BOOST_TEST((out.value().media[0].medium == Medium::host));
  BOOST_TEST(out.value().media[0].tokens.n == 32u);
  BOOST_TEST((out.value().media[1].medium == Medium::disk));
  BOOST_TEST(out.value().media[1].tokens.n == 32u);
  rig.check();
  rig.step();
  BOOST_TEST(rig.count(JobKind::fill) == 2u);
  rig.finish_disk();
  rig.finish_all();
  rig.end(9);
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(eight_requests_for_one_prefix_fill_each_block_once) {
  SimpleCpuSchedulerOptions o = with_disk();
  o.single_flight = false;  // of loads: fills have their own
  DiskRig rig(one_group(), 8, o);
  serve_all(rig, {1, 2, 3});
  for (RequestId id = 11; id <= 18; ++id) rig.begin(id, prompt_of(1));
  BOOST_TEST(rig.hit(11) == 64u);
  const JobId load = rig.alloc(11, 64, rig.fresh_tables(64, 500));
  for (RequestId id = 12; id <= 18; ++id) {
    const LookupAnswer answer = rig.lookup(id);
    BOOST_TEST((answer.code == Code::later));
  }
  rig.step();
  BOOST_TEST(rig.count(JobKind::fill) == 4u);
  rig.finish_disk();
  rig.finish(load);
  BOOST_TEST(rig.stat("disk_lookups_pending") == 7u);
  for (RequestId id = 12; id <= 18; ++id) {
    BOOST_TEST(rig.hit(id) == 64u);
    rig.alloc(id, 64, rig.fresh_tables(64, 500 + 10 * static_cast<BlockId>(id)));
  }
  rig.step();
  BOOST_TEST(rig.count(JobKind::fill) == 0u);
  rig.finish_all();
  for (RequestId id = 11; id <= 18; ++id) rig.end(id);
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_block_that_cannot_be_read_fails_its_load_and_goes) {
  DiskRig rig(one_group(), 8);
  serve_all(rig, {1, 2, 3});
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 64u);
  const JobId load = rig.alloc(9, 64, rig.fresh_tables(64, 500));
  rig.step();
  const DiskJobOf fill = rig.only(JobKind::fill);
  // The load's report overtakes that of the fill.
  const Completed done = rig.finish(load, Code::io);
  BOOST_REQUIRE_EQUAL(done.verdicts.size(), 1u);
  BOOST_TEST((done.verdicts[0].status == Code::io));
  rig.report(fill.job, 0, Code::io, {DiskRig::lost(2)});
  rig.disk_open.clear();
  BOOST_TEST(rig.stat("disk_fills_failed") == 1u);
  BOOST_TEST(rig.stat("disk_fills_ok") == 3u);
  BOOST_TEST((rig.lookup(9).why == Why::load_failed));
  rig.step();
  const DiskJobOf drop = rig.only(JobKind::drop);
  BOOST_REQUIRE_EQUAL(drop.blocks.size(), 1u);
  BOOST_TEST((drop.blocks[0].key == rig.entry(0, prompt_of(1), 48, 32).what.key));
  rig.finish_disk();
  // The request computes; what it stores is written again.
  const Tables tables = rig.fresh_tables(70, 600);
  rig.alloc(9, 0, tables);
  rig.step({{9, 70, tables}});
  rig.finish_all();
  rig.end(9, 70, tables);
  rig.settle_all();
  rig.begin(10, prompt_of(1));
  BOOST_TEST(rig.hit(10) == 64u);
  rig.end(10);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_failed_write_costs_the_disk_what_hangs_on_it) {
  DiskRig rig(one_group(), 8);
  rig.serve(1, prompt_of(1), 100);
  rig.step();
  const DiskJobOf spill = rig.only(JobKind::spill);
  FailedBlock second = DiskRig::lost(1);
  second.side = FailedSide::destination;
  rig.report(spill.job, 0, Code::io, {second});
  rig.disk_open.clear();
  BOOST_TEST(rig.stat("disk_blocks_now") == 1u);
  rig.step();
  BOOST_TEST(rig.count(JobKind::drop) == 3u);  // the ranks may have the others
  rig.finish_disk();
  rig.settle_all();
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 64u);  // of the host tier
  rig.end(9);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(after_a_restart_keys_count_that_every_rank_has_with_the_same_parent) {
  const TokenIds a = prompt_of(1);
  const TokenIds b = prompt_of(2);
  const auto entry = [](const TokenIds& all, std::uint64_t end, std::uint64_t parent) {
    return DiskRig::make_entry(16, 0, all, end, parent);
  };
  // Children may stand before their parents. The second rank lacks the third block of a, has the
  // second of b under another parent, and the first of b is nowhere.
  const DiskRig::Entries first = {entry(a, 32, 16), entry(a, 16, 0), entry(a, 48, 32),
                                  entry(b, 32, 16), entry(b, 48, 32)};
  const DiskRig::Entries second = {entry(a, 16, 0), entry(a, 32, 16), entry(b, 32, 0),
                                   entry(b, 48, 32)};
  DiskRig rig(one_group(), 8, with_disk(), {first, second});
  BOOST_TEST(rig.stat("disk_blocks_now") == 2u);
  BOOST_TEST(rig.stat("disk_restored") == 2u);
  BOOST_TEST(rig.stat("disk_restore_dropped") == 3u);
  rig.begin(9, a);
  BOOST_TEST(rig.hit(9) == 32u);
  rig.step();
  BOOST_TEST(rig.count(JobKind::drop) == 3u);
  rig.finish_disk();
  rig.end(9);
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(large_inventories_continue_in_reports) {
  const TokenIds a = prompt_of(1);
  DiskRig::Entries all;
  for (std::uint64_t i = 0; i < 4; ++i) {
    all.push_back(DiskRig::make_entry(16, 0, a, 16 * (i + 1), 16 * i));
  }
  const auto piece = [&](std::uint64_t first, std::uint64_t count) {
    std::vector<std::uint8_t> out =
        DiskRig::inventory(0, {all.begin() + static_cast<std::ptrdiff_t>(first),
                               all.begin() + static_cast<std::ptrdiff_t>(first + count)});
    disk::renumber_inventory(out, first, all.size());
    return out;
  };
  Rig rig(one_group(), 0, with_disk(), ranks_of(1), make_offloading);
  const std::vector<std::uint8_t> begin = piece(0, 1);
  SlotClass cls{0, 1, 1, Bytes{1024}, 0};
  const RankInfo info{0, 8, {&cls, 1}, begin};
  BOOST_REQUIRE_EQUAL(error_of(rig.role->set_ranks({&info, 1})), "");
  rig.begin(9, a);
  BOOST_TEST(rig.hit(9) == 16u);
  rig.begin(8, prompt_of(2));
  // Nothing is known of these keys, and they may be on disk (RETRY).
  BOOST_TEST((rig.lookup(8).code == Code::later));
  rig.step();
  // The rest comes in any order, and twice.
  std::uint64_t number = 0;
  for (const std::uint64_t first : {3, 1, 1, 2}) {
    std::vector<std::uint8_t> buffer(4096);
    ReportEncoder encoder(buffer);
    encoder.begin(rig.epoch, 0, ++number);
    BOOST_REQUIRE(encoder.set_inventory(piece(first, 1)));
    BOOST_TEST(rig.complete({encoder.finish()}).rejected.empty());
  }
  BOOST_TEST(rig.hit(9) == 64u);
  BOOST_TEST((rig.lookup(8).code == Code::ok));
  BOOST_TEST(rig.stat("disk_restored") == 4u);
}

BOOST_AUTO_TEST_CASE(a_reset_is_done_when_every_rank_has_a_new_generation) {
  DiskRig rig(one_group(), 8);
  serve_all(rig, {1, 2, 3});
  BOOST_TEST(rig.stat("disk_blocks_now") == 12u);
  BOOST_TEST((rig.role->reset(false).code == Code::later));
  BOOST_TEST(rig.stat("disk_blocks_now") == 0u);
  BOOST_TEST(rig.role->pending().tier_jobs == 1u);
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 0u);
  rig.step();
  BOOST_TEST(rig.count(JobKind::disk_reset) == 1u);
  // Asked again it is the same reset; a rank that failed is asked again.
  BOOST_TEST((rig.role->reset(false).code == Code::later));
  rig.finish(rig.only(JobKind::disk_reset).job, Code::io);
  BOOST_TEST((rig.role->reset(false).code == Code::later));
  rig.step();
  rig.finish_disk();
  BOOST_TEST((rig.role->reset(false).code == Code::ok));
  rig.step();
  BOOST_TEST(rig.disk_jobs().empty());
  rig.end(9);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_reset_ends_what_is_on_its_way_in_both_directions) {
  DiskRig rig(one_group(), 12);
  serve_all(rig, {1, 2, 3});
  rig.serve(4, prompt_of(4), 300);  // its blocks wait for a plan
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 64u);
  rig.alloc(9, 64, rig.fresh_tables(64, 500));
  rig.begin(10, prompt_of(2));
  BOOST_TEST(rig.hit(10) > 0u);
  rig.step();
  const std::vector<DiskJobOf> open = rig.disk_jobs();
  BOOST_TEST((rig.role->reset(false).code == Code::later));
  rig.check();
  for (const DiskJobOf& j : open) {
    if (!j.blocks.empty()) rig.finish(j.job, Code::cancelled);
  }
  rig.finish_all();
  rig.end(9);
  rig.end(10);
  rig.settle_all();
  BOOST_TEST(rig.stat("disk_blocks_now") == 0u);
  BOOST_TEST((rig.role->reset(false).code == Code::ok));
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(the_budget_is_kept_and_what_leaves_is_dropped_on_the_ranks) {
  // 64 KiB are the folder's own; a block costs 4096 bytes and its record.
  const std::uint64_t budget = (std::uint64_t{64} << 10U) + 6 * (4096 + 128);
  DiskRig rig(one_group(), 8, with_disk({}, budget));
  serve_all(rig, {1, 2});
  BOOST_TEST(rig.stat("disk_blocks_now") <= 6u);
  BOOST_TEST(rig.stat("disk_used_bytes_now") <= rig.stat("disk_budget_bytes_now"));
  BOOST_TEST(rig.stat("disk_evictions") >= 2u);
  BOOST_TEST(rig.stat("disk_drops") == rig.stat("disk_evictions"));
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(on_eviction_a_block_is_written_before_its_slot_is_used_again) {
  SimpleCpuSchedulerOptions o = with_disk();
  o.disk.on_eviction = true;
  DiskRig rig(one_group(), 16, o);
  rig.serve(1, prompt_of(1), 100);
  rig.settle_all();
  BOOST_TEST(rig.stat("disk_blocks_now") == 0u);  // there is room enough
  serve_all(rig, {2, 3, 4, 5, 6});
  BOOST_TEST(rig.stat("disk_spills_ok") > 0u);
  BOOST_TEST(rig.stat("disk_lost_on_eviction") == 0u);
  for (std::uint32_t seed = 1; seed <= 6; ++seed) {
    rig.begin(100 + seed, prompt_of(seed));
    BOOST_TEST(rig.hit(100 + seed) == 64u, "prompt " << seed);
    rig.end(100 + seed);
  }
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(states_and_tails_come_back_from_disk) {
  // Blocks of 64 tokens, hits at 16: the tail of a prompt of 100 ends at 96.
  const Layout layout{{full(64), state(64)}, 16, 64, 1};
  for (const bool on_eviction : {false, true}) {
    SimpleCpuSchedulerOptions o = with_disk();
    o.disk.on_eviction = on_eviction;
    DiskRig rig(layout, 24, o);
    for (std::uint32_t seed = 1; seed <= 14; ++seed) {
      const TokenIds prompt = tokens_of(seed, 100);
      rig.begin(seed, prompt);
      Tables tables = rig.fresh_tables(100, 100 + 10 * static_cast<BlockId>(seed));
      rig.alloc(seed, 0, tables);
      rig.step({{seed, 96, tables}}, {}, {{1, seed, tables[1].back(), Tokens{96}}});
      rig.finish_all();
      rig.end(seed, 96, tables);
      rig.settle_all();
    }
    for (std::uint32_t seed = 1; seed <= 14; ++seed) {
      rig.begin(200 + seed, tokens_of(seed, 100));
      BOOST_TEST(rig.hit(200 + seed) == 96u, "prompt " << seed << " on_eviction " << on_eviction);
      rig.end(200 + seed);
    }
    BOOST_TEST(rig.stat("disk_lost_on_eviction") == 0u);
    rig.settle_all();
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(a_sick_disk_is_left_alone_until_it_is_well) {
  DiskRig rig(one_group(), 8);
  serve_all(rig, {1, 2, 3});
  const auto say = [&](DiskState state, std::uint64_t number) {
    std::vector<std::uint8_t> buffer(4096);
    ReportEncoder encoder(buffer);
    encoder.begin(rig.epoch, 0, number);
    encoder.set_disk_state(state);
    BOOST_TEST(rig.complete({encoder.finish()}).rejected.empty());
  };
  say(DiskState::off, 1000);
  say(DiskState::on, 999);  // an older report
  BOOST_TEST(rig.stat("disk_ranks_off_now") == 1u);
  BOOST_TEST(rig.stat("disk_switched_off") == 1u);
  BOOST_TEST(rig.role->explain(0).value().find("\"ranks_off\":[0]") != std::string::npos);
  rig.begin(9, prompt_of(1));
  BOOST_TEST(rig.hit(9) == 0u);
  rig.end(9);
  rig.serve(4, prompt_of(4), 300);
  rig.step();
  BOOST_TEST(rig.count(JobKind::spill) == 0u);
  say(DiskState::on, 1001);
  BOOST_TEST(rig.stat("disk_ranks_off_now") == 0u);
  rig.begin(10, prompt_of(1));
  BOOST_TEST(rig.hit(10) == 64u);
  rig.end(10);
  rig.settle_all();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(more_blocks_than_may_be_on_their_way_are_not_written) {
  SimpleCpuSchedulerOptions o = with_disk();
  o.disk.open_blocks = 2;
  DiskRig rig(one_group(), 8, o);
  rig.serve(1, prompt_of(1), 100);
  rig.step();
  BOOST_TEST(rig.count(JobKind::spill) == 2u);
  rig.finish_disk();
  BOOST_TEST(rig.stat("disk_spills_skipped") > 0u);
  // The next use of the prefix writes the rest.
  rig.serve(2, prompt_of(1), 200);
  rig.settle_all();
  BOOST_TEST(rig.stat("disk_blocks_now") == 4u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_SUITE_END()
