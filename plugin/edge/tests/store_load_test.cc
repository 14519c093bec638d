// Spec 9.1 through the C ABI, eager mode, one full-attention group and one with a window: what is
// stored, found, loaded and evicted. The fixture F(cpu, gpu) of the spec counts its null block; the
// tier here has none, so cpu - 1 slots.
#include <boost/test/unit_test.hpp>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(store_and_load)

namespace {

Setup f(std::uint64_t cpu, std::uint64_t gpu, bool window = false) {
  Setup s;
  s.groups = {full(16)};
  if (window) s.groups.push_back(sliding(16, 64));
  s.host_blocks = cpu - 1;
  s.device_blocks = gpu;
  s.max_batch = 64;
  return s;
}

std::uint64_t stored(World& w) { return w.counts().all_offers.stored; }

// The prompt of k full blocks and one token.
Tokens req(std::uint64_t seed, std::uint64_t k) { return tokens_of(seed, 16 * k + 1); }

}  // namespace

BOOST_AUTO_TEST_CASE(eager_store_and_load_roundtrip) {
  World w(f(8, 16));
  w.run(1, req(1, 2), 32);
  BOOST_CHECK_EQUAL(stored(w), 2U);
  w.begin(2, req(1, 2));
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 32U);
  const auto before = w.snapshot();
  const kvc_job job = w.take(2, 32);
  const std::vector<std::int64_t> blocks = w.request(2).tables[0];
  const Planned p = w.plan();
  BOOST_CHECK(p.loads == std::vector<kvc_job>{job});
  w.submit(p);
  w.pump();
  const Completed c = w.complete(w.reports());
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_OK);
  BOOST_CHECK_EQUAL(c.verdicts[0].request, 2U);
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 32), "");
  BOOST_CHECK_EQUAL(w.touched(before, {blocks.begin(), blocks.end()}), "");
  w.end(1);
  w.end(2);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(blocks_are_stored_in_the_step_that_fills_them) {
  World w(f(8, 16));
  w.begin(1, req(1, 4));
  w.take(1, 0);
  w.compute(1, 32);
  BOOST_CHECK_EQUAL(w.plan().stores.size(), 1U);
  BOOST_CHECK_EQUAL(w.counts().all_offers.pending, 2U);
  BOOST_CHECK_EQUAL(w.pending().held_blocks, 2U);
}

BOOST_AUTO_TEST_CASE(a_request_that_does_not_read_finds_nothing_and_still_stores) {
  World w(f(8, 16));
  w.store(1, req(1, 2), 32);
  w.begin(2, req(1, 2), KVC_REQUEST_NO_READ);
  const Found found = w.lookup(2);
  BOOST_CHECK_EQUAL(found.tokens, 0U);
  BOOST_CHECK_EQUAL(found.why, KVC_WHY_NO_READ);
  w.begin(3, req(3, 2), KVC_REQUEST_NO_READ);
  w.take(3, 0);
  w.compute(3, 32);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 4U);
}

BOOST_AUTO_TEST_CASE(a_request_that_does_not_write_offers_nothing) {
  World w(f(8, 16));
  w.begin(1, req(1, 2), KVC_REQUEST_NO_WRITE);
  w.take(1, 0);
  w.compute(1, 32);
  BOOST_CHECK(w.step().jobs.empty());
  w.end(1);
  w.drain();
  BOOST_CHECK_EQUAL(w.counts().all_offers.published, 0U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
}

BOOST_AUTO_TEST_CASE(limits_of_a_request_bound_its_hit_and_its_offers) {
  World w(f(8, 16));
  w.store(1, req(1, 3), 48);
  BOOST_REQUIRE_EQUAL(w.try_begin(2, req(1, 3), 0, 0, 32, KVC_NO_LIMIT), KVC_OK);
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 32U);
  BOOST_REQUIRE_EQUAL(w.try_begin(3, req(3, 3), 0, 0, KVC_NO_LIMIT, 40), KVC_OK);
  w.take(3, 0);
  w.compute(3, 48);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 5U);
  BOOST_CHECK_EQUAL(w.hit(req(3, 3)), 32U);
}

