// kvc.hints/1 between the engine and both connectors: outputs stay as they are whatever is hinted
// and pinned, and what is hinted is what is found again.
#include <boost/test/unit_test.hpp>

#include <string>
#include <vector>

#include <kvc/kvc.h>

#include "host_stub/engine/connector_run.h"

using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const std::vector<std::string> connectors{"simple_cpu", "offloading"};

std::string toml(std::uint64_t blocks, const std::string& eviction) {
  return "[host]\nblocks = " + std::to_string(blocks) + "\n[connector]\neviction = \"" + eviction +
         "\"\n";
}

// Two passes with empty device caches between.
std::uint64_t two_passes(ConnectorRun& r, const Rows& rows, const std::string& connector,
                         std::uint64_t expected) {
  r.engine = engine_for(r.options, built_connector(connector));
  std::uint64_t external = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const PassCounters c = run(*r.engine, rows);
    BOOST_TEST(c.output_digest == expected);
    external += c.external_hit_tokens;
    r.check_quiet();
    BOOST_TEST(r.engine->empty_device_cache());
  }
  return external;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(engine_hints)

BOOST_AUTO_TEST_CASE(outputs_are_those_without_a_connector_whatever_is_hinted) {
  const Rows rows = mixed_rows();
  std::uint64_t pinned = 0;
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    for (const std::string& name : connectors) {
      for (const char* const eviction : {"lru", "auto"}) {
        for (const HintOptions& hints :
             {HintOptions{2, 0, 0, 2}, HintOptions{-1, 50'000, 0, 3}, HintOptions{1, 0, 32, 1}}) {
          BOOST_TEST_CONTEXT(m.name << ", " << name << ", " << eviction << ", priority "
                                    << hints.priority) {
            ConnectorRun r(m.model, rows, toml(24, eviction));
            r.options.hints = hints;
            two_passes(r, rows, name, expected);
            BOOST_TEST(r.stat("hints_taken") > 0U);
            pinned += r.stat("pins_open_now");
          }
        }
      }
    }
  }
  BOOST_TEST(pinned > 0U);
}

// A scan of prompts that nobody shares goes through a pool for few of them.
BOOST_AUTO_TEST_CASE(a_hinted_prompt_is_found_after_a_scan) {
  constexpr std::uint64_t scan = 12;
  std::vector<Row> prompts;
  for (std::uint64_t i = 0; i < scan; ++i) prompts.push_back({97, 2, 97, i + 1});
  prompts.push_back({97, 2, 97, 1});  // the first one again
  const Rows rows(prompts);
  const std::uint64_t expected = outputs_alone(full_model(), rows);
  for (const std::string& name : connectors) {
    for (const char* const eviction : {"lru", "arc", "gdsf"}) {
      const auto external = [&](const HintOptions& hints) {
        ConnectorRun r(full_model(), rows, toml(16, eviction));
        r.options.max_running = 1;
        r.options.device_cache = false;
        r.options.hints = hints;
        r.engine = engine_for(r.options, built_connector(name));
        const PassCounters c = run(*r.engine, rows);
        BOOST_TEST(c.output_digest == expected);
        r.check_quiet();
        return c.external_hit_tokens;
      };
      BOOST_TEST_CONTEXT(name << ", " << eviction) {
        BOOST_TEST(external({}) == 0U);
        BOOST_TEST(external({1, 0, 0, scan}) == 96U);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_connector_without_the_extension_serves_as_before) {
  const Rows rows = mixed_rows();
  ConnectorRun r(full_model(), rows, toml(24, "lru"));
  r.options.hints = {1, 1000, 16, 1};
  LoadedConnector connector = built_connector("simple_cpu");
  connector.api.extension = [](kvc_bytes) noexcept -> const void* { return nullptr; };
  std::string warned;
  r.options.hooks.log = [&](std::int32_t level, std::string_view line) {
    if (level == KVC_LOG_WARN) warned += std::string(line) + "\n";
  };
  r.engine = engine_for(r.options, connector);
  const PassCounters c = run(*r.engine, rows);
  BOOST_TEST(c.output_digest == outputs_alone(full_model(), rows));
  BOOST_TEST(warned.find("kvc.hints/1") != std::string::npos, warned);
  BOOST_TEST(r.stat("hints_taken") == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
