// The acceptance of step 1 on the recorded conversation trace, through the built kvc-run and the
// built connector. Goals: docs/testing.md.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "conformance/acceptance/measured_run.h"
#include "conformance/acceptance/trace_rules.h"
#include "host_stub/tools/run_schema_test.h"

namespace kvc::acceptance {
namespace {

constexpr std::size_t demo_requests = 1'000;

struct ModelCase {
  const char* name;
  std::uint64_t hash_unit_tokens;  // said here again: the goal must not follow a wrong geometry
};
std::ostream& operator<<(std::ostream& out, const ModelCase& model) { return out << model.name; }
const ModelCase models[] = {
    {"llama", 16}, {"llama-512", 512}, {"gemma", 16}, {"qwen3.5-4b", 16}, {"kimi-k3", 128}};

std::vector<std::string> arguments(const std::string& model, const std::string& connector,
                                   std::vector<std::string> more) {
  std::vector<std::string> args{"--connector", connector,
                                "--model",     example("models/" + model + ".toml"),
                                "--trace",     conversation_trace()};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

// What holds for every right run.
void require_right(const Measured& run) {
  BOOST_TEST_CONTEXT(run.command) {
    BOOST_REQUIRE(run.code == 0);
    const auto problems = host::schema_problems(run.report);
    BOOST_REQUIRE_MESSAGE(problems.empty(), (problems.empty() ? "" : problems.front()));
    for (const auto& pass : run.report["passes"]) {
      BOOST_TEST(pass["mismatched_blocks"] == 0);
      BOOST_TEST(pass["failed_loads"] == 0);
      BOOST_TEST(pass["output_digest"] == run.report["passes"][0]["output_digest"]);
    }
    for (const char* name : {"slots", "holds", "leases", "device_blocks"}) {
      BOOST_TEST(run.report["leaks"][name] == 0, "leaked " << name);
    }
  }
}

std::uint64_t hits(const Measured& run, std::size_t pass) {
  return count(run, pass, "local_hit_tokens") + count(run, pass, "external_hit_tokens");
}

BOOST_AUTO_TEST_SUITE(demo)

BOOST_AUTO_TEST_CASE(a_replay_of_the_first_thousand_requests_hits_98_percent_in_three_minutes) {
  const Measured run = run_kvc(arguments(
      "qwen3.5-4b", connector_library(),
      {"--connector-config", connector_example(), "--limit", std::to_string(demo_requests)}));
  require_right(run);
  const auto rows = read_rows(conversation_trace(), demo_requests);
  BOOST_TEST(count(run, 0, "prompt_tokens") == sum_of_prompts(rows));
  BOOST_TEST(count(run, 1, "verified_blocks") > 0U);
  BOOST_TEST(count(run, 1, "external_hit_tokens") > 0U);
  BOOST_TEST(hits(run, 1) * 100 >= sum_of_prompts(rows) * 98);
  BOOST_TEST(run.wall_s < 180);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(replay)

BOOST_DATA_TEST_CASE(a_replay_hits_all_that_was_kept_and_no_connector_gives_the_same_outputs,
                     boost::unit_test::data::make(models), model) {
  const auto rows = read_rows(conversation_trace(), demo_requests);
  const std::uint64_t limit = replay_limit_tokens(rows, model.hash_unit_tokens);
  const std::vector<std::string> rows_read{"--limit", std::to_string(demo_requests)};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), rows_read.begin(), rows_read.end());
    more.insert(more.end(), {"--connector-config", connector_example()});
    return arguments(model.name, connector_library(), more);
  };
  const Measured off = run_kvc(with({"--device-cache", "off"}));
  require_right(off);
  BOOST_TEST(count(off, 1, "local_hit_tokens") == 0U);
  BOOST_TEST(count(off, 1, "external_hit_tokens") * 1000 >= limit * 999);
  BOOST_TEST(count(off, 1, "external_hit_tokens") <= limit);
  const Measured on = run_kvc(with({}));
  require_right(on);
  BOOST_TEST(hits(on, 1) * 1000 >= limit * 999);
  BOOST_TEST(hits(on, 1) <= limit);
  std::vector<std::string> none_args = arguments(model.name, "none", rows_read);
  none_args.insert(none_args.end(), {"--passes", "cold"});
  const Measured none = run_kvc(none_args);
  require_right(none);
  BOOST_TEST(none.report["passes"][0]["output_digest"] == on.report["passes"][0]["output_digest"]);
  BOOST_TEST(none.report["passes"][0]["output_digest"] == off.report["passes"][0]["output_digest"]);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(ideal)

BOOST_AUTO_TEST_CASE(unlimited_pools_hit_exactly_what_the_whole_trace_repeats) {
  const Measured run =
      run_kvc(arguments("llama", connector_library(),
                        {"--connector-config", example("simple_cpu_unlimited.toml"),
                         "--device-blocks", "0", "--max-running", "1", "--passes", "cold"}));
  require_right(run);
  const auto rows = read_rows(conversation_trace());
  BOOST_TEST(count(run, 0, "prompt_tokens") == sum_of_prompts(rows));
  BOOST_TEST(ideal_hit_tokens(rows, 16) == 54'097'440U);
  BOOST_TEST(hits(run, 0) == 54'097'440U);
  BOOST_TEST(run.wall_s < 600);
  BOOST_TEST(run.peak_gib < 6);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(lru)

BOOST_DATA_TEST_CASE(a_small_host_pool_hits_what_plain_lru_hits,
                     boost::unit_test::data::make({2, 5, 10, 20}), percent) {
  const auto rows = read_rows(conversation_trace());
  const std::uint64_t blocks = unique_ids(rows) * static_cast<std::uint64_t>(percent) / 100;
  const Measured run = run_kvc(
      arguments("llama-512", connector_library(),
                {"--connector-config", connector_example(), "--host-blocks", std::to_string(blocks),
                 "--device-cache", "off", "--max-running", "1", "--passes", "cold"}));
  require_right(run);
  const auto share = [&](std::uint64_t tokens) {
    return 100 * static_cast<double>(tokens) / static_cast<double>(sum_of_prompts(rows));
  };
  const double goal = share(lru_hit_tokens(rows, blocks));
  const double found = share(count(run, 0, "external_hit_tokens"));
  BOOST_TEST(count(run, 0, "local_hit_tokens") == 0U);
  BOOST_TEST(std::abs(found - goal) <= 0.1, "hits " << found << " %, plain LRU " << goal << " %");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::acceptance