// finished_eager_stores_are_batched: computed and finished without a record in between.
BOOST_AUTO_TEST_CASE(finished_requests_that_were_never_scheduled_are_stored_in_one_plan) {
  World w(f(8, 16));
  for (const std::uint64_t id : {1U, 2U}) {
    Request& r = w.begin(id, req(id, 2));
    w.take(id, 0);
    w.allocate_for_compute(id, 32);
    w.write(r, 0, 32);
    BOOST_CHECK_NE(w.end(id, KVC_END_STOP, 32), 0U);
  }
  const Planned p = w.plan();
  BOOST_CHECK_EQUAL(p.stores.size(), 2U);
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(stored(w), 4U);
  w.begin(3, req(1, 2));
  BOOST_CHECK_EQUAL(w.load(3), 32U);
  BOOST_CHECK_EQUAL(w.hit(req(2, 2)), 32U);
}

BOOST_AUTO_TEST_CASE(finished_stores_skip_what_is_there) {
  World w(f(8, 16));
  w.store(1, req(1, 2), 32);
  const std::uint64_t used = w.stat("host_slots_used_now");
  Request& r = w.begin(2, req(1, 2));
  w.take(2, 0);
  w.allocate_for_compute(2, 32);
  w.write(r, 0, 32);
  BOOST_CHECK_EQUAL(w.end(2, KVC_END_STOP, 32), 0U);
  BOOST_CHECK_EQUAL(w.stat("host_slots_used_now"), used);
  BOOST_CHECK_EQUAL(w.counts().all_offers.skipped_already_cached, 2U);
}

BOOST_AUTO_TEST_CASE(a_finished_store_is_pending_until_its_completion) {
  World w(f(8, 16));
  Request& r = w.begin(1, req(1, 2));
  w.take(1, 0);
  w.allocate_for_compute(1, 32);
  w.write(r, 0, 32);
  w.end(1, KVC_END_STOP, 32);
  BOOST_CHECK_EQUAL(w.pending().store_jobs, 1U);
  const Planned p = w.plan();
  BOOST_CHECK_EQUAL(w.pending().store_jobs, 1U);
  BOOST_CHECK_EQUAL(w.pending().held_blocks, 2U);
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(w.pending().store_jobs, 0U);
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(finished_stores_cover_all_groups) {
  World w(f(8, 16, true));
  Request& r = w.begin(1, req(1, 2));
  w.take(1, 0);
  w.allocate_for_compute(1, 32);
  w.write(r, 0, 32);
  w.end(1, KVC_END_STOP, 32);
  w.drain();
  BOOST_CHECK_EQUAL(stored(w), 4U);
  w.begin(2, req(1, 2));
  BOOST_CHECK_EQUAL(w.load(2), 32U);
}

BOOST_AUTO_TEST_CASE(finished_stores_respect_the_capacity_and_keep_the_head) {
  World w(f(3, 16));
  Request& r = w.begin(1, req(1, 3));
  w.take(1, 0);
  w.allocate_for_compute(1, 48);
  w.write(r, 0, 48);
  w.end(1, KVC_END_STOP, 48);
  w.drain();
  const kvc_offer_counts c = w.counts().all_offers;
  BOOST_CHECK_EQUAL(c.stored, 2U);
  BOOST_CHECK_EQUAL(c.dropped_pool_full, 1U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 3)), 32U);
}

BOOST_AUTO_TEST_CASE(reset_ends_finished_stores_that_no_plan_had_yet) {
  World w(f(8, 16));
  Request& r = w.begin(1, req(1, 2));
  w.take(1, 0);
  w.allocate_for_compute(1, 32);
  w.write(r, 0, 32);
  BOOST_CHECK_NE(w.end(1, KVC_END_STOP, 32), 0U);
  w.reset();
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
  w.drain();
  BOOST_CHECK_EQUAL(w.counts().all_offers.dropped_reset, 2U);
  BOOST_CHECK_EQUAL(w.reset(), KVC_OK);
  BOOST_CHECK_EQUAL(w.stat("host_slots_used_now"), 0U);
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(at_most_all_tokens_but_one_can_hit) {
  World w(f(8, 16));
  w.store(1, tokens_of(1, 32), 32);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 32)), 16U);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 33)), 32U);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_cached_is_not_stored_again) {
  World w(f(8, 16));
  w.store(1, req(1, 2), 32);
  const std::uint64_t used = w.stat("host_slots_used_now");
  w.store(2, req(1, 2), 32);
  BOOST_CHECK_EQUAL(w.stat("host_slots_used_now"), used);
  BOOST_CHECK_EQUAL(w.counts().all_offers.skipped_already_cached, 2U);
  BOOST_CHECK_EQUAL(stored(w), 2U);
}

