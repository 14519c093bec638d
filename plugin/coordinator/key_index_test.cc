#include "plugin/coordinator/key_index.h"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <map>

#include "plugin/coordinator/key_hash.h"
#include "plugin/coordinator/test_support.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

FlatIndex make_index(std::uint64_t slots, std::uint64_t aliases = 0, bool duplicates = false,
                     std::uint32_t key_bytes = 16) {
  return std::move(FlatIndex::make({key_bytes, slots, aliases, duplicates})).value();
}

BOOST_AUTO_TEST_SUITE(key_index)

BOOST_AUTO_TEST_CASE(a_key_is_found_in_its_group_only) {
  FlatIndex index = make_index(4);
  const Keys keys(4);
  BOOST_TEST((index.insert(0, keys.at(0), 3, {16}) == Code::ok));
  BOOST_TEST(index.find(0, keys.at(0)) == 3u);
  BOOST_TEST(index.find(1, keys.at(0)) == no_slot);
  BOOST_TEST(index.find(0, keys.at(1)) == no_slot);
  BOOST_TEST(index.primary(3).end.n == 16u);
  BOOST_TEST(index.primary(3).group == 0u);
}

BOOST_AUTO_TEST_CASE(a_slot_keeps_its_first_key_as_primary) {
  FlatIndex index = make_index(4, 4);
  const Keys keys(4);
  BOOST_TEST((index.insert(0, keys.at(3), 1, {64}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(1), 1, {32}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(1), 1, {32}) == Code::more));
  BOOST_TEST(index.keys_of(1) == 2u);
  BOOST_TEST(index.primary(1).end.n == 64u);
  BOOST_TEST(index.find(0, keys.at(1)) == 1u);
  BOOST_TEST(index.erase(0, keys.at(3), 1));
  BOOST_TEST(!index.erase(0, keys.at(3), 1));
  BOOST_TEST(index.primary(1).end.n == 32u);
  BOOST_TEST(index.counters().aliases == 0u);
  BOOST_TEST(index.erase_slot(1) == 1u);
  BOOST_TEST(index.find(0, keys.at(1)) == no_slot);
  BOOST_TEST(index.verify().ok());
}

BOOST_AUTO_TEST_CASE(keys_differ_in_any_byte_at_any_length) {
  for (std::uint32_t n = 8; n <= 32; ++n) {
    std::array<std::byte, 32> a{};
    for (std::uint32_t i = 0; i < n; ++i) a[i] = static_cast<std::byte>(37 * i + n);
    std::array<std::byte, 32> b = a;
    BOOST_TEST(key_hash::equal(a.data(), b.data(), n));
    for (std::uint32_t i = 0; i < 32; ++i) {
      b[i] ^= std::byte{0x10};
      BOOST_TEST(key_hash::equal(a.data(), b.data(), n) == (i >= n), "byte " << i << " of " << n);
      b[i] = a[i];
    }
  }
}

// A search ends at an empty place: a table that grows late enough to be full has none.
BOOST_AUTO_TEST_CASE(an_absent_key_is_looked_for_in_vain_at_every_size) {
  FlatIndex index = make_index(0);
  const Keys keys(5000);
  for (SlotId i = 0; i < 4999; ++i) {
    BOOST_REQUIRE((index.insert(0, keys.at(i), i, {16 * (i + 1)}) == Code::ok));
    BOOST_REQUIRE(index.find(0, keys.at(4999)) == no_slot);
  }
}

BOOST_AUTO_TEST_CASE(a_flat_index_knows_of_no_broken_list_of_keys) {
  const FlatIndex index = make_index(4);
  const Keys keys(2);
  BOOST_TEST(index.keys_follow(0, {keys.at(0), 16, 2}));
}

BOOST_AUTO_TEST_CASE(the_first_holder_of_a_duplicate_key_wins) {
  FlatIndex index = make_index(4, 0, true);
  const Keys keys(1);
  for (const SlotId slot : {2u, 0u, 3u})
    BOOST_TEST((index.insert(0, keys.at(0), slot, {16}) == Code::ok));
  BOOST_TEST(index.find(0, keys.at(0)) == 2u);
  BOOST_TEST(index.holders(0, keys.at(0)) == 3u);
  index.erase_slot(2);
  BOOST_TEST(index.find(0, keys.at(0)) == 0u);
  index.erase_slot(3);
  BOOST_TEST(index.find(0, keys.at(0)) == 0u);
  BOOST_TEST((index.insert(0, keys.at(0), 1, {16}) == Code::ok));
  index.erase_slot(0);
  BOOST_TEST(index.find(0, keys.at(0)) == 1u);
  BOOST_TEST(index.verify().ok());
}

BOOST_AUTO_TEST_CASE(a_tier_holds_a_key_once) {
  FlatIndex index = make_index(4);
  const Keys keys(1);
  BOOST_TEST((index.insert(0, keys.at(0), 1, {16}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(0), 2, {16}) == Code::state));
  BOOST_TEST(!index.has_keys(2));
  BOOST_TEST(index.find(0, keys.at(0)) == 1u);
}

