// Several groups, states, windows, chunks, context parallel and tails through the C ABI (spec 9.1,
// field reports K6, K7, K8, T-2, T-4, T-5, T-10).
#include <boost/test/unit_test.hpp>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(hybrid)

namespace {

std::uint64_t stored(World& w) { return w.counts().all_offers.stored; }

// Full attention 16 over two context-parallel ranks (32) and a state per 64 tokens.
Setup dcp_mixed(bool all_mode) {
  Setup s;
  s.groups = {full(16, KVC_GROUP_CAP_SHARDED), all_mode ? state_all(64) : state_align(64)};
  s.h = 16;
  s.s = 64;
  s.cp = 2;
  return s;
}

// Computes [from, to) and hands off the state at `to`.
void compute_and_hand_off(World& w, std::uint64_t id, std::uint64_t to) {
  w.compute(id, to);
  for (std::uint32_t g = 0; g < w.setup().groups.size(); ++g) {
    if (w.setup().groups[g].kind != KVC_GROUP_STATE) continue;
    w.hand_off(id, g, w.request(id).tables[g].back(), to);
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(blocks_of_two_context_parallel_ranks_are_stored_and_loaded) {
  Setup s;
  s.groups = {full(16, KVC_GROUP_CAP_SHARDED)};
  s.cp = 2;
  s.h = 32;
  s.s = 32;
  World w(s);
  w.store(1, tokens_of(1, 65), 64);
  BOOST_CHECK_EQUAL(stored(w), 2U);
  w.begin(2, tokens_of(1, 65));
  const auto before = w.snapshot();
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 64U);
  w.take(2, 64);
  BOOST_CHECK_EQUAL(w.held_count(), 2U);
  const auto table = w.request(2).tables[0];
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 64), "");
  BOOST_CHECK_EQUAL(w.touched(before, {table.begin(), table.end()}), "");
}

BOOST_AUTO_TEST_CASE(a_part_of_a_context_parallel_hit_is_one_virtual_block) {
  Setup s;
  s.groups = {full(16, KVC_GROUP_CAP_SHARDED)};
  s.cp = 2;
  s.h = 32;
  s.s = 32;
  World w(s);
  w.begin(1, tokens_of(1, 65));
  w.take(1, 0);
  w.compute(1, 32);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 1U);
  w.compute(1, 64);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 2U);
  w.begin(2, tokens_of(1, 65));
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 64U);
  w.take(2, 32);
  BOOST_CHECK_EQUAL(w.held_count(), 1U);
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 32), "");
}

// K7-58: 601 tokens hold 18 virtual blocks of 32, not 37.
BOOST_AUTO_TEST_CASE(the_span_of_a_block_counts_the_ranks) {
  Setup s;
  s.groups = {full(16, KVC_GROUP_CAP_SHARDED)};
  s.cp = 2;
  s.h = 32;
  s.s = 32;
  World w(s);
  w.store(1, tokens_of(1, 601));
  BOOST_CHECK_EQUAL(stored(w), 18U);
}

BOOST_AUTO_TEST_CASE(positional_states_are_stored_with_their_own_block_size) {
  World w(dcp_mixed(true));
  w.begin(1, tokens_of(1, 129));
  w.take(1, 0);
  w.compute(1, 128);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 6U);  // four blocks of 32, two states of 64
  w.begin(2, tokens_of(1, 129));
  BOOST_CHECK_EQUAL(w.load(2), 128U);
}

BOOST_AUTO_TEST_CASE(a_fine_hit_ends_inside_a_state_block_behind_a_local_prefix) {
  World w(dcp_mixed(false));
  w.begin(1, tokens_of(1, 161));
  w.take(1, 0);
  for (const std::uint64_t end : {64U, 128U, 160U}) {
    compute_and_hand_off(w, 1, end);
    w.step();
  }
  BOOST_CHECK_EQUAL(w.counts().handoffs.stored, 3U);
  BOOST_CHECK_EQUAL(stored(w), 8U);  // five attention blocks, three states
  Request& r = w.begin(2, tokens_of(1, 161));
  w.allocate_for_load(2, 64);
  w.write(r, 0, 64);
  BOOST_CHECK_EQUAL(w.lookup(2, 64).tokens, 96U);
  w.take(2, 96, 64);
  BOOST_CHECK_EQUAL(w.held_count(), 4U);  // attention 2, 3, 4 and the state in position 2
  BOOST_CHECK(w.held(r.tables[0][2]) && w.held(r.tables[0][3]) && w.held(r.tables[0][4]));
  BOOST_CHECK(w.held(r.tables[1][2]));
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(r, 64, 160), "");
}

