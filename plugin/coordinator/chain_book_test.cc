// The chain of the device pool: prefix_closed is exact whatever comes and goes in whatever order.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "plugin/coordinator/block_pool.h"
#include "plugin/coordinator/chain_book.h"
#include "plugin/coordinator/lookup.h"
#include "plugin/coordinator/slabs.h"
#include "plugin/coordinator/test_support.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

constexpr std::uint64_t block_tokens = 16;
constexpr std::uint64_t hash_tokens = 4;

// A forest of prefixes in units of 4 tokens: node i has a parent with one unit less. Blocks are the
// nodes of every fourth level, the others tails.
struct Forest {
  std::vector<std::uint64_t> key;                 // of node i
  std::vector<std::optional<std::size_t>> above;  // one unit less
  std::vector<std::uint64_t> units;               // 1..

  explicit Forest(std::mt19937_64& rng, std::size_t nodes) {
    for (std::size_t i = 0; i < nodes; ++i) {
      key.push_back(rng());
      const bool root = i == 0 || rng() % 16 == 0;
      // Mostly the newest: long paths.
      const std::size_t up = root ? 0 : (rng() % 4 != 0 ? i - 1 : rng() % i);
      above.push_back(root ? std::nullopt : std::optional(up));
      units.push_back(root ? 1 : units[up] + 1);
    }
  }
  [[nodiscard]] const std::byte* bytes(std::size_t node) const {
    return reinterpret_cast<const std::byte*>(&key[node]);
  }
  [[nodiscard]] std::uint64_t end(std::size_t node) const { return units[node] * hash_tokens; }
  [[nodiscard]] bool whole(std::size_t node) const { return end(node) % block_tokens == 0; }
  [[nodiscard]] std::optional<std::size_t> back(std::size_t node, std::uint64_t steps) const {
    std::optional<std::size_t> at = node;
    for (; at && steps > 0; --steps) at = above[*at];
    return at;
  }
  [[nodiscard]] std::vector<std::uint64_t> path(std::size_t node) const {
    std::vector<std::uint64_t> keys;
    for (std::optional<std::size_t> at = node; at; at = above[*at]) keys.push_back(key[*at]);
    std::reverse(keys.begin(), keys.end());
    return keys;
  }
};

// An index without the promises of another.
class Plain final : public KeyIndex {
 public:
  explicit Plain(const KeyIndex& index) : index_(index) {}
  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override {
    return index_.find(group, key);
  }
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override {
    index_.find_batch(group, keys, out);
  }

 private:
  const KeyIndex& index_;
};

BlockPool chained_pool(std::uint64_t blocks, std::uint64_t aliases = 0) {
  BlockPoolOptions o;
  o.blocks = {blocks};
  o.key_bytes = 8;
  o.aliases = aliases;
  o.chain = ChainSpec{0, {block_tokens}};
  return std::move(BlockPool::make(o)).value();
}

// A pool under random use, and what it should say, recounted from what it holds.
class World {
 public:
  World(std::uint64_t seed, std::uint64_t blocks, bool parents_known)
      : rng_(seed),
        forest_(rng_, 120),
        parents_known_(parents_known),
        geometry_(make({{fa(block_tokens), mb(block_tokens)}, hash_tokens, block_tokens})),
        pool_(chained_pool(blocks, blocks == 0 ? 0 : 8)) {}

  void step() {
    switch (rng_() % 16) {
      case 0:
        return evict_some();
      case 1:
        return move_some();
      case 2:
      case 3:
        return give_back();
      case 4:
        if (rng_() % 40 == 0 && owned_.empty()) {
          BOOST_REQUIRE(pool_.reset());
          parentless_.clear();
        }
        return;
      case 5:
      case 6:
        return key_block(rng_() % forest_.key.size(), false);
      default:
        return key_path();
    }
  }

