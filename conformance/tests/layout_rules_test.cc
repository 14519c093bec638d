// The numbers that follow from a layout, against the oracle's: fine hits, alignment, needed sets,
// tails, cacheable tokens.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <numeric>

#include "conformance/tests/mirror.h"

namespace {

using namespace kvc::oracle;
using kvc::Geometry;
using kvc::GroupId;
using kvc::Tokens;
using kvc::oracle_tests::describe;
using kvc::oracle_tests::options_of;

// Every layout of up to three groups out of kinds, sizes and draft flags; check(world, geometry).
template <class Check>
void for_layouts(Check check) {
  struct Choice {
    Kind kind;
    std::uint64_t block, window;
    bool align, draft;
  };
  static constexpr std::array<Choice, 10> choices{{{Kind::full, 4, 0, false, false},
                                                   {Kind::full, 8, 0, false, true},
                                                   {Kind::full, 12, 0, false, false},
                                                   {Kind::state, 4, 0, true, false},
                                                   {Kind::state, 8, 0, true, true},
                                                   {Kind::state, 8, 0, false, false},
                                                   {Kind::sliding, 4, 9, false, false},
                                                   {Kind::sliding, 8, 16, false, true},
                                                   {Kind::chunked, 4, 12, false, false},
                                                   {Kind::other, 20, 0, false, false}}};
  std::size_t made = 0;
  for (std::size_t i = 0; i < 10 * 10 * 10 * 2 * 2; ++i) {
    World w;
    w.hash_unit = i % 2 == 0 ? 4 : 2;
    w.context_parallel = i / 2 % 2 == 0 ? 1 : 2;
    for (std::size_t rest = i / 4, g = 0; g < 3; rest /= 10, ++g) {
      const Choice& c = choices[rest % 10];
      Group x;
      x.kind = c.kind;
      x.rank_block = c.block;
      x.window = c.window;
      x.align = c.align;
      x.draft = c.draft;
      x.cacheable = c.kind != Kind::other;
      x.sharded = c.kind == Kind::full;
      w.groups.push_back(x);
      w.scheduler_block = std::lcm(w.scheduler_block, w.span(w.groups.size() - 1));
    }
    const auto geometry = Geometry::make(options_of(w));
    if (!geometry.ok()) continue;
    ++made;
    BOOST_TEST_CONTEXT(describe(w, 0)) { check(w, geometry.value()); }
  }
  BOOST_TEST(made > 2000U);
}

bool drafts_of(const World& w) {
  return std::any_of(w.groups.begin(), w.groups.end(),
                     [](const Group& g) { return g.draft && g.cacheable; });
}

}  // namespace

BOOST_AUTO_TEST_SUITE(layout_rules)

BOOST_AUTO_TEST_CASE(fine_hits_alignment_and_block_spans_are_those_of_the_rules) {
  for_layouts([](const World& w, const Geometry& geometry) {
    BOOST_TEST(geometry.fine_hits() == fine_hits(w));
    BOOST_TEST(geometry.hit_alignment().n == alignment(w));
    for (GroupId g = 0; g < geometry.groups(); ++g)
      BOOST_TEST(geometry.block_tokens(g).n == w.span(g));
  });
}

BOOST_AUTO_TEST_CASE(needed_sets_are_those_of_the_rules_at_every_boundary) {
  for_layouts([](World w, const Geometry& geometry) {
    for (w.start = 0; w.start <= w.scheduler_block; w.start += w.scheduler_block) {
      for (std::uint64_t t = w.hash_unit; t <= w.scheduler_block + 24; t += w.hash_unit) {
        std::vector<Place> places;
        kvc::for_each_needed(geometry, {w.start}, {t}, [&](GroupId g, std::uint64_t position) {
          places.emplace_back(g, position);
        });
        if (places != needed(w, t))
          BOOST_ERROR("needed set differs at " << t << " from " << w.start);
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(tail_boundaries_are_those_of_the_rules_for_every_prompt) {
  for_layouts([](const World& w, const Geometry& geometry) {
    const bool drop = drafts_of(w);
    for (GroupId g = 0; g < geometry.groups(); ++g) {
      for (std::uint64_t prompt = 0; prompt <= 40; ++prompt) {
        const std::uint64_t right = tail_boundary(w, g, prompt, drop);
        if (geometry.prompt_tail_boundary(g, {prompt}).n != right) {
          BOOST_ERROR("tail of group " << g << " for a prompt of " << prompt << " is not "
                                       << right);
        }
        const std::uint64_t inside = fine_hits(w) && right % w.span(g) != 0 ? right : 0;
        if (geometry.partial_tail(g, {prompt}).n != inside) {
          BOOST_ERROR("partial tail of group " << g << " for a prompt of " << prompt << " is not "
                                               << inside);
        }
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(cacheable_tokens_are_those_of_the_rules_for_every_count) {
  for_layouts([](const World& w, const Geometry& plain) {
    const bool drop = drafts_of(w);
    for (const std::uint64_t lookahead : {0U, 1U, 4U}) {
      auto options = options_of(w);
      options.lookahead = {lookahead};
      const auto geometry = Geometry::make(options);
      BOOST_REQUIRE(geometry.ok() && plain.groups() == geometry.value().groups());
      const std::uint64_t again = lookahead == 0 ? 0 : lookahead - 1;
      for (GroupId g = 0; g < plain.groups(); ++g) {
        for (std::uint64_t t = 0; t <= w.scheduler_block + 20; ++t) {
          const std::uint64_t right = cacheable_tokens(w, g, t, again, drop);
          if (geometry.value().cacheable_tokens(g, {t}).n != right) {
            BOOST_ERROR("of " << t << " tokens group " << g << " may key " << right << ", not "
                              << geometry.value().cacheable_tokens(g, {t}).n);
          }
        }
      }
    }
  });
}

BOOST_AUTO_TEST_SUITE_END()
