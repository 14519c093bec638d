// The slots of one class on one rank: their bytes, and what is known about each.
#pragma once
#include <cstdint>
#include <memory>

#include "cuda/copy_engine.h"
#include "cuda/host_arena.h"
#include "plugin/core/result.h"

namespace kvc {

// What a rank knows about a slot. All zero: never stored.
struct SlotState {
  std::uint32_t writer = 0;   // open store job + 1; 0: none
  std::uint16_t readers = 0;  // open load jobs, saturating is refused
  std::uint8_t written = 0;   // 1: the last store ended ok
  std::uint8_t awaited = 0;   // 1: a plan whose stores were not submitted yet stores here
};

// Threads:    one user; the bytes are shared with the copy engine.
// Owns:       the bytes of the slots and their states.
// Invariants: slots below usable() have bytes and a state; the address of a slot never changes.
class RankSlots {
 public:
  // `pages` slots of `slot_bytes`, or growing by slabs if pages is UINT64_MAX. The memory is pinned
  // through `copies`. Errors: full (no memory), or what pin says.
  static Result<std::unique_ptr<RankSlots>> create(Bytes slot_bytes, std::uint64_t pages,
                                                   Bytes slab_bytes, CopyEngine& copies);

  // Whether `slot` can be a destination: below the fixed number; in a growing pool, not more than
  // 2^20 beyond the highest so far, so that a wild number does not eat the machine. Maps memory if
  // needed; error full: there is none, arg: out of range.
  Code make_usable(std::uint32_t slot);

  [[nodiscard]] std::uint64_t usable() const { return usable_; }
  // Requires: slot < usable().
  [[nodiscard]] std::byte* bytes(std::uint32_t slot) const { return bytes_->unit(slot); }
  [[nodiscard]] SlotState& state(std::uint32_t slot) const;
  // One more than the highest slot that was ever a destination.
  [[nodiscard]] std::uint64_t touched() const { return touched_; }
  [[nodiscard]] Bytes mapped() const { return bytes_->mapped(); }

 private:
  explicit RankSlots(CopyEngine& copies) : copies_(copies) {}
  Status grow(std::uint64_t slots);

  CopyEngine& copies_;
  std::unique_ptr<HostArena> bytes_;
  std::unique_ptr<HostArena> states_;  // SlotState, zeroed when first touched
  std::uint64_t usable_ = 0;
  std::uint64_t touched_ = 0;
  std::uint64_t pages_ = 0;
  std::size_t pinned_slabs_ = 0;
};

}  // namespace kvc
