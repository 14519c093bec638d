// Dependents, dead entries, order, tails and reset of TierIndex.
#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/tests/tier_fixture.h"

namespace kvc {
namespace {

using namespace test;

BOOST_AUTO_TEST_SUITE(tier_dependents)

// --- supports

BOOST_AUTO_TEST_CASE(a_dependent_hangs_on_the_block_that_contains_its_end_and_on_the_tail_there) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 0, 6, a);  // a tail inside the second block
  t.store(3, 1, 6, a);
  t.store(4, 1, 8, a);
  BOOST_TEST(t.index.supports_of(3).first == 1u);
  BOOST_TEST(t.index.supports_of(3).second == 2u);
  BOOST_TEST(t.index.supports_of(4).first == 1u);
  BOOST_TEST(t.index.supports_of(4).second == no_slot);
  BOOST_TEST(t.index.supports_of(2).first == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_tail_in_the_first_block_hangs_on_the_root) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store(0, 0, 2, a);
  BOOST_TEST(t.index.supports_of(0).root);
  BOOST_TEST(!t.index.unsupported(0));
  t.store(1, 0, 3, a, 0, 0);  // whatever is known of the path
  BOOST_TEST(t.index.supports_of(1).root);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_dependent_goes_with_its_last_support) {
  Tier t(with_state);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 0, 6, a);
  t.store(3, 1, 6, a);
  t.store(4, 1, 7, a);
  a = t.next_run(a);
  t.index.evict(1, t.told);
  BOOST_TEST(t.told.gone == (Slots{4, 1}), boost::test_tools::per_element());
  BOOST_TEST(t.find(1, 6) == 3u);  // its tail is left
  t.told.gone.clear();
  t.index.evict(2, t.told);
  BOOST_TEST(t.told.gone == (Slots{3, 2}), boost::test_tools::per_element());
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(the_block_of_a_tail_takes_the_tail_and_its_state_along) {
  Tier t(with_state);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 0, 6, a);
  t.store(2, 1, 6, a);
  a = t.next_run(a);
  t.index.evict(0, t.told);
  BOOST_TEST(t.told.gone == (Slots{2, 1, 0}), boost::test_tools::per_element());
  BOOST_TEST(t.index.counters().published == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_state_lives_on_by_its_tail_although_the_block_came_while_the_tail_was_open) {
  Tier t(with_state);
  RunId a = t.index.open_run();
  t.reserve(0, 0, 4, a);  // everything open at once
  t.reserve(1, 0, 6, a);
  t.reserve(2, 1, 6, a);
  t.reserve(3, 0, 8, a);
  for (SlotId s = 0; s < 4; ++s) t.index.publish(s, s, t.told);
  BOOST_TEST(t.index.supports_of(2).first == 3u);
  BOOST_TEST(t.index.supports_of(2).second == 1u);
  a = t.next_run(a);
  t.index.evict(1, t.told);
  BOOST_TEST(t.find(1, 6) == 2u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_new_tail_supports_what_its_block_supports_at_its_end) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 1, 6, a);
  t.store(3, 0, 6, a);
  BOOST_TEST(t.index.supports_of(2).second == 3u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_use_links_a_state_to_the_tail_that_it_lacks) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 1, 6, a);
  t.store(3, 0, 6, a, 0, 6);  // of a prompt that ends there: the block is not on its path
  BOOST_TEST(t.index.supports_of(2).second == no_slot);
  t.index.meet(2, t.path(0, 6));
  BOOST_TEST(t.index.supports_of(2).first == 1u);
  BOOST_TEST(t.index.supports_of(2).second == 3u);
  t.require_sound();
}

// --- unsupported

