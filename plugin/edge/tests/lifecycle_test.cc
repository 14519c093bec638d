// Leases, holds, preemption, abort, finish and reset (field reports K2, K3, K4, spec 9.1, T-8 ..
// T-13).
#include <boost/test/unit_test.hpp>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(lifecycle)

namespace {

Setup small(std::uint64_t host, std::uint64_t device = 48) {
  Setup s;
  s.host_blocks = host;
  s.device_blocks = device;
  return s;
}

Tokens req(std::uint64_t seed, std::uint64_t k) { return tokens_of(seed, 16 * k + 1); }

std::uint64_t slots(World& w) { return w.stat("host_slots_used_now"); }

}  // namespace

// K2-7: what a lookup found is there at alloc_update, whatever is stored in between.
BOOST_AUTO_TEST_CASE(what_a_lookup_found_is_not_evicted_before_it_is_taken) {
  Setup s = small(4);
  s.connector_toml = "lease_steps = 8";
  World w(s);
  w.store(1, req(1, 2), 32);  // older
  w.store(2, req(2, 2), 32);
  w.begin(3, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(3).tokens, 32U);
  w.store(4, req(4, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(2, 2)), 0U);  // the newer one went: the older is leased
  const kvc_job job = w.take(3, 32);
  BOOST_CHECK_EQUAL(w.held_count(), 2U);
  const Completed c = w.step();
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].job, job);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_OK);
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(3), 0, 32), "");
  w.end(3, KVC_END_ABORT);
  w.drain();
  BOOST_CHECK_EQUAL(w.stat("host_slots_pinned_now"), 0U);
}

BOOST_AUTO_TEST_CASE(a_second_lookup_replaces_the_lease_of_the_first) {
  World w(small(4));
  w.store(1, req(1, 4), 64);
  w.begin(2, req(1, 4));
  for (int i = 0; i < 5; ++i) BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 64U);
  BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 1U);
  BOOST_CHECK_EQUAL(w.lookup_cancel(2), KVC_OK);
  BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 0U);
  BOOST_CHECK_EQUAL(w.stat("host_slots_evictable_now"), 4U);
  BOOST_CHECK_EQUAL(w.lookup_cancel(2), KVC_OK);
  BOOST_CHECK_EQUAL(w.lookup_cancel(999), KVC_E_ARG);
}

// K3-19: a hit that is not used leaves nothing behind, a hundred times.
BOOST_AUTO_TEST_CASE(hits_that_are_not_used_leave_every_slot_evictable) {
  World w(small(8));
  w.store(1, req(1, 8), 128);
  Request& r = w.begin(2, req(1, 8));
  w.allocate_for_load(2, 64);
  w.write(r, 0, 64);
  for (int i = 0; i < 100; ++i) {
    BOOST_REQUIRE_EQUAL(w.lookup(2, 64).tokens, 64U);
    kvc_alloc_out out{};
    BOOST_REQUIRE_EQUAL(w.try_take(2, 0, out), KVC_OK);
    BOOST_REQUIRE_EQUAL(out.job, 0U);
    BOOST_REQUIRE_EQUAL(w.stat("host_slots_evictable_now"), 8U);
  }
}

// Every way a lease ends gives all slots back.
BOOST_AUTO_TEST_CASE(a_lease_ends_by_step_allocation_cancel_end_and_reset) {
  for (int way = 0; way < 6; ++way) {
    BOOST_TEST_CONTEXT("way " << way) {
      World w(small(8));
      w.store(1, req(1, 4), 64);
      w.begin(2, req(1, 4));
      BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 64U);
      BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 1U);
      if (way == 0) w.step();
      if (way == 1) w.take(2, 0);
      if (way == 2) w.lookup_cancel(2);
      if (way == 3) w.end(2, KVC_END_ABORT);
      if (way == 4) w.reset();
      if (way == 5) w.lookup(2, 0, 0);
      BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 0U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_lease_lives_for_lease_steps_plans) {
  for (const std::uint64_t steps : {1U, 3U, 8U}) {
    Setup s = small(8);
    s.connector_toml = "lease_steps = " + std::to_string(steps);
    World w(s);
    w.store(1, req(1, 4), 64);
    w.begin(2, req(1, 4));
    BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 64U);
    for (std::uint64_t i = 1; i < steps; ++i) {
      w.step();
      BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 1U);
    }
    w.step();
    BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 0U);
  }
}

