// The engine alone: outputs, device hits, chunks, preemption, faults.
#include "host_stub/engine/engine.h"

#include <algorithm>

#include <boost/test/data/monomorphic.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "host_stub/engine/test_engine.h"
#include "host_stub/engine/trace_source.h"

using kvc::GroupId;
using kvc::Status;
using namespace kvc::host;
using namespace kvc::host::testing;
namespace config = kvc::config;
using config::GroupKind;

BOOST_AUTO_TEST_SUITE(host_engine)

BOOST_AUTO_TEST_CASE(outputs_are_equal_whatever_pool_chunks_batch_cache_ranks_or_steps_in_flight) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    BOOST_TEST_CONTEXT(m.name) {
      std::optional<std::uint64_t> digest;
      const auto check = [&](const char* what, const auto& change) {
        BOOST_TEST_CONTEXT(what) {
          EngineOptions o = options_for(m.model, rows);
          change(o);
          auto engine = engine_for(o);
          for (int pass = 0; pass < 2; ++pass) {
            const PassCounters c = run(*engine, rows);
            BOOST_TEST(c.requests == rows.size());
            BOOST_TEST(c.verified_blocks > 0U);
            if (!digest) digest = c.output_digest;
            BOOST_TEST(c.output_digest == *digest);
          }
          check_no_leaks(*engine);
        }
      };
      check("plain", [](EngineOptions&) {});
      check("one at a time", [](EngineOptions& o) { o.max_running = 1; });
      check("small chunks", [](EngineOptions& o) { o.token_budget = 70; });
      check("no device cache", [](EngineOptions& o) { o.device_cache = false; });
      check("smallest pool",
            [](EngineOptions& o) { o.device_blocks = Engine::blocks_needed(o).value(); });
      check("small pool, small chunks", [](EngineOptions& o) {
        o.token_budget = 100;
        o.device_blocks = Engine::blocks_needed(o).value() * 2;
      });
      check("more ranks", [](EngineOptions& o) { o.ranks = 3 * o.model.context_parallel; });
      check("no verifier", [](EngineOptions& o) { o.max_running = 3; });
      for (std::uint64_t steps = 2; steps <= 4; ++steps) {
        check("steps in flight", [&](EngineOptions& o) {
          o.steps_in_flight = steps;
          o.max_running = 3;
          o.device_blocks = Engine::blocks_needed(o).value() * 2;
        });
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(outputs_do_not_depend_on_context_parallel_size) {
  const Rows rows = mixed_rows();
  std::optional<std::uint64_t> digest;
  for (const std::uint64_t cp : {1U, 2U, 4U}) {
    auto full = group(GroupKind::full, 64);
    full.sharded = cp > 1;
    const auto m = model({full, group(GroupKind::state, 64)}, 16, 64 * cp, cp);
    auto engine = engine_for(options_for(m, rows));
    const PassCounters c = run(*engine, rows);
    if (!digest) digest = c.output_digest;
    BOOST_TEST(c.output_digest == *digest);
  }
}

BOOST_AUTO_TEST_CASE(another_seed_gives_other_outputs) {
  const Rows rows = mixed_rows();
  EngineOptions o = options_for(full_model(), rows);
  const std::uint64_t first = run(*engine_for(o), rows).output_digest;
  o.seed = 2;
  BOOST_TEST(run(*engine_for(o), rows).output_digest != first);
}

// the fine tail of a prompt stays reachable whatever its length.
BOOST_DATA_TEST_CASE(a_replayed_prompt_hits_its_last_hash_unit_before_the_end,
                     boost::unit_test::data::make({96, 97, 100, 112, 128, 129, 64, 65, 63, 500}),
                     prompt) {
  const auto p = static_cast<std::uint64_t>(prompt);
  const Rows rows({{p, 4, 0, 0}});
  auto engine = engine_for(options_for(hybrid_model(), rows));
  BOOST_TEST(run(*engine, rows).local_hit_tokens == 0U);
  const PassCounters replay = run(*engine, rows);
  BOOST_TEST(replay.local_hit_tokens == (p - 1) / 16 * 16);
  BOOST_TEST(replay.computed_tokens == p - (p - 1) / 16 * 16);
}

// with retention 0 only the states that a replay needs are kept.
BOOST_AUTO_TEST_CASE(sparse_retention_keeps_the_tail_of_every_prompt) {
  const Rows rows = mixed_rows();
  EngineOptions o = options_for(hybrid_model(), rows);
  const std::uint64_t dense = run(*engine_for(o), rows).output_digest;
  o.retention_tokens = 0;
  auto engine = engine_for(o);
  BOOST_TEST(run(*engine, rows).output_digest == dense);
  std::uint64_t best = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    best += (rows.request(i).prompt_tokens - 1) / 16 * 16;
  }
  BOOST_TEST(run(*engine, rows).local_hit_tokens == best);
}

BOOST_AUTO_TEST_CASE(draft_groups_drop_their_trailing_unit_and_change_no_output) {
  const Rows rows = mixed_rows();
  auto m = hybrid_model();
  m.groups[0].draft = true;
  const std::uint64_t expected =
      run(*engine_for(options_for(hybrid_model(), rows)), rows).output_digest;
  EngineOptions o = options_for(m, rows);
  o.draft_drop = true;
  auto engine = engine_for(o);
  BOOST_TEST(run(*engine, rows).output_digest == expected);
  const PassCounters replay = run(*engine, rows);
  BOOST_TEST(replay.output_digest == expected);
  std::uint64_t best = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    best += (rows.request(i).prompt_tokens - 1) / 16 * 16;
  }
  BOOST_TEST(replay.local_hit_tokens < best);
  BOOST_TEST(replay.local_hit_tokens > best * 3 / 4);
}

