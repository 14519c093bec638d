#include "plugin/coordinator/block_pool.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <deque>
#include <map>
#include <set>

#include "plugin/coordinator/test_support.h"
#include "plugin/core/fault.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

BlockPool make_pool(std::uint64_t blocks, std::size_t events = 0, std::uint64_t aliases = 64) {
  return std::move(BlockPool::make({{blocks}, 16, aliases, events})).value();
}

std::vector<BlockId> take(BlockPool& pool, std::size_t n) {
  std::vector<BlockId> out(n);
  BOOST_REQUIRE((pool.allocate(out) == Code::ok));
  return out;
}

std::vector<BlockId> queue(const BlockPool& pool) {
  std::vector<BlockId> out;
  for (BlockId b = pool.first_free(); b != no_block; b = pool.next_free(b)) out.push_back(b);
  return out;
}

BlockKey key_of(const Keys& keys, std::uint64_t unit, std::uint64_t end, GroupId g = 0) {
  return {g, keys.at(unit), {end}, {16}, nullptr};
}

using Ids = std::vector<BlockId>;

BOOST_AUTO_TEST_SUITE(block_pool)

BOOST_AUTO_TEST_CASE(the_null_block_is_taken_and_blocks_come_in_id_order) {
  BlockPool pool = make_pool(4);
  BOOST_TEST(pool.free_blocks().n == 3u);
  BOOST_TEST(pool.used_blocks().n == 1u);
  BOOST_TEST(take(pool, 3) == (Ids{1, 2, 3}));
  Ids more(1);
  BOOST_TEST((pool.allocate(more) == Code::full));
  BOOST_TEST(pool.free_blocks().n == 0u);
}

BOOST_AUTO_TEST_CASE(a_pool_below_two_blocks_is_refused) {
  for (const std::uint64_t n : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    const Result<BlockPool> r = BlockPool::make({{n}, 16, 0, 0});
    BOOST_TEST(!r.ok());
    BOOST_TEST(r.error().text.find(std::to_string(n)) != std::string::npos);
  }
  BOOST_TEST(!BlockPool::make({{8}, 4, 0, 0}).ok());
}

BOOST_AUTO_TEST_CASE(freed_blocks_queue_as_measured) {
  BlockPool pool = make_pool(8);  // [1k,2k,3,4] freed in reverse -> 4,3,5,6,7,2,1
  const Keys keys(2);
  const Ids ids = take(pool, 4);
  BOOST_TEST((pool.insert_key(1, key_of(keys, 0, 16)) == Code::ok));
  BOOST_TEST((pool.insert_key(2, key_of(keys, 1, 32)) == Code::ok));
  BOOST_TEST((pool.free(Ids{4, 3, 2, 1}) == Code::ok));
  BOOST_TEST(queue(pool) == (Ids{4, 3, 5, 6, 7, 2, 1}));
  BOOST_TEST(pool.verify().ok());
}

BOOST_AUTO_TEST_CASE(a_prefix_freed_tail_first_loses_its_tail_first) {
  BlockPool pool = make_pool(5);  // T-3, CW-2 on the device side
  const Keys keys(4);
  const Ids ids = take(pool, 4);
  for (std::uint64_t i = 0; i < 4; ++i)
    BOOST_TEST((pool.insert_full(ids[i], key_of(keys, i, 16 * (i + 1))) == Code::ok));
  BOOST_TEST((pool.free(Ids{ids[3], ids[2], ids[1], ids[0]}) == Code::ok));
  BOOST_TEST(take(pool, 1) == (Ids{ids[3]}));
  BOOST_TEST(pool.find(0, keys.at(3)) == no_slot);
  for (std::uint64_t i = 0; i < 3; ++i) BOOST_TEST(pool.find(0, keys.at(i)) == ids[i]);
  BOOST_TEST(pool.evictions() == 1u);
}

