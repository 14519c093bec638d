#include "plugin/coordinator/tier_policy.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/coordinator/tier_arc.h"
#include "plugin/coordinator/tier_boundary.h"
#include "plugin/coordinator/tier_gdsf.h"
#include "plugin/coordinator/tier_hazard.h"

namespace kvc {

std::string_view name_of(Eviction eviction) {
  switch (eviction) {
    case Eviction::lru:
      break;
    case Eviction::arc:
      return "arc";
    case Eviction::gdsf:
      return "gdsf";
    case Eviction::hazard:
      return "auto";
  }
  return "lru";
}

}  // namespace kvc

namespace kvc::tier {

bool Policy::make() {
  path_.reserve(ctx_.path_max);
  return marks_.size_for(ctx_.slots);
}

void Policy::link_young(std::uint16_t list_id, SlotId first, SlotId last) {
  List& list = lists_[list_id];
  ctx_.records[first].prev = list.young + 1;
  ctx_.records[last].next = 0;
  const SlotId before = list.young;
  list.young = last;
  if (before != no_slot) {
    ctx_.records[before].next = first + 1;
    return;
  }
  list.old = first;
  old_end_changed(list_id);
}

void Policy::unlink(std::uint16_t list_id, SlotId first, SlotId last) {
  List& list = lists_[list_id];
  const std::uint32_t prev = ctx_.records[first].prev;
  const std::uint32_t next = ctx_.records[last].next;
  if (next != 0) {
    ctx_.records[next - 1].prev = prev;
  } else {
    list.young = prev - 1;
  }
  if (prev != 0) {
    ctx_.records[prev - 1].next = next;
    return;
  }
  list.old = next - 1;
  old_end_changed(list_id);
}

void Policy::push_young(SlotId slot) {
  Mark& m = marks_[slot];
  m.set(Mark::listed_bit, true);
  m.set(Mark::parked_bit, false);
  link_young(m.list, slot, slot);
}

void Policy::push_old(SlotId slot) {
  Mark& m = marks_[slot];
  List& list = lists_[m.list];
  Record& r = ctx_.records[slot];
  r.prev = 0;
  r.next = list.old + 1;
  m.set(Mark::listed_bit, true);
  m.set(Mark::parked_bit, false);
  if (list.old != no_slot) ctx_.records[list.old].prev = slot + 1;
  list.old = slot;
  if (list.young == no_slot) list.young = slot;
  old_end_changed(m.list);
}

void Policy::delist(SlotId slot) {
  Mark& m = marks_[slot];
  m.set(Mark::parked_bit, false);
  if (!m.has(Mark::listed_bit)) return;
  m.set(Mark::listed_bit, false);
  unlink(m.list, slot, slot);
  Record& r = ctx_.records[slot];
  r.prev = r.next = 0;
}

void Policy::move_young(SlotId slot, std::uint16_t list) {
  Mark& m = marks_[slot];
  const bool parked = m.has(Mark::parked_bit);
  const bool listed = m.has(Mark::listed_bit);
  if (listed) unlink(m.list, slot, slot);
  m.list = list;
  if (!listed && !parked) return;
  m.set(Mark::listed_bit, true);
  m.set(Mark::parked_bit, false);
  link_young(list, slot, slot);
}

void Policy::move_queued() {
  if (queued_.last == no_slot) return;
  unlink(queued_.from, queued_.first, queued_.last);
  link_young(queued_.to, queued_.first, queued_.last);
  queued_.last = no_slot;
}

SlotId Policy::oldest(std::uint16_t list, RunId store_run) {
  for (SlotId slot = lists_[list].old; slot != no_slot; slot = lists_[list].old) {
    const Record& r = ctx_.records[slot];
    if (r.place() == Place::strand) return r.run() == store_run ? no_slot : slot;
    park(slot);
  }
  return no_slot;
}

// Blocks are here root first (design 3.1 a): the last one is found by bisection, and each knows the
// one before it.
std::span<const SlotId> Policy::find_path(const KeyView& keys, std::uint64_t count, SlotId near) {
  path_.assign(count, no_slot);
  SlotId slot = no_slot;
  std::uint64_t here = 0;
  std::uint64_t next = count;
  if (near != no_slot && is_chain(near) && ctx_.records[near].keyed()) {
    const std::uint64_t blocks = ctx_.records[near].end / ctx_.block.n;
    if (blocks <= count && ctx_.records.has_key(near, key_of(keys, blocks - 1))) {
      slot = near;
      here = blocks;
      next = here + 1;
    }
  }
  for (std::uint64_t absent = count; here < absent;) {
    const SlotId found =
        next == 0 ? no_slot : ctx_.records.find(ctx_.chain, key_of(keys, next - 1));
    if (found != no_slot && ctx_.records[found].end == (ctx_.block * next).n) {
      slot = found;
      here = next;
    } else {
      absent = next - 1;
    }
    next = here + (absent - here + 1) / 2;
  }
  for (std::uint64_t i = here; i > 0;) {
    const Record& r = ctx_.records[slot];
    const auto known = static_cast<std::uint32_t>(std::min<std::uint64_t>(r.stretch(), i - 1));
    path_[i - 1] = slot;
    for (std::uint32_t n = 1; n < known; ++n) path_[i - 1 - n] = r.ancestor(slot, n);
    i -= std::max(known, 1U);
    slot = known > 0 ? r.ancestor(slot, known) : r.support - 1;
  }
  return path_;
}

std::uint64_t Policy::tag_of(const std::byte* key) const {
  const std::uint32_t bytes = ctx_.records.key_bytes();
  std::uint64_t h = bytes;
  const auto mix = [&h](std::uint64_t word) {
    h = (h ^ word) * 0x9e3779b97f4a7c15U;
    h ^= h >> 32U;
  };
  for (std::uint32_t i = 0; i + 8 <= bytes; i += 8) mix(key_hash::load64(key + i));
  if (bytes % 8 != 0) mix(key_hash::load64(key + bytes - 8));
  mix(0);
  return h == 0 ? 1 : h;
}

void Policy::reset() {
  for (SlotId slot = 0; slot < ctx_.records.used(); ++slot) marks_[slot] = Mark{};
  for (std::size_t i = 0; i < lists_.size(); ++i) {
    lists_[i] = List{};
    old_end_changed(static_cast<std::uint16_t>(i));
  }
}

// Where an entry that may go must stand, and that only published ones stand anywhere. One that was
// in front or kept and is held now comes back later.
Status Policy::verify_slot(SlotId slot) const {
  const Record& r = ctx_.records[slot];
  const Mark& m = marks_[slot];
  const bool listed = m.has(Mark::listed_bit);
  const bool parked = m.has(Mark::parked_bit);
  if (listed && parked) return {Code::internal, fmt::format("slot {} is listed and parked", slot)};
  const bool elsewhere = r.place() == Place::front || r.place() == Place::kept;
  if ((listed || parked) && (!r.published() || elsewhere))
    return {Code::internal, fmt::format("slot {} is wrongly in the lists of its policy", slot)};
  if (r.place() == Place::strand && !listed)
    return {Code::internal, fmt::format("slot {} is missing in the lists of its policy", slot)};
  if (parked && !r.blocked())
    return {Code::internal, fmt::format("slot {} is parked and may go", slot)};
  if (!r.keyed() && (m.stamp != 0 || m.flags != 0))
    return {Code::internal, fmt::format("slot {} is free and has a mark", slot)};
  return {};
}

Status Policy::verify() const {
  std::uint64_t listed = 0;
  for (SlotId slot = 0; slot < ctx_.records.used(); ++slot) {
    if (Status s = verify_slot(slot); !s.ok()) return s;
    listed += marks_[slot].has(Mark::listed_bit) ? 1 : 0;
  }
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < lists_.size(); ++i) {
    SlotId before = no_slot;
    for (SlotId slot = lists_[i].old; slot != no_slot; slot = ctx_.records[slot].next - 1) {
      const Mark& m = marks_[slot];
      if (++seen > listed || !m.has(Mark::listed_bit) || m.list != i ||
          ctx_.records[slot].prev != before + 1)
        return {Code::internal, fmt::format("slot {} is out of place in list {}", slot, i)};
      before = slot;
    }
    if (lists_[i].young != before)
      return {Code::internal, fmt::format("list {} has a wrong young end", i)};
  }
  if (seen != listed)
    return {Code::internal, fmt::format("{} slots are listed, {} stand in lists", listed, seen)};
  return {};
}

std::unique_ptr<Policy> make_policy(Eviction eviction, const PolicyContext& context) {
  switch (eviction) {
    case Eviction::lru:
      break;
    case Eviction::arc:
      return std::make_unique<ArcPolicy>(context);
    case Eviction::gdsf:
      return std::make_unique<GdsfPolicy>(context);
    case Eviction::hazard:
      if (!context.states.empty()) return std::make_unique<BoundaryPolicy>(context);
      return std::make_unique<HazardPolicy>(context);
  }
  return nullptr;
}

}  // namespace kvc::tier
