// The engine with the real connector in lazy mode: outputs, hits, what is named, holds, balance.
#include <algorithm>
#include <map>
#include <set>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/connector_run.h"

using kvc::Status;
using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

// The built connector, and what the engine names in its records.
struct Named {
  std::map<std::vector<std::uint8_t>, std::uint64_t> times;  // by key and group
  std::uint64_t candidates = 0;
  kvc_status (*build)(kvc_sched*, const kvc_step*, kvc_plan*) noexcept = nullptr;
};
Named* named = nullptr;

kvc_status watch_build(kvc_sched* sched, const kvc_step* step, kvc_plan* plan) noexcept {
  for (std::uint64_t i = 0; i < step->candidates.count; ++i) {
    const auto* c = static_cast<const kvc_candidate*>(step->candidates.data) + i;
    std::vector<std::uint8_t> key(c->key, c->key + 16);
    key.push_back(static_cast<std::uint8_t>(c->group));
    ++named->times[key];
    ++named->candidates;
  }
  return named->build(sched, step, plan);
}

LoadedConnector connector(Named& record) {
  LoadedConnector out = built_connector("simple_cpu");
  named = &record;
  record.build = out.api.build_store_jobs;
  out.api.build_store_jobs = watch_build;
  return out;
}

struct Run : ConnectorRun {
  Run(const kvc::config::ModelConfig& model, const Rows& rows)
      : ConnectorRun(model, rows, "[connector]\nmode = \"lazy\"\n[host]\nunlimited = true\n") {}
  ~Run() { engine.reset(); }  // it uses the record
  void open() { engine = engine_for(options, connector(record)); }

  PassCounters pass(const Rows& rows) {
    const PassCounters c = run(*engine, rows);
    check();
    return c;
  }
  void check() {
    check_quiet();
    BOOST_TEST(engine->boundary_stats().handoffs.published == 0U);
    BOOST_TEST(engine->boundary_stats().all_offers.dropped_bad_offer == 0U);
    BOOST_TEST(engine->boundary_stats().all_offers.skipped_not_hashed == 0U);
  }

  Named record;
};

// Prompts of their own, so long that few fit the device, each asked twice.
Rows rows_that_push_each_other_out() {
  std::vector<Row> rows;
  for (std::uint64_t round = 0; round < 2; ++round) {
    for (std::uint64_t i = 0; i < 6; ++i) rows.push_back({320, 4, 320, i});
  }
  return Rows(rows);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(host_lazy)

BOOST_AUTO_TEST_CASE(outputs_are_those_without_a_connector_in_every_setting) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    const auto check = [&](const char* what, const auto& change) {
      BOOST_TEST_CONTEXT(m.name << ", " << what) {
        Run r(m.model, rows);
        change(r.options);
        r.open();
        for (int pass = 0; pass < 2; ++pass) {
          const PassCounters c = r.pass(rows);
          BOOST_TEST(c.output_digest == expected);
          BOOST_TEST(c.failed_loads == 0U);
        }
        BOOST_TEST(r.engine->boundary_stats().all_offers.stored > 0U);
        BOOST_TEST(r.record.candidates > 0U);
      }
    };
    in_common_settings(check);
    check("small host pool", [](EngineOptions& o) {
      o.connector_toml = "[connector]\nmode = \"lazy\"\n[host]\nblocks = 12\n";
    });
    check("small budget of holds", [](EngineOptions& o) {
      o.connector_toml =
          "[connector]\nmode = \"lazy\"\nheld_device_blocks_max = 2\n[host]\nblocks = 500\n";
    });
  }
}

