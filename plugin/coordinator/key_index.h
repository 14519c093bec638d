// From (group, key) to the slot that holds the block: the interface of design 3.1 and its flat
// kind.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// A slot of a tier, or a block id of the device pool. Below 2^32 - 1.
using SlotId = std::uint32_t;
inline constexpr SlotId no_slot = UINT32_MAX;

// What lookups see of an index: published entries only.
//
// Threads: const calls may run together; none beside a change. A pure state machine: no clock, lock
// or I/O.
class KeyIndex {
 public:
  virtual ~KeyIndex() = default;
  // The slot that holds `key` of `group`, the first inserted one if there are several;
  // no_slot if none. `key` has the instance's key length.
  [[nodiscard]] virtual SlotId find(GroupId group, const std::byte* key) const = 0;
  // find for every key of the run; out.size() >= keys.count. Memory is prefetched for the whole
  // batch: use batches of find_batch_keys.
  virtual void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const = 0;
  // find for keys at any addresses, any number of them; out.size() >= keys.size().
  virtual void find_each(GroupId group, std::span<const std::byte* const> keys,
                         std::span<SlotId> out) const {
    for (std::size_t i = 0; i < keys.size(); ++i) out[i] = find(group, keys[i]);
  }

  // The promises below let a lookup skip probes. An index makes them for the state it is in: they
  // hold until its next change. Without them answers are the same, only slower.

  // A published block of `group` implies that the block before it on its path is published: along
  // the ascending block ends of any one path, find answers a run of slots and then no_slot only.
  // Always cheap: O(1). False when that does not hold now or nobody knows (holes, bad entries).
  [[nodiscard]] virtual bool prefix_closed(GroupId group) const {
    (void)group;
    return false;
  }
  // Where tails of `group` may be inside the block that follows the chain entry in slot `base`
  // (no_slot: the root, that is, the block at position 0). Bit tail_offset_bit(i, B/h) stands for
  // the boundary at i + 1 hash units behind the entry's end (i from 0, interior boundaries only). A
  // clear bit is a promise: no find with a key of this group at such a boundary, on any path
  // through the entry, answers a slot; that includes tails stored before the entry was. A set bit
  // promises nothing. Asked only while prefix_closed(group).
  [[nodiscard]] virtual std::uint64_t tail_offsets(GroupId group, SlotId base) const {
    (void)group, (void)base;
    return ~std::uint64_t{0};
  }
  // find for a run of consecutive block ends of one path, ascending, of which all are there. Asked
  // only while prefix_closed(group): an index that links an entry to the one before it then looks
  // up few of the keys.
  virtual void find_path(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
    find_batch(group, keys, out);
  }
  // A list of keys of which one names another prefix than those before it is the engine's fault,
  // and no promise holds for it. False: the index knows that the run is part of such a list. Slow;
  // true where nobody knows.
  [[nodiscard]] virtual bool keys_follow(GroupId group, const KeyRun& keys) const {
    (void)group, (void)keys;
    return true;
  }
};
inline constexpr std::size_t find_path_keys = 1024;  // a good number of keys for one find_path

// Told which positions of the path a walk has passed, while it waits for memory: the time to ask
// for what else is needed of them.
class PathListener {
 public:
  virtual ~PathListener() = default;
  // Keys [first, first + count) of the run. Every key in no order, each once.
  virtual void passed(std::size_t first, std::size_t count) = 0;
};

// Bit of a tail_offsets word for interior boundary i of a block of `units` = B/h hash units.
// Requires i + 1 < units.
inline std::uint32_t tail_offset_bit(std::uint64_t i, std::uint64_t units) {
  return static_cast<std::uint32_t>(i * 64 / units);
}

// What a lookup cost. `probes` are keys asked for; a bisection is the search of one group whose
// prefix was closed, a linear walk that of one whose was not.
struct LookupCost {
  std::uint64_t probes = 0;
  std::uint64_t bisections = 0;
  std::uint64_t linear_walks = 0;
};

inline constexpr std::size_t find_batch_keys = 32;

// The group whose blocks form a chain: block i of a path follows block i - 1.
struct ChainSpec {
  GroupId group = 0;
  Tokens block;  // B of the group, > 0
};

struct FlatIndexOptions {
  std::uint32_t key_bytes = 16;  // 8..32
  std::uint64_t slots = 0;       // 0: unlimited, grows in slabs (measuring only, design 4)
  // Bounded: keys beyond the first of a slot that fit in addition; when they are used up, further
  // aliases are refused with Code::full while a first key always fits (as long as keys are not held
  // twice).
  std::uint64_t aliases = 0;
  bool duplicates =
      false;  // several slots may hold one key (device pool, R-407); a tier never does
  // Keeps a book of the chain's blocks, so that prefix_closed is known: about 12 bytes more per
  // entry. Bounded: slots + aliases are then below 2^30.
  std::optional<ChainSpec> chain = std::nullopt;
};

