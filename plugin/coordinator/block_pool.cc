#include "plugin/coordinator/block_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "plugin/coordinator/slabs.h"
#include "plugin/core/fault.h"

namespace kvc {
namespace {

// Blocks that an unlimited pool adds at a time.
constexpr std::uint64_t slab_blocks = 4096;
constexpr std::uint64_t blocks_end = std::uint64_t{1} << 31;

// `next` is no_block outside the free queue. The null block's record is the queue's anchor: its
// next is the front. A queued block is visited iff `visit` is the pool's count of rewinds.
struct Record {
  std::uint32_t references;
  BlockId prev;
  BlockId next;
  std::uint32_t visit;
};

}  // namespace

struct BlockPool::Body {
  BlockPoolOptions options;
  FlatIndex index;
  SlabArray<Record> records;
  std::uint64_t blocks = 0;
  std::uint64_t free = 0;
  std::uint64_t evictions = 0;
  // The visited blocks are the front of the queue up to `mark`; the null block: none is visited.
  BlockId mark = null_block;
  std::uint64_t visited = 0;
  std::uint32_t visits = 1;  // rewinds + 1
  std::vector<BlockEvent> ring;
  std::size_t ring_first = 0;
  std::size_t ring_count = 0;
  std::uint64_t events_lost = 0;
  LookupCost cost;

  Body(const BlockPoolOptions& o, FlatIndex i)
      : options(o), index(std::move(i)), ring(o.events_max) {}

  [[nodiscard]] bool known(BlockId b) const { return b < blocks; }
  [[nodiscard]] bool keyable(BlockId b) const { return known(b) && b != null_block; }

  void link(BlockId at, BlockId b) {
    Record& r = records[b];
    r.prev = at;
    r.next = records[at].next;
    records[r.next].prev = b;
    records[at].next = b;
    r.visit = 0;
    ++free;
  }
  // Among the visited ones, or behind the last of them.
  void link_visited(BlockId at, BlockId b) {
    link(at, b);
    visit(b);
    if (mark == at) mark = b;
  }
  void visit(BlockId b) {
    records[b].visit = visits;
    ++visited;
  }
  [[nodiscard]] bool is_visited(BlockId b) const {
    return records[b].next != no_block && records[b].visit == visits;
  }
  void unlink(BlockId b) {
    Record& r = records[b];
    if (r.visit == visits) {
      --visited;
      if (mark == b) mark = r.prev;
    }
    records[r.prev].next = r.next;
    records[r.next].prev = r.prev;
    r.next = r.prev = no_block;
    --free;
  }
  // One reference less for each; false: not all have one, nothing changed.
  [[nodiscard]] bool drop_references(std::span<const BlockId> ids) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool good = known(ids[i]) && (ids[i] == null_block || records[ids[i]].references > 0);
      if (good) {
        if (ids[i] != null_block) --records[ids[i]].references;
        continue;
      }
      while (i-- > 0)
        if (ids[i] != null_block) ++records[ids[i]].references;
      return false;
    }
    return true;
  }
  [[nodiscard]] BlockId front() const { return records[null_block].next; }
  [[nodiscard]] BlockId back() const { return records[null_block].prev; }

  // `count` new blocks at `at` of the queue, in id order. False: out of memory or ids.
  [[nodiscard]] bool grow(std::uint64_t count, BlockId at) {
    if (blocks + count > blocks_end || !records.ensure(blocks + count)) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      const auto b = static_cast<BlockId>(blocks++);
      link_visited(at, b);
      at = b;
    }
    return true;
  }
  [[nodiscard]] bool front_is_fresh() const {
    return front() != null_block && !index.has_keys(front());
  }
  // The next block for allocate: from the front, in an unlimited pool never a keyed one.
  [[nodiscard]] BlockId pop() {
    if (options.blocks.n == 0 && !front_is_fresh() && !grow(slab_blocks, null_block))
      return no_block;
    const BlockId b = front();
    if (b == null_block) return no_block;
    unlink(b);
    return b;
  }

  void emit(BlockEventKind kind, BlockId block, const BlockKey& key) {
    if (ring.empty()) return;
    if (ring_count == ring.size()) {
      ring_first = (ring_first + 1) % ring.size();
      --ring_count;
      ++events_lost;
    }
    BlockEvent& e = ring[(ring_first + ring_count++) % ring.size()];
    e = BlockEvent{};
    e.kind = kind;
    e.block = block;
    e.group = key.group;
    e.end = key.end;
    e.span = key.span;
    if (key.key != nullptr) std::memcpy(e.key, key.key, options.key_bytes);
    e.has_parent = key.parent != nullptr;
    if (e.has_parent) std::memcpy(e.parent, key.parent, options.key_bytes);
  }
  void drop_keys(BlockId b) {
    if (!ring.empty())
      index.for_each_key(b, [&](const SlotKey& k) {
        emit(BlockEventKind::removed, b, {k.group, k.key, k.end, {}, nullptr});
      });
    index.erase_slot(b);
  }
  Code insert(BlockId b, const BlockKey& key) {
    if (KVC_FAULT("block_pool.insert_key")) return Code::full;
    // Of a tail the parent is another one: it is not of the chain.
    const bool link =
        options.chain && key.group == options.chain->group && key.span == options.chain->block;
    const Code c = index.insert(key.group, key.key, b, key.end, link ? key.parent : nullptr);
    if (c == Code::ok) emit(BlockEventKind::stored, b, key);
    return c;
  }
};

