#include "plugin/offload/rank_engine.h"

#include <boost/test/unit_test.hpp>
#include <set>

#include "plugin/offload/tests/rank_world.h"

namespace kvc {
namespace {

using rank_test::FakeHost;
using rank_test::make_plan;
using rank_test::PlannedCopies;
using rank_test::Seen;
using rank_test::World;

// Fails copies of chosen operations; holds completions.
class Trouble final : public CopyFault {
 public:
  Verdict on_copy(std::uint64_t, CopyDirection direction, std::uint64_t index) override {
    if (fail_direction && direction == *fail_direction && index == fail_index)
      return {Code::io, side};
    return {};
  }
  bool may_end(std::uint64_t) override { return !hold; }

  std::optional<CopyDirection> fail_direction;
  std::uint64_t fail_index = 0;
  CopySide side = CopySide::source;
  bool hold = false;
};

bool has(const Seen& seen, JobId job, ReportPhase phase, Code status) {
  return std::any_of(seen.reported.begin(), seen.reported.end(), [&](const ReportJob& r) {
    return r.job == job && r.phase == phase && r.status == status;
  });
}

BOOST_AUTO_TEST_SUITE(rank_engine)

BOOST_AUTO_TEST_CASE(what_was_stored_is_loaded_into_another_block) {
  World w;
  BOOST_TEST(w.info.rank == 5u);
  BOOST_TEST(w.info.pages == 8u);
  BOOST_REQUIRE(w.info.classes.size() == 2u);
  BOOST_TEST(w.info.classes[0].group_mask == 0b11u);
  BOOST_TEST(w.info.classes[1].group_mask == 0b100u);
  BOOST_TEST(w.info.classes[1].slots_per_page == 3u);
  const auto a = w.block(0, 3);
  const auto b = w.block(1, 4);
  BOOST_TEST(w.submit({}, {{10, {{0, 0, 3, 0}, {1, 7, 4, 1}}}}).ok());
  Seen seen = w.run();
  BOOST_TEST(seen.items.empty());
  BOOST_REQUIRE(seen.reported.size() == 1u);
  BOOST_TEST((seen.reported[0] == ReportJob{10, JobKind::store, ReportPhase::ended, Code::ok, 96}));
  w.fill(0, 3, 0);
  BOOST_TEST(w.submit({{11, {{0, 0, 9, 0}, {1, 7, 10, 1}}}}, {}).ok());
  seen = w.run();
  BOOST_REQUIRE(seen.items.size() == 1u);
  BOOST_TEST(seen.items[0].first == 11u);
  BOOST_TEST((seen.items[0].second == Code::ok));
  BOOST_TEST(has(seen, 11, ReportPhase::ended, Code::ok));
  BOOST_TEST((w.block(0, 9) == a));
  BOOST_TEST((w.block(1, 10) == b));
  BOOST_TEST(w.run().reported.empty());  // once
  BOOST_TEST(w.rank->open_jobs() == 0u);
  BOOST_TEST(w.rank->verify() == "");
  BOOST_TEST(w.rank->counters().loaded_bytes == 96u);
  BOOST_TEST(w.rank->counters().stored_bytes == 96u);
}

BOOST_AUTO_TEST_CASE(stores_wait_for_the_fence_of_their_step_and_loads_for_theirs) {
  World w;
  std::uint64_t device_step = 0;
  const Fence at_one{FenceKind::counter, &device_step, 1, nullptr};
  BOOST_TEST(w.submit({}, {{1, {{0, 2, 5, 0}}}}, {}, at_one).ok());
  for (int i = 0; i < 3; ++i) BOOST_TEST(w.run().reported.empty());
  w.fill(0, 5, 99);  // the forward of the step
  const auto computed = w.block(0, 5);
  device_step = 1;
  BOOST_TEST(w.run().reported.size() == 1u);
  // K1 case 4: the destination is zeroed in the step of the load.
  const Fence at_two{FenceKind::counter, &device_step, 2, nullptr};
  BOOST_TEST(w.submit({{2, {{0, 2, 6, 0}}}}, {}, at_two).ok());
  BOOST_TEST(w.run().items.empty());
  w.fill(0, 6, 0);
  device_step = 2;
  BOOST_TEST(w.run().items.size() == 1u);
  BOOST_TEST((w.block(0, 6) == computed));
}

BOOST_AUTO_TEST_CASE(a_chained_load_gets_the_bytes_of_the_store_before_it) {
  // Over plans, and within one plan in both orders of submission.
  for (const int variant : {0, 1, 2}) {
    World w;
    std::uint64_t device_step = 0;
    const Fence fence{FenceKind::counter, &device_step, 1, nullptr};
    w.fill(0, 1, 10);
    w.fill(0, 2, 20);
    BOOST_TEST(w.submit({}, {{1, {{0, 3, 1, 0}}}}).ok());
    w.run();
    const PlannedCopies store{2, {{0, 3, 2, 0}}};
    const PlannedCopies load{3, {{0, 3, 9, 0}}};
    if (variant == 0) {
      BOOST_TEST(w.submit({}, {store}, {}, fence).ok());
      BOOST_TEST(w.submit({load}, {}).ok());
    } else {
      const auto plan = make_plan(World::epoch, ++w.step, {load}, {store});
      if (variant == 1) BOOST_TEST(w.rank->submit_loads(plan, {}).ok());
      if (variant == 1) BOOST_TEST(w.run().items.empty());
      BOOST_TEST(w.rank->submit_stores(plan, fence).ok());
      if (variant == 2) BOOST_TEST(w.rank->submit_loads(plan, {}).ok());
    }
    BOOST_TEST(w.run().items.empty());
    BOOST_TEST(w.rank->verify() == "");
    device_step = 1;
    const Seen seen = w.run();
    BOOST_TEST(seen.items.size() == 1u);
    BOOST_TEST(seen.reported.size() == 2u);
    BOOST_TEST((w.block(0, 9) == w.block(0, 2)));
  }
}

BOOST_AUTO_TEST_CASE(a_load_chained_to_a_failed_store_fails_at_its_source) {
  for (const bool store_first : {false, true}) {
    Trouble trouble;
    World w(&trouble);
    trouble.fail_direction = CopyDirection::store;
    const auto before = w.block(0, 9);
    if (store_first) {
      BOOST_TEST(w.submit({}, {{2, {{0, 3, 2, 0}}}}).ok());
      w.run();
      trouble.fail_direction.reset();
      BOOST_TEST(w.submit({{3, {{0, 3, 9, 4}}}}, {}).ok());
    } else {
      BOOST_TEST(w.submit({{3, {{0, 3, 9, 4}}}}, {{2, {{0, 3, 2, 0}}}}).ok());
    }
    const Seen seen = w.run();
    BOOST_REQUIRE(seen.items.size() == 1u);
    BOOST_TEST((seen.items[0].second == Code::io));
    BOOST_TEST((w.block(0, 9) == before));
    if (store_first) {
      BOOST_REQUIRE(seen.item_failed.at(3).size() == 1u);
      BOOST_TEST((seen.item_failed.at(3)[0].side == FailedSide::source));
      BOOST_TEST(seen.item_failed.at(3)[0].position == 4u);
    }
    BOOST_TEST(w.rank->verify() == "");
  }
}

BOOST_AUTO_TEST_CASE(a_slot_that_was_never_stored_is_not_loaded) {
  World w;
  const auto before = w.block(0, 9);
  BOOST_TEST(w.submit({{1, {{0, 6, 9, 0}}}}, {}).ok());
  const Seen seen = w.run();
  BOOST_REQUIRE(seen.items.size() == 1u);
  BOOST_TEST((seen.items[0].second == Code::io));
  BOOST_TEST((w.block(0, 9) == before));
}

BOOST_AUTO_TEST_CASE(a_failed_copy_names_its_block_and_side_in_item_and_report) {
  Trouble trouble;
  World w(&trouble);
  BOOST_TEST(w.submit({}, {{1, {{0, 0, 1, 0}, {1, 1, 2, 1}, {0, 2, 3, 2}}}}).ok());
  w.run();
  // Descriptors of the load: block of group 0 has two, group 1 one, group 0 two: index 3 is the
  // third copy.
  trouble.fail_direction = CopyDirection::load;
  trouble.fail_index = 3;
  BOOST_TEST(w.submit({{2, {{0, 0, 4, 0}, {1, 1, 5, 1}, {0, 2, 6, 2}}}}, {}).ok());
  const Seen seen = w.run();
  BOOST_REQUIRE(seen.failed.count(2) == 1u);
  for (const auto& list : {seen.failed.at(2), seen.item_failed.at(2)}) {
    BOOST_REQUIRE(list.size() == 1u);
    BOOST_TEST(list[0].group == 0u);
    BOOST_TEST(list[0].block == 6);
    BOOST_TEST(list[0].position == 2u);
    BOOST_TEST(list[0].rank == 5u);
    BOOST_TEST((list[0].side == FailedSide::source));
    BOOST_TEST((list[0].status == Code::io));
  }
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::io));
}

