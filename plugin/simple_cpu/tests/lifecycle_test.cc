// Preemption, reset, budgets, deadlines, single flight, bad elements, events, numbers.
#include "plugin/simple_cpu/tests/rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

Layout fa16() { return {{full(16)}, 16, 16, 1}; }

std::uint64_t store_copies(const std::vector<PlanCopyOf>& jobs) {
  std::uint64_t n = 0;
  for (const PlanCopyOf& j : jobs) n += j.kind == JobKind::store ? j.copies.size() : 0;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_lifecycle)

BOOST_AUTO_TEST_CASE(a_preempted_request_offers_again_from_the_start) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 65));
  const Tables first{{1, 2, 3, 4, 5}};
  rig.alloc(1, 0, first);
  BOOST_TEST(store_copies(rig.step({{1, 32, first}})) == 2u);
  rig.step({}, {1});
  rig.finish_all();
  const Tables second{{11, 12, 13, 14, 15}};
  BOOST_TEST(rig.hit(1) == 32u);
  rig.alloc(1, 0, second);
  BOOST_TEST(store_copies(rig.step({{1, 64, second, true}})) == 2u);
  BOOST_TEST(rig.offers().published == 6u);
  BOOST_TEST(rig.offers().skipped_already_cached == 2u);
  rig.end(1, 64, second);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_lookup_of_a_running_request_is_the_notice_of_its_preemption) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 33));
  const Tables first{{1, 2, 3}};
  rig.alloc(1, 0, first);
  rig.step({{1, 33, first}});
  rig.finish_all();
  // In one step: told by lookup, admitted again, named as preempted, and scheduled.
  BOOST_TEST(rig.hit(1) == 32u);
  const Tables second{{11, 12, 13}};
  rig.alloc(1, 0, second);
  rig.step({{1, 33, second, true}}, {1});
  BOOST_TEST(rig.offers().skipped_already_cached == 2u);
  BOOST_TEST(rig.stat("preemptions") == 1u);
  BOOST_TEST(rig.host.faults() == 0u);
  // Later the same words are a new preemption.
  rig.step({}, {1});
  BOOST_TEST(rig.stat("preemptions") == 2u);
}

BOOST_AUTO_TEST_CASE(a_request_may_be_admitted_again_while_its_stores_are_open) {  // K4-23
  Rig rig({{full(4)}, 4, 4, 1});
  rig.begin(1, tokens_of(1, 9));
  const Tables first{{1, 2, 3}};
  rig.alloc(1, 0, first);
  const JobId job = rig.step({{1, 9, first}})[0].job;
  rig.step({}, {1});
  // Only a load without verdict stands in the way; the open store is not visible yet.
  BOOST_CHECK(rig.lookup(1).why == Why::miss);
  rig.finish(job);
  BOOST_TEST(rig.hit(1) == 8u);
}

BOOST_AUTO_TEST_CASE(a_preemption_ends_pending_offers_with_the_last_refusal) {
  Rig rig(fa16(), 2);
  rig.begin(1, tokens_of(1, 65));
  const Tables tables{{1, 2, 3, 4, 5}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 65, tables}});
  rig.step({}, {1});
  BOOST_TEST(rig.offers().dropped_pool_full == 1u);
  BOOST_TEST(rig.offers().dropped_no_parent == 1u);
  rig.finish_all();
  BOOST_TEST(rig.offers().pending == 0u);
}

BOOST_AUTO_TEST_CASE(a_refused_position_is_stored_when_there_is_room) {
  Rig rig(fa16(), 2);
  rig.begin(1, tokens_of(1, 33));
  rig.begin(2, tokens_of(2, 33));
  const Tables one{{1, 2, 3}};
  const Tables two{{4, 5, 6}};
  rig.alloc(1, 0, one);
  rig.alloc(2, 0, two);
  rig.step({{1, 33, one}});
  rig.step({{2, 33, two}});  // both slots are written: refused
  BOOST_TEST(rig.offers().pending == 3u);
  rig.finish_all();
  BOOST_TEST(store_copies(rig.step({{2, 34, {}}})) == 0u);  // what a live request wrote stays
  rig.end(1, 33, one);
  BOOST_TEST(store_copies(rig.step({{2, 34, {}}})) == 2u);
  rig.finish_all();
  BOOST_TEST(rig.offers().stored == 4u);
  BOOST_TEST(rig.offers().published == 4u);
}

