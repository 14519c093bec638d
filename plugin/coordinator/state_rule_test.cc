// Which boundaries the rules name, and what prompts share.
#include "plugin/coordinator/state_rule.h"

#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/prefix_tags.h"
#include "plugin/core/prng.h"

namespace kvc {
namespace {

Geometry layout(std::vector<GroupSpec> groups, Tokens unit, Tokens block) {
  GeometryOptions o;
  o.groups = std::move(groups);
  o.hash_unit = unit;
  o.scheduler_block = block;
  Result<Geometry> made = Geometry::make(std::move(o));
  BOOST_REQUIRE(made.ok());
  return std::move(made).value();
}

Geometry hybrid() {
  return layout({group_spec(GroupKind::full, Tokens{64}), group_spec(GroupKind::state, Tokens{64})},
                Tokens{16}, Tokens{64});
}

std::vector<std::uint64_t> list(const Geometry& g, StateRule rule, bool log_spaced,
                                const PromptFacts& facts) {
  std::vector<Tokens> out{Tokens{7}};
  StatePlan(g, rule, log_spaced).list(facts, out);
  std::vector<std::uint64_t> numbers;
  for (const Tokens t : out) numbers.push_back(t.n);
  return numbers;
}

using Ends = std::vector<std::uint64_t>;

// Paths of 8-byte keys.
struct Paths {
  std::vector<std::uint64_t> words;
  KeyView of(std::vector<std::uint64_t> path) {
    words = std::move(path);
    return {reinterpret_cast<const std::byte*>(words.data()), 8, words.size()};
  }
};

BOOST_AUTO_TEST_SUITE(state_rule)

BOOST_AUTO_TEST_CASE(every_rule_keeps_the_tail_and_no_boundary_before_the_begin) {
  const Geometry g = hybrid();
  const PromptFacts all{Tokens{300}, Tokens{0}, Tokens{208}, false};
  BOOST_TEST(list(g, StateRule::dense, false, all) == (Ends{64, 128, 192, 256, 288}));
  BOOST_TEST(list(g, StateRule::tail, true, all) == (Ends{288}));
  BOOST_TEST(list(g, StateRule::automatic, false, all) == (Ends{208, 288}));
  BOOST_TEST(list(g, StateRule::automatic, true, all) == (Ends{64, 128, 208, 256, 288}));
  const PromptFacts later{Tokens{300}, Tokens{224}, Tokens{208}, false};
  BOOST_TEST(list(g, StateRule::dense, false, later) == (Ends{256, 288}));
  BOOST_TEST(list(g, StateRule::automatic, true, later) == (Ends{256, 288}));
  const PromptFacts there{Tokens{300}, Tokens{208}, Tokens{208}, false};
  BOOST_TEST(list(g, StateRule::tail, true, there) == (Ends{288}));
  BOOST_TEST(list(g, StateRule::automatic, true, there) == (Ends{208, 256, 288}));
  BOOST_TEST(list(g, StateRule::automatic, true, {Tokens{300}, Tokens{288}, Tokens{0}, false}) ==
             Ends{});
}

BOOST_AUTO_TEST_CASE(the_end_of_an_earlier_prompt_is_no_place_where_prompts_part) {
  const Geometry g = hybrid();
  BOOST_TEST(list(g, StateRule::automatic, false, {Tokens{300}, Tokens{0}, Tokens{208}, true}) ==
             (Ends{288}));
}

BOOST_AUTO_TEST_CASE(layouts_that_hit_coarsely_name_block_ends_alone) {
  const Geometry g =
      layout({group_spec(GroupKind::full, Tokens{64}), group_spec(GroupKind::state, Tokens{64}),
              group_spec(GroupKind::sliding, Tokens{64}, Tokens{64})},
             Tokens{16}, Tokens{64});
  for (const std::uint64_t end :
       list(g, StateRule::automatic, true, {Tokens{700}, Tokens{0}, Tokens{208}, false}))
    BOOST_TEST(end % 64 == 0U);
}

BOOST_AUTO_TEST_CASE(layouts_without_states_name_nothing) {
  const Geometry g = layout({group_spec(GroupKind::full, Tokens{64})}, Tokens{64}, Tokens{64});
  BOOST_TEST(!StatePlan(g, StateRule::automatic, true).any());
  BOOST_TEST(list(g, StateRule::dense, true, {Tokens{700}, Tokens{0}, Tokens{64}, false}) ==
             Ends{});
}

BOOST_AUTO_TEST_CASE(a_path_shares_what_an_earlier_one_began_with) {
  PrefixTags tags;
  BOOST_REQUIRE(tags.make(100));
  Paths p;
  BOOST_TEST(tags.note(p.of({1, 2, 3})).keys == 0U);
  PrefixTags::Shared s = tags.note(p.of({1, 2, 4, 5}));
  BOOST_TEST(s.keys == 2U);
  BOOST_TEST(!s.at_end);
  s = tags.note(p.of({1, 2, 3, 6}));
  BOOST_TEST(s.keys == 3U);
  BOOST_TEST(s.at_end);
  BOOST_TEST(tags.note(p.of({9, 2, 3})).keys == 0U);
  BOOST_TEST(tags.note(p.of({})).keys == 0U);
}

// Against a list of the newest keys, searched.
BOOST_AUTO_TEST_CASE(the_ring_forgets_the_oldest_keys_and_no_others) {
  constexpr std::uint64_t capacity = 40;
  PrefixTags tags;
  BOOST_REQUIRE(tags.make(capacity));
  std::vector<std::uint64_t> known;
  Prng prng(5);
  Paths p;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::uint64_t> path;
    const std::uint64_t root = prng.below(6);
    for (std::uint64_t i = 0, n = 1 + prng.below(12); i < n; ++i) path.push_back(root * 20 + i + 1);
    std::uint64_t shared = 0;
    bool leading = true;
    for (const std::uint64_t key : path) {
      const bool here = std::find(known.begin(), known.end(), key) != known.end();
      leading = leading && here;
      shared += leading ? 1 : 0;
      if (here) continue;
      known.push_back(key);
      if (known.size() > capacity) known.erase(known.begin());
    }
    BOOST_REQUIRE(tags.note(p.of(path)).keys == shared);
    BOOST_REQUIRE(tags.size() == known.size());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
