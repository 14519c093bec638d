// What the engine tests share: small models, sources of requests, a run in one line.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/engine.h"

namespace kvc::host::testing {

inline config::GroupConfig group(config::GroupKind kind, std::uint64_t block,
                                 std::uint64_t window = 0) {
  config::GroupConfig g;
  g.name = "g";
  g.kind = kind;
  g.tokens_per_block = block;
  if (kind == config::GroupKind::chunked) {
    g.chunk_tokens = window;
  } else {
    g.window_tokens = window;
  }
  g.cacheable = kind != config::GroupKind::other;
  g.fine_lookup = kind == config::GroupKind::full || kind == config::GroupKind::state;
  g.position_stable = kind != config::GroupKind::state;
  return g;
}

inline config::ModelConfig model(std::vector<config::GroupConfig> groups, std::uint64_t h,
                                 std::uint64_t s, std::uint64_t cp = 1) {
  config::ModelConfig m;
  m.name = "test";
  m.groups = std::move(groups);
  m.hash_unit_tokens = h;
  m.scheduler_block_tokens = s;
  m.context_parallel = cp;
  m.vocabulary = 50'000;
  return m;
}

// Full attention 64 and one state group of 64, hash unit 16: hits inside blocks.
inline config::ModelConfig hybrid_model() {
  return model({group(config::GroupKind::full, 64), group(config::GroupKind::state, 64)}, 16, 64);
}

inline config::ModelConfig full_model() {
  return model({group(config::GroupKind::full, 16)}, 16, 16);
}

struct Row {
  std::uint64_t prompt = 0;
  std::uint64_t output = 0;
  std::uint64_t shared = 0;  // leading tokens taken from the common prefix `base`
  std::uint64_t base = 0;
};

// Rows whose first `shared` tokens are those of prefix `base`, the rest their own.
class Rows final : public RequestSource {
 public:
  explicit Rows(std::vector<Row> rows) : rows_(std::move(rows)) {}
  [[nodiscard]] std::size_t size() const override { return rows_.size(); }
  [[nodiscard]] RequestSpec request(std::size_t i) const override {
    RequestSpec spec;
    spec.prompt_tokens = rows_[i].prompt;
    spec.output_tokens = rows_[i].output;
    return spec;
  }
  void expand_prompt(std::size_t i, std::vector<TokenId>& tokens) const override {
    tokens.resize(rows_[i].prompt);
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      const std::uint64_t origin = t < rows_[i].shared ? rows_[i].base : 1000 + i;
      tokens[t] = static_cast<TokenId>((origin * 1'000'003 + t * 7919) % 1'000'000'007);
    }
  }
  [[nodiscard]] std::uint64_t longest_prompt() const {
    std::uint64_t n = 1;
    for (const Row& r : rows_) n = std::max(n, r.prompt);
    return n;
  }
  [[nodiscard]] std::uint64_t longest_total() const {
    std::uint64_t n = 2;
    for (const Row& r : rows_) n = std::max(n, r.prompt + r.output);
    return n;
  }