BOOST_AUTO_TEST_CASE(aliases_have_a_budget_and_first_keys_always_fit) {
  FlatIndex index = make_index(3, 1);
  const Keys keys(6);
  BOOST_TEST((index.insert(0, keys.at(0), 0, {16}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(1), 0, {32}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(2), 0, {48}) == Code::full));
  BOOST_TEST(index.counters().aliases_refused == 1u);
  BOOST_TEST((index.insert(0, keys.at(3), 1, {64}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(4), 2, {80}) == Code::ok));
  BOOST_TEST((index.insert(0, keys.at(5), 2, {96}) == Code::full));
  index.erase_slot(0);
  BOOST_TEST((index.insert(0, keys.at(5), 2, {96}) == Code::ok));
  BOOST_TEST(index.verify().ok());
}

BOOST_AUTO_TEST_CASE(keys_move_with_order_and_ends) {
  FlatIndex index = make_index(4, 4);
  const Keys keys(3);
  BOOST_TEST((index.insert(1, keys.at(2), 0, {48}) == Code::ok));
  BOOST_TEST((index.insert(1, keys.at(0), 0, {16}) == Code::ok));
  index.move_keys(0, 3);
  BOOST_TEST(!index.has_keys(0));
  BOOST_TEST(index.primary(3).end.n == 48u);
  BOOST_TEST(index.find(1, keys.at(0)) == 3u);
  BOOST_TEST(index.verify().ok());
}

BOOST_AUTO_TEST_CASE(bad_sizes_are_refused) {
  BOOST_TEST(!FlatIndex::make({7, 4, 0, false}).ok());
  BOOST_TEST(!FlatIndex::make({33, 4, 0, false}).ok());
  BOOST_TEST(!FlatIndex::make({16, std::uint64_t{1} << 31, 0, false}).ok());
  BOOST_TEST(!FlatIndex::make({16, std::uint64_t{1} << 30, std::uint64_t{1} << 30, false}).ok());
}

BOOST_AUTO_TEST_CASE(every_key_length_counts_every_byte) {
  for (std::uint32_t n = key_bytes_min; n <= key_bytes_max; ++n) {
    FlatIndex index = make_index(64, 0, false, n);
    std::vector<std::byte> key(n);
    BOOST_TEST((index.insert(0, key.data(), 0, {16}) == Code::ok));
    for (std::uint32_t i = 0; i < n; ++i) {
      key[i] = std::byte{1};
      BOOST_TEST(index.find(0, key.data()) == no_slot);
      BOOST_TEST((index.insert(0, key.data(), i + 1, {16}) == Code::ok));
      key[i] = std::byte{0};
    }
    BOOST_TEST(index.find(0, key.data()) == 0u);
    BOOST_TEST(index.verify().ok());
  }
}

BOOST_AUTO_TEST_CASE(a_full_bounded_index_finds_everything_in_batches_of_both_directions) {
  constexpr std::uint64_t n = 20000;
  FlatIndex index = make_index(n, 0, false, 32);
  const Keys keys(n + 100, 32);
  for (SlotId i = 0; i < n; ++i)
    BOOST_REQUIRE((index.insert(2, keys.at(i), i, {i + 1}) == Code::ok));
  std::vector<SlotId> out(n + 100);
  index.find_batch(2, {keys.at(0), 32, n + 100}, out);
  for (SlotId i = 0; i < n + 100; ++i) BOOST_REQUIRE(out[i] == (i < n ? i : no_slot));
  index.find_batch(2, {keys.at(n + 99), -32, n + 100}, out);
  for (SlotId i = 0; i < n + 100; ++i) BOOST_REQUIRE(out[n + 99 - i] == (i < n ? i : no_slot));
  // Metadata per block, 16-byte keys: well below what a 6M block pool can spend (130 bytes with its
  // record).
  BOOST_TEST(index.counters().bytes / n <=
             28u + 32u + 12u + 300u);  // slabs of 65,536 entries round up
  BOOST_TEST(index.verify().ok());
}

BOOST_AUTO_TEST_CASE(an_unlimited_index_grows) {
  FlatIndex index = make_index(0);
  constexpr SlotId n = 200000;
  const Keys keys(n);
  const std::uint64_t before = index.counters().bytes;
  for (SlotId i = 0; i < n; ++i) BOOST_REQUIRE((index.insert(0, keys.at(i), i, {i}) == Code::ok));
  for (SlotId i = 0; i < n; ++i) BOOST_REQUIRE(index.find(0, keys.at(i)) == i);
  BOOST_TEST(index.counters().bytes > before);
  BOOST_TEST(index.counters().entries == n);
  index.clear();
  BOOST_TEST(index.counters().entries == 0u);
  BOOST_TEST(index.find(0, keys.at(5)) == no_slot);
  BOOST_TEST((index.insert(0, keys.at(5), 1, {16}) == Code::ok));
  BOOST_TEST(index.verify().ok());
}

