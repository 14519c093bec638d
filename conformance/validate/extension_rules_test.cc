// Rules of kvc.retention/1 and kvc.layerwise/1 that the layer sees, broken once on either side.
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <deque>

#include "conformance/validate/table.h"
#include "conformance/validate/tests/planted_test.h"

namespace kvc::validate::testing {
namespace {

struct Answer {
  std::vector<std::uint64_t> boundaries;
  std::int32_t mode = KVC_RETENTION_LISTED;
  kvc_status status = KVC_OK;
};
// Of the scripted connector: the last one, and those before it, whose lists must stay as they are.
std::deque<Answer> answers;

kvc_status boundaries(kvc_sched*, const kvc_retention_in*, kvc_retention_out* out) noexcept {
  const Answer& answer = answers.back();
  const kvc_retention_out mine{sizeof mine, answer.mode, answer.boundaries.data(),
                               answer.boundaries.size()};
  return answer.status == KVC_OK ? KVC_WRITE(out, &mine) : answer.status;
}
constexpr kvc_retention_api scripted_table{sizeof scripted_table, 0, boundaries};

const kvc_retention_api& checked() {
  script().extension = [](kvc_bytes) -> const void* { return &scripted_table; };
  return *static_cast<const kvc_retention_api*>(
      checked_extension(KVC_RETENTION_EXTENSION, &scripted_table));
}

Answer ask(Host& h, std::uint64_t id, std::uint64_t begin, Answer with, std::uint32_t flags = 0) {
  answers.push_back(std::move(with));
  const kvc_retention_in in{sizeof in, flags, id, begin};
  kvc_retention_out out{};
  out.struct_size = sizeof out;
  Answer found;
  found.status = checked().boundaries(h.sched, &in, &out);
  found.mode = out.mode;
  if (found.status == KVC_OK) {
    found.boundaries.assign(out.boundaries, out.boundaries + out.n_boundaries);
  }
  return found;
}

const Planted lists[] = {
    {"KVC-P-140", "a boundary inside a hash unit",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{16, 40}});
     }},
    {"KVC-P-140", "a boundary behind the prompt",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{80}});
     }},
    {"KVC-P-140", "a boundary before the begin",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 32, {{16, 48}});
     }},
    {"KVC-P-140", "boundary 0",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{0, 16}});
     }},
    {"KVC-P-140", "boundaries that do not rise",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{32, 16}});
     }},
    {"KVC-P-140", "a list for an engine that may do as it likes",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{16}, KVC_RETENTION_ENGINE});
     }},
    {"KVC-P-140", "the same question, another answer",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{16}});
       ask(h, 1, 0, {{32}});
     }},
    {"KVC-P-140", "a right question is refused",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{}, 0, KVC_E_ARG});
     }},
    {"KVC-P-140", "a begin behind the prompt is taken",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 80, {{}});
     }},
    {"KVC-P-140", "a question of nobody is answered", [](Host& h) { ask(h, 5, 0, {{}}); }, true,
     "KVC-H-023"},
    {"KVC-P-006", "an unknown flag is taken",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{}}, 1U << 30U);
     },
     true, "KVC-H-003"},
    {"KVC-P-004", "a list without data",
     [](Host& h) {
       h.begin(1, 64);
       script().extension = [](kvc_bytes) -> const void* {
         static const kvc_retention_api table{
             sizeof table, 0,
             [](kvc_sched*, const kvc_retention_in*, kvc_retention_out* out) noexcept {
               const kvc_retention_out mine{sizeof mine, KVC_RETENTION_LISTED, nullptr, 3};
               return KVC_WRITE(out, &mine);
             }};
         return &table;
       };
       const kvc_retention_in in{sizeof in, 0, 1, 0};
       kvc_retention_out out{};
       out.struct_size = sizeof out;
       static_cast<const kvc_retention_api*>(
           checked_extension(KVC_RETENTION_EXTENSION, &scripted_table))
           ->boundaries(h.sched, &in, &out);
     }},
    {"KVC-P-016", "a list that changes before the next question",
     [](Host& h) {
       h.begin(1, 64);
       ask(h, 1, 0, {{16, 32}});
       answers.back().boundaries[1] = 48;
       ask(h, 1, 16, {{16, 48}});
     }},
    {"KVC-H-070", "a hand-off in a record that the list does not want",
     [](Host& h) {
       h.begin(1, 64);
       h.alloc(1, 0, {1, 2, 3, 4});
       ask(h, 1, 0, {{64}});
       h.schedule(1, 64, {1, 2, 3, 4});
       h.handoffs = {{sizeof(kvc_handoff), 1, 1, 9, 64}, {sizeof(kvc_handoff), 1, 1, 10, 32}};
       h.build();
     }},
    {"KVC-H-070", "and one at the end",
     [](Host& h) {
       h.begin(1, 64);
       h.alloc(1, 0, {1, 2, 3, 4});
       ask(h, 1, 0, {{}});
       h.schedule(1, 64, {1, 2, 3, 4});
       h.build();
       const kvc_handoff last{sizeof last, 1, 1, 9, 48};
       kvc_end_in in{};
       in.struct_size = sizeof in;
       in.request = 1;
       in.confirmed_tokens = 64;
       in.handoffs = kvc_list_of(&last, 1, sizeof last);
       kvc_end_out out{};
       out.struct_size = sizeof out;
       slots::request_end(h.sched, &in, &out);
     }},
};

