// Field reports of kinds K5, K10 and K11 through the engine and the built connectors, with real
// bytes (docs/conformance.md); and the figure of the report that tails inside blocks were built
// for.
#include <filesystem>
#include <fstream>

#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "host_stub/engine/connector_run.h"
#include "plugin/offload/disk/tests/folder.h"

using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const char* const connectors[] = {"simple_cpu", "offloading"};

// Stepped, in virtual time, without a device cache: what hits, hits in the connector.
EngineOptions quiet_options(const kvc::config::ModelConfig& model, const Rows& rows,
                            const std::string& toml, std::uint64_t& now_ns) {
  EngineOptions o = options_for(model, rows);
  o.stepped = true;
  o.hooks.now_ns = [&now_ns] { return now_ns += 1000; };
  o.hooks.log = [](std::int32_t, std::string_view) {};
  o.device_cache = false;
  o.connector_toml = toml;
  return o;
}

std::string with_disk(const std::string& folder, std::uint64_t host_blocks) {
  return "[host]\nblocks = " + std::to_string(host_blocks) + "\n[disk]\npaths = [\"" + folder +
         "\"]\nbytes = \"64MiB\"\ndirect = false\n";
}

// Every byte of every block on disk becomes another.
void spoil(const std::string& folder) {
  std::uint64_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".data") continue;
    const std::uint64_t size = std::filesystem::file_size(entry.path());
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file << std::string(size, '\xEE');
    ++files;
  }
  BOOST_REQUIRE(files > 0U);
}

// Five prompts of ten blocks.
Rows five() { return Rows(std::vector<Row>(5, Row{161, 2, 0, 0})); }

}  // namespace

BOOST_AUTO_TEST_SUITE(field_reports_in_an_engine)

// K5-35: two loads hold 512 and 736 of 2,048 blocks, and what is left is enough for the rest of the
// second prompt (464), not of the first (1,088). Both end.
BOOST_DATA_TEST_CASE(two_loads_that_leave_no_room_for_the_first_request_do_not_stop_the_second,
                     boost::unit_test::data::make(connectors), name) {
  const Rows before({{8'193, 1, 8'192, 1}, {11'777, 1, 11'776, 2}});
  const Rows rows({{25'596, 2, 8'192, 1}, {19'196, 2, 11'776, 2}});
  const std::uint64_t expected = outputs_alone(full_model(), rows);
  for (const bool reserve : {false, true}) {
    BOOST_TEST_CONTEXT(name << (reserve ? ", reserve" : "")) {
      std::uint64_t now_ns = 0;
      EngineOptions o = quiet_options(full_model(), rows, "[host]\nblocks = 8192\n", now_ns);
      o.device_blocks = 2'048;
      o.max_running = 2;
      o.reserve = reserve;
      o.stall_steps = 5'000;
      const auto engine = engine_for(o, built_connector(name));
      run(*engine, before);
      std::uint64_t steps = engine->step_number();
      const PassCounters c = run(*engine, rows);
      steps = engine->step_number() - steps;
      BOOST_TEST(c.requests == 2U);
      BOOST_TEST(c.output_digest == expected);
      BOOST_TEST(c.external_hit_tokens == 8'192U + 11'776U);
      BOOST_TEST(c.failed_loads == 0U);
      BOOST_TEST(steps < 200U, steps << " steps");
      check_no_leaks(*engine);
    }
  }
}

// K5-38, K10-98, K10-100: what is on disk is not what was written. Each request meets it once,
// computes, and what it stores then is good.
BOOST_DATA_TEST_CASE(blocks_that_went_bad_on_disk_cost_each_request_one_load_and_no_output,
                     boost::unit_test::data::make(connectors), name) {
  const kvc::disk_test::Folder folder;
  const Rows rows = five();
  const std::uint64_t expected = outputs_alone(full_model(), rows);
  std::uint64_t now_ns = 0;
  EngineOptions o = quiet_options(full_model(), rows, with_disk(folder.path(), 16), now_ns);
  o.max_running = 1;
  const auto engine = engine_for(o, built_connector(name));
  run(*engine, rows);
  const PassCounters good = run(*engine, rows);
  BOOST_TEST(good.external_hit_tokens == 5 * 160U);
  BOOST_TEST(good.failed_loads == 0U);
  spoil(folder.path());
  const PassCounters bad = run(*engine, rows);
  BOOST_TEST(bad.output_digest == expected);
  BOOST_TEST(bad.requests == 5U);
  BOOST_TEST(bad.failed_loads > 0U);
  BOOST_TEST(bad.failed_loads <= 5U);
  BOOST_TEST(stat(*engine, "disk_fills_failed") > 0U);
  const PassCounters again = run(*engine, rows);
  BOOST_TEST(again.output_digest == expected);
  BOOST_TEST(again.failed_loads == 0U);
  BOOST_TEST(again.external_hit_tokens > 160U);
  check_no_leaks(*engine);
}