// T-4, CW-3: a part of a hit is loaded for every group or not at all.
BOOST_AUTO_TEST_CASE(a_part_of_a_hybrid_hit_is_loaded_whole_or_fails_whole) {
  World w(dcp_mixed(false));
  w.begin(1, tokens_of(1, 161));
  w.take(1, 0);
  for (const std::uint64_t end : {64U, 160U}) {
    compute_and_hand_off(w, 1, end);
    w.step();
  }
  // 64 is a boundary that every group has.
  w.begin(2, tokens_of(1, 161));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 160U);
  w.take(2, 64);
  Completed c = w.step();
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_OK);
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 64), "");
  // 96 is none: no state was stored there.
  w.begin(3, tokens_of(1, 161));
  BOOST_REQUIRE_EQUAL(w.lookup(3).tokens, 160U);
  w.take(3, 96);
  c = w.step();
  BOOST_REQUIRE_EQUAL(c.verdicts.size(), 1U);
  BOOST_CHECK_EQUAL(c.verdicts[0].status, KVC_E_IO);
}

BOOST_AUTO_TEST_CASE(the_attention_tail_of_a_prompt_makes_its_last_state_usable) {
  Setup s;
  s.groups = {full(64, KVC_GROUP_CAP_SHARDED), state_align(16)};
  s.cp = 2;
  s.h = 16;
  s.s = 128;
  World w(s);
  w.begin(1, tokens_of(1, 81));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 80);
  w.step();
  w.end(1, KVC_END_LENGTH, 81);
  w.drain();
  w.begin(2, tokens_of(1, 81) + tokens_of(2, 20));
  BOOST_CHECK_EQUAL(w.load(2), 80U);
}

BOOST_AUTO_TEST_CASE(a_tail_that_was_stored_is_not_stored_twice) {
  Setup s;
  s.groups = {full(64), state_align(64)};
  s.h = 16;
  World w(s);
  w.begin(1, tokens_of(1, 97));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 96);
  w.step();
  const std::uint64_t once = stored(w);
  w.end(1, KVC_END_LENGTH, 97);
  w.drain();
  BOOST_CHECK_EQUAL(stored(w), once);
}

// T-5, CW-4: prompts at multiples of the hash unit keep their fine tail: tier hit == device hit.
BOOST_AUTO_TEST_CASE(prompts_at_multiples_of_the_hash_unit_keep_their_fine_tail) {
  for (const std::uint64_t prompt : {96U, 97U, 100U, 112U}) {
    BOOST_TEST_CONTEXT("prompt of " << prompt) {
      Setup s;
      s.groups = {full(64), state_align(64)};
      s.h = 16;
      World w(s);
      const std::uint64_t tail = (prompt - 1) / 16 * 16;  // what the device keeps
      w.begin(1, tokens_of(1, prompt));
      w.take(1, 0);
      compute_and_hand_off(w, 1, 64);
      w.step();
      compute_and_hand_off(w, 1, tail);
      w.step();
      w.compute(1, prompt);
      w.step();
      w.end(1, KVC_END_LENGTH, prompt);
      w.drain();
      w.begin(2, tokens_of(1, prompt));
      BOOST_CHECK_EQUAL(w.load(2), tail);
    }
  }
}

// T-10, CW-14: every full-attention group keeps its tail.
BOOST_AUTO_TEST_CASE(two_attention_groups_both_keep_their_tails) {
  Setup s;
  s.groups = {full(64), full(128), state_align(64)};
  s.h = 16;
  s.s = 128;
  World w(s);
  w.begin(1, tokens_of(1, 97));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 96);
  w.step();
  w.end(1, KVC_END_LENGTH, 97);
  w.drain();
  BOOST_CHECK_EQUAL(stored(w), 4U);  // 64 | tail 96, tail 96, state 96
  w.begin(2, tokens_of(1, 97));
  BOOST_CHECK_EQUAL(w.load(2), 96U);
}

