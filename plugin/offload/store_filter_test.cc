#include "plugin/offload/store_filter.h"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "plugin/coordinator/lookup.h"

using namespace kvc;

namespace {

GroupSpec full(std::uint64_t block) { return group_spec(GroupKind::full, Tokens{block}); }
GroupSpec sliding(std::uint64_t block, std::uint64_t window, std::uint64_t extra = 0) {
  GroupSpec g = group_spec(GroupKind::sliding, Tokens{block}, Tokens{window});
  g.extra_retained = Tokens{extra};
  return g;
}

Geometry geometry(std::vector<GroupSpec> groups, std::uint64_t h, std::uint64_t s,
                  std::int64_t retention = -1, std::uint32_t chunk = 1) {
  GeometryOptions o;
  o.groups = std::move(groups);
  o.hash_unit = Tokens{h};
  o.scheduler_block = Tokens{s};
  o.retention = retention;
  o.blocks_per_chunk = chunk;
  Result<Geometry> made = Geometry::make(std::move(o));
  if (!made.ok()) throw std::runtime_error(made.error().text);
  return std::move(made).value();
}

using Positions = std::vector<std::uint64_t>;

Positions wanted(const Geometry& g, GroupId group, std::uint64_t behind, std::uint64_t prompt) {
  const StoreFilter filter(g, true);
  Positions out;
  for (std::uint64_t p = 0; p < behind; ++p) {
    if (filter.wanted(group, p, Tokens{prompt})) out.push_back(p);
  }
  BOOST_TEST(filter.count(group, 0, behind, Tokens{prompt}) == out.size());
  return out;
}

void check(const Positions& found, const Positions& expected) {
  BOOST_TEST(found == expected, boost::test_tools::per_element());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(store_filter)

// Case 050.
BOOST_AUTO_TEST_CASE(windows_beside_wider_attention_keep_what_reaches_its_blocks_ends) {
  check(wanted(geometry({full(16), sliding(4, 8)}, 4, 16), 1, 8, 33), {2, 3, 6, 7});
  check(wanted(geometry({full(16), sliding(4, 8, 1)}, 4, 16), 1, 8, 33), {2, 3, 6, 7});
  check(wanted(geometry({full(16), sliding(4, 8, 3)}, 4, 16), 1, 8, 33), {1, 2, 3, 5, 6, 7});
}

// Case 057.
BOOST_AUTO_TEST_CASE(a_retention_interval_keeps_one_window_a_segment_and_the_prompts) {
  check(wanted(geometry({full(16), sliding(4, 8)}, 4, 16, 32), 1, 16, 64), {6, 7, 10, 11, 14, 15});
  check(wanted(geometry({full(16), sliding(4, 8)}, 4, 16, 0), 1, 16, 64), {10, 11});
}

// Case 058 and 059 without their last segment: no hit ends where it would help.
BOOST_AUTO_TEST_CASE(every_nine_blocks_of_a_window_keep_their_last_four) {
  Positions expected;
  for (std::uint64_t p = 0; p < 300; ++p) {
    if (p % 9 >= 5) expected.push_back(p);
  }
  check(wanted(geometry({full(36), sliding(4, 16)}, 4, 36), 1, 300, 1200), expected);
}

// Case 056: some of the chunks, in every size of them; a chunk is kept for any of its blocks.
BOOST_AUTO_TEST_CASE(chunks_of_windows_are_kept_for_any_block_that_is_needed) {
  for (const std::uint32_t chunk : {1u, 2u, 3u}) {
    const Geometry g = geometry({full(32), sliding(4, 8)}, 4, 32, -1, chunk);
    const Geometry blocks = geometry({full(32), sliding(4, 8)}, 4, 32);
    const std::uint32_t n = g.blocks_per_chunk(1);
    BOOST_TEST(n == (chunk < 2 ? 1u : 2u));  // a chunk of a window is no longer than the window
    Positions expected;
    const StoreFilter by_block(blocks, true);
    for (std::uint64_t p = 0; p < 64 / n; ++p) {
      bool any = false;
      for (std::uint64_t b = p * n; b < (p + 1) * n; ++b) {
        any = any || by_block.wanted(1, b, Tokens{256});
      }
      // The prompt's own end counts in tiers with chunks.
      if (any) expected.push_back(p);
    }
    check(wanted(g, 1, 64 / n, 257), expected);
    BOOST_TEST(expected.size() < 64 / n);
  }
}

BOOST_AUTO_TEST_CASE(attention_and_everything_beside_draft_groups_is_kept) {
  const Geometry plain = geometry({full(16), sliding(4, 8)}, 4, 16);
  BOOST_TEST(StoreFilter(plain, true).keeps_all(0));
  BOOST_TEST(!StoreFilter(plain, true).keeps_all(1));
  BOOST_TEST(StoreFilter(plain, false).keeps_all(1));
  GeometryOptions o = plain.options();
  o.draft_drop = true;
  o.groups[0].draft = true;
  const Result<Geometry> drafts = Geometry::make(o);
  BOOST_REQUIRE(drafts.ok());
  BOOST_TEST(StoreFilter(drafts.value(), true).keeps_all(1));
}

BOOST_AUTO_TEST_CASE(states_by_position_are_kept_at_chunk_ends_and_at_the_prompts_end) {
  const GroupSpec states = group_spec(GroupKind::state, Tokens{16}, {}, true);
  check(wanted(geometry({full(16), states}, 16, 16, -1, 4), 1, 12, 150), {3, 7, 8, 11});
  check(wanted(geometry({full(16), states}, 16, 16, 64), 1, 12, 150), {3, 7, 8, 11});
  BOOST_TEST(StoreFilter(geometry({full(16), states}, 16, 16), true).keeps_all(1));
}

// Whatever a hit of any length needs is wanted.
BOOST_AUTO_TEST_CASE(everything_that_a_hit_can_need_is_wanted) {
  const GroupSpec local = group_spec(GroupKind::chunked, Tokens{8}, Tokens{32});
  for (const std::uint32_t chunk : {1u, 2u, 3u, 5u}) {
    const Geometry g =
        geometry({full(16), sliding(8, 20), sliding(4, 60, 5), local}, 4, 16, -1, chunk);
    const StoreFilter filter(g, true);
    for (std::uint64_t end = g.hit_alignment().n; end <= 960; end += g.hit_alignment().n) {
      for_each_needed(g, Tokens{}, Tokens{end}, [&](GroupId group, std::uint64_t p) {
        BOOST_TEST(filter.wanted(group, p, Tokens{2000}));
      });
    }
  }
}

BOOST_AUTO_TEST_CASE(counting_is_quick_for_any_number_of_positions) {
  const Geometry g = geometry({full(16), sliding(4, 8)}, 4, 16);
  const StoreFilter filter(g, true);
  BOOST_TEST(filter.count(1, 0, std::uint64_t{1} << 50U, Tokens{33}) == std::uint64_t{1} << 49U);
  BOOST_TEST(filter.count(1, 3, 8, Tokens{33}) == 3u);
  BOOST_TEST(filter.count(1, 8, 3, Tokens{33}) == 0u);
  BOOST_TEST(filter.count(0, 3, 8, Tokens{33}) == 5u);
}

BOOST_AUTO_TEST_SUITE_END()