 private:
  std::vector<Row> rows_;
};

// Conversations that share prefixes, with lengths around block and chunk borders.
inline Rows mixed_rows() {
  std::vector<Row> rows;
  for (std::uint64_t i = 0; i < 24; ++i) {
    rows.push_back({90 + i * 37 % 200, 3 + i % 40, i % 3 == 0 ? 0 : 60 + i * 11 % 90, i % 2 + 1});
  }
  return Rows(rows);
}

struct NamedModel {
  const char* name;
  config::ModelConfig model;
};

inline std::vector<NamedModel> all_models() {
  auto all_mode = group(config::GroupKind::state, 32);
  all_mode.mode = config::StateMode::all;
  all_mode.position_stable = true;
  auto sharded = group(config::GroupKind::full, 32);
  sharded.sharded = true;
  auto model_cp = model({sharded, group(config::GroupKind::state, 32)}, 16, 64, 2);
  auto wide = model({sharded}, 64, 64, 2);
  wide.cp_interleave_tokens = 16;
  wide.sim_bytes_per_token = 24;
  return {
      {"full", full_model()},
      {"full and state, fine", hybrid_model()},
      {"full and sliding",
       model({group(config::GroupKind::full, 16), group(config::GroupKind::sliding, 16, 50)}, 16,
             16)},
      {"full and chunked",
       model({group(config::GroupKind::full, 16), group(config::GroupKind::chunked, 16, 128)}, 16,
             16)},
      {"sliding alone", model({group(config::GroupKind::sliding, 16, 40)}, 16, 16)},
      {"full and states in all mode",
       model({group(config::GroupKind::full, 32), all_mode}, 32, 32)},
      {"scratch, sliding, full, state",
       model({group(config::GroupKind::other, 16), group(config::GroupKind::sliding, 16, 33),
              group(config::GroupKind::full, 32), group(config::GroupKind::state, 32)},
             16, 32)},
      {"context parallel, full and state", model_cp},
      {"context parallel, interleaved, wide tokens", wide},
  };
}

inline EngineOptions options_for(const config::ModelConfig& model, const Rows& rows) {
  EngineOptions o;
  o.model = model;
  o.max_prompt_tokens = rows.longest_prompt();
  o.max_total_tokens = rows.longest_total();
  return o;
}

inline std::unique_ptr<Engine> engine_for(EngineOptions options,
                                          std::optional<LoadedConnector> connector = {}) {
  auto engine = Engine::make(std::move(options), std::move(connector));
  BOOST_REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().text));
  return std::move(engine).value();
}

inline PassCounters run(Engine& engine, const RequestSource& rows) {
  const auto counters = engine.run(rows);
  BOOST_REQUIRE_MESSAGE(counters.ok(), (counters.ok() ? "" : counters.error().text));
  const PassCounters& c = counters.value();
  BOOST_TEST(c.prompt_tokens == c.local_hit_tokens + c.external_hit_tokens + c.computed_tokens);
  BOOST_TEST(c.mismatched_blocks == 0U, engine.first_mismatch());
  const Status status = engine.verify();
  BOOST_TEST(status.ok(), status.text);
  return c;
}

inline void check_no_leaks(const Engine& engine) {
  const Leaks leaks = engine.leaks();
  BOOST_TEST(leaks.slots == 0U);
  BOOST_TEST(leaks.holds == 0U);
  BOOST_TEST(leaks.leases == 0U);
  BOOST_TEST(leaks.device_blocks == 0U);
}

// The digest of the outputs without a connector.
inline std::uint64_t outputs_alone(const config::ModelConfig& model, const Rows& rows) {
  return run(*engine_for(options_for(model, rows)), rows).output_digest;
}

// check(what, change) for every way to drive an engine that any connector must bear:
// change(options) sets it.
template <class Check>
void in_common_settings(const Check& check) {
  check("plain", [](EngineOptions&) {});
  check("threads", [](EngineOptions& o) { o.stepped = false; });
  check("one at a time", [](EngineOptions& o) { o.max_running = 1; });
  check("verdicts of ranks", [](EngineOptions& o) { o.rank_verdicts = true; });
  check("no block queries", [](EngineOptions& o) { o.block_query = false; });
  check("more ranks", [](EngineOptions& o) { o.ranks = 2 * o.model.context_parallel; });
  check("smallest device pool",
        [](EngineOptions& o) { o.device_blocks = Engine::blocks_needed(o).value(); });
  check("slow copies", [](EngineOptions& o) {
    o.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 5 < 2 ? 1U : 0U; };
  });
  for (std::uint64_t steps = 2; steps <= 4; ++steps) {
    check("steps in flight", [&](EngineOptions& o) {
      o.steps_in_flight = steps;
      o.stepped = steps % 2 == 0;
    });
  }
}

}  // namespace kvc::host::testing
