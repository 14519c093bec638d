// Copies that fail, come late, in another order, from one rank only, or never; reports and plans
// that are not what they should be; broken invariants (field reports K1, K2, spec T-9, T-12, T-15,
// design 2.4, 2.5.5).
#include <kvc/kvc_util.h>

#include <boost/test/unit_test.hpp>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(failures)

namespace {

Tokens req(std::uint64_t seed, std::uint64_t k) { return tokens_of(seed, 16 * k + 1); }

Setup two_ranks() {
  Setup s;
  s.ranks = 2;
  s.host_blocks = 8;
  return s;
}

// Arms a fault point for the life of a test; false if the build has none.
struct Fault {
  explicit Fault(const char* name, std::uint64_t countdown = 0)
      : test(Library::under_test().test()) {
    if (test != nullptr) test->set_fault(kvc_text_of(name), countdown);
  }
  ~Fault() {
    if (test != nullptr) test->clear_faults();
  }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
  explicit operator bool() const { return test != nullptr; }
  const kvc_test_api* test;
};

std::uint64_t stored(World& w) { return w.counts().all_offers.stored; }

}  // namespace

// T-9: a failed load is reported, its request computes, its source is not served again until it was
// stored anew.
BOOST_AUTO_TEST_CASE(a_failed_load_is_reported_and_its_source_is_bad_until_stored_again) {
  World w(Setup{});
  w.store(1, req(1, 4), 64);
  w.begin(2, req(1, 4));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 64U);
  const kvc_job job = w.take(2, 64);
  {
    const Fault fault("copy.load");
    if (!fault) return;
    const Completed c = w.step();
    BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
    BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_E_IO);
    BOOST_REQUIRE_EQUAL(c.jobs.size(), 1U);
    BOOST_CHECK_EQUAL(c.jobs[0].job, job);
    BOOST_CHECK_EQUAL(c.jobs[0].status, KVC_E_IO);
    BOOST_REQUIRE_GE(c.jobs[0].failed.size(), 1U);
    BOOST_CHECK_EQUAL(c.jobs[0].failed[0].side, KVC_SIDE_SOURCE);
    BOOST_CHECK_EQUAL(c.jobs[0].released.size(), 4U);
  }
  const Found found = w.lookup(2);
  BOOST_CHECK_EQUAL(found.tokens, 0U);
  BOOST_CHECK_EQUAL(found.why, KVC_WHY_LOAD_FAILED);
  BOOST_CHECK_EQUAL(w.stat("loads_failed"), 1U);
  BOOST_CHECK_LT(w.hit(req(1, 4)), 64U);
  // It computes what it could not load; the bad block is written again.
  w.take(2, 0);
  w.request(2).computed = 0;
  w.compute(2, 64);
  w.step();
  w.drain();
  BOOST_CHECK_EQUAL(w.hit(req(1, 4)), 64U);
  w.end(2);
  w.begin(3, req(1, 4));
  BOOST_CHECK_EQUAL(w.load(3), 64U);
}