BOOST_AUTO_TEST_CASE(an_unsupported_state_is_found_and_held_by_the_writer_pin) {
  Tier t(coarse_state);
  const RunId a = t.index.open_run();
  t.store(0, 1, 4, a);
  BOOST_TEST(t.index.unsupported(0));
  BOOST_TEST(t.find(1, 4) == 0u);
  BOOST_TEST(t.index.victim(no_run) == no_slot);
  t.index.release_path(a);
  BOOST_TEST(t.index.in_front(0));
  BOOST_TEST(t.index.victim(no_run) == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(an_unsupported_state_goes_before_older_entries) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 1, 4, a);
  a = t.next_run(a);
  t.store(2, 1, 4, a, 2);
  a = t.next_run(a);
  BOOST_TEST(t.drain() == (Slots{2, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_reservation_of_the_same_request_supports_what_waits_for_it) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store(0, 1, 4, a);
  t.store(1, 1, 3, a);
  t.store(2, 0, 6, a);  // a tail without its block
  t.store(3, 1, 6, a);  // and a state on it
  BOOST_TEST(t.index.counters().unsupported == 3u);
  t.reserve(4, 0, 4, a);
  BOOST_TEST(t.index.counters().unsupported == 0u);
  BOOST_TEST(t.index.supports_of(0).first == 4u);
  BOOST_TEST(t.index.supports_of(1).first == 4u);
  BOOST_TEST(t.index.supports_of(2).first == 4u);
  BOOST_TEST(t.index.supports_of(3).second == 2u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_reservation_of_another_request_waits_for_a_use_that_meets_both) {
  Tier t(coarse_state);
  const RunId a = t.index.open_run();
  t.store(0, 1, 4, a);
  const RunId b = t.index.open_run();
  t.store(1, 0, 4, b);
  BOOST_TEST(t.index.unsupported(0));
  t.index.meet(0, t.path(0));
  BOOST_TEST(!t.index.unsupported(0));
  t.index.close_run(a);
  t.index.close_run(b);
  BOOST_TEST(t.drain() == (Slots{0, 1}), boost::test_tools::per_element());
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_touch_leaves_an_unsupported_state_with_the_writer_that_holds_it) {
  Tier t(coarse_state);
  const RunId a = t.index.open_run();
  const RunId b = t.index.open_run();
  t.store(0, 1, 4, a);
  t.store(1, 1, 8, a);
  t.index.touch(0, b);
  t.index.touch(1, b);
  t.require_sound();
  t.index.close_run(b);
  BOOST_TEST(!t.index.evictable(0));  // still a's
  t.store(2, 0, 4, a);
  BOOST_TEST(!t.index.unsupported(0));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_writer_that_uses_a_forsaken_unsupported_state_holds_it) {
  Tier t(coarse_state);
  const RunId a = t.index.open_run();
  t.store(0, 1, 8, a);
  t.index.close_run(a);
  BOOST_TEST(t.index.victim(no_run) == 0u);
  const RunId b = t.index.open_run();
  t.store(1, 0, 4, b);
  t.index.touch(0, b);
  BOOST_TEST(!t.index.evictable(0));
  t.store(2, 0, 8, b);
  BOOST_TEST(!t.index.unsupported(0));
  t.require_sound();
}

// --- dead

BOOST_AUTO_TEST_CASE(a_block_without_boundary_is_dead_and_goes_first) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store(8, 0, 4, a, 2);  // older, and alive
  t.store(9, 1, 4, a, 2);
  a = t.next_run(a);
  t.store_chain(0, 3, a);
  t.store(3, 1, 8, a);  // the only boundary
  a = t.next_run(a);
  BOOST_TEST(t.index.dead(2));
  BOOST_TEST(t.index.in_front(2));
  // Without its state the next block is dead too, and so on.
  BOOST_TEST(t.drain() == (Slots{2, 9, 8, 3, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_block_dies_when_its_state_goes_and_lives_again_when_one_comes) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 1, 4, a);
  a = t.next_run(a);
  BOOST_TEST(!t.index.in_front(0));
  t.index.evict(1, t.told);
  BOOST_TEST(t.index.in_front(0));
  t.store(1, 1, 4, a);
  BOOST_TEST(!t.index.in_front(0));
  t.index.mark_bad(1);
  BOOST_TEST(t.index.in_front(0));
  t.index.rewrite(1);
  t.index.publish(1, 1, t.told);
  BOOST_TEST(!t.index.in_front(0));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_block_lives_by_a_boundary_inside_it_or_by_a_tail_behind_it) {
  Tier t(with_state);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 1, 7, a);  // inside the second block
  a = t.next_run(a);
  BOOST_TEST(!t.index.in_front(1));
  t.index.evict(2, t.told);
  BOOST_TEST(t.index.in_front(1));
  t.store(2, 0, 10, a);  // a tail behind it, without a state
  a = t.next_run(a);
  BOOST_TEST(t.index.in_front(1));
  t.store(3, 1, 10, a);
  BOOST_TEST(!t.index.dead(1));
  a = t.next_run(a);
  BOOST_TEST(!t.index.in_front(1));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_writer_pin_keeps_a_dead_block) {
  Tier t(coarse_state);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  BOOST_TEST(t.index.dead(0));
  BOOST_TEST(!t.index.in_front(0));
  BOOST_TEST(t.index.victim(no_run) == no_slot);
  t.index.close_run(a);
  BOOST_TEST(t.index.victim(no_run) == 0u);
}

BOOST_AUTO_TEST_CASE(every_group_must_have_its_last_entry_for_a_boundary) {
  Tier t({{fa(4), mb(4), mb(4)}, 4, 4});
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 1, 4, a);
  BOOST_TEST(t.index.dead(0));
  t.store(2, 2, 4, a);
  BOOST_TEST(!t.index.dead(0));
}

BOOST_AUTO_TEST_CASE(half_a_block_of_a_wider_group_is_no_boundary) {
  Tier t(with_wide);
  RunId a = t.index.open_run();
  t.store_chain(0, 3, a);
  t.store(3, 1, 8, a);
  a = t.next_run(a);
  BOOST_TEST(t.index.dead(2));   // 12 tokens: hits are multiples of 8
  BOOST_TEST(!t.index.dead(1));  // 8
  BOOST_TEST(t.index.victim(no_run) == 2u);
}

BOOST_AUTO_TEST_CASE(a_multiple_of_a_wider_block_alone_is_no_boundary) {
  Tier t({{fa(4), fa(8), sw(16, 1)}, 4, 16});
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 1, 8, a);
  t.index.close_run(a);
  BOOST_TEST(t.index.dead(1));  // hits are multiples of 16
}