// What the scripted connector's kvc.layerwise/1 answers.
struct Layers {
  kvc_status taken = KVC_OK;
  kvc_status fenced = KVC_OK;
  kvc_fence fence{};
};
Layers layers;

constexpr kvc_layerwise_api scripted_layers{
    sizeof scripted_layers, 0,
    [](kvc_sched*, const kvc_load_in_step*) noexcept -> kvc_status { return layers.taken; },
    [](kvc_rank*, std::uint64_t, std::uint32_t, kvc_fence* out) noexcept -> kvc_status {
      if (layers.fenced != KVC_OK) return layers.fenced;
      layers.fence.struct_size = sizeof layers.fence;
      return KVC_WRITE(out, &layers.fence);
    }};

const kvc_layerwise_api& checked_layers(Layers with) {
  layers = with;
  script().extension = [](kvc_bytes) -> const void* { return &scripted_layers; };
  return *static_cast<const kvc_layerwise_api*>(
      checked_extension(KVC_LAYERWISE_EXTENSION, &scripted_layers));
}

kvc_status take(Host& h, std::uint64_t id, kvc_job job, kvc_status answer,
                std::uint32_t flags = 0) {
  const kvc_load_in_step in{sizeof in, flags, id, job};
  return checked_layers({answer, KVC_OK, {}}).load_in_step(h.sched, &in);
}

kvc_status look(Host& h, std::uint64_t step, Layers with) {
  kvc_fence out{};
  out.struct_size = sizeof out;
  return checked_layers(with).layer_fence(h.rank, step, 0, &out);
}

kvc_fence fence_of(std::int32_t kind) {
  kvc_fence fence{};
  fence.kind = kind;
  return fence;
}

const Planted loads_in_step[] = {
    {"KVC-P-141", "the open load is refused",
     [](Host& h) {
       begin_load(h);
       take(h, 1, h.allocated.job, KVC_E_ARG);
     }},
    {"KVC-P-141", "a load that is not the request's is taken",
     [](Host& h) {
       begin_load(h);
       take(h, 1, h.allocated.job + 1, KVC_OK);
     }},
    {"KVC-P-141", "a load that was planned is taken",
     [](Host& h) {
       begin_load(h);
       h.build();
       take(h, 1, h.allocated.job, KVC_OK);
     }},
    {"KVC-P-141", "the load of nobody is taken", [](Host& h) { take(h, 5, 1, KVC_OK); }, true,
     "KVC-H-023"},
    {"KVC-P-141", "a load that was taken is not in the next plan",
     [](Host& h) {
       begin_load(h);
       take(h, 1, h.allocated.job, KVC_OK);
       script().build_store_jobs = [](kvc_sched* s, const kvc_step* in, kvc_plan* out) {
         const kvc_status status = right_api().build_store_jobs(s, in, out);
         change(out, [](kvc_plan& plan) { plan.jobs.count = 0; });
         return status;
       };
       h.build();
     }},
    {"KVC-P-141", "a layer of a plan that was not submitted",
     [](Host& h) {
       begin_load(h);
       h.build();
       look(h, 1, {});
     }},
    {"KVC-P-141", "a layer of step 0", [](Host& h) { look(h, 0, {}); }},
    {"KVC-P-141", "a layer of a submitted plan is refused",
     [](Host& h) {
       h.build();
       h.submit();
       look(h, 1, {KVC_OK, KVC_E_STATE, {}});
     }},
    {"KVC-P-141", "a layer waits for a fence of no kind",
     [](Host& h) {
       h.build();
       h.submit();
       look(h, 1, {KVC_OK, KVC_OK, fence_of(9)});
     }},
    {"KVC-P-141", "a layer waits for a counter at no address",
     [](Host& h) {
       h.build();
       h.submit();
       look(h, 1, {KVC_OK, KVC_OK, fence_of(KVC_FENCE_COUNTER)});
     }},
    {"KVC-P-012", "a status that is none of these functions'",
     [](Host& h) {
       h.build();
       h.submit();
       look(h, 1, {KVC_OK, KVC_MORE, {}});
     }},
    {"KVC-P-006", "an unknown flag is taken",
     [](Host& h) {
       begin_load(h);
       take(h, 1, h.allocated.job, KVC_OK, 1U << 30U);
     },
     true, "KVC-H-003"},
};