BOOST_AUTO_TEST_CASE(touching_takes_a_block_out_of_the_queue) {
  BlockPool pool = make_pool(4);
  const Keys keys(1);
  const Ids ids = take(pool, 1);
  BOOST_TEST((pool.insert_key(ids[0], key_of(keys, 0, 16)) == Code::ok));
  BOOST_TEST((pool.free(ids) == Code::ok));
  BOOST_TEST((pool.touch(Ids{ids[0], null_block, ids[0]}) == Code::ok));
  BOOST_TEST(pool.references(ids[0]) == 2u);
  BOOST_TEST(queue(pool) == (Ids{2, 3}));
  BOOST_TEST((pool.free(ids) == Code::ok));
  BOOST_TEST(pool.references(ids[0]) == 1u);
  BOOST_TEST((pool.free(ids) == Code::ok));
  BOOST_TEST(queue(pool) == (Ids{2, 3, 1}));
}

BOOST_AUTO_TEST_CASE(wrong_ids_are_refused_and_change_nothing) {
  BlockPool pool = make_pool(4);
  const Keys keys(1);
  const Ids ids = take(pool, 2);
  BOOST_TEST((pool.touch(Ids{1, 4}) == Code::arg));
  BOOST_TEST(pool.references(1) == 1u);
  BOOST_TEST((pool.free(Ids{1, 2, 3}) == Code::arg));  // 3 has no reference
  BOOST_TEST((pool.free(Ids{1, 1}) == Code::arg));
  BOOST_TEST(pool.references(1) == 1u);
  BOOST_TEST((pool.insert_key(null_block, key_of(keys, 0, 16)) == Code::arg));
  BOOST_TEST((pool.insert_full(9, key_of(keys, 0, 16)) == Code::arg));
  BOOST_TEST((pool.evict(Ids{9}) == Code::arg));
  BOOST_TEST((pool.move_keys(0, 1) == Code::arg));
  BOOST_TEST((pool.free(Ids{null_block}) == Code::ok));
  BOOST_TEST(pool.verify().ok());
}

BOOST_AUTO_TEST_CASE(a_second_key_becomes_secondary_and_leaves_with_the_block) {
  BlockPool pool = make_pool(3);
  const Keys keys(3);
  const Ids ids = take(pool, 1);
  BOOST_TEST((pool.insert_key(ids[0], key_of(keys, 0, 16)) == Code::ok));
  BOOST_TEST((pool.insert_key(ids[0], key_of(keys, 1, 8)) == Code::ok));
  BOOST_TEST((pool.insert_key(ids[0], key_of(keys, 1, 8)) == Code::more));
  BOOST_TEST(pool.primary(ids[0]).end.n == 16u);
  BOOST_TEST((pool.free(ids) == Code::ok));
  take(pool, 2);
  BOOST_TEST(pool.find(0, keys.at(0)) == no_slot);
  BOOST_TEST(pool.find(0, keys.at(1)) == no_slot);
  BOOST_TEST(!pool.has_keys(ids[0]));
}

BOOST_AUTO_TEST_CASE(a_full_block_is_promoted_over_fewer_tokens_only) {
  BlockPool pool = make_pool(3, 16);
  const Keys keys(4);
  take(pool, 1);
  BOOST_TEST((pool.insert_tail(1, key_of(keys, 0, 6)) == Code::ok));
  BOOST_TEST((pool.insert_full(1, key_of(keys, 1, 8)) == Code::ok));
  BOOST_TEST(pool.find(0, keys.at(0)) == no_slot);
  BOOST_TEST(pool.primary(1).end.n == 8u);
  BOOST_TEST((pool.insert_full(1, key_of(keys, 2, 8)) == Code::state));
  BOOST_TEST((pool.insert_full(1, key_of(keys, 1, 8)) == Code::more));
  std::vector<BlockEvent> events(8);
  BOOST_REQUIRE(pool.take_events(events) == 3u);  // stored, removed(old), stored(new)
  BOOST_TEST((events[0].kind == BlockEventKind::stored));
  BOOST_TEST((events[1].kind == BlockEventKind::removed));
  BOOST_TEST(events[1].end.n == 6u);
  BOOST_TEST((events[2].kind == BlockEventKind::stored));
  BOOST_TEST(events[2].end.n == 8u);
}