// T-6, CW-9: deduplication is by key, also while the first copy is open.
BOOST_AUTO_TEST_CASE(a_block_whose_key_is_being_stored_waits_and_is_then_skipped) {
  World w(f(8, 16));
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  const Planned first = w.plan();
  w.begin(2, req(1, 2));
  w.take(2, 0);
  w.compute(2, 32);
  const Planned second = w.plan();
  BOOST_CHECK(second.stores.empty());
  BOOST_CHECK_EQUAL(w.stat("host_slots_used_now"), 2U);
  w.submit(first);
  w.submit(second);
  w.pump();
  w.complete(w.reports());
  w.schedule(2, 32);
  w.step();
  const kvc_offer_counts c = w.counts().all_offers;
  BOOST_CHECK_EQUAL(c.stored, 2U);
  BOOST_CHECK_EQUAL(c.skipped_already_cached, 2U);
  BOOST_CHECK_EQUAL(c.pending, 0U);
  BOOST_CHECK_EQUAL(w.stat("host_slots_used_now"), 2U);
}

BOOST_AUTO_TEST_CASE(a_waiting_block_is_stored_by_the_second_request_if_the_first_copy_fails) {
  if (Library::under_test().test() == nullptr) return;
  World w(f(8, 16));
  w.begin(1, req(1, 1));
  w.take(1, 0);
  w.compute(1, 16);
  const Planned first = w.plan();
  w.begin(2, req(1, 1));
  w.take(2, 0);
  w.compute(2, 16);
  const Planned second = w.plan();
  w.library().test()->set_fault({reinterpret_cast<const std::uint8_t*>("copy.store"), 10}, 0);
  w.submit(first);
  w.submit(second);
  w.pump();
  const Completed c = w.complete(w.reports());
  w.library().test()->clear_faults();
  BOOST_REQUIRE_EQUAL(c.jobs.size(), 1U);
  BOOST_CHECK_EQUAL(c.jobs[0].status, KVC_E_IO);
  BOOST_CHECK_EQUAL(w.counts().all_offers.dropped_copy_failed, 1U);
  w.schedule(2, 16);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 1U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 1)), 16U);
}

