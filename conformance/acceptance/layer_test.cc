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

struct Layered {
  const char* name;
  const char* ranks;
  const char* host_blocks;
  const char* device_blocks;
};
std::ostream& operator<<(std::ostream& out, const Layered& model) { return out << model.name; }
const Layered layered[] = {{"llama", "2", "60000", "9000"},
                           {"llama-512", "2", "2000", "280"},
                           {"gemma", "2", "80000", "11000"},
                           {"qwen3.5-4b", "2", "1200", "190"},
                           {"kimi-k3", "8", "800", "30"}};

Measured run_model(const Layered& model, const std::string& connector) {
  return run_kvc({"--connector", connector, "--model",
                  example("models/" + std::string(model.name) + ".toml"), "--trace",
                  conversation_trace(), "--limit", std::to_string(layer_requests), "--ranks",
                  model.ranks, "--host-blocks", model.host_blocks, "--device-blocks",
                  model.device_blocks, "--max-running", "32"});
}

BOOST_AUTO_TEST_SUITE(layer)

BOOST_DATA_TEST_CASE(a_thousand_requests_through_the_layer_have_no_finding_and_the_same_outputs,
                     boost::unit_test::data::make(layered), model) {
  const auto folder = boost::filesystem::temp_directory_path() /
                      boost::filesystem::unique_path("kvc_layer_%%%%%%%%");
  boost::filesystem::create_directory(folder);
  const std::string findings = (folder / "findings.jsonl").string();
  const Measured plain = run_model(model, simple_cpu_library());
  ::setenv("KVC_LAYER_NEXT", simple_cpu_library().c_str(), 1);
  ::setenv("KVC_LAYER_FINDINGS", findings.c_str(), 1);
  const Measured through = run_model(model, std::string(KVC_LIB_DIR) + "/libkvc_validate.so");
  ::unsetenv("KVC_LAYER_NEXT");
  ::unsetenv("KVC_LAYER_FINDINGS");
  BOOST_TEST_CONTEXT(through.command) {
    BOOST_REQUIRE(plain.code == 0);
    BOOST_REQUIRE(through.code == 0);
    std::ifstream in(findings);
    BOOST_REQUIRE(in.good());
    std::ostringstream text;
    text << in.rdbuf();
    BOOST_TEST(text.str() == "");
    BOOST_TEST(through.report["connector"]["name"] == plain.report["connector"]["name"]);
    for (std::size_t pass = 0; pass < 2; ++pass) {
      for (const char* same : {"requests", "prompt_tokens", "output_tokens", "mismatched_blocks",
                               "failed_loads", "output_digest"}) {
        BOOST_TEST(through.report["passes"][pass][same] == plain.report["passes"][pass][same],
                   same);
      }
      BOOST_TEST(count(through, pass, "mismatched_blocks") == 0U);
    }
    BOOST_TEST(count(through, 1, "external_hit_tokens") > 0U);
    for (const char* name : {"slots", "holds", "leases", "device_blocks"}) {
      BOOST_TEST(through.report["leaks"][name] == 0, "leaked " << name);
    }
  }
  boost::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::acceptance