// Slots of three blocks for groups 0 and 1.
RankOptions in_chunks() {
  RankOptions o = World::options();
  o.layout.blocks_per_slot = {3, 3, 1};
  o.layout.host_blocks = 24;
  return o;
}

BOOST_AUTO_TEST_CASE(chunks_keep_every_block_at_its_place) {
  World w(nullptr, in_chunks());
  BOOST_TEST(w.info.pages == 8u);
  BOOST_REQUIRE(w.info.classes.size() == 2u);
  BOOST_TEST(w.info.classes[0].bytes_per_block.n == 144u);
  BOOST_TEST(w.info.classes[1].bytes_per_block.n == 16u);
  BOOST_TEST(w.info.classes[1].slots_per_page == 9u);
  std::vector<std::vector<std::uint8_t>> stored;
  for (const BlockId b : {1, 2, 3}) stored.push_back(w.block(0, b));
  const auto first = w.block(1, 4);
  const auto second = w.block(1, 5);
  const auto state = w.block(2, 6);
  // A whole chunk, one that ends early, and a state, whose slot has one place at any position.
  BOOST_TEST(w.submit({}, {{1,
                            {{0, 2, 1, 3},
                             {0, 2, 2, 4},
                             {0, 2, 3, 5},
                             {1, 5, 4, 6},
                             {1, 5, 5, 7},
                             {2, 10, 6, 7}}}})
                 .ok());
  BOOST_TEST(has(w.run(), 1, ReportPhase::ended, Code::ok));
  BOOST_TEST(w.rank->verify() == "");
  // Any part of it, to any block; what is not loaded does not move.
  const auto before = w.device;
  BOOST_TEST(
      w.submit({{2, {{0, 2, 9, 4}, {0, 2, 10, 5}}}, {3, {{1, 5, 11, 6}, {2, 10, 12, 0}}}}, {})
          .ok());
  const Seen seen = w.run();
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 3, ReportPhase::ended, Code::ok));
  BOOST_TEST((w.block(0, 9) == stored[1]));
  BOOST_TEST((w.block(0, 10) == stored[2]));
  BOOST_TEST((w.block(1, 11) == first));
  BOOST_TEST((w.block(2, 12) == state));
  BOOST_TEST(w.submit({{4, {{0, 2, 7, 0}, {1, 5, 8, 1}}}}, {}).ok());
  BOOST_TEST(has(w.run(), 4, ReportPhase::ended, Code::ok));
  BOOST_TEST((w.block(0, 7) == stored[0]));
  BOOST_TEST((w.block(1, 8) == second));
  BOOST_TEST(std::equal(before.begin(), before.begin() + 7 * 32, w.device.begin()));
  BOOST_TEST(w.rank->counters().loaded_bytes == 48u * 5 + 16);
}