BOOST_AUTO_TEST_CASE(the_oldest_lease_gives_way_when_there_are_too_many) {
  Setup s = small(8);
  s.connector_toml = "max_leases = 2";
  World w(s);
  w.store(1, req(1, 2), 32);
  for (std::uint64_t id = 2; id < 6; ++id) {
    w.begin(id, req(1, 2));
    BOOST_REQUIRE_EQUAL(w.lookup(id).tokens, 32U);
  }
  BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 2U);
  BOOST_CHECK_EQUAL(w.stat("leases_dropped"), 2U);
  // Its hit is still there, so it can still be taken.
  w.take(2, 32);
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 32), "");
}

// Design 2.3 Acceptance: the lease is gone and the blocks too: a job without copies that ends
// KVC_E_IO.
BOOST_AUTO_TEST_CASE(an_accepted_hit_that_is_gone_ends_as_a_failed_load) {
  World w(small(2));
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  w.store(3, req(3, 2), 32);
  const auto before = w.snapshot();
  const kvc_job job = w.take(2, 32);
  const Completed c = w.step();
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].job, job);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_E_IO);
  BOOST_CHECK_EQUAL(w.touched(before, {}), "");
  // That does not mark the request: it is an ordinary miss.
  const Found again = w.lookup(2);
  BOOST_CHECK_EQUAL(again.tokens, 0U);
  BOOST_CHECK_EQUAL(again.why, KVC_WHY_MISS);
}

BOOST_AUTO_TEST_CASE(wrong_acceptances_are_refused_and_the_lease_stays) {
  World w(small(8));
  w.store(1, req(1, 4), 64);
  w.begin(2, req(1, 4));
  BOOST_REQUIRE_EQUAL(w.lookup(2, 0, 48).tokens, 48U);
  w.allocate_for_load(2, 64);
  kvc_alloc_out out{};
  BOOST_CHECK_EQUAL(w.try_take(2, 64, out), KVC_E_ARG);  // above the offer
  BOOST_CHECK_EQUAL(w.try_take(2, 8, out), KVC_E_ARG);   // no multiple of h
  const std::int64_t block = w.request(2).tables[0][1];
  for (const std::int64_t bad :
       {w.setup().null_block, std::int64_t{-7}, std::int64_t{48}, INT64_MAX, INT64_MIN}) {
    w.request(2).tables[0][1] = bad;
    BOOST_CHECK_EQUAL(w.try_take(2, 48, out), KVC_E_ARG);
  }
  w.request(2).tables[0][1] = block;
  w.request(2).tables[0].resize(2);
  BOOST_CHECK_EQUAL(w.try_take(2, 48, out), KVC_E_ARG);  // the table is too short
  BOOST_CHECK(!w.last_error().empty());
  BOOST_CHECK_EQUAL(w.stat("leases_open_now"), 1U);
  w.request(2).tables[0].push_back(w.new_block());
  BOOST_CHECK_EQUAL(w.try_take(2, 48, out), KVC_OK);
  BOOST_CHECK_EQUAL(w.try_take(2, 16, out), KVC_E_STATE);  // no verdict yet
  const Found f = w.lookup(2);
  BOOST_CHECK_EQUAL(f.status, KVC_E_STATE);
  w.drain();
}

// K2-10: the source of a load in flight is never overwritten.
BOOST_AUTO_TEST_CASE(the_source_of_a_load_in_flight_is_not_evicted) {
  World w(small(2));
  w.store(1, req(1, 1), 16);
  w.begin(2, req(1, 1));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 16U);
  w.take(2, 16);
  const Planned load = w.plan();  // not submitted: the load is in flight
  w.begin(3, req(3, 2));
  w.take(3, 0);
  w.compute(3, 32);
  const Planned stores = w.plan();
  BOOST_CHECK_EQUAL(w.held(w.request(3).tables[0][0]), true);
  BOOST_CHECK_EQUAL(w.held(w.request(3).tables[0][1]), false);  // refused: no slot
  BOOST_CHECK_EQUAL(slots(w), 2U);
  w.submit(load);
  w.submit(stores);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 16), "");
  w.end(3, KVC_END_ABORT, 32);
  w.drain();
}

// K3-17: a block that a table names twice, and one that two requests share, is copied once.
BOOST_AUTO_TEST_CASE(a_shared_block_is_copied_once_per_step) {
  World w(small(8));
  w.begin(1, req(1, 1));
  w.take(1, 0);
  w.compute(1, 16);
  Request& second = w.begin(2, req(1, 1));
  w.take(2, 0);
  second.tables[0] = {w.request(1).tables[0][0]};
  w.share_block(second.tables[0][0]);
  second.computed = 16;
  w.schedule(2, 16);
  const Planned p = w.plan();
  BOOST_CHECK_EQUAL(p.stores.size(), 1U);
  BOOST_CHECK_EQUAL(slots(w), 1U);
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  w.end(1);
  w.end(2);
  w.drain();
  w.check_quiet();
}

