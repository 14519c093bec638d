// An engine with a built connector, driven step by step: what tests of the two together share.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/engine.h"
#include "host_stub/engine/test_engine.h"

namespace kvc::host::testing {

// `name`: "simple_cpu", "offloading".
inline LoadedConnector built_connector(const std::string& name) {
  auto loaded = load_connector(std::string(KVC_LIB_DIR) + "/libkvc_" + name + ".so");
  BOOST_REQUIRE_MESSAGE(loaded.ok(), (loaded.ok() ? "" : loaded.error().text));
  return std::move(loaded).value();
}

inline std::uint64_t stat(const Engine& engine, const std::string& name) {
  for (const StatValue& s : engine.stats()) {
    if (s.name == name) return s.value;
  }
  BOOST_FAIL("no statistic is called " << name);
  return 0;
}

// Hooks refer to the object: it stays where it is.
struct ConnectorRun {
  ConnectorRun(const config::ModelConfig& model, const Rows& rows, std::string connector_toml) {
    options = options_for(model, rows);
    options.token_budget = 96;
    options.max_running = 4;
    options.device_blocks = Engine::blocks_needed(options).value() * 2;
    options.stepped = true;
    options.hooks.now_ns = [this] { return now_ns += 1000; };
    options.hooks.log = [this](std::int32_t level, std::string_view line) {
      if (level >= KVC_LOG_ERROR) bad_lines += std::string(line) + "\n";
    };
    options.connector_toml = std::move(connector_toml);
  }
  ConnectorRun(const ConnectorRun&) = delete;
  ConnectorRun& operator=(const ConnectorRun&) = delete;

  // Nothing is open, nobody complained.
  void check_quiet() const {
    check_no_leaks(*engine);
    BOOST_TEST(engine->boundary_stats().all_offers.pending == 0U);
    BOOST_TEST(engine->peer_faults() == 0U);
    BOOST_TEST(engine->connector_failure() == "");
    BOOST_TEST(bad_lines == "");
  }
  [[nodiscard]] std::uint64_t stat(const std::string& name) const {
    return testing::stat(*engine, name);
  }

  EngineOptions options;
  std::uint64_t now_ns = 0;
  std::string bad_lines;
  std::unique_ptr<Engine> engine;
};

}  // namespace kvc::host::testing