BOOST_AUTO_TEST_CASE(a_place_that_was_not_stored_is_not_loaded) {
  World w(nullptr, in_chunks());
  BOOST_TEST(w.submit({}, {{1, {{0, 2, 1, 0}, {0, 2, 2, 1}}}}).ok());
  w.run();
  BOOST_TEST(w.submit({{2, {{0, 2, 9, 1}, {0, 2, 10, 2}}}}, {}).ok());
  const Seen seen = w.run();
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::io));
  BOOST_REQUIRE(seen.failed.at(2).size() == 1u);
  BOOST_TEST(seen.failed.at(2)[0].position == 2u);
  // A shorter store of the slot takes the places back.
  BOOST_TEST(w.submit({}, {{3, {{0, 2, 3, 0}}}}).ok());
  w.run();
  BOOST_TEST(w.submit({{4, {{0, 2, 9, 1}}}}, {}).ok());
  BOOST_TEST(has(w.run(), 4, ReportPhase::ended, Code::io));
}

BOOST_AUTO_TEST_CASE(a_chunk_with_a_hole_or_a_place_twice_is_not_stored) {
  const std::vector<std::vector<PlanCopy>> wrong = {{{0, 2, 1, 1}},
                                                    {{0, 2, 1, 0}, {0, 2, 2, 2}},
                                                    {{0, 2, 1, 0}, {0, 2, 2, 0}},
                                                    {{0, 2, 1, 0}, {0, 2, 2, 1}, {0, 2, 3, 1}}};
  World w(nullptr, in_chunks());
  JobId job = 1;
  for (const auto& copies : wrong) {
    BOOST_TEST(w.submit({}, {{job, copies}}).ok());
    BOOST_TEST(has(w.run(), job, ReportPhase::ended, Code::state));
    BOOST_TEST(w.rank->verify() == "");
    ++job;
  }
}