// K2-15: a store that one of two ranks fails is not published; its descendants neither.
BOOST_AUTO_TEST_CASE(a_store_that_one_rank_fails_is_not_published) {
  World w(two_ranks());
  w.begin(1, req(1, 3));
  w.take(1, 0);
  w.compute(1, 48);
  w.submit(w.plan());
  w.pump_one(0);
  {
    const Fault fault("copy.store");
    if (!fault) return;
    w.pump_one(1);
  }
  const Completed c = w.complete(w.reports());
  BOOST_REQUIRE_EQUAL(c.jobs.size(), 1U);
  BOOST_CHECK_EQUAL(c.jobs[0].status, KVC_E_IO);
  BOOST_REQUIRE_GE(c.jobs[0].failed.size(), 1U);
  for (const kvc_failed_block& f : c.jobs[0].failed) BOOST_CHECK_EQUAL(f.rank, 1U);
  const kvc_offer_counts n = w.counts().all_offers;
  BOOST_CHECK_GE(n.dropped_copy_failed, 1U);
  BOOST_CHECK_EQUAL(n.dropped_copy_failed + n.dropped_parent_failed + n.stored, 3U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 3)), n.stored * 16);
  w.end(1);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_job_ends_when_the_last_rank_reported_it_in_any_order) {
  for (const bool reversed : {false, true}) {
    World w(two_ranks());
    w.begin(1, req(1, 2));
    w.take(1, 0);
    w.compute(1, 32);
    w.submit(w.plan());
    w.pump();
    const auto first = w.report_of(reversed ? 1 : 0);
    const auto second = w.report_of(reversed ? 0 : 1);
    BOOST_CHECK(w.complete({first}).jobs.empty());
    BOOST_CHECK_EQUAL(stored(w), 0U);
    BOOST_CHECK_EQUAL(w.pending().store_jobs, 1U);
    BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
    BOOST_CHECK_EQUAL(w.complete({second}).jobs.size(), 1U);
    BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
    w.end(1);
    w.drain();
    w.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(reports_of_several_steps_may_come_in_any_order_and_at_once) {
  World w(Setup{});
  w.begin(1, req(1, 6));
  w.take(1, 0);
  std::vector<std::vector<std::uint8_t>> late;
  for (const std::uint64_t end : {32U, 64U, 96U}) {
    w.compute(1, end);
    w.submit(w.plan());
    w.pump();
    late.push_back(w.report_of(0));
  }
  std::swap(late[0], late[2]);
  BOOST_CHECK_EQUAL(w.complete({late[0]}).jobs.size(), 1U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 6)), 0U);  // a child is published after its parent only
  w.complete({late[1], late[2]});
  BOOST_CHECK_EQUAL(w.hit(req(1, 6)), 96U);
  w.end(1);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(bad_reports_are_rejected_one_by_one) {
  World w(two_ranks());
  World other(two_ranks());
  for (World* each : {&w, &other}) {
    each->begin(1, req(1, 2));
    each->take(1, 0);
    each->compute(1, 32);
    each->submit(each->plan());
    each->pump();
  }
  const auto good = w.reports();
  const auto foreign = other.report_of(0);
  std::vector<std::uint8_t> garbage(100, 0x5A);
  std::vector<std::uint8_t> cut(good[0].begin(), good[0].end() - 1);
  std::vector<std::uint8_t> flipped = good[0];
  flipped[flipped.size() / 2] ^= 1U;
  const Completed c = w.complete({garbage, foreign, cut, flipped, good[0], good[1]});
  BOOST_CHECK_EQUAL(c.status, KVC_OK);
  BOOST_REQUIRE_EQUAL(c.rejected.size(), 4U);
  for (std::uint64_t i = 0; i < 4; ++i) {
    BOOST_CHECK_EQUAL(c.rejected[i].report, i);
    BOOST_CHECK_EQUAL(c.rejected[i].job, 0U);
    BOOST_CHECK_EQUAL(c.rejected[i].status, i == 1 ? KVC_E_STATE : KVC_E_ARG);
  }
  BOOST_CHECK_EQUAL(c.jobs.size(), 1U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  // An empty report is nothing.
  kvc_complete_out out{};
  out.struct_size = sizeof out;
  const kvc_bytes nothing{nullptr, 0};
  BOOST_CHECK_EQUAL(w.api().complete(w.sched(), &nothing, 1, &out), KVC_OK);
  BOOST_CHECK_EQUAL(out.rejected.count, 0U);
}

BOOST_AUTO_TEST_CASE(every_cut_and_every_flipped_byte_of_a_report_is_rejected) {
  World w(Setup{});
  w.begin(1, req(1, 1));
  w.take(1, 0);
  w.compute(1, 16);
  w.submit(w.plan());
  w.pump();
  const auto good = w.report_of(0);
  for (std::size_t n = 1; n < good.size(); ++n) {
    const Completed c = w.complete({{good.begin(), good.begin() + static_cast<std::ptrdiff_t>(n)}});
    BOOST_REQUIRE_EQUAL(c.rejected.size(), 1U);
    BOOST_REQUIRE(c.jobs.empty());
  }
  for (std::size_t i = 0; i < good.size(); ++i) {
    auto bad = good;
    bad[i] ^= 0x10U;
    const Completed c = w.complete({bad});
    BOOST_REQUIRE_EQUAL(c.rejected.size(), 1U);
    BOOST_REQUIRE(c.jobs.empty());
  }
  BOOST_CHECK_EQUAL(w.complete({good}).jobs.size(), 1U);
}

BOOST_AUTO_TEST_CASE(a_rank_refuses_plans_that_are_not_next) {
  World w(Setup{});
  World other(Setup{});
  w.begin(1, req(1, 4));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned one = w.plan();
  w.compute(1, 64);
  const Planned two = w.plan();
  const Planned foreign = other.plan();
  kvc_fence none{};
  none.struct_size = sizeof none;
  const auto submit = [&](const std::vector<std::uint8_t>& bytes, const kvc_fence* fence) {
    return w.api().submit_stores(w.rank(0), kvc_bytes_of(bytes.data(), bytes.size()), fence);
  };
  for (std::size_t n = 0; n < one.bytes.size(); n += 7) {
    BOOST_REQUIRE_EQUAL(
        submit({one.bytes.begin(), one.bytes.begin() + static_cast<std::ptrdiff_t>(n)}, &none),
        KVC_E_ARG);
  }
  for (std::size_t i = 0; i < one.bytes.size(); ++i) {
    auto bad = one.bytes;
    bad[i] ^= 0x10U;
    BOOST_REQUIRE_EQUAL(submit(bad, &none), KVC_E_ARG);
  }
  BOOST_CHECK_EQUAL(submit(one.bytes, nullptr), KVC_E_ARG);
  kvc_fence odd = none;
  odd.kind = 44;
  BOOST_CHECK_EQUAL(submit(one.bytes, &odd), KVC_E_UNSUPPORTED);
  odd.kind = KVC_FENCE_CUDA_EVENT;
  BOOST_CHECK_EQUAL(submit(one.bytes, &odd), KVC_E_UNSUPPORTED);
  odd.kind = KVC_FENCE_COUNTER;
  BOOST_CHECK_EQUAL(submit(one.bytes, &odd), KVC_E_ARG);
  odd.counter = reinterpret_cast<const std::uint64_t*>(reinterpret_cast<std::uintptr_t>(&odd) | 1U);
  BOOST_CHECK_EQUAL(submit(one.bytes, &odd), KVC_E_ARG);
  w.submit(one);
  BOOST_CHECK_EQUAL(submit(one.bytes, &none), KVC_E_STATE);
  BOOST_CHECK_EQUAL(submit(foreign.bytes, &none), KVC_E_STATE);
  w.submit(two);
  BOOST_CHECK_EQUAL(submit(one.bytes, &none), KVC_E_STATE);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(w.hit(req(1, 4)), 64U);
}

// K1-1: no byte of a source is read before its fence; K1-4: no byte of a destination is written
// before it.
BOOST_AUTO_TEST_CASE(no_copy_begins_before_its_fence) {
  World w(Setup{});
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.allocate_for_compute(1, 32);
  w.schedule(1, 32);
  const Planned stores = w.plan();
  w.submit_to(0, stores, 7);
  for (int i = 0; i < 3; ++i) {
    w.pump();
    w.complete(w.reports());
  }
  BOOST_CHECK_EQUAL(stored(w), 0U);
  w.write(w.request(1), 0, 32);  // the forward runs late
  w.request(1).computed = 32;
  w.reach(7);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(stored(w), 2U);

  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  w.take(2, 32);
  const Planned loads = w.plan();
  const auto before = w.snapshot();
  w.submit_to(0, loads, 8);
  w.pump();
  BOOST_CHECK_EQUAL(w.touched(before, {}), "");
  w.reach(8);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 32), "");
}