BOOST_AUTO_TEST_CASE(after_a_reset_nothing_older_is_found) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 32u);
  BOOST_CHECK(rig.role->reset(false).code == Code::ok);
  rig.check();
  BOOST_TEST(rig.stat("host_slots_used_now") == 0u);
  const LookupAnswer answer = rig.lookup(2);
  BOOST_TEST(answer.external.n == 0u);
  BOOST_CHECK(answer.why == Why::reset);
  BOOST_CHECK(rig.lookup(2).why == Why::reset);  // asked again it answers the same (KVC-P-064)
}

BOOST_AUTO_TEST_CASE(open_stores_of_a_reset_are_never_published) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  const JobId job = rig.step({{1, 33, tables}})[0].job;
  BOOST_CHECK(rig.role->reset(false).code == Code::later);
  rig.check();
  BOOST_TEST(rig.offers().dropped_reset == 2u);
  BOOST_CHECK(rig.role->reset(false).code == Code::later);  // a second one is legal
  // The live request stores again, and is not counted again.
  BOOST_TEST(store_copies(rig.step({{1, 33, {}}})) == 2u);
  BOOST_TEST(rig.offers().published == 2u);
  rig.finish(job);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 0u);
  rig.finish_all();
  BOOST_TEST(rig.hit(2) == 32u);
  BOOST_TEST(rig.offers().stored == 0u);
  rig.lookup(2);
  rig.end(2);
  rig.end(1, 33, tables);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_load_survives_a_reset_unless_weights_changed) {  // T-12, CW-18
  for (const bool invalidate : {false, true}) {
    Rig rig(fa16());
    rig.serve(1, tokens_of(1, 33), 1);
    rig.begin(2, tokens_of(1, 33));
    rig.hit(2);
    const Tables tables{{11, 12, 13}};
    const JobId load = rig.alloc(2, 32, tables);
    rig.step();
    BOOST_CHECK(rig.role->reset(invalidate).code == Code::later);
    rig.check();
    const Completed done = rig.finish(load);
    BOOST_REQUIRE_EQUAL(done.verdicts.size(), 1u);
    BOOST_CHECK((done.verdicts[0].status == Code::ok) == !invalidate);
    BOOST_CHECK(rig.role->reset(invalidate).code == Code::ok);
    rig.check();
    // Blocks computed with old weights are not stored.
    BOOST_TEST(store_copies(rig.step({{2, 33, tables}})) == (invalidate ? 0u : 2u));
    rig.finish_all();
    if (invalidate) {
      rig.step({}, {2});
      rig.lookup(2);
      rig.alloc(2, 0, tables);
      BOOST_TEST(store_copies(rig.step({{2, 33, tables, true}})) == 2u);
      rig.finish_all();
    }
    rig.end(2, 33, tables);
    rig.drain();
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(weights_cannot_change_under_loads_that_ranks_decide) {
  OpenLimits limits = limits_of();
  limits.rank_verdicts = true;
  Rig rig(fa16(), 8, {}, limits);
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  rig.hit(2);
  const JobId load = rig.alloc(2, 32, {{11, 12, 13}});
  BOOST_CHECK(rig.role->reset(true).code == Code::state);
  rig.step();
  rig.finish(load);
  BOOST_CHECK(rig.role->reset(true).code == Code::ok);
}

BOOST_AUTO_TEST_CASE(one_load_serves_several_requests) {  // OW-07
  SimpleCpuSchedulerOptions options;
  options.attach_steps = 3;
  options.load_deadline_ms = 1000;
  Rig rig(fa16(), 8, options);
  rig.serve(1, tokens_of(1, 65), 1);
  rig.begin(2, tokens_of(1, 65));
  rig.begin(3, tokens_of(1, 49));
  rig.begin(4, tokens_of(1, 49));
  rig.hit(2);
  const JobId load = rig.alloc(2, 64, {{11, 12, 13, 14, 15}});
  rig.step();
  const LookupAnswer answer = rig.lookup(3);
  BOOST_CHECK(answer.code == Code::later);
  BOOST_CHECK(answer.why == Why::attached);
  rig.lookup(3);
  rig.lookup(3);
  BOOST_TEST(rig.hit(3) == 48u);  // three answers are enough
  rig.host.now += 600'000'000;    // past half of the deadline
  BOOST_TEST(rig.hit(4) == 48u);
  rig.host.now -= 600'000'000;
  rig.begin(5, tokens_of(1, 49));
  BOOST_CHECK(rig.lookup(5).code == Code::later);
  rig.finish(load, Code::io);
  BOOST_TEST(rig.hit(5) == 48u);
}

BOOST_AUTO_TEST_CASE(nobody_waits_for_a_load_that_no_device_cache_keeps) {
  OpenLimits limits = limits_of();
  limits.no_device_cache = true;
  Rig rig(fa16(), 8, {}, limits);
  rig.serve(1, tokens_of(1, 65), 1);
  rig.begin(2, tokens_of(1, 65));
  rig.begin(3, tokens_of(1, 49));
  rig.hit(2);
  rig.alloc(2, 64, {{11, 12, 13, 14, 15}});
  BOOST_TEST(rig.hit(3) == 48u);
}

BOOST_AUTO_TEST_CASE(orphaned_holds_are_bounded) {
  SimpleCpuSchedulerOptions options;
  options.held_device_blocks_max = 3;
  Rig rig(fa16(), 32, options);
  rig.begin(1, tokens_of(1, 81));
  const Tables tables{{1, 2, 3, 4, 5, 6}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 0, tables}});
  rig.end(1, 80, tables);
  BOOST_TEST(rig.last_held.size() == 3u);
  BOOST_TEST(rig.stat("holds_orphaned_now") == 3u);
  BOOST_TEST(rig.offers().dropped_hold_budget == 1u);
  BOOST_TEST(rig.offers().dropped_no_parent == 1u);
  // A live request waits at its cursor meanwhile.
  rig.begin(2, tokens_of(2, 33));
  const Tables two{{7, 8, 9}};
  rig.alloc(2, 0, two);
  rig.step({{2, 33, two}});
  BOOST_TEST(rig.offers().pending == 4u);
  rig.finish_all();
  BOOST_TEST(store_copies(rig.step({{2, 34, {}}})) == 2u);
}