BOOST_AUTO_TEST_CASE(the_least_recently_used_goes_first) {
  World w(f(5, 16));
  w.store(1, req(1, 2), 32);
  w.store(2, req(2, 2), 32);
  w.store(3, req(3, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
  BOOST_CHECK_EQUAL(w.hit(req(2, 2)), 32U);
  BOOST_CHECK_EQUAL(w.hit(req(3, 2)), 32U);
}

BOOST_AUTO_TEST_CASE(what_was_used_survives_an_eviction) {
  World w(f(5, 24));
  w.store(1, req(1, 2), 32);
  w.store(2, req(2, 2), 32);
  w.begin(3, req(1, 2));
  BOOST_REQUIRE_EQUAL(w.load(3), 32U);
  w.end(3, KVC_END_ABORT);
  w.store(4, req(4, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(2, 2)), 0U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  BOOST_CHECK_EQUAL(w.hit(req(4, 2)), 32U);
}

// CW-10: a store that is skipped because the key is there refreshes the whole path.
BOOST_AUTO_TEST_CASE(a_skipped_store_refreshes_its_path) {
  World w(f(5, 24));
  w.store(1, req(1, 2), 32);
  w.store(2, req(2, 2), 32);
  w.store(3, req(1, 2), 32);
  w.store(4, req(4, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(2, 2)), 0U);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
}

// T-3, CW-2: one later store takes the tail of a prefix, never its head.
BOOST_AUTO_TEST_CASE(a_prefix_of_four_blocks_in_four_slots_loses_its_tail_to_one_later_store) {
  World w(f(5, 24));
  w.store(1, req(1, 4), 64);
  BOOST_REQUIRE_EQUAL(w.hit(req(1, 4)), 64U);
  w.store(2, req(2, 1), 16);
  BOOST_CHECK_EQUAL(w.hit(req(1, 4)), 48U);
  BOOST_CHECK_EQUAL(w.hit(req(2, 1)), 16U);
}

// The same after the path was pinned and released by a load, by a lease and by a cancelled lookup.
BOOST_AUTO_TEST_CASE(the_tail_goes_first_on_every_release_path) {
  for (int path = 0; path < 4; ++path) {
    BOOST_TEST_CONTEXT("release path " << path) {
      World w(f(5, 24));
      w.store(1, req(1, 4), 64);
      w.begin(2, req(1, 4));
      if (path == 0) BOOST_REQUIRE_EQUAL(w.load(2), 64U);
      if (path != 0) BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 64U);
      if (path == 1) BOOST_REQUIRE_EQUAL(w.lookup_cancel(2), KVC_OK);
      if (path == 2) w.take(2, 0);
      if (path == 3) w.step();
      w.end(2, KVC_END_ABORT);
      w.drain();
      w.store(3, req(3, 1), 16);
      BOOST_CHECK_EQUAL(w.hit(req(1, 4)), 48U);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_second_chunk_stores_exactly_its_own_blocks) {
  World w(f(8, 16));
  w.begin(1, req(1, 4));
  w.take(1, 0);
  w.compute(1, 32);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 2U);
  w.compute(1, 64);
  const Planned p = w.plan();
  BOOST_CHECK_EQUAL(p.stores.size(), 1U);
  BOOST_CHECK_EQUAL(w.held_count(), 2U);
  BOOST_CHECK(w.held(w.request(1).tables[0][2]) && w.held(w.request(1).tables[0][3]));
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(stored(w), 4U);
}

BOOST_AUTO_TEST_CASE(a_part_of_the_hit_behind_a_local_prefix_goes_to_its_positions) {
  World w(f(16, 32));
  w.store(1, req(1, 6), 96);
  Request& r = w.begin(2, req(1, 6));
  w.allocate_for_load(2, 32);
  w.write(r, 0, 32);
  BOOST_CHECK_EQUAL(w.lookup(2, 32).tokens, 64U);
  w.allocate_for_load(2, 96);
  const auto before = w.snapshot();
  kvc_alloc_out out{};
  BOOST_REQUIRE_EQUAL(w.try_take(2, 32, out), KVC_OK);
  const std::vector<std::int64_t> table = w.request(2).tables[0];
  BOOST_CHECK_EQUAL(w.held_count(), 2U);
  BOOST_CHECK(w.held(table[2]) && w.held(table[3]));
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 32, 64), "");
  BOOST_CHECK_EQUAL(w.touched(before, {table[2], table[3]}), "");
}

BOOST_AUTO_TEST_CASE(a_prefix_that_the_device_does_not_align_is_answered_zero_with_a_why) {
  Setup s = f(8, 16);
  s.groups = {full(16), state_align(64)};
  World w(s);
  w.store(1, tokens_of(1, 129), 128);
  w.begin(2, tokens_of(1, 129));
  const Found found = w.lookup(2, 16);
  BOOST_CHECK_EQUAL(found.tokens, 0U);
  BOOST_CHECK_EQUAL(found.why, KVC_WHY_LOCAL_UNALIGNED);
}

BOOST_AUTO_TEST_CASE(a_longer_prefix_than_the_tier_has_is_found_as_far_as_it_goes) {
  World w(f(16, 32));
  w.store(1, req(1, 3), 48);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 49) + tokens_of(9, 64)), 48U);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(1, 40) + tokens_of(9, 64)), 32U);
  BOOST_CHECK_EQUAL(w.hit(tokens_of(9, 64)), 0U);
  w.begin(2, req(1, 3));
  BOOST_CHECK_EQUAL(w.lookup(2, 0, 16).tokens, 16U);
  BOOST_CHECK_EQUAL(w.lookup(2, 0, 31).tokens, 16U);
  BOOST_CHECK_EQUAL(w.lookup(2, 0, 0).tokens, 0U);
}

// CW-11: an evicted block may be stored again.
BOOST_AUTO_TEST_CASE(an_evicted_block_is_stored_again_by_the_next_request) {
  World w(f(3, 32));
  w.store(1, req(1, 2), 32);
  w.store(2, req(2, 2), 32);
  BOOST_REQUIRE_EQUAL(w.hit(req(1, 2)), 0U);
  w.store(3, req(1, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 6U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