// Design 2.4: a load past its deadline is reported once; its blocks come back when its copies have
// really ended.
BOOST_AUTO_TEST_CASE(a_load_past_its_deadline_fails_and_its_blocks_come_back_later) {
  Setup s;
  s.connector_toml = "load_deadline_ms = 10";
  World w(s);
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  const kvc_job job = w.take(2, 32);
  w.submit_to(0, w.plan(), 9);
  w.advance_ns(11'000'000);
  Completed c = w.complete(w.reports());
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].job, job);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_E_DEADLINE);
  BOOST_CHECK(c.jobs.empty());
  BOOST_CHECK_EQUAL(w.held_count(), 2U);
  BOOST_CHECK_EQUAL(w.pending().quarantined_blocks, 2U);
  BOOST_CHECK(w.complete(w.reports()).verdicts.empty());
  w.reach(9);
  w.pump();
  c = w.complete(w.reports());
  BOOST_CHECK(c.verdicts.empty());
  BOOST_REQUIRE_EQUAL(c.jobs.size(), 1U);
  BOOST_CHECK_EQUAL(c.jobs[0].released.size(), 2U);
  BOOST_CHECK_EQUAL(w.pending().quarantined_blocks, 0U);
  BOOST_CHECK_EQUAL(w.lookup(2).why, KVC_WHY_LOAD_FAILED);
  w.end(2);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_store_past_its_deadline_is_dropped_even_if_it_ends_well) {
  Setup s;
  s.connector_toml = "store_deadline_ms = 10";
  World w(s);
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.submit_to(0, w.plan(), 3);
  w.advance_ns(11'000'000);
  w.complete(w.reports());
  w.reach(3);
  w.pump();
  w.complete(w.reports());
  const kvc_offer_counts c = w.counts().all_offers;
  BOOST_CHECK_EQUAL(c.stored, 0U);
  BOOST_CHECK_EQUAL(c.dropped_copy_failed + c.dropped_parent_failed, 2U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
  w.end(1, KVC_END_STOP, 32);
  w.drain();
  BOOST_CHECK_EQUAL(w.held_count(), 0U);
}

// T-12: after a reset with INVALIDATE no request may use what was being loaded.
BOOST_AUTO_TEST_CASE(a_load_that_a_reset_invalidates_ends_failed) {
  World w(Setup{});
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  w.take(2, 32);
  const Planned p = w.plan();
  w.submit(p);
  BOOST_CHECK_EQUAL(w.reset(KVC_RESET_INVALIDATE), KVC_LATER);
  w.pump();
  const Completed c = w.complete(w.reports());
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_LT(c.verdicts[0].status, 0);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
  BOOST_CHECK_EQUAL(w.reset(), KVC_OK);
  w.end(2, KVC_END_ABORT, 0);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_rank_that_acts_on_its_own_verdicts_must_drain_before_an_invalidation) {
  Setup s;
  s.host_caps |= KVC_HOST_RANK_VERDICTS;
  World w(s);
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  w.take(2, 32);
  BOOST_CHECK_EQUAL(w.reset(KVC_RESET_INVALIDATE), KVC_E_STATE);
  w.step();
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  BOOST_CHECK_EQUAL(w.reset(KVC_RESET_INVALIDATE), KVC_OK);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
}

BOOST_AUTO_TEST_CASE(a_poisoned_connector_answers_internal_and_its_rank_drains) {
  World w(Setup{});
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  w.take(2, 32);
  w.begin(3, req(3, 2));
  w.take(3, 0);
  w.compute(3, 32);
  const Planned p = w.plan();
  w.submit(p);
  {
    const Fault fault("edge.broken_invariant");
    if (!fault) return;
    w.check_counts = false;
    BOOST_CHECK_EQUAL(w.lookup(3).status, KVC_E_INTERNAL);
  }
  BOOST_CHECK(w.logged(KVC_LOG_ERROR, "injected before the call"));
  BOOST_CHECK_EQUAL(w.lookup(2).status, KVC_E_INTERNAL);
  BOOST_CHECK_EQUAL(w.try_begin(4, req(4, 1)), KVC_E_INTERNAL);
  BOOST_CHECK_EQUAL(w.reset(), KVC_E_INTERNAL);
  BOOST_CHECK(!w.last_error().empty());
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 2U);
  // The rank role knows nothing of it: the copies that were submitted end, the load's bytes are
  // right.
  w.pump();
  kvc_progress done{};
  done.struct_size = sizeof done;
  BOOST_REQUIRE_EQUAL(w.api().progress(w.rank(0), &done), KVC_OK);
  BOOST_REQUIRE_EQUAL(done.loads.count, 1U);
  BOOST_CHECK_EQUAL(static_cast<const kvc_load_done*>(done.loads.data)->status, KVC_OK);
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 32), "");
  BOOST_CHECK_EQUAL(w.complete({{done.report.data, done.report.data + done.report.size}}).status,
                    KVC_E_INTERNAL);
}

