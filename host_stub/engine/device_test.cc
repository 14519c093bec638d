// The engine on a fake CUDA device with both connectors, three steps in flight: right outputs on
// all example models, and no access to memory without its order.
#include <cstdlib>
#include <filesystem>

#include <boost/test/unit_test.hpp>

#include "host_stub/engine/connector_run.h"

using kvc::Status;
using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const std::string fake = std::string(KVC_LIB_DIR) + "/libkvc_fake_cuda.so";

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::vector<std::pair<std::string, kvc::config::ModelConfig>> example_models() {
  std::vector<std::pair<std::string, kvc::config::ModelConfig>> out;
  for (const auto& entry :
       std::filesystem::directory_iterator(KVC_SOURCE_DIR "/config/examples/models")) {
    const auto text = kvc::config::read_text_file(entry.path().string());
    BOOST_REQUIRE(text.ok());
    auto model = kvc::config::parse_model(text.value(), entry.path().string());
    BOOST_REQUIRE(model.ok());
    out.emplace_back(entry.path().stem().string(), std::move(model.value()));
  }
  BOOST_REQUIRE(out.size() == 5U);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

// Two conversations and a stranger, a few blocks long, whatever a block is.
Rows rows_for(const kvc::config::ModelConfig& model) {
  std::uint64_t block = model.scheduler_block_tokens;
  for (const auto& g : model.groups) block = std::max(block, g.tokens_per_block);
  std::vector<Row> rows;
  for (std::uint64_t i = 0; i < 4; ++i) {
    rows.push_back({block * 2 + block / 2 + i * 5, 4 + i, block * 2, i % 2 + 1});
  }
  rows.push_back({block + 3, 3, 0, 0});
  return Rows(rows);
}

struct DeviceRun : ConnectorRun {
  DeviceRun(const kvc::config::ModelConfig& model, const Rows& rows, std::uint64_t seed,
            const std::string& toml = {})
      : ConnectorRun(model, rows,
                     "[host]\nblocks = 256\n[cuda]\ndriver = \"" + fake + "\"\n" + toml) {
    options.token_budget = model.scheduler_block_tokens * 2;
    options.device_blocks = Engine::blocks_needed(options).value() * 2;
    options.steps_in_flight = 3;
    options.hooks.log = [this, log = options.hooks.log](std::int32_t level, std::string_view line) {
      log(level, line);
      if (line.find("copies by CUDA device 0") != std::string_view::npos) said = true;
    };
    options.cuda_driver = fake;
    options.device_seed = seed;
  }
  ~DeviceRun() { engine.reset(); }  // it still logs
  bool said = false;
};

void passes(DeviceRun& r, const Rows& rows, const std::string& name, std::uint64_t expected) {
  r.engine = engine_for(r.options, built_connector(name));
  std::uint64_t loaded = 0;
  for (int pass = 0; pass < 2; ++pass) {
    const PassCounters c = run(*r.engine, rows);
    BOOST_TEST(c.output_digest == expected);
    loaded += c.loaded_blocks;
    r.check_quiet();
    BOOST_TEST(r.engine->empty_device_cache());
  }
  BOOST_TEST(loaded != 0U);
  BOOST_TEST(r.said);
}

BOOST_AUTO_TEST_SUITE(engine_on_device)

BOOST_AUTO_TEST_CASE(all_example_models_give_right_outputs_over_seeds_with_three_steps_in_flight) {
  const std::uint64_t first = number_from("KVC_SEED", 1);
  const std::uint64_t count = number_from("KVC_DEVICE_SEEDS", 4);
  for (const auto& [name, model] : example_models()) {
    const Rows rows = rows_for(model);
    const std::uint64_t expected = outputs_alone(model, rows);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
      for (const char* library : {"simple_cpu", "offloading"}) {
        BOOST_TEST_CONTEXT(name << ", " << library << ", seed " << seed << "; to repeat: KVC_SEED="
                                << seed << " KVC_DEVICE_SEEDS=1 kvc_host_device_test") {
          DeviceRun r(model, rows, seed);
          passes(r, rows, library, expected);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(every_way_of_copying_and_of_driving_gives_the_same_outputs) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    std::uint64_t seed = 0;
    for (const char* path : {"auto", "batch", "loop", "kernel"}) {
      for (const bool stepped : {true, false}) {
        BOOST_TEST_CONTEXT(m.name << ", " << path << (stepped ? ", stepped" : ", threads")) {
          DeviceRun r(m.model, rows, ++seed, std::string("copy_path = \"") + path + "\"\n");
          r.options.stepped = stepped;
          if (!stepped) r.options.hooks.now_ns = nullptr;
          r.options.rank_verdicts = seed % 3 == 0;
          passes(r, rows, seed % 2 == 0 ? "simple_cpu" : "offloading", expected);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(aborts_and_preemptions_at_any_moment_leave_no_race_behind) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    BOOST_TEST_CONTEXT(m.name) {
      DeviceRun r(m.model, rows, 7);
      r.options.hooks.pump_budget = [n = 0U](std::uint32_t) mutable { return ++n % 4; };
      const auto engine = engine_for(r.options, built_connector("simple_cpu"));
      std::uint64_t turn = 0;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::vector<TokenId> prompt;
        rows.expand_prompt(i, prompt);
        const RequestId id = engine->submit(rows.request(i), prompt).value();
        while (engine->live_requests() > 6 || turn % 3 != 0) {
          engine->step();
          const Status status = engine->verify();
          BOOST_REQUIRE_MESSAGE(status.ok(), status.text);
          if (++turn % 4 == 0) engine->preempt(id - turn % 5);
        }
        if (i % 5 == 0) engine->abort(id - 2);
        if (i % 7 == 0) engine->abort(id);
        ++turn;
      }
      while (!engine->step().idle) BOOST_REQUIRE(++turn < 100'000);
      BOOST_TEST(engine->counters().mismatched_blocks == 0U, engine->first_mismatch());
      const Status status = engine->verify();
      BOOST_TEST(status.ok(), status.text);
      BOOST_TEST(r.bad_lines == "");
      check_no_leaks(*engine);
    }
  }
}

BOOST_AUTO_TEST_CASE(control_an_engine_without_fences_is_found_out) {
  const Rows rows = mixed_rows();
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    DeviceRun r(full_model(), rows, seed);
    r.options.device_without_fences = true;
    const auto engine = engine_for(r.options, built_connector("simple_cpu"));
    const auto counters = engine->run(rows);
    BOOST_REQUIRE(!counters.ok());
    BOOST_TEST(counters.error().text.find("race") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_connector_without_the_driver_refuses_the_regions_by_name) {
  const Rows rows({{100, 4, 0, 0}});
  DeviceRun r(full_model(), rows, 1);
  r.options.connector_toml = "[cuda]\ndriver = \"/nowhere/libcuda.so\"\n";
  const auto made = Engine::make(r.options, built_connector("simple_cpu"));
  BOOST_REQUIRE(!made.ok());
  BOOST_TEST(made.error().text.find("/nowhere/libcuda.so") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_driver_that_is_not_the_fake_is_refused) {
  const Rows rows({{100, 4, 0, 0}});
  DeviceRun r(full_model(), rows, 1);
  r.options.cuda_driver = "libm.so.6";
  const auto made = Engine::make(r.options, {});
  BOOST_REQUIRE(!made.ok());
  BOOST_TEST(made.error().text.find("libm.so.6") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
