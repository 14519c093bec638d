// kvc.layerwise/1 between the engine and both connectors: requests run in the step of their load,
// outputs stay as they are, also when loads fail; and controls, which leave a wait out.
#include <boost/test/unit_test.hpp>

#include <kvc/kvc_fault.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/connector_run.h"

using kvc::Status;
using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const std::vector<std::string> connectors{"simple_cpu", "offloading"};
const std::string fake = std::string(KVC_LIB_DIR) + "/libkvc_fake_cuda.so";

struct Layered : ConnectorRun {
  Layered(const kvc::config::ModelConfig& model, const Rows& rows, std::uint64_t layers)
      : ConnectorRun(model, rows, "[host]\nblocks = 512\n") {
    options.layers = layers;
    options.loads_in_step = true;
  }
  void on_device(std::uint64_t seed) {
    options.cuda_driver = fake;
    options.device_seed = seed;
    options.connector_toml += "[cuda]\ndriver = \"" + fake + "\"\n";
  }
  Engine& open(const std::string& connector) {
    if (engine == nullptr) engine = engine_for(options, built_connector(connector));
    return *engine;
  }
};

std::uint64_t alone(const kvc::config::ModelConfig& model, const Rows& rows, std::uint64_t layers) {
  EngineOptions o = options_for(model, rows);
  o.layers = layers;
  return run(*engine_for(o), rows).output_digest;
}

// Two passes with empty device caches between; the requests that ran in the step of their load.
std::uint64_t two_passes(Layered& l, const Rows& rows, const std::string& connector,
                         std::uint64_t expected) {
  std::uint64_t in_step = 0;
  std::uint64_t external = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const PassCounters c = run(l.open(connector), rows);
    BOOST_TEST(c.output_digest == expected);
    BOOST_TEST(c.failed_loads == 0U);
    in_step += c.loads_in_step;
    external += c.external_hit_tokens;
    l.check_quiet();
    BOOST_TEST(l.engine->empty_device_cache());
  }
  BOOST_TEST(external > 0U);
  BOOST_TEST(l.stat("loads_in_step") >= in_step);
  return in_step;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layerwise)

BOOST_AUTO_TEST_CASE(layers_are_words_of_their_own_and_one_layer_is_as_none) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    BOOST_TEST(alone(m.model, rows, 1) == outputs_alone(m.model, rows));
    BOOST_TEST(alone(m.model, rows, 3) != alone(m.model, rows, 2));
  }
}

BOOST_AUTO_TEST_CASE(outputs_are_those_without_a_connector_when_requests_run_with_their_loads) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = alone(m.model, rows, 3);
    for (const std::string& name : connectors) {
      const auto check = [&](const char* what, const auto& change) {
        BOOST_TEST_CONTEXT(m.name << ", " << name << ", " << what) {
          Layered l(m.model, rows, 3);
          change(l.options);
          BOOST_TEST(two_passes(l, rows, name, expected) > 0U);
        }
      };
      in_common_settings(check);
      check("no device cache", [](EngineOptions& o) { o.device_cache = false; });
      check("no reserve", [](EngineOptions& o) { o.reserve = false; });
    }
  }
}

BOOST_AUTO_TEST_CASE(a_model_of_one_layer_runs_in_the_step_of_its_load_too) {
  const Rows rows = mixed_rows();
  Layered l(hybrid_model(), rows, 1);
  BOOST_TEST(two_passes(l, rows, "simple_cpu", outputs_alone(hybrid_model(), rows)) > 0U);
}

