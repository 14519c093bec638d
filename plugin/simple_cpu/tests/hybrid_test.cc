// Layouts with states, windows and tails: spec 9.1, T-3 to T-10, field reports K6.
#include "plugin/simple_cpu/tests/rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

// Full attention and one align-mode state group of the same block, fine hits.
Layout fa64_state64() { return {{full(64), state(64)}, 16, 64, 1}; }

std::vector<PlanCopy> stores(const std::vector<PlanCopyOf>& jobs) {
  std::vector<PlanCopy> out;
  for (const PlanCopyOf& j : jobs) {
    if (j.kind == JobKind::store) out.insert(out.end(), j.copies.begin(), j.copies.end());
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_hybrid)

BOOST_AUTO_TEST_CASE(prompts_keep_their_fine_tail_whatever_their_length) {  // T-5, CW-4
  // The device keeps the state and tail at rd(P - 1, h): the tier must hit the same.
  for (const auto& [prompt, hit] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {96, 80}, {97, 96}, {100, 96}, {112, 96}}) {
    Rig rig(fa64_state64());
    const TokenIds tokens = tokens_of(1, prompt);
    rig.begin(1, tokens);
    const Tables tables{{1, 2}, {3, 4}};
    rig.alloc(1, 0, tables);
    rig.step({{1, hit, {{1, 2}, {}}}}, {}, {{1, 1, 4, Tokens{hit}}});
    rig.step({{1, prompt, {}}});
    rig.end(1, prompt, {{1, 2}, {}});
    rig.finish_all();
    rig.drain();
    rig.begin(2, tokens);
    BOOST_TEST(rig.hit(2) == hit);
    rig.alloc(2, hit, {{11, 12}, {13, 14}});
    const auto jobs = rig.step();
    BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
    BOOST_REQUIRE_EQUAL(jobs[0].copies.size(), 3u);
    BOOST_TEST(jobs[0].copies[2].group == 1u);
    BOOST_TEST(jobs[0].copies[2].position == 1u);
    rig.finish_all();
    rig.end(2, prompt, {{11, 12}, {}});
    rig.drain();
    rig.check_quiet();
  }
}

BOOST_AUTO_TEST_CASE(every_full_attention_group_gets_its_tail) {  // T-10, CW-14
  Rig rig({{full(64), full(64), state(64)}, 16, 64, 1});
  const TokenIds tokens = tokens_of(1, 100);
  rig.begin(1, tokens);
  const Tables tables{{1, 2}, {3, 4}, {5, 6}};
  rig.alloc(1, 0, tables);
  const auto jobs = rig.step({{1, 96, {{1, 2}, {3, 4}, {}}}}, {}, {{2, 1, 6, Tokens{96}}});
  // Positions of both groups, their tails, the state: in this order.
  const std::vector<PlanCopy> s = stores(jobs);
  BOOST_REQUIRE_EQUAL(s.size(), 5u);
  const std::vector<std::pair<std::uint32_t, BlockId>> expected{
      {0, 1}, {1, 3}, {0, 2}, {1, 4}, {2, 6}};
  for (std::size_t i = 0; i < 5; ++i) {
    BOOST_TEST(s[i].group == expected[i].first);
    BOOST_TEST(s[i].block == expected[i].second);
  }
  rig.finish_all();
  rig.begin(2, tokens);
  BOOST_TEST(rig.hit(2) == 96u);
}

BOOST_AUTO_TEST_CASE(a_part_of_a_hybrid_hit_is_served_exactly_or_not_at_all) {  // T-4, CW-3
  Rig rig(fa64_state64());
  const TokenIds tokens = tokens_of(1, 100);
  rig.begin(1, tokens);
  rig.alloc(1, 0, {{1, 2}, {3, 4}});
  rig.step({{1, 96, {{1, 2}, {}}}}, {}, {{1, 1, 4, Tokens{96}}});
  rig.finish_all();
  rig.begin(2, tokens);
  BOOST_TEST(rig.hit(2) == 96u);
  // No state at 64: 64 tokens cannot be served.
  const JobId job = rig.alloc(2, 64, {{11, 12}, {13, 14}});
  const auto jobs = rig.step();
  BOOST_TEST(jobs[0].copies.empty());
  BOOST_CHECK(rig.finish(job).verdicts[0].status == Code::io);
  BOOST_TEST(rig.hit(2) == 96u);
}

