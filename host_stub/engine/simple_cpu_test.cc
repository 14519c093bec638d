// The engine with the real connector, through its library: outputs, hits, holds, balance.
#include <algorithm>
#include <cstring>
#include <random>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/connector_run.h"

using kvc::Status;
using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

// published is the sum of all other fields (design 2.5.2).
bool balanced(const kvc_offer_counts& c) {
  constexpr std::size_t fields = sizeof c / sizeof(std::uint64_t);
  std::uint64_t values[fields];
  std::memcpy(values, &c, sizeof c);
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < fields; ++i) sum += values[i];
  return sum == values[0];
}

// An engine with the connector, checked after every call.
struct Run : ConnectorRun {
  Run(const kvc::config::ModelConfig& model, const Rows& rows)
      : ConnectorRun(model, rows, "[host]\nunlimited = true\n") {}
  ~Run() { engine.reset(); }  // its calls are counted

  void open() {
    options.hooks.after_call = [this](const CallInfo& call) {
      ++calls;
      if (engine == nullptr || call.status == KVC_E_INTERNAL) return;
      const kvc_boundary_stats stats = engine->boundary_stats();
      if (!balanced(stats.handoffs) || !balanced(stats.all_offers)) ++unbalanced;
    };
    engine = engine_for(options, built_connector("simple_cpu"));
  }

  // A pass, and what must hold after every pass.
  PassCounters pass(const Rows& rows) {
    const PassCounters c = run(*engine, rows);
    check_quiet();
    BOOST_TEST(unbalanced == 0U);
    BOOST_TEST(engine->empty_device_cache());
    return c;
  }

  std::uint64_t calls = 0;
  std::uint64_t unbalanced = 0;
};

std::uint64_t best_hits(const kvc::config::ModelConfig& model, const Rows& rows) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint64_t unit = model.hash_unit_tokens;
    sum += (rows.request(i).prompt_tokens - 1) / unit * unit;
  }
  return sum;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(host_simple_cpu)

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
          BOOST_TEST((pass == 0 || c.external_hit_tokens > 0));
          BOOST_TEST(c.failed_loads == 0U);
        }
      }
    };
    in_common_settings(check);
    check("no device cache", [](EngineOptions& o) { o.device_cache = false; });
  }
}

// A state whose last key comes with an output is handed off steps later, when its block is passed.
BOOST_AUTO_TEST_CASE(a_state_that_is_handed_off_late_is_not_overwritten_before_it_is_stored) {
  using kvc::config::GroupKind;
  const auto m = model({group(GroupKind::state, 1), group(GroupKind::full, 1)}, 1, 1);
  const Rows rows({{20, 30, 10, 1}, {25, 30, 20, 1}, {12, 40, 12, 1}, {30, 20, 25, 1}});
  const std::uint64_t expected = outputs_alone(m, rows);
  for (const std::uint64_t steps : {2U, 3U, 16U}) {
    for (const std::uint64_t more : {20U, 60U}) {
      BOOST_TEST_CONTEXT(steps << " steps, " << more << " spare blocks") {
        Run r(m, rows);
        r.options.steps_in_flight = steps;
        r.options.device_cache = false;
        r.options.device_blocks = Engine::blocks_needed(r.options).value() + more;
        r.open();
        for (int pass = 0; pass < 2; ++pass) BOOST_TEST(r.pass(rows).output_digest == expected);
      }
    }
  }
}

