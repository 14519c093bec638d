// Priorities and times to live in the order of eviction (kvc.hints/1), under every policy.
#include <array>
#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/tests/tier_fixture.h"

namespace kvc {
namespace {

using namespace test;

constexpr std::array policies{Eviction::lru, Eviction::arc, Eviction::gdsf, Eviction::hazard};

struct HintedTier : Tier {
  explicit HintedTier(Eviction eviction, const Layout& layout = only_full)
      : Tier(layout, 16, 0, true, eviction) {}
  // A run that is over, with `n` blocks of the path in slots from `first`.
  RunId stored(SlotId first, std::uint64_t n, int path, const Hint& hint) {
    const RunId run = index.open_run();
    index.hint(run, hint);
    store_chain(first, n, run, path);
    index.close_run(run);
    return run;
  }
  // Who would go for a store of a run with this priority.
  SlotId victim_for(std::int32_t priority, bool& declined) {
    const RunId run = index.open_run();
    index.hint(run, {priority, 0});
    const SlotId slot = index.victim(run, 0, key(2, 40), Tokens{40}, declined);
    index.close_run(run);
    return slot;
  }
};

std::uint32_t class_of(std::int32_t priority) {
  return static_cast<std::uint32_t>(1 + priority - priority_least);
}

BOOST_AUTO_TEST_SUITE(tier_hints)

BOOST_AUTO_TEST_CASE(lower_priority_goes_first_under_every_policy) {
  for (const Eviction policy : policies) {
    BOOST_TEST_CONTEXT(name_of(policy)) {
      HintedTier t(policy);
      t.stored(0, 2, 0, {1, 0});
      t.stored(2, 2, 1, {0, 0});
      t.stored(4, 2, 2, {-1, 0});
      BOOST_TEST(t.index.eviction_class(0) == class_of(1));
      BOOST_TEST(t.index.eviction_class(2) == class_of(0));
      BOOST_TEST(t.drain() == (Slots{5, 4, 3, 2, 1, 0}), boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(of_one_priority_the_run_used_longest_ago_goes_first) {
  for (const Eviction policy : policies) {
    for (const std::int32_t priority : {-2, -1, 1, 2}) {
      HintedTier t(policy);
      t.stored(0, 2, 0, {priority, 0});
      t.stored(2, 2, 1, {priority, 0});
      t.stored(4, 1, 2, {priority, 0});
      const RunId user = t.index.open_run();
      t.index.touch(1, user);  // without hint
      t.index.close_run(user);
      const bool lower = priority < 0;  // then it is of normal priority from now on
      BOOST_TEST(t.index.eviction_class(1) == class_of(lower ? 0 : priority));
      BOOST_TEST(t.drain() == (Slots{3, 2, 4, 1, 0}), boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(nothing_goes_for_a_store_of_lower_priority) {
  for (const Eviction policy : policies) {
    BOOST_TEST_CONTEXT(name_of(policy)) {
      HintedTier t(policy);
      t.stored(0, 2, 0, {1, 0});
      t.stored(2, 2, 1, {0, 0});
      bool declined = false;
      BOOST_TEST(t.victim_for(-1, declined) == no_slot);
      BOOST_TEST(declined);
      BOOST_TEST(t.index.counters().outranked == 1U);
      BOOST_TEST(t.victim_for(0, declined) == 3U);
      BOOST_TEST(!declined);
      BOOST_TEST(t.victim_for(2, declined) == 3U);
      t.index.evict(3, t.told);
      t.index.evict(2, t.told);
      BOOST_TEST(t.victim_for(0, declined) == no_slot);
      BOOST_TEST(declined);
      BOOST_TEST(t.index.counters().outranked == 2U);
      BOOST_TEST(t.victim_for(1, declined) == 1U);
      t.require_sound();
    }
  }
}

BOOST_AUTO_TEST_CASE(what_has_outlived_its_time_goes_before_all_others_and_is_found_until_then) {
  for (const Eviction policy : policies) {
    BOOST_TEST_CONTEXT(name_of(policy)) {
      HintedTier t(policy);
      t.index.tick(1000);
      t.stored(0, 1, 0, {-2, 0});
      t.stored(1, 2, 1, {2, 50});
      t.stored(3, 1, 2, {0, 51});
      t.index.tick(1049);
      BOOST_TEST(t.index.timed());
      BOOST_TEST(t.index.victim(no_run) == 0U);
      t.index.tick(1050);
      BOOST_TEST(t.index.counters().expired == 2U);
      BOOST_TEST(t.index.victim(no_run) == 2U);
      BOOST_TEST(t.find(0, 4, 1) == 1U);
      t.require_sound();
      t.index.tick(2000);
      BOOST_TEST(t.index.counters().expired == 3U);
      BOOST_TEST(t.index.timed());  // a use may begin them again
      BOOST_TEST(t.drain() == (Slots{2, 1, 3, 0}), boost::test_tools::per_element());
      BOOST_TEST(!t.index.timed());
    }
  }
}

BOOST_AUTO_TEST_CASE(a_use_gives_the_time_anew_also_when_it_was_over) {
  for (const Eviction policy : policies) {
    HintedTier t(policy);
    t.stored(0, 1, 0, {0, 0});
    const RunId run = t.index.open_run();
    t.index.hint(run, {1, 100});
    t.store(1, 0, 4, run, 1);
    t.index.release_path(run);
    t.index.tick(60);
    const RunId lower = t.index.open_run();
    t.index.touch(1, lower);  // stays with its run, whose time begins again
    BOOST_TEST(t.index.run_of(1) == run);
    t.index.tick(100);
    BOOST_TEST(t.index.eviction_class(1) == class_of(1));
    t.index.tick(160);
    BOOST_TEST(t.index.eviction_class(1) == 0U);
    BOOST_TEST(t.index.victim(no_run) == 1U);
    t.index.schedule(run);
    BOOST_TEST(t.index.eviction_class(1) == class_of(1));
    BOOST_TEST(t.index.victim(no_run) == 0U);
    t.index.tick(260);
    t.index.touch(1, lower);  // over: whoever uses it has it
    BOOST_TEST(t.index.run_of(1) == lower);
    t.require_sound();
  }
}

// Design 3.1 (e).
BOOST_AUTO_TEST_CASE(a_parent_is_at_least_as_good_as_the_child_it_loses) {
  for (const Eviction policy : policies) {
    HintedTier t(policy);
    t.stored(0, 2, 0, {-1, 0});
    const RunId run = t.index.open_run();
    t.index.hint(run, {2, 0});
    t.store(2, 0, 12, run, 0);
    t.index.close_run(run);
    t.stored(3, 1, 1, {0, 0});
    BOOST_TEST(t.index.victim(no_run) == 3U);  // the others have a child
    t.index.evict(2, t.told);
    BOOST_TEST(t.index.eviction_class(1) == class_of(2));
    BOOST_TEST(t.index.eviction_class(0) == class_of(-1));
    BOOST_TEST(t.drain() == (Slots{3, 1, 0}), boost::test_tools::per_element());
  }
}

// Boundaries that go whole are not ranked beside those with a hint, and dead blocks go first.
BOOST_AUTO_TEST_CASE(states_have_the_class_of_their_run) {
  for (const Eviction policy : policies) {
    BOOST_TEST_CONTEXT(name_of(policy)) {
      HintedTier t(policy, coarse_state);
      int path = 0;
      for (const std::int32_t priority : {2, 0, -2}) {
        const RunId run = t.index.open_run();
        t.index.hint(run, {priority, 0});
        const auto first = static_cast<SlotId>(2 * path);
        t.store(first, 0, 4, run, path);
        t.store(first + 1, 1, 4, run, path++);
        t.index.close_run(run);
      }
      BOOST_TEST(t.drain() == (Slots{5, 4, 3, 2, 1, 0}), boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(an_id_that_is_used_again_has_no_hint) {
  for (const Eviction policy : policies) {
    HintedTier t(policy);
    const RunId run = t.index.open_run();
    t.index.hint(run, {2, 10});
    t.index.hint(run, {1, 20});  // the last one counts
    t.store(0, 0, 4, run);
    BOOST_TEST(t.index.eviction_class(0) == class_of(1));
    t.index.close_run(run);
    t.drain();
    BOOST_TEST(!t.index.timed());
    const RunId again = t.index.open_run();
    BOOST_REQUIRE(again == run);
    t.store(0, 0, 4, again);
    BOOST_TEST(t.index.eviction_class(0) == class_of(0));
    t.index.tick(1000);
    BOOST_TEST(t.index.eviction_class(0) == class_of(0));
    t.require_sound();
  }
}

BOOST_AUTO_TEST_CASE(times_that_never_end_are_possible) {
  HintedTier t(Eviction::lru);
  t.index.tick(UINT64_MAX - 5);
  t.stored(0, 1, 0, {0, UINT64_MAX});
  t.index.tick(UINT64_MAX - 1);
  BOOST_TEST(t.index.eviction_class(0) == class_of(0));
  t.index.tick(7);  // back in time: nothing
  t.require_sound();
}

#if !defined(KVC_ABORT_ON_CHECK)
BOOST_AUTO_TEST_CASE(a_hint_behind_the_first_entry_is_a_broken_invariant) {
  HintedTier t(Eviction::lru);
  const RunId run = t.index.open_run();
  BOOST_CHECK_THROW(t.index.hint(run, {3, 0}), BrokenInvariant);
  t.store(0, 0, 4, run);
  BOOST_CHECK_THROW(t.index.hint(run, {1, 0}), BrokenInvariant);
}
#endif

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
