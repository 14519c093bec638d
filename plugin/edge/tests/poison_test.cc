// What happens when the code behind the edge breaks (design 2.5.5).
#include <boost/test/unit_test.hpp>
#include <new>
#include <stdexcept>

#include "plugin/edge/tests/form_fixture.h"

namespace kvc::edge::testing {

BOOST_AUTO_TEST_SUITE(edge_poison)

namespace {

struct Opened : Form {
  Opened() {
    sched();
    plan.struct_size = sizeof plan;
    found.struct_size = sizeof found;
    allocated.struct_size = sizeof allocated;
    done.struct_size = sizeof done;
    ended.struct_size = sizeof ended;
  }
  // Every call that a poisoned handle must refuse.
  std::vector<kvc_status> all_changing_calls() {
    kvc_list usable{};
    std::uint64_t n = 0;
    const kvc_list list = kvc_list_of(ranks.data(), 1, sizeof(kvc_rank_info));
    return {api.set_ranks(s, &list, &usable),
            api.request_begin(s, &request),
            api.request_extend(s, &extend),
            api.lookup(s, &lookup, &found),
            api.lookup_cancel(s, 7),
            api.alloc_update(s, &alloc, &allocated),
            api.build_store_jobs(s, &step, &plan),
            api.complete(s, nullptr, 0, &done),
            api.request_end(s, &end, &ended),
            api.take_events(s, nullptr, sizeof(kvc_event), 0, &n),
            api.reset(s, 0),
            api.pump_scheduler(s, 1)};
  }
  void check_poisoned() {
    script().calls.clear();
    for (const kvc_status got : all_changing_calls()) BOOST_CHECK_EQUAL(got, KVC_E_INTERNAL);
    BOOST_CHECK(script().calls.empty());
    // The queries answer on.
    kvc_boundary_stats counts{};
    counts.struct_size = sizeof counts;
    kvc_pending pending{};
    pending.struct_size = sizeof pending;
    std::uint64_t needed = 0;
    char text[64];
    BOOST_CHECK_EQUAL(api.boundary_stats(s, &counts), KVC_OK);
    BOOST_CHECK_EQUAL(api.has_pending(s, &pending), KVC_OK);
    BOOST_CHECK_EQUAL(api.stats(s, nullptr, sizeof(kvc_stat), 0, &needed), KVC_OK);
    BOOST_CHECK_EQUAL(api.explain(s, 0, text, sizeof text, &needed), KVC_OK);
    BOOST_CHECK_EQUAL(api.take_log_scheduler(s, text, sizeof text, &needed), KVC_OK);
    BOOST_CHECK(!last_error().empty());
  }