BlockPool::BlockPool(std::unique_ptr<Body> body) : body_(std::move(body)) {}
BlockPool::BlockPool(BlockPool&&) noexcept = default;
BlockPool& BlockPool::operator=(BlockPool&&) noexcept = default;
BlockPool::~BlockPool() = default;

Result<BlockPool> BlockPool::make(const BlockPoolOptions& options) {
  const std::uint64_t n = options.blocks.n;
  if (n == 1 || n >= blocks_end / 2)
    return Status{
        Code::arg,
        fmt::format("a pool of {} blocks: with the null block it must have 2 to 2^30, or 0 for "
                    "unlimited",
                    n)};
  const std::uint64_t aliases = options.aliases != 0 ? options.aliases : n / 4 + 64;
  Result<FlatIndex> index =
      FlatIndex::make({options.key_bytes, n, n == 0 ? 0 : aliases, true, options.chain});
  if (!index.ok()) return index.error();
  auto body = std::make_unique<Body>(options, std::move(index).value());
  const std::uint64_t first = n == 0 ? slab_blocks : n;
  if (!(n == 0 ? body->records.ensure(first) : body->records.size_for(first)))
    return Status{Code::full, fmt::format("no memory for {} block records", first)};
  body->records[null_block] = {0, null_block, null_block, 0};
  body->blocks = 1;
  if (!body->grow(first - 1, null_block))
    return Status{Code::full, fmt::format("no memory for {} blocks", first)};
  return BlockPool(std::move(body));
}

Blocks BlockPool::blocks() const { return {body_->blocks}; }
bool BlockPool::unlimited() const { return body_->options.blocks.n == 0; }
Blocks BlockPool::free_blocks() const { return {unlimited() ? UINT64_MAX : body_->free}; }
Blocks BlockPool::used_blocks() const { return {body_->blocks - body_->free}; }

Code BlockPool::allocate(std::span<BlockId> out) {
  Body& b = *body_;
  if (!unlimited() && out.size() > b.free) return Code::full;
  if (KVC_FAULT("block_pool.allocate")) return Code::full;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const BlockId block = b.pop();
    if (block == no_block) {  // unlimited and out of memory: all or nothing
      while (i-- > 0) {
        b.records[out[i]].references = 0;
        b.link_visited(null_block, out[i]);
      }
      return Code::full;
    }
    if (b.index.has_keys(block)) {
      ++b.evictions;
      b.drop_keys(block);
    }
    b.records[block].references = 1;
    out[i] = block;
  }
  return Code::ok;
}

