#include "plugin/offload/offer_counter.h"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

using namespace kvc;

namespace {

using Key = std::array<std::byte, 8>;

Key key_of(std::uint64_t n) {
  Key key;
  std::memcpy(key.data(), &n, sizeof n);
  return key;
}

// Offers numbers as keys of group 0.
class Counted {
 public:
  Counted(std::uint32_t threshold, std::uint32_t capacity) : counter_(threshold, capacity, 8) {}

  // The numbers that are admitted.
  std::vector<std::uint64_t> offer(const std::vector<std::uint64_t>& numbers) {
    std::vector<Key> keys;
    for (const std::uint64_t n : numbers) keys.push_back(key_of(n));
    std::vector<OfferedKey> offered;
    for (const Key& key : keys) offered.push_back({0, key.data()});
    counter_.offer(offered);
    std::vector<std::uint64_t> admitted;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      (counter_.admits(0, keys[i].data()) ? admitted.push_back(numbers[i]) : void(++skipped));
    }
    return admitted;
  }
  std::uint32_t count(std::uint64_t n) { return counter_.count(0, key_of(n).data()); }

  std::uint64_t skipped = 0;

 private:
  OfferCounter counter_;
};

using Numbers = std::vector<std::uint64_t>;

}  // namespace

BOOST_AUTO_TEST_SUITE(offer_counter)

// O-241, as measured.
BOOST_AUTO_TEST_CASE(the_vector_of_threshold_two_and_three_entries) {
  Counted c(2, 3);
  BOOST_TEST(c.offer({1, 2}) == Numbers{}, boost::test_tools::per_element());
  BOOST_TEST(c.offer({1}) == Numbers{1}, boost::test_tools::per_element());
  BOOST_TEST(c.offer({3, 4, 5, 6}) == Numbers{}, boost::test_tools::per_element());
  BOOST_TEST(c.count(1) == 0u);
  BOOST_TEST(c.count(3) == 1u);
  BOOST_TEST(c.count(4) == 1u);
  BOOST_TEST(c.count(5) == 1u);
  BOOST_TEST(c.count(6) == 0u);
  BOOST_TEST(c.offer({2}) == Numbers{}, boost::test_tools::per_element());
  BOOST_TEST(c.count(3) == 0u);
  BOOST_TEST(c.count(4) == 1u);
  BOOST_TEST(c.count(5) == 1u);
  BOOST_TEST(c.count(2) == 1u);
  BOOST_TEST(c.skipped == 7u);
}

// K5-44: an offer wider than the table still gets somewhere.
BOOST_AUTO_TEST_CASE(an_offer_wider_than_the_table_admits_what_fits_the_second_time) {
  Counted c(2, 3);
  BOOST_TEST(c.offer({1, 2, 3, 4}) == Numbers{}, boost::test_tools::per_element());
  BOOST_TEST(c.offer({1, 2, 3, 4}) == (Numbers{1, 2, 3}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(zero_and_one_admit_everything_and_keep_nothing) {
  for (const std::uint32_t threshold : {0u, 1u}) {
    Counted c(threshold, 3);
    BOOST_TEST(c.offer({1, 2}) == (Numbers{1, 2}), boost::test_tools::per_element());
    BOOST_TEST(c.count(1) == 0u);
  }
}

BOOST_AUTO_TEST_CASE(a_key_twice_in_one_offer_counts_once) {
  Counted c(2, 3);
  BOOST_TEST(c.offer({7, 7}) == Numbers{}, boost::test_tools::per_element());
  BOOST_TEST(c.count(7) == 1u);
}

BOOST_AUTO_TEST_CASE(groups_are_counted_apart) {
  OfferCounter c(2, 4, 8);
  const Key key = key_of(1);
  const OfferedKey first{0, key.data()};
  const OfferedKey second{1, key.data()};
  c.offer({&first, 1});
  c.offer({&second, 1});
  BOOST_TEST(c.count(0, key.data()) == 1u);
  BOOST_TEST(c.count(1, key.data()) == 1u);
  BOOST_TEST(!c.admits(0, key.data()));
}

// Against a list that is searched from end to end.
BOOST_AUTO_TEST_CASE(random_offers_count_as_a_plain_list_does) {
  struct Item {
    std::uint64_t key;
    std::uint32_t count;
    std::uint64_t offer;
  };
  const std::uint64_t seed = test::seed_or(20261130);
  BOOST_TEST_CONTEXT(test::repeat_command(seed)) {
    Prng random(seed);
    for (int world = 0; world < 40; ++world) {
      const auto capacity = static_cast<std::uint32_t>(random.between(1, 12));
      Counted c(3, capacity);
      std::deque<Item> list;  // oldest first
      for (std::uint64_t offer = 1; offer < 200; ++offer) {
        Numbers keys;
        for (std::uint64_t i = random.between(1, 6); i > 0; --i) keys.push_back(random.below(20));
        c.offer(keys);
        const auto find = [&](std::uint64_t k) {
          return std::find_if(list.begin(), list.end(), [&](const Item& i) { return i.key == k; });
        };
        for (const std::uint64_t k : keys) {
          const auto it = find(k);
          if (it == list.end() || it->offer == offer) continue;
          const Item moved{k, it->count + 1, offer};
          list.erase(it);
          list.push_back(moved);
        }
        for (const std::uint64_t k : keys) {
          if (find(k) != list.end()) continue;
          if (list.size() == capacity) {
            if (list.front().offer == offer) continue;
            list.pop_front();
          }
          list.push_back({k, 1, offer});
        }
        for (std::uint64_t k = 0; k < 20; ++k) {
          const auto it = find(k);
          BOOST_REQUIRE(c.count(k) == (it == list.end() ? 0 : it->count));
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
