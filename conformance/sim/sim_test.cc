// Random worlds against libkvc_simple_cpu.so, or the connector that KVC_TEST_CONNECTOR names
// (docs/testing.md). KVC_SIM_SEEDS says how many, KVC_SEED=n repeats one, KVC_SIM_TRACE=1 prints
// every call.
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/sim_fixture_test.h"
#include "plugin/tests/seed.h"

namespace {

using namespace kvc::sim;
using namespace kvc::sim::testing;

// What must have happened in a run of at least 200 worlds, each at least so often in 100 worlds.
struct Floor {
  const char* what;
  std::uint64_t per_hundred_worlds;
};
constexpr Floor floors[] = {
    {"requests finished", 1000},
    {"blocks verified", 5000},
    {"loads ended ok", 50},
    {"loads ended failed", 10},
    {"load parts past their deadline", 1},
    {"stores ended ok", 1000},
    {"stores ended failed", 50},
    {"stores ended late", 5},
    {"tokens hit in the connector", 1000},
    {"tokens hit on the device", 3000},
    {"preemptions", 20},
    {"stat host_evictions", 1000},
    {"hand-offs stored", 300},
    {"worlds with a flat index", 15},
    {"chained worlds", 50},
    {"chained: offers dropped_parent_failed", 1},
    {"chained: offers dropped_no_parent", 1},
    {"chained: index_bad_entries", 1},
    {"chained: index_rewritten_entries", 1},
    {"steps with index_unsupported_entries_now", 1},
    {"steps with writer_pins_now", 1},
    {"stat lookups_attached", 1},
    {"worlds with loads in step", 15},
    {"loads in step ended ok", 10},
    {"loads in step ended failed", 1},
    {"layers that were waited for", 10},
    {"offers stored", 3000},
    {"offers skipped_already_cached", 500},
    {"offers skipped_in_flight", 10},
    {"offers skipped_not_hashed", 8},
    {"offers dropped_pool_full", 500},
    {"offers dropped_no_parent", 200},
    {"offers dropped_copy_failed", 200},
    {"offers dropped_hold_budget", 10},
    {"offers dropped_leased", 1},
    {"offers dropped_null_block", 100},
    {"offers dropped_reset", 10},
    {"offers dropped_plan_full", 1},
    {"offers dropped_request_gone", 5},
    {"offers dropped_bad_offer", 5},
    {"loads ended cancelled", 1},
    {"stat loads_cancelled", 1},
    {"resets", 10},
    {"resets with INVALIDATE", 3},
    {"aborts", 10},
    {"hits declined", 3},
    {"hits taken in part", 5},
    {"reports delayed", 200},
    {"reports repeated", 20},
    {"report entries rejected", 20},
    {"begins refused", 2},
    {"device caches emptied", 10},
    {"connectors given up", 2},
    {"worlds closed as they were", 1},
    {"lazy worlds", 8},
    {"tokens hit in the connector, lazy", 60},
    {"candidates stored", 300},
    {"candidates skipped_already_cached", 100},
};

bool of_lazy_worlds(std::string_view what) {
  return what.find("lazy") != what.npos || what.find("candidates") != what.npos;
}

void print(const Tally& all) {
  for (const auto& [name, value] : all.sums()) {
    fmt::print("{:>12} {}\n", value, name);
  }
  std::fflush(stdout);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sim)

BOOST_AUTO_TEST_CASE(seeds) {
  const std::uint64_t only = number_of("KVC_SEED", UINT64_MAX);
  const std::uint64_t first = only == UINT64_MAX ? number_of("KVC_SIM_FIRST", 0) : only;
  const std::uint64_t count = only == UINT64_MAX ? number_of("KVC_SIM_SEEDS", seeds_default) : 1;
  Tally all;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const World world = world_of(seed);
    const InWorld here(world);
    BOOST_TEST_CONTEXT("seed " << seed << ", " << describe(world)
                               << kvc::test::repeat_command(seed)) {
      const Script script = reference(world);
      const Outcome outcome = run_world(connector(), world, script);
      BOOST_TEST(outcome.error == "");
      all.add(outcome.tally);
      // Every tenth seed again: the same calls and answers, or nothing could be repeated.
      if (seed % 10 == 0 || count == 1) {
        BOOST_TEST(run_world(connector(), world, script).hash == outcome.hash);
      }
    }
  }
  if (count == 1) return;
  print(all);
  if (count < 200) return;
  for (const Floor& floor : floors) {
    if (connector_name() != "simple_cpu" && of_lazy_worlds(floor.what)) continue;
    // Chunks make some of it rarer.
    const std::uint64_t slack = connector_name() == "simple_cpu" ? 1 : 8;
    BOOST_TEST(all.of(floor.what) * 100 * slack >= floor.per_hundred_worlds * count,
               "the simulation became weak: " << floor.what << " " << all.of(floor.what)
                                              << " times in " << count << " worlds");
  }
}

BOOST_AUTO_TEST_CASE(another_seed_is_another_course) {
  const World a = world_of(1);
  const World b = world_of(2);
  BOOST_TEST(run_world(connector(), a, reference(a)).hash !=
             run_world(connector(), b, reference(b)).hash);
}

BOOST_AUTO_TEST_SUITE_END()
