// Worked examples for TierMirror, small enough to see the answer.
#include <boost/test/unit_test.hpp>

#include "conformance/acceptance/reach.h"

namespace kvc::acceptance {
namespace {

// Attention and one state, blocks of 64 tokens, keys of 16.
config::ModelConfig layout() {
  config::ModelConfig model;
  for (const auto kind : {config::GroupKind::full, config::GroupKind::state}) {
    config::GroupConfig g;
    g.kind = kind;
    g.tokens_per_block = 64;
    g.fine_lookup = true;
    g.position_stable = kind == config::GroupKind::full;
    model.groups.push_back(g);
  }
  model.hash_unit_tokens = 16;
  model.scheduler_block_tokens = 64;
  return model;
}

// Key i of a path that leaves path 0 behind `fork` keys.
Key key(std::uint8_t path, std::uint8_t i, std::uint8_t fork = 0) {
  Key k{};
  k[0] = i < fork ? 0 : path;
  k[1] = i;
  return k;
}

struct Tier {
  TierMirror mirror{layout()};

  void begin(std::uint8_t path, std::uint8_t keys, std::uint8_t fork = 0) {
    for (std::uint8_t i = 0; i < keys; ++i) mirror.keys(path, key(path, i, fork).data(), 1);
  }
  // The entry of `group` that ends at `end` tokens on the path.
  void store(std::uint8_t path, std::uint32_t group, int end, std::uint8_t fork = 0) {
    mirror.stored(group, key(path, static_cast<std::uint8_t>(end / 16 - 1), fork).data(), path);
  }
  void remove(std::uint8_t path, std::uint32_t group, int end) {
    mirror.removed(group, key(path, static_cast<std::uint8_t>(end / 16 - 1)).data());
  }
};

using Counts = std::vector<std::uint64_t>;

}  // namespace

BOOST_AUTO_TEST_SUITE(reach)

BOOST_AUTO_TEST_CASE(attention_behind_the_last_state_is_out_of_reach) {
  Tier t;
  t.begin(1, 20);
  for (const int end : {64, 128, 192}) t.store(1, 0, end);
  BOOST_TEST(t.mirror.reach().unreachable == (Counts{3, 0}));
  t.store(1, 1, 128);
  const Reach found = t.mirror.reach();
  BOOST_TEST(found.held == (Counts{3, 1}));
  BOOST_TEST(found.unreachable == (Counts{1, 0}));
  BOOST_TEST(found.held_sum() == 4U);
  BOOST_TEST(found.unreachable_sum() == 1U);
}

BOOST_AUTO_TEST_CASE(a_hole_cuts_off_everything_behind_it) {
  Tier t;
  t.begin(1, 20);
  for (const int end : {64, 128, 192}) t.store(1, 0, end);
  t.store(1, 1, 64);
  t.store(1, 1, 192);
  BOOST_TEST(t.mirror.reach().unreachable_sum() == 0U);
  t.remove(1, 0, 128);
  BOOST_TEST(t.mirror.reach().unreachable == (Counts{1, 1}));
}

BOOST_AUTO_TEST_CASE(a_boundary_inside_a_block_uses_whatever_is_held_at_or_behind_it) {
  Tier t;
  t.begin(1, 20);
  t.store(1, 0, 64);
  t.store(1, 0, 80);   // a tail in front of the boundary
  t.store(1, 0, 96);   // and one at it
  t.store(1, 0, 128);  // the whole block
  t.store(1, 1, 96);
  BOOST_TEST(t.mirror.reach().unreachable == (Counts{1, 0}));
}

BOOST_AUTO_TEST_CASE(another_path_reaches_what_it_shares) {
  Tier t;
  t.begin(1, 20, 4);
  t.begin(2, 20, 4);
  t.store(1, 0, 64, 4);
  t.store(1, 0, 128, 4);
  BOOST_TEST(t.mirror.reach().unreachable == (Counts{2, 0}));
  t.store(2, 0, 128, 4);
  t.store(2, 1, 128, 4);
  BOOST_TEST(t.mirror.reach().unreachable == (Counts{1, 0}));
}

BOOST_AUTO_TEST_CASE(events_that_cannot_be_are_refused) {
  Tier t;
  t.begin(1, 20);
  t.store(1, 0, 64);
  BOOST_CHECK_THROW(t.store(1, 0, 64), std::logic_error);
  BOOST_CHECK_THROW(t.store(3, 0, 64), std::logic_error);
  BOOST_CHECK_THROW(t.remove(1, 1, 64), std::logic_error);
}

BOOST_AUTO_TEST_CASE(ended_requests_are_remembered_as_long_as_an_entry_is_theirs) {
  Tier t;
  t.begin(1, 20);
  t.begin(2, 20);
  t.store(1, 0, 64);
  t.store(1, 1, 64);
  t.mirror.ended(1);
  t.mirror.ended(2);
  BOOST_TEST(t.mirror.reach().unreachable_sum() == 0U);
  BOOST_CHECK_THROW(t.store(2, 0, 64), std::logic_error);
  BOOST_TEST(t.mirror.reach().unreachable_sum() == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::acceptance