BOOST_AUTO_TEST_CASE(jobs_that_name_what_must_not_be_touched_fail_and_the_rest_runs) {
  World w;
  BOOST_TEST(w.submit({}, {{1, {{0, 0, 1, 0}}}}).ok());
  w.run();
  const auto device = w.device;
  const std::vector<PlanCopy> bad{
      {3, 0, 1, 0},         {99, 0, 1, 0},        {0, 8, 1, 0},
      {0, 0, -1, 0},        {0, 0, 16, 0},        {0, 0, 0, 0},  // the null block
      {0, 0, INT64_MAX, 0}, {0, 0, INT64_MIN, 0}, {1, UINT32_MAX, 1, 0}};
  std::vector<PlannedCopies> loads;
  std::vector<PlannedCopies> stores;
  for (std::size_t i = 0; i < bad.size(); ++i) {
    loads.push_back({100 + i, {{0, 0, 2, 0}, bad[i]}});
    stores.push_back({200 + i, {{0, 5, 2, 0}, bad[i]}});
  }
  loads.push_back({300, {{0, 0, 9, 0}}});
  stores.push_back({301, {{0, 6, 2, 0}}});
  BOOST_TEST(w.submit(loads, stores).ok());
  const Seen seen = w.run();
  BOOST_TEST(seen.items.size() == bad.size() + 1);
  for (std::size_t i = 0; i < bad.size(); ++i) {
    BOOST_TEST(has(seen, 100 + i, ReportPhase::ended, Code::arg), "load of bad copy " << i);
    BOOST_TEST(has(seen, 200 + i, ReportPhase::ended, Code::arg), "store of bad copy " << i);
  }
  BOOST_TEST(has(seen, 300, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 301, ReportPhase::ended, Code::ok));
  auto expected = device;
  std::copy(w.device.begin() + 9 * 32, w.device.begin() + 10 * 32, expected.begin() + 9 * 32);
  std::copy(w.device.begin() + 1024 + 9 * 24, w.device.begin() + 1024 + 9 * 24 + 16,
            expected.begin() + 1024 + 9 * 24);
  BOOST_TEST((w.device == expected));  // only block 9 changed
  BOOST_TEST(w.rank->counters().jobs_refused == 2 * bad.size());
  BOOST_TEST(w.host.lines.size() == 2 * bad.size());
  BOOST_TEST((w.host.lines[0].first == LogLevel::peer_fault));
  // Sides: a bad slot is the source of a load, a bad block its destination; stores the other way
  // round.
  BOOST_TEST((seen.failed.at(102)[0].side == FailedSide::source));
  BOOST_TEST((seen.failed.at(103)[0].side == FailedSide::destination));
  BOOST_TEST((seen.failed.at(202)[0].side == FailedSide::destination));
  BOOST_TEST((seen.failed.at(203)[0].side == FailedSide::source));
  BOOST_TEST(w.rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_slot_in_use_is_not_stored_again) {
  Trouble trouble;
  World w(&trouble);
  BOOST_TEST(w.submit({}, {{1, {{0, 0, 1, 0}}}}).ok());
  w.run();
  const auto stored = w.block(0, 1);
  trouble.hold = true;
  BOOST_TEST(w.submit({{2, {{0, 0, 9, 0}}}}, {}).ok());
  BOOST_TEST(w.submit({}, {{3, {{0, 0, 2, 0}}}}).ok());  // read by job 2
  BOOST_TEST(w.submit({}, {{4, {{0, 1, 3, 0}}}}).ok());
  BOOST_TEST(w.submit({}, {{5, {{0, 2, 4, 0}, {0, 1, 4, 0}}}}).ok());  // written by job 4
  BOOST_TEST(w.submit({}, {{6, {{0, 3, 4, 0}, {0, 3, 5, 0}}}}).ok());  // twice
  Seen seen = w.run();
  for (const JobId id : {JobId{3}, JobId{5}, JobId{6}})
    BOOST_TEST(has(seen, id, ReportPhase::ended, Code::state), "job " << id);
  BOOST_TEST(w.rank->verify() == "");
  trouble.hold = false;
  seen = w.run();
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 4, ReportPhase::ended, Code::ok));
  BOOST_TEST((w.block(0, 9) == stored));
  // The slots of refused stores hold nothing now; slot 0 was left alone.
  BOOST_TEST(w.submit({{7, {{0, 3, 9, 0}}}, {8, {{0, 2, 9, 0}}}, {9, {{0, 0, 9, 0}}}}, {}).ok());
  seen = w.run();
  BOOST_TEST(has(seen, 7, ReportPhase::ended, Code::io));
  BOOST_TEST(has(seen, 8, ReportPhase::ended, Code::io));
  BOOST_TEST(has(seen, 9, ReportPhase::ended, Code::ok));
}

