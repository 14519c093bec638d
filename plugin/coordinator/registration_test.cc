#include "plugin/coordinator/registration.h"

#include <boost/test/unit_test.hpp>

#include "plugin/coordinator/test_support.h"

namespace kvc {
namespace {

using namespace test;

// A request that computes in chunks on a fresh pool: attention and window tables are positional and
// full, align-mode states live at the position of the chunk's end (the table a real engine leaves
// behind).
class Producer {
 public:
  Producer(const Geometry& g, BlockPool& pool, const Keys& keys, std::uint64_t prompt,
           std::uint64_t junction = 0)
      : g_(g),
        pool_(pool),
        keys_(keys),
        prompt_(prompt),
        junction_(junction),
        tables_(g.groups()),
        cursors_(g.groups()) {}

  // Registers for `computed` tokens; `total` tokens have keys. Returns the tail keyed by each
  // group, 0 for none.
  std::vector<std::uint64_t> compute(std::uint64_t computed, std::uint64_t total = 0) {
    std::vector<std::uint64_t> tails;
    const std::uint64_t known = std::max({total, computed, prompt_});
    for (GroupId group = 0; group < g_.groups(); ++group) {
      grow(group, computed);
      const RegisterInput in{group,          keys_.first(known / g_.hash_unit().n),
                             tables_[group], {computed},
                             {prompt_},      {junction_}};
      RegisterOutput out;
      BOOST_REQUIRE((register_blocks(g_, pool_, in, cursors_[group], out) == Code::ok));
      tails.push_back(out.tail.n);
    }
    BOOST_REQUIRE(pool_.verify().ok());
    return tails;
  }
  // A mid-chunk state is exported: the block at `end` exists too.
  void export_state(GroupId group, std::uint64_t end) {
    put(group, (end - 1) / g_.block_tokens(group).n);
  }
  [[nodiscard]] BlockId block(GroupId group, std::uint64_t position) const {
    return tables_[group][position];
  }
  [[nodiscard]] std::uint64_t cursor(GroupId group) const { return cursors_[group]; }

 private:
  void put(GroupId group, std::uint64_t position) {
    std::vector<BlockId>& table = tables_[group];
    if (table.size() <= position) table.resize(position + 1, null_block);
    if (table[position] != null_block) return;
    BOOST_REQUIRE((pool_.allocate({&table[position], 1}) == Code::ok));
  }
  // the state at a tail goes on in its block; its cache entry moves to a copy first.
  void leave_tail(GroupId group, std::uint64_t next_position) {
    std::vector<BlockId>& table = tables_[group];
    if (table.empty() || states_[group] % g_.block_tokens(group).n == 0) return;
    BlockId& old = table.back();
    if (pool_.has_keys(old)) {
      std::vector<BlockId> copy(1);
      BOOST_REQUIRE((pool_.allocate(copy) == Code::ok));
      BOOST_REQUIRE((pool_.move_keys(old, copy[0]) == Code::ok));
      BOOST_REQUIRE((pool_.free(copy) == Code::ok));
    }
    if (table.size() - 1 == next_position) return;
    BOOST_REQUIRE((pool_.free({&old, 1}) == Code::ok));
    old = null_block;
  }
  void grow(GroupId group, std::uint64_t computed) {
    if (!g_.group(group).cacheable || computed == 0) return;
    const std::uint64_t last = g_.end_position(group, {computed}) - 1;
    const bool align = g_.is_state_align(group);
    if (align && states_[group] != computed) leave_tail(group, last);
    for (std::uint64_t p = align ? last : 0; p <= last; ++p) put(group, p);
    states_[group] = computed;
  }

  const Geometry& g_;
  BlockPool& pool_;
  const Keys& keys_;
  std::uint64_t prompt_;
  std::uint64_t junction_;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<std::uint64_t> cursors_;
  std::vector<std::uint64_t> states_ =
      std::vector<std::uint64_t>(g_.groups());  // tokens of the running state
};

struct Engine {
  Geometry g;
  BlockPool pool = std::move(BlockPool::make({{4096}, 16, 256, 0})).value();
  Keys keys{4096};

