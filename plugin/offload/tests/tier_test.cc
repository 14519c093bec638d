// Slots, entries, pins, eviction order and reset of the host tier.
#include <boost/test/unit_test.hpp>
#include <map>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/offload/host_tier.h"

using namespace kvc;

namespace {

Geometry two_groups() {
  GeometryOptions o;
  o.groups = {group_spec(GroupKind::full, Tokens{16}), group_spec(GroupKind::full, Tokens{16})};
  o.hash_unit = o.scheduler_block = Tokens{16};
  return Geometry::make(std::move(o)).value();
}

using Key = std::array<std::byte, 16>;
Key key(std::uint64_t n) {
  Key k{};
  const std::uint64_t a = Prng(n).next();
  std::memcpy(k.data(), &a, 8);
  std::memcpy(k.data() + 8, &n, 8);
  return k;
}

TierSizes sizes(std::uint64_t pages, std::vector<std::uint32_t> per_page, bool second_class) {
  TierSizes s;
  s.pages = pages;
  s.slots_per_page = std::move(per_page);
  s.class_of_group.fill(TierSizes::no_class);
  s.class_of_group[0] = 0;
  s.class_of_group[1] = second_class ? 1 : 0;
  return s;
}

struct Fixture {
  explicit Fixture(std::uint64_t pages = 4, std::vector<std::uint32_t> per_page = {1},
                   bool second_class = false)
      : geometry(two_groups()), events(64), tier(geometry, 16, {.chained = false}, events) {
    BOOST_REQUIRE(tier.resize(sizes(pages, std::move(per_page), second_class), 16).ok());
    run = tier.open_run();
  }
  ~Fixture() { BOOST_TEST(tier.verify() == ""); }
  [[nodiscard]] SlotId bad_of(GroupId g, std::uint64_t n) const {
    SlotId e = no_slot;
    return tier.find(g, key(n).data(), e) == Presence::absent ? e : no_slot;
  }
  SlotId store(std::uint64_t n, std::uint64_t end, RunId of, GroupId g = 0) {
    Refusal why = Refusal::none;
    const SlotId e = tier.reserve(g, key(n).data(), KeyView{}, Tokens{end}, of, bad_of(g, n), why);
    if (e != no_slot) tier.publish(e, 0);
    BOOST_TEST(tier.verify() == "");
    return e;
  }
  [[nodiscard]] bool has(std::uint64_t n, GroupId g = 0) const {
    SlotId e = no_slot;
    return tier.find(g, key(n).data(), e) == Presence::published;
  }
  Geometry geometry;
  EventRing events;
  HostTier tier;
  RunId run = no_run;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(offload_tier)

BOOST_AUTO_TEST_CASE(more_slots_than_ids_are_refused_with_pages_and_slots) {
  const Geometry geometry = two_groups();
  EventRing events(64);
  HostTier tier(geometry, 16, {.chained = false}, events);
  const std::uint64_t pages = (std::uint64_t{1} << 31U) / 4;
  const Status refused = tier.resize(sizes(pages, {4}, false), 16);
  BOOST_TEST((refused.code == Code::arg));
  BOOST_TEST(refused.text == "536870912 pages of 4 slots are more than 2^31 slots");
  BOOST_TEST(!tier.resize(sizes(UINT64_MAX - 1, {1}, false), 16).ok());
  BOOST_TEST(tier.resize(sizes(4, {4}, false), 16).ok());
}

// A request that could get no run is scheduled all the same.
BOOST_AUTO_TEST_CASE(scheduling_no_run_is_nothing) {
  Fixture f;
  f.store(1, 16, f.run);
  f.tier.schedule(no_run);
  BOOST_TEST(f.has(1));
}

BOOST_AUTO_TEST_CASE(what_a_live_request_wrote_deepest_is_not_counted_as_evictable) {
  const Geometry geometry = two_groups();
  EventRing events(64);
  HostTier tier(geometry, 16, {.chained = true}, events);
  BOOST_REQUIRE(tier.resize(sizes(4, {1}, false), 16).ok());
  const RunId run = tier.open_run();
  Refusal why = Refusal::none;
  const auto k = key(1);
  const SlotId e =
      tier.reserve(0, k.data(), KeyView{k.data(), 16, 1}, Tokens{16}, run, no_slot, why);
  BOOST_REQUIRE(e != no_slot);
  tier.publish(e, 0);
  BOOST_TEST(tier.numbers().writer_pins == 1U);
  BOOST_TEST(tier.evictable() == 0U);
  const RunId other = tier.open_run();
  const auto k2 = key(2);
  const SlotId leased =
      tier.reserve(0, k2.data(), KeyView{k2.data(), 16, 1}, Tokens{16}, other, no_slot, why);
  BOOST_REQUIRE(leased != no_slot);
  tier.publish(leased, 0);
  tier.close_run(other);
  BOOST_TEST(tier.evictable() == 1U);
  tier.pin(leased, PinKind::lease);
  BOOST_TEST(tier.evictable() == 0U);
  tier.unpin(leased, PinKind::lease);
  tier.close_run(run);
  BOOST_TEST(tier.evictable() == 2U);
  BOOST_TEST(tier.verify() == "");
}

BOOST_AUTO_TEST_CASE(lookups_see_published_entries_only) {
  Fixture f;
  Refusal why = Refusal::none;
  const SlotId e = f.tier.reserve(0, key(1).data(), KeyView{}, Tokens{16}, f.run, no_slot, why);
  SlotId found = no_slot;
  BOOST_CHECK(f.tier.find(0, key(1).data(), found) == Presence::reserved);
  BOOST_TEST(found == e);
  BOOST_TEST(f.tier.index().find(0, key(1).data()) == no_slot);
  f.tier.publish(e, 0);
  BOOST_TEST(f.tier.index().find(0, key(1).data()) == e);
  BOOST_TEST(f.tier.index().find(1, key(1).data()) == no_slot);
}

BOOST_AUTO_TEST_CASE(a_batch_hides_what_is_only_reserved) {
  Fixture f;
  std::vector<std::byte> keys;
  for (std::uint64_t n = 0; n < 3; ++n) {
    const Key k = key(n);
    keys.insert(keys.end(), k.begin(), k.end());
  }
  f.store(0, 16, f.run);
  Refusal why = Refusal::none;
  const SlotId e = f.tier.reserve(0, key(1).data(), KeyView{}, Tokens{32}, f.run, no_slot, why);
  std::array<SlotId, 3> out{};
  f.tier.index().find_batch(0, KeyRun{keys.data(), 16, 3}, out);
  BOOST_TEST(out[0] != no_slot);
  BOOST_TEST(out[1] == no_slot);
  BOOST_TEST(out[2] == no_slot);
  f.tier.abandon(e);
}

BOOST_AUTO_TEST_CASE(a_store_never_evicts_its_own_request) {
  Fixture f(2);
  f.store(1, 16, f.run);
  f.store(2, 32, f.run);
  BOOST_TEST(f.store(3, 48, f.run) == no_slot);
  const RunId other = f.tier.open_run();
  BOOST_TEST(f.store(4, 16, other) != no_slot);
  BOOST_TEST(f.has(1));
  BOOST_TEST(!f.has(2));
}

BOOST_AUTO_TEST_CASE(a_touch_moves_an_entry_out_of_the_way) {
  Fixture f(2);
  const RunId second = f.tier.open_run();
  f.store(1, 16, f.run);
  const SlotId two = f.store(2, 16, f.run);
  f.tier.use(two, second, KeyView{});
  const RunId third = f.tier.open_run();
  f.store(3, 16, third);
  BOOST_TEST(!f.has(1));
  BOOST_TEST(f.has(2));
}

BOOST_AUTO_TEST_CASE(pinned_and_reserved_entries_stay) {
  Fixture f(2);
  const SlotId one = f.store(1, 16, f.run);
  Refusal why = Refusal::none;
  const SlotId two = f.tier.reserve(0, key(2).data(), KeyView{}, Tokens{32}, f.run, no_slot, why);
  const RunId other = f.tier.open_run();
  f.tier.pin(one, PinKind::job);
  BOOST_TEST(f.tier.reserve(0, key(3).data(), KeyView{}, Tokens{16}, other, no_slot, why) ==
             no_slot);
  BOOST_CHECK(why == Refusal::pool_full);
  f.tier.pin(one, PinKind::lease);
  f.tier.unpin(one, PinKind::job);
  BOOST_TEST(f.tier.reserve(0, key(3).data(), KeyView{}, Tokens{16}, other, no_slot, why) ==
             no_slot);
  BOOST_CHECK(why == Refusal::leased);
  f.tier.unpin(one, PinKind::lease);
  BOOST_TEST(f.store(3, 16, other) == one);
  f.tier.publish(two, 0);
}

BOOST_AUTO_TEST_CASE(a_condemned_entry_is_absent_until_it_is_written_again_in_its_slot) {
  Fixture f(2);
  const SlotId one = f.store(1, 16, f.run);
  f.tier.pin(one, PinKind::job);
  f.tier.condemn(one);
  BOOST_TEST(!f.has(1));
  BOOST_TEST(f.tier.slots_used() == 1u);
  BOOST_TEST(f.tier.counters().bad_entries == 1u);
  Refusal why = Refusal::none;
  // Not while a load still reads it.
  BOOST_TEST(f.tier.reserve(0, key(1).data(), KeyView{}, Tokens{16}, f.run, one, why) == no_slot);
  BOOST_CHECK(why == Refusal::pool_full);
  f.tier.unpin(one, PinKind::job);
  BOOST_TEST(f.tier.reserve(0, key(1).data(), KeyView{}, Tokens{16}, f.run, one, why) == one);
  SlotId found = no_slot;
  BOOST_CHECK(f.tier.find(0, key(1).data(), found) == Presence::reserved);
  f.tier.abandon(one);  // the copy failed: still bad
  BOOST_TEST(!f.has(1));
  BOOST_TEST(f.store(1, 16, f.run) == one);
  BOOST_TEST(f.has(1));
  BOOST_TEST(f.tier.slots_used() == 1u);
}

BOOST_AUTO_TEST_CASE(a_bad_entry_goes_before_all_others) {
  Fixture f(2);
  f.store(1, 16, f.run);
  const RunId second = f.tier.open_run();
  const SlotId two = f.store(2, 16, second);
  f.tier.condemn(two);
  const RunId third = f.tier.open_run();
  BOOST_TEST(f.store(3, 16, third) == two);
  BOOST_TEST(f.has(1));
}

BOOST_AUTO_TEST_CASE(a_reset_hides_everything_and_slots_return_as_they_drain) {
  Fixture f(4);
  f.store(1, 16, f.run);
  const SlotId two = f.store(2, 32, f.run);
  Refusal why = Refusal::none;
  const SlotId three = f.tier.reserve(0, key(3).data(), KeyView{}, Tokens{48}, f.run, no_slot, why);
  f.tier.pin(two, PinKind::job);
  f.tier.reset();
  BOOST_TEST(f.tier.verify() == "");
  BOOST_TEST(!f.has(1));
  BOOST_TEST(!f.has(2));
  BOOST_TEST(f.tier.slots_used() == 2u);
  BOOST_TEST(f.tier.doomed(two));
  BOOST_TEST(f.tier.doomed(three));
  f.tier.abandon(three);
  f.tier.unpin(two, PinKind::job);
  BOOST_TEST(f.tier.slots_used() == 0u);
  BOOST_TEST(f.store(3, 48, f.run) != no_slot);
}

BOOST_AUTO_TEST_CASE(classes_share_pages_and_the_oldest_page_moves) {
  // Group 0: one slot per page; group 1: four.
  Fixture f(2, {1, 4}, true);
  for (std::uint64_t n = 0; n < 4; ++n) f.store(n, 16 * (n + 1), f.run, 1);
  const RunId second = f.tier.open_run();
  f.store(10, 16, second, 0);
  BOOST_TEST(f.tier.slots_used() == 5u);
  const RunId third = f.tier.open_run();
  // Group 0 needs a page: that of the oldest entry goes as a whole.
  BOOST_TEST(f.store(11, 16, third, 0) != no_slot);
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_TEST(!f.has(n, 1));
  BOOST_TEST(f.has(10, 0));
  // Group 1 takes the page of group 0's oldest.
  const RunId fourth = f.tier.open_run();
  BOOST_TEST(f.store(20, 16, fourth, 1) != no_slot);
  BOOST_TEST(!f.has(10, 0));
  BOOST_TEST(f.has(11, 0));
}

BOOST_AUTO_TEST_CASE(slots_are_numbered_inside_their_class) {
  SlotPool pool(3, {1, 4});
  const SlotId a = pool.take(0);
  const SlotId b = pool.take(1);
  const SlotId c = pool.take(1);
  BOOST_TEST(pool.slot_number(a) == 0u);
  BOOST_TEST(pool.slot_number(b) == 4u);
  BOOST_TEST(pool.slot_number(c) == 5u);
  pool.give_back(b);
  pool.give_back(c);
  // The page is free again and may serve the other class.
  BOOST_TEST(pool.slot_number(pool.take(0)) == 1u);
  BOOST_TEST(pool.verify() == "");
}

void use_pages_at_random(SlotPool& pool, std::uint64_t classes) {
  Prng random(7);
  std::vector<SlotId> taken;
  for (int i = 0; i < 5000; ++i) {
    if (random.chance(1, 2)) {
      const auto cls = static_cast<std::uint32_t>(random.below(classes));
      const SlotId e = pool.take(cls);
      if (e != no_slot) {
        BOOST_REQUIRE_EQUAL(pool.class_of(e), cls);
        taken.push_back(e);
      }
    } else if (!taken.empty()) {
      const std::uint64_t at = random.below(taken.size());
      pool.give_back(taken[at]);
      taken[at] = taken.back();
      taken.pop_back();
    }
    BOOST_REQUIRE_EQUAL(pool.verify(), "");
    BOOST_REQUIRE_EQUAL(pool.used_slots(), taken.size());
  }
}

BOOST_AUTO_TEST_CASE(random_use_of_pages_keeps_the_books) {
  SlotPool pages(8, {1, 3, 5});
  use_pages_at_random(pages, 3);
  SlotPool singles(200, {1, 1});
  use_pages_at_random(singles, 2);
  SlotPool growing(UINT64_MAX, {1});
  use_pages_at_random(growing, 1);
  SlotPool growing_pages(UINT64_MAX, {1, 3});
  BOOST_TEST(growing_pages.entries_max() == UINT64_MAX);
  BOOST_TEST(pages.entries_max() == 40U);
  use_pages_at_random(growing_pages, 2);
}

BOOST_AUTO_TEST_CASE(free_numbers_come_back_lowest_first) {
  FreeBits bits;
  bits.ensure(300'000);
  for (const std::uint64_t n : {std::uint64_t{299'999}, std::uint64_t{4096}, std::uint64_t{0},
                                std::uint64_t{63}, std::uint64_t{64}})
    bits.insert(n);
  for (const std::uint64_t n : {std::uint64_t{0}, std::uint64_t{63}, std::uint64_t{64},
                                std::uint64_t{4096}, std::uint64_t{299'999}})
    BOOST_TEST(bits.take() == n);
  BOOST_TEST(bits.empty());
}

BOOST_AUTO_TEST_CASE(an_unlimited_tier_grows) {
  Fixture f(UINT64_MAX);
  for (std::uint64_t n = 0; n < 3000; ++n) {
    Refusal why = Refusal::none;
    const SlotId e =
        f.tier.reserve(0, key(n).data(), KeyView{}, Tokens{16 * (n + 1)}, f.run, no_slot, why);
    BOOST_REQUIRE(e != no_slot);
    f.tier.publish(e, 0);
  }
  BOOST_TEST(f.has(0));
  BOOST_TEST(f.has(2999));
  BOOST_TEST(f.tier.counters().evictions == 0u);
}

BOOST_AUTO_TEST_SUITE_END()
