// Exhaustive small worlds: every layout out of a small menu, every set of held ends, against the
// oracle.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

#include "conformance/tests/mirror.h"
#include "plugin/tests/seed.h"

namespace {

using namespace kvc::oracle;
using kvc::oracle_tests::describe;
using kvc::oracle_tests::Mirror;
using kvc::oracle_tests::sample_divisor;
using kvc::test::repeat_command;
using kvc::test::seed_or;

constexpr std::uint64_t h = 2;      // tokens of a hash unit: not 1, so that units and tokens differ
constexpr std::uint64_t units = 6;  // hash units of the longest prefix held

Group group(Kind kind, std::uint64_t block_units, std::uint64_t window = 0, bool align = false) {
  Group g;
  g.kind = kind;
  g.rank_block = block_units * h;
  g.window = window;
  g.align = align;
  g.sharded = kind == Kind::full;
  return g;
}

std::vector<Group> menu() {
  return {group(Kind::full, 1),
          group(Kind::full, 2),
          group(Kind::full, 3),
          group(Kind::full, 4),
          group(Kind::state, 1, 0, true),
          group(Kind::state, 2, 0, true),
          group(Kind::state, 3, 0, true),
          group(Kind::state, 4, 0, true),
          group(Kind::state, 2, 0, false),
          group(Kind::sliding, 1, 1),
          group(Kind::sliding, 1, h + 1),
          group(Kind::sliding, 1, 3 * h),
          group(Kind::sliding, 2, 2 * h),
          group(Kind::sliding, 2, 2 * h + 2),
          group(Kind::chunked, 1, 3 * h),
          group(Kind::chunked, 2, 4 * h)};
}

// Chunked attention has no rule under context parallelism.
bool has_chunks(const World& w) {
  return std::any_of(w.groups.begin(), w.groups.end(),
                     [](const Group& g) { return g.kind == Kind::chunked; });
}

World layout(std::vector<Group> groups, std::uint64_t cp = 1) {
  World w;
  w.groups = std::move(groups);
  w.hash_unit = h;
  w.context_parallel = cp;
  for (std::size_t g = 0; g < w.groups.size(); ++g)
    w.scheduler_block = std::lcm(w.scheduler_block, w.span(g));
  return w;
}

// Ends that can matter for the group: all hash units for groups that are looked up finely, block
// ends for windows.
std::vector<std::uint64_t> ends_of(const World& w, std::size_t g) {
  const Kind kind = w.groups[g].kind;
  const std::uint64_t step = kind == Kind::full || kind == Kind::state ? h : w.span(g);
  std::vector<std::uint64_t> ends;
  for (std::uint64_t e = step; e <= units * h; e += step) ends.push_back(e);
  return ends;
}

std::set<std::uint64_t> subset(const std::vector<std::uint64_t>& ends, std::uint64_t bits) {
  std::set<std::uint64_t> held;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if ((bits >> i & 1U) != 0) held.insert(ends[i]);
  }
  return held;
}

struct Counter {
  std::uint64_t worlds = 0;
  std::uint64_t hits = 0;    // worlds with something to find
  std::uint64_t closed = 0;  // asked of an index with closed prefixes too
  std::uint64_t wrong = 0;
};

// Sanitized builds are ten times slower: they try one content in 17.
#if defined(KVC_SANITIZED)
constexpr std::uint64_t content_step = 17;
#else
constexpr std::uint64_t content_step = 1;
#endif

// One content of a layout: every start that the device may have, for requests that end with a key,
// with a key's worth held behind their end, and one token behind the last key.
void check_world(Mirror& mirror, World& w, Counter& counter) {
  const bool drafts =
      std::any_of(w.groups.begin(), w.groups.end(), [](const Group& g) { return g.draft; });
  const std::uint64_t closed_before = mirror.closed_compared();
  for (const std::uint64_t n : {units * h - h, units * h, units * h + 1}) {
    if (drafts && n == units * h) continue;  // the rules know no held bytes behind the end
    w.tokens = n;
    for (w.start = 0; w.start < n - 1; w.start += w.scheduler_block) {
      ++counter.worlds;
      if (best_hit(w, n - 1) > w.start) ++counter.hits;
      if (const auto why = mirror.compare(w, n - 1)) {
        if (++counter.wrong <= 5) BOOST_ERROR(*why << "\n  " << describe(w, n - 1));
      }
    }
  }
  w.start = 0;
  counter.closed += mirror.closed_compared() - closed_before;
}

// Every set of held ends of a layout of one or two groups.
void check_all_contents(World w, Counter& counter) {
  std::string why;
  auto mirror = Mirror::make(w, why);
  BOOST_REQUIRE_MESSAGE(mirror.has_value(), why << "\n  " << describe(w, 0));
  const auto first = ends_of(w, 0);
  const auto second = w.groups.size() > 1 ? ends_of(w, 1) : std::vector<std::uint64_t>{};
  const std::uint64_t contents = std::uint64_t{1} << (first.size() + second.size());
  for (std::uint64_t bits = 0; bits < contents; bits += content_step) {
    w.groups[0].held = subset(first, bits);
    if (w.groups.size() > 1) w.groups[1].held = subset(second, bits >> first.size());
    check_world(*mirror, w, counter);
  }
}

