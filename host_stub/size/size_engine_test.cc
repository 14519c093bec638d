// The recorded trace on the hybrid example model: what the simulator of kvc-size says is what the
// engine does with the connector (its beginning), and what choosing states gains (all of it).
#include <boost/test/unit_test.hpp>

#include "config/model_config.h"
#include "host_stub/engine/engine.h"
#include "host_stub/engine/layout.h"
#include "host_stub/engine/trace_source.h"
#include "host_stub/loader/loader.h"
#include "host_stub/size/size_simulator.h"

namespace kvc::host {
namespace {

constexpr std::size_t rows = 400;

config::ModelConfig example_model() {
  const std::string path = KVC_SOURCE_DIR "/config/examples/models/qwen3.5-4b.toml";
  const auto text = config::read_text_file(path);
  BOOST_REQUIRE(text.ok());
  auto model = config::parse_model(text.value(), path);
  BOOST_REQUIRE_MESSAGE(model.ok(), (model.ok() ? "" : model.error().text));
  return std::move(model.value());
}

Trace recorded(std::size_t limit) {
  auto trace =
      Trace::open(KVC_CORPUS "/traces/mooncake_conversation.jsonl", limit, Turns::continued);
  BOOST_REQUIRE_MESSAGE(trace.ok(), (trace.ok() ? "" : trace.error().text));
  return std::move(trace.value());
}

struct Setting {
  const char* eviction;
  Eviction policy;
  const char* states;
  StateRule rule;
  std::uint64_t slots;
  std::uint64_t token_budget = 8192;
};

struct Ran {
  std::uint64_t hit_tokens = 0;
  std::uint64_t stored = 0;
};

// One request after the other, no device cache.
Ran run_engine(const config::ModelConfig& model, const Trace& trace, const Setting& s) {
  auto connector = load_connector(KVC_LIB_DIR "/libkvc_simple_cpu.so");
  BOOST_REQUIRE(connector.ok());
  EngineOptions o;
  o.model = model;
  o.max_prompt_tokens = trace.totals().longest_prompt_tokens;
  o.max_total_tokens = trace.totals().longest_total_tokens;
  o.device_blocks = Engine::blocks_needed(o).value() * 2;
  o.device_cache = false;
  o.max_running = 1;
  o.token_budget = s.token_budget;
  o.hooks.log = [](std::int32_t level, std::string_view line) {
    BOOST_TEST(level < KVC_LOG_ERROR, line);
  };
  o.connector_toml = std::string("[connector]\nstates = \"") + s.states + "\"\neviction = \"" +
                     s.eviction + "\"\n[host]\nblocks = " + std::to_string(s.slots) + "\n";
  auto engine = Engine::make(o, std::move(connector).value());
  BOOST_REQUIRE_MESSAGE(engine.ok(), (engine.ok() ? "" : engine.error().text));
  const TraceSource source(trace);
  const auto counters = engine.value()->run(source);
  BOOST_REQUIRE_MESSAGE(counters.ok(), (counters.ok() ? "" : counters.error().text));
  BOOST_TEST(counters.value().mismatched_blocks == 0U, engine.value()->first_mismatch());
  BOOST_TEST(counters.value().requests == trace.size());
  BOOST_TEST(engine.value()->peer_faults() == 0U);
  BOOST_TEST(engine.value()->connector_failure() == "");
  return {counters.value().external_hit_tokens, counters.value().stored_blocks};
}

BOOST_AUTO_TEST_SUITE(size_engine)

BOOST_AUTO_TEST_CASE(the_engine_hits_what_the_simulator_says_with_states_of_every_rule) {
  const config::ModelConfig model = example_model();
  const Trace trace = recorded(rows);
  const auto geometry = geometry_of(model);
  BOOST_REQUIRE(geometry.ok());
  const SizeTrace keys(trace, geometry.value().hash_unit());
  std::uint64_t dense = 0;
  // A state exists where a chunk ends: dense is one block a step.
  for (const Setting& s : {Setting{"lru", Eviction::lru, "dense", StateRule::dense, 9000, 784},
                           Setting{"lru", Eviction::lru, "tail", StateRule::tail, 3000},
                           Setting{"lru", Eviction::lru, "auto", StateRule::automatic, 3000},
                           Setting{"auto", Eviction::hazard, "auto", StateRule::automatic, 3000}}) {
    BOOST_TEST_CONTEXT(s.eviction << ", states " << s.states) {
      auto simulator = SizeSimulator::make(geometry.value(), keys, {s.policy, s.slots, s.rule});
      BOOST_REQUIRE(simulator.ok());
      const SizeCounts expected = simulator.value()->run();
      const Ran ran = run_engine(model, trace, s);
      BOOST_TEST(ran.hit_tokens > 0U);
      BOOST_TEST_MESSAGE(s.eviction << "/" << s.states << ": " << ran.hit_tokens
                                    << " hit, simulator " << expected.hit_tokens << "; stored "
                                    << ran.stored << ", " << expected.stored);
      if (s.policy == Eviction::lru) {
        BOOST_TEST(ran.hit_tokens == expected.hit_tokens);
      } else {
        // Which half of the entries is sampled depends on the keys.
        const auto whole = static_cast<double>(trace.totals().prompt_tokens);
        BOOST_TEST(std::abs(static_cast<double>(ran.hit_tokens) -
                            static_cast<double>(expected.hit_tokens)) < whole * 0.01);
      }
      if (s.rule == StateRule::dense) dense = ran.stored;
      if (s.rule != StateRule::dense) BOOST_TEST(ran.stored < dense);
    }
  }
}

// Hit rates in tenths of a percent: at least so much more than dense states under lru.
BOOST_AUTO_TEST_CASE(states_and_eviction_auto_gain_what_is_promised_and_write_less) {
  const config::ModelConfig model = example_model();
  const auto geometry = geometry_of(model);
  BOOST_REQUIRE(geometry.ok());
  const SizeTrace trace(recorded(Trace::no_limit), geometry.value().hash_unit());
  const auto run = [&](const SizeSetup& setup) {
    auto simulator = SizeSimulator::make(geometry.value(), trace, setup);
    BOOST_REQUIRE(simulator.ok());
    return simulator.value()->run();
  };
  const std::uint64_t all = run({}).entries;
  struct Promise {
    std::uint64_t percent;
    double more;
  };
  for (const Promise& p : {Promise{5, 0.10}, Promise{10, 0.07}, Promise{20, 0.02}}) {
    const std::uint64_t slots = all * p.percent / 100;
    const SizeCounts dense = run({Eviction::lru, slots, StateRule::dense});
    const SizeCounts chosen = run({Eviction::hazard, slots, StateRule::automatic});
    BOOST_TEST_MESSAGE(p.percent << " %: " << dense.ratio() << ", " << chosen.ratio()
                                 << "; written " << dense.stored << ", " << chosen.stored);
    BOOST_TEST(chosen.ratio() >= dense.ratio() + p.more);
    BOOST_TEST(chosen.stored < dense.stored);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