BOOST_AUTO_TEST_CASE(holds_of_a_live_request_are_free) {
  SimpleCpuSchedulerOptions options;
  options.held_device_blocks_max = 1;
  Rig rig(fa16(), 32, options);
  rig.begin(1, tokens_of(1, 81));
  const Tables tables{{1, 2, 3, 4, 5, 6}};
  rig.alloc(1, 0, tables);
  BOOST_TEST(store_copies(rig.step({{1, 81, tables}})) == 5u);
  BOOST_TEST(rig.stat("holds_orphaned_now") == 0u);
  rig.step({}, {1});
  BOOST_TEST(rig.stat("holds_orphaned_now") == 5u);
  rig.finish_all();
  BOOST_TEST(rig.stat("holds_orphaned_now") == 0u);
}

BOOST_AUTO_TEST_CASE(a_store_past_its_deadline_is_quarantined_until_it_ends) {
  Rig rig(fa16(), 4);
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  const JobId job = rig.step({{1, 33, tables}})[0].job;
  BOOST_TEST(rig.report(job, 0, Code::deadline, {}, ReportPhase::deadline).jobs.empty());
  BOOST_TEST(rig.offers().dropped_copy_failed == 2u);
  BOOST_TEST(rig.role->pending().quarantined_blocks == 2u);
  BOOST_TEST(rig.report(job, 0, Code::deadline, {}, ReportPhase::deadline).rejected.size() == 1u);
  rig.end(1, 33, tables);
  const Completed done = rig.report(job, 0, Code::ok);
  BOOST_REQUIRE_EQUAL(done.jobs.size(), 1u);
  BOOST_CHECK(done.jobs[0].status == Code::deadline);
  BOOST_TEST(rig.role->pending().quarantined_blocks == 0u);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 0u);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_load_past_its_deadline_has_its_verdict_before_its_end) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  rig.hit(2);
  const JobId load = rig.alloc(2, 32, {{11, 12, 13}});
  rig.step();
  const Completed late = rig.report(load, 0, Code::deadline, {}, ReportPhase::deadline);
  BOOST_REQUIRE_EQUAL(late.verdicts.size(), 1u);
  BOOST_CHECK(late.verdicts[0].status == Code::deadline);
  BOOST_TEST(late.jobs.empty());
  BOOST_CHECK(rig.lookup(2).why == Why::load_failed);
  BOOST_TEST(rig.role->pending().held_blocks == 2u);
  const Completed end = rig.report(load, 0, Code::ok);
  BOOST_TEST(end.verdicts.empty());
  BOOST_REQUIRE_EQUAL(end.jobs.size(), 1u);
  BOOST_TEST(end.jobs[0].released.size() == 2u);
}