// K3-21: a report that comes twice is rejected and counted, nothing is released twice.
BOOST_AUTO_TEST_CASE(a_report_that_comes_twice_is_rejected) {
  World w(small(8));
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.submit(w.plan());
  w.pump();
  const auto reports = w.reports();
  BOOST_REQUIRE_EQUAL(w.complete(reports).jobs.size(), 1U);
  const std::uint64_t evictable = w.stat("host_slots_evictable_now");
  const Completed again = w.complete(reports);
  BOOST_CHECK_EQUAL(again.status, KVC_OK);
  BOOST_CHECK(again.jobs.empty());
  BOOST_CHECK_EQUAL(again.rejected.size(), 1U);
  BOOST_CHECK_EQUAL(w.stat("host_slots_evictable_now"), evictable);
  BOOST_CHECK(w.logged_times("report") + w.logged_times("job") > 0);
  w.end(1);
  w.drain();
  w.check_quiet();
}

// K4-23: blocks in flight when the request is preempted: not found before they have landed, found
// after.
BOOST_AUTO_TEST_CASE(a_preempted_request_finds_its_blocks_once_they_landed) {
  Setup s = small(8);
  s.groups = {full(4)};
  World w(s);
  w.begin(1, tokens_of(1, 9));
  w.take(1, 0);
  w.compute(1, 8);
  const Planned p = w.plan();
  const std::vector<std::int64_t> blocks = w.request(1).tables[0];
  BOOST_CHECK_EQUAL(w.lookup(1).tokens, 0U);
  w.preempt(1);
  const Planned empty = w.plan();
  for (std::size_t i = 0; i < 2; ++i) BOOST_CHECK(w.held(blocks[i]));
  w.submit(p);
  w.submit(empty);
  w.pump();
  w.complete(w.reports());
  for (std::size_t i = 0; i < 2; ++i) BOOST_CHECK(!w.held(blocks[i]));
  BOOST_CHECK_EQUAL(w.load(1), 8U);
  w.schedule(1, 8, true);
  w.step();
  w.end(1);
  w.drain();
  w.check_quiet();
}

// K4-24: a request that owns no block ends.
BOOST_AUTO_TEST_CASE(a_request_that_was_never_scheduled_is_aborted) {
  World w(small(8));
  w.begin(1, tokens_of(1, 48));
  w.lookup(1);
  BOOST_CHECK_EQUAL(w.end(1, KVC_END_ABORT), 0U);
  BOOST_CHECK(w.step().jobs.empty());
  w.check_quiet();
  w.store(2, req(2, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(2, 2)), 32U);
}

// K4-26: the block that the last step fills is stored.
BOOST_AUTO_TEST_CASE(the_last_block_of_a_request_is_stored) {
  World w(small(8));
  w.begin(1, tokens_of(1, 40));
  w.take(1, 0);
  w.compute(1, 40);
  w.step();
  for (std::uint64_t n = 41; n <= 49; ++n) {
    w.extend(1, tokens_of(100 + n, 1));
    if (n == 49) break;  // the last token is sampled, it has no KV
    w.compute(1, n);
    w.step();
  }
  const Tokens all = w.request(1).tokens;
  w.end(1, KVC_END_LENGTH, 48);
  w.drain();
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 3U);
  Tokens next(all.begin(), all.begin() + 48);
  BOOST_CHECK_EQUAL(w.hit(next + tokens_of(7, 16)), 48U);
}

// K4-28: the last sampled token has no KV and is not stored.
BOOST_AUTO_TEST_CASE(the_last_sampled_token_is_not_stored) {
  Setup s = small(8);
  s.groups = {full(4)};
  World w(s);
  w.begin(1, tokens_of(1, 6));
  w.take(1, 0);
  w.compute(1, 6);
  w.step();
  w.extend(1, tokens_of(2, 2));
  w.allocate_for_compute(1, 8);
  w.write(w.request(1), 6, 7);
  w.end(1, KVC_END_STOP, 7);
  w.drain();
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 1U);
}

// K4-29, CW-28: a position waits for its key and is stored once.
BOOST_AUTO_TEST_CASE(a_block_whose_key_comes_a_step_late_is_stored_once) {
  Setup s = small(8);
  s.groups = {full(4)};
  World w(s);
  w.begin(1, tokens_of(1, 7));
  w.take(1, 0);
  w.compute(1, 7);
  w.step();
  std::uint64_t late = 0;
  for (std::uint64_t n = 8; n <= 13; ++n) {
    w.extend(1, tokens_of(200 + n, 1), false);
    w.compute(1, n);
    w.step();
    if (n % 4 == 0) {
      BOOST_CHECK_EQUAL(w.counts().all_offers.stored, late + 1);
      ++late;
    }
    w.extend(1, {});  // the key of what filled comes after the step
  }
  w.schedule(1, 13);
  w.step();
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 3U);
  BOOST_CHECK_EQUAL(w.hit(w.request(1).tokens), 12U);
}