BOOST_AUTO_TEST_CASE(recorded_requests_give_the_same_outputs_in_blocks_of_16_and_512_tokens) {
  const auto trace = Trace::open(KVC_CORPUS "/traces/mooncake_conversation.jsonl", 60);
  BOOST_REQUIRE(trace.ok());
  const TraceSource source(trace.value());
  std::optional<std::uint64_t> digest;
  for (const std::uint64_t block : {16U, 512U}) {
    EngineOptions o;
    o.model = model({group(GroupKind::full, block)}, block, block);
    o.max_prompt_tokens = trace.value().totals().longest_prompt_tokens;
    o.max_total_tokens = trace.value().totals().longest_total_tokens;
    o.device_blocks = Engine::blocks_needed(o).value() * 2;
    const PassCounters c = run(*engine_for(o), source);
    BOOST_TEST(c.requests == 60U);
    if (!digest) digest = c.output_digest;
    BOOST_TEST(c.output_digest == *digest);
  }
}

BOOST_AUTO_TEST_CASE(a_follow_up_hits_what_its_conversation_computed_and_decoded) {
  // Turn two is turn one, its output, and a new question.
  EngineOptions o;
  o.model = full_model();
  o.max_prompt_tokens = 400;
  o.max_total_tokens = 450;
  auto engine = engine_for(o);
  std::vector<TokenId> context;
  engine->on_finished([&](const FinishedRequest& f) {
    context.insert(context.end(), f.outputs.begin(), f.outputs.end());
  });
  for (TokenId t = 0; t < 100; ++t) context.push_back(t);
  const auto turn = [&] {
    RequestSpec spec;
    spec.prompt_tokens = context.size();
    spec.output_tokens = 30;
    BOOST_REQUIRE(engine->submit(spec, context).ok());
    while (!engine->step().idle) {
    }
  };
  turn();
  BOOST_TEST(context.size() == 130U);
  for (TokenId t = 0; t < 7; ++t) context.push_back(t + 500);
  turn();
  // 129 tokens have KV: the last sampled one has none.
  BOOST_TEST(engine->counters().local_hit_tokens == 128U);
}

BOOST_AUTO_TEST_CASE(equal_prompts_that_run_together_compute_their_prefix_once) {
  const Rows rows({{320, 5, 320, 1}, {320, 5, 320, 1}, {320, 5, 320, 1}});
  auto engine = engine_for(options_for(full_model(), rows));
  const PassCounters c = run(*engine, rows);
  BOOST_TEST(c.local_hit_tokens == 2 * 304U);
}

