// kvc.retention/1 between the engine and both connectors: which states are handed off, where chunks
// end, what hits, and that outputs stay as they are.
#include <boost/test/unit_test.hpp>

#include <kvc/kvc_retention.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/connector_run.h"

using namespace kvc::host;
using namespace kvc::host::testing;

namespace {

const std::vector<std::string> connectors{"simple_cpu", "offloading"};

struct Run : ConnectorRun {
  Run(const kvc::config::ModelConfig& model, const Rows& rows, const std::string& states,
      const std::string& more = "")
      : ConnectorRun(
            model, rows,
            "[connector]\nstates = \"" + states + "\"\n" + more + "[host]\nunlimited = true\n") {}
  PassCounters pass(const Rows& rows, const std::string& connector) {
    if (engine == nullptr) engine = engine_for(options, built_connector(connector));
    const PassCounters c = run(*engine, rows);
    check_quiet();
    BOOST_TEST(engine->empty_device_cache());
    return c;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(retention)

BOOST_AUTO_TEST_CASE(outputs_are_those_without_a_connector_whatever_states_are_kept) {
  const Rows rows = mixed_rows();
  for (const NamedModel& m : all_models()) {
    const std::uint64_t expected = outputs_alone(m.model, rows);
    for (const std::string& name : connectors) {
      for (const char* states : {"tail", "auto"}) {
        const auto check = [&](const char* what, const auto& change) {
          BOOST_TEST_CONTEXT(m.name << ", " << name << ", " << states << ", " << what) {
            Run r(m.model, rows, states);
            change(r.options);
            for (int pass = 0; pass < 2; ++pass) {
              const PassCounters c = r.pass(rows, name);
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
  }
}

// Three prompts that part: the second one computes past that place, and leaves a state there; so
// the third one hits. At 203 tokens that is the end of a block of 64, at 217 the inside of one, of
// which the attention is stored too.
BOOST_AUTO_TEST_CASE(the_second_prompt_that_passes_leaves_a_state_where_prompts_part) {
  struct Part {
    std::uint64_t shared;
    std::uint64_t hit;
    std::uint64_t third;  // tokens
  };
  for (const Part& p : {Part{203, 192, 280}, Part{217, 208, 280}, Part{217, 208, 230}}) {
    const Rows two({{330, 4, p.shared, 1}, {300, 4, p.shared, 1}});
    const Rows third({{16, 1, 0, 9}, {16, 1, 0, 9}, {p.third, 4, p.shared, 1}});
    const std::uint64_t expected = outputs_alone(hybrid_model(), third);
    for (const std::string& name : connectors) {
      for (const bool cache : {false, true}) {
        for (const std::uint64_t steps : {1U, 3U}) {
          BOOST_TEST_CONTEXT(name << (cache ? ", device cache" : "") << ", steps " << steps
                                  << ", shared " << p.shared) {
            const auto hits = [&](const char* states) {
              Run r(hybrid_model(), two, states);
              r.options.device_cache = cache;
              r.options.max_running = 1;
              r.options.steps_in_flight = steps;
              BOOST_TEST(r.pass(two, name).external_hit_tokens == 0U);
              const PassCounters c = r.pass(third, name);
              BOOST_TEST(c.output_digest == expected);
              return c.external_hit_tokens;
            };
            BOOST_TEST(hits("tail") == 0U);
            BOOST_TEST(hits("auto") == p.hit);
          }
        }
      }
    }
  }
}

// blocks 1, 2, 4, 8 under auto eviction: a prompt that parts from one earlier one behind 300 tokens
// hits there.
BOOST_AUTO_TEST_CASE(under_auto_eviction_states_stand_at_blocks_of_powers_of_two_too) {
  const Rows rows({{1000, 2, 1000, 1}, {400, 2, 300, 1}});
  for (const std::string& name : connectors) {
    const auto hits = [&](const char* eviction) {
      Run r(hybrid_model(), rows, "auto", "eviction = \"" + std::string(eviction) + "\"\n");
      r.options.device_cache = false;
      r.options.max_running = 1;
      return r.pass(rows, name).external_hit_tokens;
    };
    BOOST_TEST(hits("lru") == 0U, name);
    BOOST_TEST(hits("auto") == 256U, name);
  }
}

BOOST_AUTO_TEST_CASE(fewer_states_are_stored_and_an_engine_that_does_not_ask_hands_off_all) {
  const Rows rows({{1000, 2, 0, 0}, {900, 2, 0, 0}});
  for (const std::string& name : connectors) {
    BOOST_TEST_CONTEXT(name) {
      const auto handoffs = [&](const char* states, bool asks) {
        Run r(hybrid_model(), rows, states);
        r.options.ask_retention = asks;
        r.options.device_cache = false;
        r.pass(rows, name);
        BOOST_TEST(r.stat("retention_questions") == (asks ? 2U : 0U));
        BOOST_TEST(r.stat("retention_boundaries") ==
                   (asks && std::string(states) != "dense" ? 2U : 0U));
        const kvc_offer_counts c = r.engine->boundary_stats().handoffs;
        BOOST_TEST(c.published == c.stored);
        return c.stored;
      };
      BOOST_TEST(handoffs("tail", true) == 2U);
      const std::uint64_t dense = handoffs("dense", true);
      BOOST_TEST(dense > 10U);
      BOOST_TEST(handoffs("dense", false) == dense);
      BOOST_TEST(handoffs("tail", false) == dense);
      BOOST_TEST(handoffs("auto", false) == dense);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_layout_without_states_is_told_so_once) {
  const Rows rows({{100, 2, 0, 0}});
  for (const std::string& name : connectors) {
    Run r(full_model(), rows, "auto");
    r.pass(rows, name);
    BOOST_TEST(r.engine->explain(0).find("chooses among states that are handed off") !=
               std::string::npos);
    BOOST_TEST(r.stat("retention_boundaries") == 0U);
  }
}

BOOST_AUTO_TEST_CASE(the_extension_is_a_table_of_its_own_with_a_size) {
  for (const std::string& name : connectors) {
    const LoadedConnector c = built_connector(name);
    const auto* const table = static_cast<const kvc_retention_api*>(
        c.api.extension(kvc_text_of(KVC_RETENTION_EXTENSION)));
    BOOST_REQUIRE(table != nullptr);
    BOOST_TEST(table->struct_size == sizeof(kvc_retention_api));
    BOOST_TEST(c.api.extension(kvc_text_of(KVC_RETENTION_EXTENSION)) == table);
    BOOST_TEST(c.api.extension(kvc_text_of("kvc.retention/2")) == nullptr);
    kvc_retention_in in{};
    kvc_retention_out out{};
    BOOST_TEST(table->boundaries(nullptr, &in, &out) == KVC_E_ARG);
  }
}

BOOST_AUTO_TEST_SUITE_END()