BOOST_AUTO_TEST_CASE(keys_of_different_tenants_images_and_adapters_never_meet) {
  // K9-79, 81, 82: the identity is in the key; 70,000 image ids (> 2^16) with equal positions.
  FlatIndex index = make_index(0);
  for (std::uint64_t image = 0; image < 70000; ++image) {
    const Keys keys(1, 16, image);
    BOOST_REQUIRE(index.find(0, keys.at(0)) == no_slot);
    BOOST_REQUIRE((index.insert(0, keys.at(0), static_cast<SlotId>(image), {16}) == Code::ok));
  }
  for (std::uint64_t image = 0; image < 70000; image += 997)
    BOOST_TEST(index.find(0, Keys(1, 16, image).at(0)) == image);
}

// The slow twin: a list of (group, key, slot, end) in insertion order.
struct Twin {
  struct One {
    GroupId group;
    std::uint64_t key;
    SlotId slot;
    std::uint64_t end;
  };
  std::vector<One> all;

  [[nodiscard]] SlotId find(GroupId g, std::uint64_t key) const {
    for (const One& o : all)
      if (o.group == g && o.key == key) return o.slot;
    return no_slot;
  }
  [[nodiscard]] std::vector<One> of(SlotId slot) const {
    std::vector<One> out;
    for (const One& o : all)
      if (o.slot == slot) out.push_back(o);
    return out;
  }
};

struct World {
  FlatIndex index;
  Twin twin;
  Keys keys;
  Prng rng;
  std::uint64_t slots;
  bool duplicates;
  std::uint64_t aliases;
  bool bounded;

  void step() {
    const auto g = static_cast<GroupId>(rng.below(3));
    const std::uint64_t k = rng.below(40);
    const auto slot = static_cast<SlotId>(rng.below(slots));
    switch (rng.below(8)) {
      case 0: {
        BOOST_REQUIRE(index.erase_slot(slot) == twin.of(slot).size());
        std::erase_if(twin.all, [&](const Twin::One& o) { return o.slot == slot; });
        break;
      }
      case 1: {
        const bool had = std::erase_if(twin.all, [&](const Twin::One& o) {
                           return o.slot == slot && o.group == g && o.key == k;
                         }) > 0;
        BOOST_REQUIRE(index.erase(g, keys.at(k), slot) == had);
        break;
      }
      case 2: {
        const auto to = static_cast<SlotId>(rng.below(slots));
        if (to == slot || !twin.of(to).empty()) break;
        index.move_keys(slot, to);
        for (Twin::One& o : twin.all)
          if (o.slot == slot) o.slot = to;
        break;
      }
      default:
        insert(g, k, slot);
    }
  }
  void insert(GroupId g, std::uint64_t k, SlotId slot) {
    const std::vector<Twin::One> own = twin.of(slot);
    const bool mine = std::any_of(own.begin(), own.end(),
                                  [&](const Twin::One& o) { return o.group == g && o.key == k; });
    std::uint64_t spare = 0;
    for (SlotId s = 0; s < slots; ++s) spare += twin.of(s).empty() ? 0 : twin.of(s).size() - 1;
    Code want = Code::ok;
    if (mine)
      want = Code::more;
    else if (!duplicates && twin.find(g, k) != no_slot)
      want = Code::state;
    else if (bounded && !own.empty() && spare >= aliases)
      want = Code::full;
    const std::uint64_t end = 1 + rng.below(1000);
    BOOST_REQUIRE((index.insert(g, keys.at(k), slot, {end}) == want));
    if (want == Code::ok) twin.all.push_back({g, k, slot, end});
  }
  void compare() {
    BOOST_TEST_INFO_SCOPE(index.verify().text);
    BOOST_REQUIRE(index.verify().ok());
    BOOST_REQUIRE(index.counters().entries == twin.all.size());
    for (GroupId g = 0; g < 3; ++g)
      for (std::uint64_t k = 0; k < 40; ++k)
        BOOST_REQUIRE(index.find(g, keys.at(k)) == twin.find(g, k));
    for (SlotId s = 0; s < slots; ++s) {
      const std::vector<Twin::One> own = twin.of(s);
      BOOST_REQUIRE(index.keys_of(s) == own.size());
      std::size_t i = 0;
      index.for_each_key(s, [&](const SlotKey& key) {
        BOOST_REQUIRE(key.group == own[i].group);
        BOOST_REQUIRE(key.end.n == own[i].end);
        BOOST_REQUIRE(std::memcmp(key.key, keys.at(own[i].key), index.key_bytes()) == 0);
        ++i;
      });
    }
  }
};

BOOST_AUTO_TEST_CASE(the_index_agrees_with_a_list_after_every_random_step) {
  for (std::uint64_t round = 0; round < 24; ++round) {
    const std::uint64_t used = seed_or(20260917) + round;
    BOOST_TEST_CONTEXT(repeat_command(used)) {
      const bool bounded = round % 2 == 0;
      const bool duplicates = round % 3 != 0;
      const std::uint32_t bytes = round % 4 < 2 ? 16 : 32;
      World w{make_index(bounded ? 12 : 0, 6, duplicates, bytes),
              {},
              Keys(40, bytes),
              Prng(used),
              12,
              duplicates,
              6,
              bounded};
      for (int i = 0; i < 300; ++i) {
        w.step();
        w.compare();
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
