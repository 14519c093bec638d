// One small world, again and again: every copy, every allocation and every call fails once. And the
// negative controls: a wrong connector, host or carrier must not pass.
#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/sim_fixture_test.h"
#include "host_stub/engine/engine.h"

namespace {

using namespace kvc::sim;
using namespace kvc::sim::testing;

// Full attention and a state group, a small host pool, no device cache: loads, hand-offs, evictions
// and fine hits in a few milliseconds, no other trouble. `in_step`: in layers, with requests that
// run in the step of their load.
World small_world(bool in_step = false) {
  World w = world_of(3);
  w.seed = 3;
  w.trouble = {};
  w.layout = "sweep";
  w.lazy = false;
  kvc::host::EngineOptions& o = w.options;
  auto& m = o.model;
  m.groups.clear();
  for (const bool state : {false, true}) {
    kvc::config::GroupConfig g;
    g.name = state ? "state" : "full";
    g.kind = state ? kvc::config::GroupKind::state : kvc::config::GroupKind::full;
    g.tokens_per_block = 8;
    g.fine_lookup = true;
    g.position_stable = !state;
    m.groups.push_back(g);
  }
  m.hash_unit_tokens = 4;
  m.scheduler_block_tokens = 8;
  m.context_parallel = 1;
  m.cp_interleave_tokens = 1;
  o.ranks = 2;
  o.draft_drop = false;
  o.retention_tokens = -1;
  o.device_cache = false;
  o.block_query = false;
  o.rank_verdicts = false;
  o.layers = in_step ? 3 : 1;
  o.loads_in_step = in_step;
  o.steps_in_flight = 2;
  o.max_running = 2;
  o.token_budget = 64;
  o.max_request_bytes = 0;
  w.burst = 2;
  w.requests.clear();
  for (std::size_t i = 0; i < 6; ++i) {
    RequestPlan r;
    r.origin = i;
    r.base = 1;
    r.shared = 29;
    r.own = i % 2 == 0 ? 3 : 14;
    r.spec.prompt_tokens = r.shared + r.own;
    r.spec.output_tokens = 3;
    w.requests.push_back(r);
  }
  o.max_prompt_tokens = 43;
  o.max_total_tokens = 46;
  o.device_blocks = 0;
  o.device_blocks = kvc::host::Engine::blocks_needed(o).value() + 16;
  o.connector_toml = "[host]\nblocks = 12\n";
  return w;
}

struct Swept {
  std::uint64_t points = 0;  // that failed once
  std::uint64_t gave_up = 0;
  std::uint64_t refused = 0;
};

// Fails the n-th visit for every n (stride apart) until a run never gets there.
template <class Knob>
Swept sweep(const World& world, std::uint64_t stride, Knob knob) {
  const Script script = reference(world);
  Swept swept;
  for (std::uint64_t n = 0;; n += stride) {
    Knobs knobs;
    knob(knobs, n);
    BOOST_TEST_CONTEXT("visit " << n) {
      const Outcome outcome = run_world(connector(), world, script, knobs);
      BOOST_TEST(outcome.error == "");
      if (!outcome.tripped) return swept;
      ++swept.points;
      swept.gave_up += outcome.gave_up;
      swept.refused += outcome.refused;
    }
    BOOST_REQUIRE(n < 100'000);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sim_sweep)

BOOST_AUTO_TEST_CASE(the_small_world_loads_stores_evicts_and_hands_off) {
  const World world = small_world();
  const Outcome outcome = run_world(connector(), world, reference(world));
  BOOST_TEST(outcome.error == "");
  BOOST_TEST(outcome.tally.of("loads ended ok") > 0U);
  BOOST_TEST(outcome.tally.of("stat host_evictions") > 0U);
  BOOST_TEST(outcome.tally.of("hand-offs stored") > 0U);
  BOOST_TEST(outcome.tally.of("requests finished") == world.requests.size());
}

BOOST_AUTO_TEST_CASE(the_small_world_in_layers_loads_in_step) {
  const World world = small_world(true);
  const Outcome outcome = run_world(connector(), world, reference(world));
  BOOST_TEST(outcome.error == "");
  BOOST_TEST(outcome.tally.of("loads in step ended ok") > 0U);
  BOOST_TEST(outcome.tally.of("layers that were waited for") > 0U);
  BOOST_TEST(outcome.tally.of("requests finished") == world.requests.size());
}

const bool loads_in_step[] = {false, true};

BOOST_DATA_TEST_CASE(every_copy_may_fail_once_on_either_side,
                     boost::unit_test::data::make({"copy.load", "copy.store",
                                                   "copy.load_destination", "copy.store_source"}) *
                         boost::unit_test::data::make(loads_in_step),
                     point, in_step) {
  const Swept swept = sweep(small_world(in_step), 1, [&](Knobs& k, std::uint64_t n) {
    k.point = point;
    k.nth = n;
  });
  BOOST_TEST(swept.points > 3U);
  BOOST_TEST(swept.gave_up == 0U);
}

// A host without memory: the connector is refused with a text and nothing is left behind, or the
// request runs without it.
BOOST_AUTO_TEST_CASE(every_allocation_from_the_host_may_fail_once) {
  const Swept swept = sweep(small_world(), 1, [](Knobs& k, std::uint64_t n) { k.fail_alloc = n; });
  BOOST_TEST(swept.points > 3U);
  BOOST_TEST(swept.refused > 0U);
}

// Whatever call breaks: outputs stay right, nothing of the engine leaks.
BOOST_DATA_TEST_CASE(every_call_may_break_once,
                     boost::unit_test::data::make({"edge.out_of_memory", "edge.broken_invariant",
                                                   "edge.broken_after_call"}) *
                         boost::unit_test::data::make(loads_in_step),
                     point, in_step) {
#if defined(KVC_SANITIZED)
  constexpr std::uint64_t stride = 29;
#else
  constexpr std::uint64_t stride = 3;
#endif
  const Swept swept = sweep(small_world(in_step), stride, [&](Knobs& k, std::uint64_t n) {
    k.point = point;
    k.nth = n;
  });
  BOOST_TEST(swept.points > 10U);
  BOOST_TEST(swept.gave_up > 0U);
}

// Negative controls: if one of these passes, the simulation is blind.
BOOST_DATA_TEST_CASE(a_wrong_part_is_noticed, boost::unit_test::data::make({0, 1, 2, 3, 4}),
                     which) {
  struct Control {
    Sabotage sabotage;
    const char* word;
    bool in_step = false;
  };
  static constexpr Control controls[] = {
      {Sabotage::skip_load_copies, "wrong"},         {Sabotage::lose_a_report, "no end"},
      {Sabotage::miscount_offers, "boundary_stats"}, {Sabotage::flip_a_byte, "wrong"},
      {Sabotage::skip_layer_waits, "wrong", true},
  };
  Knobs knobs;
  knobs.sabotage = controls[which].sabotage;
  const World world = small_world(controls[which].in_step);
  const Outcome outcome = run_world(connector(), world, reference(world), knobs);
  BOOST_TEST(outcome.error.find(controls[which].word) != std::string::npos, outcome.error);
}

BOOST_AUTO_TEST_SUITE_END()
