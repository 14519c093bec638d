// Room for answers, in every slot that has some: where there is none, the host's mistake is the
// only finding, and a connector that refuses is right.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "conformance/validate/table.h"
#include "conformance/validate/tests/planted_test.h"

namespace kvc::validate::testing {
namespace {

// The connector refuses the slot.
#define KVC_REFUSES(slot) script().slot = [](auto&&...) -> kvc_status { return KVC_E_ARG; }

template <class T>
T of_size(std::uint32_t bytes) {
  T out{};
  out.struct_size = bytes;
  return out;
}

void no_room_for_lookup(Host& h) {
  h.begin(1, 32);
  kvc_lookup_in in{};
  in.struct_size = sizeof in;
  in.request = 1;
  in.total_tokens = 32;
  auto out = of_size<kvc_lookup_out>(4);
  KVC_REFUSES(lookup);
  slots::lookup(h.sched, &in, &out);
}

void no_room_for_alloc(Host& h) {
  h.begin(1, 32);
  kvc_alloc_in in{};
  in.struct_size = sizeof in;
  in.request = 1;
  KVC_REFUSES(alloc_update);
  slots::alloc_update(h.sched, &in, nullptr);
}

void no_room_for_the_plan(Host& h) {
  kvc_step in{};
  in.struct_size = sizeof in;
  in.step = 1;
  auto out = of_size<kvc_plan>(8);
  KVC_REFUSES(build_store_jobs);
  slots::build_store_jobs(h.sched, &in, &out);
  script().build_store_jobs = nullptr;
  h.build(1);  // nothing was changed: the same step again
}

void no_room_for_ends(Host& h) {
  h.step();
  auto out = of_size<kvc_complete_out>(KVC_STRUCT_BYTES_MAX + 1);
  KVC_REFUSES(complete);
  slots::complete(h.sched, nullptr, 0, &out);
}

void no_room_for_the_end(Host& h) {
  h.begin(1, 32);
  kvc_end_in in{};
  in.struct_size = sizeof in;
  in.request = 1;
  auto out = of_size<kvc_end_out>(0);
  KVC_REFUSES(request_end);
  slots::request_end(h.sched, &in, &out);
  script().request_end = nullptr;
  h.end(1, 0);  // it lives still
}

void no_room_for_a_rank(Host& h) {
  h.open_handles();
  auto out = of_size<kvc_rank_info>(8);
  const kvc_list none = kvc_list_of(nullptr, 0, sizeof(kvc_region));
  KVC_REFUSES(register_regions);
  slots::register_regions(h.rank, &none, &out);
}

void no_room_for_slots(Host& h) {
  h.open_handles();
  const kvc_list none = kvc_list_of(nullptr, 0, sizeof(kvc_rank_info));
  KVC_REFUSES(set_ranks);
  slots::set_ranks(h.sched, &none, nullptr);
}

const Planted rooms[] = {
    {"KVC-H-003", "lookup", no_room_for_lookup},
    {"KVC-H-003", "alloc_update", no_room_for_alloc},
    {"KVC-H-003", "build_store_jobs", no_room_for_the_plan},
    {"KVC-H-003", "complete", no_room_for_ends},
    {"KVC-H-003", "request_end", no_room_for_the_end},
    {"KVC-H-003", "register_regions", no_room_for_a_rank, false},
    {"KVC-H-003", "set_ranks", no_room_for_slots, false},
    {"KVC-H-003", "progress",
     [](Host& h) {
       KVC_REFUSES(progress);
       slots::progress(h.rank, nullptr);
     }},
    {"KVC-H-003", "progress into two bytes",
     [](Host& h) {
       auto out = of_size<kvc_progress>(2);
       KVC_REFUSES(progress);
       slots::progress(h.rank, &out);
     }},
    {"KVC-H-003", "has_pending",
     [](Host& h) {
       KVC_REFUSES(has_pending);
       slots::has_pending(h.sched, nullptr);
     }},
    {"KVC-H-003", "boundary_stats",
     [](Host& h) {
       auto out = of_size<kvc_boundary_stats>(3);
       KVC_REFUSES(boundary_stats);
       slots::boundary_stats(h.sched, &out);
     }},
    {"KVC-H-003", "stats without their number",
     [](Host& h) {
       KVC_REFUSES(stats);
       slots::stats(h.sched, nullptr, sizeof(kvc_stat), 0, nullptr);
     }},
    {"KVC-H-003", "stats in short rows",
     [](Host& h) {
       kvc_stat row{};
       std::uint64_t n = 0;
       KVC_REFUSES(stats);
       slots::stats(h.sched, &row, 8, 1, &n);
     }},
    {"KVC-H-003", "explain",
     [](Host& h) {
       std::uint64_t n = 0;
       KVC_REFUSES(explain);
       slots::explain(h.sched, 0, nullptr, 10, &n);
     }},
    {"KVC-H-003", "last_error_scheduler",
     [](Host& h) {
       KVC_REFUSES(last_error_scheduler);
       slots::last_error_scheduler(h.sched, nullptr, 0, nullptr);
     }},
    {"KVC-H-003", "last_error_rank",
     [](Host& h) {
       std::uint64_t n = 0;
       KVC_REFUSES(last_error_rank);
       slots::last_error_rank(h.rank, nullptr, 1, &n);
     }},
    {"KVC-H-003", "take_log_scheduler",
     [](Host& h) {
       char text[8];
       KVC_REFUSES(take_log_scheduler);
       slots::take_log_scheduler(h.sched, text, sizeof text, nullptr);
     }},
    {"KVC-H-003", "take_log_rank",
     [](Host& h) {
       std::uint64_t n = 0;
       KVC_REFUSES(take_log_rank);
       slots::take_log_rank(h.rank, nullptr, UINT64_MAX, &n);
     }},
    {"KVC-H-003", "take_events",
     [](Host& h) {
       kvc_event event{};
       std::uint64_t n = 0;
       KVC_REFUSES(take_events);
       slots::take_events(h.sched, &event, sizeof event, UINT64_MAX / 2, &n);
     }},
    {"KVC-H-003", "open_scheduler",
     [](Host& h) {
       KVC_REFUSES(open_scheduler);
       h.table.log = nullptr;
       slots::open_scheduler(&h.table, &h.layout, nullptr);
     },
     false},
};

BOOST_AUTO_TEST_SUITE(room_rules)

BOOST_DATA_TEST_CASE(no_room_is_the_hosts_mistake_and_nothing_else,
                     boost::unit_test::data::make(rooms), p) {
  {
    Host h;
    if (p.opened) h.open();
    BOOST_REQUIRE_MESSAGE(found_rules().empty(), found_texts());
    p.run(h);
    reset_script();
  }
  BOOST_TEST_CONTEXT("found:\n" << found_texts()) {
    BOOST_TEST(found_rules() == (std::vector<std::string>{p.rule}),
               boost::test_tools::per_element());
  }
}

// A connector that fills what is not there.
BOOST_AUTO_TEST_CASE(a_connector_that_takes_no_room_is_found_behind_it) {
  Host h;
  h.open();
  script().progress = [](kvc_rank*, kvc_progress*) -> kvc_status { return KVC_OK; };
  slots::progress(h.rank, nullptr);
  BOOST_TEST(found_rules() == (std::vector<std::string>{"KVC-H-003", "KVC-P-004"}),
             boost::test_tools::per_element());
}

// A query fills as far as its room goes: half of a struct is right.
BOOST_AUTO_TEST_CASE(a_query_for_half_a_struct_is_right) {
  Host h;
  h.open();
  auto counts = of_size<kvc_boundary_stats>(16);
  script().boundary_stats = [](const kvc_sched*, kvc_boundary_stats* out) -> kvc_status {
    kvc_boundary_stats mine{};
    return kvc_write(out, &mine, sizeof mine, sizeof mine.struct_size);
  };
  BOOST_TEST(slots::boundary_stats(h.sched, &counts) == KVC_OK);
  BOOST_TEST(found_texts() == "");
}

BOOST_AUTO_TEST_CASE(a_scheduler_that_was_asked_and_never_got_its_ranks_is_found_at_its_close) {
  Host h;
  h.open_handles();
  h.begin(1, 32);
  offer(0, KVC_WHY_NO_RANKS);
  h.lookup(1, 32);
  BOOST_TEST(found_texts() == "");
  h.end(1, 0);
  h.close();
  BOOST_TEST(found_rules() == (std::vector<std::string>{"KVC-H-011"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate::testing