BOOST_AUTO_TEST_CASE(a_tail_of_a_wider_group_behind_the_block_covers_its_end) {
  Tier t({{fa(4), fa(8), mb(8)}, 2, 8});
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 2, 4, a);
  BOOST_TEST(t.index.dead(0));  // nothing of group 1
  t.store(2, 0, 6, a);
  t.store(3, 1, 6, a);  // group 1 has tokens [0, 6)
  BOOST_TEST(!t.index.dead(0));
  t.index.close_run(a);
  t.require_sound();
}

// Hits at 4 and 6 may be served by the block [0, 8) of group 1, which goes with the second entry.
BOOST_AUTO_TEST_CASE(what_carries_a_wider_block_that_begins_before_it_is_not_dead) {
  Tier t({{fa(4), fa(8), mb(8)}, 2, 8});
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  BOOST_TEST(t.index.dead(1));
  t.store(2, 1, 8, a);
  BOOST_TEST(!t.index.dead(1));
  t.store(3, 2, 4, a);
  BOOST_TEST(!t.index.dead(1));
  t.index.mark_bad(2);
  BOOST_TEST(t.index.dead(1));
  t.index.close_run(a);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(nothing_is_dead_in_a_layout_of_one_group_or_with_drafts) {
  Tier one(only_full);
  one.store(0, 0, 4, one.index.open_run());
  BOOST_TEST(!one.index.dead(0));
  Tier drafts({{fa(4), fa(4, true)}, 4, 4});
  drafts.store(0, 0, 4, drafts.index.open_run());
  BOOST_TEST(!drafts.index.dead(0));
}

BOOST_AUTO_TEST_CASE(while_a_dead_entry_or_unsupported_dependent_exists_the_next_victim_is_one) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 1, 8, a);
  a = t.next_run(a);
  t.store_chain(4, 2, a, 2);  // newest, and of no use
  t.store(6, 1, 16, a, 2);
  a = t.next_run(a);
  for (int i = 0; i < 3; ++i) {
    const SlotId v = t.index.victim(a);
    BOOST_TEST(v >= 4u);
    BOOST_TEST((t.index.unsupported(v) || t.index.dead(v)));
    t.index.evict(v, t.told);
  }
  BOOST_TEST(t.index.counters().in_front == 0u);
  BOOST_TEST(t.index.victim(a) == 2u);
}