BOOST_AUTO_TEST_CASE(a_page_changes_hands_between_classes_and_forgets_what_it_held) {
  Trouble trouble;
  World w(&trouble);
  // Group 2 has three slots on a page: its slots 6, 7, 8 lie on page 2, where group 0 has slot 2.
  BOOST_TEST(w.submit({}, {{1, {{2, 6, 1, 0}, {2, 7, 2, 1}, {2, 8, 3, 2}}}}).ok());
  w.run();
  const auto a = w.block(2, 1);
  const auto c = w.block(2, 3);
  BOOST_TEST(w.submit({{2, {{2, 6, 9, 0}, {2, 8, 10, 0}}}}, {}).ok());
  BOOST_TEST(has(w.run(), 2, ReportPhase::ended, Code::ok));
  BOOST_TEST((w.block(2, 9) == a));
  BOOST_TEST((w.block(2, 10) == c));
  // While a load of the old class reads it, the page stays.
  trouble.hold = true;
  BOOST_TEST(w.submit({{3, {{2, 7, 11, 0}}}}, {}).ok());
  BOOST_TEST(w.submit({}, {{4, {{0, 2, 5, 0}}}}).ok());
  BOOST_TEST(has(w.run(), 4, ReportPhase::ended, Code::state));
  trouble.hold = false;
  BOOST_TEST(has(w.run(), 3, ReportPhase::ended, Code::ok));
  BOOST_TEST(w.submit({{6, {{2, 7, 12, 0}}}}, {{5, {{0, 2, 5, 0}}}}).ok());
  Seen seen = w.run();
  BOOST_TEST(has(seen, 5, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 6, ReportPhase::ended, Code::io));  // the plan gives its page away
  BOOST_TEST(w.submit({{7, {{2, 6, 12, 0}}}, {8, {{0, 2, 12, 0}}}}, {}).ok());
  seen = w.run();
  BOOST_TEST(has(seen, 7, ReportPhase::ended, Code::io));
  BOOST_TEST(has(seen, 8, ReportPhase::ended, Code::ok));
  // Both classes on one page in one job: refused, not mixed.
  BOOST_TEST(w.submit({}, {{9, {{2, 12, 1, 0}, {0, 4, 1, 0}}}}).ok());
  BOOST_TEST(has(w.run(), 9, ReportPhase::ended, Code::state));
  BOOST_TEST(w.rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(empty_jobs_end_ok_whatever_the_fence_says) {
  World w;
  const std::uint64_t never = 0;
  const Fence fence{FenceKind::counter, &never, 1, nullptr};
  BOOST_TEST(w.submit({{1, {}}}, {{2, {}}}, fence, fence).ok());
  const Seen seen = w.progress();
  BOOST_TEST(seen.items.size() == 1u);
  BOOST_TEST(has(seen, 1, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::ok));
}

// An engine that acts on the items of ranks must not take a load for done that the scheduler role
// could not serve (the simulation's first find: wrong outputs after such a load).
BOOST_AUTO_TEST_CASE(a_job_whose_outcome_is_decided_ends_so_in_item_and_report) {
  World w;
  std::vector<std::uint8_t> bytes(plan_bytes(2, 0));
  PlanEncoder e(bytes);
  e.begin(World::epoch, ++w.step);
  BOOST_REQUIRE(e.begin_job(JobKind::load, 1, 12, Code::io));
  e.end_job();
  BOOST_REQUIRE(e.begin_job(JobKind::load, 2, 13, Code::cancelled));
  e.end_job();
  const auto plan = e.finish();
  const std::uint64_t never = 0;
  BOOST_TEST(w.rank->submit_loads(plan, {FenceKind::counter, &never, 1, nullptr}).ok());
  BOOST_TEST(w.rank->submit_stores(plan, {}).ok());
  const Seen seen = w.progress();
  BOOST_REQUIRE(seen.items.size() == 2u);
  BOOST_CHECK(seen.items[0] == std::pair(JobId{1}, Code::io));
  BOOST_CHECK(seen.items[1] == std::pair(JobId{2}, Code::cancelled));
  BOOST_TEST(has(seen, 1, ReportPhase::ended, Code::io));
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::cancelled));
  BOOST_TEST(w.rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(deadlines_emit_once_and_the_end_travels_later) {
  Trouble trouble;
  World w(&trouble);
  BOOST_TEST(w.submit({}, {{1, {{0, 0, 1, 0}}}}).ok());
  w.run();
  trouble.hold = true;
  BOOST_TEST(w.submit({{2, {{0, 0, 9, 0}}}}, {{3, {{0, 1, 2, 0}}}}).ok());
  w.host.now += 29'999'999'999;
  Seen seen = w.run();
  BOOST_TEST(seen.items.empty());
  BOOST_TEST(seen.reported.empty());
  w.host.now += 1;
  seen = w.run();
  BOOST_REQUIRE(seen.items.size() == 1u);
  BOOST_TEST((seen.items[0].second == Code::deadline));
  BOOST_TEST(seen.reported.size() == 1u);
  BOOST_TEST(has(seen, 2, ReportPhase::deadline, Code::deadline));
  BOOST_TEST(w.run().reported.empty());
  w.host.now += 30'000'000'000;
  seen = w.run();
  BOOST_TEST(seen.items.empty());
  BOOST_TEST(has(seen, 3, ReportPhase::deadline, Code::deadline));
  BOOST_TEST(w.rank->open_jobs() == 2u);
  trouble.hold = false;
  seen = w.run();
  BOOST_TEST(seen.items.empty());
  BOOST_TEST(seen.reported.size() == 2u);
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::deadline));
  BOOST_TEST(has(seen, 3, ReportPhase::ended, Code::deadline));
  BOOST_TEST(w.rank->counters().jobs_late == 2u);
  BOOST_TEST(w.rank->open_jobs() == 0u);
}