// K4-33: an engine that goes idle flushes with an empty step; it can see that it has to.
BOOST_AUTO_TEST_CASE(work_of_a_finished_request_is_not_stranded_when_the_engine_goes_idle) {
  World w(small(8));
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.submit(w.plan());
  w.end(1);
  BOOST_CHECK_EQUAL(w.pending().store_jobs, 1U);
  w.drain();
  BOOST_CHECK_EQUAL(w.pending().store_jobs, 0U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  w.check_quiet();
}

// K2-16: finish and completion of the last store in one step, in both orders.
BOOST_AUTO_TEST_CASE(finish_and_completion_in_one_step_release_once_in_both_orders) {
  for (const bool finish_first : {true, false}) {
    World w(small(8));
    w.begin(1, req(1, 2));
    w.take(1, 0);
    w.compute(1, 32);
    w.submit(w.plan());
    w.pump();
    const auto reports = w.reports();
    if (finish_first) w.end(1);
    w.complete(reports);
    if (!finish_first) w.end(1);
    w.drain();
    BOOST_CHECK_EQUAL(w.free_blocks(), 47U);
    BOOST_CHECK_EQUAL(w.stat("host_slots_evictable_now"), 2U);
    w.check_quiet();
  }
}

// T-11: the blocks of a request that was aborted while it loads come back with the completion.
BOOST_AUTO_TEST_CASE(an_abort_while_loading_frees_the_blocks_after_the_completion_only) {
  World w(small(8));
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  const kvc_job job = w.take(2, 32);
  const std::vector<std::int64_t> blocks = w.request(2).tables[0];
  const Planned p = w.plan();
  w.end(2, KVC_END_ABORT, 0);
  for (const std::int64_t b : blocks) BOOST_CHECK(w.held(b));
  w.submit(p);
  w.pump();
  const Completed c = w.complete(w.reports());
  for (const std::int64_t b : blocks) BOOST_CHECK(!w.held(b));
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);  // also after the end
  BOOST_CHECK_EQUAL(c.verdicts[0].job, job);
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_load_that_no_plan_had_when_its_request_ended_is_cancelled_in_the_next) {
  World w(small(8));
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 32U);
  const kvc_job job = w.take(2, 32);
  const auto before = w.snapshot();
  w.end(2, KVC_END_ABORT, 0);
  const Planned p = w.plan();
  BOOST_CHECK(p.loads == std::vector<kvc_job>{job});
  w.submit(p);
  w.pump();
  const Completed c = w.complete(w.reports());
  BOOST_REQUIRE_EQUAL(c.jobs.size(), 1U);
  BOOST_CHECK_EQUAL(c.jobs[0].status, KVC_E_CANCELLED);
  BOOST_CHECK_EQUAL(w.touched(before, {}), "");
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_finish_while_a_store_is_in_flight_keeps_its_blocks_held) {
  World w(small(8));
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned p = w.plan();
  const std::vector<std::int64_t> blocks = w.request(1).tables[0];
  BOOST_CHECK_EQUAL(w.end(1), 0U);
  BOOST_CHECK(w.held(blocks[0]) && w.held(blocks[1]));
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK(!w.held(blocks[0]) && !w.held(blocks[1]));
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  w.check_quiet();
}

// Confirmed never falls; a wrong one ends nothing but the offers.
BOOST_AUTO_TEST_CASE(confirmed_tokens_that_fall_are_a_fault_of_the_host) {
  World w(small(8));
  w.begin(1, req(1, 4));
  w.take(1, 0);
  w.compute(1, 48);
  w.step();
  w.schedule(1, 32);
  w.step();
  BOOST_CHECK(w.logged(KVC_LOG_PEER_FAULT, "confirmed"));
  kvc_end_out out{};
  BOOST_CHECK_EQUAL(w.try_end(1, KVC_END_STOP, 16, {}, out), KVC_E_ARG);
  w.drop_blocks(1);
  w.drain();
  kvc_lookup_out found{};
  found.struct_size = sizeof found;
  const kvc_lookup_in in{sizeof in, 0, 1, 65, 0, KVC_NO_LIMIT};
  BOOST_CHECK_EQUAL(w.api().lookup(w.sched(), &in, &found),
                    KVC_E_ARG);  // it has ended all the same
  w.check_quiet();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