// CW-15: states that are handed off at the end are stored and counted.
BOOST_AUTO_TEST_CASE(a_state_handed_off_at_the_end_is_stored) {
  Setup s;
  s.groups = {full(64), state_align(64)};
  s.h = 16;
  World w(s);
  Request& r = w.begin(1, tokens_of(1, 97));
  w.take(1, 0);
  w.compute(1, 96);
  w.step();
  const kvc_handoff tail{sizeof tail, 1, 1, r.tables[1].back(), 96};
  BOOST_CHECK_NE(w.end(1, KVC_END_LENGTH, 96, {tail}), 0U);
  w.drain();
  BOOST_CHECK_EQUAL(w.counts().handoffs.stored, 1U);
  w.begin(2, tokens_of(1, 97));
  BOOST_CHECK_EQUAL(w.load(2), 96U);
}

BOOST_AUTO_TEST_CASE(states_without_stable_positions_are_stored_from_hand_offs_only) {
  Setup s;
  s.groups = {full(16, KVC_GROUP_CAP_SHARDED), state_align(64)};
  s.cp = 4;
  s.h = 64;
  s.s = 64;
  World w(s);
  w.begin(1, tokens_of(1, 129));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 128);
  const std::int64_t first = w.request(1).tables[1][0];
  w.step();
  BOOST_CHECK_EQUAL(first, w.setup().null_block);
  BOOST_CHECK_EQUAL(stored(w), 3U);  // two attention blocks, the state at 128, none at 64
  w.schedule(1, 128);
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 3U);
  w.begin(2, tokens_of(1, 129));
  BOOST_CHECK_EQUAL(w.lookup(2, 0, 64).tokens, 0U);
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 128U);
}

// K6-46: only the block that the hand-off names, only under its boundary.
BOOST_AUTO_TEST_CASE(a_state_is_stored_under_its_boundary_only) {
  Setup s;
  s.groups = {full(16), state_align(16)};
  World w(s);
  w.begin(1, tokens_of(1, 49));
  w.take(1, 0);
  w.compute(1, 48);
  BOOST_REQUIRE_EQUAL(w.request(1).tables[1][0], 0);
  BOOST_REQUIRE_EQUAL(w.request(1).tables[1][1], 0);
  w.hand_off(1, 1, w.request(1).tables[1][2], 48);
  w.step();
  BOOST_CHECK_EQUAL(w.counts().handoffs.stored, 1U);
  BOOST_CHECK_EQUAL(stored(w), 4U);
  w.begin(2, tokens_of(1, 49));
  BOOST_CHECK_EQUAL(w.lookup(2, 0, 32).tokens, 0U);
  BOOST_CHECK_EQUAL(w.load(2), 48U);
}

// K6-47: a state deeper than the attention does not lengthen the hit, attention deeper than the
// state neither.
BOOST_AUTO_TEST_CASE(the_hit_is_what_all_groups_have) {
  Setup s;
  s.groups = {full(16), state_align(16)};
  World w(s);
  w.begin(1, tokens_of(1, 81));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 16);
  w.step();
  w.compute(1, 64);
  w.step();
  w.end(1, KVC_END_STOP, 64);
  w.drain();
  w.begin(2, tokens_of(1, 81));
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 16U);  // V4
}

// K6-49, V1 and V2: tokens that are lost because a group has no state are counted.
BOOST_AUTO_TEST_CASE(tokens_lost_for_want_of_a_state_are_counted) {
  Setup s;
  s.groups = {full(528), state_align(528)};
  World w(s);
  w.begin(1, tokens_of(1, 1585));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 1584);
  w.step();
  w.begin(2, tokens_of(1, 1585) + tokens_of(5, 615));
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 1584U);
  BOOST_CHECK_EQUAL(w.stat("tokens_lost_no_state"), 0U);
  w.begin(3, tokens_of(1, 1100) + tokens_of(6, 1100));
  BOOST_CHECK_EQUAL(w.lookup(3).tokens, 0U);
  BOOST_CHECK_EQUAL(w.stat("tokens_lost_no_state"), 1056U);
}

