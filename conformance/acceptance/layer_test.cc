// The layer on the recorded trace: no finding, the same outputs, with pools so small that requests
// are preempted and the tier evicts.
#include <boost/filesystem.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "conformance/acceptance/measured_run.h"
#include "host_stub/tools/run_schema_test.h"

namespace kvc::acceptance {
namespace {

constexpr std::size_t layer_requests = 1'000;

// Pools in which requests are preempted and the tier evicts, and yet a replay finds something.
struct Layered {
  const char* name;
  const char* ranks;
  const char* host_blocks;
  const char* device_blocks;
  const char* max_running;
  const char* reserve;  // off where outputs are too short to outgrow what is kept back for them
};
std::ostream& operator<<(std::ostream& out, const Layered& model) { return out << model.name; }
const Layered layered[] = {{"llama", "2", "60000", "9000", "32", "on"},
                           {"llama-512", "2", "2000", "280", "32", "on"},
                           {"gemma", "2", "80000", "10000", "32", "off"},
                           {"qwen3.5-4b", "2", "1200", "190", "32", "off"},
                           {"kimi-k3", "8", "800", "48", "6", "off"}};

std::vector<std::string> arguments(const Layered& model, const std::string& connector) {
  return {"--connector", connector,
          "--model",     example("models/" + std::string(model.name) + ".toml"),
          "--trace",     conversation_trace(),
          "--limit",     std::to_string(layer_requests)};
}

// Small pools, cold and replay.
Measured run_through(const Layered& model) {
  std::vector<std::string> args =
      arguments(model, std::string(KVC_LIB_DIR) + "/libkvc_validate.so");
  args.insert(args.end(), {"--ranks", model.ranks, "--host-blocks", model.host_blocks,
                           "--device-blocks", model.device_blocks, "--max-running",
                           model.max_running, "--reserve", model.reserve});
  return run_kvc(args);
}

// The outputs that are right, whatever the number of ranks: no connector, and room for all.
Measured run_alone(const Layered& model) {
  std::vector<std::string> args = arguments(model, "none");
  args.insert(args.end(), {"--passes", "cold"});
  return run_kvc(args);
}

BOOST_AUTO_TEST_SUITE(layer)

BOOST_DATA_TEST_CASE(a_thousand_requests_through_the_layer_have_no_finding_and_the_same_outputs,
                     boost::unit_test::data::make(layered), model) {
  const auto folder = boost::filesystem::temp_directory_path() /
                      boost::filesystem::unique_path("kvc_layer_%%%%%%%%");
  boost::filesystem::create_directory(folder);
  const std::string findings = (folder / "findings.jsonl").string();
  ::setenv("KVC_LAYER_NEXT", connector_library().c_str(), 1);
  ::setenv("KVC_LAYER_FINDINGS", findings.c_str(), 1);
  const Measured through = run_through(model);
  ::unsetenv("KVC_LAYER_NEXT");
  ::unsetenv("KVC_LAYER_FINDINGS");
  const Measured alone = run_alone(model);
  BOOST_TEST_CONTEXT(through.command) {
    BOOST_REQUIRE(alone.code == 0);
    BOOST_REQUIRE(through.code == 0);
    std::ifstream in(findings);
    BOOST_REQUIRE(in.good());
    std::ostringstream text;
    text << in.rdbuf();
    BOOST_TEST(text.str() == "");
    BOOST_TEST(through.report["connector"]["name"] == connector_name());
    for (std::size_t pass = 0; pass < 2; ++pass) {
      for (const char* same : {"requests", "prompt_tokens", "output_tokens", "output_digest"}) {
        BOOST_TEST(through.report["passes"][pass][same] == alone.report["passes"][0][same], same);
      }
      for (const char* none : {"mismatched_blocks", "failed_loads"}) {
        BOOST_TEST(count(through, pass, none) == 0U, none);
      }
      BOOST_TEST(count(through, pass, "preemptions") > 0U);
      BOOST_TEST_MESSAGE(model.name << ": " << count(through, pass, "preemptions")
                                    << " preemptions");
    }
    BOOST_TEST(count(through, 1, "external_hit_tokens") > 0U);
    BOOST_TEST(through.report["stats"]["host_evictions"].get<std::uint64_t>() > 0U);
    BOOST_TEST_MESSAGE(model.name << ": " << through.report["stats"]["host_evictions"]
                                  << " evictions, " << through.wall_s << " s, alone "
                                  << alone.wall_s << " s");
    for (const char* name : {"slots", "holds", "leases", "device_blocks"}) {
      BOOST_TEST(through.report["leaks"][name] == 0, "leaked " << name);
    }
  }
  boost::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::acceptance