  kvc_plan plan{};
  kvc_lookup_out found{};
  kvc_alloc_out allocated{};
  kvc_complete_out done{};
  kvc_end_out ended{};
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_broken_invariant_poisons_the_handle_and_is_logged_once, Opened) {
  script().on_call = [](std::string_view name) {
    if (name == "lookup") throw BrokenInvariant("pool.cc:12: invariant broken: refs > 0");
  };
  BOOST_CHECK_EQUAL(api.lookup(s, &lookup, &found), KVC_E_INTERNAL);
  BOOST_CHECK(logged("lookup: pool.cc:12: invariant broken: refs > 0"));
  BOOST_CHECK_EQUAL(log.size(), 1U);
  BOOST_CHECK_EQUAL(log[0].first, KVC_LOG_ERROR);
  BOOST_CHECK_EQUAL(last_error(), "lookup: pool.cc:12: invariant broken: refs > 0");
  check_poisoned();
  BOOST_CHECK_EQUAL(log.size(), 1U);
}

BOOST_FIXTURE_TEST_CASE(any_other_exception_poisons_too, Opened) {
  script().on_call = [](std::string_view) { throw std::runtime_error("odd"); };
  BOOST_CHECK_EQUAL(api.request_begin(s, &request), KVC_E_INTERNAL);
  check_poisoned();
}

BOOST_FIXTURE_TEST_CASE(even_a_thrown_number_poisons_and_does_not_leave_the_call, Opened) {
  script().on_call = [](std::string_view) { throw 5; };
  BOOST_CHECK_EQUAL(api.build_store_jobs(s, &step, &plan), KVC_E_INTERNAL);
  BOOST_CHECK(logged("unknown exception"));
  check_poisoned();
}

BOOST_FIXTURE_TEST_CASE(a_status_internal_of_the_role_poisons, Opened) {
  script().answer = Status(Code::internal, "cannot be");
  BOOST_CHECK_EQUAL(api.lookup_cancel(s, 1), KVC_E_INTERNAL);
  check_poisoned();
}

BOOST_FIXTURE_TEST_CASE(a_query_that_breaks_has_no_text_but_the_next_call_has, Opened) {
  kvc_pending pending{};
  pending.struct_size = sizeof pending;
  script().pending_breaks = true;
  BOOST_CHECK_EQUAL(api.has_pending(s, &pending), KVC_E_INTERNAL);
  BOOST_CHECK(logged("held is below 0"));
  script().pending_breaks = false;
  BOOST_CHECK_EQUAL(last_error(), "");
  BOOST_CHECK_EQUAL(api.lookup_cancel(s, 1), KVC_E_INTERNAL);
  BOOST_CHECK_EQUAL(last_error(), "lookup_cancel: a query broke an invariant, the log says which");
  check_poisoned();
}

BOOST_FIXTURE_TEST_CASE(out_of_memory_in_the_role_is_full_and_the_next_call_works, Opened) {
  script().on_call = [](std::string_view) { throw std::bad_alloc(); };
  BOOST_CHECK_EQUAL(api.request_begin(s, &request), KVC_E_FULL);
  BOOST_CHECK_EQUAL(last_error(), "request_begin: out of memory");
  script().on_call = nullptr;
  BOOST_CHECK_EQUAL(api.request_begin(s, &request), KVC_OK);
}

BOOST_FIXTURE_TEST_CASE(out_of_memory_for_an_answer_that_took_effect_poisons, Opened) {
  // A longer answer than open reserved room for, and no more memory: the holds cannot be told, so
  // nothing may go on.
  const std::vector<BlockId> table(100'000);
  const std::vector<HeldRange> held = {{0, table.data(), 0, table.size()}};
  script().alloc = {3, held, {}};
  memory.fail_at = memory.calls;
  BOOST_CHECK_EQUAL(api.alloc_update(s, &alloc, &allocated), KVC_E_INTERNAL);
  BOOST_CHECK(logged("out of memory after the call took effect"));
  check_poisoned();
}

BOOST_FIXTURE_TEST_CASE(another_handle_is_not_poisoned, Opened) {
  kvc_sched* other = nullptr;
  BOOST_REQUIRE_EQUAL(try_open(other), KVC_OK);
  script().on_call = [](std::string_view) { throw BrokenInvariant("x"); };
  BOOST_CHECK_EQUAL(api.lookup_cancel(s, 1), KVC_E_INTERNAL);
  script().on_call = nullptr;
  BOOST_CHECK_EQUAL(api.lookup_cancel(other, 1), KVC_OK);
  api.close_scheduler(other);
}

BOOST_FIXTURE_TEST_CASE(calls_within_what_open_reserved_take_no_memory, Opened) {
  const std::vector<HeldBlock> held(32);
  const std::vector<BlockId> table(32);
  const std::vector<HeldRange> taken = {{0, table.data(), 0, table.size()}};
  const std::vector<MediumTokens> media(1);
  const std::vector<PlannedJob> jobs = {{JobKind::store, 1, 0, held}};
  const std::vector<EndedJob> over = {{JobKind::store, 1, 0, Code::ok, {}, held}};
  script().alloc = {3, taken, media};
  script().plan = {1, jobs, {}};
  script().complete = {over, {}, {}};
  script().end = {4, held};
  const std::uint64_t before = memory.calls;
  for (int i = 0; i < 3; ++i) {
    BOOST_CHECK_EQUAL(api.lookup(s, &lookup, &found), KVC_OK);
    BOOST_CHECK_EQUAL(api.alloc_update(s, &alloc, &allocated), KVC_OK);
    BOOST_CHECK_EQUAL(api.build_store_jobs(s, &step, &plan), KVC_OK);
    BOOST_CHECK_EQUAL(api.complete(s, nullptr, 0, &done), KVC_OK);
    BOOST_CHECK_EQUAL(api.request_end(s, &end, &ended), KVC_OK);
  }
  BOOST_CHECK_EQUAL(memory.calls, before);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::edge::testing
