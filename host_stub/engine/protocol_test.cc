// The engine with a connector: loads, stores, holds, verdicts, failures.
#include <algorithm>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/engine.h"
#include "host_stub/engine/test_engine.h"
#include "host_stub/engine/toy_connector.h"

using kvc::Status;
using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

// An option set in which the connector has to do with everything: a small pool, few tokens a step.
EngineOptions busy_options(const kvc::config::ModelConfig& model, const Rows& rows) {
  EngineOptions o = options_for(model, rows);
  o.token_budget = 96;
  o.max_running = 4;
  o.device_blocks = Engine::blocks_needed(o).value() * 2;
  o.stepped = true;
  o.hooks.now_ns = [] { return std::uint64_t{1}; };
  o.hooks.log = [](std::int32_t, std::string_view) {};
  return o;
}

void check_toy(const Engine& engine) {
  BOOST_TEST(toy_complaints().empty());
  for (const std::string& text : toy_complaints()) BOOST_TEST_MESSAGE(text);
  for (const std::string& text : toy_complaints()) BOOST_ERROR(text);
  BOOST_TEST(engine.connector_failure() == "");
}

}  // namespace

BOOST_AUTO_TEST_SUITE(host_protocol)

BOOST_AUTO_TEST_CASE(outputs_with_a_connector_are_those_without_in_every_setting) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    const auto check = [&](const char* what, const ToySettings& settings, const auto& change) {
      BOOST_TEST_CONTEXT(m.name << ", " << what) {
        EngineOptions o = busy_options(m.model, rows);
        change(o);
        auto engine = engine_for(o, toy_connector(settings));
        for (int pass = 0; pass < 2; ++pass) {
          const PassCounters c = run(*engine, rows);
          BOOST_TEST(c.output_digest == expected);
          BOOST_TEST((pass == 0 || c.external_hit_tokens > 0));
          BOOST_TEST(c.stored_blocks + c.loaded_blocks > 0U);
          check_no_leaks(*engine);
          BOOST_TEST(engine->empty_device_cache());
        }
        check_toy(*engine);
      }
    };
    check("plain", {}, [](EngineOptions&) {});
    check("threads and clock of its own", {}, [](EngineOptions& o) { o.stepped = false; });
    check("no device cache", {}, [](EngineOptions& o) { o.device_cache = false; });
    check("one at a time", {}, [](EngineOptions& o) { o.max_running = 1; });
    check("more ranks", {}, [](EngineOptions& o) { o.ranks = 2 * o.model.context_parallel; });
    ToySettings slow;
    slow.copies_per_pump = 1;
    slow.shuffle_copies = true;
    slow.later_answers = 3;
    check("slow copies", slow, [](EngineOptions&) {});
    for (std::uint64_t steps = 2; steps <= 4; ++steps) {
      check("steps in flight", slow, [&](EngineOptions& o) { o.steps_in_flight = steps; });
    }
    check("half of every hit", {}, [&](EngineOptions& o) {
      const std::uint64_t h = m.model.hash_unit_tokens;
      o.hooks.accept = [h](RequestId, std::uint64_t n) { return n / 2 / h * h; };
    });
  }
}

BOOST_AUTO_TEST_CASE(one_request_after_the_other_hits_everything_that_an_unlimited_cache_would) {
  // The device cache is off: every hit is a load.
  const Rows rows({{200, 8, 0, 1}, {300, 8, 170, 1}, {300, 8, 300, 1}, {160, 8, 160, 1}});
  EngineOptions o = busy_options(full_model(), rows);
  o.device_cache = false;
  o.max_running = 1;
  auto engine = engine_for(o, toy_connector());
  const PassCounters c = run(*engine, rows);
  // Row 0 shares nothing with prefix 1, row 1 opens it with 170 tokens, row 2 is the same up to
  // there, row 3 lies inside.
  BOOST_TEST(c.external_hit_tokens == 160U + 144U);
  BOOST_TEST(c.local_hit_tokens == 0U);
  check_toy(*engine);
}