// K6-50: a block that no request can fill is named at the start.
BOOST_AUTO_TEST_CASE(a_block_longer_than_any_request_is_warned_of_once) {
  Setup s;
  s.groups = {full(8320), state_align(8320)};
  s.max_prompt = 4096;
  s.max_total = 4096;
  s.device_blocks = 8;
  s.host_blocks = 4;
  World w(s);
  BOOST_CHECK_EQUAL(w.logged_times("nothing can ever hit"), 1U);
  BOOST_CHECK(w.logged(KVC_LOG_WARN, "4096"));
  BOOST_CHECK(w.has_stat("gate_off_now"));
  BOOST_CHECK(w.explain().find("8320") != std::string::npos);
}

// K6-51, V9: a hit at the fine group's alignment ends inside the attention group's wide block.
BOOST_AUTO_TEST_CASE(a_hit_ends_inside_the_wide_block_of_the_attention_group) {
  Setup s;
  s.groups = {full(1536, KVC_GROUP_CAP_SHARDED), state_align(1536)};
  s.h = 1536;
  s.cp = 8;
  s.device_blocks = 128;
  s.max_batch = 70'000;
  s.max_prompt = 70'000;
  World w(s);
  w.begin(1, tokens_of(1, 64'513));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 64'512);
  w.step();
  w.end(1, KVC_END_LENGTH, 64'512);
  w.drain();
  w.begin(2, tokens_of(1, 66'000));
  BOOST_CHECK_EQUAL(w.lookup(2).tokens, 64'512U);
  w.take(2, 64'512);
  BOOST_CHECK_EQUAL(w.held_count(), 7U);  // six attention blocks, one state
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 64'512), "");
}

// K6-54: with one output token the tail is offered all the same.
BOOST_AUTO_TEST_CASE(a_prompt_with_one_output_token_keeps_its_tail) {
  Setup s;
  s.groups = {full(1536), state_align(1536)};
  s.h = 128;
  s.device_blocks = 16;
  s.host_blocks = 16;
  World w(s);
  w.begin(1, tokens_of(1, 2000));
  w.take(1, 0);
  compute_and_hand_off(w, 1, 1536);
  w.step();
  compute_and_hand_off(w, 1, 1920);
  w.step();
  w.compute(1, 2000);
  w.step();
  w.extend(1, tokens_of(2, 1));
  w.end(1, KVC_END_LENGTH, 2000);
  w.drain();
  w.begin(2, tokens_of(1, 2000));
  BOOST_CHECK_EQUAL(w.load(2), 1920U);
}

// K6-57: a state group needs one block for a hit, not a window.
BOOST_AUTO_TEST_CASE(a_hit_needs_one_state_block) {
  Setup s;
  s.groups = {full(1056), state_align(1056)};
  World w(s);
  w.begin(1, tokens_of(1, 3169));
  w.take(1, 0);
  for (const std::uint64_t end : {1056U, 2112U, 3168U}) {
    compute_and_hand_off(w, 1, end);
    w.step();
  }
  w.begin(2, tokens_of(1, 3169));
  BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 3168U);
  w.take(2, 3168);
  BOOST_CHECK_EQUAL(w.held_count(), 4U);
  BOOST_CHECK(w.held(w.request(2).tables[1][2]));
  w.step();
  BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 3168), "");
}

// V22, V26: windows need what they remember.
BOOST_AUTO_TEST_CASE(a_window_needs_what_it_remembers) {
  for (const std::uint64_t window : {17U, 32U}) {
    Setup s;
    s.groups = {full(16), sliding(16, window)};
    World w(s);
    w.store(1, tokens_of(1, 129), 128);
    BOOST_CHECK_EQUAL(stored(w), 16U);
    w.begin(2, tokens_of(1, 200));
    BOOST_REQUIRE_EQUAL(w.lookup(2).tokens, 128U);
    w.take(2, 128);
    BOOST_CHECK_EQUAL(w.held_count(), window == 17 ? 9U : 10U);
    w.step();
    BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, 128), "");
  }
}

// T-2, CW-1: a chunked group loads exactly what it needs, whatever the local prefix.
BOOST_AUTO_TEST_CASE(a_chunked_group_loads_its_whole_chunk_behind_any_local_prefix) {
  for (const std::uint64_t local : {0U, 16U, 32U, 48U, 64U, 80U}) {
    BOOST_TEST_CONTEXT("local prefix of " << local) {
      Setup s;
      s.groups = {full(16), chunked(16, 64)};
      World w(s);
      w.store(1, tokens_of(1, 113), 112);
      Request& r = w.begin(2, tokens_of(1, 113));
      w.allocate_for_load(2, local);
      w.write(r, 0, local);
      const Found f = w.lookup(2, local);
      BOOST_CHECK_EQUAL(f.tokens, 112 - local);
      w.take(2, f.tokens, local);
      w.step();
      BOOST_CHECK_EQUAL(w.wrong_bytes(r, 0, 112), "");
    }
  }
}

// multi_group_null_blocks_skipped: a released window entry is null; it is never a source.
BOOST_AUTO_TEST_CASE(a_nulled_window_entry_is_dropped_and_never_copied) {
  Setup s;
  s.groups = {full(16), sliding(16, 32)};
  World w(s);
  w.begin(1, tokens_of(1, 65));
  w.take(1, 0);
  w.compute(1, 64);
  w.null_out(1, 1, 0);
  w.step();
  BOOST_CHECK_EQUAL(w.counts().all_offers.dropped_null_block, 1U);
  BOOST_CHECK_EQUAL(stored(w), 7U);
  w.begin(2, tokens_of(1, 65));
  BOOST_CHECK_EQUAL(w.load(2), 64U);  // the window at 64 needs 32 .. 63
}

// The same with BLOCK_QUERY: the block is still in the device cache and is recovered.
BOOST_AUTO_TEST_CASE(a_nulled_window_entry_is_recovered_from_the_device_cache) {
  Setup s;
  s.groups = {full(16), sliding(16, 32)};
  s.host_caps |= KVC_HOST_BLOCK_QUERY;
  World w(s);
  Request& r = w.begin(1, tokens_of(1, 65));
  w.take(1, 0);
  w.compute(1, 64);
  for (std::uint32_t g = 0; g < 2; ++g) {
    for (std::uint64_t p = 0; p < 4; ++p) {
      const auto keys = w.keys_of(r, p + 1);
      w.device_keys[{g, r.tables[g][p]}] = {{keys.end() - 16, keys.end()}, 16 * (p + 1)};
    }
  }
  const std::int64_t block = r.tables[1][0];
  w.share_block(block);
  w.null_out(1, 1, 0);
  const Planned p = w.plan();
  BOOST_CHECK(w.held(block));
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(stored(w), 8U);
  w.begin(2, tokens_of(1, 33));
  BOOST_CHECK_EQUAL(w.load(2), 32U);
}

// finished_eager_store_recovers_nulled_window_tail: the same at the end of the request.
BOOST_AUTO_TEST_CASE(nulled_window_entries_are_recovered_at_the_end_too) {
  Setup s;
  s.groups = {full(16), sliding(16, 32)};
  s.host_caps |= KVC_HOST_BLOCK_QUERY;
  World w(s);
  Request& r = w.begin(1, tokens_of(1, 65));
  w.take(1, 0);
  w.allocate_for_compute(1, 64);
  w.write(r, 0, 64);
  std::vector<std::int64_t> nulled;
  for (std::uint32_t g = 0; g < 2; ++g) {
    for (std::uint64_t p = 0; p < 4; ++p) {
      const auto keys = w.keys_of(r, p + 1);
      w.device_keys[{g, r.tables[g][p]}] = {{keys.end() - 16, keys.end()}, 16 * (p + 1)};
    }
  }
  for (const std::uint64_t p : {0U, 1U}) {
    nulled.push_back(r.tables[1][p]);
    w.share_block(nulled.back());
    w.null_out(1, 1, p);
  }
  w.end(1, KVC_END_STOP, 64);
  for (const std::int64_t b : nulled) BOOST_CHECK(w.held(b));
  w.drain();
  BOOST_CHECK_EQUAL(stored(w), 8U);
  w.begin(2, tokens_of(1, 65));
  BOOST_CHECK_EQUAL(w.load(2), 64U);
}

BOOST_AUTO_TEST_CASE(a_block_that_the_device_knows_under_another_key_is_not_stored) {
  Setup s;
  s.host_caps |= KVC_HOST_BLOCK_QUERY;
  World w(s);
  Request& r = w.begin(1, tokens_of(1, 33));
  w.take(1, 0);
  w.compute(1, 32);
  const auto keys = w.keys_of(r, 2);
  w.device_keys[{0, r.tables[0][0]}] = {{keys.begin(), keys.begin() + 16}, 16};
  w.device_keys[{0, r.tables[0][1]}] = {{keys.begin(), keys.begin() + 16}, 16};  // not its own
  w.step();
  BOOST_CHECK_EQUAL(stored(w), 1U);
  BOOST_CHECK_EQUAL(w.counts().all_offers.skipped_not_hashed, 1U);
}

BOOST_AUTO_TEST_CASE(scratch_groups_are_never_cached_and_do_not_hinder) {
  Setup s;
  s.groups = {full(16), scratch(24)};  // h does not divide the scratch block
  s.s = 48;
  World w(s);
  w.store(1, tokens_of(1, 97), 96);
  BOOST_CHECK_EQUAL(stored(w), 6U);
  w.begin(2, tokens_of(1, 97));
  BOOST_CHECK_EQUAL(w.load(2), 96U);
}

// Departing requests: their hand-offs are dropped, the block may be somebody else's already.
BOOST_AUTO_TEST_CASE(hand_offs_of_departing_requests_are_dropped) {
  for (int way = 0; way < 2; ++way) {
    Setup s;
    s.groups = {full(16), state_align(16)};
    World w(s);
    w.begin(1, tokens_of(1, 33));
    w.take(1, 0);
    w.compute(1, 32);
    w.step();
    const std::uint64_t before = stored(w);
    const std::int64_t block = w.request(1).tables[1].back();
    if (way == 0) w.preempt(1);
    if (way == 1) w.end(1, KVC_END_STOP, 32);
    w.hand_off(1, 1, block, 32);
    w.scheduled.clear();
    w.step();
    BOOST_CHECK_EQUAL(w.counts().handoffs.dropped_request_gone, 1U);
    BOOST_CHECK_EQUAL(w.counts().handoffs.stored, 0U);
    w.drain();
    BOOST_CHECK_EQUAL(stored(w), before);
  }
}

BOOST_AUTO_TEST_CASE(wrong_hand_offs_are_dropped_one_by_one_as_faults_of_the_host) {
  Setup s;
  s.groups = {full(16), state_align(16)};
  World w(s);
  Request& r = w.begin(1, tokens_of(1, 49));
  w.take(1, 0);
  w.compute(1, 48);
  const std::int64_t good = r.tables[1].back();
  w.hand_off(1, 0, good, 48);    // not a state group
  w.hand_off(1, 9, good, 48);    // no group
  w.hand_off(1, 1, good, 0);     // no boundary
  w.hand_off(1, 1, good, 47);    // not at a key
  w.hand_off(1, 1, good, 4096);  // behind the request
  w.hand_off(1, 1, 9999, 32);    // foreign block
  w.hand_off(777, 1, good, 48);  // unknown id
  w.hand_off(1, 1, 0, 16);       // the null block
  w.hand_off(1, 1, good, 48);    // right
  w.step();
  const kvc_offer_counts c = w.counts().handoffs;
  BOOST_CHECK_EQUAL(c.published, 9U);
  BOOST_CHECK_EQUAL(c.stored, 1U);
  BOOST_CHECK_EQUAL(c.dropped_null_block, 1U);
  BOOST_CHECK_EQUAL(c.dropped_bad_offer, 7U);
  BOOST_CHECK(w.stat("peer_faults") >= 7U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
