#include "plugin/coordinator/tier_index.h"

#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/tests/tier_fixture.h"
#include "plugin/core/prng.h"

namespace kvc {
namespace {

using namespace test;

BOOST_AUTO_TEST_SUITE(tier_index)

// --- (a)

BOOST_AUTO_TEST_CASE(a_child_needs_a_parent_that_is_reserved_landed_or_published) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  BOOST_TEST(!t.reserve(1, 0, 8, a));  // nothing there
  BOOST_TEST(t.reserve(0, 0, 4, a));
  BOOST_TEST(t.reserve(1, 0, 8, a));  // below a reserved one
  BOOST_TEST(!t.index.publish(1, 1, t.told));
  BOOST_TEST(t.reserve(2, 0, 12, a));  // below a landed one
  BOOST_TEST(t.index.publish(0, 0, t.told));
  BOOST_TEST(t.index.publish(2, 2, t.told));
  BOOST_TEST(t.reserve(3, 0, 16, a));  // below a published one
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(the_first_block_hangs_on_the_root_even_when_the_path_is_not_known) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  BOOST_TEST(t.reserve(0, 0, 4, a, 0, 0));
  BOOST_TEST(t.index.supports_of(0).root);
}

BOOST_AUTO_TEST_CASE(a_later_block_of_an_unknown_path_is_refused_as_without_parent) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  BOOST_TEST(!t.reserve(1, 0, 8, a, 0, 0));
  BOOST_TEST(t.reserve(1, 0, 8, a, 0, 2));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_bad_parent_counts_as_present) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.index.mark_bad(0);
  BOOST_TEST(t.reserve(1, 0, 8, a));
  BOOST_TEST(t.index.publish(1, 1, t.told));
  t.require_sound();
}

#if !defined(KVC_ABORT_ON_CHECK)
BOOST_AUTO_TEST_CASE(a_run_that_is_closed_is_not_open_while_its_entries_live) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.index.close_run(a);
  BOOST_CHECK_THROW(t.index.close_run(a), BrokenInvariant);
  BOOST_CHECK_THROW(t.index.close_run(a + 1), BrokenInvariant);
}
#endif

// --- (b)

BOOST_AUTO_TEST_CASE(a_reserved_child_keeps_its_parent) {
  Tier t(only_full);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.reserve(1, 0, 8, a);
  a = t.next_run(a);
  BOOST_TEST(!t.index.evictable(0));
  BOOST_TEST(t.index.victim(a) == no_slot);
  t.index.fail(1, t.told);
  BOOST_TEST(t.index.evictable(0));
  BOOST_TEST(t.index.victim(a) == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_pinned_or_reserved_dependent_keeps_its_support) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.reserve(1, 1, 4, a);
  a = t.next_run(a);
  BOOST_TEST(!t.index.evictable(0));  // its copy is open
  t.index.publish(1, 1, t.told);
  BOOST_TEST(t.index.evictable(0));
  t.index.pin(1, PinKind::lease);
  BOOST_TEST(!t.index.evictable(0));
  t.index.unpin(1, PinKind::lease);
  BOOST_TEST(t.index.evictable(0));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_pinned_state_keeps_the_tail_it_hangs_on_and_the_block_the_tail_continues) {
  Tier t(with_state);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 0, 6, a);
  t.store(2, 1, 6, a);
  a = t.next_run(a);
  t.index.pin(2, PinKind::job);
  BOOST_TEST(!t.index.evictable(1));
  BOOST_TEST(!t.index.evictable(0));
  BOOST_TEST(t.index.victim(a) == no_slot);
  t.index.unpin(2, PinKind::job);
  BOOST_TEST(t.drain() == (Slots{2, 1, 0}), boost::test_tools::per_element());
}

// --- (c)