// What does not hit on the device hits in the tier: nothing that was free for a step is lost.
BOOST_AUTO_TEST_CASE(every_block_that_the_device_evicts_is_in_the_tier) {
  const Rows rows = rows_that_push_each_other_out();
  for (const NamedModel& m : all_models()) {
    for (const bool threads : {false, true}) {
      BOOST_TEST_CONTEXT(m.name << (threads ? ", threads" : "")) {
        Run r(m.model, rows);
        r.options.stepped = !threads;
        r.options.max_running = 1;
        r.options.device_blocks = Engine::blocks_needed(r.options).value() * 3;
        r.open();
        const PassCounters c = r.pass(rows);
        // The second time all of a prompt hits but its last scheduler block and what lies behind
        // it. States of 32 tokens are kept where chunks of 96 end, not at every 64.
        const std::uint64_t unit = m.model.scheduler_block_tokens;
        const bool by_chunks = m.model.context_parallel > 1 && m.model.groups.size() > 1;
        const std::uint64_t reach = by_chunks ? 192 : 319 / unit * unit;
        BOOST_TEST(c.local_hit_tokens + c.external_hit_tokens >= 6 * reach);
        BOOST_TEST(c.external_hit_tokens > 0U);
        const kvc_offer_counts all = r.engine->boundary_stats().all_offers;
        BOOST_TEST(all.published == all.stored + all.skipped_already_cached);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_device_that_evicts_nothing_stores_nothing) {
  const Rows rows = mixed_rows();
  Run r(hybrid_model(), rows);
  r.options.device_blocks = 0;
  r.open();
  r.pass(rows);
  BOOST_TEST(r.engine->boundary_stats().all_offers.published == 0U);
  BOOST_TEST(r.record.candidates == 0U);
}

// No step names again what an earlier one named and nobody used since.
BOOST_AUTO_TEST_CASE(a_block_is_named_once_while_it_stays_free) {
  const Rows rows({{320, 4, 320, 1}, {320, 4, 320, 2}, {320, 4, 320, 3}, {320, 4, 320, 4}});
  Run r(full_model(), rows);
  r.options.max_running = 1;
  r.options.connector_toml = "[connector]\nmode = \"lazy\"\n[host]\nblocks = 1000\n";
  r.open();
  r.pass(rows);
  BOOST_TEST(r.record.candidates > 20U);
  for (const auto& [key, times] : r.record.times) BOOST_TEST(times == 1U);
}

BOOST_AUTO_TEST_CASE(requests_that_do_not_write_are_not_named) {
  const Rows rows = rows_that_push_each_other_out();
  Run r(full_model(), rows);
  r.open();
  const auto play = [&](std::uint32_t flags, std::uint64_t limit) {
    for (std::size_t i = 0; i < 6; ++i) {
      RequestSpec spec = rows.request(i);
      spec.flags = flags;
      spec.store_limit_tokens = limit;
      std::vector<TokenId> prompt;
      rows.expand_prompt(i, prompt);
      BOOST_REQUIRE(r.engine->submit(spec, prompt).ok());
      while (!r.engine->step().idle) {
      }
    }
  };
  play(KVC_REQUEST_NO_WRITE, KVC_NO_LIMIT);
  BOOST_TEST(r.record.candidates == 0U);
  play(0, 40);
  BOOST_TEST(r.engine->boundary_stats().all_offers.stored > 0U);
  BOOST_TEST(r.engine->boundary_stats().all_offers.stored <= 6 * 2U);
  r.check();
}

BOOST_AUTO_TEST_CASE(after_an_invalidating_reset_nothing_older_is_stored) {
  const Rows rows = rows_that_push_each_other_out();
  Run r(full_model(), rows);
  r.open();
  r.pass(rows);
  BOOST_TEST(r.engine->boundary_stats().all_offers.stored > 0U);
  BOOST_REQUIRE(r.engine->reset_connector(KVC_RESET_INVALIDATE) >= 0);
  const std::uint64_t before = r.record.candidates;
  for (int i = 0; i < 5; ++i) r.engine->step();
  BOOST_TEST(r.record.candidates == before);
  BOOST_TEST(r.engine->empty_device_cache());
  r.pass(rows);
  BOOST_TEST(r.record.candidates > before);
}

BOOST_AUTO_TEST_CASE(aborts_preemptions_and_resets_at_any_moment_leave_nothing_behind) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    for (const std::uint64_t steps : {1U, 2U}) {
      BOOST_TEST_CONTEXT(m.name << ", " << steps << " steps in flight") {
        Run r(m.model, rows);
        r.options.steps_in_flight = steps;
        r.options.connector_toml = "[connector]\nmode = \"lazy\"\n[host]\nblocks = 64\n";
        r.options.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 4; };
        r.open();
        std::uint64_t turn = 0;
        for (std::size_t i = 0; i < rows.size(); ++i) {
          std::vector<TokenId> prompt;
          rows.expand_prompt(i, prompt);
          const RequestId id = r.engine->submit(rows.request(i), prompt).value();
          while (r.engine->live_requests() > 6 || turn % 3 != 0) {
            r.engine->step();
            BOOST_REQUIRE(r.engine->verify().ok());
            if (++turn % 4 == 0) r.engine->preempt(id - turn % 5);
            if (turn % 50 == 0)
              r.engine->reset_connector(turn % 100 == 0 ? KVC_RESET_INVALIDATE : 0);
          }
          if (i % 5 == 0) r.engine->abort(id - 2);
          if (i % 7 == 0) r.engine->abort(id);
          ++turn;
        }
        while (!r.engine->step().idle) BOOST_REQUIRE(++turn < 100'000);
        BOOST_TEST(r.engine->counters().mismatched_blocks == 0U, r.engine->first_mismatch());
        r.check();
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(without_a_device_cache_lazy_mode_is_one_clear_line) {
  const Rows rows({{100, 4, 0, 0}});
  Run r(full_model(), rows);
  r.options.device_cache = false;
  const auto made = Engine::make(r.options, connector(r.record));
  BOOST_REQUIRE(!made.ok());
  for (const char* part :
       {"libkvc_simple_cpu.so", "mode = \"lazy\"", "prefix cache", "\"eager\""}) {
    BOOST_TEST(made.error().text.find(part) != std::string::npos, made.error().text);
  }
  BOOST_TEST(made.error().text.find('\n') == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