// What is held, in flight or still to be handed off comes back: the engine waits for it, it does
// not give up, and a request that runs alone does not preempt itself over and over.
BOOST_AUTO_TEST_CASE(the_smallest_device_pool_is_enough_with_many_steps_in_flight) {
  using kvc::config::GroupKind;
  std::vector<NamedModel> models = all_models();
  models.push_back(
      {"small states", model({group(GroupKind::state, 1), group(GroupKind::full, 1)}, 1, 1)});
  models.push_back(
      {"states of 4, fine", model({group(GroupKind::state, 4), group(GroupKind::full, 4)}, 2, 4)});
  const Rows rows({{20, 70, 10, 1}, {90, 60, 20, 1}, {12, 80, 12, 1}, {130, 40, 25, 1}});
  for (const NamedModel& m : models) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    for (const std::uint64_t running : {1U, 4U}) {
      for (const char* what : {"copies at once", "slow copies", "threads", "no connector"}) {
        BOOST_TEST_CONTEXT(m.name << ", " << running << " running, " << what) {
          Run r(m.model, rows);
          r.options.steps_in_flight = 16;
          r.options.token_budget = 48;
          r.options.max_running = running;
          r.options.device_blocks = Engine::blocks_needed(r.options).value();
          if (what == std::string("slow copies")) {
            r.options.hooks.pump_budget = [draw = std::mt19937(7)](std::uint32_t) mutable {
              return draw() % 9 == 0 ? 1U : 0U;
            };
          }
          r.options.stepped = what != std::string("threads");
          if (what == std::string("no connector")) {
            BOOST_TEST(run(*engine_for(r.options), rows).output_digest == expected);
            continue;
          }
          r.open();
          for (int pass = 0; pass < 2; ++pass) BOOST_TEST(r.pass(rows).output_digest == expected);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_replay_from_an_unlimited_host_pool_hits_all_that_can_hit) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    // States in all mode and groups that hit coarsely reach the scheduler block only.
    const std::uint64_t unit = m.model.hash_unit_tokens;
    for (const bool cache : {true, false}) {
      BOOST_TEST_CONTEXT(m.name << (cache ? ", device cache" : ", no device cache")) {
        Run r(m.model, rows);
        r.options.device_cache = cache;
        r.options.device_blocks = 0;
        r.open();
        const bool fine =
            r.engine->geometry().fine_hits() || unit == m.model.scheduler_block_tokens;
        r.pass(rows);
        const PassCounters replay = r.pass(rows);
        const std::uint64_t hits = replay.local_hit_tokens + replay.external_hit_tokens;
        if (fine) BOOST_TEST(hits == best_hits(m.model, rows));
        BOOST_TEST(hits > best_hits(m.model, rows) / 2);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_tier_tail_is_hit_where_the_device_tail_is) {
  for (const std::uint64_t prompt : {96U, 97U, 100U, 112U, 128U, 500U}) {
    BOOST_TEST_CONTEXT(prompt) {
      const Rows rows({{prompt, 4, 0, 0}});
      Run r(hybrid_model(), rows);
      r.open();
      r.pass(rows);
      BOOST_TEST(r.pass(rows).external_hit_tokens == (prompt - 1) / 16 * 16);
    }
  }
}

BOOST_AUTO_TEST_CASE(full_host_pools_change_hits_but_never_outputs_or_books) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    for (const std::uint64_t blocks : {4U, 20U, 60U}) {
      BOOST_TEST_CONTEXT(m.name << ", " << blocks << " host blocks") {
        Run r(m.model, rows);
        r.options.connector_toml = "[host]\nblocks = " + std::to_string(blocks) + "\n";
        r.options.steps_in_flight = blocks == 20 ? 2 : 1;
        r.open();
        for (int pass = 0; pass < 2; ++pass) BOOST_TEST(r.pass(rows).output_digest == expected);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(aborts_preemptions_and_resets_at_any_moment_leave_nothing_behind) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    for (const std::uint64_t steps : {1U, 2U}) {
      BOOST_TEST_CONTEXT(m.name << ", " << steps << " steps in flight") {
        Run r(m.model, rows);
        r.options.steps_in_flight = steps;
        r.options.connector_toml = "[host]\nblocks = 64\n";
        r.options.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 4; };
        r.open();
        std::uint64_t turn = 0;
        for (int round = 0; round < 2; ++round) {
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
          BOOST_TEST(r.engine->empty_device_cache());
        }
        BOOST_TEST(r.engine->counters().mismatched_blocks == 0U, r.engine->first_mismatch());
        BOOST_TEST(r.unbalanced == 0U);
        BOOST_TEST(r.engine->peer_faults() == 0U);
        BOOST_TEST(r.bad_lines == "");
        BOOST_TEST(r.engine->connector_failure() == "");
        check_no_leaks(*r.engine);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_connector_that_refuses_its_options_is_one_clear_line) {
  const Rows rows({{100, 4, 0, 0}});
  EngineOptions o = options_for(full_model(), rows);
  for (const char* toml : {"[host]\nblocks = 1\n", "[host]\nblokcs = 4\n", "this is no toml"}) {
    o.connector_toml = toml;
    const auto made = Engine::make(o, built_connector("simple_cpu"));
    BOOST_REQUIRE(!made.ok());
    BOOST_TEST_MESSAGE(made.error().text);
    BOOST_TEST(made.error().text.find("libkvc_simple_cpu.so") != std::string::npos);
    BOOST_TEST(made.error().text.find('\n') == std::string::npos);
    BOOST_TEST(made.error().text.size() > 80U);
  }
}

BOOST_AUTO_TEST_SUITE_END()