Code BlockPool::touch(std::span<const BlockId> blocks) {
  Body& b = *body_;
  for (const BlockId block : blocks)
    if (!b.known(block)) return Code::arg;
  for (const BlockId block : blocks) {
    if (block == null_block) continue;
    if (b.records[block].references++ == 0) b.unlink(block);
  }
  return Code::ok;
}

Code BlockPool::free(std::span<const BlockId> blocks) {
  Body& b = *body_;
  if (!b.drop_references(blocks)) return Code::arg;
  BlockId batch = null_block;  // last unkeyed block put at the front
  for (const BlockId block : blocks) {
    const Record& r = b.records[block];
    if (block == null_block || r.references != 0 || r.next != no_block) continue;
    if (b.index.has_keys(block)) {
      b.link(b.back(), block);
    } else {
      b.link_visited(batch, block);
      batch = block;
    }
  }
  return Code::ok;
}

Code BlockPool::free_to_mark(std::span<const BlockId> blocks) {
  Body& b = *body_;
  if (!b.drop_references(blocks)) return Code::arg;
  for (const BlockId block : blocks) {
    const Record& r = b.records[block];
    if (block != null_block && r.references == 0 && r.next == no_block) {
      b.link_visited(b.mark, block);
    }
  }
  return Code::ok;
}

BlockId BlockPool::visit_next() {
  Body& b = *body_;
  const BlockId next = b.records[b.mark].next;
  if (next == null_block) return no_block;
  b.visit(next);
  b.mark = next;
  return next;
}

void BlockPool::rewind_visits() {
  Body& b = *body_;
  ++b.visits;
  b.visited = 0;
  b.mark = null_block;
}

bool BlockPool::visited(BlockId block) const {
  return body_->keyable(block) && body_->is_visited(block);
}

Blocks BlockPool::visited_blocks() const { return {body_->visited}; }

std::uint32_t BlockPool::references(BlockId block) const {
  KVC_CHECK(body_->known(block));
  return block == null_block ? 0 : body_->records[block].references;
}

SlotId BlockPool::find(GroupId group, const std::byte* key) const {
  return body_->index.find(group, key);
}

void BlockPool::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  body_->index.find_batch(group, keys, out);
}

bool BlockPool::prefix_closed(GroupId group) const { return body_->index.prefix_closed(group); }

void BlockPool::count(const LookupCost& cost) {
  body_->cost.probes += cost.probes;
  body_->cost.bisections += cost.bisections;
  body_->cost.linear_walks += cost.linear_walks;
}

IndexCounters BlockPool::counters() const {
  IndexCounters c = body_->index.counters();
  c.probes = body_->cost.probes;
  c.bisections = body_->cost.bisections;
  c.linear_walks = body_->cost.linear_walks;
  return c;
}

Code BlockPool::insert_key(BlockId block, const BlockKey& key) {
  return body_->keyable(block) ? body_->insert(block, key) : Code::arg;
}

Code BlockPool::insert_full(BlockId block, const BlockKey& key) {
  Body& b = *body_;
  if (!b.keyable(block)) return Code::arg;
  if (b.index.holds(block, key.group, key.key)) return Code::more;
  if (b.index.has_keys(block)) {
    if (b.index.primary(block).end >= key.end) return Code::state;
    b.drop_keys(block);
  }
  return b.insert(block, key);
}

Code BlockPool::insert_tail(BlockId block, const BlockKey& key) {
  Body& b = *body_;
  if (!b.keyable(block)) return Code::arg;
  if (b.index.holds(block, key.group, key.key)) return Code::more;
  if (b.index.has_keys(block) && b.index.primary(block).end < key.end) b.drop_keys(block);
  return b.insert(block, key);
}