BOOST_AUTO_TEST_CASE(plans_of_a_foreign_epoch_or_out_of_order_are_refused) {
  World w;
  const auto code = [&](std::uint64_t epoch, std::uint64_t step, bool stores) {
    const auto plan = make_plan(epoch, step, {}, {});
    return (stores ? w.rank->submit_stores(plan, {}) : w.rank->submit_loads(plan, {})).code;
  };
  BOOST_TEST((code(World::epoch, 0, false) == Code::state));
  BOOST_TEST((code(World::epoch, 5, true) == Code::ok));
  BOOST_TEST((code(World::epoch + 1, 6, true) == Code::state));
  BOOST_TEST((code(World::epoch + 1, 6, false) == Code::state));
  BOOST_TEST((code(World::epoch, 5, true) == Code::state));
  BOOST_TEST((code(World::epoch, 4, true) == Code::state));
  BOOST_TEST((code(World::epoch, 5, false) == Code::ok));
  BOOST_TEST((code(World::epoch, 5, false) == Code::state));
  BOOST_TEST((code(World::epoch, 6, true) == Code::ok));
}

BOOST_AUTO_TEST_CASE(a_refused_plan_leaves_nothing_behind) {
  World w;
  auto plan = make_plan(World::epoch, 1, {}, {{1, {{0, 0, 1, 0}}}, {2, {}}, {1, {}}});
  const Status twice = w.rank->submit_stores(plan, {});
  BOOST_TEST((twice.code == Code::arg));
  BOOST_TEST(twice.text.find("job id 1") != std::string::npos);
  plan = make_plan(World::epoch, 1, {}, {{0, {}}});
  BOOST_TEST((w.rank->submit_stores(plan, {}).code == Code::arg));
  plan = make_plan(World::epoch, 1, {}, {{1, {{0, 0, 1, 0}}}});
  std::uint64_t counter = 0;
  BOOST_TEST((w.rank->submit_stores(plan, {FenceKind::cuda_stream, nullptr, 0, &counter}).code ==
              Code::unsupported));
  BOOST_TEST(
      (w.rank->submit_stores(plan, {FenceKind::counter, nullptr, 0, nullptr}).code == Code::arg));
  auto broken = plan;
  broken[70] ^= 1;
  BOOST_TEST((w.rank->submit_stores(broken, {}).code == Code::arg));
  BOOST_TEST(w.rank->open_jobs() == 0u);
  BOOST_TEST(w.rank->verify() == "");
  BOOST_TEST(w.rank->submit_stores(plan, {}).ok());  // the same step is still to come
  // A job id may come again only after its end was told.
  plan = make_plan(World::epoch, 2, {}, {{1, {}}});
  BOOST_TEST((w.rank->submit_stores(plan, {}).code == Code::arg));
  w.run();
  BOOST_TEST(w.rank->submit_stores(plan, {}).ok());
}

BOOST_AUTO_TEST_CASE(nothing_works_before_regions_and_regions_come_once) {
  FakeHost host;
  auto rank =
      std::move(RankEngine::create(World::options(),
                                   std::move(HostCopyEngine::create(World::copies()).value()), host)
                    .value());
  BOOST_TEST((rank->submit_loads(make_plan(1, 1, {}, {}), {}).code == Code::state));
  BOOST_TEST(rank->progress().report.empty());
  BOOST_TEST((rank->wait({}, 1) == Code::ok));
  const auto none = rank->register_regions({});
  BOOST_REQUIRE(!none.ok());
  BOOST_TEST(none.error().text.find("rank 5") != std::string::npos);
  World w;
  BOOST_TEST(rank->register_regions(w.regions()).ok());  // after an error it may be tried again
  BOOST_TEST((rank->register_regions(w.regions()).error().code == Code::state));
}