BOOST_AUTO_TEST_CASE(a_tail_key_yields_to_more_and_stands_beside_more) {
  BlockPool pool = make_pool(3);
  const Keys keys(4);
  take(pool, 1);
  BOOST_TEST((pool.insert_tail(1, key_of(keys, 0, 2)) == Code::ok));
  BOOST_TEST((pool.insert_tail(1, key_of(keys, 1, 6)) == Code::ok));
  BOOST_TEST(pool.find(0, keys.at(0)) == no_slot);
  BOOST_TEST((pool.insert_full(1, key_of(keys, 2, 8)) == Code::ok));
  BOOST_TEST((pool.insert_tail(1, key_of(keys, 1, 6)) == Code::ok));
  BOOST_TEST(pool.primary(1).end.n == 8u);
  BOOST_TEST(pool.find(0, keys.at(1)) == 1u);
  BOOST_TEST((pool.insert_tail(1, key_of(keys, 1, 6)) == Code::more));
}

BOOST_AUTO_TEST_CASE(keys_move_to_an_unkeyed_block_without_events) {
  BlockPool pool = make_pool(4, 8);
  const Keys keys(3);
  take(pool, 3);
  BOOST_TEST((pool.insert_key(1, key_of(keys, 0, 6)) == Code::ok));
  BOOST_TEST((pool.insert_key(2, key_of(keys, 1, 8)) == Code::ok));
  std::vector<BlockEvent> events(8);
  pool.take_events(events);
  BOOST_TEST((pool.move_keys(1, 2) == Code::state));
  BOOST_TEST((pool.move_keys(1, 3) == Code::ok));
  BOOST_TEST(pool.find(0, keys.at(0)) == 3u);
  BOOST_TEST(pool.primary(3).end.n == 6u);
  BOOST_TEST(!pool.has_keys(1));
  BOOST_TEST(pool.take_events(events) == 0u);
}

BOOST_AUTO_TEST_CASE(evicting_drops_keys_but_no_references) {
  BlockPool pool = make_pool(3, 8);
  const Keys keys(2);
  take(pool, 1);
  BOOST_TEST((pool.insert_key(1, key_of(keys, 0, 16)) == Code::ok));
  BOOST_TEST((pool.evict(Ids{1, null_block}) == Code::ok));
  BOOST_TEST(pool.references(1) == 1u);
  BOOST_TEST(pool.find(0, keys.at(0)) == no_slot);
  std::vector<BlockEvent> events(8);
  BOOST_REQUIRE(pool.take_events(events) == 2u);
  BOOST_TEST((events[1].kind == BlockEventKind::removed));
  BOOST_TEST(events[1].block == 1u);
}

BOOST_AUTO_TEST_CASE(reset_needs_every_block_free) {
  BlockPool pool = make_pool(3, 8);
  const Keys keys(1);
  take(pool, 1);
  BOOST_TEST((pool.insert_key(1, key_of(keys, 0, 16)) == Code::ok));
  BOOST_TEST(!pool.reset());
  BOOST_TEST(pool.find(0, keys.at(0)) == 1u);
  BOOST_TEST((pool.free(Ids{1}) == Code::ok));
  BOOST_TEST(pool.reset());
  BOOST_TEST(pool.find(0, keys.at(0)) == no_slot);
  std::vector<BlockEvent> events(8);
  BOOST_REQUIRE(pool.take_events(events) == 2u);
  BOOST_TEST((events[1].kind == BlockEventKind::cleared));
  BOOST_TEST(pool.verify().ok());
}

BOOST_AUTO_TEST_CASE(only_a_private_unkeyed_block_is_writable) {
  BlockPool pool = make_pool(4);
  const Keys keys(1);
  take(pool, 2);
  BOOST_TEST(!pool.writable(null_block));
  BOOST_TEST(pool.writable(1));
  BOOST_TEST((pool.insert_key(1, key_of(keys, 0, 16)) == Code::ok));
  BOOST_TEST(!pool.writable(1));
  BOOST_TEST((pool.touch(Ids{2}) == Code::ok));
  BOOST_TEST(!pool.writable(2));
  BOOST_TEST(!pool.writable(3));
}

