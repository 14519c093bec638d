// As long as nothing is evicted and nothing fails, both kinds of index are the same to the host:
// the same calls give the same answers, hits and plans.
#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/sim_fixture_test.h"

namespace {

using namespace kvc::sim;
using namespace kvc::sim::testing;

#if defined(KVC_SANITIZED)
constexpr std::uint64_t worlds = 20;
#else
constexpr std::uint64_t worlds = 300;
#endif

// The world without trouble, with a pool, deadlines and budgets that nothing reaches.
World calm_world(std::uint64_t seed) {
  World w = world_of(seed);
  w.trouble = {};
  return w;
}

Outcome run_with(World world, const char* index, const Script& script) {
  world.flat_index = std::string_view(index) == "flat";
  world.options.connector_toml = fmt::format(
      "[connector]\nindex = \"{}\"\nheld_device_blocks_max = 100000\nload_deadline_ms = 3600000\n"
      "store_deadline_ms = 3600000\n[host]\nunlimited = true\n",
      index);
  return run_world(connector(), world, script);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sim_index_kinds)

BOOST_AUTO_TEST_CASE(both_kinds_answer_the_same_while_nothing_is_evicted_or_fails) {
  const std::uint64_t only = number_of("KVC_SEED", UINT64_MAX);
  const std::uint64_t first = only == UINT64_MAX ? 0 : only;
  const std::uint64_t last = only == UINT64_MAX ? worlds : only + 1;
  Tally all;
  for (std::uint64_t seed = first; seed < last; ++seed) {
    const World world = calm_world(seed);
    if (world.lazy) continue;  // lazy stores use the flat index whatever is said
    const InWorld here(world);
    BOOST_TEST_CONTEXT("seed " << seed << ", " << describe(world)
                               << kvc::test::repeat_command(seed)) {
      const Script script = reference(world);
      const Outcome flat = run_with(world, "flat", script);
      const Outcome chained = run_with(world, "chained", script);
      BOOST_TEST(flat.error == "");
      BOOST_TEST(chained.error == "");
      for (const char* same : {"tokens hit in the connector", "stat lookup_hit_tokens",
                               "offers published", "offers stored", "hand-offs stored"}) {
        BOOST_TEST(flat.tally.of(same) == chained.tally.of(same), same);
      }
      BOOST_TEST(flat.hash == chained.hash);
      for (const Outcome* o : {&flat, &chained}) {
        BOOST_TEST(o->tally.of("stat host_evictions") == 0U);
        BOOST_TEST(o->tally.of("loads ended failed") == 0U);
        BOOST_TEST(o->tally.of("stores ended failed") == 0U);
      }
      all.add(chained.tally);
    }
  }
  if (only != UINT64_MAX) return;
  BOOST_TEST(all.of("chained worlds") * 2 > worlds);
  BOOST_TEST(all.of("tokens hit in the connector") > 0U);
  BOOST_TEST(all.of("stat lookup_hit_tokens") > 0U);
  BOOST_TEST(all.of("hand-offs stored") > 0U);
}

BOOST_AUTO_TEST_SUITE_END()