BOOST_AUTO_TEST_CASE(a_state_comes_only_from_its_hand_off) {  // K6-46
  Rig rig({{full(16), state(16)}, 16, 16, 1});
  rig.begin(1, tokens_of(1, 49));
  rig.alloc(1, 0, {{1, 2, 3, 4}, {0, 0, 7, 8}});
  const auto jobs = rig.step({{1, 49, {{1, 2, 3, 4}, {}}}}, {}, {{1, 1, 7, Tokens{48}}});
  std::vector<PlanCopy> states;
  for (const PlanCopy& c : stores(jobs)) {
    if (c.group == 1) states.push_back(c);
  }
  BOOST_REQUIRE_EQUAL(states.size(), 1u);
  BOOST_TEST(states[0].block == 7);
  BOOST_TEST(states[0].position == 2u);
  rig.finish_all();
  rig.begin(2, tokens_of(1, 49));
  BOOST_TEST(rig.hit(2) == 48u);
  rig.begin(3, tokens_of(1, 33));
  BOOST_TEST(rig.hit(3) == 0u);
  // What attention alone could have served is counted (K6-49).
  BOOST_TEST(rig.stat("tokens_lost_no_state") == 32u);
}

BOOST_AUTO_TEST_CASE(hand_offs_end_with_the_classes_of_the_spec) {
  Rig rig(fa64_state64());
  rig.begin(1, tokens_of(1, 200));
  rig.alloc(1, 0, {{1, 2, 3, 4}, {5, 6, 7, 8}});
  const auto tables = Tables{{1, 2, 3, 4}, {}};
  rig.step({{1, 130, tables}}, {},
           {{1, 1, null_block, Tokens{64}},  // null
            {1, 1, 100'000, Tokens{64}},     // foreign
            {1, 1, 5, Tokens{0}},            // no boundary
            {1, 1, 5, Tokens{40}},           // inside a hash unit
            {1, 1, 5, Tokens{192}},          // not confirmed
            {0, 1, 5, Tokens{64}},           // no state group
            {9, 1, 5, Tokens{64}},           // no group
            {1, 99, 5, Tokens{64}},          // never began
            {1, 1, 6, Tokens{128}}});        // good
  const OfferCounts h = rig.handoffs();
  BOOST_TEST(h.published == 9u);
  BOOST_TEST(h.dropped_null_block == 1u);
  BOOST_TEST(h.dropped_bad_offer == 7u);
  BOOST_TEST(h.dropped_request_gone == 0u);
  BOOST_TEST(h.pending == 1u);
  rig.step({{1, 131, {}}}, {}, {{1, 1, 6, Tokens{128}}});
  BOOST_TEST(rig.handoffs().skipped_in_flight == 1u);
  rig.finish_all();
  rig.step({{1, 132, {}}}, {}, {{1, 1, 6, Tokens{128}}});
  BOOST_TEST(rig.handoffs().skipped_already_cached == 1u);
  BOOST_TEST(rig.handoffs().stored == 1u);
}

BOOST_AUTO_TEST_CASE(a_hand_off_of_a_departing_request_is_dropped) {
  Rig rig(fa64_state64());
  rig.begin(1, tokens_of(1, 200));
  rig.begin(2, tokens_of(2, 200));
  const Tables one{{1, 2, 3, 4}, {}};
  const Tables two{{11, 12, 13, 14}, {}};
  rig.alloc(1, 0, one);
  rig.alloc(2, 0, two);
  rig.step({{1, 64, one}, {2, 64, two}});
  rig.step({}, {1}, {{1, 1, 5, Tokens{64}}});
  BOOST_TEST(rig.handoffs().dropped_request_gone == 1u);
  rig.end(2, 64, two);
  rig.step({}, {}, {{1, 2, 5, Tokens{64}}});
  BOOST_TEST(rig.handoffs().dropped_request_gone == 2u);
  BOOST_TEST(rig.handoffs().stored + rig.handoffs().pending == 0u);
}

BOOST_AUTO_TEST_CASE(states_of_one_boundary_get_all_their_slots_or_none) {
  Rig rig({{full(64), state(64), state(64), state(64)}, 16, 64, 1}, 3);
  rig.begin(1, tokens_of(1, 100));
  const Tables tables{{1, 2}, {}, {}, {}};
  rig.alloc(1, 0, tables);
  const auto jobs = rig.step({{1, 64, tables}}, {},
                             {{1, 1, 5, Tokens{64}}, {2, 1, 6, Tokens{64}}, {3, 1, 7, Tokens{64}}});
  BOOST_TEST(stores(jobs).size() == 1u);
  BOOST_TEST(rig.handoffs().dropped_pool_full == 3u);
  rig.finish_all();
  rig.end(1, 64, tables);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(finish_time_states_are_taken) {  // CW-15, K6-54
  Rig rig({{full(1536), state(1536)}, 128, 1536, 1});
  const TokenIds tokens = tokens_of(1, 2000);
  rig.begin(1, tokens);
  const Tables tables{{1, 2}, {3, 4}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 1536, {{1, 2}, {}}}}, {}, {{1, 1, 3, Tokens{1536}}});
  const JobId job = rig.end(1, 2000, tables, {{1, 1, 4, Tokens{1920}}});
  BOOST_TEST(job != 0u);
  rig.drain();
  rig.begin(2, tokens);
  BOOST_TEST(rig.hit(2) == 1920u);
}