// Out of memory in a call that changed nothing yet: KVC_E_FULL, and the same call works the next
// time.
BOOST_AUTO_TEST_CASE(a_call_without_memory_answers_full_and_works_when_repeated) {
  World w(Setup{});
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  w.check_counts = false;  // the queries pass the same fault point
  const auto full_once = [&](auto call) {
    const Fault fault("edge.out_of_memory");
    if (!fault) return;
    BOOST_CHECK_EQUAL(call(), KVC_E_FULL);
    BOOST_CHECK(w.last_error().find("out of memory") != std::string::npos);
    BOOST_CHECK_EQUAL(call(), KVC_OK);
  };
  full_once([&] { return w.lookup(2).status; });
  w.allocate_for_load(2, 32);
  kvc_alloc_out out{};
  full_once([&] { return w.try_take(2, 32, out); });
  Planned p;
  full_once([&] { return w.try_plan(p); });
  w.submit(p);
  w.pump();
  const auto reports = w.reports();
  Completed c;
  full_once([&] { return (c = w.complete(reports)).status; });
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 32), "");
  kvc_end_out ended{};
  full_once([&] { return w.try_end(2, KVC_END_STOP, 32, {}, ended); });
  w.drop_blocks(2);
  w.check_counts = true;
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(an_invariant_that_breaks_after_a_call_poisons_too) {
  World w(Setup{});
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.check_counts = false;
  {
    const Fault fault("edge.broken_after_call");
    if (!fault) return;
    Planned p;
    BOOST_CHECK_EQUAL(w.try_plan(p), KVC_E_INTERNAL);
    BOOST_CHECK_EQUAL(w.try_plan(p), KVC_E_INTERNAL);
  }
  BOOST_CHECK_EQUAL(w.complete({}).status, KVC_E_INTERNAL);
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 0U);
}