Code BlockPool::move_keys(BlockId from, BlockId to) {
  Body& b = *body_;
  if (!b.keyable(from) || !b.keyable(to) || from == to) return Code::arg;
  if (b.index.has_keys(to)) return Code::state;
  b.index.move_keys(from, to);
  return Code::ok;
}

Code BlockPool::evict(std::span<const BlockId> blocks) {
  Body& b = *body_;
  for (const BlockId block : blocks)
    if (!b.known(block)) return Code::arg;
  for (const BlockId block : blocks)
    if (block != null_block) b.drop_keys(block);
  return Code::ok;
}

bool BlockPool::reset() {
  if (used_blocks().n != 1) return false;
  body_->index.clear();
  body_->emit(BlockEventKind::cleared, null_block, {});
  return true;
}

bool BlockPool::has_keys(BlockId block) const { return body_->index.has_keys(block); }
SlotKey BlockPool::primary(BlockId block) const { return body_->index.primary(block); }
bool BlockPool::holds(BlockId block, GroupId group, const std::byte* key) const {
  return body_->index.holds(block, group, key);
}
const FlatIndex& BlockPool::index() const { return body_->index; }

bool BlockPool::writable(BlockId block) const {
  return body_->keyable(block) && body_->records[block].references == 1 && !has_keys(block);
}

BlockId BlockPool::first_free() const {
  return body_->front() == null_block ? no_block : body_->front();
}

BlockId BlockPool::next_free(BlockId block) const {
  KVC_CHECK(body_->keyable(block) && body_->records[block].next != no_block);
  const BlockId next = body_->records[block].next;
  return next == null_block ? no_block : next;
}

std::size_t BlockPool::take_events(std::span<BlockEvent> out) {
  Body& b = *body_;
  const std::size_t n = std::min(out.size(), b.ring_count);
  for (std::size_t i = 0; i < n; ++i) out[i] = b.ring[(b.ring_first + i) % b.ring.size()];
  if (n > 0) b.ring_first = (b.ring_first + n) % b.ring.size();
  b.ring_count -= n;
  return n;
}

std::uint64_t BlockPool::events_lost() const { return body_->events_lost; }
std::uint64_t BlockPool::evictions() const { return body_->evictions; }

Status BlockPool::verify() const {
  const Body& b = *body_;
  std::uint64_t queued = 0;
  BlockId visited = null_block;
  BlockId before = null_block;
  for (BlockId at = b.front(); at != null_block; at = b.records[at].next) {
    if (!b.known(at) || ++queued > b.free)
      return {Code::internal,
              fmt::format("free queue: block {} is foreign or the queue does not end", at)};
    if (b.records[at].prev != before)
      return {Code::internal, fmt::format("free queue: block {} has {} in front, not {}", at,
                                          b.records[at].prev, before)};
    if (b.records[at].references != 0)
      return {Code::internal,
              fmt::format("free queue: block {} has {} references", at, b.records[at].references)};
    if (b.is_visited(at) != (queued <= b.visited))
      return {Code::internal,
              fmt::format("free queue: block {}, at place {}, is {}visited, the first {} are", at,
                          queued, b.is_visited(at) ? "" : "not ", b.visited)};
    if (b.is_visited(at)) visited = at;
    before = at;
  }
  if (b.mark != visited)
    return {Code::internal,
            fmt::format("free queue: the mark is at block {}, the last visited is {}", b.mark,
                        visited)};
  if (b.back() != before || queued != b.free)
    return {Code::internal,
            fmt::format("free queue: {} blocks linked, counted {}", queued, b.free)};
  for (std::uint64_t i = 1; i < b.blocks; ++i) {
    const Record& r = b.records[i];
    if ((r.references == 0) != (r.next != no_block))
      return {Code::internal, fmt::format("block {}: {} references, but queued is {}", i,
                                          r.references, r.next != no_block)};
  }
  if (b.index.has_keys(null_block)) return {Code::internal, "the null block has a key"};
  return b.index.verify();
}

}  // namespace kvc
