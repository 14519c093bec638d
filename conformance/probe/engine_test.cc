// The host engine behind the probe, driven step by step: what kvc-run does not do.
#include "host_stub/engine/engine.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <boost/test/unit_test.hpp>

#include <kvc/kvc_util.h>
#include "host_stub/engine/test_engine.h"
#include "host_stub/loader/loader.h"

using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

struct Probed {
  Probed(const kvc::config::ModelConfig& model, const std::string& script, std::uint64_t steps = 1)
      : file(std::string(KVC_BIN_DIR) + "/kvc_probe_test.findings") {
    EngineOptions o = options_for(model, rows);
    o.token_budget = 96;
    o.max_running = 4;
    o.device_blocks = Engine::blocks_needed(o).value() * 2;
    o.steps_in_flight = steps;
    o.stepped = true;
    o.later_steps = 200;
    o.stall_steps = 2'000;
    o.connector_toml = "[probe]\nfindings = '" + file + "'\n" + script;
    o.hooks.now_ns = [] { return std::uint64_t{1}; };
    o.hooks.log = [](std::int32_t, std::string_view) {};
    engine = engine_for(o, load_connector(std::string(KVC_LIB_DIR) + "/libkvc_probe.so").value());
  }
  static std::string text_of(const std::string& path) {
    std::ifstream in(path);
    BOOST_REQUIRE_MESSAGE(in.good(), path);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  // Closes the engine: the script did something, and there is no finding.
  void check_clean() {
    engine.reset();
    bool acted = false;
    for (const std::string& path : {file, file + ".rank-0"}) {
      const std::string text = text_of(path);
      BOOST_TEST(text.find("findings 0") != std::string::npos, text);
      acted |= text.find("acted 0") == std::string::npos;
    }
    BOOST_TEST(acted);
  }
  // Submits all rows; aborts, preempts and resets on the way; true: it came to an end.
  bool stir(std::uint64_t reset_every) {
    std::uint64_t turn = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<TokenId> prompt;
      rows.expand_prompt(i, prompt);
      const RequestId id = engine->submit(rows.request(i), prompt).value();
      do {
        engine->step();
        BOOST_REQUIRE(engine->verify().ok());
        if (turn % 5 == 0) engine->preempt(id - turn % 3);
        if (reset_every != 0 && turn % reset_every == 0) engine->reset_connector(0);
      } while (++turn < 100'000 && engine->live_requests() > 6);
      if (i % 4 == 0) engine->abort(id - 1);
    }
    while (turn < 100'000 && engine->live_requests() > 0) engine->step(), ++turn;
    return engine->live_requests() == 0;
  }

  Rows rows = mixed_rows();
  std::string file;
  std::unique_ptr<Engine> engine;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(probe_engine)

BOOST_AUTO_TEST_CASE(findings_that_cannot_be_written_refuse_the_open) {
  const auto probe = load_connector(std::string(KVC_LIB_DIR) + "/libkvc_probe.so").value();
  std::string said;
  kvc_host_api host{};
  host.struct_size = sizeof host;
  host.self = reinterpret_cast<kvc_host*>(&said);
  host.log = [](kvc_host* h, std::int32_t, kvc_bytes text) noexcept {
    reinterpret_cast<std::string*>(h)->assign(reinterpret_cast<const char*>(text.data), text.size);
  };
  kvc_open open{};
  open.struct_size = sizeof open;
  open.config_toml = kvc_text_of("[probe]\nfindings = '/nowhere/f'\n");
  kvc_sched* out = nullptr;
  BOOST_TEST(probe.api.open_scheduler(&host, &open, &out) == KVC_E_ARG);
  BOOST_TEST((out == nullptr));
  BOOST_TEST(said == "probe: cannot write the findings /nowhere/f: No such file or directory");
}

BOOST_AUTO_TEST_CASE(aborts_preemptions_and_resets_under_every_mild_script_end_without_a_finding) {
  // "full" for every request: none is tracked.
  for (const char* script : {"later", "full", "failed", "late", "reordered", "unknown_job",
                             "rejects", "lying_capacity", "reset_later"}) {
    for (const std::uint64_t steps : {1U, 3U}) {
      BOOST_TEST_CONTEXT(script << ", " << steps << " steps in flight") {
        Probed p(hybrid_model(), std::string("script = '") + script + "'\nevery = 1\n", steps);
        BOOST_TEST(p.stir(7));
        BOOST_TEST(p.engine->counters().mismatched_blocks == 0U, p.engine->first_mismatch());
        BOOST_TEST(p.engine->connector_failure() == "");
        p.check_clean();
      }
    }
  }
}

// Requests are aborted while their loads never end: the blocks stay out of the pool, and nobody
// waits for them for ever.
BOOST_AUTO_TEST_CASE(loads_and_stores_that_never_end_take_their_blocks_with_them_and_no_more) {
  for (const char* script : {"missing_load", "missing_store", "later_forever"}) {
    BOOST_TEST_CONTEXT(script) {
      Probed p(hybrid_model(), std::string("script = '") + script + "'\nevery = 9\n");
      const Rows& rows = p.rows;
      std::uint64_t turn = 0;
      for (int round = 0; round < 2; ++round) {
        for (std::size_t i = 0; i < rows.size(); ++i) {
          std::vector<TokenId> prompt;
          rows.expand_prompt(i, prompt);
          const RequestId id = p.engine->submit(rows.request(i), prompt).value();
          std::uint64_t patience = 0;
          while (p.engine->is_live(id) && ++patience < 1'000) p.engine->step(), ++turn;
          p.engine->abort(id);
          BOOST_REQUIRE(p.engine->verify().ok());
        }
        p.engine->empty_device_cache();
      }
      BOOST_TEST(p.engine->live_requests() == 0U);
      BOOST_TEST(p.engine->connector_failure() == "");
      BOOST_TEST(p.engine->counters().mismatched_blocks == 0U, p.engine->first_mismatch());
      p.check_clean();
    }
  }
}

BOOST_AUTO_TEST_CASE(a_run_with_a_job_that_never_ends_gives_the_connector_up_and_ends_right) {
  for (const char* script : {"missing_load", "missing_store"}) {
    BOOST_TEST_CONTEXT(script) {
      Probed p(hybrid_model(), std::string("script = '") + script + "'\nevery = 2\n");
      const std::uint64_t expected = outputs_alone(hybrid_model(), p.rows);
      const PassCounters c = run(*p.engine, p.rows);
      BOOST_TEST(c.output_digest == expected);
      BOOST_TEST(p.engine->connector_failure().find("nothing moves") != std::string::npos);
      BOOST_TEST(p.engine->leaks().device_blocks == 0U);
      BOOST_TEST(p.engine->leaks().holds == 0U);
      p.check_clean();
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
