// What chooses who goes among the evictable entries, and whether a new one is worth a slot:
// docs/policies.md. LRU is in Order itself; the others are behind this interface.
//
// An entry stands in one of the policy's lists from its publication on, oldest first, also while it
// may not go (children, pins). A search for a victim that meets such an entry at the old end of a
// list *parks* it: it leaves the list, and comes back to the old end when it may go.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin/coordinator/tier_records.h"
#include "plugin/core/prefetch.h"

namespace kvc::tier {

// What a policy knows of a slot, 8 bytes. All zero: nothing.
struct Mark {
  std::uint32_t stamp;  // by policy: a request's number, or a priority
  std::uint16_t list;
  std::uint8_t touches;
  std::uint8_t flags;

  static constexpr std::uint8_t fan_mask = 15;  // continuations
  static constexpr std::uint8_t end_bit = 1U << 4U;
  static constexpr std::uint8_t listed_bit = 1U << 5U;
  static constexpr std::uint8_t parked_bit = 1U << 6U;
  static constexpr std::uint8_t sampled_bit = 1U << 7U;

  [[nodiscard]] bool has(std::uint8_t bit) const { return (flags & bit) != 0; }
  void set(std::uint8_t bit, bool on) {
    flags = static_cast<std::uint8_t>(on ? flags | bit : flags & ~bit);
  }
};
static_assert(sizeof(Mark) == 8);

// The block that asks for a slot.
struct Newcomer {
  GroupId group = 0;
  const std::byte* key = nullptr;  // null: nobody in particular
  Tokens end;
};

struct PolicyContext {
  Records& records;
  GroupId chain;  // the group of the paths
  Tokens block;   // of the chain
  Tokens unit;
  std::uint64_t slots;      // 0: unlimited
  std::uint64_t open_runs;  // 0: unlimited
  std::uint64_t path_max;   // blocks of the longest path; 0: grows
  std::uint64_t ghosts_more;
  const Geometry& geometry;
  std::vector<GroupId> states;  // of boundaries that go whole; empty: all entries are ranked alone
};

// Threads:    one user.
// Owns:       marks, lists, what it learned. The links of the lists are those of the records.
// Invariants: an entry that may go is listed, unless it is in front or kept by a hint; a parked one
//             is blocked; only published entries that are neither are in a list or parked. No heap
//             after make() while the index is bounded.
class Policy {
 public:
  explicit Policy(const PolicyContext& context)
      : ctx_(context), units_per_block_(context.block.n / context.unit.n) {}
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;
  virtual ~Policy() = default;

  // False: no memory.
  [[nodiscard]] virtual bool make();

  // --- requests; as TierIndex::begin_request and end_request
  virtual void opened(RunId run) = 0;
  virtual void begin(RunId run, const KeyView& keys, Tokens prompt) = 0;
  virtual void end(RunId run, const KeyView& keys, Tokens answer) = 0;
  // True: it did something.
  virtual bool maintain() { return false; }

  // --- entries
  // The slot's record has its key, end and run; room for its mark was made.
  virtual void reserved(SlotId slot, RunId run) = 0;
  void published(SlotId slot) {
    listing(slot);
    push_young(slot);
  }
  // It may go now, and the policy ranks it.
  void evictable(SlotId slot) {
    const Mark& m = marks_[slot];
    if (m.has(Mark::listed_bit)) return;
    const bool parked = m.has(Mark::parked_bit);
    listing(slot);
    parked ? push_old(slot) : push_young(slot);
  }
  // It stands in front, or in the order of hints, from now on.
  void taken(SlotId slot) { delist(slot); }
  virtual void touched(SlotId slot, RunId run) = 0;
  // The record still has its state and key; nothing of it stays.
  virtual void gone(SlotId slot) = 0;
  // Everything is gone.
  virtual void reset();

  // Who goes; no_slot: nobody. `declined`: somebody would, but the newcomer is worth less.
  [[nodiscard]] virtual SlotId victim(RunId store_run, const Newcomer& newcomer,
                                      bool& declined) = 0;

  [[nodiscard]] virtual PolicyNumbers numbers() const = 0;
  [[nodiscard]] virtual PolicyReport report() const { return {}; }
  [[nodiscard]] virtual Status verify() const;