// --- order

BOOST_AUTO_TEST_CASE(tails_go_before_heads_and_states_before_their_blocks) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.store(2, 1, 4, a);
  t.store(3, 1, 8, a);
  a = t.next_run(a);
  BOOST_TEST(t.drain() == (Slots{3, 1, 2, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_parent_is_as_new_as_the_child_it_loses) {
  Tier t(only_full);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  a = t.next_run(a);
  t.store(4, 0, 4, a, 2);
  const RunId b = t.index.open_run();
  t.index.touch(1, b);  // a hit stamps the deepest entry alone
  t.index.evict(1, t.told);
  BOOST_TEST(t.index.run_of(0) == b);
  t.index.close_run(a);
  t.index.close_run(b);
  BOOST_TEST(t.drain() == (Slots{4, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_parent_is_as_new_as_the_child_whose_copy_failed) {
  Tier t(only_full);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  a = t.next_run(a);
  t.reserve(1, 0, 8, a);
  t.index.fail(1, t.told);
  BOOST_TEST(t.index.run_of(0) == a);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_store_evicts_nothing_that_its_own_request_used) {
  Tier t(only_full);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  a = t.next_run(a);
  t.index.touch(1, a);
  BOOST_TEST(t.index.victim(a) == no_slot);
  BOOST_TEST(t.index.victim(no_run) == 1u);
}

BOOST_AUTO_TEST_CASE(scheduling_makes_a_request_the_newest) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  const RunId b = t.index.open_run();
  t.store(1, 0, 4, b, 2);
  t.index.release_path(a);
  t.index.release_path(b);
  BOOST_TEST(t.index.victim(no_run) == 0u);
  t.index.schedule(a);
  BOOST_TEST(t.index.victim(no_run) == 1u);
}

BOOST_AUTO_TEST_CASE(open_runs_are_limited_and_closed_empty_runs_are_gone) {
  Tier t(only_full);
  std::vector<RunId> runs;
  for (int i = 0; i < 8; ++i) runs.push_back(t.index.open_run());
  BOOST_TEST(t.index.open_run() == no_run);
  t.store(0, 0, 4, runs[0]);
  for (const RunId run : runs) t.index.close_run(run);
  BOOST_TEST(t.index.counters().runs == 1u);
  t.index.evict(0, t.told);
  BOOST_TEST(t.index.counters().runs == 0u);
}

BOOST_AUTO_TEST_CASE(in_a_flat_index_every_entry_stands_alone) {
  Tier t(coarse_state, 16, 4, false);
  RunId a = t.index.open_run();
  t.store(0, 1, 8, a);
  t.store(1, 0, 12, a);  // no parent, no support
  t.store(2, 0, 4, a);
  BOOST_TEST(!t.index.unsupported(0));
  a = t.next_run(a);
  BOOST_TEST(t.drain() == (Slots{1, 0, 2}), boost::test_tools::per_element());
}

// --- where tails end

BOOST_AUTO_TEST_CASE(a_base_knows_where_its_tails_end) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store(0, 0, 2, a);  // in the first block
  BOOST_TEST(t.index.tail_offsets(0, no_slot) == std::uint64_t{1} << 16);
  t.store(1, 0, 4, a);
  BOOST_TEST(t.index.tail_offsets(0, 1) == 0u);
  t.store(2, 0, 5, a);
  t.store(3, 0, 7, a);
  BOOST_TEST(t.index.tail_offsets(0, 1) == (1u | std::uint64_t{1} << 32));
  BOOST_TEST(t.index.tail_offsets(1, 3) == UINT64_MAX);  // no chain group
}

BOOST_AUTO_TEST_CASE(a_base_knows_the_tails_that_were_stored_before_it_was_published) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store(0, 0, 5, a);
  t.reserve(1, 0, 4, a);
  t.reserve(2, 0, 7, a);
  t.index.publish(1, 1, t.told);
  BOOST_TEST(t.index.tail_offsets(0, 1) == (1u | std::uint64_t{1} << 32));
}

BOOST_AUTO_TEST_CASE(a_base_does_not_rule_out_a_tail_that_waits_unsupported) {
  Tier t(with_state);
  const RunId a = t.index.open_run();
  t.store(0, 0, 6, a);  // its block never comes from a
  const RunId b = t.index.open_run();
  t.store(1, 0, 4, b);
  BOOST_TEST(t.index.unsupported(0));
  BOOST_TEST((t.index.tail_offsets(0, 1) & std::uint64_t{1} << 16) != 0u);
  t.index.meet(0, t.path(0));
  BOOST_TEST(t.index.tail_offsets(0, 1) == std::uint64_t{1} << 16);
  t.require_sound();
}

// --- reset

BOOST_AUTO_TEST_CASE(a_reset_hides_everything_and_frees_what_nobody_reads_or_writes) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.reserve(2, 0, 12, a);
  t.reserve(3, 0, 16, a);
  t.index.publish(3, 93, t.told);
  t.index.pin(1, PinKind::job);
  t.told = {};
  t.index.reset(t.told);
  BOOST_TEST(t.told.gone == (Slots{0}), boost::test_tools::per_element());
  BOOST_TEST(t.told.failed_landed == (Slots{3}), boost::test_tools::per_element());
  BOOST_TEST((t.index.state(1) == EntryState::doomed_pinned));
  BOOST_TEST((t.index.state(2) == EntryState::doomed_reserved));
  for (const std::uint64_t end : {4u, 8u}) BOOST_TEST(t.find(0, end) == no_slot);
  t.require_sound();
  BOOST_TEST(t.index.unpin(1, PinKind::job));
  BOOST_TEST(t.index.release(2));
  t.store_chain(0, 4, a);  // the run is still open
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_reset_keeps_the_slot_of_an_open_rewrite_until_its_copy_ended) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 0, 4, a, 2);
  for (const SlotId s : {0u, 1u}) {
    t.index.mark_bad(s);
    t.index.rewrite(s);
  }
  t.index.pin(1, PinKind::lease);
  t.told = {};
  t.index.reset(t.told);
  BOOST_TEST(t.told.gone.empty());
  BOOST_TEST((t.index.state(0) == EntryState::doomed_pinned));
  BOOST_TEST(t.index.rewriting(0));
  t.require_sound();
  BOOST_TEST(t.index.release(0));
  BOOST_TEST(!t.index.release(1));  // somebody reads it
  BOOST_TEST(t.index.unpin(1, PinKind::lease));
  BOOST_TEST(t.index.counters().rewriting == 0u);
  BOOST_TEST(t.index.counters().pinned == 0u);
  t.require_sound();
}