  // Quadratic: every present whole block of the chain against every other.
  void check() {
    std::set<std::uint64_t> present;
    for (std::uint64_t b = 1; b < pool_.blocks().n; ++b)
      pool_.index().for_each_key(static_cast<BlockId>(b), [&](const SlotKey& k) {
        std::uint64_t key = 0;
        std::memcpy(&key, k.key, sizeof key);
        if (k.group == 0) present.insert(key);
      });
    std::erase_if(parentless_, [&](std::uint64_t key) { return present.count(key) == 0; });
    bool closed = true;
    for (std::size_t n = 0; n < forest_.key.size(); ++n) {
      if (!forest_.whole(n) || present.count(forest_.key[n]) == 0) continue;
      const auto before = forest_.back(n, block_tokens / hash_tokens);
      closed = closed && (!before || present.count(forest_.key[*before]) != 0);
    }
    closed = closed && parentless_.empty();
    BOOST_REQUIRE_EQUAL(pool_.prefix_closed(0), closed);
    BOOST_REQUIRE(!pool_.prefix_closed(1));
    ++(closed ? closed_ : open_);
    const Status sound = pool_.verify();
    BOOST_REQUIRE_MESSAGE(sound.ok(), sound.text);
    look();
  }

  [[nodiscard]] std::uint64_t closed() const { return closed_; }
  [[nodiscard]] std::uint64_t open() const { return open_; }

 private:
  void look() {
    const std::vector<std::uint64_t> path = forest_.path(rng_() % forest_.key.size());
    const KeyView keys{reinterpret_cast<const std::byte*>(path.data()), 8, path.size()};
    const std::uint64_t end = path.size() * hash_tokens;
    const Tokens start{rng_() % 2 == 0 ? 0 : rng_() % (end / block_tokens + 1) * block_tokens};
    Hit brief;
    Hit plain;
    KVC_CHECK(lookup(geometry_, pool_, keys, start, {end}, brief) == Code::ok);
    KVC_CHECK(lookup(geometry_, Plain(pool_), keys, start, {end}, plain) == Code::ok);
    list_slots(geometry_, pool_, keys, brief);
    BOOST_REQUIRE_EQUAL(difference(brief, plain), "");
  }

  std::optional<BlockId> take() {
    BlockId block = no_block;
    if (pool_.allocate({&block, 1}) != Code::ok) return std::nullopt;
    owned_.push_back(block);
    return block;
  }
  void insert(BlockId block, std::size_t node, GroupId group, bool full) {
    const std::uint64_t steps = forest_.whole(node) ? block_tokens / hash_tokens : 1;
    const auto before = forest_.back(node, steps);
    BlockKey key{group, forest_.bytes(node), {forest_.end(node)}, {steps * hash_tokens}, nullptr};
    const bool tell = parents_known_ || rng_() % 64 != 0;
    if (before && tell) key.parent = forest_.bytes(*before);
    const bool fresh = pool_.find(group, key.key) == no_slot;
    const Code c = !forest_.whole(node) ? pool_.insert_tail(block, key)
                   : full               ? pool_.insert_full(block, key)
                                        : pool_.insert_key(block, key);
    if (c == Code::ok && group == 0 && forest_.whole(node) && before && !tell && fresh)
      parentless_.insert(forest_.key[node]);
  }
  void key_block(std::size_t node, bool full) {
    std::optional<BlockId> block;
    if (!owned_.empty() && rng_() % 3 == 0)
      block = owned_[rng_() % owned_.size()];
    else
      block = take();
    if (block) insert(*block, node, rng_() % 8 == 0 ? 1 : 0, full);
  }
  // The blocks of a path in order, as a request that computes it: what is there already too, now
  // and then. Its blocks may be freed at once, deepest first.
  void key_path() {
    std::vector<std::size_t> nodes;
    for (std::optional<std::size_t> at = rng_() % forest_.key.size(); at; at = forest_.above[*at])
      if (forest_.whole(*at)) nodes.push_back(*at);
    std::reverse(nodes.begin(), nodes.end());
    const std::size_t before = owned_.size();
    for (const std::size_t node : nodes) {
      if (pool_.find(0, forest_.bytes(node)) != no_slot && rng_() % 4 != 0) continue;
      const auto block = take();
      if (!block) break;
      insert(*block, node, 0, true);
    }
    if (rng_() % 4 == 0) return;
    std::vector<BlockId> freed(owned_.begin() + static_cast<std::ptrdiff_t>(before), owned_.end());
    std::reverse(freed.begin(), freed.end());
    owned_.resize(before);
    BOOST_REQUIRE(pool_.free(freed) == Code::ok);
  }
  void give_back() {
    std::shuffle(owned_.begin(), owned_.end(), rng_);
    const std::size_t n = owned_.empty() ? 0 : rng_() % (owned_.size() + 1);
    BOOST_REQUIRE(pool_.free(std::span(owned_).first(n)) == Code::ok);
    owned_.erase(owned_.begin(), owned_.begin() + static_cast<std::ptrdiff_t>(n));
  }
  void evict_some() {
    const std::vector<BlockId> blocks{static_cast<BlockId>(rng_() % pool_.blocks().n),
                                      static_cast<BlockId>(rng_() % pool_.blocks().n)};
    BOOST_REQUIRE(pool_.evict(blocks) == Code::ok);
  }
  void move_some() {
    if (owned_.empty()) return;
    const auto to = take();
    if (to) (void)pool_.move_keys(owned_[rng_() % owned_.size()], *to);
  }

