// The pool of device blocks with its prefix cache: references, the free queue in eviction order,
// keys (R-401..R-415).
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// The same numbers as the slots of the index that the pool is.
using BlockId = SlotId;
inline constexpr BlockId no_block = no_slot;
// Block 0 is the null block: never allocated, freed, touched or keyed.
inline constexpr BlockId null_block = 0;

struct BlockPoolOptions {
  Blocks
      blocks;  // with the null block, >= 2; 0: unlimited, grows in slabs, nothing is ever evicted
  std::uint32_t key_bytes = 16;  // 8..32
  std::uint64_t aliases =
      0;  // bounded pools: room for further keys (FlatIndexOptions); 0: a quarter of blocks
  std::size_t events_max = 0;  // ring of undrained events; 0: no events
  // The chain group of the layout (Geometry::chain): lookups of it may bisect while no key of it is
  // there without the one before. Its keys come with their parents.
  std::optional<ChainSpec> chain = std::nullopt;
};

// A key with the prefix it names.
struct BlockKey {
  GroupId group = 0;
  const std::byte* key = nullptr;
  Tokens end;   // prefix tokens it covers, > 0
  Tokens span;  // tokens of the block under this key: B_g, or h for a partial tail (events)
  const std::byte* parent =
      nullptr;  // key of the prefix of end - span tokens; nullptr: none (events, chain)
};

enum class BlockEventKind : std::uint8_t { stored, removed, cleared };

// Token ids are the caller's: those of [end - span, end).
struct BlockEvent {
  BlockEventKind kind = BlockEventKind::cleared;
  bool has_parent = false;
  GroupId group = 0;
  BlockId block = null_block;
  Tokens end;
  Tokens span;  // stored only
  std::byte key[key_bytes_max] = {};
  std::byte parent[key_bytes_max] = {};
};

// Threads:    scheduler role only; no lock inside. Const calls may run together.
// Owns:       metadata of the blocks; the bytes belong to the engine.
// Invariants: a block is in the free queue iff its reference count is 0 (the null block never); the
// queue is in
//             eviction order; keys are on blocks 1..; free + used == blocks, used counts the null
//             block.
// Errors are Code::arg and change nothing: ids out of range, freeing a block without reference,
// keying the null block.
class BlockPool final : public KeyIndex {
 public:
  // Code::arg naming the numbers: fewer than 2 blocks (CW-24), key length outside 8..32, more than
  // 2^31 blocks.
  static Result<BlockPool> make(const BlockPoolOptions& options);
  BlockPool(BlockPool&&) noexcept;
  BlockPool& operator=(BlockPool&&) noexcept;
  ~BlockPool() override;

  // Blocks with the null block; grows in an unlimited pool.
  [[nodiscard]] Blocks blocks() const;
  [[nodiscard]] bool unlimited() const;
  // Blocks that allocate could hand out now, evictable cached ones included; UINT64_MAX
  // when unlimited.
  [[nodiscard]] Blocks free_blocks() const;
  [[nodiscard]] Blocks used_blocks() const;

  // out.size() blocks from the front of the queue; each loses its keys (removed events) and
  // gets one reference. Code::full when there are fewer free ones (nothing changed). An unlimited
  // pool grows instead of evicting keyed blocks.
  Code allocate(std::span<BlockId> out);
  // one more reference for each; out of the queue if it was free. Null entries are ignored.
  Code touch(std::span<const BlockId> blocks);
  // one reference less for each, in the given (eviction) order; null entries are ignored. At
  // 0: unkeyed blocks go to the front as a batch in the given order, keyed ones to the back in the
  // given order. Callers pass a request's blocks deepest position first, so that tails are evicted
  // before heads (R-405, CW-2).
  Code free(std::span<const BlockId> blocks);
  [[nodiscard]] std::uint32_t references(BlockId block) const;

  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override;
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override;
  [[nodiscard]] bool prefix_closed(GroupId group) const override;
  // A lookup in this pool cost so much: it is added to counters().
  void count(const LookupCost& cost);
  [[nodiscard]] IndexCounters counters() const;

  // more (no-op) if the block has the key; primary if it has none, else secondary. full: no
  // room for an alias.
  Code insert_key(BlockId block, const BlockKey& key);
  // Keys a full block: a block whose primary covers fewer tokens loses all keys first; a
  // block that has the key is left alone (more); state when its primary covers as many or more
  // tokens under another key.
  Code insert_full(BlockId block, const BlockKey& key);
  // Keys a partial tail: keys covering fewer tokens are removed first; beside a key
  // covering more it becomes secondary.
  Code insert_tail(BlockId block, const BlockKey& key);
  // all keys of `from` to `to`, no events. state if `to` has a key.
  Code move_keys(BlockId from, BlockId to);
  // drops the keys of the blocks (events), references untouched.
  Code evict(std::span<const BlockId> blocks);
  // only when nothing but the null block is used: drops all keys, one `cleared` event, true.
  bool reset();

  [[nodiscard]] bool has_keys(BlockId block) const;
  // Requires has_keys(block).
  [[nodiscard]] SlotKey primary(BlockId block) const;
  [[nodiscard]] bool holds(BlockId block, GroupId group, const std::byte* key) const;
  // The index, for every key of a block (for_each_key).
  [[nodiscard]] const FlatIndex& index() const;
  // not null, one reference, no key.
  [[nodiscard]] bool writable(BlockId block) const;

  // The free queue from the front: first_free, then next_free of each; no_block ends it.
  [[nodiscard]] BlockId first_free() const;
  [[nodiscard]] BlockId next_free(BlockId block) const;

  // A mark in the free queue for whoever looks at blocks before they are evicted: visited
  // are the blocks from the front up to the mark. A block that leaves the queue is visited no more,
  // one that comes to its back is not yet, one at its front counts as visited; so no block can slip
  // past the mark, however it comes and goes (CW-12), and nothing is looked at twice. O(1) each.
  // The first block that is not visited, which is from now on; no_block: all are.
  [[nodiscard]] BlockId visit_next();
  [[nodiscard]] bool visited(BlockId block) const;
  [[nodiscard]] Blocks visited_blocks() const;
  // None is visited any more.
  void rewind_visits();
  // As free, but blocks that reach 0 go behind the visited ones, keyed or not, and count as
  // visited: where blocks belong that were only borrowed from the queue.
  Code free_to_mark(std::span<const BlockId> blocks);

  // Moves the oldest events to `out`, returns how many. When the ring was full the oldest were lost
  // and counted.
  std::size_t take_events(std::span<BlockEvent> out);
  [[nodiscard]] std::uint64_t events_lost() const;
  // Keyed blocks that allocate took since construction, by reuse.
  [[nodiscard]] std::uint64_t evictions() const;

  // Checks everything above (slow, for tests).
  [[nodiscard]] Status verify() const;

 private:
  struct Body;
  explicit BlockPool(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace kvc