#if !defined(KVC_ABORT_ON_CHECK)
BOOST_AUTO_TEST_CASE(wrong_calls_are_broken_invariants_of_the_caller) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  BOOST_CHECK_THROW(t.index.unpin(0, PinKind::lease), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.publish(0, 1, t.told), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.fail(0, t.told), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.release(0), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.rewrite(0), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.evict(0, t.told), BrokenInvariant);  // the writer pin
  BOOST_CHECK_THROW(t.index.touch(0, a + 1), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.touch(5, a), BrokenInvariant);
  const RunId b = t.index.open_run();
  t.reserve(1, 0, 8, a);
  BOOST_CHECK_THROW(t.index.hold_path(b, 1), BrokenInvariant);  // neither wrote nor hit it
}
#endif

BOOST_AUTO_TEST_CASE(sizes_out_of_range_are_refused) {
  const Geometry g = make(only_full);
  BOOST_TEST(!TierIndex::make(g, {7, 4, 1, true}).ok());
  BOOST_TEST(!TierIndex::make(g, {33, 4, 1, true}).ok());
  BOOST_TEST(!TierIndex::make(g, {16, std::uint64_t{1} << 31, 1, true}).ok());
  BOOST_TEST(!TierIndex::make(g, {16, 4, std::uint64_t{1} << 31, true}).ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