// Copies of blocks run before the step's forward. The first turn left a state at 120 and attention
// up to 112. Of two follow-ups the longer computes from 108 on and names its attention block
// [112, 128); the shorter would hit 120 inside that block, in the step that writes it (found by the
// simulation).
BOOST_AUTO_TEST_CASE(a_hit_inside_a_block_is_not_copied_before_the_block_is_written) {
  const auto layout = model({group(GroupKind::full, 16), group(GroupKind::state, 12)}, 4, 48);
  for (const std::uint64_t steps : {1U, 3U}) {
    std::vector<std::vector<TokenId>> outputs[2];
    for (const bool cached : {false, true}) {
      EngineOptions o = options_for(layout, Rows({{148, 8, 0, 0}}));
      o.device_cache = cached;
      o.steps_in_flight = steps;
      auto engine = engine_for(o);
      engine->on_finished([&](const FinishedRequest& r) {
        outputs[cached].emplace_back(r.outputs.begin(), r.outputs.end());
      });
      const auto submit = [&](const std::vector<TokenId>& prompt, std::uint64_t count) {
        RequestSpec spec;
        spec.prompt_tokens = prompt.size();
        spec.output_tokens = count;
        BOOST_REQUIRE(engine->submit(spec, prompt).ok());
      };
      const auto finish = [&] {
        for (int i = 0; i < 1000 && engine->live_requests() > 0; ++i) engine->step();
      };
      std::vector<TokenId> prompt(100);
      for (std::size_t t = 0; t < prompt.size(); ++t)
        prompt[t] = static_cast<TokenId>(t * 7919 + 1);
      submit(prompt, 23);
      finish();
      BOOST_REQUIRE(outputs[cached].size() == 1U);
      prompt.insert(prompt.end(), outputs[cached][0].begin(), outputs[cached][0].end());
      while (prompt.size() < 148) prompt.push_back(static_cast<TokenId>(prompt.size() * 31));
      // Free blocks hold other bytes now.
      submit(std::vector<TokenId>(140, 5), 2);
      finish();
      submit(prompt, 8);
      prompt.resize(130);
      submit(prompt, 8);
      finish();
      BOOST_TEST(engine->counters().mismatched_blocks == 0U, engine->first_mismatch());
    }
    BOOST_CHECK(outputs[0] == outputs[1]);
  }
}

BOOST_AUTO_TEST_CASE(lookups_of_the_device_cache_bisect_the_attention) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    BOOST_TEST_CONTEXT(m.name) {
      bool attention = false;
      for (const auto& g : m.model.groups) attention = attention || g.kind == GroupKind::full;
      EngineOptions o = options_for(m.model, rows);
      o.device_blocks = Engine::blocks_needed(o).value() * 2;
      auto engine = engine_for(o);
      run(*engine, rows);
      run(*engine, rows);
      const DeviceUse use = engine->device_use();
      BOOST_TEST((use.bisections > 0) == attention);
      BOOST_TEST(use.linear_walks * 4 <= use.bisections);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_salt_separates_equal_prompts) {
  EngineOptions o;
  o.model = full_model();
  o.max_prompt_tokens = 100;
  o.max_total_tokens = 120;
  auto engine = engine_for(o);
  std::vector<std::vector<TokenId>> outputs;
  engine->on_finished(
      [&](const FinishedRequest& f) { outputs.emplace_back(f.outputs.begin(), f.outputs.end()); });
  for (const char* salt : {"", "a", "b", "a"}) {
    RequestSpec spec;
    spec.prompt_tokens = 100;
    spec.output_tokens = 8;
    spec.salt = salt;
    BOOST_REQUIRE(engine->submit(spec, std::vector<TokenId>(100, 9)).ok());
    while (!engine->step().idle) {
    }
  }
  BOOST_TEST(engine->counters().local_hit_tokens == 96U);
  BOOST_TEST((outputs[0] != outputs[1] && outputs[1] != outputs[2]));
  BOOST_TEST((outputs[1] == outputs[3]));
}