BOOST_AUTO_TEST_CASE(a_pool_below_two_slots_is_refused_with_numbers) {
  FakeHost host;
  RankOptions o = World::options();
  o.layout.host_blocks = 0;
  o.layout.host_bytes = {95};
  auto rank = std::move(
      RankEngine::create(o, std::move(HostCopyEngine::create(World::copies()).value()), host)
          .value());
  World w;
  const auto info = rank->register_regions(w.regions());
  BOOST_REQUIRE(!info.ok());
  BOOST_TEST((info.error().code == Code::arg));
  BOOST_TEST(info.error().text.find("95 bytes") != std::string::npos);
  BOOST_TEST(info.error().text.find("96 bytes per rank") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(large_jobs_are_handed_over_in_parts_as_the_copy_engine_has_room) {
  RankOptions o = World::options();
  o.part_descriptors = 3;
  HostCopyOptions c = World::copies();
  c.operations_max = 2;
  c.runs_max = 8;
  c.predecessors_max = 4;
  World w(nullptr, o, c);
  std::vector<PlanCopy> all;
  for (std::uint32_t i = 0; i < 8; ++i) all.push_back({i % 2, i, static_cast<BlockId>(i + 1), i});
  std::vector<std::vector<std::uint8_t>> before;
  for (const PlanCopy& copy : all) before.push_back(w.block(copy.group, copy.block));
  std::vector<PlanCopy> back = all;
  for (PlanCopy& copy : back) copy.block = 15 - copy.block + 1;  // 15 .. 8, and 8 is both
  BOOST_TEST(w.submit({{2, back}}, {{1, all}}).ok());
  BOOST_TEST((w.rank->pump(1) == Code::later));
  BOOST_TEST(w.rank->verify() == "");
  const Seen seen = w.run();
  BOOST_TEST(has(seen, 1, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::ok));
  for (std::size_t i = 0; i < back.size(); ++i)
    BOOST_TEST((w.block(back[i].group, back[i].block) == before[i]));
}

BOOST_AUTO_TEST_CASE(a_part_that_can_never_fit_fails_its_job_instead_of_hanging) {
  HostCopyOptions c = World::copies();
  c.operations_max = 1;
  c.runs_max = 1;  // one chunk of runs and one for the operation
  World w(nullptr, World::options(), c);
  std::vector<PlanCopy> all;
  // 50 runs: group 0 has two per block and never merges; more than two chunks of 32.
  for (std::uint32_t i = 0; i < 50; ++i) all.push_back({0, i % 8, 1, i});
  BOOST_TEST(w.submit({}, {{1,
                            {{0, 0, 1, 0},
                             {0, 1, 2, 0},
                             {0, 2, 3, 0},
                             {0, 3, 4, 0},
                             {0, 4, 5, 0},
                             {0, 5, 6, 0},
                             {0, 6, 7, 0},
                             {0, 7, 8, 0}}}})
                 .ok());
  w.run();
  BOOST_TEST(w.submit({{2, all}}, {}).ok());
  const Seen seen = w.run();
  BOOST_REQUIRE(seen.items.size() == 1u);
  BOOST_TEST((seen.items[0].second == Code::full));
  BOOST_TEST(w.rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_failed_part_ends_the_job_once_and_frees_its_record) {
  Trouble trouble;
  RankOptions o = World::options();
  o.part_descriptors = 1;
  HostCopyOptions c = World::copies();
  c.operations_max = 2;
  World w(&trouble, o, c);
  trouble.fail_direction = CopyDirection::store;
  BOOST_TEST(w.submit({}, {{1, {{0, 0, 1, 0}, {0, 1, 2, 1}, {0, 2, 3, 2}, {0, 3, 4, 3}}}}).ok());
  Seen seen = w.run();
  BOOST_TEST(seen.reported.size() == 1u);
  BOOST_TEST(has(seen, 1, ReportPhase::ended, Code::io));
  trouble.fail_direction.reset();
  for (JobId id = 2; id < 6; ++id) {
    BOOST_TEST(w.submit({}, {{id, {{0, 0, 1, 0}, {0, 1, 2, 1}}}}).ok());
    seen = w.run();
    BOOST_TEST(seen.reported.size() == 1u);
    BOOST_TEST(has(seen, id, ReportPhase::ended, Code::ok));
    BOOST_TEST(w.rank->verify() == "");
  }
}

BOOST_AUTO_TEST_CASE(what_does_not_fit_a_report_travels_in_the_next) {
  RankOptions o = World::options();
  o.report_bytes_max = 4096;
  World w(nullptr, o);
  std::vector<PlannedCopies> loads;
  for (JobId id = 1; id <= 300; ++id) loads.push_back({id, {}});
  BOOST_TEST(w.submit(loads, {}).ok());
  std::set<JobId> items;
  std::set<JobId> reported;
  int reports = 0;
  for (; reported.size() < 300; ++reports) {
    const Seen seen = w.progress();
    BOOST_REQUIRE(!seen.reported.empty());
    for (const auto& [job, status] : seen.items) BOOST_TEST(items.insert(job).second);
    for (const ReportJob& r : seen.reported) BOOST_TEST(reported.insert(r.job).second);
  }
  BOOST_TEST(items.size() == 300u);
  BOOST_TEST(reports == 3);  // (4096 - 64) / 32 = 126 entries each
  BOOST_TEST(w.progress().reported.empty());
}

BOOST_AUTO_TEST_CASE(the_failed_list_is_cut_and_still_fits_a_report) {
  RankOptions o = World::options();
  o.report_bytes_max = 4096;
  World w(nullptr, o);
  std::vector<PlanCopy> bad(500, PlanCopy{0, 0, -5, 0});
  BOOST_TEST(w.submit({{1, bad}}, {}).ok());
  const Seen seen = w.progress();
  BOOST_REQUIRE(seen.failed.count(1) == 1u);
  BOOST_TEST(seen.failed.at(1).size() == 64u);
}

BOOST_AUTO_TEST_CASE(wait_in_stepped_mode_does_what_can_be_done_and_returns) {
  Trouble trouble;
  World w(&trouble);
  BOOST_TEST(w.submit({}, {{1, {{0, 0, 1, 0}}}}).ok());
  const JobId one[] = {1, 999};
  BOOST_TEST((w.rank->wait(one, 0) == Code::ok));
  BOOST_TEST(has(w.progress(), 1, ReportPhase::ended, Code::ok));
  trouble.hold = true;
  BOOST_TEST(w.submit({{2, {{0, 0, 9, 0}}}}, {}).ok());
  BOOST_TEST((w.rank->wait({}, UINT64_MAX) == Code::later));
  trouble.hold = false;
  BOOST_TEST((w.rank->wait({}, UINT64_MAX) == Code::ok));
  BOOST_TEST(w.progress().items.size() == 1u);
}

BOOST_AUTO_TEST_CASE(an_unlimited_pool_grows_and_refuses_wild_slots) {
  RankOptions o = World::options();
  o.layout.host_unlimited = true;
  o.slab_bytes = {480};
  World w(nullptr, o);
  BOOST_TEST(w.info.pages == UINT64_MAX);
  const auto a = w.block(0, 3);
  BOOST_TEST(w.submit({}, {{1, {{0, 1000, 3, 0}}}, {2, {{0, 4'000'000'000, 3, 0}}}}).ok());
  Seen seen = w.run();
  BOOST_TEST(has(seen, 1, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 2, ReportPhase::ended, Code::arg));
  BOOST_TEST(w.rank->host_mapped().n < 1'000'000u);
  BOOST_TEST(
      w.submit({{3, {{0, 1000, 9, 0}}}, {4, {{0, 999, 8, 0}}}, {5, {{0, 600'000'000, 8, 0}}}}, {})
          .ok());
  seen = w.run();
  BOOST_TEST(has(seen, 3, ReportPhase::ended, Code::ok));
  BOOST_TEST(has(seen, 4, ReportPhase::ended, Code::io));
  BOOST_TEST(has(seen, 5, ReportPhase::ended, Code::io));  // in range, never stored
  BOOST_TEST((w.block(0, 9) == a));
}

BOOST_AUTO_TEST_CASE(a_rank_may_be_closed_with_jobs_open) {
  const std::uint64_t never = 0;
  World w;
  BOOST_TEST(
      w.submit({}, {{1, {{0, 0, 1, 0}}}}, {}, {FenceKind::counter, &never, 1, nullptr}).ok());
  w.rank.reset();
}

BOOST_AUTO_TEST_CASE(impossible_options_are_refused) {
  FakeHost host;
  RankOptions o = World::options();
  o.report_bytes_max = 4095;
  const auto made =
      RankEngine::create(o, std::move(HostCopyEngine::create(World::copies()).value()), host);
  BOOST_REQUIRE(!made.ok());
  BOOST_TEST(made.error().text.find("4095") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