// Reports come in any order (kvc.h complete): that a part was late may be told after its end, while
// the job is open and when it is over (found by the simulation).
BOOST_AUTO_TEST_CASE(a_deadline_that_is_told_after_the_end_is_no_fault) {
  OpenLimits two = limits_of();
  two.ranks = 2;
  Rig rig(fa16(), 8, {}, two);
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  const JobId job = rig.step({{1, 33, tables}})[0].job;
  const auto late = [&](std::uint32_t rank) {
    return rig.report(job, rank, Code::deadline, {}, ReportPhase::deadline).rejected.size();
  };
  BOOST_TEST(rig.report(job, 0, Code::deadline).jobs.empty());
  BOOST_TEST(late(0) == 0u);
  BOOST_TEST(rig.role->pending().quarantined_blocks == 0u);
  BOOST_REQUIRE_EQUAL(rig.report(job, 1, Code::ok).jobs.size(), 1u);
  BOOST_TEST(late(1) == 0u);
  BOOST_TEST(rig.stat("peer_faults") == 0u);
  // An end told twice is one, and so is a job that never was.
  BOOST_TEST(rig.report(job, 0, Code::ok).rejected.size() == 1u);
  BOOST_TEST(rig.report(job + 1, 0, Code::deadline, {}, ReportPhase::deadline).rejected.size() ==
             1u);
  rig.end(1, 33, tables);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(bad_elements_are_skipped_and_the_rest_is_done) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 65));
  const Tables tables{{1, 2, 3, 4, 5}};
  rig.alloc(1, 0, tables);
  // Unknown requests beside a good one.
  BOOST_TEST(store_copies(rig.step({{42, 16, {}}, {1, 32, tables}, {1, 48, {}}}, {43})) == 2u);
  BOOST_TEST(rig.stat("peer_faults") == 3u);
  // A confirmed count that falls.
  BOOST_TEST(rig.step({{1, 16, {}}}).empty());
  BOOST_TEST(rig.stat("peer_faults") == 4u);
  // A table that is too short.
  rig.step({{1, 64, {{1, 2, 3}}}});
  BOOST_TEST(rig.offers().dropped_bad_offer == 1u);
  // A wrong step number changes nothing.
  StepRecord record;
  record.step = rig.steps + 5;
  BOOST_TEST(!rig.role->build_store_jobs(record).ok());
  // The end with a fallen count ends the request all the same.
  const auto out = rig.end_result(1, 16, tables);
  BOOST_TEST(!out.ok());
  BOOST_CHECK(rig.lookup_code(1) == Code::arg);
  rig.finish_all();
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_table_that_shrinks_under_waiting_offers_makes_them_bad) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 65));
  rig.begin(2, tokens_of(1, 65));
  const Tables one{{1, 2, 3, 4, 5}};
  rig.alloc(1, 0, one);
  rig.alloc(2, 0, {{6, 7, 8, 9, 10}});
  rig.step({{1, 65, one}, {2, 65, {{6, 7, 8, 9, 10}}}});
  BOOST_TEST(rig.offers().pending == 8u);
  rig.finish_all();
  rig.step({{2, 65, {{6, 7}}}});
  BOOST_TEST(rig.offers().skipped_already_cached == 2u);
  BOOST_TEST(rig.offers().dropped_bad_offer == 2u);
  BOOST_TEST(rig.offers().pending == 0u);
}