BOOST_AUTO_TEST_CASE(context_parallel_loads_reach_every_group) {
  Rig rig({{sharded(16), state(64)}, 16, 64, 2});
  const TokenIds tokens = tokens_of(1, 161);
  rig.begin(1, tokens);
  const Tables tables{{1, 2, 3, 4, 5, 6}, {}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 160, tables}}, {},
           {{1, 1, 31, Tokens{64}}, {1, 1, 32, Tokens{128}}, {1, 1, 33, Tokens{160}}});
  rig.finish_all();
  rig.begin(2, tokens);
  BOOST_TEST(rig.hit(2, 64) == 96u);
  rig.alloc(2, 96, {{11, 12, 13, 14, 15, 16}, {21, 22, 23}});
  const auto jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs[0].copies.size(), 4u);
  const std::vector<BlockId> blocks{13, 14, 15, 23};
  for (std::size_t i = 0; i < 4; ++i) BOOST_TEST(jobs[0].copies[i].block == blocks[i]);
}

BOOST_AUTO_TEST_CASE(windows_store_what_still_exists) {
  Rig rig({{full(16), sliding(16, 64)}, 16, 16, 1}, 32);
  rig.begin(1, tokens_of(1, 129));
  const Tables tables{{1, 2, 3, 4, 5, 6, 7, 8, 9}, {0, 0, 13, 14, 15, 16, 17, 18, 19}};
  rig.alloc(1, 0, tables);
  const auto jobs = rig.step({{1, 128, tables}});
  BOOST_TEST(stores(jobs).size() == 14u);
  BOOST_TEST(rig.offers().dropped_null_block == 2u);
  for (const PlanCopy& c : stores(jobs)) BOOST_TEST(c.block != null_block);
  rig.finish_all();
  rig.begin(2, tokens_of(1, 129));
  BOOST_TEST(rig.hit(2) == 128u);
  rig.alloc(2, 128, {{21, 22, 23, 24, 25, 26, 27, 28, 29}, {0, 0, 0, 0, 35, 36, 37, 38, 39}});
  const auto load = rig.step();
  BOOST_TEST(load[0].copies.size() == 12u);
  rig.finish_all();
}

BOOST_AUTO_TEST_CASE(released_window_blocks_are_recovered_by_their_key) {
  Rig rig({{full(16), sliding(16, 64)}, 16, 16, 1}, 32);
  rig.host.queries = true;
  const TokenIds tokens = tokens_of(1, 65);
  rig.begin(1, tokens);
  const std::vector<std::uint8_t> keys = keys_of(tokens, 16);
  for (std::uint32_t g = 0; g < 2; ++g) {
    for (std::uint64_t i = 0; i < 4; ++i) {
      const std::string key(keys.begin() + static_cast<std::ptrdiff_t>(i * key_bytes),
                            keys.begin() + static_cast<std::ptrdiff_t>((i + 1) * key_bytes));
      rig.host.keyed[{g, key}] = static_cast<BlockId>(1 + g * 10 + i);
    }
  }
  const Tables tables{{1, 2, 3, 4, 5}, {0, 0, 13, 14, 15}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 0, tables}});
  rig.end(1, 64, tables);
  const auto jobs = rig.step();
  BOOST_TEST(stores(jobs).size() == 8u);
  for (const PlanCopy& c : stores(jobs)) BOOST_TEST(c.block != null_block);
  rig.finish_all();
  rig.begin(2, tokens);
  BOOST_TEST(rig.hit(2) == 64u);
}

