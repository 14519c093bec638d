// Loads in step on a rank: order of layers, fences, failures, room.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>

#include "plugin/offload/tests/rank_world.h"

namespace kvc {
namespace {

using rank_test::PlannedCopies;
using rank_test::Seen;
using rank_test::World;

// Regions 0 and 1 are layers 3 and 7 of group 0, region 2 layer 7 of group 1, region 3 layer 9 of
// group 2.
constexpr std::array<std::uint32_t, 4> numbers{3, 7, 7, 9};

class Trouble final : public CopyFault {
 public:
  Verdict on_copy(std::uint64_t op, CopyDirection direction, std::uint64_t /*index*/) override {
    if (direction != CopyDirection::load) return {};
    order.push_back(op);
    if (order.size() != fail_at) return {};
    return {Code::io, CopySide::destination};
  }
  std::vector<std::uint64_t> order;  // operations of loads, by copies
  std::size_t fail_at = 0;           // the copy that fails, from 1
};

struct LayeredWorld : World {
  explicit LayeredWorld(Trouble* trouble = nullptr, HostCopyOptions c = copies())
      : World(trouble, options(), c, numbers) {
    fill(0, 1, 10);
    fill(1, 2, 60);
    fill(2, 3, 110);
    if (!submit({}, {{1, {{0, 0, 1, 0}, {1, 1, 2, 0}, {2, 9, 3, 0}}}}).ok()) {
      throw std::runtime_error("no store");
    }
    static_cast<void>(run());
  }
  // Two requests: one with all groups, one with group 0.
  Status load(Fence fence = {}) {
    return submit(
        {{2, {{0, 0, 9, 0}, {1, 1, 10, 0}, {2, 9, 11, 0}}, 5, true}, {3, {{0, 0, 12, 0}}, 6, true}},
        {}, fence);
  }
  FenceKind fence_of(std::uint32_t layer) {
    Fence f;
    const Status s = rank->layer_fence(step, layer, f);
    BOOST_TEST(s.ok());
    if (s.code == Code::later) return FenceKind::captured;  // stands for: not known yet
    if (f.kind != FenceKind::counter) return f.kind;
    return __atomic_load_n(f.counter, __ATOMIC_ACQUIRE) >= f.value ? FenceKind::none : f.kind;
  }
  // The first so many bytes of the block's region of that layer.
  bool is_there(std::size_t region, BlockId from, BlockId to) {
    const RankRegion r = regions()[region];
    const auto at = [&](BlockId b) {
      return r.base + static_cast<std::uint64_t>(b) * r.stride_bytes.n;
    };
    return std::memcmp(at(from), at(to), r.block_bytes.n) == 0;
  }
};

BOOST_AUTO_TEST_SUITE(rank_layers)

BOOST_AUTO_TEST_CASE(layers_come_in_their_order_over_all_loads_in_step_of_a_plan) {
  Trouble trouble;
  LayeredWorld w(&trouble);
  BOOST_REQUIRE(w.load().ok());
  BOOST_TEST(w.rank->verify() == "");
  const std::uint32_t all[] = {3, 7, 9};
  // Layer 3 has one copy of each request, 7 two of the first and one of the second, 9 one.
  const std::size_t copies_until[] = {2, 5, 6};
  for (std::size_t there = 0; there < 3; ++there) {
    for (std::size_t i = 0; i < 3; ++i) {
      BOOST_TEST((w.fence_of(all[i]) == (i < there ? FenceKind::none : FenceKind::counter)));
    }
    while (trouble.order.size() < copies_until[there]) static_cast<void>(w.rank->pump(1));
    BOOST_TEST(trouble.order.size() == copies_until[there]);
  }
  BOOST_TEST(w.is_there(0, 1, 9));
  BOOST_TEST(w.is_there(0, 1, 12));
  BOOST_TEST(w.is_there(1, 1, 12));
  BOOST_TEST(w.is_there(2, 2, 10));
  BOOST_TEST(w.is_there(3, 3, 11));
  const Seen seen = w.run();
  BOOST_TEST(seen.items.size() == 2u);
  for (const auto& [job, code] : seen.items) BOOST_TEST((code == Code::ok));
  for (const ReportJob& job : seen.reported)
    BOOST_TEST(job.moved_bytes == (job.job == 2 ? 112u : 48u));
  for (const std::uint32_t layer : all) BOOST_TEST((w.fence_of(layer) == FenceKind::none));
  BOOST_TEST(w.rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_layer_that_nothing_is_loaded_of_is_there) {
  LayeredWorld w;
  BOOST_REQUIRE(w.submit({{3, {{0, 0, 12, 0}}, 6, true}}, {}).ok());
  BOOST_TEST((w.fence_of(9) == FenceKind::none));  // of another group
  BOOST_TEST((w.fence_of(4) == FenceKind::none));  // of no region
  BOOST_TEST((w.fence_of(3) == FenceKind::counter));
  w.run();
  // Of a load that is not one in step nobody waits for layers.
  BOOST_REQUIRE(w.submit({{4, {{0, 0, 12, 0}}}}, {}).ok());
  BOOST_TEST((w.fence_of(3) == FenceKind::none));
  w.run();
}

BOOST_AUTO_TEST_CASE(a_fence_is_refused_for_plans_that_were_not_submitted) {
  LayeredWorld w;
  Fence f;
  BOOST_TEST((w.rank->layer_fence(w.step + 1, 3, f).code == Code::state));
  BOOST_TEST((w.rank->layer_fence(0, 3, f).code == Code::state));
  BOOST_TEST((w.rank->layer_fence(1, 3, f).code == Code::ok));
  BOOST_TEST((f.kind == FenceKind::none));
}

// A fence that says "there" for a plan that was lost lets a forward read what nobody loaded.
BOOST_AUTO_TEST_CASE(a_fence_is_refused_for_plans_that_were_left_out) {
  LayeredWorld w;
  BOOST_REQUIRE(w.load().ok());
  const std::uint64_t open = w.step;
  w.step += 3;
  w.host.lines.clear();
  BOOST_REQUIRE(w.submit({{7, {{0, 0, 13, 0}}, 7, true}}, {}).ok());
  BOOST_REQUIRE(w.host.lines.size() == 2u);  // of loads and of stores
  for (const auto& [level, text] : w.host.lines) {
    BOOST_TEST((level == LogLevel::peer_fault));
    BOOST_TEST(
        text.find(fmt::format("of step {} after those of step {}", w.step, open)) != text.npos,
        text);
  }
  Fence f;
  for (const std::uint64_t lost : {open + 1, w.step - 1}) {
    const Status s = w.rank->layer_fence(lost, 3, f);
    BOOST_TEST((s.code == Code::state));
    BOOST_TEST(s.text.find(fmt::format("a layer of step {};", lost)) != s.text.npos, s.text);
  }
  // Both that came.
  for (const std::uint64_t here : {open, w.step}) {
    BOOST_TEST(w.rank->layer_fence(here, 3, f).ok());
    BOOST_TEST((f.kind == FenceKind::counter));
  }
  w.run();
}

BOOST_AUTO_TEST_CASE(layers_wait_for_the_fence_of_the_loads) {
  LayeredWorld w;
  std::uint64_t counter = 0;
  BOOST_REQUIRE(w.load({FenceKind::counter, &counter, 1, nullptr}).ok());
  w.run();
  BOOST_TEST((w.fence_of(3) == FenceKind::counter));
  BOOST_TEST(!w.is_there(0, 1, 9));
  counter = 1;
  w.run();
  BOOST_TEST((w.fence_of(3) == FenceKind::none));
  BOOST_TEST(w.is_there(0, 1, 9));
}

// Whatever copy fails: every layer's fence is reached, and the load that it is of ends failed.
BOOST_AUTO_TEST_CASE(a_copy_that_fails_reaches_all_fences_and_fails_its_load) {
  for (std::size_t fail_at = 1; fail_at <= 6; ++fail_at) {
    Trouble trouble;
    LayeredWorld w(&trouble);
    trouble.fail_at = fail_at;
    BOOST_REQUIRE(w.load().ok());
    const Seen seen = w.run();
    for (const std::uint32_t layer : numbers) BOOST_TEST((w.fence_of(layer) == FenceKind::none));
    BOOST_REQUIRE(seen.items.size() == 2u);
    const auto failed = std::count_if(seen.items.begin(), seen.items.end(),
                                      [](const auto& i) { return i.second != Code::ok; });
    BOOST_TEST(failed == 1);
    BOOST_TEST(w.rank->verify() == "");
    // The records serve again.
    trouble.fail_at = 0;
    BOOST_REQUIRE(w.submit({{7, {{0, 0, 9, 0}}, 5, true}}, {}).ok());
    BOOST_TEST((w.fence_of(3) == FenceKind::counter));
    w.run();
    BOOST_TEST((w.fence_of(3) == FenceKind::none));
    BOOST_TEST(w.is_there(0, 1, 9));
  }
}

BOOST_AUTO_TEST_CASE(a_source_that_was_never_stored_fails_before_a_byte_moves) {
  LayeredWorld w;
  const auto before = w.block(0, 9);
  BOOST_REQUIRE(w.submit({{2, {{0, 5, 9, 0}}, 5, true}}, {}).ok());
  BOOST_TEST((w.fence_of(3) == FenceKind::none));
  const Seen seen = w.run();
  BOOST_REQUIRE(seen.items.size() == 1u);
  BOOST_TEST((seen.items[0].second == Code::io));
  BOOST_TEST((w.block(0, 9) == before));
}

// The store of the slot waits for the forward, and the forward would wait for the load.
BOOST_AUTO_TEST_CASE(a_load_in_step_of_what_its_own_plan_stores_is_refused) {
  LayeredWorld w;
  BOOST_REQUIRE(w.submit({{2, {{0, 4, 9, 0}}, 5, true}}, {{3, {{0, 4, 1, 0}}}}).ok());
  BOOST_TEST((w.fence_of(3) == FenceKind::none));
  const Seen seen = w.run();
  BOOST_REQUIRE(seen.items.size() == 1u);
  BOOST_TEST((seen.items[0].second == Code::state));
  BOOST_TEST(w.rank->verify() == "");
}

// A copy engine for one operation at a time: the rank keeps the rest and hands it over by and by.
BOOST_AUTO_TEST_CASE(layers_come_in_order_through_a_copy_engine_without_room) {
  Trouble trouble;
  HostCopyOptions c = World::copies();
  c.operations_max = 1;
  LayeredWorld w(&trouble, c);
  BOOST_REQUIRE(w.load().ok());
  const Seen seen = w.run();
  BOOST_TEST(seen.items.size() == 2u);
  BOOST_TEST(trouble.order.size() == 6u);
  for (const std::uint32_t layer : numbers) BOOST_TEST((w.fence_of(layer) == FenceKind::none));
  BOOST_TEST(w.is_there(3, 3, 11));
  BOOST_TEST(w.rank->verify() == "");
}

BOOST_AUTO_TEST_CASE(several_steps_in_flight_have_fences_of_their_own) {
  LayeredWorld w;
  std::uint64_t counter = 0;
  const std::uint64_t first = w.step + 1;
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Fence fence{FenceKind::counter, &counter, i + 1, nullptr};
    BOOST_REQUIRE(
        w.submit({{10 + i, {{0, 0, static_cast<BlockId>(9 + i), 0}}, 5 + i, true}}, {}, fence)
            .ok());
  }
  const auto there = [&](std::uint64_t step) {
    Fence f;
    BOOST_TEST(w.rank->layer_fence(step, 7, f).ok());
    return f.kind == FenceKind::none || __atomic_load_n(f.counter, __ATOMIC_ACQUIRE) >= f.value;
  };
  for (std::uint64_t reached = 0; reached <= 3; ++reached) {
    counter = reached;
    w.run();
    for (std::uint64_t i = 0; i < 3; ++i) BOOST_TEST(there(first + i) == (i < reached));
    BOOST_TEST(w.rank->verify() == "");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