// K10-106: ten blocks are stored, the process of the engine is over, another one hits them; one
// whose model has another name, and so another namespace, does not.
BOOST_DATA_TEST_CASE(blocks_on_disk_outlive_the_engine_and_are_its_own,
                     boost::unit_test::data::make(connectors), name) {
  const kvc::disk_test::Folder folder;
  const Rows rows({{161, 2, 0, 0}});
  const auto hits = [&](const std::string& model_name) {
    kvc::config::ModelConfig model = full_model();
    model.name = model_name;
    std::uint64_t now_ns = 0;
    const EngineOptions o = quiet_options(model, rows, with_disk(folder.path(), 64), now_ns);
    const auto engine = engine_for(o, built_connector(name));
    const PassCounters c = run(*engine, rows);
    BOOST_TEST(c.output_digest == outputs_alone(model, rows));
    check_no_leaks(*engine);
    return c.external_hit_tokens;
  };
  BOOST_TEST(hits("test") == 0U);
  BOOST_TEST(hits("test") == 160U);
  BOOST_TEST(hits("another") == 0U);
}

// K11-113: requests that were told to ask again, and then hit, count every token once.
BOOST_DATA_TEST_CASE(a_request_that_asked_again_counts_each_of_its_tokens_once,
                     boost::unit_test::data::make(connectors), name) {
  const Rows rows(std::vector<Row>(8, Row{65, 2, 48, 1}));
  std::uint64_t now_ns = 0;
  EngineOptions o = quiet_options(full_model(), rows, "[host]\nunlimited = true\n", now_ns);
  o.device_cache = true;
  o.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 20 == 0 ? 1U : 0U; };
  const auto engine = engine_for(o, built_connector(name));
  run(*engine, Rows({{49, 1, 48, 1}}));
  BOOST_REQUIRE(engine->empty_device_cache());
  std::uint64_t asked = 0;
  std::uint64_t finished = 0;
  engine->begin_pass();
  engine->on_finished([&](const FinishedRequest& r) {
    BOOST_TEST(r.local_tokens + r.external_tokens + r.computed_tokens == r.prompt_tokens);
    BOOST_TEST(r.local_tokens <= r.prompt_tokens);
    ++finished;
  });
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::vector<TokenId> prompt;
    rows.expand_prompt(i, prompt);
    BOOST_REQUIRE(engine->submit(rows.request(i), std::move(prompt)).ok());
  }
  PassCounters last;
  for (int i = 0; i < 10'000 && engine->live_requests() > 0; ++i) {
    engine->step();
    const PassCounters c = engine->counters();
    BOOST_TEST(c.local_hit_tokens >= last.local_hit_tokens);
    BOOST_TEST(c.external_hit_tokens >= last.external_hit_tokens);
    BOOST_TEST(c.local_hit_tokens + c.external_hit_tokens <= 8U * 65U);
    last = c;
  }
  asked = stat(*engine, "lookups_attached");
  BOOST_TEST(asked > 0U);
  BOOST_TEST(finished == 8U);
  BOOST_TEST(last.local_hit_tokens + last.external_hit_tokens + last.computed_tokens == 8U * 65U);
}

// Blocks of 784 tokens: the prompt's last block is 116 tokens, of which 112 can be hit where keys
// name 8 tokens.
BOOST_DATA_TEST_CASE(cached_tokens_of_a_prompt_of_900_rise_from_784_to_896,
                     boost::unit_test::data::make(connectors), name) {
  const Rows rows({{900, 2, 0, 0}});
  const auto cached = [&](std::uint64_t hash_unit) {
    const auto m =
        model({group(kvc::config::GroupKind::full, 784), group(kvc::config::GroupKind::state, 784)},
              hash_unit, 784);
    std::uint64_t now_ns = 0;
    const auto engine =
        engine_for(quiet_options(m, rows, "[host]\nblocks = 64\n", now_ns), built_connector(name));
    BOOST_TEST(run(*engine, rows).external_hit_tokens == 0U);
    const PassCounters c = run(*engine, rows);
    BOOST_TEST(c.output_digest == outputs_alone(m, rows));
    check_no_leaks(*engine);
    return c.external_hit_tokens;
  };
  BOOST_TEST(cached(784) == 784U);
  BOOST_TEST(cached(8) == 896U);
}

BOOST_AUTO_TEST_SUITE_END()