BOOST_AUTO_TEST_CASE(under_rank_verdicts_a_request_runs_before_complete_knows) {
  OpenLimits limits = limits_of();
  limits.rank_verdicts = true;
  Rig rig(fa16(), 8, {}, limits);
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 49));
  rig.hit(2);
  const Tables tables{{11, 12, 13, 14}};
  const JobId load = rig.alloc(2, 32, tables);
  rig.step();
  BOOST_TEST(store_copies(rig.step({{2, 48, tables}})) == 1u);
  rig.step({}, {2});
  BOOST_TEST(rig.host.faults() == 0u);
  rig.finish(load);
  rig.finish_all();
  BOOST_TEST(rig.hit(2) == 48u);
  rig.end(2);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_request_beyond_the_bounds_is_not_tracked_and_harms_nobody) {
  OpenLimits limits = limits_of();
  limits.max_live_requests = 1;
  Rig rig(fa16(), 8, {}, limits);
  BOOST_CHECK(rig.begin(1, tokens_of(1, 33)) == Code::ok);
  BOOST_CHECK(rig.begin(2, tokens_of(2, 33)) == Code::full);
  BOOST_CHECK(rig.lookup(2).why == Why::not_tracked);
  BOOST_TEST(rig.alloc(2, 0, {{1, 2, 3}}) == 0u);
  BOOST_TEST(rig.step({{2, 33, {{1, 2, 3}}}}).empty());
  rig.extend(2, tokens_of(3, 16));
  BOOST_TEST(rig.end(2, 33, {{1, 2, 3}}) == 0u);
  BOOST_CHECK(rig.lookup_code(2) == Code::arg);
  BOOST_CHECK(rig.begin(2, tokens_of(2, 33)) == Code::arg);  // used before
  rig.end(1);
  BOOST_CHECK(rig.begin(3, tokens_of(2, 33)) == Code::ok);
  BOOST_TEST(rig.host.faults() == 0u);
}

BOOST_AUTO_TEST_CASE(requests_are_checked_when_they_begin) {
  OpenLimits limits = limits_of();
  limits.max_prompt_tokens = Tokens{64};
  limits.max_request_bytes = Bytes{4 * key_bytes};
  Rig rig(fa16(), 8, {}, limits);
  BOOST_CHECK(rig.begin(0, tokens_of(1, 16)) == Code::arg);
  BOOST_CHECK(rig.begin(1, tokens_of(1, 65)) == Code::arg);
  BOOST_CHECK(rig.begin(2, tokens_of(1, 64)) == Code::ok);
  BOOST_CHECK(rig.begin(2, tokens_of(1, 64)) == Code::arg);
  BOOST_CHECK(rig.begin(3, tokens_of(1, 16)) == Code::full);
  const std::vector<std::uint8_t> key(key_bytes, 1);
  BOOST_CHECK(rig.role->request_extend(2, 3, key.data(), 1).code == Code::arg);
  BOOST_CHECK(rig.role->request_extend(2, 4, key.data(), 1).code == Code::full);
  RequestBegin more;
  more.request = 9;
  more.prompt = Tokens{15};
  more.keys = key.data();
  more.key_count = 1;
  BOOST_CHECK(rig.role->request_begin(more).code == Code::arg);
}

// Ends are kept in 32 bits: with wide units a few keys reach them.
BOOST_AUTO_TEST_CASE(a_request_longer_than_the_index_can_name_is_not_tracked) {
  OpenLimits limits = limits_of();
  limits.max_prompt_tokens = limits.max_total_tokens = no_token_limit;
  limits.max_request_bytes = Bytes{UINT64_MAX};
  constexpr std::uint64_t unit = std::uint64_t{1} << 30U;
  Rig rig({{group_spec(GroupKind::full, Tokens{unit})}, unit, unit}, 8, {}, limits);
  std::vector<std::uint8_t> keys(4 * key_bytes);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::uint8_t>(i);
  RequestBegin in;
  in.request = 1;
  in.prompt = Tokens{4 * unit};
  in.keys = keys.data();
  in.key_count = 4;
  BOOST_CHECK(rig.role->request_begin(in).code == Code::full);
  rig.check();
  in.request = 2;
  in.key_count = 3;
  BOOST_CHECK(rig.role->request_begin(in).code == Code::ok);
  BOOST_CHECK(rig.role->request_extend(2, 3, keys.data(), 1).code == Code::full);
  rig.check();
  const Tables tables{{11, 12, 13, 14, 15}};
  rig.tokens[2] = {};
  rig.alloc(2, 0, tables);
  BOOST_TEST(store_copies(rig.step({{2, 5 * unit, tables}})) == 3u);
  rig.finish_all();
  BOOST_TEST(rig.role->request_extend(1, 4, keys.data(), 1).ok());
  rig.end(2, 5 * unit, tables);
  rig.drain();
}