  void ensure(SlotId slot) {
    if (!marks_.ensure(std::uint64_t{slot} + 1)) throw std::bad_alloc();
  }

 protected:
  struct List {
    SlotId old = no_slot;
    SlotId young = no_slot;
  };

  // The entry comes into its list, which may be named now.
  virtual void listing(SlotId /*slot*/) {}
  // The old end of the list changed.
  virtual void old_end_changed(std::uint16_t /*list*/) {}
  void push_young(SlotId slot);
  void push_old(SlotId slot);
  // Out of its list, and not parked.
  void delist(SlotId slot);
  // delist, then to the young end of another list; an entry that is neither listed nor parked only
  // changes the name of its list.
  void move_young(SlotId slot, std::uint16_t list);
  // move_young of many: entries that stand one behind the other in their list, and are named in
  // that order, move as one piece. All of it holds after move_queued; until then nothing but marks
  // may be read.
  void queue_young(SlotId slot, std::uint16_t list) {
    Mark& m = marks_[slot];
    if (queued_.last != no_slot && m.list == queued_.from && list == queued_.to &&
        m.has(Mark::listed_bit) && ctx_.records[queued_.last].next == slot + 1) {
      m.list = list;
      queued_.last = slot;
      return;
    }
    move_queued();
    if (!m.has(Mark::listed_bit)) return move_young(slot, list);
    queued_ = {slot, slot, m.list, list};
    m.list = list;
  }
  void move_queued();
  // Out of its list until it may go. Requires: listed, blocked.
  void park(SlotId slot) {
    delist(slot);
    marks_[slot].set(Mark::parked_bit, true);
  }
  // The oldest entry of the list that may go; parks what may not on the way. no_slot: none, or it
  // is of store_run.
  [[nodiscard]] SlotId oldest(std::uint16_t list, RunId store_run);

  [[nodiscard]] bool is_chain(SlotId slot) const {
    return ctx_.records[slot].has(Record::chain_bit);
  }
  [[nodiscard]] std::uint64_t blocks_of(const KeyView& keys, Tokens tokens) const {
    return std::min(Tokens{keys.count * ctx_.unit.n}, tokens).n / ctx_.block.n;
  }
  [[nodiscard]] const std::byte* key_of(const KeyView& keys, std::uint64_t position) const {
    return keys.at((position + 1) * units_per_block_ - 1);
  }
  // The keyed entries of the first `count` blocks of the path, in any state; no_slot for the
  // others. `near`: an entry that may be on it, where the search begins; no_slot: none is known.
  [[nodiscard]] std::span<const SlotId> find_path(const KeyView& keys, std::uint64_t count,
                                                  SlotId near = no_slot);
  // Fetches what a move of the entry reads.
  void expect(SlotId slot) const {
    if (slot == no_slot) return;
    prefetch_write(&marks_[slot]);
    prefetch_write(&ctx_.records[slot]);
  }
  void expect_gone(SlotId slot) const {
    expect(slot);
    prefetch(ctx_.records.key(slot));
  }
  // A number for a key: equal keys have equal tags. Never 0.
  [[nodiscard]] std::uint64_t tag_of(const std::byte* key) const;
  [[nodiscard]] std::uint64_t tag_of(SlotId slot) const { return tag_of(ctx_.records.key(slot)); }
  [[nodiscard]] std::uint64_t base_bytes() const {
    return ctx_.records.used() * sizeof(Mark) + lists_.size() * sizeof(List);
  }

  PolicyContext ctx_;
  std::uint64_t units_per_block_;
  mutable SlabArray<Mark> marks_;
  std::vector<List> lists_;

 private:
  // A piece of a list: of one entry, or of several that stand one behind the other in it.
  struct Piece {
    SlotId first = no_slot;
    SlotId last = no_slot;
    std::uint16_t from = 0;
    std::uint16_t to = 0;
  };

  // The links of a list around a piece, without the bits of the marks.
  void link_young(std::uint16_t list, SlotId first, SlotId last);
  void unlink(std::uint16_t list, SlotId first, SlotId last);
  [[nodiscard]] Status verify_slot(SlotId slot) const;
  std::vector<SlotId> path_;
  Piece queued_;  // for the young end of a list
};

// Null for lru, which needs none.
std::unique_ptr<Policy> make_policy(Eviction eviction, const PolicyContext& context);

}  // namespace kvc::tier
