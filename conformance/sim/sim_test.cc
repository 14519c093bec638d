// Random worlds against libkvc_simple_cpu.so. KVC_SIM_SEEDS says how many, KVC_SEED=n repeats one.
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <boost/test/unit_test.hpp>

#include "conformance/sim/simulation.h"

namespace {

using namespace kvc::sim;
using kvc::host::LoadedConnector;

#if defined(KVC_SANITIZED)
constexpr std::uint64_t seeds_default = 50;
#else
constexpr std::uint64_t seeds_default = 240;
#endif

std::uint64_t number_of(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

const LoadedConnector& connector() {
  static const LoadedConnector loaded = [] {
    auto made = kvc::host::load_connector(KVC_LIB_DIR "/libkvc_simple_cpu.so");
    BOOST_REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().text));
    return std::move(made).value();
  }();
  return loaded;
}

std::string again(std::uint64_t seed) {
  return fmt::format("repeat: KVC_SEED={} " KVC_BIN_DIR "/kvc_sim_test --run_test=sim/seeds", seed);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sim)

BOOST_AUTO_TEST_CASE(seeds) {
  const std::uint64_t only = number_of("KVC_SEED", UINT64_MAX);
  const std::uint64_t first = only == UINT64_MAX ? number_of("KVC_SIM_FIRST", 0) : only;
  const std::uint64_t count = only == UINT64_MAX ? number_of("KVC_SIM_SEEDS", seeds_default) : 1;
  Tally all;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const World world = draw_world(seed);
    BOOST_TEST_CONTEXT("seed " << seed << ", " << describe(world) << again(seed)) {
      const Script script = reference(world);
      const Outcome outcome = run_world(connector(), world, script);
      BOOST_TEST(outcome.error == "");
      all.add(outcome.tally);
    }
  }
  if (count > 1)
    for (const auto& [name, value] : all.sums()) std::printf("%12lu %s\n", value, name.c_str());
}

BOOST_AUTO_TEST_SUITE_END()