BOOST_AUTO_TEST_CASE(ranks_must_agree_and_have_room) {  // T-14, CW-7, CW-24
  OpenLimits limits = limits_of();
  limits.ranks = 2;
  const SlotClass cls{0, 1, 1, Bytes{1024}, 0};
  const SlotClass other{0, 1, 2, Bytes{1024}, 0};
  const auto code = [&](std::vector<RankInfo> infos) {
    Rig rig(fa16(), 0, {}, limits);
    const auto out = rig.role->set_ranks(infos);
    return out.ok() ? Code::ok : out.error().code;
  };
  BOOST_CHECK(code({{0, 8, {&cls, 1}, {}}}) == Code::arg);
  BOOST_CHECK(code({{0, 8, {&cls, 1}, {}}, {0, 8, {&cls, 1}, {}}}) == Code::arg);
  BOOST_CHECK(code({{0, 8, {&cls, 1}, {}}, {1, 8, {&other, 1}, {}}}) == Code::arg);
  BOOST_CHECK(code({{0, 8, {&cls, 1}, {}}, {1, 1, {&cls, 1}, {}}}) == Code::arg);
  Rig rig(fa16(), 0, {}, limits);
  const std::vector<RankInfo> good{{1, 5, {&cls, 1}, {}}, {0, 8, {&cls, 1}, {}}};
  const auto usable = rig.role->set_ranks(good);
  BOOST_REQUIRE(usable.ok());
  BOOST_TEST(usable.value()[0].usable_slots == 5u);
  BOOST_TEST(!rig.role->set_ranks(good).ok());
}

BOOST_AUTO_TEST_CASE(plans_have_room_for_one_longest_load_or_are_refused) {
  SimpleCpuSchedulerOptions options;
  options.plan_bytes_max = 1000;
  TestHost host;
  const auto made = make_simple_cpu_scheduler(geometry_of(fa16()), limits_of(), options, host);
  BOOST_TEST(!made.ok());
}

BOOST_AUTO_TEST_CASE(loads_that_do_not_fit_the_plan_wait_oldest_first) {
  OpenLimits limits = limits_of();
  limits.max_total_tokens = limits.max_prompt_tokens = Tokens{65};
  SimpleCpuSchedulerOptions options;
  options.plan_bytes_max = plan_bytes(1, 6);
  Rig rig(fa16(), 16, options, limits);
  rig.serve(1, tokens_of(1, 65), 1);
  rig.serve(2, tokens_of(2, 65), 1);
  for (RequestId id = 3; id <= 4; ++id) {
    rig.begin(id, tokens_of(static_cast<std::uint32_t>(id - 2), 65));
    BOOST_TEST(rig.hit(id) == 64u);
  }
  const JobId a = rig.alloc(3, 64, {{11, 12, 13, 14, 15}});
  const JobId b = rig.alloc(4, 64, {{21, 22, 23, 24, 25}});
  auto jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  BOOST_TEST(jobs[0].job == a);
  jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  BOOST_TEST(jobs[0].job == b);
  rig.finish_all();
}