  std::mt19937_64 rng_;
  Forest forest_;
  bool parents_known_;
  Geometry geometry_;
  BlockPool pool_;
  std::vector<BlockId> owned_;
  std::set<std::uint64_t> parentless_;
  std::uint64_t closed_ = 0;
  std::uint64_t open_ = 0;
};

BOOST_AUTO_TEST_SUITE(chain_of_the_pool)

struct Path {
  Keys keys{8};
  BlockPool pool;
  explicit Path(BlockPool p) : pool(std::move(p)) {}
  BlockId key(std::uint64_t position, bool with_parent = true) {
    BlockId block = no_block;
    KVC_CHECK(pool.allocate({&block, 1}) == Code::ok);
    const BlockKey key{0,
                       keys.at(position),
                       {(position + 1) * block_tokens},
                       {block_tokens},
                       position > 0 && with_parent ? keys.at(position - 1) : nullptr};
    KVC_CHECK(pool.insert_full(block, key) == Code::ok);
    return block;
  }
};

BOOST_AUTO_TEST_CASE(a_hole_opens_the_chain_until_it_is_filled_or_nothing_is_behind_it) {
  for (const std::uint64_t blocks : {64u, 0u}) {
    BlockPoolOptions o;
    o.blocks = {blocks};
    o.chain = ChainSpec{0, {block_tokens}};
    Path p(std::move(BlockPool::make(o)).value());
    BOOST_TEST(p.pool.prefix_closed(0));
    BOOST_TEST(!p.pool.prefix_closed(1));
    const BlockId b0 = p.key(0);
    const BlockId b1 = p.key(1);
    const BlockId b2 = p.key(2);
    BOOST_TEST(p.pool.prefix_closed(0));
    BOOST_REQUIRE(p.pool.evict({{b1}}) == Code::ok);
    BOOST_TEST(!p.pool.prefix_closed(0));
    BOOST_TEST(p.pool.counters().chain_holes == 1u);
    const BlockId again = p.key(1);
    BOOST_TEST(p.pool.prefix_closed(0));
    // Another block with the same key: the first may go.
    const BlockId twin = p.key(0);
    BOOST_REQUIRE(p.pool.evict({{b0}}) == Code::ok);
    BOOST_TEST(p.pool.prefix_closed(0));
    BOOST_REQUIRE(p.pool.evict({{twin}}) == Code::ok);
    BOOST_TEST(!p.pool.prefix_closed(0));
    BOOST_REQUIRE(p.pool.evict({{again}}) == Code::ok);
    BOOST_TEST(p.pool.counters().chain_holes == 1u);  // block 0 has no child any more, block 1 has
    BOOST_REQUIRE(p.pool.evict({{b2}}) == Code::ok);
    BOOST_TEST(p.pool.prefix_closed(0));
    // A child before its parent, and one whose parent nobody names.
    (void)p.key(5);
    BOOST_TEST(!p.pool.prefix_closed(0));
    (void)p.key(4, false);
    BOOST_TEST(p.pool.counters().chain_holes == 1u);
    BOOST_TEST(p.pool.verify().ok());
  }
}

