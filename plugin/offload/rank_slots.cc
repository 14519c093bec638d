#include "plugin/offload/rank_slots.h"

#include <algorithm>

#include "plugin/offload/rank_layout.h"

namespace kvc {

namespace {

constexpr std::uint64_t stride_max = std::uint64_t{1} << 20;
constexpr std::uint64_t states_per_slab = std::uint64_t{1} << 17;  // 1 MiB

}  // namespace

Result<std::unique_ptr<RankSlots>> RankSlots::create(Bytes slot_bytes, std::uint64_t pages,
                                                     Bytes slab_bytes, CopyEngine& copies) {
  const bool grows = pages == UINT64_MAX;
  std::unique_ptr<RankSlots> slots(new RankSlots(copies));
  slots->pages_ = grows ? RankLayout::slots_max : pages;
  HostArenaOptions o;
  o.unit_bytes = slot_bytes;
  o.units_max = slots->pages_;
  o.units_per_slab = grows ? std::max<std::uint64_t>(1, slab_bytes.n / slot_bytes.n) : 0;
  auto bytes = HostArena::create(o);
  if (!bytes.ok()) return bytes.error();
  slots->bytes_ = std::move(bytes.value());
  o.unit_bytes = {sizeof(SlotState)};
  o.units_per_slab = grows ? states_per_slab : 0;
  auto states = HostArena::create(o);
  if (!states.ok()) return states.error();
  slots->states_ = std::move(states.value());
  if (Status s = slots->grow(grows ? 1 : pages); !s.ok()) return s;
  return slots;
}

Status RankSlots::grow(std::uint64_t slots) {
  if (Status s = bytes_->grow_to(slots); !s.ok()) return s;
  for (; pinned_slabs_ < bytes_->slab_count(); ++pinned_slabs_) {
    if (Status s = copies_.pin(bytes_->slab_base(pinned_slabs_), bytes_->slab_bytes()); !s.ok()) {
      return s;
    }
  }
  if (Status s = states_->grow_to(slots); !s.ok()) return s;
  usable_ = std::min(std::min(bytes_->units_usable(), states_->units_usable()), pages_);
  return {};
}

Code RankSlots::make_usable(std::uint32_t slot) {
  if (slot >= pages_) return Code::arg;
  if (slot >= usable_) {
    if (slot > touched_ + stride_max) return Code::arg;
    if (Status s = grow(std::uint64_t{slot} + 1); !s.ok()) return s.code;
  }
  touched_ = std::max(touched_, std::uint64_t{slot} + 1);
  return Code::ok;
}

SlotState& RankSlots::state(std::uint32_t slot) const {
  static_assert(sizeof(SlotState) == 8 && alignof(SlotState) <= 8);
  return *reinterpret_cast<SlotState*>(states_->unit(slot));
}

}  // namespace kvc