BOOST_AUTO_TEST_CASE(states_reach_the_connector_at_block_ends_and_at_the_tail_of_every_prompt) {
  for (const std::uint64_t prompt : {96U, 97U, 100U, 112U, 128U, 500U}) {
    for (const bool cache : {true, false}) {
      BOOST_TEST_CONTEXT(prompt << (cache ? ", device cache" : ", no device cache")) {
        const Rows rows({{prompt, 4, 0, 0}});
        EngineOptions o = busy_options(hybrid_model(), rows);
        o.device_cache = cache;
        auto engine = engine_for(o, toy_connector());
        run(*engine, rows);
        BOOST_TEST(engine->empty_device_cache());
        const PassCounters replay = run(*engine, rows);
        BOOST_TEST(replay.external_hit_tokens == (prompt - 1) / 16 * 16);
        check_toy(*engine);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(failed_loads_are_recomputed_and_counted) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    BOOST_TEST_CONTEXT(m.name) {
      ToySettings settings;
      settings.fail_every_load = 3;
      auto engine = engine_for(busy_options(m.model, rows), toy_connector(settings));
      const std::uint64_t expected = outputs_alone(m.model, rows);
      run(*engine, rows);
      BOOST_TEST(engine->empty_device_cache());
      const PassCounters c = run(*engine, rows);
      BOOST_TEST(c.failed_loads > 0U);
      BOOST_TEST(c.recomputed_tokens > 0U);
      BOOST_TEST(c.output_digest == expected);
      check_no_leaks(*engine);
      check_toy(*engine);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_connector_that_always_says_later_is_believed_for_a_while_only) {
  const Rows rows = mixed_rows();
  for (const std::uint64_t steps : {1U, 3U}) {
    ToySettings settings;
    settings.later_answers = UINT64_MAX;
    EngineOptions o = busy_options(hybrid_model(), rows);
    o.steps_in_flight = steps;
    o.later_steps = 50;
    int lines = 0;
    o.hooks.log = [&](std::int32_t level, std::string_view text) {
      lines += level == KVC_LOG_WARN && text.find("ask again") != std::string_view::npos ? 1 : 0;
    };
    auto engine = engine_for(o, toy_connector(settings));
    const PassCounters c = run(*engine, rows);
    BOOST_TEST(c.output_digest == outputs_alone(hybrid_model(), rows));
    BOOST_TEST(c.external_hit_tokens == 0U);
    BOOST_TEST(lines == static_cast<int>(rows.size()));
    BOOST_TEST(engine->step_number() < 50U * rows.size() + 2'000U);
    check_no_leaks(*engine);
    check_toy(*engine);
  }
}

// Negative controls: the verifier and the outputs see what a bad connector does.
BOOST_AUTO_TEST_CASE(a_load_with_a_wrong_byte_is_named_and_changes_outputs) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    BOOST_TEST_CONTEXT(m.name) {
      ToySettings settings;
      settings.spoil_every_load = 2;
      auto engine = engine_for(busy_options(m.model, rows), toy_connector(settings));
      BOOST_REQUIRE(engine->run(rows).ok());
      BOOST_TEST(engine->empty_device_cache());
      const auto c = engine->run(rows);
      BOOST_REQUIRE(c.ok());
      BOOST_TEST(c.value().mismatched_blocks > 0U);
      BOOST_TEST(engine->first_mismatch().find("group ") == 0U);
      BOOST_TEST(c.value().output_digest != outputs_alone(m.model, rows));
    }
  }
}

BOOST_AUTO_TEST_CASE(copies_that_do_not_wait_for_their_fence_are_caught) {
  const Rows rows = mixed_rows();
  ToySettings settings;
  settings.ignore_fences = true;
  for (const std::uint64_t steps : {1U, 3U}) {
    EngineOptions o = busy_options(full_model(), rows);
    o.steps_in_flight = steps;
    auto engine = engine_for(o, toy_connector(settings));
    BOOST_REQUIRE(engine->run(rows).ok());
    BOOST_TEST(engine->empty_device_cache());
    const auto c = engine->run(rows);
    BOOST_REQUIRE(c.ok());
    BOOST_TEST(c.value().mismatched_blocks > 0U);
  }
}

BOOST_AUTO_TEST_CASE(a_connector_that_breaks_at_any_call_is_given_up_and_outputs_stay_right) {
  const Rows rows = mixed_rows();
  const std::uint64_t expected = outputs_alone(hybrid_model(), rows);
  for (const char* slot : {"request_begin", "request_extend", "lookup", "alloc_update",
                           "build_store_jobs", "complete", "request_end"}) {
    for (const std::uint64_t call : {1U, 2U, 7U, 20U}) {
      for (const std::uint64_t steps : {1U, 3U}) {
        BOOST_TEST_CONTEXT(slot << " at call " << call << ", " << steps << " steps in flight") {
          ToySettings settings;
          settings.internal_slot = slot;
          settings.internal_call = call;
          EngineOptions o = busy_options(hybrid_model(), rows);
          o.steps_in_flight = steps;
          int lines = 0;
          o.hooks.log = [&](std::int32_t level, std::string_view) {
            lines += level >= KVC_LOG_ERROR ? 1 : 0;
          };
          auto engine = engine_for(o, toy_connector(settings));
          const PassCounters c = run(*engine, rows);
          BOOST_TEST(c.output_digest == expected);
          BOOST_TEST(!engine->connector_alive());
          BOOST_TEST(engine->connector_failure().find(slot) == 0U);
          BOOST_TEST(lines == 1);
          check_no_leaks(*engine);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_release_of_a_block_that_is_not_held_ends_the_use_of_the_connector) {
  const Rows rows = mixed_rows();
  ToySettings settings;
  settings.release_foreign = true;
  auto engine = engine_for(busy_options(full_model(), rows), toy_connector(settings));
  const PassCounters c = run(*engine, rows);
  BOOST_TEST(c.output_digest == outputs_alone(full_model(), rows));
  BOOST_TEST(engine->connector_failure().find("did not hold") != std::string::npos);
  check_no_leaks(*engine);
}

BOOST_AUTO_TEST_CASE(refused_allocations_and_untracked_requests_run_without_loads) {
  const Rows rows = mixed_rows();
  ToySettings settings;
  settings.refuse_alloc_every = 2;
  settings.full_every_begin = 3;
  auto engine = engine_for(busy_options(hybrid_model(), rows), toy_connector(settings));
  const std::uint64_t expected = outputs_alone(hybrid_model(), rows);
  run(*engine, rows);
  BOOST_TEST(engine->empty_device_cache());
  const PassCounters c = run(*engine, rows);
  BOOST_TEST(c.output_digest == expected);
  check_no_leaks(*engine);
  check_toy(*engine);
}

BOOST_AUTO_TEST_CASE(aborts_and_preemptions_at_any_moment_leave_nothing_behind) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    for (const std::uint64_t steps : {1U, 2U}) {
      BOOST_TEST_CONTEXT(m.name << ", " << steps << " steps in flight") {
        ToySettings settings;
        settings.copies_per_pump = 2;
        settings.fail_every_load = 5;
        EngineOptions o = busy_options(m.model, rows);
        o.steps_in_flight = steps;
        auto engine = engine_for(o, toy_connector(settings));
        std::uint64_t turn = 0;
        for (int round = 0; round < 3; ++round) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            std::vector<TokenId> prompt;
            rows.expand_prompt(i, prompt);
            const RequestId id = engine->submit(rows.request(i), prompt).value();
            while (engine->live_requests() > 6 || turn % 3 != 0) {
              engine->step();
              BOOST_REQUIRE(engine->verify().ok());
              if (++turn % 4 == 0) engine->preempt(id - turn % 5);
            }
            if (i % 5 == 0) engine->abort(id - 2);
            if (i % 7 == 0) engine->abort(id);
            ++turn;
          }
          while (!engine->step().idle) BOOST_REQUIRE(++turn < 100'000);
          BOOST_TEST(engine->empty_device_cache());
        }
        BOOST_TEST(engine->counters().mismatched_blocks == 0U, engine->first_mismatch());
        check_no_leaks(*engine);
        check_toy(*engine);
      }
    }
  }
}

// With outputs in flight a state is handed off when its keys are known. A request that then gets no
// blocks is not in the step's record, and its confirmed tokens are not told: nor may its states be
// (found by the simulation).
BOOST_AUTO_TEST_CASE(states_are_handed_off_only_with_the_record_of_their_request) {
  std::vector<Row> rows;
  for (std::uint64_t i = 0; i < 10; ++i) rows.push_back({40 + 13 * i, 60, 20, 1});
  const Rows source(rows);
  const auto layout =
      model({group(kvc::config::GroupKind::full, 16), group(kvc::config::GroupKind::state, 8),
             group(kvc::config::GroupKind::state, 24)},
            8, 48);
  for (std::uint64_t steps = 2; steps <= 4; ++steps) {
    for (std::uint64_t spare = 0; spare < 24; spare += 4) {
      BOOST_TEST_CONTEXT(steps << " steps in flight, " << spare << " blocks to spare") {
        ToySettings settings;
        settings.copies_per_pump = 1;
        EngineOptions o = busy_options(layout, source);
        o.device_blocks = Engine::blocks_needed(o).value() + spare;
        o.steps_in_flight = steps;
        auto engine = engine_for(o, toy_connector(settings));
        run(*engine, source);
        check_toy(*engine);
        check_no_leaks(*engine);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
