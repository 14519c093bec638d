// The same worlds with both tiers of the connector: a disk that fails, fills up and hangs, and a
// second life on the same folder (docs/testing.md). KVC_SIM_DISK_SEEDS says how many.
#include <cstdio>

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/sim_fixture_test.h"
#include "plugin/offload/disk/tests/folder.h"
#include "plugin/tests/seed.h"

namespace {

using namespace kvc::sim;
using namespace kvc::sim::testing;

#if defined(KVC_SANITIZED)
constexpr std::uint64_t disk_seeds_default = 40;
#else
constexpr std::uint64_t disk_seeds_default = 200;
#endif

struct Floor {
  const char* what;
  std::uint64_t per_hundred_worlds;  // of at least 200 worlds, each with two lives
};
constexpr Floor floors[] = {
    {"requests finished", 1500},     {"stat disk_spills_ok", 3000},
    {"stat disk_spills_failed", 20}, {"stat disk_spills_skipped", 10},
    {"stat disk_fills_ok", 200},     {"stat disk_fills_failed", 3},
    {"stat disk_hit_tokens", 2000},  {"stat disk_evictions", 20},
    {"stat disk_drops", 20},         {"stat disk_resets", 5},
    {"stat disk_restored", 500},     {"stat disk_switched_off", 1},
    {"disk faults armed", 200},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(sim_disk)

BOOST_AUTO_TEST_CASE(seeds_with_two_lives) {
  const std::uint64_t only = number_of("KVC_SEED", UINT64_MAX);
  const std::uint64_t first = only == UINT64_MAX ? number_of("KVC_SIM_FIRST", 0) : only;
  const std::uint64_t count =
      only == UINT64_MAX ? number_of("KVC_SIM_DISK_SEEDS", disk_seeds_default) : 1;
  Tally all;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const kvc::disk_test::Folder folder;
    World world = draw_world(seed, "offloading");
    add_disk(world, folder.path());
    const InWorld here(world);
    BOOST_TEST_CONTEXT("seed " << seed << ", " << describe(world)
                               << kvc::test::repeat_command(seed)) {
      const Script script = reference(world);
      for (const char* life : {"the first life", "the second life"}) {
        BOOST_TEST_CONTEXT(life) {
          const Outcome outcome = run_world(connector(), world, script);
          BOOST_TEST(outcome.error == "");
          all.add(outcome.tally);
        }
      }
    }
  }
  if (count == 1) return;
  for (const auto& [name, value] : all.sums()) {
    if (name.find("disk") != name.npos) fmt::print("{:>12} {}\n", value, name);
  }
  std::fflush(stdout);
  if (count < 200) return;
  for (const Floor& floor : floors) {
    BOOST_TEST(all.of(floor.what) * 100 >= floor.per_hundred_worlds * count,
               "the simulation became weak: " << floor.what << " " << all.of(floor.what)
                                              << " times in " << count << " worlds");
  }
}

BOOST_AUTO_TEST_SUITE_END()