  explicit Engine(const Layout& layout) : g(make(layout)) {}
  Producer producer(std::uint64_t prompt, std::uint64_t junction = 0) {
    return {g, pool, keys, prompt, junction};
  }
  // What a later request of the same first `n` tokens hits.
  Hit resend(std::uint64_t n) const {
    Hit hit;
    BOOST_REQUIRE((lookup(g, pool, keys.first(n / g.hash_unit().n), {}, {n - 1}, hit) == Code::ok));
    return hit;
  }
  [[nodiscard]] bool cached(GroupId group, std::uint64_t end) const {
    return pool.find(group, keys.at(end / g.hash_unit().n - 1)) != no_slot;
  }
};

BOOST_AUTO_TEST_SUITE(registration)

BOOST_AUTO_TEST_CASE(a_prompt_of_whole_hash_units_keeps_a_tail_that_can_be_hit) {
  Engine one({{fa(2), mb(4)}, 2, 4});  // R-332 [run]: 6 tokens in one chunk -> 0
  one.producer(6).compute(6);
  BOOST_TEST(one.resend(8).tokens.n == 0u);
  Engine two({{fa(2), mb(4)}, 2, 4});  // chunks 4 + 2 -> 4
  Producer p = two.producer(6);
  p.compute(4);
  p.compute(6);
  BOOST_TEST(two.resend(8).tokens.n == 4u);
  Engine seven({{fa(2), mb(4)}, 2, 4});  // prompt 7, chunk 6 -> 6
  seven.producer(7).compute(6);
  BOOST_TEST(seven.resend(8).tokens.n == 6u);
}

BOOST_AUTO_TEST_CASE(tier_and_device_share_the_tail_of_every_prompt) {
  // T-5, CW-4: what the device registers is what partial_tail names, for both groups.
  const std::vector<std::pair<std::uint64_t, std::uint64_t>> table{
      {96, 80}, {97, 96}, {100, 96}, {112, 96}};
  for (const auto& [prompt, tail] : table) {
    Engine e({{fa(64), mb(64)}, 16, 64});
    Producer p = e.producer(prompt);
    p.compute(64);
    const std::vector<std::uint64_t> tails = p.compute(tail);
    BOOST_TEST(tails == (std::vector<std::uint64_t>{tail, tail}));
    p.compute(prompt);
    BOOST_TEST(e.resend(prompt + 16).tokens.n == tail);
    BOOST_TEST(e.resend(prompt).tokens.n == tail);
  }
}

BOOST_AUTO_TEST_CASE(a_partial_tail_is_hit_inside_blocks) {
  Engine e({{fa(2), mb(4)}, 2, 4});  // 9.3 hybrid_mamba_align_partial_hash_hit, P = 7
  Producer p = e.producer(7);
  p.compute(6);
  const Hit hit = e.resend(9);
  BOOST_TEST(hit.tokens.n == 6u);
  BOOST_TEST(hit.groups[0].list_length() == 3u);
  BOOST_TEST(hit.groups[1].list_length() == 2u);
  BOOST_TEST(e.pool.primary(p.block(1, 1)).end.n == 6u);
}

BOOST_AUTO_TEST_CASE(the_tail_stays_beside_the_key_of_the_filled_block) {
  Engine e({{fa(4), mb(4)}, 2, 4});  // R-333 [run]
  Producer p = e.producer(7);
  p.compute(6);
  const BlockId block = p.block(0, 1);
  BOOST_TEST(e.pool.primary(block).end.n == 6u);
  p.compute(8, 8);
  BOOST_TEST(e.pool.primary(block).end.n == 8u);
  BOOST_TEST(e.pool.find(0, e.keys.at(2)) == block);
  BOOST_TEST(e.pool.index().keys_of(block) == 2u);
  BOOST_TEST(e.resend(9).groups[0].list_length() == 2u);
}

BOOST_AUTO_TEST_CASE(attention_and_state_tails_both_lie_inside_their_blocks) {
  Engine e({{fa(4), mb(4)}, 2, 4});  // 9.3 hybrid_full_attention_partial_hash_hit_uses_cow, P = 7
  e.producer(7).compute(6);
  const Hit hit = e.resend(9);
  BOOST_TEST(hit.tokens.n == 6u);
  BOOST_TEST(hit.groups[0].list_length() == 2u);
  BOOST_TEST(hit.groups[1].list_length() == 2u);
}

BOOST_AUTO_TEST_CASE(partial_hits_work_under_context_parallel) {
  const std::vector<std::pair<std::uint32_t, std::uint64_t>> table{{1, 2}, {2, 1}, {4, 1}};
  for (const auto& [cp, attention] :
       table) {  // 9.3 hybrid_partial_hash_hit_uses_cow_under_dcp, P = 7
    Engine e({{fa(4), mb(4)}, 2, std::uint64_t{4} * cp, cp});
    e.producer(7).compute(6);
    const Hit hit = e.resend(9);
    BOOST_TEST(hit.tokens.n == 6u);
    BOOST_TEST(hit.groups[0].list_length() == attention);
    BOOST_TEST(hit.groups[1].list_length() == 2u);
  }
}

BOOST_AUTO_TEST_CASE(a_replicated_snapshot_is_resumed_under_context_parallel) {
  for (const std::uint32_t cp :
       {2u, 4u}) {  // 9.3 dcp_partial_hit_resumes_on_replicated_mamba_snapshot
    Engine e({{fa(4), mb(4)}, 4, std::uint64_t{4} * cp, cp});
    BOOST_TEST(e.g.hit_alignment().n == 4u);
    e.producer(13).compute(12);
    const Hit hit = e.resend(14);
    BOOST_TEST(hit.tokens.n == 12u);
    BOOST_TEST(hit.groups[0].list_length() == (cp == 2 ? 2u : 1u));
    BOOST_TEST(hit.groups[1].list_length() == 3u);
    Engine whole({{fa(4), mb(4)}, 4, std::uint64_t{4} * cp, cp});
    whole.producer(12).compute(12);
    BOOST_TEST(whole.resend(12).tokens.n == 0u);
  }
}

BOOST_AUTO_TEST_CASE(draft_attention_keeps_hits_within_what_it_registered) {
  Engine e({{fa(4, true), mb(4)},
            2,
            4});  // 9.3 hybrid_partial_hit_with_eagle_stays_within_group_blocks: 4 + 2, +2
  Producer p = e.producer(6);
  p.compute(4);
  p.compute(6);
  BOOST_TEST(e.resend(8).tokens.n == 4u);
  Engine cp(
      {{fa(4, true), mb(4)}, 2, 8, 2});  // 9.3 dcp_partial_hit_with_eagle_rewinds_one_hash_unit
  Producer q = cp.producer(6);
  q.compute(4);
  q.compute(6);
  const Hit hit = cp.resend(8);
  BOOST_TEST(hit.tokens.n == 4u);
  BOOST_TEST(hit.groups[0].list_length() == 1u);
  BOOST_TEST(hit.groups[1].list_length() == 1u);
  Engine tail({{fa(2, true), mb(4)},
               2,
               4});  // 9.3 mamba_partial_tail_hits_below_eagle_proof_boundary, 6 + 3
  Producer r = tail.producer(9);
  BOOST_TEST(r.compute(6)[1] == 6u);
  r.compute(9);
  BOOST_TEST(tail.resend(11).tokens.n == 6u);
}

BOOST_AUTO_TEST_CASE(a_window_group_with_drafts_turns_fine_hits_off) {
  Engine e({{fa(2), mb(8), sw(4, 4, true)},
            2,
            8});  // 9.3 hybrid_sliding_window_group_disables_partial_hash_hits
  Producer p = e.producer(12);
  p.compute(8);
  p.compute(12);
  const Hit hit = e.resend(14);
  BOOST_TEST(!e.g.fine_hits());
  BOOST_TEST(hit.tokens.n == 8u);
  BOOST_TEST(hit.groups[0].list_length() == 4u);
  BOOST_TEST(hit.groups[1].list_length() == 1u);
  BOOST_TEST(hit.groups[2].list_length() == 2u);
}

BOOST_AUTO_TEST_CASE(scratch_groups_keep_partial_hits) {
  Engine e(
      {{fa(2), mb(4), scratch(3)}, 2, 12});  // 9.3 opted_out_scratch_group_keeps_partial_hash_hits
  e.producer(7).compute(6);
  BOOST_TEST(e.resend(9).tokens.n == 6u);
}

BOOST_AUTO_TEST_CASE(a_shared_prefix_of_1536_tokens_hits_with_blocks_of_1152) {
  Engine e({{fa(1152), mb(1152), scratch(64)},
            128,
            1152});  // 9.3 kpool_tail_supports_128_token_partial_hash_hits
  Producer p = e.producer(1537);
  p.compute(1152);
  p.compute(1536);
  BOOST_TEST(e.resend(1700).tokens.n == 1536u);
}

BOOST_AUTO_TEST_CASE(retention_masks_states_as_measured) {
  struct Case {
    std::int64_t retention;
    std::vector<std::uint64_t> kept;
  };
  // R-338 [run]: prompt 16, h 2, chunks 8 + 8.
  for (const Case& c : {Case{8, {8, 16}}, Case{-1, {8, 16}}, Case{0, {}}}) {
    Engine e({{fa(2), mb(4)}, 2, 4, 1, true, true, c.retention});
    Producer p = e.producer(16);
    p.compute(8);
    p.compute(16);
    for (const std::uint64_t end : {4u, 8u, 12u, 16u})
      BOOST_TEST(e.cached(1, end) ==
                 (std::find(c.kept.begin(), c.kept.end(), end) != c.kept.end()));
    BOOST_TEST(e.cached(0, 16));
  }
}

BOOST_AUTO_TEST_CASE(semantic_boundaries_survive_retention_zero) {
  Engine dcp({{fa(2), mb(2)},
              2,
              8,
              4,
              true,
              true,
              0});  // 9.3 dcp_fine_hit_retention_uses_hash_alignment_without_eagle
  dcp.producer(7).compute(6);
  BOOST_TEST(dcp.resend(7).tokens.n == 6u);
  Engine eagle(
      {{fa(4, true), mb(4)}, 4, 4, 1, true, true, 0});  // 9.3 mamba_coarse_checkpoint_retained...,
                                                        // 4 + 5
  Producer p = eagle.producer(9);
  p.compute(4);
  p.compute(9);
  BOOST_TEST(eagle.cached(1, 4));
  BOOST_TEST(!eagle.cached(1, 8));
  BOOST_TEST(eagle.resend(11).tokens.n == 4u);
  Engine junction(
      {{fa(4), mb(8)}, 4, 8, 1, true, true, 0});  // the junction is a reachable boundary
  Producer q = junction.producer(41, 16);
  for (const std::uint64_t t : {8u, 16u, 24u, 40u}) q.compute(t);
  BOOST_TEST(!junction.cached(1, 8));
  BOOST_TEST(junction.cached(1, 16));
  BOOST_TEST(!junction.cached(1, 24));
  BOOST_TEST(junction.cached(1, 40));
}

BOOST_AUTO_TEST_CASE(an_exported_state_is_registered_under_its_own_end) {
  Engine e({{fa(16), mb(32)},
            16,
            32});  // 9.3 internal_checkpoint: 120 tokens, the block keyed at 112 only
  Producer p = e.producer(120);
  p.export_state(1, 112);
  p.compute(112);
  BOOST_TEST(e.cached(1, 112));
  BOOST_TEST(!e.cached(1, 96));
  p.compute(120);
  BOOST_TEST(e.resend(120).tokens.n == 112u);
}

BOOST_AUTO_TEST_CASE(null_and_unhashed_positions_are_left_out) {
  Engine e({{fa(16), sw(16, 32)}, 16, 16});
  std::vector<BlockId> table(4, null_block);
  BOOST_REQUIRE((e.pool.allocate({table.data() + 2, 2}) == Code::ok));
  std::uint64_t cursor = 0;
  RegisterOutput out;
  RegisterInput in{1, e.keys.first(3), table, {64}, {64}, {}};
  BOOST_TEST((register_blocks(e.g, e.pool, in, cursor, out) == Code::ok));
  BOOST_TEST(out.full_blocks == 1u);
  BOOST_TEST(cursor == 3u);  // position 3 waits for its key
  BOOST_TEST(e.cached(1, 48));
  in.keys = e.keys.first(4);
  BOOST_TEST((register_blocks(e.g, e.pool, in, cursor, out) == Code::ok));
  BOOST_TEST(e.cached(1, 64));
  BOOST_TEST(!e.cached(1, 16));
}

BOOST_AUTO_TEST_CASE(bad_tables_are_errors) {
  Engine e({{fa(16), mb(16)}, 16, 16});
  std::uint64_t cursor = 0;
  RegisterOutput out;
  std::vector<BlockId> table{1};
  RegisterInput in{0, e.keys.first(4), table, {64}, {64}, {}};
  BOOST_TEST((register_blocks(e.g, e.pool, in, cursor, out) == Code::arg));
  BOOST_TEST(cursor == 0u);
  table.assign(4, 99999);
  in.table = table;
  BOOST_TEST((register_blocks(e.g, e.pool, in, cursor, out) == Code::arg));
  in.group = 7;
  BOOST_TEST((register_blocks(e.g, e.pool, in, cursor, out) == Code::arg));
}

BOOST_AUTO_TEST_CASE(a_state_of_all_mode_keeps_no_tail_since_its_block_is_written_again) {
  Engine e({{fa(2), mb(4), mb(4, true)}, 2, 4});
  Producer p = e.producer(7);
  BOOST_TEST(p.compute(4) == (std::vector<std::uint64_t>{0, 0, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(p.compute(6) == (std::vector<std::uint64_t>{0, 6, 0}),
             boost::test_tools::per_element());
  BOOST_TEST(!e.pool.has_keys(p.block(2, 1)));
  BOOST_TEST(e.resend(9).tokens.n == 4u);
}

BOOST_AUTO_TEST_CASE(a_moved_tail_entry_is_hit_on_its_new_block) {
  Engine e(
      {{fa(2), mb(4)}, 2, 4});  // 9.3 hybrid_mamba_partial_tail_owner_continue_preserves_later_hit
  Producer p = e.producer(7);
  p.compute(6);
  std::vector<BlockId> copy(1);
  BOOST_REQUIRE((e.pool.allocate(copy) == Code::ok));
  BOOST_TEST((e.pool.move_keys(p.block(1, 1), copy[0]) == Code::ok));
  BOOST_TEST(!e.pool.has_keys(p.block(1, 1)));
  const Hit hit = e.resend(9);
  BOOST_TEST(hit.tokens.n == 6u);
  BOOST_TEST(hit.groups[1].slots.front() == copy[0]);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