BOOST_AUTO_TEST_CASE(events_carry_prefix_and_parent_and_losses_are_counted) {
  BlockPool pool = make_pool(8, 2);
  const Keys keys(4);
  take(pool, 4);
  for (std::uint64_t i = 0; i < 4; ++i) {
    BlockKey key = key_of(keys, i, 16 * (i + 1));
    if (i > 0) key.parent = keys.at(i - 1);
    BOOST_TEST((pool.insert_key(static_cast<BlockId>(i + 1), key) == Code::ok));
  }
  BOOST_TEST(pool.events_lost() == 2u);
  std::vector<BlockEvent> events(1);
  BOOST_REQUIRE(pool.take_events(events) == 1u);
  BOOST_TEST(events[0].end.n == 48u);
  BOOST_TEST(events[0].span.n == 16u);
  BOOST_TEST(events[0].has_parent);
  BOOST_TEST(std::memcmp(events[0].parent, keys.at(1), 16) == 0);
  BOOST_TEST(std::memcmp(events[0].key, keys.at(2), 16) == 0);
  BOOST_TEST(pool.take_events(events) == 1u);
  BOOST_TEST(pool.take_events(events) == 0u);
}

BOOST_AUTO_TEST_CASE(an_unlimited_pool_grows_and_never_evicts) {
  BlockPool pool = make_pool(0);
  BOOST_TEST(pool.unlimited());
  const Keys keys(10000);
  for (std::uint64_t i = 0; i < 10000; ++i) {
    const Ids ids = take(pool, 1);
    BOOST_REQUIRE((pool.insert_full(ids[0], key_of(keys, i, 16)) == Code::ok));
    BOOST_REQUIRE((pool.free(ids) == Code::ok));
  }
  for (std::uint64_t i = 0; i < 10000; ++i) BOOST_REQUIRE(pool.find(0, keys.at(i)) != no_slot);
  BOOST_TEST(pool.evictions() == 0u);
  BOOST_TEST(pool.used_blocks().n == 1u);
  const Ids ids = take(pool, 3);
  BOOST_TEST((pool.free(ids) == Code::ok));
  BOOST_TEST(take(pool, 3) == ids);  // unkeyed blocks are used again
  BOOST_TEST(pool.verify().ok());
}

#if defined(KVC_FAULT_POINTS)
// T-7, CW-12: the block at the mark is used and comes back at the end of the queue; those that were
// in front of it, and those that came meanwhile, are met all the same.
BOOST_AUTO_TEST_CASE(no_block_slips_past_the_mark_when_the_one_at_it_leaves) {
  BlockPool pool = make_pool(9);
  const Keys keys(8);
  const Ids all = take(pool, 8);
  for (const BlockId b : all)
    BOOST_REQUIRE((pool.insert_key(b, key_of(keys, b - 1, 16)) == Code::ok));
  BOOST_REQUIRE((pool.free(Ids{1, 2, 3, 4}) == Code::ok));
  BOOST_TEST(pool.visited_blocks().n == 0u);
  BOOST_TEST(pool.visit_next() == 1u);
  BOOST_TEST(pool.visit_next() == 2u);
  BOOST_REQUIRE((pool.touch(Ids{2}) == Code::ok));
  BOOST_REQUIRE((pool.free(Ids{2, 5, 6}) == Code::ok));
  BOOST_TEST(queue(pool) == (Ids{1, 3, 4, 2, 5, 6}));
  for (const BlockId b : {3u, 4u, 2u, 5u, 6u}) BOOST_TEST(pool.visit_next() == b);
  BOOST_TEST(pool.visit_next() == no_block);
  BOOST_REQUIRE((pool.free(Ids{7}) == Code::ok));
  BOOST_TEST(!pool.visited(7));
  BOOST_TEST(pool.visit_next() == 7u);
  BOOST_TEST(pool.verify().ok());
}

BOOST_AUTO_TEST_CASE(borrowed_blocks_go_back_behind_the_visited_ones) {
  BlockPool pool = make_pool(7);
  const Keys keys(8);
  for (const BlockId b : take(pool, 6))
    BOOST_REQUIRE((pool.insert_key(b, key_of(keys, b - 1, 16)) == Code::ok));
  BOOST_REQUIRE((pool.free(Ids{1, 2, 3, 4, 5}) == Code::ok));
  for (int i = 0; i < 3; ++i) static_cast<void>(pool.visit_next());
  BOOST_REQUIRE((pool.touch(Ids{2, 3}) == Code::ok));
  BOOST_REQUIRE((pool.free_to_mark(Ids{2, 3}) == Code::ok));
  BOOST_TEST(queue(pool) == (Ids{1, 2, 3, 4, 5}));
  BOOST_TEST(pool.visit_next() == 4u);
  BOOST_TEST((pool.free_to_mark(Ids{6, 1}) == Code::arg));
  BOOST_TEST(pool.references(6) == 1u);
  BOOST_TEST(pool.verify().ok());
}