BOOST_AUTO_TEST_CASE(events_name_what_came_and_went) {  // spec 9.2
  Rig rig(fa16(), 2);
  const TokenIds tokens = tokens_of(1, 33);
  rig.serve(1, tokens, 1);
  std::array<CacheEvent, 1> one;
  std::size_t count = 0;
  BOOST_TEST(rig.role->take_events(one, count));
  BOOST_TEST(count == 1u);
  BOOST_CHECK(one[0].kind == EventKind::stored);
  BOOST_TEST(one[0].begin.n == 0u);
  BOOST_TEST(one[0].end.n == 16u);
  BOOST_TEST(one[0].request == 1u);
  BOOST_TEST(!one[0].has_parent);
  const auto first_key = one[0].key;
  BOOST_TEST(!rig.role->take_events(one, count));
  BOOST_TEST(one[0].begin.n == 16u);
  BOOST_TEST(one[0].has_parent);
  BOOST_TEST((one[0].parent_key == first_key));
  rig.serve(2, tokens_of(2, 17), 5);
  std::array<CacheEvent, 8> some;
  BOOST_TEST(!rig.role->take_events(some, count));
  BOOST_REQUIRE_EQUAL(count, 2u);
  BOOST_CHECK(some[0].kind == EventKind::removed);
  BOOST_TEST(some[0].end.n == 32u);
  BOOST_CHECK(some[1].kind == EventKind::stored);
  BOOST_CHECK(rig.role->reset(false).ok());
  BOOST_TEST(!rig.role->take_events(some, count));
  BOOST_REQUIRE_EQUAL(count, 1u);
  BOOST_CHECK(some[0].kind == EventKind::cleared);
}

BOOST_AUTO_TEST_CASE(a_full_event_ring_counts_what_it_lost) {
  SimpleCpuSchedulerOptions options;
  options.event_ring_entries = 1;
  Rig rig(fa16(), 8, options);
  rig.serve(1, tokens_of(1, 33), 1);
  BOOST_TEST(rig.stat("events_lost") == 1u);
}

BOOST_AUTO_TEST_CASE(explain_names_the_request_its_offers_and_the_gates) {
  Rig rig({{full(16), sliding(32, 64)}, 16, 32, 1}, 8);
  rig.serve(1, tokens_of(1, 33), 1);
  const Result<std::string> all = rig.role->explain(0);
  BOOST_REQUIRE(all.ok());
  BOOST_TEST(all.value().find("\"request\":1") != std::string::npos);
  BOOST_TEST(all.value().find("\"phase\":\"over\"") != std::string::npos);
  const Result<std::string> one = rig.role->explain(1);
  BOOST_REQUIRE(one.ok());
  BOOST_TEST(one.value().find("\"stored\":") != std::string::npos);
  BOOST_CHECK(rig.role->explain(77).error().code == Code::arg);
}

BOOST_AUTO_TEST_CASE(a_layout_that_can_never_hit_says_so_once) {  // K6-50
  OpenLimits limits = limits_of();
  limits.max_total_tokens = limits.max_prompt_tokens = Tokens{4096};
  Rig rig({{full(8320)}, 8320, 8320, 1}, 8, {}, limits);
  std::size_t lines = 0;
  for (const auto& line : rig.host.lines) {
    lines += line.second.find("8320") != std::string::npos &&
             line.second.find("4096") != std::string::npos;
  }
  BOOST_TEST(lines == 1u);
  BOOST_TEST(rig.stat("gate_off_now") == 1u);
}

BOOST_AUTO_TEST_CASE(limits_of_a_request_bound_its_hits_and_stores) {
  Rig rig(fa16(), 16);
  const TokenIds tokens = tokens_of(1, 65);
  const std::vector<std::uint8_t> keys = keys_of(tokens, 16);
  RequestBegin in;
  in.request = 1;
  in.prompt = Tokens{65};
  in.keys = keys.data();
  in.key_count = 4;
  in.store_limit = Tokens{40};
  BOOST_REQUIRE(rig.role->request_begin(in).ok());
  const Tables tables{{1, 2, 3, 4, 5}};
  rig.alloc(1, 0, tables);
  BOOST_TEST(store_copies(rig.step({{1, 65, tables}})) == 2u);
  rig.finish_all();
  in.request = 2;
  in.load_limit = Tokens{20};
  BOOST_REQUIRE(rig.role->request_begin(in).ok());
  rig.tokens[2] = tokens;
  BOOST_TEST(rig.hit(2) == 16u);
}

BOOST_AUTO_TEST_SUITE_END()
