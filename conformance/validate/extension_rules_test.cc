// Rules of kvc.retention/1 that the layer sees, broken once on either side.
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

BOOST_AUTO_TEST_SUITE(extension_rules)

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