BOOST_AUTO_TEST_CASE(a_failed_allocation_changes_nothing) {
  BlockPool pool = make_pool(4);
  faults().clear();
  faults().arm("block_pool.allocate", 1);
  BOOST_TEST(take(pool, 1) == (Ids{1}));
  Ids ids(1);
  BOOST_TEST((pool.allocate(ids) == Code::full));
  BOOST_TEST(faults().tripped());
  BOOST_TEST(pool.free_blocks().n == 2u);
  BOOST_TEST(take(pool, 2) == (Ids{2, 3}));
  faults().clear();
}
#endif

// The slow twin, from R-401..R-413: the queue is a deque, keys are lists.
struct Twin {
  struct Key {
    GroupId group;
    std::uint64_t unit;
    std::uint64_t end;
    auto operator<=>(const Key&) const = default;
  };
  std::deque<BlockId> queue;
  std::map<BlockId, std::uint32_t> refs;
  std::map<BlockId, std::vector<Key>> keys;
  std::vector<std::pair<Key, BlockId>> inserted;  // order of insertion over the pool
  std::set<BlockId> seen;                         // queued and visited

  void drop(BlockId b) {
    keys[b].clear();
    std::erase_if(inserted, [&](const auto& one) { return one.second == b; });
  }
  bool add(BlockId b, Key k) {
    for (const Key& own : keys[b])
      if (own.group == k.group && own.unit == k.unit) return false;
    keys[b].push_back(k);
    inserted.emplace_back(k, b);
    return true;
  }
  [[nodiscard]] bool has(BlockId b, Key k) {
    return std::any_of(keys[b].begin(), keys[b].end(),
                       [&](const Key& o) { return o.group == k.group && o.unit == k.unit; });
  }
  [[nodiscard]] BlockId find(GroupId g, std::uint64_t unit) const {
    for (const auto& [k, b] : inserted)
      if (k.group == g && k.unit == unit) return b;
    return no_block;
  }
  void free(const Ids& ids) {
    std::vector<BlockId> bare;
    for (const BlockId b : ids) {
      if (b == null_block || --refs[b] != 0) continue;
      if (keys[b].empty())
        bare.push_back(b);
      else
        queue.push_back(b);
    }
    queue.insert(queue.begin(), bare.begin(), bare.end());
    seen.insert(bare.begin(), bare.end());
  }
  void leave(BlockId b) {
    std::erase(queue, b);
    seen.erase(b);
  }
  void free_to_mark(const Ids& ids) {
    for (const BlockId b : ids) {
      if (b == null_block || --refs[b] != 0) continue;
      const auto at = std::find_if(queue.begin(), queue.end(),
                                   [&](BlockId other) { return !seen.contains(other); });
      queue.insert(at, b);
      seen.insert(b);
    }
  }
  BlockId visit_next() {
    for (const BlockId b : queue) {
      if (seen.insert(b).second) return b;
    }
    return no_block;
  }
};

struct PoolWorld {
  BlockPool pool;
  Twin twin;
  Keys keys{24};
  Prng rng;
  std::vector<Ids> live;