void report(const Counter& counter, std::uint64_t worlds_least) {
  BOOST_TEST_MESSAGE(counter.worlds << " worlds, " << counter.hits << " with a hit, "
                                    << counter.closed << " asked of a closed index too");
  BOOST_TEST(counter.wrong == 0U);
  BOOST_TEST(counter.worlds >= worlds_least / content_step);
  BOOST_TEST(counter.hits > counter.worlds / 20);
  BOOST_TEST(counter.closed > counter.worlds / 100);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(small_worlds)

BOOST_AUTO_TEST_CASE(every_content_of_every_single_group_is_looked_up_right) {
  Counter counter;
  for (const auto& g : menu()) {
    World w = layout({g});
    w.hash_unit = w.scheduler_block;  // the block of the only group
    std::string why;
    auto mirror = Mirror::make(w, why);
    BOOST_REQUIRE_MESSAGE(mirror.has_value(), why);
    std::vector<std::uint64_t> ends;
    for (std::uint64_t i = 1; i <= units; ++i) ends.push_back(i * w.hash_unit);
    for (std::uint64_t bits = 0; bits < std::uint64_t{1} << units; ++bits) {
      w.groups[0].held = subset(ends, bits);
      for (w.tokens = 1; w.tokens <= units * w.hash_unit + 1; ++w.tokens) {
        for (w.start = 0; w.start < w.tokens; w.start += w.scheduler_block) {
          ++counter.worlds;
          if (best_hit(w, w.tokens) > w.start) ++counter.hits;
          const auto differs = mirror->compare(w, w.tokens - 1);
          if (differs && ++counter.wrong <= 5)
            BOOST_ERROR(*differs << "\n  " << describe(w, w.tokens - 1));
        }
      }
    }
    counter.closed += mirror->closed_compared();
  }
  report(counter, 30'000);
}

BOOST_AUTO_TEST_CASE(every_content_of_every_pair_of_groups_is_looked_up_right) {
  Counter counter;
  for (const auto& a : menu()) {
    for (const auto& b : menu()) check_all_contents(layout({a, b}), counter);
  }
  report(counter, 300'000);
}

BOOST_AUTO_TEST_CASE(every_content_of_pairs_under_context_parallelism_is_looked_up_right) {
  Counter counter;
  for (const auto& a : {group(Kind::full, 1), group(Kind::full, 2), group(Kind::full, 3)}) {
    for (const auto& b : menu()) {
      World w = layout({a, b}, 2);
      if (!has_chunks(w)) check_all_contents(w, counter);
    }
  }
  report(counter, 50'000);
}

BOOST_AUTO_TEST_CASE(every_content_of_pairs_whose_owner_forbids_fine_hits_is_looked_up_right) {
  Counter counter;
  for (const auto& a : {group(Kind::full, 1), group(Kind::full, 2)}) {
    for (const auto& b : {group(Kind::state, 2, 0, true), group(Kind::state, 3, 0, true)}) {
      World w = layout({a, b});
      w.fine_hits_allowed = false;
      check_all_contents(w, counter);
    }
  }
  report(counter, 10'000);
}

BOOST_AUTO_TEST_CASE(every_content_of_pairs_with_draft_groups_follows_the_rules) {
  Counter counter;
  for (auto a : menu()) {
    for (auto b : menu()) {
      for (unsigned flags = 1; flags < 4; ++flags) {
        a.draft = (flags & 1U) != 0;
        b.draft = (flags & 2U) != 0;
        World w = layout({a, b});
        if (!has_chunks(w)) check_all_contents(w, counter);  // chunks never drop
      }
    }
  }
  report(counter, 500'000);
}

// Three groups have too many contents to try them all: a seeded sample of contents for every layout
// of the menu.
BOOST_AUTO_TEST_CASE(sampled_contents_of_every_three_groups_are_looked_up_right) {
  std::mt19937_64 rng(seed_or(20261101));
  Counter counter;
  const auto all = menu();
  BOOST_TEST_CONTEXT(repeat_command(seed_or(20261101))) {
    for (std::size_t i = 0; i < all.size() * all.size() * all.size(); ++i) {
      World w = layout({all[i % all.size()], all[i / all.size() % all.size()],
                        all[i / all.size() / all.size()]});
      std::string why;
      auto mirror = Mirror::make(w, why);
      BOOST_REQUIRE_MESSAGE(mirror.has_value(), why);
      for (int sample = 0; sample < 40 / sample_divisor; ++sample) {
        for (std::size_t g = 0; g < 3; ++g) {
          // Mostly full contents, or hardly anything would ever hit.
          w.groups[g].held = subset(ends_of(w, g), rng() | rng() | (sample % 2 == 0 ? rng() : 0));
        }
        check_world(*mirror, w, counter);
      }
    }
  }
  report(counter, 200'000 / sample_divisor);
}

BOOST_AUTO_TEST_SUITE_END()
