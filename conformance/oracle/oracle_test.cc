// The oracle against cases small enough to be checked by hand: the measured vectors of the field
// reports (V1..V33) and the worked examples of the rules.
#include "conformance/oracle/oracle.h"

#include <boost/test/unit_test.hpp>

namespace {

using namespace kvc::oracle;
using Ends = std::set<std::uint64_t>;

Group full(std::uint64_t block, Ends held, bool draft = false) {
  Group g;
  g.rank_block = block;
  g.sharded = true;
  g.draft = draft;
  g.held = std::move(held);
  return g;
}

Group state(std::uint64_t block, Ends held) {
  Group g;
  g.kind = Kind::state;
  g.rank_block = block;
  g.align = true;
  g.held = std::move(held);
  return g;
}

Group sliding(std::uint64_t block, std::uint64_t window, Ends held, bool draft = false) {
  Group g;
  g.kind = Kind::sliding;
  g.rank_block = block;
  g.window = window;
  g.draft = draft;
  g.held = std::move(held);
  return g;
}

Group chunked(std::uint64_t block, std::uint64_t chunk, Ends held) {
  Group g = sliding(block, chunk, std::move(held));
  g.kind = Kind::chunked;
  return g;
}

Ends multiples(std::uint64_t unit, std::uint64_t first, std::uint64_t last) {
  Ends ends;
  for (std::uint64_t e = first; e <= last; e += unit) ends.insert(e);
  return ends;
}

World world(std::uint64_t h, std::uint64_t s, std::uint64_t n, std::vector<Group> groups,
            std::uint64_t cp = 1) {
  World w;
  w.groups = std::move(groups);
  w.hash_unit = h;
  w.scheduler_block = s;
  w.context_parallel = cp;
  w.tokens = n;
  return w;
}

std::uint64_t best(const World& w) { return best_hit(w, w.tokens); }
std::uint64_t by_rules(const World& w) { return rule_hit(w, w.tokens); }

void check_both(const World& w, std::uint64_t hit) {
  BOOST_TEST(best(w) == hit);
  BOOST_TEST(by_rules(w) == hit);
}

std::size_t places_of(const World& w, std::size_t group, std::uint64_t t) {
  std::size_t count = 0;
  for (const auto& place : needed(w, t)) count += place.first == group ? 1 : 0;
  return count;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(oracle)

BOOST_AUTO_TEST_CASE(measured_vectors_of_hybrid_layouts_have_their_answers) {
  check_both(world(528, 528, 2200, {full(528, {528, 1056, 1584}), state(528, {1584})}),
             1584);                                                                        // V1
  check_both(world(528, 528, 2200, {full(528, {528, 1056}), state(528, {})}), 0);          // V2
  check_both(world(4, 256, 1280, {full(256, {256, 512}), state(256, {256, 1024})}), 256);  // V3
  check_both(world(16, 16, 80, {full(16, multiples(16, 16, 64)), state(16, {16})}), 16);   // V4
  check_both(world(128, 1536, 2000, {full(1536, {1536, 1920}), state(1536, {1536, 1920})}),
             1920);                                                                  // V5
  check_both(world(128, 1536, 2000, {full(1536, {1536}), state(1536, {1920})}), 0);  // V6
  World lazy = world(128, 1536, 2000, {full(1536, {1536, 1920}), state(1536, {1536, 1920})});
  lazy.fine_hits_allowed = false;
  check_both(lazy, 1536);                                                        // V7
  check_both(world(16, 16, 32, {full(16, {16, 32}), state(16, {16, 32})}), 16);  // V15
}

BOOST_AUTO_TEST_CASE(measured_vectors_under_context_parallelism_have_their_answers) {
  auto ends = multiples(12288, 12288, 61440);
  ends.insert(64512);
  World v9 = world(1536, 12288, 66000, {full(1536, ends), state(1536, {64512})}, 8);
  check_both(v9, 64512);
  BOOST_TEST(places_of(v9, 0, 64512) == 6U);
  BOOST_CHECK((needed(v9, 64512).back() == Place{1, 41}));  // 42 slots, one of them real
  World v10 = world(1536, 12288, 66000, {full(1536, ends), state(1536, {61440, 64512})}, 8);
  v10.fine_hits_allowed = false;
  check_both(v10, 61440);
  check_both(world(8, 32, 80, {full(8, {32, 64, 72}), state(8, {72})}, 4), 72);  // V11
}

BOOST_AUTO_TEST_CASE(measured_vectors_with_draft_groups_have_their_answers) {
  const auto by = [](const World& w, std::uint64_t hit) { BOOST_TEST(by_rules(w) == hit); };
  by(world(16, 16, 100, {full(16, multiples(16, 16, 64), true), state(16, multiples(16, 16, 64))}),
     48);                                                                                // V16
  by(world(16, 64, 300, {full(64, {64, 128}, true), state(64, {112})}), 112);            // V18
  by(world(16, 64, 300, {full(64, {64, 128, 192, 208}, true), state(64, {192})}), 192);  // V21
  by(world(16, 16, 200, {full(16, multiples(16, 16, 128)), sliding(16, 32, {112, 128}, true)}),
     0);  // V24
  by(world(2, 8, 16,
           {full(2, multiples(2, 2, 12)), state(8, {8, 12}), sliding(4, 4, {4, 8, 12}, true)}),
     8);  // V33
}

BOOST_AUTO_TEST_CASE(measured_vectors_of_windows_and_chunks_have_their_answers) {
  const auto all = multiples(16, 16, 128);
  World v22 = world(16, 16, 200, {full(16, all), sliding(16, 32, {112, 128})});
  check_both(v22, 128);
  BOOST_TEST(places_of(v22, 1, 128) == 2U);
  World v26 = world(16, 16, 200, {full(16, all), sliding(16, 17, {128})});
  check_both(v26, 128);
  BOOST_TEST(places_of(v26, 1, 128) == 1U);
  check_both(world(8, 32, 100, {full(32, {32, 64}), sliding(8, 16, {56, 64})}), 64);  // V28
  World v30 =
      world(16, 16, 200, {full(16, multiples(16, 16, 112)), chunked(16, 64, {80, 96, 112})});
  check_both(v30, 112);
  BOOST_TEST(places_of(v30, 1, 112) == 3U);
}

// presence of full attention / window blocks -> hit blocks.
BOOST_AUTO_TEST_CASE(the_window_examples_of_the_rules_have_their_answers) {
  const auto blocks = [](std::initializer_list<std::uint64_t> indices) {
    Ends ends;
    for (const auto i : indices) ends.insert((i + 1) * 16);
    return ends;
  };
  const auto all = multiples(16, 16, 128);
  const auto hit_blocks = [&](const Ends& f, const Ends& w, bool draft = false) {
    const World x = world(16, 16, 129, {full(16, f, draft), sliding(16, 64, w, draft)});
    if (!draft) BOOST_TEST(best(x) == by_rules(x));
    return by_rules(x) / 16;
  };
  BOOST_TEST(hit_blocks(all, all) == 8U);
  BOOST_TEST(hit_blocks(all, blocks({2, 3, 4, 5})) == 6U);
  BOOST_TEST(hit_blocks(all, blocks({0, 1, 2})) == 3U);
  BOOST_TEST(hit_blocks(all, blocks({5, 6})) == 0U);
  BOOST_TEST(hit_blocks(blocks({0, 1, 2, 3, 4}), blocks({2, 3, 4, 5, 6, 7})) == 0U);
  BOOST_TEST(hit_blocks(blocks({0, 1, 2, 3, 4}), blocks({1, 2, 3, 4})) == 5U);
  BOOST_TEST(hit_blocks(all, blocks({0, 1, 4, 5, 6, 7})) == 8U);
  BOOST_TEST(hit_blocks(all, blocks({0, 1, 3, 5, 6, 7})) == 2U);
  BOOST_TEST(hit_blocks(all, all, true) == 7U);
  check_both(world(16, 64, 400, {full(16, multiples(16, 16, 160)), state(64, {64, 128})}), 128);
  check_both(world(16, 64, 400, {full(16, multiples(16, 16, 112)), state(64, {64, 128})}), 64);
}

// R-315, the measured decision table.
BOOST_AUTO_TEST_CASE(fine_hits_follow_the_decision_table) {
  const auto decide = [](std::uint64_t h, std::uint64_t s, std::vector<Group> groups,
                         std::uint64_t cp = 1) {
    return fine_hits(world(h, s, 100, std::move(groups), cp));
  };
  Group all_mode = state(4, {});
  all_mode.align = false;
  Group scratch;
  scratch.kind = Kind::other;
  scratch.cacheable = false;
  scratch.rank_block = 7;
  BOOST_TEST(decide(2, 4, {full(2, {}), state(4, {})}));
  BOOST_TEST(!decide(4, 4, {full(4, {}), state(4, {})}));
  BOOST_TEST(decide(4, 8, {full(4, {}), state(4, {})}, 2));
  BOOST_TEST(!decide(4, 4, {full(4, {}), all_mode}));
  BOOST_TEST(!decide(4, 4, {full(4, {}), sliding(4, 8, {})}));
  BOOST_TEST(decide(2, 4, {full(2, {}), state(4, {}), sliding(2, 8, {})}));
  BOOST_TEST(!decide(2, 4, {full(2, {}), state(4, {}), sliding(4, 8, {})}));
  BOOST_TEST(!decide(4, 8, {full(8, {}), state(4, {})}));
  BOOST_TEST(decide(2, 28, {full(2, {}), state(4, {}), scratch}));
  World forbidden = world(2, 4, 100, {full(2, {}), state(4, {})});
  forbidden.fine_hits_allowed = false;
  BOOST_TEST(!fine_hits(forbidden));
}

// CW-1: what a chunk needs does not depend on where the lookup starts.
BOOST_AUTO_TEST_CASE(a_chunk_needs_its_blocks_from_its_absolute_begin) {
  World w = world(16, 16, 97,
                  {full(16, multiples(16, 16, 96)), chunked(16, 64, {16, 32, 48, 64, 80, 96})});
  for (const std::uint64_t start : {0U, 16U, 32U, 64U, 80U}) {
    w.start = start;
    check_both(w, 96);
    std::vector<Place> places;
    for (std::uint64_t b = start / 16; b < 6; ++b) places.emplace_back(0, b);
    for (std::uint64_t b = std::max<std::uint64_t>(4, start / 16); b < 6; ++b)
      places.emplace_back(1, b);
    BOOST_CHECK(needed(w, 96) == places);
  }
}

// Field report 64: an unaligned window of 4096 in blocks of 32 touches 129 blocks.
BOOST_AUTO_TEST_CASE(a_window_that_begins_inside_a_block_needs_that_block_too) {
  const World w = world(4, 32, 98'013, {full(32, {}), sliding(32, 4096, {})});
  BOOST_TEST(places_of(w, 1, 98'012) == 129U);
  for (std::uint64_t offset = 0; offset < 32; ++offset) {
    BOOST_TEST(places_of(w, 1, 98'016 + offset) <= 4095 / 32 + 2U);
  }
}

// R-332 with its measured consequences: P = 96 and 112 keep their fine tail (CW-4).
BOOST_AUTO_TEST_CASE(tail_boundaries_follow_r332) {
  World w = world(16, 64, 0, {full(64, {}), state(64, {}), sliding(64, 64, {})});
  const auto tails = [&](std::uint64_t prompt, bool drop) {
    return std::pair(tail_boundary(w, 0, prompt, drop), tail_boundary(w, 1, prompt, drop));
  };
  BOOST_CHECK(tails(96, false) == std::pair(80UL, 80UL));
  BOOST_CHECK(tails(97, false) == std::pair(96UL, 96UL));
  BOOST_CHECK(tails(100, false) == std::pair(96UL, 96UL));
  BOOST_CHECK(tails(112, false) == std::pair(96UL, 96UL));
  BOOST_CHECK(tails(16, false) == std::pair(0UL, 0UL));
  BOOST_CHECK(tails(0, false) == std::pair(0UL, 0UL));
  BOOST_TEST(tail_boundary(w, 2, 100, false) == 0U);
  w.groups[0].draft = true;
  BOOST_CHECK(tails(96, true) == std::pair(96UL, 80UL));
  BOOST_CHECK(tails(100, true) == std::pair(96UL, 80UL));
  BOOST_CHECK(tails(15, true) == std::pair(0UL, 0UL));
}

BOOST_AUTO_TEST_CASE(cacheable_tokens_follow_r331) {
  World one = world(16, 16, 0, {full(16, {})});
  BOOST_TEST(cacheable_tokens(one, 0, 40, 0, false) == 40U);
  BOOST_TEST(cacheable_tokens(one, 0, 40, 3, false) == 37U);
  BOOST_TEST(cacheable_tokens(one, 0, 2, 3, false) == 0U);
  World coarse = world(16, 64, 0, {full(16, {}, true), sliding(64, 64, {})});
  BOOST_TEST(cacheable_tokens(coarse, 1, 100, 0, true) == 64U);
  BOOST_TEST(cacheable_tokens(coarse, 0, 100, 0, true) == 80U);
  BOOST_TEST(cacheable_tokens(coarse, 0, 70, 0, true) == 70U);
  BOOST_TEST(cacheable_tokens(coarse, 0, 60, 0, true) == 0U);
  BOOST_TEST(cacheable_tokens(coarse, 0, 100, 0, false) == 64U);
  World fine = world(16, 64, 0, {full(16, {}), state(64, {})});
  BOOST_TEST(cacheable_tokens(fine, 0, 100, 5, false) == 100U);
}

BOOST_AUTO_TEST_SUITE_END()