  explicit PoolWorld(std::uint64_t blocks, std::uint64_t s)
      : pool(make_pool(blocks, 0, 4096)), rng(s) {
    for (BlockId b = 1; b < blocks; ++b) twin.queue.push_back(b);
    twin.seen.insert(twin.queue.begin(), twin.queue.end());
  }
  void allocate() {
    Ids ids(1 + rng.below(4));
    const bool fits = ids.size() <= twin.queue.size();
    BOOST_REQUIRE((pool.allocate(ids) == (fits ? Code::ok : Code::full)));
    if (!fits) return;
    for (const BlockId b : ids) {
      BOOST_REQUIRE(b == twin.queue.front());
      twin.leave(b);
      twin.drop(b);
      twin.refs[b] = 1;
    }
    live.push_back(ids);
  }
  void free_one() {
    if (live.empty()) return;
    const std::size_t i = rng.below(live.size());
    Ids ids = live[i];
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(i));
    if (rng.chance(1, 2)) std::reverse(ids.begin(), ids.end());
    if (rng.chance(1, 4)) ids.push_back(null_block);
    if (rng.chance(1, 3)) {
      BOOST_REQUIRE((pool.free_to_mark(ids) == Code::ok));
      twin.free_to_mark(ids);
      return;
    }
    BOOST_REQUIRE((pool.free(ids) == Code::ok));
    twin.free(ids);
  }
  void touch_hit() {
    const auto g = static_cast<GroupId>(rng.below(2));
    const std::uint64_t unit = rng.below(24);
    const BlockId b = pool.find(g, keys.at(unit));
    BOOST_REQUIRE(b == twin.find(g, unit));
    if (b == no_block) return;
    BOOST_REQUIRE((pool.touch(Ids{b}) == Code::ok));
    if (twin.refs[b]++ == 0) twin.leave(b);
    live.push_back({b});
  }
  void key_block() {
    if (live.empty()) return;
    const Ids& ids = live[rng.below(live.size())];
    const BlockId b = ids[rng.below(ids.size())];
    const Twin::Key k{static_cast<GroupId>(rng.below(2)), rng.below(24), 1 + rng.below(8)};
    const BlockKey key{k.group, keys.at(k.unit), {k.end}, {16}, nullptr};
    const bool had = twin.has(b, k);
    const bool fewer = !twin.keys[b].empty() && twin.keys[b].front().end < k.end;
    switch (rng.below(3)) {
      case 0:
        BOOST_REQUIRE((pool.insert_key(b, key) == (had ? Code::more : Code::ok)));
        twin.add(b, k);
        return;
      case 1: {
        const bool legal = twin.keys[b].empty() || fewer;
        BOOST_REQUIRE((pool.insert_full(b, key) == (had     ? Code::more
                                                    : legal ? Code::ok
                                                            : Code::state)));
        if (had || !legal) return;
        twin.drop(b);
        twin.add(b, k);
        return;
      }
      default:
        BOOST_REQUIRE((pool.insert_tail(b, key) == (had ? Code::more : Code::ok)));
        if (had) return;
        if (fewer) twin.drop(b);
        twin.add(b, k);
    }
  }
  void compare() {
    BOOST_TEST_INFO_SCOPE(pool.verify().text);
    BOOST_REQUIRE(pool.verify().ok());
    BOOST_REQUIRE(queue(pool) == Ids(twin.queue.begin(), twin.queue.end()));
    BOOST_REQUIRE(pool.visited_blocks().n == twin.seen.size());
    for (BlockId b = 0; b < pool.blocks().n; ++b)
      BOOST_REQUIRE(pool.visited(b) == twin.seen.contains(b));
    for (GroupId g = 0; g < 2; ++g)
      for (std::uint64_t u = 0; u < 24; ++u)
        BOOST_REQUIRE(pool.find(g, keys.at(u)) == twin.find(g, u));
  }
  void step() {
    switch (rng.below(8)) {
      case 6:
        if (rng.chance(1, 40)) {
          pool.rewind_visits();
          twin.seen.clear();
        }
        break;
      case 7:
        BOOST_REQUIRE(pool.visit_next() == twin.visit_next());
        break;
      case 0:
        allocate();
        break;
      case 1:
        free_one();
        break;
      case 2:
        touch_hit();
        break;
      case 3: {
        const auto b = static_cast<BlockId>(1 + rng.below(pool.blocks().n - 1));
        if (!rng.chance(1, 4)) break;
        BOOST_REQUIRE((pool.evict(Ids{b}) == Code::ok));
        twin.drop(b);
        break;
      }
      default:
        key_block();
    }
  }
};

BOOST_AUTO_TEST_CASE(the_pool_agrees_with_lists_after_every_random_step) {
  for (std::uint64_t round = 0; round < 20; ++round) {
    const std::uint64_t used = seed_or(20260917) + round;
    BOOST_TEST_CONTEXT(repeat_command(used)) {
      PoolWorld w(4 + round, used);
      for (int i = 0; i < 400; ++i) {
        w.step();
        w.compare();
      }
      while (!w.live.empty()) w.free_one();
      BOOST_TEST(w.pool.used_blocks().n == 1u);
      BOOST_TEST(w.pool.reset());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
