#include "plugin/coordinator/lookup.h"

#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/test_support.h"

namespace kvc {
namespace {

using namespace test;
using Ends = std::vector<std::vector<std::uint64_t>>;

// Ends of blocks `from` to `to` (numbers) of 16 tokens.
std::vector<std::uint64_t> blocks16(std::initializer_list<std::uint64_t> numbers) {
  std::vector<std::uint64_t> out;
  for (const std::uint64_t n : numbers) out.push_back((n + 1) * 16);
  return out;
}

BOOST_AUTO_TEST_SUITE(lookup_rules)

BOOST_AUTO_TEST_CASE(an_identical_resend_recomputes_at_least_one_token) {
  const Geometry g = make({{fa(16)}, 16, 16});
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> table{
      {15, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}};
  for (const auto& [n, hit] : table)
    BOOST_TEST(Held(g, {ends(16, n)}, n).find(0, n - 1).tokens.n == hit);
}

BOOST_AUTO_TEST_CASE(attention_with_a_window_reconciles_as_measured) {
  const Geometry g = make({{fa(16), sw(16, 64)}, 16, 16});  // R-316, T-1
  struct Case {
    std::vector<std::uint64_t> full, window;
    std::uint64_t blocks;
    std::string drawn;
    std::uint64_t uncached;
  };
  const std::vector<std::uint64_t> all = ends(16, 128);
  const std::vector<Case> table{
      {all, all, 8, "----XXXX", 0},
      {all, blocks16({2, 3, 4, 5}), 6, "--XXXX", 2},
      {all, blocks16({0, 1, 2}), 3, "XXX", 5},
      {all, blocks16({5, 6}), 0, "", 8},
      {blocks16({0, 1, 2, 3, 4}), blocks16({2, 3, 4, 5, 6, 7}), 0, "", 5},
      {blocks16({0, 1, 2, 3, 4}), blocks16({1, 2, 3, 4}), 5, "-XXXX", 0},
      {all, blocks16({0, 1, 4, 5, 6, 7}), 8, "----XXXX", 0},
      {all, blocks16({0, 1, 3, 5, 6, 7}), 2, "XX", 6},
  };
  for (const Case& c : table) {
    const Hit hit = Held(g, {c.full, c.window}, 129).find(0, 128);
    BOOST_TEST(hit.tokens.n == c.blocks * 16);
    BOOST_TEST(draw(hit.groups[1]) == c.drawn);
    BOOST_TEST(draw(hit.groups[0]) == std::string(c.blocks, 'X'));
    BOOST_TEST(hit.uncached_common_prefix.n == c.uncached * 16);
    BOOST_TEST(hit.attention_tokens.n == c.full.size() * 16);
  }
  const Geometry drafts = make({{fa(16, true), sw(16, 64, true)}, 16, 16});
  const Hit hit = Held(drafts, {all, all}, 129).find(0, 128);
  BOOST_TEST(hit.tokens.n == 112u);
  BOOST_TEST(draw(hit.groups[1]) == "---XXXX");
}

BOOST_AUTO_TEST_CASE(attention_with_states_reconciles_as_measured) {
  const Geometry g = make({{fa(16), mb(64)}, 16, 64});
  const Hit hit = Held(g, {ends(16, 160), {64, 128}}, 200).find(0, 199);
  BOOST_TEST(hit.tokens.n == 128u);
  BOOST_TEST(hit.uncached_common_prefix.n == 32u);
  BOOST_TEST(draw(hit.groups[0]) == "XXXXXXXX");
  BOOST_TEST(draw(hit.groups[1]) == "-X");
  BOOST_TEST(Held(g, {ends(16, 112), {64, 128}}, 200).find(0, 199).tokens.n == 64u);
}

struct Measured {
  const char* name;
  Layout layout;
  Ends held;
  std::uint64_t n;
  std::uint64_t hit;
  std::vector<std::pair<std::uint64_t, std::uint64_t>>
      slots_real;  // per group, empty: not recorded
};

std::vector<std::uint64_t> attention_of_v9() {
  auto held = ends(12288, 61440);
  held.push_back(64512);
  return held;
}

std::vector<Measured> measured() {
  const auto fa9 = attention_of_v9();
  return {
      {"V1",
       {{fa(528), mb(528)}, 528, 528},
       {ends(528, 1584), {1584}},
       2200,
       1584,
       {{3, 3}, {3, 1}}},
      {"V2", {{fa(528), mb(528)}, 528, 528}, {ends(528, 1056), {}}, 2200, 0, {}},
      {"V3",
       {{fa(256), mb(256)}, 4, 256},
       {ends(256, 512), {256, 1024}},
       1280,
       256,
       {{1, 1}, {1, 1}}},
      {"V4", {{fa(16), mb(16)}, 16, 16}, {ends(16, 64), {16}}, 80, 16, {}},
      {"V5",
       {{fa(1536), mb(1536)}, 128, 1536},
       {{1536, 1920}, {1536, 1920}},
       2000,
       1920,
       {{2, 2}, {2, 1}}},
      {"V6", {{fa(1536), mb(1536)}, 128, 1536}, {{1536}, {1920}}, 2000, 0, {}},
      {"V7",
       {{fa(1536), mb(1536)}, 128, 1536, 1, false},
       {{1536, 1920}, {1536, 1920}},
       2000,
       1536,
       {}},
      {"V9",
       {{fa(1536), mb(1536)}, 1536, 12288, 8},
       {fa9, {64512}},
       66000,
       64512,
       {{6, 6}, {42, 1}}},
      {"V10",
       {{fa(1536), mb(1536)}, 1536, 12288, 8, false},
       {fa9, {61440, 64512}},
       66000,
       61440,
       {{5, 5}, {40, 1}}},
      {"V11", {{fa(8), mb(8)}, 8, 32, 4}, {{32, 64, 72}, {72}}, 80, 72, {{3, 3}, {9, 1}}},
      {"V15", {{fa(16), mb(16)}, 16, 16}, {{16, 32}, {16, 32}}, 32, 16, {}},
      {"V16", {{fa(16, true), mb(16)}, 16, 16}, {ends(16, 64), ends(16, 64)}, 100, 48, {}},
      {"V18", {{fa(64, true), mb(64)}, 16, 64}, {{64, 128}, {112}}, 300, 112, {{2, 2}, {2, 1}}},
      {"V21", {{fa(64, true), mb(64)}, 16, 64}, {{64, 128, 192, 208}, {192}}, 300, 192, {}},
      {"V22",
       {{fa(16), sw(16, 32)}, 16, 16},
       {ends(16, 128), {112, 128}},
       200,
       128,
       {{8, 8}, {8, 2}}},
      {"V24", {{fa(16), sw(16, 32, true)}, 16, 16}, {ends(16, 128), {112, 128}}, 200, 0, {}},
      {"V26", {{fa(16), sw(16, 17)}, 16, 16}, {ends(16, 128), {128}}, 200, 128, {{8, 8}, {8, 1}}},
      {"V28", {{fa(32), sw(8, 16)}, 8, 32}, {{32, 64}, {56, 64}}, 100, 64, {{2, 2}, {8, 2}}},
      {"V30",
       {{fa(16), cl(16, 64)}, 16, 16},
       {ends(16, 112), {80, 96, 112}},
       200,
       112,
       {{7, 7}, {7, 3}}},
      {"V33",
       {{fa(2), mb(8), sw(4, 4, true)}, 2, 8},
       {ends(2, 12), {8, 12}, {4, 8, 12}},
       16,
       8,
       {{4, 4}, {1, 1}, {2, 1}}},
  };
}

BOOST_AUTO_TEST_CASE(measured_lookups_come_out_the_same) {
  for (const Measured& m : measured()) {
    BOOST_TEST_CONTEXT(m.name) {
      const Geometry g = make(m.layout);
      const Hit hit = Held(g, m.held, m.n).find(0, m.n - 1);
      BOOST_TEST(hit.tokens.n == m.hit);
      for (GroupId i = 0; i < m.slots_real.size(); ++i) {
        BOOST_TEST(hit.groups[i].list_length() == m.slots_real[i].first);
        BOOST_TEST(hit.groups[i].slots.size() == m.slots_real[i].second);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(tokens_lost_to_missing_states_and_to_drafts_are_reported) {
  const Geometry v2 = make({{fa(528), mb(528)}, 528, 528});  // K6-49
  const Hit lost = Held(v2, {ends(528, 1056), {}}, 2200).find(0, 2199);
  BOOST_TEST((lost.attention_tokens - lost.tokens).n == 1056u);
  const Geometry v16 = make({{fa(16, true), mb(16)}, 16, 16});  // K8-77
  BOOST_TEST(Held(v16, {ends(16, 64), ends(16, 64)}, 100).find(0, 99).dropped_for_drafts.n == 16u);
  // More is held than may be answered: the drop costs nothing.
  BOOST_TEST(Held(v16, {ends(16, 128), ends(16, 128)}, 130).find(0, 99).dropped_for_drafts.n == 0u);
}

BOOST_AUTO_TEST_CASE(a_drop_without_flagged_group_costs_nothing) {
  GeometryOptions o;  // K8-74: 64 of 80, not 48
  o.groups = {fa(16), mb(16)};
  o.hash_unit = o.scheduler_block = {16};
  o.draft_drop = true;
  const Geometry g = std::move(Geometry::make(o)).value();
  BOOST_TEST(Held(g, {ends(16, 64), ends(16, 64)}, 80).find(0, 79).tokens.n == 64u);
}

BOOST_AUTO_TEST_CASE(external_hits_continue_from_the_local_prefix) {
  const Geometry g =
      make({{fa(256), mb(256)}, 4, 256});  // K6-47: 0, 256 or 512 on top of local 256
  for (const std::uint64_t end : {256u, 512u, 768u}) {
    const Hit hit = Held(g, {ends(256, 768), {end}}, 1280).find(256, 1279);
    BOOST_TEST(hit.tokens.n == end);
    BOOST_TEST(hit.external().n == end - 256);
    BOOST_TEST(hit.groups[0].slots.size() == (end - 256) / 256);
    BOOST_TEST(hit.groups[0].first_position == 1u);
  }
}

// In a tier whose slots hold two blocks the device's tokens may end inside one. Drafts drop what is
// behind a hit, never what the device has.
BOOST_AUTO_TEST_CASE(a_hit_is_never_shorter_than_what_the_device_has) {
  GeometryOptions o;
  o.groups = {fa(4), sw(4, 14, true)};
  o.hash_unit = o.scheduler_block = Tokens{4};
  o.draft_drop = true;
  o.blocks_per_chunk = 2;
  const Geometry g = std::move(Geometry::make(std::move(o))).value();
  BOOST_REQUIRE(g.block_tokens(1).n == 8u);
  std::uint64_t hits = 0;
  for (std::uint64_t held = 0; held < 5 * 16; ++held) {
    std::vector<std::uint64_t> windows;
    for (std::uint64_t c = 0; c < 4; ++c) {
      if ((held >> c) % 2 != 0) windows.push_back(8 * (c + 1));
    }
    const Held index(g, {ends(8, 8 * (held / 16)), windows}, 33);
    for (std::uint64_t start = 0; start <= 32; start += 4) {
      const Hit hit = index.find(start, 32);
      BOOST_REQUIRE_MESSAGE(hit.tokens.n >= start && hit.tokens.n % 4 == 0,
                            "held " << held << ", device " << start << ": " << hit.tokens.n);
      hits += hit.tokens.n > start ? 1 : 0;
    }
  }
  BOOST_TEST(hits > 10u);
}

BOOST_AUTO_TEST_CASE(a_chunk_claims_only_tokens_that_it_loads) {
  const Geometry g = make({{fa(16), cl(16, 64)}, 16, 16});  // T-2, CW-1: 96 tokens in the tier
  const Held held(g, {ends(16, 96), ends(16, 96)}, 200);
  const Hit from16 = held.find(16, 199);
  BOOST_TEST(from16.tokens.n == 96u);
  BOOST_TEST(from16.groups[1].first_position == 4u);
  BOOST_TEST(from16.groups[1].slots.size() == 2u);
  const Hit from32 = held.find(32, 199);
  BOOST_TEST(from32.tokens.n == 96u);
  BOOST_TEST(draw(from32.groups[1]) == "----XX");
  // Inside one chunk the device holds what lies below start.
  const Hit inside = held.find(80, 199);
  BOOST_TEST(draw(inside.groups[1]) == "-----X");
  // Nothing of the chunk behind 64 is held: a hit can end at the chunk's begin only.
  BOOST_TEST(Held(g, {ends(16, 96), {}}, 200).find(16, 199).tokens.n == 64u);
  BOOST_TEST(Held(g, {ends(16, 96), {}}, 200).find(64, 199).tokens.n == 64u);
  BOOST_TEST(Held(g, {ends(16, 96), {}}, 200).find(64, 199).external().n == 0u);
}

BOOST_AUTO_TEST_CASE(a_window_may_be_short_where_the_device_holds_the_rest) {
  const Geometry g = make({{fa(16), sw(16, 64)}, 16, 16});
  const Hit hit = Held(g, {ends(16, 128), {80, 96}}, 200).find(64, 199);
  BOOST_TEST(hit.tokens.n == 96u);
  BOOST_TEST(draw(hit.groups[1]) == "----XX");
  BOOST_TEST(Held(g, {ends(16, 128), {80, 96}}, 200).find(48, 199).tokens.n == 48u);
}

BOOST_AUTO_TEST_CASE(an_unaligned_start_or_key_length_is_an_error) {
  const Geometry g = make({{fa(16), mb(64)}, 16, 64});
  const Held held(g, {ends(16, 160), {64, 128}}, 200);
  Hit hit;
  BOOST_TEST((lookup(g, held.index(), held.keys(), {16}, {199}, hit) == Code::arg));
  BOOST_TEST(hit.external().n == 0u);
  BOOST_TEST((lookup(g, held.index(), {}, {0}, {199}, hit) == Code::arg));
  BOOST_TEST((lookup(g, held.index(), held.keys(), {64}, {64}, hit) == Code::ok));
  BOOST_TEST(hit.tokens.n == 64u);
  BOOST_TEST((lookup(g, held.index(), held.keys(), {256}, {512}, hit) == Code::ok));
  BOOST_TEST(hit.tokens.n == 256u);
}

BOOST_AUTO_TEST_CASE(accepting_less_is_resolved_again_with_that_cap) {
  const Geometry g = make({{fa(16), mb(32)}, 16, 32, 1, false});  // T-4, CW-3: hit 96, 32 accepted
  const Held held(g, {ends(16, 96), {96}}, 200);
  BOOST_TEST(held.find(0, 199).tokens.n == 96u);
  BOOST_TEST(held.find(0, 32).tokens.n == 0u);  // exactly 32 cannot be served: no state there
  const Hit less = Held(g, {ends(16, 96), {32, 96}}, 200).find(0, 32);
  BOOST_TEST(less.tokens.n == 32u);
  BOOST_TEST(draw(less.groups[1]) == "X");
}

BOOST_AUTO_TEST_CASE(attention_serves_the_inside_of_what_it_holds) {
  const Geometry g = make({{fa(8), mb(8)}, 8, 16, 2});
  const Hit block = Held(g, {{16}, {8, 16}}, 16).find(0, 15);  // vllm-101-00711: 8, not 0
  BOOST_TEST(block.tokens.n == 8u);
  BOOST_TEST(draw(block.groups[0]) == "X");
  const Geometry tail = make({{fa(64), mb(32)}, 16, 64});
  const Hit inside = Held(tail, {{48}, {16, 32}}, 64).find(0, 40);
  BOOST_TEST(inside.tokens.n == 32u);
}

BOOST_AUTO_TEST_CASE(two_attention_groups_with_tails_are_both_served) {
  const Geometry g = make({{fa(64), fa(64), mb(64)}, 16, 64});  // T-10, CW-14
  BOOST_TEST(Held(g, {{64, 112}, {64, 112}, {112}}, 200).find(0, 199).tokens.n == 112u);
  BOOST_TEST(Held(g, {{64, 112}, {64}, {64, 112}}, 200).find(0, 199).tokens.n == 64u);
  // Tails at different places: the deeper one serves the shorter.
  const Hit hit = Held(g, {{64, 112}, {64, 96}, {96}}, 200).find(0, 199);
  BOOST_TEST(hit.tokens.n == 96u);
  BOOST_TEST(draw(hit.groups[0]) == "XX");
  BOOST_TEST(draw(hit.groups[1]) == "XX");
}

BOOST_AUTO_TEST_CASE(a_fine_attention_list_is_cut_to_the_state) {
  const Geometry g =
      make({{fa(4), mb(4)}, 2, 4});  // 9.3 hybrid_partial_hash_truncates_full_attention_hit_length
  const Hit hit = Held(g, {{4, 8, 10}, {6}}, 12).find(0, 11);
  BOOST_TEST(hit.tokens.n == 6u);
  BOOST_TEST(hit.groups[0].list_length() == 2u);
  BOOST_TEST(hit.groups[1].list_length() == 2u);
}

BOOST_AUTO_TEST_CASE(attention_of_drafts_drops_one_hash_unit) {
  // 9.3 full_attention_eagle_drops_one_hash_unit: 8 tokens full, then 4 full and a tail at 6.
  const auto at = [](bool draft, std::vector<std::uint64_t> held) {
    const Geometry g = make({{fa(4, draft), mb(4)}, 2, 4});
    const Held h(g, {held, {}}, 20);
    const Hit hit = h.find_per_group(0, 8);
    return std::pair(hit.groups[0].tokens.n, hit.groups[0].list_length());
  };
  BOOST_TEST((at(false, {4, 8}) == std::pair<std::uint64_t, std::uint64_t>(8, 2)));
  BOOST_TEST((at(true, {4, 8}) == std::pair<std::uint64_t, std::uint64_t>(6, 2)));
  BOOST_TEST((at(false, {4, 6}) == std::pair<std::uint64_t, std::uint64_t>(6, 2)));
  BOOST_TEST((at(true, {4, 6}) == std::pair<std::uint64_t, std::uint64_t>(4, 1)));
}

BOOST_AUTO_TEST_CASE(groups_on_their_own_are_not_reconciled) {
  const Geometry g = make({{fa(16), sw(16, 64), mb(64), scratch(16)}, 16, 64});
  const Hit hit = Held(g, {ends(16, 160), {112, 128}, {64, 192}, {}}, 300).find_per_group(0, 299);
  BOOST_TEST(hit.groups[0].tokens.n == 160u);
  BOOST_TEST(hit.groups[1].tokens.n == 0u);
  BOOST_TEST(hit.groups[2].tokens.n == 192u);
  BOOST_TEST(draw(hit.groups[2]) == "--X");
  BOOST_TEST(hit.groups[3].tokens.n == 0u);
  BOOST_TEST(hit.groups[3].list_length() == 0u);
  BOOST_TEST(hit.tokens.n == 0u);
}

// FA2 + Mamba4 with lists [3, 2] at 6 tokens.
struct Truncated {
  Geometry g = make({{fa(2), mb(4), scratch(2)}, 2, 4});
  Hit hit = Held(g, {ends(2, 6), {4, 6}, {}}, 7).find(0, 6);
  Hit out;
};

BOOST_AUTO_TEST_CASE(truncating_keeps_positions_and_the_input) {
  Truncated t;
  BOOST_TEST(t.hit.groups[0].list_length() == 3u);
  BOOST_TEST(t.hit.groups[1].list_length() == 2u);
  BOOST_TEST(truncate(t.g, t.hit, {4}, t.out).ok());
  BOOST_TEST(draw(t.out.groups[0]) == "XX");
  BOOST_TEST(draw(t.out.groups[1]) == "-");
  BOOST_TEST(t.out.tokens.n == 4u);
  BOOST_TEST(draw(t.hit.groups[0]) == "XXX");
  BOOST_TEST(draw(t.hit.groups[1]) == "-X");
}

BOOST_AUTO_TEST_CASE(truncating_allows_short_lists_of_states_only) {
  Truncated t;
  t.hit.groups[1].first_position = 0;
  t.hit.groups[1].slots.clear();
  BOOST_TEST(truncate(t.g, t.hit, {4}, t.out).ok());
  BOOST_TEST(t.out.groups[0].list_length() == 2u);
  BOOST_TEST(t.out.groups[1].list_length() == 0u);
  const Status odd = truncate(t.g, t.hit, {6}, t.out);
  BOOST_TEST((odd.code == Code::arg));
  BOOST_TEST(odd.text.find("group 1") != std::string::npos);
  t.hit.groups[0].slots.resize(1);
  const Status narrow = truncate(t.g, t.hit, {4}, t.out);
  BOOST_TEST((narrow.code == Code::arg));
  BOOST_TEST(narrow.text.find("group 0 has 1 positions") != std::string::npos);
  t.hit.groups[0].slots.resize(3);
  t.hit.groups[2].slots.resize(1);
  BOOST_TEST((truncate(t.g, t.hit, {4}, t.out).code == Code::arg));
}

BOOST_AUTO_TEST_CASE(joint_layouts_hit_up_to_the_first_missing_block) {
  // 9.1 joint_*: one group missing a block caps all of them.
  const Geometry g = make({{fa(16), fa(16), sw(16, 64)}, 16, 16});
  for (std::uint64_t missing = 0; missing < 4; ++missing) {
    std::vector<std::uint64_t> holed;
    for (std::uint64_t i = 0; i < 4; ++i)
      if (i != missing) holed.push_back((i + 1) * 16);
    BOOST_TEST(Held(g, {ends(16, 64), holed, ends(16, 64)}, 80).find(0, 79).tokens.n ==
               missing * 16);
    BOOST_TEST(Held(g, {holed, ends(16, 64), ends(16, 64)}, 80).find(0, 79).tokens.n ==
               missing * 16);
  }
}

BOOST_AUTO_TEST_CASE(scratch_groups_stay_empty_slots_and_keep_fine_hits) {
  const Geometry g = make({{fa(1152), mb(1152), scratch(64)}, 128, 1152});  // 9.3 kpool_tail
  const Hit hit = Held(g, {{1152, 1536}, {1536}, {}}, 1700).find(0, 1699);
  BOOST_TEST(hit.tokens.n == 1536u);
  BOOST_TEST(hit.groups[2].list_length() == 0u);
}

BOOST_AUTO_TEST_CASE(a_mamba_hit_under_context_parallel_is_bounded_by_its_snapshots) {
  const Geometry g = make({{fa(4), mb(4)}, 4, 8, 2});  // 9.3 dcp_joint_hit
  const Hit eight = Held(g, {{8}, {4, 8}}, 13).find(0, 12);
  BOOST_TEST(eight.tokens.n == 8u);
  BOOST_TEST(eight.groups[0].list_length() == 1u);
  BOOST_TEST(eight.groups[1].list_length() == 2u);
  const Hit twelve = Held(g, {{8, 12}, {4, 8, 12}}, 13).find(0, 12);
  BOOST_TEST(twelve.tokens.n == 12u);
  BOOST_TEST(twelve.groups[0].list_length() == 2u);
  BOOST_TEST(twelve.groups[1].list_length() == 3u);
}

BOOST_AUTO_TEST_CASE(the_needed_set_of_a_hit_is_what_it_lists) {
  const Geometry g = make({{fa(16), sw(16, 50), mb(16), cl(16, 64)}, 16, 16});
  const std::vector<std::uint64_t> all = ends(16, 160);
  const Hit hit = Held(g, {all, all, all, all}, 170).find(32, 169);
  BOOST_TEST(hit.tokens.n == 160u);
  std::vector<std::vector<std::uint64_t>> listed(4);
  for_each_needed(g, hit.start, hit.tokens,
                  [&](GroupId group, std::uint64_t p) { listed[group].push_back(p); });
  for (GroupId group = 0; group < 4; ++group) {
    BOOST_TEST(listed[group].size() == hit.groups[group].slots.size());
    BOOST_TEST(listed[group].front() == hit.groups[group].first_position);
  }
}

BOOST_AUTO_TEST_CASE(a_reserved_hit_never_grows) {
  const Geometry g = make({{fa(64), sw(64, 200), mb(64, true), cl(64, 128)}, 16, 64});
  const std::vector<std::uint64_t> all = ends(64, 64000);
  const Held held(g, {all, all, all, all}, 64010);
  Hit hit;
  hit.reserve(g, {64010});
  std::vector<std::size_t> room;
  for (const GroupHit& one : hit.groups) room.push_back(one.slots.capacity());
  BOOST_TEST((lookup(g, held.index(), held.keys(), {0}, {64009}, hit) == Code::ok));
  BOOST_TEST(hit.tokens.n == 64000u);
  for (GroupId i = 0; i < 4; ++i) BOOST_TEST(hit.groups[i].slots.capacity() == room[i]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
