// An engine whose connector refuses hits that are not worth a load: it computes them, and its
// outputs are the same (docs/cost_gate.md). Both connectors.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "host_stub/engine/connector_run.h"

using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const char* const connectors[] = {"simple_cpu", "offloading"};

struct Runs {
  PassCounters first;
  PassCounters second;
  std::uint64_t refused = 0;
};

// Forty prompts, and again once the device has forgotten them. A millisecond passes with every look
// at the clock: no load is as quick as a device with 10^9 tokens a second.
Runs runs(const char* name, const kvc::config::ModelConfig& model, const std::string& mode) {
  std::vector<Row> all;
  for (std::uint64_t i = 0; i < 40; ++i) all.push_back({150 + i, 2, 0, 0});
  const Rows rows(all);
  EngineOptions o = options_for(model, rows);
  std::uint64_t now = 0;
  o.stepped = true;
  o.max_running = 1;
  o.hooks.now_ns = [&now] { return now += 1'000'000; };
  o.connector_toml = "[host]\nunlimited = true\n[connector]\ncost_gate = \"" + mode +
                     "\"\nprefill_tokens_per_second = 1000000000\n";
  const auto engine = engine_for(o, built_connector(name));
  Runs out;
  out.first = run(*engine, rows);
  BOOST_REQUIRE(engine->empty_device_cache());
  out.second = run(*engine, rows);
  out.refused = stat(*engine, "cost_gate_refused");
  check_no_leaks(*engine);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cost_gate_in_the_engine)

BOOST_DATA_TEST_CASE(refused_hits_are_computed_and_the_outputs_are_the_same,
                     boost::unit_test::data::make(connectors), name) {
  for (const auto& model : {full_model(), hybrid_model()}) {
    const Runs off = runs(name, model, "off");
    const Runs on = runs(name, model, "on");
    const Runs report = runs(name, model, "report");
    BOOST_TEST(on.second.output_digest == off.second.output_digest);
    BOOST_TEST(report.second.output_digest == off.second.output_digest);
    BOOST_TEST(off.refused == 0U);
    BOOST_TEST(on.refused > 20U);
    BOOST_TEST(report.refused > 20U);
    BOOST_TEST(on.second.external_hit_tokens > 0U);  // what it measured
    BOOST_TEST(on.second.external_hit_tokens * 2 < off.second.external_hit_tokens);
    BOOST_TEST(report.second.external_hit_tokens == off.second.external_hit_tokens);
  }
}

BOOST_AUTO_TEST_SUITE_END()
