// Several requests with one prefix, which only the connector has: one of them loads it, the others
// find it on the device (design section 3, single flight). Both connectors.
#include <algorithm>
#include <map>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "host_stub/engine/connector_run.h"

using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const char* const connectors[] = {"simple_cpu", "offloading"};

// `count` requests whose first `shared` tokens are one prefix.
Rows sharers(std::size_t count, std::uint64_t shared, std::uint64_t own) {
  return Rows(std::vector<Row>(count, Row{shared + own, 1, shared, 1}));
}

// An engine whose tier holds the prefix and whose device does not; copies take many steps.
struct Crowd {
  Crowd(const char* name, std::size_t count, std::uint64_t shared)
      : rows(sharers(count, shared, 17)) {
    EngineOptions o = options_for(full_model(), rows);
    o.max_running = count;
    o.token_budget = 4096;
    o.stepped = true;
    o.hooks.now_ns = [this] { return now_ns += 1000; };
    o.hooks.pump_budget = [this](std::uint32_t) {
      if (!slow) return UINT32_MAX;
      return ++pumps % 400 == 0 ? 1U : 0U;
    };
    o.connector_toml = "[host]\nunlimited = true\n";
    engine = engine_for(o, built_connector(name));
    run(*engine, sharers(1, shared, 0));
    BOOST_REQUIRE(engine->empty_device_cache());
    slow = true;
  }

  Rows rows;
  bool slow = false;
  std::uint64_t pumps = 0;
  std::uint64_t now_ns = 0;
  std::unique_ptr<Engine> engine;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(single_flight)

BOOST_DATA_TEST_CASE(eight_requests_that_share_64_tokens_copy_4_blocks,
                     boost::unit_test::data::make(connectors), name) {
  Crowd crowd(name, 8, 64);
  const std::uint64_t before = stat(*crowd.engine, "load_blocks");
  run(*crowd.engine, crowd.rows);
  BOOST_TEST(stat(*crowd.engine, "load_blocks") - before == 4U);
  BOOST_TEST(stat(*crowd.engine, "lookups_attached") > 0U);
  check_no_leaks(*crowd.engine);
}

BOOST_DATA_TEST_CASE(of_fifty_requests_on_one_long_prefix_the_last_is_ready_with_the_first,
                     boost::unit_test::data::make(connectors), name) {
  Crowd crowd(name, 50, 2048);
  Engine& engine = *crowd.engine;
  engine.begin_pass();
  const std::uint64_t begun = engine.step_number();
  std::map<RequestId, std::uint64_t> ready;
  engine.on_finished([&](const FinishedRequest& r) { ready[r.id] = engine.step_number() - begun; });
  for (std::size_t i = 0; i < crowd.rows.size(); ++i) {
    std::vector<TokenId> prompt;
    crowd.rows.expand_prompt(i, prompt);
    BOOST_REQUIRE(engine.submit(crowd.rows.request(i), std::move(prompt)).ok());
  }
  for (int i = 0; i < 100'000 && engine.live_requests() > 0; ++i) engine.step();
  BOOST_REQUIRE(ready.size() == 50U);
  std::uint64_t first = UINT64_MAX;
  std::uint64_t last = 0;
  for (const auto& [id, steps] : ready) {
    first = std::min(first, steps);
    last = std::max(last, steps);
  }
  BOOST_TEST_MESSAGE(name << ": first " << first << " steps, last " << last);
  BOOST_TEST(first > 20U);  // the copy takes its time
  BOOST_TEST(last * 10 <= first * 12);
  BOOST_TEST(engine.counters().external_hit_tokens == 2048U);
}

BOOST_AUTO_TEST_SUITE_END()
