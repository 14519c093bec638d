// Slots of a tier: pages shared by classes of groups whose blocks have the same bytes (design 2.4).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plugin/coordinator/key_index.h"
#include "plugin/offload/free_bits.h"
#include "plugin/offload/zeroed_array.h"

namespace kvc {

// Which page a class may take slots from is decided at run time: a page without used slots belongs
// to nobody. A slot has two names: the *entry*, unique in the tier (page x widest class + index),
// and the *slot number* inside its class (page x slots per page + index), which is what ranks know.
//
// Threads:    scheduler role only.
// Owns:       the bookkeeping of pages; bytes belong to the ranks.
// Invariants: a page has slots of one class only; a page is free iff none of its slots is used; no
//             heap after construction unless the pool grows. Where every page is one slot there are
//             no records of pages: a byte and a bit per slot.
class SlotPool {
 public:
  // Requires: every element of slots_per_page >= 1, at most 64 classes; pages x the largest of them
  // below 2^31 unless pages is UINT64_MAX, which grows.
  SlotPool(std::uint64_t pages, std::vector<std::uint32_t> slots_per_page);

  // no_slot when neither the class's pages nor the free pages have room.
  [[nodiscard]] SlotId take(std::uint32_t cls);
  // Requires: the entry is used.
  void give_back(SlotId entry);

  [[nodiscard]] bool used(SlotId entry) const { return used_[entry] != 0; }
  // Requires: the entry's page belongs to a class, here and below.
  [[nodiscard]] std::uint32_t class_of(SlotId entry) const;
  [[nodiscard]] std::uint32_t slot_number(SlotId entry) const;
  // The entries [first, first + count) that share the entry's page.
  [[nodiscard]] SlotId page_first(SlotId entry) const { return entry - entry % widest_; }
  [[nodiscard]] std::uint32_t page_slots(SlotId entry) const;

  [[nodiscard]] std::uint64_t used_slots() const { return used_total_; }
  // Most entries that can exist at once; UINT64_MAX: grows.
  [[nodiscard]] std::uint64_t entries_max() const {
    return pages_ == UINT64_MAX ? UINT64_MAX : pages_ * widest_;
  }
  // Entries that were ever used lie below this.
  [[nodiscard]] std::uint64_t entries_seen() const { return fresh_ * widest_; }
  [[nodiscard]] std::uint64_t slots_of(std::uint32_t cls) const {
    return pages_ == UINT64_MAX ? UINT64_MAX : pages_ * per_page_[cls];
  }
  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  // Index 0 of links means none: they hold page + 1.
  struct Page {
    std::uint32_t used = 0;
    std::uint32_t next = 0;  // partial list of the class, or list of free pages
    std::uint32_t prev = 0;
    std::uint32_t cls_plus_1 = 0;  // 0: free
  };
  void link_partial(std::uint32_t page);
  void unlink_partial(std::uint32_t page);
  [[nodiscard]] bool claim_page(std::uint32_t cls);
  [[nodiscard]] std::uint32_t fresh_page();
  [[nodiscard]] SlotId take_single(std::uint32_t cls);
  [[nodiscard]] bool single() const { return widest_ == 1; }

  std::uint64_t pages_;
  std::vector<std::uint32_t> per_page_;
  std::uint32_t widest_ = 1;
  ZeroedArray<Page> page_;
  ZeroedArray<std::uint8_t> used_;      // class + 1; 0: free
  FreeBits free_singles_;               // single(): pages that were used and are free
  std::vector<std::uint32_t> partial_;  // per class: first page + 1
  std::uint32_t free_page_ = 0;         // first free page + 1
  std::uint64_t fresh_ = 0;             // pages below it were used once
  std::uint64_t used_total_ = 0;
};

}  // namespace kvc
