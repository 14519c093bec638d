#include "plugin/coordinator/sched_rules.h"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "plugin/coordinator/test_support.h"

namespace kvc {
namespace {

using Ends = std::vector<std::uint64_t>;

// Chunk ends of a prefill of `prompt` tokens, `budget` offered a step; stops at a chunk of 0.
Ends prefill(const ChunkRules& rules, std::uint64_t prompt, std::uint64_t budget,
             std::uint64_t start = 0) {
  Ends ends;
  while (start < prompt) {
    const Tokens want{std::min(budget, prompt - start)};
    const Tokens chunk = clip_chunk(rules, {{start}, want, {prompt}, {prompt}, {}, {}});
    if (chunk.n == 0) break;
    start += chunk.n;
    ends.push_back(start);
  }
  return ends;
}

ChunkRules rules_of(std::uint64_t m, std::uint64_t h, bool fine, bool drop,
                    std::uint64_t max_chunk) {
  return {{m}, {h}, fine, drop, {max_chunk}, false, {}};
}

BOOST_AUTO_TEST_SUITE(sched_rules)

BOOST_AUTO_TEST_CASE(prefill_chunks_end_at_the_measured_places) {
  const ChunkRules r = rules_of(512, 32, true, false, 8192);
  BOOST_TEST(prefill(r, 10000, 8192) == (Ends{8192, 9728, 9984, 10000}));
  BOOST_TEST(prefill(r, 10016, 8192) == (Ends{8192, 9728, 9984, 10016}));
  BOOST_TEST(prefill(r, 10240, 8192) == (Ends{8192, 9728, 10208, 10240}));
  BOOST_TEST(prefill(rules_of(512, 32, false, false, 8192), 10000, 8192) ==
             (Ends{8192, 9728, 10000}));
}

BOOST_AUTO_TEST_CASE(a_resume_inside_a_block_first_finishes_the_block) {
  const ChunkRules r = rules_of(512, 32, true, false, 8192);
  BOOST_TEST(clip_chunk(r, {{9984}, {2016}, {12000}, {12000}, {}, {}}).n == 256u);
  BOOST_TEST(clip_chunk(r, {{10240}, {1000}, {12000}, {12000}, {}, {}}).n == 512u);
}

// State blocks 32 and 24: a chunk from 208 that ended at 219 left the state at 208 in the block
// that is keyed at 216 (found by the simulation: a later hit at 216 read it).
BOOST_AUTO_TEST_CASE(a_resume_inside_a_block_of_any_state_group_first_finishes_that_block) {
  using namespace test;
  const ChunkRules r = chunk_rules(make({{fa(32), mb(32), mb(24)}, 8, 96}), {8192});
  BOOST_TEST(clip_chunk(r, {{208}, {11}, {219}, {219}, {}, {}}).n == 8u);
  BOOST_TEST(clip_chunk(r, {{160}, {1000}, {1000}, {1000}, {}, {}}).n == 8u);
  BOOST_TEST(clip_chunk(r, {{168}, {1000}, {1000}, {1000}, {}, {}}).n == 24u);
  // Where the blocks are alike nothing is added.
  BOOST_TEST(
      chunk_rules(make({{fa(32), mb(32), mb(32)}, 8, 32}), {1}).smaller_state_blocks.empty());
}

BOOST_AUTO_TEST_CASE(a_block_beyond_the_budget_is_reached_in_parts) {
  const ChunkRules r = rules_of(11392, 32, false, false, 8192);
  BOOST_TEST(prefill(r, 30000, 8192) == (Ends{8192, 11392, 19584, 22784, 30000}));
  const ChunkRules wide = rules_of(11392, 32, false, false, 11392);
  BOOST_TEST(clip_chunk(wide, {{0}, {8192}, {30000}, {30000}, {}, {}}).n == 0u);
}

BOOST_AUTO_TEST_CASE(a_long_prefill_threshold_below_the_block_is_respected) {
  const ChunkRules r = rules_of(512, 512, false, false, 384);
  BOOST_TEST(prefill(r, 1300, 384) == (Ends{384, 512, 896, 1024, 1300}));
}

BOOST_AUTO_TEST_CASE(draft_drops_stop_below_the_boundary_they_can_prove) {
  const ChunkRules drop = rules_of(1536, 128, true, true, 8192);
  BOOST_TEST(prefill(drop, 24576, 8192) == (Ends{7680, 15360, 23040, 24448, 24576}));
  BOOST_TEST(prefill(drop, 24577, 8192) == (Ends{7680, 15360, 23040, 24448, 24576, 24577}));
  BOOST_TEST(prefill(rules_of(1536, 128, true, false, 8192), 24577, 8192) ==
             (Ends{7680, 15360, 23040, 24576, 24577}));
  BOOST_TEST(clip_chunk(drop, {{23040}, {1536}, {24576}, {24576}, {}, {}}).n == 1408u);
  BOOST_TEST(clip_chunk(drop, {{23040}, {1537}, {24577}, {24577}, {}, {}}).n == 1408u);
  BOOST_TEST(clip_chunk(rules_of(1536, 128, true, false, 8192),
                        {{23040}, {1537}, {24577}, {24577}, {}, {}})
                 .n == 1536u);
}

BOOST_AUTO_TEST_CASE(a_junction_is_a_stop_exactly_or_at_its_block) {
  ChunkRules r = rules_of(512, 32, true, false, 8192);
  BOOST_TEST(clip_chunk(r, {{0}, {3999}, {2000}, {4000}, {2208}, {}}).n == 2048u);
  BOOST_TEST(clip_chunk(r, {{0}, {2000}, {2000}, {2000}, {992}, {}}).n == 512u);
  r.stop_at_junction = true;
  BOOST_TEST(clip_chunk(r, {{0}, {2000}, {2000}, {2000}, {992}, {}}).n == 992u);
}

BOOST_AUTO_TEST_CASE(an_internal_checkpoint_replaces_the_last_stops) {
  const ChunkRules r = rules_of(32, 16, true, false, 8192);
  // 9.3 internal_checkpoint_uses_partial_hash_lifecycle: 120 tokens in one chunk, the state at 112
  // is exported.
  BOOST_TEST(clip_chunk(r, {{0}, {120}, {120}, {120}, {}, {112}}).n == 120u);
  BOOST_TEST(clip_chunk(r, {{0}, {120}, {120}, {120}, {}, {}}).n == 96u);
}

BOOST_AUTO_TEST_CASE(decode_and_layouts_without_states_are_not_clipped) {
  const ChunkRules r = rules_of(512, 32, true, false, 8192);
  BOOST_TEST(clip_chunk(r, {{10000}, {1}, {10000}, {10001}, {}, {}}).n == 1u);
  BOOST_TEST(
      clip_chunk(rules_of(0, 32, false, false, 8192), {{0}, {777}, {10000}, {10000}, {}, {}}).n ==
      777u);
}

BOOST_AUTO_TEST_CASE(the_rules_follow_from_the_layout) {
  using namespace test;
  const ChunkRules r = chunk_rules(make({{fa(16), mb(784), mb(784)}, 16, 784}), {8192});
  BOOST_TEST(r.state_block.n == 784u);
  BOOST_TEST(r.fine);
  BOOST_TEST(!r.draft_drop);
  BOOST_TEST(chunk_rules(make({{fa(16), mb(16, true)}, 16, 16}), {8192}).state_block.n == 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