BOOST_AUTO_TEST_CASE(preemption_storms_change_nothing_but_the_work) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    for (const std::uint64_t steps : {1U, 3U}) {
      BOOST_TEST_CONTEXT(m.name << ", " << steps << " steps in flight") {
        EngineOptions o = options_for(m.model, rows);
        const std::uint64_t calm = run(*engine_for(o), rows).output_digest;
        o.token_budget = 96;
        o.max_running = 6;
        o.steps_in_flight = steps;
        o.device_blocks = Engine::blocks_needed(o).value() * 3;
        auto engine = engine_for(o);
        std::size_t next = 0;
        std::uint64_t finished = 0;
        std::uint64_t turn = 0;
        while (finished < rows.size()) {
          while (next < rows.size() && engine->live_requests() < 8) {
            std::vector<TokenId> prompt;
            rows.expand_prompt(next, prompt);
            BOOST_REQUIRE(engine->submit(rows.request(next), prompt).ok());
            ++next;
          }
          if (++turn % 5 == 0) {
            RequestId id = turn % rows.size() + 1;
            for (std::size_t k = 0; k < rows.size() && !engine->preempt(id); ++k) {
              id = id % rows.size() + 1;
            }
          }
          finished += engine->step().finished;
          const Status status = engine->verify();
          BOOST_REQUIRE_MESSAGE(status.ok(), status.text);
          BOOST_REQUIRE(turn < 20'000);
        }
        while (!engine->step().idle) {
        }
        const PassCounters c = engine->counters();
        BOOST_TEST(c.preemptions > 0U);
        BOOST_TEST(c.mismatched_blocks == 0U, engine->first_mismatch());
        BOOST_TEST(c.output_digest == calm);
        BOOST_TEST(c.prompt_tokens ==
                   c.local_hit_tokens + c.external_hit_tokens + c.computed_tokens);
        check_no_leaks(*engine);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_pool_that_is_too_small_for_all_preempts_and_counts_the_work_done_again) {
  // The device cache is off, so that every preemption costs the whole prefix again.
  const Rows rows({{100, 100, 0, 0}, {100, 100, 0, 0}, {100, 100, 0, 0}});
  EngineOptions o = options_for(full_model(), rows);
  o.device_cache = false;
  o.device_blocks = 28;
  auto engine = engine_for(o);
  const PassCounters c = run(*engine, rows);
  BOOST_TEST(c.preemptions > 0U);
  BOOST_TEST(c.recomputed_tokens >= 100 * c.preemptions);
  BOOST_TEST(c.computed_tokens == 300U);
}

BOOST_AUTO_TEST_CASE(without_the_reserve_long_prompts_start_and_are_preempted) {
  const Rows rows({{300, 8, 0, 0}, {300, 8, 0, 0}, {300, 8, 0, 0}});
  EngineOptions o = options_for(full_model(), rows);
  o.token_budget = 64;
  o.device_blocks = Engine::blocks_needed(o).value() + 12;
  const PassCounters kept = run(*engine_for(o), rows);
  o.reserve = false;
  const PassCounters greedy = run(*engine_for(o), rows);
  BOOST_TEST(kept.preemptions == 0U);
  BOOST_TEST(greedy.preemptions > 0U);
  BOOST_TEST(greedy.output_digest == kept.output_digest);
}

BOOST_AUTO_TEST_CASE(an_aborted_request_leaves_nothing_behind) {
  const Rows rows = mixed_rows();
  for (const std::uint64_t steps : {1U, 2U}) {
    EngineOptions o = options_for(hybrid_model(), rows);
    o.steps_in_flight = steps;
    auto engine = engine_for(o);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::vector<TokenId> prompt;
      rows.expand_prompt(i, prompt);
      const RequestId id = engine->submit(rows.request(i), prompt).value();
      for (std::size_t s = 0; s < i % 6; ++s) engine->step();
      BOOST_TEST(engine->abort(id));
      BOOST_TEST(!engine->abort(id));
      BOOST_REQUIRE(engine->verify().ok());
    }
    while (!engine->step().idle) {
    }
    check_no_leaks(*engine);
    BOOST_TEST(engine->empty_device_cache());
  }
}

BOOST_AUTO_TEST_CASE(emptying_the_device_cache_forgets_every_hit) {
  const Rows rows = mixed_rows();
  auto engine = engine_for(options_for(hybrid_model(), rows));
  run(*engine, rows);
  BOOST_TEST(engine->empty_device_cache());
  EngineOptions o = options_for(hybrid_model(), rows);
  const PassCounters again = run(*engine, rows);
  BOOST_TEST(again.local_hit_tokens == run(*engine_for(o), rows).local_hit_tokens);
}

// Negative controls: what the verifier and the outputs are for.
BOOST_AUTO_TEST_CASE(a_planted_wrong_byte_changes_outputs_and_is_named) {
  for (const NamedModel& m : all_models()) {
    for (GroupId g = 0; g < m.model.groups.size(); ++g) {
      if (m.model.groups[g].kind == GroupKind::other) continue;
      BOOST_TEST_CONTEXT(m.name << ", group " << g) {
        const Rows rows({{200, 10, 0, 0}});
        EngineOptions o = options_for(m.model, rows);
        o.token_budget = 192;
        const std::uint64_t right = run(*engine_for(o), rows).output_digest;
        std::string said;
        o.hooks.log = [&](std::int32_t, std::string_view line) { said = line; };
        auto engine = engine_for(o);
        std::vector<TokenId> prompt;
        rows.expand_prompt(0, prompt);
        const RequestId id = engine->submit(rows.request(0), prompt).value();
        engine->step();
        const std::uint64_t span = engine->geometry().block_tokens(g).n;
        // The newest complete block: inside every window, and the state that the next chunk starts
        // from.
        const std::uint64_t position = 192 / span - 1;
        BOOST_REQUIRE(engine->corrupt_device_byte(id, g, position, 0, 3));
        while (!engine->step().idle) {
        }
        BOOST_TEST(engine->counters().output_digest != right);
        BOOST_TEST(engine->counters().mismatched_blocks > 0U);
        BOOST_TEST(engine->first_mismatch().find("group " + std::to_string(g)) == 0U);
        BOOST_TEST(said == "first wrong block: " + engine->first_mismatch());
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_byte_that_goes_wrong_during_decode_changes_the_outputs_behind_it) {
  const Rows rows({{100, 20, 0, 0}});
  for (const NamedModel& m : all_models()) {
    BOOST_TEST_CONTEXT(m.name) {
      std::vector<TokenId> right;
      std::vector<TokenId> wrong;
      for (const bool plant : {false, true}) {
        auto engine = engine_for(options_for(m.model, rows));
        engine->on_finished([&](const FinishedRequest& f) {
          (plant ? wrong : right).assign(f.outputs.begin(), f.outputs.end());
        });
        std::vector<TokenId> prompt;
        rows.expand_prompt(0, prompt);
        const RequestId id = engine->submit(rows.request(0), prompt).value();
        for (int s = 0; s < 6; ++s) engine->step();
        const GroupId g = static_cast<GroupId>(m.model.groups.size() - 1);
        const std::uint64_t position = 104 / engine->geometry().block_tokens(g).n;
        if (plant) BOOST_REQUIRE(engine->corrupt_device_byte(id, g, position, 0, 0));
        while (!engine->step().idle) {
        }
      }
      BOOST_TEST((right != wrong));
      BOOST_TEST((std::equal(right.begin(), right.begin() + 3, wrong.begin())));
    }
  }
}

BOOST_AUTO_TEST_CASE(options_that_cannot_work_are_one_clear_line) {
  const Rows rows({{100, 20, 0, 0}});
  const auto text = [&](const auto& change) {
    EngineOptions o = options_for(full_model(), rows);
    change(o);
    const auto made = Engine::make(o, {});
    return made.ok() ? std::string() : made.error().text;
  };
  BOOST_TEST(text([](EngineOptions& o) { o.device_blocks = 8; }).find("8 device blocks") == 0U);
  BOOST_TEST(!text([](EngineOptions& o) { o.max_running = 0; }).empty());
  BOOST_TEST(!text([](EngineOptions& o) { o.token_budget = 0; }).empty());
  BOOST_TEST(!text([](EngineOptions& o) { o.steps_in_flight = 0; }).empty());
  BOOST_TEST(!text([](EngineOptions& o) { o.model.context_parallel = 2, o.ranks = 3; }).empty());
  BOOST_TEST(!text([](EngineOptions& o) { o.max_prompt_tokens = 0; }).empty());
  BOOST_TEST(!text([](EngineOptions& o) { o.stepped = true; }).empty());
  BOOST_TEST(!text([](EngineOptions& o) { o.model.groups[0].cacheable = false; }).empty());
  BOOST_TEST(text([](EngineOptions&) {}).empty());
  auto engine = engine_for(options_for(full_model(), rows));
  RequestSpec spec;
  spec.prompt_tokens = 101;
  BOOST_TEST(!engine->submit(spec, std::vector<TokenId>(101)).ok());
}

BOOST_AUTO_TEST_CASE(states_of_both_modes_beside_each_other_give_right_bytes) {
  config::GroupConfig all = group(config::GroupKind::state, 35);
  all.mode = config::StateMode::all;
  all.position_stable = true;
  const auto m = model({all, group(config::GroupKind::state, 25)}, 5, 175);
  const Rows rows({{6, 1, 6, 1}, {6, 1, 6, 1}, {38, 3, 36, 1}, {38, 3, 36, 1}});
  const PassCounters c = run(*engine_for(options_for(m, rows)), rows);
  BOOST_TEST(c.mismatched_blocks == 0U);
}

BOOST_AUTO_TEST_SUITE_END()
