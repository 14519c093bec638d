#include "plugin/coordinator/geometry.h"

#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/test_support.h"

namespace kvc {
namespace {

using namespace test;

bool says(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* w : words)
    if (text.find(w) == std::string::npos) return false;
  return true;
}

// The layout is refused and the text has all the words.
bool refused(const Layout& layout, std::initializer_list<const char*> words) {
  const Result<Geometry> made = try_make(layout);
  if (made.ok()) return false;
  BOOST_TEST_INFO_SCOPE(made.error().text);
  return says(made.error().text, words);
}

const Gate* gate(const Geometry& g, const std::string& feature) {
  for (const Gate& one : g.gates())
    if (one.feature == feature) return &one;
  return nullptr;
}

BOOST_AUTO_TEST_SUITE(geometry)

BOOST_AUTO_TEST_CASE(a_block_spans_all_context_parallel_ranks_only_when_sharded) {
  // R-108; K7-58: 601 tokens on FA16 under two ranks are 18 storable blocks.
  const Geometry g = make({{fa(16), mb(64, true)}, 16, 64, 2});
  BOOST_TEST(g.block_tokens(0).n == 32u);
  BOOST_TEST(g.block_tokens(1).n == 64u);
  BOOST_TEST(blocks_full({601}, g.block_tokens(0)).n == 18u);
}

BOOST_AUTO_TEST_CASE(several_groups_of_one_kind_keep_their_own_spans_under_context_parallel) {
  // K7-59.
  const Geometry g = make({{fa(16), fa(16), mb(16)}, 16, 32, 2});
  BOOST_TEST(g.block_tokens(0).n == 32u);
  BOOST_TEST(g.block_tokens(1).n == 32u);
  BOOST_TEST(g.block_tokens(2).n == 16u);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_not_a_multiple_of_the_hash_unit_is_refused_naming_both) {
  BOOST_TEST(refused({{fa(32), sw(8, 128)}, 32, 32},
                     {"group 1", "sliding", "8 tokens", "32"}));  // V34, K7-61
}

BOOST_AUTO_TEST_CASE(sizes_that_do_not_fit_are_refused_naming_what_would) {
  // Field report 118: "all groups must have the same block size", and no way out.
  BOOST_TEST(refused({{fa(32), fa(24)}, 32, 96},
                     {"group 1", "24 tokens", "hash unit 32", "group 0: 32, group 1: 24",
                      "a hash unit of 8 or a divisor"}));
  BOOST_TEST(refused({{fa(16), fa(24)}, 8, 32},
                     {"group 1", "24 tokens", "scheduler block 32", "a scheduler block of 48"}));
  BOOST_TEST(refused({{fa(16), mb(16)}, 16, 16, 3},
                     {"group 0", "48 tokens over 3", "a scheduler block of 48"}));
  BOOST_TEST(refused({{fa((1U << 31) - 1), fa(1U << 30)}, 1, 1U << 30},
                     {"group 0", "no scheduler block below 2^32"}));
  // What is named is taken.
  BOOST_TEST(try_make({{fa(32), fa(24)}, 8, 96}).ok());
  BOOST_TEST(try_make({{fa(16), fa(24)}, 8, 48}).ok());
  BOOST_TEST(try_make({{fa(16), mb(16)}, 16, 48, 3}).ok());
}

BOOST_AUTO_TEST_CASE(bad_sizes_are_refused_naming_group_and_numbers) {
  BOOST_TEST(refused({{}, 16, 16}, {"0 groups", "64"}));
  BOOST_TEST(refused({std::vector<GroupSpec>(65, fa(16)), 16, 16}, {"65 groups"}));
  BOOST_TEST(refused({{fa(0)}, 16, 16}, {"group 0", "0 tokens per block"}));
  BOOST_TEST(refused({{fa(16)}, 0, 16}, {"hash unit is 0"}));
  BOOST_TEST(refused({{fa(16)}, 16, 0}, {"scheduler block is 0"}));
  BOOST_TEST(refused({{fa(16), fa(16)}, 16, 40}, {"40", "16"}));
  BOOST_TEST(refused({{fa(16), fa(24)}, 8, 32}, {"group 1", "24", "32"}));
  BOOST_TEST(refused({{fa(16)}, 16, 16, 0}, {"context parallel size is 0"}));
  BOOST_TEST(refused({{fa(std::uint64_t{1} << 31), mb(16)}, 16, std::uint64_t{1} << 31, 2},
                     {"group 0", "2^32"}));
  BOOST_TEST(refused({{fa(16), sw(16, 0)}, 16, 16}, {"group 1", "window is 0"}));
  GroupSpec windowed = fa(16);
  windowed.window = {4};
  BOOST_TEST(refused({{windowed}, 16, 16}, {"group 0", "window is 4"}));
  GroupSpec retained = fa(16);
  retained.extra_retained = {3};
  BOOST_TEST(refused({{retained}, 16, 16}, {"group 0", "extra_retained is 3"}));
  GroupSpec fine_window = sw(16, 32);
  fine_window.fine_lookup = true;
  BOOST_TEST(refused({{fa(16), fine_window}, 16, 16}, {"group 1", "fine lookup"}));
}

BOOST_AUTO_TEST_CASE(the_state_bit_belongs_to_state_groups) {
  GroupSpec s = mb(16);
  s.state = false;
  BOOST_TEST(refused({{fa(16), s}, 16, 16}, {"group 1", "state bit"}));
  s = fa(16);
  s.state = true;
  BOOST_TEST(refused({{s}, 16, 16}, {"group 0", "state bit"}));
  s = scratch(16);
  s.cacheable = true;
  BOOST_TEST(refused({{fa(16), s}, 16, 16}, {"group 1", "other"}));
}

BOOST_AUTO_TEST_CASE(the_only_group_needs_equal_block_hash_unit_and_scheduler_block) {
  BOOST_TEST(refused({{fa(96)}, 16, 96}, {"group 0", "96", "16"}));
  BOOST_TEST(refused({{fa(16)}, 16, 32}, {"16", "32"}));
  BOOST_TEST(try_make({{fa(16)}, 32, 32, 2}).ok());
}

BOOST_AUTO_TEST_CASE(context_parallel_layouts_must_be_sharded_attention_or_replicated) {
  GroupSpec s = mb(16);
  s.sharded = true;
  BOOST_TEST(refused({{fa(16), s}, 16, 32, 2}, {"group 1", "replicated"}));
  s = sw(16, 32);
  s.sharded = true;
  BOOST_TEST(refused({{fa(16), s}, 16, 32, 2}, {"group 1", "replicated"}));
  BOOST_TEST(refused({{fa(16), cl(16, 64)}, 16, 32, 2}, {"group 1", "chunked", "2"}));
  GeometryOptions o;
  o.groups = {fa(16)};
  o.hash_unit = o.scheduler_block = {32};
  o.context_parallel = 2;
  o.cp_interleave = {5};
  BOOST_TEST(!Geometry::make(o).ok());
  o.cp_interleave = {0};
  BOOST_TEST(!Geometry::make(o).ok());
  o.cp_interleave = {8};
  BOOST_TEST(Geometry::make(o).ok());
}

BOOST_AUTO_TEST_CASE(a_layout_without_cacheable_group_is_refused) {
  BOOST_TEST(refused({{scratch(16), scratch(4)}, 4, 16}, {"no group is cacheable"}));
}

BOOST_AUTO_TEST_CASE(a_scratch_group_need_not_fit_the_hash_unit) {
  // 9.2 scratch_group_store_emits_events_for_cacheable_groups_only.
  const Geometry g = make({{fa(16), scratch(6)}, 16, 48});
  BOOST_TEST(g.cacheable().size() == 1u);
  BOOST_TEST(g.end_position(1, {48}) == 0u);
}

BOOST_AUTO_TEST_CASE(retention_and_lookahead_follow_their_rules) {
  BOOST_TEST(refused({{fa(16), mb(16)}, 16, 16, 1, true, true, -2}, {"-2"}));
  BOOST_TEST(refused({{fa(16), mb(16)}, 16, 16, 1, true, true, 24}, {"24", "16"}));
  BOOST_TEST(refused({{fa(16), fa(16)}, 16, 16, 1, true, true, 32}, {"32", "without"}));
  BOOST_TEST(try_make({{fa(16)}, 16, 16, 1, true, true, 0}).ok());
  BOOST_TEST(try_make({{fa(16), mb(16)}, 16, 16, 1, true, true, 32}).ok());
  BOOST_TEST(refused({{fa(16, true), mb(16)}, 16, 16, 1, true, true, -1, 17}, {"17", "16"}));
  BOOST_TEST(make({{fa(16), mb(16)}, 16, 16, 1, true, true, -1, 4}).reprefill_tokens().n == 3u);
  BOOST_TEST(make({{fa(16), mb(16)}, 16, 16}).reprefill_tokens().n == 0u);
}

BOOST_AUTO_TEST_CASE(fine_hits_follow_the_measured_decision_table) {
  struct Case {
    std::vector<GroupSpec> groups;
    std::uint64_t h, s;
    std::uint32_t cp;
    bool fine;
  };
  const std::vector<Case> table{
      {{fa(2), mb(4)}, 2, 4, 1, true},
      {{fa(4), mb(4)}, 4, 4, 1, false},
      {{fa(4), mb(4)}, 4, 8, 2, true},
      {{fa(4), mb(4, true)}, 4, 4, 1, false},
      {{fa(4), sw(4, 8)}, 4, 4, 1, false},
      {{fa(2), mb(4), sw(2, 4)}, 2, 4, 1, true},
      {{fa(2), mb(4), sw(4, 8)}, 2, 4, 1, false},
      {{fa(8), mb(4)}, 4, 8, 1, false},
      {{fa(2), mb(4), scratch(3)}, 2, 12, 1, true},
  };
  for (const Case& c : table) {
    const Geometry g = make({c.groups, c.h, c.s, c.cp});
    BOOST_TEST(g.fine_hits() == c.fine);
    BOOST_TEST(g.hit_alignment().n == (c.fine ? c.h : c.s));
    // A layout whose hash unit is the scheduler block could gain nothing: no gate.
    BOOST_TEST((gate(g, "fine_hits") == nullptr) == (c.fine || c.h == c.s));
  }
}

BOOST_AUTO_TEST_CASE(a_layout_in_which_nothing_lies_inside_a_block_has_no_gate) {
  const Geometry gemma = make({{fa(16), sw(16, 1024), sw(16, 1024), sw(16, 1024)}, 16, 16});
  BOOST_TEST(!gemma.fine_hits());
  BOOST_TEST(gemma.gates().empty());
  const Geometry lazy = make({{fa(16), mb(16)}, 16, 16, 1, false});
  BOOST_TEST(lazy.gates().empty());
  const Geometry smaller = make({{fa(16), sw(16, 1024)}, 8, 16});
  BOOST_TEST(gate(smaller, "fine_hits") != nullptr);
}

BOOST_AUTO_TEST_CASE(drafts_whose_drop_costs_much_say_the_unit_of_it_once) {  // K8-77
  const auto drafting = [](std::vector<GroupSpec> groups, std::uint64_t h, std::uint64_t s,
                           bool drop = true) {
    GeometryOptions o;
    o.groups = std::move(groups);
    o.groups.front().draft = true;
    o.hash_unit = {h};
    o.scheduler_block = {s};
    o.draft_drop = drop;
    return std::move(Geometry::make(o)).value();
  };
  const Geometry large = drafting({fa(1536), mb(1536)}, 1536, 1536);
  const Gate* notice = gate(large, "last_unit_of_hits");
  BOOST_REQUIRE(notice != nullptr);
  BOOST_TEST(says(notice->why, {"1536 tokens early", "draft_dropped_tokens", "group 0 (full"}));
  BOOST_TEST(!says(notice->why, {"group 1"}));
  BOOST_TEST(gate(drafting({fa(1536), mb(1536)}, 1536, 1536, false), "last_unit_of_hits") ==
             nullptr);
  // Hits in units of 16 although blocks are large: cheap. And so is up to four times that.
  BOOST_TEST(gate(drafting({fa(1536), mb(1536)}, 16, 1536), "last_unit_of_hits") == nullptr);
  BOOST_TEST(gate(drafting({fa(64), mb(64)}, 64, 64), "last_unit_of_hits") == nullptr);
  BOOST_TEST(gate(drafting({fa(80), mb(80)}, 80, 80), "last_unit_of_hits") != nullptr);
  BOOST_TEST(gate(drafting({fa(32), sw(16, 64)}, 4, 32), "last_unit_of_hits") != nullptr);
}

BOOST_AUTO_TEST_CASE(the_gate_names_the_groups_that_forbid_fine_hits) {
  const Geometry g = make({{fa(2), mb(8), sw(4, 4, true)}, 2, 8});  // V33
  BOOST_TEST(!g.fine_hits());
  const Gate* why = gate(g, "fine_hits");
  BOOST_REQUIRE(why != nullptr);
  BOOST_TEST(says(why->why, {"group 2", "sliding", "4 tokens", "hash unit of 2"}));
  BOOST_TEST(!says(why->why, {"group 0"}));
  const Geometry lazy = make({{fa(2), mb(8)}, 2, 8, 1, false});
  BOOST_TEST(says(gate(lazy, "fine_hits")->why, {"owner"}));
}

BOOST_AUTO_TEST_CASE(drafts_without_a_flagged_group_drop_nothing_and_say_so_once) {
  GeometryOptions o;  // K8-74, O-017
  o.groups = {fa(16), mb(16)};
  o.hash_unit = o.scheduler_block = {16};
  o.draft_drop = true;
  const Geometry g = std::move(Geometry::make(o)).value();
  BOOST_TEST(!g.has_drafts());
  BOOST_TEST(gate(g, "draft_drop") != nullptr);
  BOOST_TEST(gate(make({{fa(16, true), mb(16)}, 16, 16}), "draft_drop") == nullptr);
}

BOOST_AUTO_TEST_CASE(a_flag_without_the_drop_changes_nothing) {
  const Geometry g = make({{fa(16, true), mb(16)}, 16, 16, 1, true, false});
  BOOST_TEST(!g.has_drafts());
  BOOST_TEST(!g.drops(0));
  BOOST_TEST(g.prompt_tail_boundary(0, {32}).n == 16u);
}

BOOST_AUTO_TEST_CASE(an_expensive_draft_drop_is_announced) {
  // K8-77: 1,648 tokens are recomputed by every hit.
  const Geometry g = make({{fa(1648, true), mb(1648)}, 16, 1648, 1, false});
  BOOST_REQUIRE(gate(g, "draft_cost") != nullptr);
  BOOST_TEST(says(gate(g, "draft_cost")->why, {"1648", "16"}));
  BOOST_TEST(gate(make({{fa(1648, true), mb(1648)}, 16, 1648}), "draft_cost") == nullptr);
}

BOOST_AUTO_TEST_CASE(a_chunked_group_cannot_be_a_draft_group) {
  GroupSpec c = cl(16, 64);
  c.draft = true;
  BOOST_TEST(refused({{fa(16), c}, 16, 16}, {"group 1", "chunked"}));
  BOOST_TEST(try_make({{fa(16), c}, 16, 16, 1, true, false}).ok());
}

BOOST_AUTO_TEST_CASE(requests_shorter_than_a_hit_make_the_cache_inert_and_it_says_so) {
  const Geometry g = make({{fa(8320), mb(8320)}, 8320, 8320});  // K6-50
  BOOST_REQUIRE(g.inert({4096}).has_value());
  BOOST_TEST(says(g.inert({4096})->why, {"8320", "4096"}));
  BOOST_TEST(g.inert({8320}).has_value());
  BOOST_TEST(!g.inert({8321}).has_value());
}

BOOST_AUTO_TEST_CASE(the_chain_is_the_full_attention_group_with_the_smallest_blocks) {
  BOOST_TEST(make({{mb(16), fa(32), fa(16), fa(16)}, 16, 32}).chain().value() == 2u);
  const Geometry g = make({{mb(16), sw(16, 32)}, 16, 16});
  BOOST_TEST(!g.chain().has_value());
  BOOST_TEST(gate(g, "full_attention") != nullptr);
}

BOOST_AUTO_TEST_CASE(groups_described_alike_are_one_bundle_and_attention_comes_first) {
  const Geometry g = make({{sw(16, 32), fa(16), sw(16, 32, true), mb(16), fa(16)}, 16, 16});
  BOOST_REQUIRE(g.bundles().size() == 3u);
  BOOST_TEST(g.bundles()[0].members == (std::vector<GroupId>{1, 4}));
  BOOST_TEST(g.bundles()[1].members == (std::vector<GroupId>{0, 2}));
  BOOST_TEST(g.bundles()[1].drop);
  BOOST_TEST(!g.bundles()[0].drop);
}

BOOST_AUTO_TEST_CASE(one_function_names_the_prompt_tail) {
  const Geometry g = make({{fa(64), mb(64)}, 16, 64});  // T-5, CW-4
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> tails{
      {96, 80}, {97, 96}, {100, 96}, {112, 96}};
  for (const auto& [prompt, tail] : tails) {
    BOOST_TEST(g.prompt_tail_boundary(0, {prompt}).n == tail);
    BOOST_TEST(g.prompt_tail_boundary(1, {prompt}).n == tail);
    BOOST_TEST(g.partial_tail(0, {prompt}).n == tail);
  }
  BOOST_TEST(g.prompt_tail_boundary(0, {0}).n == 0u);
  BOOST_TEST(g.prompt_tail_boundary(0, {16}).n == 0u);
  BOOST_TEST(g.partial_tail(0, {65}).n == 0u);  // a block end
}

BOOST_AUTO_TEST_CASE(draft_groups_move_the_prompt_tail) {
  const Geometry g = make({{fa(64, true), mb(64), fa(64)}, 16, 64});
  BOOST_TEST(g.prompt_tail_boundary(0, {96}).n == 96u);
  BOOST_TEST(g.prompt_tail_boundary(1, {96}).n == 80u);
  BOOST_TEST(g.prompt_tail_boundary(1, {100}).n == 80u);
  BOOST_TEST(g.prompt_tail_boundary(1, {16}).n == 0u);
  BOOST_TEST(g.prompt_tail_boundary(2, {96}).n == 80u);
  BOOST_TEST(make({{fa(16), sw(16, 32)}, 16, 16}).prompt_tail_boundary(1, {100}).n == 0u);
}

BOOST_AUTO_TEST_CASE(only_settled_tokens_are_cacheable) {
  const Geometry one = make({{fa(16)}, 16, 16, 1, true, true, -1, 4});
  BOOST_TEST(one.cacheable_tokens(0, {100}).n == 97u);
  BOOST_TEST(one.cacheable_tokens(0, {2}).n == 0u);
  const Geometry fine = make({{fa(2, true), mb(8)}, 2, 8});
  BOOST_TEST(fine.cacheable_tokens(0, {22}).n ==
             22u);  // 9.3 eagle_group_registers_unaligned_tail: 22, not 18
  BOOST_TEST(fine.cacheable_tokens(1, {22}).n == 22u);
  const Geometry coarse = make({{fa(16, true), sw(32, 64)}, 16, 32});
  BOOST_TEST(coarse.cacheable_tokens(0, {100}).n == 100u);
  BOOST_TEST(coarse.cacheable_tokens(0, {127}).n == 112u);
  BOOST_TEST(coarse.cacheable_tokens(0, {31}).n == 0u);
  BOOST_TEST(coarse.cacheable_tokens(1, {100}).n == 96u);
  BOOST_TEST(make({{fa(16), scratch(16)}, 16, 16}).cacheable_tokens(1, {100}).n == 0u);
  // K8-73: block 256, drafts on: 24,576 confirmed tokens are 96 blocks, one bound for keys and
  // cursor alike.
  const Geometry k8 = make({{fa(256, true), mb(256)}, 256, 256});
  BOOST_TEST(k8.cacheable_tokens(0, {24576}).n / 256 == 96u);
}

BOOST_AUTO_TEST_CASE(a_group_needs_what_its_kind_reaches_back_to) {
  const Geometry g = make({{fa(16), sw(16, 64), mb(16), cl(16, 64), sw(16, 1)}, 16, 16});
  BOOST_TEST(g.first_needed_position(0, {160}) == 0u);
  BOOST_TEST(g.first_needed_position(1, {160}) == 6u);  // cdiv(63, 16) = 4 blocks
  BOOST_TEST(g.first_needed_position(2, {160}) == 9u);
  BOOST_TEST(g.first_needed_position(3, {160}) == 8u);
  BOOST_TEST(g.first_needed_position(3, {192}) == 12u);
  BOOST_TEST(g.first_needed_position(4, {160}) == 10u);
  BOOST_TEST(g.end_position(4, {160}) == 10u);
  BOOST_TEST(g.first_needed_position(1, {32}) == 0u);
  BOOST_TEST(g.position_end(2, 9, {150}).n == 150u);
  // K6-57: a state is one block, not a window.
  const Geometry state = make({{fa(1056), mb(1056)}, 1056, 1056});
  BOOST_TEST(state.first_needed_position(1, {3168}) == 2u);
  BOOST_TEST(state.end_position(1, {3168}) == 3u);
}

BOOST_AUTO_TEST_CASE(an_unaligned_window_touches_one_block_more) {
  const Geometry g = make({{fa(32), sw(32, 4096)}, 32, 32});  // K7-64: 129 blocks at 98,012 tokens
  BOOST_TEST(g.end_position(1, {98012}) - g.first_needed_position(1, {98012}) == 129u);
  for (std::uint64_t o = 0; o < 32; ++o)
    BOOST_TEST(g.end_position(1, {98016 + o}) - g.first_needed_position(1, {98016 + o}) <= 129u);
}

BOOST_AUTO_TEST_CASE(extra_retained_tokens_widen_the_window) {
  GroupSpec s = sw(16, 33);
  s.extra_retained = {16};
  const Geometry g = make({{fa(16), s}, 16, 16});
  BOOST_TEST(g.skipped_tokens(1, {160}).n == 112u);  // 160 - 33 + 1 - 16
  BOOST_TEST(g.first_needed_position(1, {160}) == 7u);
}

BOOST_AUTO_TEST_CASE(the_first_needed_position_is_what_may_be_skipped) {
  const Geometry g = make({{fa(16), sw(16, 50), mb(32), cl(16, 64)}, 16, 32});
  for (GroupId group = 0; group < g.groups(); ++group)
    for (std::uint64_t t = 0; t < 400; ++t)
      BOOST_TEST(g.first_needed_position(group, {t}) ==
                 g.skipped_tokens(group, {t}).n / g.block_tokens(group).n);
}

BOOST_AUTO_TEST_CASE(a_tier_has_its_share_of_the_device_blocks) {
  // 16 device blocks of 16,384 bytes in all.
  BOOST_TEST(tier_blocks({7668}, {16}, {16384}).value().n == 7u);
  BOOST_TEST(tier_blocks({8192}, {16}, {16384}).value().n == 8u);
  for (const std::uint64_t small :
       {0u, 1u, 1024u, 2047u}) {  // CW-24: the null block alone stores nothing
    const Result<Blocks> r = tier_blocks({small}, {16}, {16384});
    BOOST_TEST(!r.ok());
    BOOST_TEST(says(r.error().text, {std::to_string(small).c_str(), "1024"}));
  }
  BOOST_TEST(!tier_blocks({8192}, {0}, {16384}).ok());
  BOOST_TEST(!tier_blocks({8192}, {16}, {0}).ok());
  BOOST_TEST(
      tier_blocks({std::uint64_t{1} << 40}, {std::uint64_t{1} << 30}, {std::uint64_t{1} << 40})
          .value()
          .n == std::uint64_t{1} << 30);
  // K7-68: 3,604,480 bytes a block, 36,044,800 bytes: 10 blocks.
  BOOST_TEST(tier_blocks({36044800}, {512}, {512 * std::uint64_t{3604480}}).value().n == 10u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