BOOST_AUTO_TEST_CASE(the_book_says_what_a_recount_says_under_random_use) {
  const std::uint64_t first = seed_or(20261129);
#if defined(KVC_SANITIZED)
  const std::uint64_t worlds = only_seed() ? 1 : 8;
#else
  const std::uint64_t worlds = only_seed() ? 1 : 40;
#endif
  std::uint64_t closed = 0;
  std::uint64_t open = 0;
  for (std::uint64_t i = 0; i < worlds; ++i) {
    BOOST_TEST_CONTEXT(repeat_command(first + i)) {
      World world(first + i, i % 4 == 3 ? 0 : 8 + i % 3 * 24, i % 2 == 0);
      for (int step = 0; step < 500; ++step) {
        world.step();
        world.check();
      }
      closed += world.closed();
      open += world.open();
    }
  }
  BOOST_TEST_MESSAGE(closed << " states closed, " << open << " with holes");
  if (!only_seed()) BOOST_TEST(std::min(closed, open) > (closed + open) / 50);
}

BOOST_AUTO_TEST_CASE(a_pool_without_holes_answers_a_long_prompt_with_few_probes) {
  BlockPoolOptions o;
  o.blocks = {8300};
  o.chain = ChainSpec{0, {16}};
  BlockPool pool = std::move(BlockPool::make(o)).value();
  const Keys keys(8192);
  std::vector<BlockId> blocks(8192);
  BOOST_REQUIRE(pool.allocate(blocks) == Code::ok);
  for (std::uint64_t p = 0; p < blocks.size(); ++p) {
    const BlockKey key{0, keys.at(p), {(p + 1) * 16}, {16}, p > 0 ? keys.at(p - 1) : nullptr};
    BOOST_REQUIRE(pool.insert_full(blocks[p], key) == Code::ok);
  }
  const Geometry g = make({{fa(16)}, 16, 16});
  std::reverse(blocks.begin(), blocks.end());
  BOOST_REQUIRE(pool.free(blocks) == Code::ok);
  // Half of it is taken by others: from its end, so no hole opens.
  std::vector<BlockId> taken(4096 + 107);
  BOOST_REQUIRE(pool.allocate(taken) == Code::ok);
  BOOST_TEST(pool.prefix_closed(0));
  Hit hit;
  BOOST_REQUIRE(lookup(g, pool, keys.view(), {0}, {131072}, hit) == Code::ok);
  BOOST_TEST(hit.tokens.n == 65536u);
  BOOST_TEST(hit.cost.probes <= 28u);
  pool.count(hit.cost);
  BOOST_TEST(pool.counters().bisections == 1u);
  BOOST_TEST(pool.counters().linear_walks == 0u);
}

// Two nodes an entry: its own, and the hole before it.
BOOST_AUTO_TEST_CASE(a_book_without_bounds_grows_past_a_slab_and_counts_its_holes) {
  ChainBook book = std::move(ChainBook::make(8, ChainSpec{0, {block_tokens}}, 0)).value();
  constexpr std::uint32_t entries = 40'000;
  static_assert(2 * entries > Slabs::per_slab);
  std::uint64_t bytes = 0;
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::uint64_t key = 2 * std::uint64_t{i} + 1;
    const std::uint64_t parent = key + 1;
    const auto bytes_of = [](const std::uint64_t& k) {
      return reinterpret_cast<const std::byte*>(&k);
    };
    BOOST_REQUIRE(book.make_room(std::uint64_t{i} + 1));
    if (i == 0) bytes = book.bytes();
    book.added(i, bytes_of(key), 2 * block_tokens, bytes_of(parent), ChainBook::no_entry);
    if (i == 0) BOOST_TEST(book.bytes() > bytes + 2 * 2 * sizeof(std::uint32_t));
  }
  BOOST_TEST(book.holes() == entries);
  BOOST_TEST(book.nodes_in_use() == 2 * std::uint64_t{entries});
  BOOST_TEST(book.verify_holes().ok());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