BOOST_AUTO_TEST_SUITE(extension_rules)

BOOST_DATA_TEST_CASE(a_wrong_load_in_step_names_its_rule,
                     boost::unit_test::data::make(loads_in_step), p) {
  check(p);
}

// The controls of the rows above: the same calls with right answers.
BOOST_AUTO_TEST_CASE(right_answers_about_loads_in_step_are_handed_through_without_a_finding) {
  Host h;
  h.open();
  begin_load(h);
  const kvc_job job = h.allocated.job;
  BOOST_TEST(take(h, 1, job + 1, KVC_E_ARG) == KVC_E_ARG);
  BOOST_TEST(take(h, 1, job, KVC_LATER) == KVC_LATER);
  BOOST_TEST(take(h, 1, job, KVC_OK) == KVC_OK);
  h.build();
  BOOST_TEST(take(h, 1, job, KVC_E_STATE) == KVC_E_STATE);
  BOOST_TEST(look(h, 1, {KVC_OK, KVC_E_STATE, {}}) == KVC_E_STATE);
  h.submit();
  BOOST_TEST(look(h, 1, {KVC_OK, KVC_LATER, {}}) == KVC_LATER);
  static const std::uint64_t counter = 0;
  kvc_fence waits = fence_of(KVC_FENCE_COUNTER);
  waits.counter = &counter;
  waits.value = 7;
  kvc_fence out{};
  out.struct_size = sizeof out;
  BOOST_TEST(checked_layers({KVC_OK, KVC_OK, waits}).layer_fence(h.rank, 1, 0, &out) == KVC_OK);
  BOOST_TEST(out.counter == &counter);
  BOOST_TEST(out.value == 7U);
  h.progress();
  h.complete();
  h.end(1, 0, {1, 2});
  h.close();
  BOOST_TEST(found_texts() == "");
}

BOOST_DATA_TEST_CASE(a_wrong_list_and_a_wrong_hand_off_name_their_rule,
                     boost::unit_test::data::make(lists), p) {
  check(p);
}

BOOST_AUTO_TEST_CASE(right_questions_and_hand_offs_are_handed_through_without_a_finding) {
  Host h;
  h.open();
  h.begin(1, 64);
  h.alloc(1, 0, {1, 2, 3, 4});
  for (int i = 0; i < 2; ++i) {
    const Answer found = ask(h, 1, 16, {{16, 48, 64}});
    BOOST_TEST(found.status == KVC_OK);
    BOOST_TEST(found.mode == KVC_RETENTION_LISTED);
    BOOST_TEST(found.boundaries == (std::vector<std::uint64_t>{16, 48, 64}),
               boost::test_tools::per_element());
  }
  h.schedule(1, 64, {1, 2, 3, 4});
  h.handoffs = {{sizeof(kvc_handoff), 1, 1, 9, 48}, {sizeof(kvc_handoff), 1, 1, 10, 64}};
  BOOST_TEST(h.step() == KVC_OK);
  // From now on it may do as it likes.
  BOOST_TEST(ask(h, 1, 0, {{}, KVC_RETENTION_ENGINE}).status == KVC_OK);
  h.schedule(1, 64, {1, 2, 3, 4});
  h.handoffs = {{sizeof(kvc_handoff), 1, 1, 11, 32}};
  BOOST_TEST(h.step() == KVC_OK);
  h.end(1, 64, {1, 2, 3, 4});
  h.close();
  BOOST_TEST(found_texts() == "");
}

BOOST_AUTO_TEST_CASE(extensions_that_the_layer_does_not_know_are_the_connectors_own) {
  const int table = 0;
  BOOST_TEST(checked_extension("somebody.else/1", &table) == &table);
}

// Of two connectors behind one layer, one may lack the extension.
BOOST_AUTO_TEST_CASE(a_connector_without_the_extension_answers_that_it_is_unsupported) {
  Host h;
  h.open();
  h.begin(1, 64);
  const kvc_retention_api& table = checked();
  script().extension = [](kvc_bytes) -> const void* { return nullptr; };
  const kvc_retention_in in{sizeof in, 0, 1, 0};
  kvc_retention_out out{};
  out.struct_size = sizeof out;
  BOOST_TEST(table.boundaries(h.sched, &in, &out) == KVC_E_UNSUPPORTED);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate::testing