// The threaded connector: the same protocol, completion told by wake and wait.
BOOST_AUTO_TEST_CASE(worker_threads_move_the_bytes_and_wake_the_host) {
  Setup s = two_ranks();
  s.host_caps = 0;
  s.host_toml = "copy_threads = 2";
  World w(s);
  w.begin(1, req(1, 4));
  w.take(1, 0);
  w.compute(1, 64);
  w.submit(w.plan());
  w.wait_all();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(stored(w), 4U);
  BOOST_CHECK_GE(w.wakes.load(), 1U);
  w.begin(2, req(1, 4));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 64U);
  w.take(2, 64);
  w.submit(w.plan());
  w.wait_all();
  const Completed c = w.complete(w.reports());
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_OK);
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 64), "");
  w.end(1);
  w.end(2);
}

BOOST_AUTO_TEST_CASE(closing_with_jobs_in_flight_touches_nothing_after) {
  for (const bool threaded : {false, true}) {
    for (int i = 0; i < 20; ++i) {
      Setup s = two_ranks();
      if (threaded) s.host_caps = 0;
      World w(s);
      w.begin(1, req(1, 4));
      w.take(1, 0);
      w.compute(1, 64);
      const Planned p = w.plan();
      w.submit_to(0, p, 5);  // waits for a fence that never comes
      w.submit_to(1, p, 0);
    }
  }
}

// What does not fit the memory of open ends as KVC_E_FULL; the request runs without connector and
// nothing is lost.
BOOST_AUTO_TEST_CASE(requests_beyond_the_limits_are_no_ops_for_ever) {
  for (const bool by_count : {true, false}) {
    Setup s;
    if (by_count) s.max_live = 2;
    if (!by_count) s.max_request_bytes = 2 * 4096 + 1024;
    World w(s);
    std::uint64_t id = 1;
    while (w.try_begin(id, tokens_of(id, 16 * 240)) == KVC_OK) BOOST_REQUIRE_LT(++id, 400U);
    BOOST_CHECK(!w.last_error().empty());
    const Found f = w.lookup(id);
    BOOST_CHECK_EQUAL(f.status, KVC_OK);
    BOOST_CHECK_EQUAL(f.tokens, 0U);
    BOOST_CHECK_EQUAL(f.why, KVC_WHY_NOT_TRACKED);
    BOOST_CHECK_EQUAL(w.take(id, 0), 0U);
    BOOST_CHECK_EQUAL(w.lookup_cancel(id), KVC_OK);
    w.compute(id, 128);
    BOOST_CHECK_EQUAL(w.extend(id, tokens_of(99, 16)), KVC_OK);
    BOOST_CHECK(w.step().jobs.empty());
    w.preempt(id);
    w.step();
    BOOST_CHECK_EQUAL(w.end(id), 0U);
    BOOST_CHECK_EQUAL(w.counts().all_offers.published, 0U);
    BOOST_CHECK_EQUAL(w.stat("requests_refused"), 1U);
    // Room that came back is used.
    w.end(1, KVC_END_ABORT);
    BOOST_CHECK_EQUAL(w.try_begin(1000, tokens_of(5, 33)), KVC_OK);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