// Numbers of an index. What only the chained kind knows is 0 in the flat kind.
struct IndexCounters {
  std::uint64_t entries = 0;          // (key, slot) pairs
  std::uint64_t aliases = 0;          // of them, not the first key of their slot
  std::uint64_t aliases_refused = 0;  // Code::full answers to insert
  std::uint64_t bytes = 0;            // memory of table and arena
  std::uint64_t bisections = 0;
  std::uint64_t linear_walks = 0;
  std::uint64_t chain_holes = 0;  // absent blocks of the chain with a present one behind them, and
                                  // present ones whose place in it nobody told
  std::uint64_t bad_entries = 0;
  std::uint64_t unsupported_entries = 0;
  std::uint64_t directory_overflows = 0;
  std::uint64_t probes = 0;  // of lookups: LookupCost
};

// One key of a slot. `key` points into the index, valid until its next change.
struct SlotKey {
  GroupId group = 0;
  const std::byte* key = nullptr;
  Tokens end;  // prefix tokens the key covers; 0: not known
};

// The flat kind: one open-addressing table of 8 bytes per place over an arena of entries with the
// keys inline. A slot has a list of keys, its first one is the primary; a key has a list of
// slots in insertion order. Keys come and go in any order; with a chain it knows whether
// that left holes.
//
// Threads:    as KeyIndex; changes are for one thread.
// Owns:       table and arena. Bounded: sized at construction, no heap afterwards; memory that was
// never used is not
//             touched. Unlimited: the arena grows by slabs, the table by doubling.
// Invariants: every entry is reachable from its key and from its slot; no (group, key, slot) twice;
// without
//             `duplicates` no (group, key) twice. About 28 + key bytes + 11.4 bytes per entry, 4
//             per slot.
class FlatIndex final : public KeyIndex {
 public:
  // key_bytes outside 8..32 or more than 2^31 entries is Code::arg.
  static Result<FlatIndex> make(const FlatIndexOptions& options);
  FlatIndex(FlatIndex&&) noexcept;
  FlatIndex& operator=(FlatIndex&&) noexcept;
  ~FlatIndex() override;

  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override;
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override;
  // Of the chain, while it has no hole.
  [[nodiscard]] bool prefix_closed(GroupId group) const override;
  // True when this very slot holds the key.
  [[nodiscard]] bool holds(SlotId slot, GroupId group, const std::byte* key) const;
  // Slots that hold the key.
  [[nodiscard]] std::uint64_t holders(GroupId group, const std::byte* key) const;

  // ok: inserted as the slot's primary if it has no key, else as its newest alias. more: the slot
  // already had this key, nothing changed. state: another slot has it and the index takes
  // no duplicates, nothing changed. full: no room for an alias (or unlimited memory ran out),
  // nothing changed. Requires slot < options.slots. `end`: prefix tokens the key covers, below
  // 2^32; 0 if not known (CW-30: give it). `parent`: of the chain's blocks behind the first one
  // the key of the block before; without it the chain is not closed while the key is there. It must
  // not be the key itself.
  Code insert(GroupId group, const std::byte* key, SlotId slot, Tokens end,
              const std::byte* parent = nullptr);
  // Takes the key off the slot; if it was the primary, the oldest alias becomes primary. False: it
  // was not there.
  bool erase(GroupId group, const std::byte* key, SlotId slot);
  // Takes all keys off the slot; returns how many.
  std::uint32_t erase_slot(SlotId slot);
  // All keys of `from` to `to`, order and ends kept. Requires that `to` has no key.
  void move_keys(SlotId from, SlotId to);
  void clear();

  [[nodiscard]] bool has_keys(SlotId slot) const;
  // The slot's primary key. Requires has_keys(slot).
  [[nodiscard]] SlotKey primary(SlotId slot) const;
  // Calls visit(SlotKey) for every key of the slot, primary first. No changes inside.
  template <class Visit>
  void for_each_key(SlotId slot, Visit visit) const {
    for (std::uint32_t e = first_of(slot); e != no_entry; e = next_key(e)) visit(key_at(e));
  }
  [[nodiscard]] std::uint32_t keys_of(SlotId slot) const;

  [[nodiscard]] IndexCounters counters() const;
  [[nodiscard]] std::uint32_t key_bytes() const;
  // Checks the whole structure (slow, for tests); the text says what is wrong.
  [[nodiscard]] Status verify() const;

 private:
  static constexpr std::uint32_t no_entry = UINT32_MAX;
  struct Body;
  explicit FlatIndex(std::unique_ptr<Body> body);
  [[nodiscard]] std::uint32_t first_of(SlotId slot) const;
  [[nodiscard]] std::uint32_t next_key(std::uint32_t entry) const;
  [[nodiscard]] SlotKey key_at(std::uint32_t entry) const;
  std::unique_ptr<Body> body_;
};

}  // namespace kvc
