// The host memory of one rank: pages that belong to one class of slots at a time, and what is known
// about each slot.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cuda/copy_engine.h"
#include "plugin/core/host_arena.h"
#include "plugin/core/result.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

// What a rank knows about a slot. All zero: never stored.
struct SlotState {
  static constexpr std::uint32_t filling = UINT32_MAX;
  std::uint32_t writer = 0;   // open store job + 1; filling: the disk tier; 0: none
  std::uint16_t readers = 0;  // open load jobs
  // Places that the last store wrote, from the first on, if it ended ok; of an open one those that
  // it writes.
  std::uint8_t written = 0;
  std::uint8_t awaited = 0;  // 1: a plan whose stores were not submitted yet stores here
};

// Slot s of class c is the (s % slots_per_page)-th on page s / slots_per_page. The scheduler role
// decides which class has a page (a page without used slots belongs to nobody); the rank follows,
// and refuses what contradicts open jobs.
//
// Threads:    one user; the bytes are shared with the copy engine.
// Owns:       the bytes of the pages and the states of their slots.
// Invariants: a page belongs to at most one class; it changes hands only while no open job reads or
// writes a slot of it,
//             and everything known about its slots is forgotten then; addresses never change.
class RankPages {
 public:
  // `pages` pages of `page_bytes`, or growing by slabs if pages is UINT64_MAX. The memory is pinned
  // through `copies`. Requires: for every class slots_per_page >= 1 and slots_per_page *
  // bytes_per_block <= page_bytes. Errors: full (no memory), or what pin says.
  static Result<std::unique_ptr<RankPages>> create(std::span<const SlotClass> classes,
                                                   Bytes page_bytes, std::uint64_t pages,
                                                   Bytes slab_bytes, CopyEngine& copies);

  // Gives the slot's page to the class. ok; arg: out of range (in a growing pool more than 2^20
  // pages beyond the highest so far, so that a wild number does not eat the machine); full: no
  // memory; state: another class uses the page.
  Code claim(std::uint32_t cls, std::uint32_t slot);

  // Whether the slot's page belongs to the class: required by the two calls below.
  [[nodiscard]] bool owned(std::uint32_t cls, std::uint32_t slot) const;
  [[nodiscard]] std::byte* bytes(std::uint32_t cls, std::uint32_t slot) const;
  [[nodiscard]] SlotState& state(std::uint32_t cls, std::uint32_t slot) const;

  // Whether the number can name a slot of the class at all.
  [[nodiscard]] bool in_range(std::uint32_t cls, std::uint32_t slot) const {
    return slot / per_page_[cls] < pages_;
  }
  [[nodiscard]] Bytes mapped() const { return bytes_->mapped(); }

  // For verify: calls f(cls, slot, state) for all slots of pages that were ever claimed.
  template <class F>
  void for_each(F f) const {
    for (std::uint64_t p = 0; p < touched_; ++p) {
      if (owner(p) == 0) continue;
      const std::uint32_t cls = owner(p) - 1;
      for (std::uint32_t i = 0; i < per_page_[cls]; ++i) {
        f(cls, static_cast<std::uint32_t>(p * per_page_[cls] + i), states(p)[i]);
      }
    }
  }

 private:
  explicit RankPages(CopyEngine& copies) : copies_(copies) {}
  Status grow(std::uint64_t pages);
  // Class + 1; 0: nobody. Requires: page < usable_.
  [[nodiscard]] std::uint32_t& owner(std::uint64_t page) const;
  [[nodiscard]] SlotState* states(std::uint64_t page) const;

  CopyEngine& copies_;
  std::unique_ptr<HostArena> bytes_;
  std::unique_ptr<HostArena>
      records_;  // per page: owner, then the states; zeroed when first touched
  std::vector<std::uint32_t> per_page_;  // by class
  std::vector<std::uint64_t> slot_bytes_;
  std::uint32_t widest_ = 1;
  std::uint64_t usable_ = 0;
  std::uint64_t touched_ = 0;  // one more than the highest page that was ever claimed
  std::uint64_t pages_ = 0;
  std::size_t pinned_slabs_ = 0;
};

}  // namespace kvc
