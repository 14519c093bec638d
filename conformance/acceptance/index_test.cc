// The chained index against the flat one with plain LRU, on a layout with states whose pool is much
// too small: hits, and slots that no lookup can reach. Goals: docs/testing.md.
#include <fmt/format.h>
#include <boost/filesystem.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <fstream>

#include "conformance/acceptance/index_run.h"
#include "conformance/acceptance/measured_run.h"

namespace kvc::acceptance {
namespace {

constexpr const char* model = "qwen3.5-4b";
constexpr std::uint64_t sample_requests = 1'000;

const host::RunInputs& whole_trace() {
  static const host::RunInputs inputs = index_inputs(model, SIZE_MAX);
  return inputs;
}

// Slots that an unlimited pool holds when all requests are over.
std::uint64_t slots_needed() {
  static const std::uint64_t slots = [] {
    IndexRunOptions options;
    const IndexRun run = run_index(whole_trace(), options);
    fmt::print("{}: the whole trace needs {} slots\n", model, run.slots_used);
    std::fflush(stdout);
    return run.slots_used;
  }();
  return slots;
}

double percent(std::uint64_t part, std::uint64_t of) {
  return of == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(of);
}

double hits(const IndexRun& run) {
  return percent(run.counters.external_hit_tokens, run.counters.prompt_tokens);
}

// Of all slots, over all samples.
double unreachable(const IndexRun& run, std::uint64_t slots) {
  std::uint64_t sum = 0;
  for (const Reach& r : run.samples) sum += r.unreachable_sum();
  return percent(sum, slots * run.samples.size());
}

std::string per_group(const Reach& reach) {
  std::string out;
  for (std::size_t g = 0; g < reach.held.size(); ++g) {
    out += fmt::format("{}{} {} of {}", g == 0 ? "" : ", ", whole_trace().model.groups[g].name,
                       reach.unreachable[g], reach.held[g]);
  }
  return out;
}

IndexRun measured(const char* index, std::uint64_t slots) {
  IndexRunOptions options;
  options.index = index;
  options.host_blocks = slots;
  options.sample_requests = sample_requests;
  IndexRun run = run_index(whole_trace(), options);
  const Reach& end = run.samples.back();
  fmt::print("  {:7}  hits {:.3f} % ({} tokens), out of reach {:.2f} % of the slots\n", index,
             hits(run), run.counters.external_hit_tokens, unreachable(run, slots));
  fmt::print("           in the end {:.2f} %: {}\n", percent(end.unreachable_sum(), slots),
             per_group(end));
  std::fflush(stdout);
  BOOST_TEST(run.explained.find(fmt::format("\"index\":\"{}\"", index)) != std::string::npos);
  BOOST_TEST(run.counters.requests == whole_trace().trace.size());
  BOOST_TEST(run.counters.mismatched_blocks == 0U);
  BOOST_TEST(run.counters.failed_loads == 0U);
  BOOST_TEST(run.events_lost == 0U);
  BOOST_TEST(end.held_sum() == run.slots_used);
  BOOST_TEST(run.leaks.slots == 0U);
  return run;
}

BOOST_AUTO_TEST_SUITE(index)

BOOST_DATA_TEST_CASE(a_small_pool_hits_as_much_in_the_chain_as_flat_and_holds_less_out_of_reach,
                     boost::unit_test::data::make({5, 10}), part) {
  const std::uint64_t slots = slots_needed() * static_cast<std::uint64_t>(part) / 100;
  fmt::print("{} % of it, {} slots; out of reach: mean of samples every {} requests\n", part, slots,
             sample_requests);
  const IndexRun flat = measured("flat", slots);
  const IndexRun chained = measured("chained", slots);
  BOOST_TEST(flat.counters.output_digest == chained.counters.output_digest);
  BOOST_TEST(hits(chained) >= hits(flat) - 0.1);
  BOOST_TEST(unreachable(chained, slots) <= unreachable(flat, slots));
  BOOST_TEST(chained.samples.back().unreachable_sum() <= flat.samples.back().unreachable_sum());
}

// What this suite drives in its own process is what kvc-run does.
BOOST_DATA_TEST_CASE(kvc_run_hits_the_same, boost::unit_test::data::make({"flat", "chained"}),
                     kind) {
  namespace fs = boost::filesystem;
  constexpr std::size_t requests = 1'000;
  constexpr std::uint64_t slots = 4'000;
  const fs::path config = fs::temp_directory_path() / fs::unique_path("kvc_index_%%%%%%%%.toml");
  std::ofstream(config.string()) << "[connector]\nindex = \"" << kind
                                 << "\"\n[host]\nblocks = " << slots << "\n";
  const Measured run =
      run_kvc({"--connector", connector_library(), "--connector-config", config.string(), "--model",
               example(std::string("models/") + model + ".toml"), "--trace", conversation_trace(),
               "--limit", std::to_string(requests), "--device-cache", "off", "--max-running", "1",
               "--passes", "cold"});
  fs::remove(config);
  BOOST_REQUIRE(run.code == 0);
  IndexRunOptions options;
  options.index = kind;
  options.host_blocks = slots;
  const IndexRun here = run_index(index_inputs(model, requests), options);
  BOOST_TEST(here.counters.external_hit_tokens > 0U);
  BOOST_TEST(count(run, 0, "external_hit_tokens") == here.counters.external_hit_tokens);
  BOOST_TEST(count(run, 0, "stored_blocks") == here.counters.stored_blocks);
  BOOST_TEST(run.report["passes"][0]["output_digest"] ==
             fmt::format("{:016x}", here.counters.output_digest));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::acceptance
