#include "plugin/offload/slot_pool.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

SlotPool::SlotPool(std::uint64_t pages, std::vector<std::uint32_t> slots_per_page)
    : pages_(pages), per_page_(std::move(slots_per_page)), partial_(per_page_.size(), 0) {
  KVC_CHECK(!per_page_.empty() && per_page_.size() <= 64);
  for (const std::uint32_t n : per_page_) {
    KVC_CHECK(n >= 1);
    widest_ = std::max(widest_, n);
  }
  if (pages_ != UINT64_MAX) {
    KVC_CHECK(pages_ < (std::uint64_t{1} << 31U) / widest_);
    if (single()) {
      free_singles_.ensure(pages_);
    } else {
      page_.ensure(pages_);
    }
    used_.ensure(pages_ * widest_);
  }
}

void SlotPool::link_partial(std::uint32_t page) {
  Page& p = page_[page];
  std::uint32_t& head = partial_[p.cls_plus_1 - 1];
  p.prev = 0;
  p.next = head;
  if (head != 0) page_[head - 1].prev = page + 1;
  head = page + 1;
}

void SlotPool::unlink_partial(std::uint32_t page) {
  Page& p = page_[page];
  if (p.prev != 0) {
    page_[p.prev - 1].next = p.next;
  } else {
    partial_[p.cls_plus_1 - 1] = p.next;
  }
  if (p.next != 0) page_[p.next - 1].prev = p.prev;
  p.next = p.prev = 0;
}

// A page that was never used; its number, or UINT32_MAX when there is none.
std::uint32_t SlotPool::fresh_page() {
  if (fresh_ == pages_ || (fresh_ + 1) * widest_ >= (std::uint64_t{1} << 31U)) return UINT32_MAX;
  if (single()) {
    free_singles_.ensure(fresh_ + 1);
  } else {
    page_.ensure(fresh_ + 1);
  }
  used_.ensure((fresh_ + 1) * widest_);
  return static_cast<std::uint32_t>(fresh_++);
}

bool SlotPool::claim_page(std::uint32_t cls) {
  std::uint32_t page = 0;
  if (free_page_ != 0) {
    page = free_page_ - 1;
    free_page_ = page_[page].next;
  } else {
    page = fresh_page();
    if (page == UINT32_MAX) return false;
  }
  page_[page] = Page{0, 0, 0, cls + 1};
  link_partial(page);
  return true;
}

SlotId SlotPool::take_single(std::uint32_t cls) {
  const SlotId entry =
      free_singles_.empty() ? fresh_page() : static_cast<SlotId>(free_singles_.take());
  if (entry == no_slot) return no_slot;
  used_[entry] = static_cast<std::uint8_t>(cls + 1);
  ++used_total_;
  return entry;
}

SlotId SlotPool::take(std::uint32_t cls) {
  KVC_CHECK(cls < per_page_.size());
  if (single()) return take_single(cls);
  if (partial_[cls] == 0 && !claim_page(cls)) return no_slot;
  const std::uint32_t page = partial_[cls] - 1;
  Page& p = page_[page];
  const SlotId first = page * widest_;
  std::uint32_t k = 0;
  while (used_[first + k] != 0) ++k;
  KVC_CHECK(k < per_page_[cls]);
  used_[first + k] = static_cast<std::uint8_t>(cls + 1);
  ++used_total_;
  if (++p.used == per_page_[cls]) unlink_partial(page);
  return first + k;
}

void SlotPool::give_back(SlotId entry) {
  KVC_CHECK(used_[entry] != 0);
  used_[entry] = 0;
  --used_total_;
  if (single()) return free_singles_.insert(entry);
  const std::uint32_t page = entry / widest_;
  Page& p = page_[page];
  const bool was_full = p.used == per_page_[p.cls_plus_1 - 1];
  --p.used;
  if (was_full) link_partial(page);
  if (p.used != 0) return;
  unlink_partial(page);
  p = Page{0, free_page_, 0, 0};
  free_page_ = page + 1;
}

std::uint32_t SlotPool::class_of(SlotId entry) const {
  const std::uint32_t cls = single() ? used_[entry] : page_[entry / widest_].cls_plus_1;
  KVC_CHECK(cls != 0);
  return cls - 1;
}

std::uint32_t SlotPool::slot_number(SlotId entry) const {
  return entry / widest_ * per_page_[class_of(entry)] + entry % widest_;
}

std::uint32_t SlotPool::page_slots(SlotId entry) const { return per_page_[class_of(entry)]; }

std::string SlotPool::verify() const {
  std::uint64_t used_total = 0;
  std::uint64_t listed = 0;
  std::uint64_t with_room = 0;  // pages that must be in a list
  if (single()) {
    for (std::uint64_t e = 0; e < fresh_; ++e) {
      used_total += used_[e] != 0;
      if (free_singles_.contains(e) != (used_[e] == 0)) return fmt::format("slot {} is lost", e);
    }
    return used_total == used_total_
               ? ""
               : fmt::format("{} slots used, not {}", used_total, used_total_);
  }
  for (std::uint64_t page = 0; page < fresh_; ++page) {
    const Page& p = page_[page];
    std::uint32_t used_here = 0;
    for (std::uint32_t k = 0; k < widest_; ++k) used_here += used_[page * widest_ + k] != 0;
    if (used_here != p.used) {
      return fmt::format("page {} counts {} used slots, {} are", page, p.used, used_here);
    }
    if ((p.used == 0) != (p.cls_plus_1 == 0)) {
      return fmt::format("page {} with {} used slots belongs to class {}", page, p.used,
                         p.cls_plus_1);
    }
    used_total += used_here;
    with_room += p.used == 0 || p.used != per_page_[p.cls_plus_1 - 1];
  }
  if (used_total != used_total_) {
    return fmt::format("{} slots are used, counted {}", used_total, used_total_);
  }
  for (std::uint32_t p = free_page_; p != 0; p = page_[p - 1].next) {
    if (page_[p - 1].used != 0 || ++listed > fresh_) return "the list of free pages is broken";
  }
  for (std::size_t cls = 0; cls < partial_.size(); ++cls) {
    for (std::uint32_t p = partial_[cls]; p != 0; p = page_[p - 1].next) {
      const Page& page = page_[p - 1];
      if (page.cls_plus_1 != cls + 1 || page.used == 0 || page.used >= per_page_[cls] ||
          ++listed > fresh_) {
        return fmt::format("the partial pages of class {} are broken", cls);
      }
    }
  }
  return listed == with_room ? ""
                             : fmt::format("{} pages have room, {} are listed", with_room, listed);
}

}  // namespace kvc