BOOST_AUTO_TEST_CASE(a_child_is_published_after_its_parent_and_with_its_own_tag) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  for (SlotId s = 0; s < 3; ++s) t.reserve(s, 0, 4 * (std::uint64_t{s} + 1), a);
  BOOST_TEST(!t.index.publish(2, 72, t.told));
  BOOST_TEST(!t.index.publish(1, 71, t.told));
  BOOST_TEST((t.index.state(1) == EntryState::landed));
  BOOST_TEST(t.find(0, 8) == no_slot);
  BOOST_TEST(t.index.publish(0, 70, t.told));
  BOOST_TEST(t.told.seen == (Slots{0, 1, 2}), boost::test_tools::per_element());
  BOOST_TEST(t.told.tags == (std::vector<std::uint32_t>{70, 71, 72}),
             boost::test_tools::per_element());
  BOOST_TEST(t.find(0, 12) == 2u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_landed_child_is_published_although_a_sibling_was_reserved_after_it) {
  Tier t(only_full, 16, 1);
  const RunId a = t.index.open_run();
  const RunId b = t.index.open_run();
  t.reserve(0, 0, 4, a);
  t.reserve(1, 0, 8, a);
  t.index.publish(1, 1, t.told);  // landed
  t.reserve(2, 0, 8, b, 1);       // another branch, its copy open
  t.require_sound();
  t.index.publish(0, 0, t.told);
  BOOST_TEST((t.index.state(1) == EntryState::published));
  BOOST_TEST(t.index.counters().landed == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_failed_parent_ends_every_reserved_and_landed_descendant) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  for (SlotId s = 0; s < 4; ++s) t.reserve(s, 0, 4 * (std::uint64_t{s} + 1), a);
  t.index.publish(2, 72, t.told);
  t.index.fail(0, t.told);
  BOOST_TEST((t.index.state(0) == EntryState::free));
  BOOST_TEST((t.index.state(1) == EntryState::doomed_reserved));
  BOOST_TEST((t.index.state(2) == EntryState::free));
  BOOST_TEST((t.index.state(3) == EntryState::doomed_reserved));
  BOOST_TEST(t.told.failed_open == (Slots{3, 1}), boost::test_tools::per_element());
  BOOST_TEST(t.told.failed_landed == (Slots{2}), boost::test_tools::per_element());
  BOOST_TEST(t.told.tags == (std::vector<std::uint32_t>{72}), boost::test_tools::per_element());
  BOOST_TEST(t.index.release(1));
  BOOST_TEST(t.index.release(3));
  BOOST_TEST(t.index.counters().doomed_reserved == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_failed_support_leaves_its_dependents_unsupported_not_evicted) {
  Tier t(coarse_state);
  const RunId a = t.index.open_run();
  t.reserve(0, 0, 4, a);
  t.store(1, 1, 4, a);
  BOOST_TEST(!t.index.unsupported(1));
  t.index.fail(0, t.told);
  BOOST_TEST((t.index.state(1) == EntryState::published));
  BOOST_TEST(t.index.unsupported(1));
  BOOST_TEST(!t.index.evictable(1));  // the writer pin holds it
  t.store(0, 0, 4, a);
  BOOST_TEST(!t.index.unsupported(1));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(an_offer_that_is_given_up_keeps_its_slot_until_its_copy_ended) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.reserve(0, 0, 4, a);
  t.reserve(1, 0, 8, a);
  t.index.fail(0, t.told, true);
  BOOST_TEST((t.index.state(0) == EntryState::doomed_reserved));
  BOOST_TEST((t.index.state(1) == EntryState::doomed_reserved));
  t.reserve(2, 0, 4, a);  // the key is free
  BOOST_TEST(t.index.release(0));
  BOOST_TEST((t.index.state(0) == EntryState::free));
  t.require_sound();
}

// --- (d)

BOOST_AUTO_TEST_CASE(a_bad_entry_stays_but_no_lookup_passes_it) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store_chain(0, 3, a);
  BOOST_TEST(t.index.prefix_closed(0));
  t.index.mark_bad(1);
  BOOST_TEST(t.find(0, 8) == no_slot);
  BOOST_TEST(t.find(0, 12) == 2u);
  BOOST_TEST(!t.index.prefix_closed(0));  // so lookups walk from the root
  SlotId entry = no_slot;
  BOOST_TEST((t.index.find_any(0, t.key(0, 8), entry) == Presence::absent));
  BOOST_TEST(entry == 1u);
  t.index.mark_bad(1);
  BOOST_TEST(t.index.counters().bad == 1u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(the_mark_goes_when_the_rewrite_is_published_and_stays_when_it_fails) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  t.index.mark_bad(0);
  t.index.rewrite(0);
  SlotId entry = no_slot;
  BOOST_TEST((t.index.find_any(0, t.key(0, 4), entry) == Presence::reserved));
  t.index.fail(0, t.told);
  BOOST_TEST(t.index.bad(0));
  BOOST_TEST(!t.index.rewriting(0));
  t.index.rewrite(0);
  BOOST_TEST(t.index.publish(0, 7, t.told));
  BOOST_TEST(!t.index.bad(0));
  BOOST_TEST(t.find(0, 4) == 0u);
  BOOST_TEST(t.index.prefix_closed(0));
  BOOST_TEST(t.told.tags.back() == 7u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_rewrite_that_is_given_up_is_open_until_its_copy_ended) {
  Tier t(only_full);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  a = t.next_run(a);
  t.index.mark_bad(0);
  t.index.rewrite(0);
  t.index.fail(0, t.told, true);
  BOOST_TEST(t.index.rewriting(0));
  BOOST_TEST(!t.index.evictable(0));
  t.index.fail(0, t.told);
  BOOST_TEST(t.index.victim(no_run) == 0u);
  BOOST_TEST(t.index.counters().rewriting == 0u);
}

BOOST_AUTO_TEST_CASE(a_childless_bad_entry_goes_before_all_others) {
  Tier t(coarse_state);
  RunId a = t.index.open_run();
  t.store_chain(0, 2, a);  // its last block is dead, that is, in front
  a = t.next_run(a);
  t.store(4, 0, 4, a, 2);
  t.store(5, 1, 4, a, 2);
  a = t.next_run(a);
  BOOST_TEST(t.index.victim(a) == 1u);
  t.index.mark_bad(5);
  BOOST_TEST(t.index.victim(a) == 5u);
  t.index.evict(5, t.told);
  BOOST_TEST(t.told.bad == (Slots{5}), boost::test_tools::per_element());
  t.require_sound();
}

// --- (f)

BOOST_AUTO_TEST_CASE(lookups_see_published_entries_only) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.reserve(0, 0, 4, a);
  BOOST_TEST(t.find(0, 4) == no_slot);
  t.reserve(1, 0, 8, a);
  t.index.publish(1, 1, t.told);
  BOOST_TEST(t.find(0, 8) == no_slot);
  std::vector<SlotId> out(2);
  t.index.find_batch(0, {t.key(0, 4), 16, 2}, out);
  BOOST_TEST(out == (Slots{no_slot, no_slot}), boost::test_tools::per_element());
  t.index.publish(0, 0, t.told);
  t.index.find_batch(0, {t.key(0, 4), 16, 2}, out);
  BOOST_TEST(out == (Slots{0, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(every_key_length_counts_every_byte) {
  const Geometry g = make(only_full);
  for (std::uint32_t n = key_bytes_min; n <= key_bytes_max; ++n) {
    TierIndex index = std::move(TierIndex::make(g, {n, 64, 1, true})).value();
    const RunId run = index.open_run();
    Told told;
    std::vector<std::byte> key(n);
    const auto store = [&](SlotId slot) {
      const KeyView path{key.data(), n, 1};
      index.reserve(slot, 0, key.data(), path, {4}, run, index.hold_supports(0, path, {4}, run));
      index.publish(slot, 0, told);
    };
    store(0);
    for (std::uint32_t i = 0; i < n; ++i) {
      key[i] = std::byte{1};
      BOOST_TEST(index.find(0, key.data()) == no_slot);
      store(i + 1);
      key[i] = std::byte{0};
    }
    BOOST_TEST(index.find(0, key.data()) == 0u);
    BOOST_TEST(index.verify().ok());
  }
}

BOOST_AUTO_TEST_CASE(a_full_index_finds_everything_in_batches_of_both_directions) {
  constexpr SlotId n = 5000;
  const Geometry g = make(only_full);
  for (const std::uint64_t slots : {std::uint64_t{n}, std::uint64_t{0}}) {  // bounded; growing
    TierIndex index = std::move(TierIndex::make(g, {32, slots, 1, true})).value();
    const Keys keys(n + 100, 32);
    const RunId run = index.open_run();
    Told told;
    for (SlotId i = 0; i < n; ++i) {
      const Tokens end{4 * (std::uint64_t{i} + 1)};
      index.reserve(i, 0, keys.at(i), keys.view(), end, run,
                    index.hold_supports(0, keys.view(), end, run));
      BOOST_REQUIRE(index.publish(i, 0, told));
    }
    Slots out(n + 100);
    index.find_batch(0, {keys.at(0), 32, n + 100}, out);
    for (SlotId i = 0; i < n + 100; ++i) BOOST_REQUIRE(out[i] == (i < n ? i : no_slot));
    index.find_batch(0, {keys.at(n + 99), -32, n + 100}, out);
    for (SlotId i = 0; i < n + 100; ++i) BOOST_REQUIRE(out[n + 99 - i] == (i < n ? i : no_slot));
    BOOST_TEST(index.verify().ok());
    index.close_run(run);
    for (SlotId left = n; left > 0; --left) {
      const SlotId v = index.victim(no_run);
      BOOST_REQUIRE(v == left - 1);
      index.evict(v, told);
    }
    BOOST_TEST(index.victim(no_run) == no_slot);
    BOOST_TEST(index.verify().ok());
  }
}

// Slots of a path: far apart, in a row upwards or downwards, and in rows of all lengths both ways.
std::vector<std::vector<SlotId>> slot_orders(SlotId n) {
  std::vector<std::vector<SlotId>> orders(4, std::vector<SlotId>(n));
  for (SlotId i = 0; i < n; ++i) {
    orders[0][i] = i * 7 % n;
    orders[1][i] = i;
    orders[2][i] = n - 1 - i;
  }
  Prng random(5);
  bool upwards = true;
  for (SlotId i = 0; i < n; upwards = !upwards) {
    const SlotId most = random.chance(1, 8) ? 600 : 20;
    const SlotId row = std::min<SlotId>(n - i, static_cast<SlotId>(1 + random.below(most)));
    for (SlotId k = 0; k < row; ++k) orders[3][i + k] = upwards ? i + k : i + row - 1 - k;
    i += row;
  }
  return orders;
}

// What find_path tells on its way.
class Passed final : public PathListener {
 public:
  explicit Passed(std::size_t count) : times(count) {}
  void passed(std::size_t first, std::size_t count) override {
    BOOST_REQUIRE(first + count <= times.size());
    for (std::size_t i = first; i < first + count; ++i) ++times[i];
  }
  std::vector<int> times;
};

BOOST_AUTO_TEST_CASE(a_path_is_found_as_in_a_batch_whatever_its_length_and_slots) {
  constexpr SlotId n = 2000;
  const Geometry g = make(only_full);
  for (const std::vector<SlotId>& slots : slot_orders(n)) {
    for (const bool chained : {true, false}) {
      TierIndex index = std::move(TierIndex::make(g, {32, n, 1, chained})).value();
      const Keys keys(n, 32);
      const RunId run = index.open_run();
      Told told;
      for (SlotId i = 0; i < n; ++i) {
        const Tokens end{4 * (std::uint64_t{i} + 1)};
        index.reserve(slots[i], 0, keys.at(i), keys.view(), end, run,
                      index.hold_supports(0, keys.view(), end, run));
        BOOST_REQUIRE(index.publish(slots[i], 0, told));
      }
      BOOST_TEST(index.verify().ok());
      for (const SlotId first : {0U, 1U, 500U}) {
        for (const SlotId count : {1U, 31U, 32U, 63U, 64U, 65U, 300U, 1000U, 1024U, 1499U}) {
          Slots out(count + 1, no_slot);
          Passed told_of(count);
          BOOST_REQUIRE(index.find_path(0, {keys.at(first), 32, count}, out, &told_of));
          for (SlotId i = 0; i < count; ++i) BOOST_REQUIRE(out[i] == slots[first + i]);
          BOOST_TEST(out[count] == no_slot);
          BOOST_TEST(told_of.times == std::vector<int>(count, 1), boost::test_tools::per_element());
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(metadata_of_a_block_with_the_longest_key_takes_at_most_96_bytes) {
  constexpr SlotId n = 1 << 16;
  const Geometry g = make(only_full);
  TierIndex index = std::move(TierIndex::make(g, {32, n, 64, true})).value();
  Told told;
  for (SlotId i = 0; i < n; i += 64) {  // requests of 64 blocks
    const Keys keys(64, 32, i + 1);
    const RunId run = index.open_run();
    for (SlotId k = 0; k < 64; ++k) {
      const Tokens end{4 * (std::uint64_t{k} + 1)};
      index.reserve(i + k, 0, keys.at(k), keys.view(), end, run,
                    index.hold_supports(0, keys.view(), end, run));
      BOOST_REQUIRE(index.publish(i + k, 0, told));
    }
    index.close_run(run);
  }
  BOOST_TEST(index.counters().evictable == n / 64);
  BOOST_TEST(index.counters().bytes <= 96u * n);
}

BOOST_AUTO_TEST_CASE(only_the_chain_of_a_chained_index_is_prefix_closed) {
  Tier chained(with_wide);
  BOOST_TEST(chained.index.prefix_closed(0));
  BOOST_TEST(!chained.index.prefix_closed(1));
  Tier flat(with_wide, 8, 4, false);
  BOOST_TEST(!flat.index.chained());
  BOOST_TEST(!flat.index.prefix_closed(0));
  Tier none({{mb(4), sw(4, 8)}, 4, 4});  // no full attention
  BOOST_TEST(!none.index.chained());
}

// --- pins

BOOST_AUTO_TEST_CASE(pins_of_leases_and_jobs_add) {
  Tier t(only_full);
  const RunId a = t.next_run([&] {
    const RunId first = t.index.open_run();
    t.store(0, 0, 4, first);
    return first;
  }());
  t.index.pin(0, PinKind::lease);
  t.index.pin(0, PinKind::job);
  t.index.pin(0, PinKind::lease);
  BOOST_TEST(t.index.pins(0) == 3u);
  BOOST_TEST(t.index.counters().lease_only == 0u);
  t.index.unpin(0, PinKind::job);
  BOOST_TEST(t.index.counters().lease_only == 1u);
  t.index.unpin(0, PinKind::lease);
  BOOST_TEST(t.index.victim(a) == no_slot);
  BOOST_TEST(!t.index.unpin(0, PinKind::lease));
  BOOST_TEST(t.index.victim(a) == 0u);
  BOOST_TEST(t.index.counters().pinned == 0u);
}

BOOST_AUTO_TEST_CASE(a_pin_of_the_deepest_entry_keeps_the_whole_path) {
  Tier t(only_full);
  RunId a = t.index.open_run();
  t.store_chain(0, 4, a);
  a = t.next_run(a);
  t.index.pin(2, PinKind::lease);
  BOOST_TEST(t.drain() == (Slots{3}), boost::test_tools::per_element());
  t.index.unpin(2, PinKind::lease);
  BOOST_TEST(t.drain() == (Slots{2, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_writer_pin_keeps_the_deepest_entry_until_the_request_lets_go) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store_chain(0, 2, a);
  BOOST_TEST(t.index.counters().writer_pins == 1u);
  BOOST_TEST(t.index.victim(no_run) == no_slot);
  t.index.hold_path(a, 0);  // not back
  BOOST_TEST(!t.index.evictable(1));
  t.index.release_path(a);
  BOOST_TEST(t.index.victim(no_run) == 1u);
  t.index.hold_path(a, 1);  // a hit after its next admission
  BOOST_TEST(t.index.victim(no_run) == no_slot);
  t.index.close_run(a);
  BOOST_TEST(t.index.victim(no_run) == 1u);
  BOOST_TEST(t.index.counters().writer_pins == 0u);
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_writer_pin_falls_back_to_the_parent_when_its_entry_fails) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.reserve(1, 0, 8, a);
  t.index.fail(1, t.told);
  BOOST_TEST(!t.index.evictable(0));
  t.index.release_path(a);
  BOOST_TEST(t.index.evictable(0));
  t.require_sound();
}

BOOST_AUTO_TEST_CASE(a_failure_moves_the_writer_pins_of_all_requests_that_built_on_the_entry) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  const RunId b = t.index.open_run();
  const RunId c = t.index.open_run();
  t.store(0, 0, 4, a);
  t.reserve(1, 0, 8, b);
  t.reserve(2, 0, 12, c);  // c builds on what b is still writing
  t.reserve(3, 0, 16, b);
  t.index.release_path(a);
  t.index.fail(1, t.told);
  t.require_sound();
  BOOST_TEST(t.index.counters().writer_pins == 2u);
  BOOST_TEST(!t.index.evictable(0));
  t.index.close_run(b);
  BOOST_TEST(!t.index.evictable(0));
  t.index.close_run(c);
  BOOST_TEST(t.index.evictable(0));
}

BOOST_AUTO_TEST_CASE(a_writer_pin_does_not_fall_back_to_what_another_request_still_writes) {
  Tier t(only_full);
  const RunId a = t.index.open_run();
  const RunId b = t.index.open_run();
  t.store(0, 0, 4, a);
  t.reserve(1, 0, 8, a);
  t.reserve(2, 0, 12, b);
  t.index.fail(2, t.told);  // b: back to 0, not to 1
  t.index.fail(1, t.told);
  t.require_sound();
  t.index.close_run(a);
  BOOST_TEST(!t.index.evictable(0));
  t.index.close_run(b);
  BOOST_TEST(t.index.evictable(0));
}

BOOST_AUTO_TEST_CASE(held_supports_are_not_evicted_before_the_reservation) {
  Tier t(with_state);
  RunId a = t.index.open_run();
  t.store(0, 0, 4, a);
  t.store(1, 0, 6, a);
  a = t.next_run(a);
  const Supports s = t.index.hold_supports(1, t.path(0), {6}, a);
  BOOST_TEST(s.second == 1u);
  BOOST_TEST(t.index.victim(no_run) == no_slot);
  t.index.drop_supports(s);
  BOOST_TEST(t.index.victim(no_run) != no_slot);
  t.require_sound();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