BOOST_AUTO_TEST_CASE(a_block_without_the_key_is_not_stored_under_it) {  // T-13, CW-8
  Rig rig({{full(16)}, 16, 16, 1});
  rig.host.queries = true;
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  BOOST_TEST(rig.step({{1, 33, tables}}).empty());
  BOOST_TEST(rig.offers().skipped_not_hashed == 2u);
}

BOOST_AUTO_TEST_CASE(states_kept_by_position_are_stored_by_position) {
  Rig rig({{sharded(16), state_all(64)}, 64, 64, 4});
  rig.begin(1, tokens_of(1, 129));
  const Tables tables{{1, 2, 3}, {4, 5, 6}};
  rig.alloc(1, 0, tables);
  BOOST_TEST(stores(rig.step({{1, 0, tables}})).empty());
  BOOST_TEST(stores(rig.step({{1, 128, tables}})).size() == 4u);
}

BOOST_AUTO_TEST_CASE(a_layout_without_full_attention_works) {
  Rig rig({{state(16)}, 16, 16, 1});
  const TokenIds tokens = tokens_of(1, 33);
  rig.begin(1, tokens);
  rig.alloc(1, 0, {{1, 2, 3}});
  rig.step({{1, 32, {{}}}}, {}, {{0, 1, 2, Tokens{32}}});
  rig.finish_all();
  rig.begin(2, tokens);
  BOOST_TEST(rig.hit(2) == 32u);
  rig.alloc(2, 32, {{0, 12, 13}});
  BOOST_TEST(rig.step()[0].copies.size() == 1u);
}

BOOST_AUTO_TEST_CASE(scratch_groups_are_passed_over) {
  Rig rig({{full(16), group_spec(GroupKind::other, Tokens{16})}, 16, 16, 1});
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}, {9}};
  rig.alloc(1, 0, tables);
  for (const PlanCopy& c : stores(rig.step({{1, 33, tables}}))) BOOST_TEST(c.group == 0u);
  BOOST_TEST(rig.offers().published == 2u);
}

// T-3, CW-2: a 4-block prefix in 4 slots loses its tail, not its head, to one later store.
BOOST_AUTO_TEST_CASE(the_tail_goes_before_the_head_on_every_release_path) {
  for (int path = 0; path < 4; ++path) {
    Rig rig({{full(16)}, 16, 16, 1}, 4);
    const TokenIds tokens = tokens_of(1, 65);
    rig.serve(1, tokens, 1);
    rig.begin(2, tokens);
    if (path == 1) {  // a lease ends
      BOOST_TEST(rig.hit(2) == 64u);
      rig.step();
    } else if (path == 2) {  // a load ends
      BOOST_TEST(rig.hit(2) == 64u);
      rig.alloc(2, 64, {{11, 12, 13, 14, 15}});
      rig.drain();
      rig.end(2, 64, {{11, 12, 13, 14, 15}});
      rig.drain();
    } else if (path == 3) {  // a store is skipped
      rig.alloc(2, 0, {{11, 12, 13, 14, 15}});
      rig.step({{2, 65, {{11, 12, 13, 14, 15}}}});
      rig.end(2, 65, {{11, 12, 13, 14, 15}});
      rig.drain();
    }
    rig.serve(3, tokens_of(3, 17), 21);
    rig.begin(4, tokens);
    BOOST_TEST(rig.hit(4) == 48u, "path " << path);
  }
}

BOOST_AUTO_TEST_CASE(bytes_are_those_of_all_ranks_together) {
  OpenLimits limits = limits_of();
  limits.ranks = 2;
  Rig rig({{full(16)}, 16, 16, 1}, 8, {}, limits);
  rig.serve(1, tokens_of(1, 49), 1);
  BOOST_TEST(rig.stat("stored_bytes") == 3u * 2 * 1024);
  BOOST_TEST(rig.stat("loaded_bytes") == 0u);
  BOOST_TEST(rig.stat("lazy_mode_now") == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
