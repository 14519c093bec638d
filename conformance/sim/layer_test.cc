// The simulation with the layer between engine and connector: no finding on either side, and the
// same calls and answers as without it. The rules that a world breaks on purpose are kept here.
// KVC_SIM_SEEDS says how many seeds, KVC_SEED=n repeats one.
#include <cstdlib>
#include <set>
#include <string>

#include <fmt/format.h>
#include <kvc/kvc_util.h>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/sim_fixture_test.h"
#include "conformance/validate/validate.h"
#include "plugin/offload/disk/tests/folder.h"

namespace {

using namespace kvc::sim;
using namespace kvc::sim::testing;

const kvc::host::LoadedConnector& layer() {
  static const kvc::host::LoadedConnector loaded = [] {
    ::setenv("KVC_LAYER_NEXT", connector_library().c_str(), 1);
    auto made = kvc::host::load_connector(KVC_LIB_DIR "/libkvc_validate.so");
    BOOST_REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().text));
    return std::move(made).value();
  }();
  return loaded;
}

const kvc_validate_api& judge() {
  constexpr std::string_view id = KVC_VALIDATE_EXTENSION;
  const void* const found = layer().api.extension(kvc_bytes_of(id.data(), id.size()));
  BOOST_REQUIRE(found != nullptr);
  return *static_cast<const kvc_validate_api*>(found);
}

std::string text_of(const kvc_bytes& b) {
  return {reinterpret_cast<const char*>(b.data), static_cast<std::size_t>(b.size)};
}

struct Found {
  std::set<std::string> rules;
  std::string lines;  // one a finding
};

// What the layer found since the last time.
Found findings() {
  const kvc_validate_api& api = judge();
  Found found;
  for (std::uint64_t i = 0; i < api.findings(); ++i) {
    kvc_finding f{};
    f.struct_size = sizeof f;
    if (api.finding(i, &f) != KVC_OK) break;
    found.rules.insert(text_of(f.rule));
    found.lines += fmt::format("{}: call {} ({}): {}\n", text_of(f.rule), f.call, text_of(f.slot),
                               text_of(f.text));
  }
  api.forget();
  return found;
}

struct Seeds {
  std::uint64_t first;
  std::uint64_t behind;
};
Seeds seeds_of_run() {
  const std::uint64_t only = number_of("KVC_SEED", UINT64_MAX);
  if (only != UINT64_MAX) return {only, only + 1};
  const std::uint64_t first = number_of("KVC_SIM_FIRST", 0);
  return {first, first + number_of("KVC_SIM_SEEDS", 60)};
}

// What the host of a simulated world does against the rules, on purpose.
bool breaks_rules(const Trouble& t) {
  return (t.repeat_report | t.late_handoff | t.bad_handoff) != 0;
}

// A life of the world; with a disk tier on a folder of its own, which only the paths of its
// configuration tell from another.
Outcome live(const kvc::host::LoadedConnector& through, World world, const Script& script,
             bool with_disk) {
  const kvc::disk_test::Folder folder;
  if (with_disk) add_disk(world, folder.path());
  return run_world(through, world, script);
}

// The world through the layer and without it.
void check_world(std::uint64_t seed, bool with_disk = false) {
  World world = world_of(seed);
  Trouble& t = world.trouble;
  t.repeat_report = t.late_handoff = t.bad_handoff = 0;
  if (t.close_step != 0) t.delay_report = 0;  // what is late then would be lost
  const InWorld here(world);
  BOOST_TEST_CONTEXT("seed " << seed << ", " << describe(world)
                             << kvc::test::repeat_command(seed)) {
    const Script script = reference(world);
    const Outcome through = live(layer(), world, script, with_disk);
    BOOST_TEST(findings().lines == "");
    BOOST_TEST(through.error == "");
    // The call that breaks is the n-th; the layer's own queries count.
    if (t.poison_step == 0) {
      BOOST_TEST(live(connector(), world, script, with_disk).hash == through.hash);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sim_layer)

BOOST_AUTO_TEST_CASE(seeds) {
  const Seeds run = seeds_of_run();
  for (std::uint64_t seed = run.first; seed < run.behind; ++seed) check_world(seed);
}

// simple_cpu's lazy worlds have no disk tier.
BOOST_AUTO_TEST_CASE(seeds_with_a_disk_tier) {
  if (connector_name() != "offloading") return;
  const Seeds run = seeds_of_run();
  for (std::uint64_t seed = run.first; seed < run.behind; ++seed) check_world(seed, true);
}

// A reason that a second lookup did not give again; a window block recovered for a request that
// lost it, in the table of another; reports that an engine drops when a rank is poisoned.
BOOST_AUTO_TEST_CASE(seeds_that_once_had_a_finding) {
  for (const std::uint64_t seed : {157U, 1924U, 910U, 2398U}) check_world(seed);
}

// Negative control.
BOOST_AUTO_TEST_CASE(what_a_host_breaks_is_found_and_nothing_else) {
  std::set<std::string> rules;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const World world = world_of(seed);
    if (!breaks_rules(world.trouble)) continue;
    const InWorld here(world);
    BOOST_TEST_CONTEXT("seed " << seed) {
      (void)run_world(layer(), world, reference(world));
      const Found found = findings();
      for (const std::string& rule : found.rules) {
        BOOST_TEST((rule == "KVC-H-044" || rule == "KVC-H-051"), found.lines);
      }
      rules.insert(found.rules.begin(), found.rules.end());
    }
  }
  BOOST_TEST(rules.size() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()