BOOST_AUTO_TEST_CASE(on_a_device_each_layer_is_waited_for_by_its_stream) {
  const Rows rows = mixed_rows();
  std::uint64_t seed = 0;
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = alone(m.model, rows, 4);
    for (const std::string& name : connectors) {
      for (const std::uint64_t steps : {1U, 3U}) {
        for (const char* path : {"auto", "loop"}) {
          BOOST_TEST_CONTEXT(m.name << ", " << name << ", " << path << ", steps " << steps
                                    << ", seed " << seed + 1) {
            Layered l(m.model, rows, 4);
            l.on_device(++seed);
            l.options.connector_toml += std::string("copy_path = \"") + path + "\"\n";
            l.options.steps_in_flight = steps;
            l.options.stepped = seed % 4 != 0;
            if (!l.options.stepped) l.options.hooks.now_ns = nullptr;
            l.options.rank_verdicts = seed % 3 == 0;
            if (seed % 5 == 0) {
              l.options.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 3; };
            }
            BOOST_TEST(two_passes(l, rows, name, expected) > 0U);
          }
        }
      }
    }
  }
}

// A copy that fails fails its load: what the step made of it is thrown away and made again.
BOOST_AUTO_TEST_CASE(loads_in_step_that_fail_are_computed_again) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = alone(m.model, rows, 2);
    for (const std::string& name : connectors) {
      for (const std::uint64_t steps : {1U, 3U}) {
        for (const bool device : {false, true}) {
          BOOST_TEST_CONTEXT(m.name << ", " << name << ", steps " << steps
                                    << (device ? ", on the device" : "")) {
            Layered l(m.model, rows, 2);
            if (device) l.on_device(steps);
            l.options.steps_in_flight = steps;
            const LoadedConnector c = built_connector(name);
            const auto* const faults =
                static_cast<const kvc_test_api*>(c.api.extension(kvc_text_of(KVC_TEST_EXTENSION)));
            if (faults == nullptr) continue;  // built without fault points
            l.engine = engine_for(l.options, c);
            run(*l.engine, rows);
            BOOST_TEST(l.engine->empty_device_cache());
            std::uint64_t calls = 0;
            const std::string point = "copy.load";
            l.engine->on_finished([&](const FinishedRequest&) {
              const bool destination = ++calls % 2 == 0;
              const std::string at = destination ? point + "_destination" : point;
              faults->set_fault(kvc_bytes_of(at.data(), at.size()), calls % 7);
            });
            faults->set_fault(kvc_bytes_of(point.data(), point.size()), 2);
            const PassCounters again = run(*l.engine, rows);
            faults->clear_faults();
            BOOST_TEST(again.output_digest == expected);
            BOOST_TEST(again.failed_loads > 0U);
            BOOST_TEST(l.engine->peer_faults() == 0U);
            BOOST_TEST(l.engine->connector_failure() == "");
            check_no_leaks(*l.engine);
            BOOST_TEST(l.engine->boundary_stats().all_offers.pending == 0U);
          }
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(aborts_and_preemptions_at_any_moment_leave_nothing_behind) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    for (const bool device : {false, true}) {
      BOOST_TEST_CONTEXT(m.name << (device ? ", on the device" : "")) {
        Layered l(m.model, rows, 3);
        if (device) l.on_device(11);
        l.options.steps_in_flight = 3;
        l.options.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 4; };
        Engine& engine = l.open("simple_cpu");
        std::uint64_t turn = 0;
        for (std::size_t round = 0; round < 2; ++round) {
          for (std::size_t i = 0; i < rows.size(); ++i) {
            std::vector<TokenId> prompt;
            rows.expand_prompt(i, prompt);
            const RequestId id = engine.submit(rows.request(i), prompt).value();
            while (engine.live_requests() > 6 || turn % 3 != 0) {
              engine.step();
              const Status status = engine.verify();
              BOOST_REQUIRE_MESSAGE(status.ok(), status.text);
              if (++turn % 4 == 0) engine.preempt(id - turn % 5);
              if (turn % 9 == 0) engine.abort(id - turn % 4);
            }
            ++turn;
          }
          while (!engine.step().idle) BOOST_REQUIRE(++turn < 100'000);
          BOOST_TEST(engine.empty_device_cache());
        }
        BOOST_TEST(engine.counters().loads_in_step > 0U);
        BOOST_TEST(engine.counters().mismatched_blocks == 0U, engine.first_mismatch());
        BOOST_TEST(engine.peer_faults() == 0U);
        BOOST_TEST(l.bad_lines == "");
        check_no_leaks(engine);
      }
    }
  }
}

// The copies are slow, and the forward does not wait for one layer.
BOOST_AUTO_TEST_CASE(control_a_forward_that_does_not_wait_for_a_layer_is_found_out) {
  const Rows rows = mixed_rows();
  for (std::uint64_t layer = 0; layer < 3; ++layer) {
    for (const bool device : {false, true}) {
      BOOST_TEST_CONTEXT("layer " << layer << (device ? ", on the device" : "")) {
        Layered l(full_model(), rows, 3);
        if (device) l.on_device(layer + 1);
        l.options.layer_without_wait = layer;
        l.options.hooks.pump_budget = [n = 0U](std::uint32_t) mutable {
          return ++n % 7 == 0 ? 1000U : 0U;
        };
        Engine& engine = l.open("simple_cpu");
        std::uint64_t wrong = 0;
        std::string races;
        for (int pass = 0; pass < 2 && races.empty(); ++pass) {
          const auto counters = engine.run(rows);
          if (counters.ok()) wrong += counters.value().mismatched_blocks;
          if (!counters.ok()) races = counters.error().text;
          engine.empty_device_cache();
        }
        if (device) {
          BOOST_TEST(races.find("race") != std::string::npos, races);
        } else {
          BOOST_TEST(races == "");
          BOOST_TEST(wrong > 0U);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_connector_without_the_extension_is_named_and_loads_are_waited_for) {
  const Rows rows = mixed_rows();
  const std::uint64_t expected = alone(full_model(), rows, 2);
  Layered l(full_model(), rows, 2);
  LoadedConnector c = built_connector("simple_cpu");
  c.api.extension = [](kvc_bytes) noexcept -> const void* { return nullptr; };
  std::string warned;
  l.options.hooks.log = [&](std::int32_t level, std::string_view line) {
    if (level == KVC_LOG_WARN) warned += line;
  };
  l.engine = engine_for(l.options, c);
  for (int pass = 0; pass < 2; ++pass) {
    const PassCounters counters = run(*l.engine, rows);
    BOOST_TEST(counters.output_digest == expected);
    BOOST_TEST(counters.loads_in_step == 0U);
    BOOST_TEST(l.engine->empty_device_cache());
  }
  BOOST_TEST(warned.find(KVC_LAYERWISE_EXTENSION) != std::string::npos, warned);
}

BOOST_AUTO_TEST_CASE(the_extension_is_a_table_of_its_own_with_a_size) {
  for (const std::string& name : connectors) {
    const LoadedConnector c = built_connector(name);
    const auto* const table = static_cast<const kvc_layerwise_api*>(
        c.api.extension(kvc_text_of(KVC_LAYERWISE_EXTENSION)));
    BOOST_REQUIRE(table != nullptr);
    BOOST_TEST(table->struct_size == sizeof(kvc_layerwise_api));
    BOOST_TEST(c.api.extension(kvc_text_of("kvc.layerwise/2")) == nullptr);
    kvc_load_in_step in{};
    kvc_fence out{};
    BOOST_TEST(table->load_in_step(nullptr, &in) == KVC_E_ARG);
    BOOST_TEST(table->layer_fence(nullptr, 1, 0, &out) == KVC_E_ARG);
  }
}

BOOST_AUTO_TEST_CASE(layers_out_of_range_are_refused) {
  const Rows rows({{16, 1, 0, 0}});
  for (const std::uint64_t layers : {0U, 65U}) {
    EngineOptions o = options_for(full_model(), rows);
    o.layers = layers;
    const auto made = Engine::make(o, {});
    BOOST_REQUIRE(!made.ok());
    BOOST_TEST(made.error().text.find("layers") != std::string::npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()
