#include "plugin/offload/rank_pages.h"

#include <algorithm>

#include "plugin/offload/rank_layout.h"

namespace kvc {

namespace {

constexpr std::uint64_t leap_max = std::uint64_t{1} << 20;
constexpr std::uint64_t record_slab_bytes = std::uint64_t{1} << 20;
static_assert(sizeof(SlotState) == 8 && alignof(SlotState) <= 8);

}  // namespace

Result<std::unique_ptr<RankPages>> RankPages::create(std::span<const SlotClass> classes,
                                                     Bytes page_bytes, std::uint64_t pages,
                                                     Bytes slab_bytes, CopyEngine& copies) {
  const bool grows = pages == UINT64_MAX;
  std::unique_ptr<RankPages> out(new RankPages(copies));
  for (const SlotClass& c : classes) {
    KVC_CHECK(c.slots_per_page != 0 && c.slots_per_page <= page_bytes.n / c.bytes_per_block.n);
    out->per_page_.push_back(static_cast<std::uint32_t>(c.slots_per_page));
    out->slot_bytes_.push_back(c.bytes_per_block.n);
    out->widest_ = std::max(out->widest_, out->per_page_.back());
  }
  out->pages_ = grows ? RankLayout::slots_max / out->widest_ : pages;
  HostArenaOptions o;
  o.unit_bytes = page_bytes;
  o.units_max = out->pages_;
  o.units_per_slab = grows ? std::max<std::uint64_t>(1, slab_bytes.n / page_bytes.n) : 0;
  auto bytes = HostArena::create(o);
  if (!bytes.ok()) return bytes.error();
  out->bytes_ = std::move(bytes.value());
  o.unit_bytes = {sizeof(SlotState) * (std::uint64_t{out->widest_} + 1)};
  o.units_per_slab = grows ? std::max<std::uint64_t>(1, record_slab_bytes / o.unit_bytes.n) : 0;
  auto records = HostArena::create(o);
  if (!records.ok()) return records.error();
  out->records_ = std::move(records.value());
  if (Status s = out->grow(grows ? 1 : pages); !s.ok()) {
    copies.unpin();
    return s;
  }
  return out;
}

Status RankPages::grow(std::uint64_t pages) {
  if (Status s = bytes_->grow_to(pages); !s.ok()) return s;
  for (; pinned_slabs_ < bytes_->slab_count(); ++pinned_slabs_) {
    if (Status s = copies_.pin(bytes_->slab_base(pinned_slabs_), bytes_->slab_bytes(),
                               bytes_->unit_bytes());
        !s.ok())
      return s;
  }
  if (Status s = records_->grow_to(pages); !s.ok()) return s;
  usable_ = std::min(std::min(bytes_->units_usable(), records_->units_usable()), pages_);
  return {};
}

Code RankPages::claim(std::uint32_t cls, std::uint32_t slot) {
  const std::uint64_t page = slot / per_page_[cls];
  if (page >= pages_) return Code::arg;
  if (page >= usable_) {
    if (page > touched_ + leap_max) return Code::arg;
    if (Status s = grow(page + 1); !s.ok()) return s.code;
  }
  touched_ = std::max(touched_, page + 1);
  std::uint32_t& o = owner(page);
  if (o == cls + 1) return Code::ok;
  SlotState* s = states(page);
  if (std::any_of(s, s + widest_,
                  [](const SlotState& x) { return x.writer != 0 || x.readers != 0; })) {
    return Code::state;
  }
  std::fill(s, s + widest_, SlotState{});
  o = cls + 1;
  return Code::ok;
}

bool RankPages::owned(std::uint32_t cls, std::uint32_t slot) const {
  const std::uint64_t page = slot / per_page_[cls];
  return page < usable_ && owner(page) == cls + 1;
}

std::byte* RankPages::bytes(std::uint32_t cls, std::uint32_t slot) const {
  return bytes_->unit(slot / per_page_[cls]) + slot % per_page_[cls] * slot_bytes_[cls];
}

SlotState& RankPages::state(std::uint32_t cls, std::uint32_t slot) const {
  const std::uint64_t page = slot / per_page_[cls];
  KVC_CHECK(owner(page) == cls + 1);
  return states(page)[slot % per_page_[cls]];
}

std::uint32_t& RankPages::owner(std::uint64_t page) const {
  return *reinterpret_cast<std::uint32_t*>(records_->unit(page));
}

SlotState* RankPages::states(std::uint64_t page) const {
  return reinterpret_cast<SlotState*>(records_->unit(page) + sizeof(SlotState));
}

}  // namespace kvc
