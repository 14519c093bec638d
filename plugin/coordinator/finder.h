// One lookup at work: internal to lookup.cc and lookup_full.cc.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "plugin/coordinator/lookup.h"

namespace kvc {

// Batch sizes of a downward search: the common case is met at the top, so it begins small.
class Ramp {
 public:
  [[nodiscard]] std::size_t next(std::uint64_t left) {
    const std::size_t n = std::min<std::uint64_t>(size_, left);
    size_ = std::min(size_ * 2, find_batch_keys);
    return n;
  }

 private:
  std::size_t size_ = 4;
};

// All ends and positions are absolute; positions below start / B belong to the device.
//
// Threads: one user. Owns: nothing. Invariants: between searches a full-attention group's hit holds
// what its search found, ready to be cut by fill.
class Finder {
 public:
  Finder(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Hit& out,
         Trust trust)
      : geometry_(geometry),
        index_(index),
        keys_(keys),
        out_(out),
        trust_(trust),
        start_(out.start),
        known_end_(geometry.hash_unit() * keys.count),
        align_(geometry.hit_alignment()),
        h_(geometry.hash_unit()) {}

  // The keys contradict a promise of the index: what was found is of no use.
  [[nodiscard]] bool contradicted() const { return contradicted_; }
  void reconcile(Tokens max_tokens);
  void each_alone(Tokens max_tokens);

 private:
  using Found = std::array<SlotId, find_batch_keys>;
  // The ends that a tail in the block behind `from` may have: at(1) to at(count), the highest last.
  struct TailEnds {
    Tokens from;
    Tokens base;  // the possible end at or in front of `from`
    Tokens step;
    std::uint64_t step_units = 1;  // hash units of a step
    std::uint64_t lead_units = 0;  // from `base` to `from`
    std::uint64_t units = 1;       // of the block
    std::uint64_t possible = 0;    // KeyIndex::tail_offsets
    std::uint64_t count = 0;
    [[nodiscard]] Tokens at(std::uint64_t i) const { return base + step * i; }
    [[nodiscard]] bool may_be(std::uint64_t i) const {
      return (possible >> tail_offset_bit(i * step_units - lead_units - 1, units) & 1) != 0;
    }
  };
  using Members = std::span<const GroupId>;

  [[nodiscard]] std::uint64_t low(GroupId g) const {
    return start_.n / geometry_.block_tokens(g).n;
  }
  // Slots of `count` <= find_batch_keys ends, from `end` on in steps of `step` tokens downwards or
  // upwards.
  void probe(GroupId g, Tokens end, Tokens step, bool down, std::size_t count, Found& found) const {
    const auto stride = static_cast<std::ptrdiff_t>(step.n / h_.n * keys_.key_bytes);
    out_.cost.probes += count;
    index_.find_batch(g, {block_key(keys_, end, h_), down ? -stride : stride, count},
                      {found.data(), count});
  }
  // As probe, for all members: entry i stays a slot (the first member's) only when every member has
  // it.
  void probe_all(Members members, Tokens end, Tokens step, bool down, std::size_t count,
                 Found& found) const;

  // As probe_all, but for the first entry only: how many entries precede the first one that every
  // member holds; `count` if none does. One member is asked first, the others only on a match.
  [[nodiscard]] std::size_t first_common(Members members, Tokens end, std::size_t count,
                                         Found& found) const;
  [[nodiscard]] SlotId probe_one(GroupId g, Tokens end) const {
    ++out_.cost.probes;
    return index_.find(g, block_key(keys_, end, h_));
  }

  [[nodiscard]] Tokens find(const Bundle& b, Tokens limit, bool drop);
  std::uint64_t full_run(GroupId g, std::uint64_t position_end);
  [[nodiscard]] std::uint64_t walked_run(GroupId g, std::uint64_t position_end,
                                         std::vector<SlotId>* slots);
  void closed_run(GroupId g, std::uint64_t position_end);
  void know_deepest(GroupId g);
  void end_inside(GroupId g, Tokens end, SlotId slot);
  [[nodiscard]] std::uint64_t tails_behind(GroupId g, std::uint64_t position);
  [[nodiscard]] Tokens full_reach(GroupId g, Tokens limit);
  [[nodiscard]] Tokens full_together(const Bundle& b, Tokens limit, bool drop);
  [[nodiscard]] Tokens best_tail(Members members, std::uint64_t position, Tokens top);
  [[nodiscard]] Tokens tail_of_one(GroupId g, const TailEnds& ends);
  [[nodiscard]] Tokens inside_next_chunk(Members members, std::uint64_t position, Tokens limit);
  [[nodiscard]] Tokens window_end(const Bundle& b, Tokens limit) const;
  [[nodiscard]] Tokens window_end_with_drafts(const Bundle& b, Tokens limit, bool drop);
  [[nodiscard]] Tokens chunk_end(const Bundle& b, Tokens limit) const;
  [[nodiscard]] Tokens state_end(const Bundle& b, Tokens limit) const;
  void note_drop(Tokens before, Tokens after);
  void fill(GroupId g, Tokens end);
  void fill_full(GroupId g, Tokens end);

  const Geometry& geometry_;
  const KeyIndex& index_;
  const KeyView& keys_;
  Hit& out_;
  Trust trust_;
  bool contradicted_ = false;
  Tokens start_;
  Tokens known_end_;
  Tokens align_;
  Tokens h_;
  Tokens cand_;  // longest answer the search at hand may give
};

}  // namespace kvc
