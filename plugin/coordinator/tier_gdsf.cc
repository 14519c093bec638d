#include "plugin/coordinator/tier_gdsf.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kvc::tier {

bool GdsfPolicy::make() {
  lists_.resize(ring);
  if (!Policy::make()) return false;
  return ctx_.slots == 0 || ctx_.open_runs == 0 || requests_.size_for(ctx_.slots + ctx_.open_runs);
}

void GdsfPolicy::opened(RunId run) {
  if (!requests_.ensure(std::uint64_t{run} + 1)) throw std::bad_alloc();
  requests_[run] = 0;
}

// What was away longer than the tier aged has the tier's age.
void GdsfPolicy::listing(SlotId slot) {
  Mark& m = marks_[slot];
  m.stamp = std::max(m.stamp, age_);
  m.list = static_cast<std::uint16_t>(m.stamp % ring);
}

void GdsfPolicy::old_end_changed(std::uint16_t list) {
  const std::uint64_t bit = std::uint64_t{1} << list % 64;
  std::uint64_t& word = filled_[list / 64];
  word = lists_[list].old != no_slot ? word | bit : word & ~bit;
}

void GdsfPolicy::use(SlotId slot) {
  Mark& m = marks_[slot];
  m.touches = static_cast<std::uint8_t>(std::min<std::uint32_t>(m.touches + 1U, touches_max));
  const std::uint32_t priority = age_ + m.touches;
  move_young(slot, static_cast<std::uint16_t>(priority % ring));
  m.stamp = priority;
}

void GdsfPolicy::begin(RunId run, const KeyView& keys, Tokens prompt) {
  if (requests_[run] != 0) return;
  requests_[run] = ++now_;
  const std::uint64_t count = blocks_of(keys, prompt);
  const std::span<const SlotId> path = find_path(keys, count);
  for (std::uint64_t i = count; i > 0; --i)
    if (path[i - 1] != no_slot) use(path[i - 1]);
}

void GdsfPolicy::end(RunId /*run*/, const KeyView& /*keys*/, Tokens /*answer*/) {}

void GdsfPolicy::reserved(SlotId slot, RunId /*run*/) { marks_[slot] = {age_ + 1, 0, 1, 0}; }

// The begin of a request uses its chain entries; the others are used when they are touched.
void GdsfPolicy::touched(SlotId slot, RunId /*run*/) {
  if (!is_chain(slot)) use(slot);
}

void GdsfPolicy::gone(SlotId slot) {
  delist(slot);
  marks_[slot] = {};
}

std::uint32_t GdsfPolicy::first_step(std::uint32_t from) const {
  for (std::uint32_t step = from; step < ring;) {
    const std::uint32_t list = (age_ + step) % ring;
    const std::uint64_t word = filled_[list / 64] >> list % 64;
    if (word != 0) return std::min<std::uint32_t>(step + std::countr_zero(word), ring);
    step += 64 - list % 64;
  }
  return ring;
}

SlotId GdsfPolicy::victim(RunId store_run, const Newcomer& /*newcomer*/, bool& /*declined*/) {
  bool lowest = true;
  for (std::uint32_t step = first_step(0); step < ring; step = first_step(step + 1)) {
    const auto list = static_cast<std::uint16_t>((age_ + step) % ring);
    const SlotId slot = oldest(list, store_run);
    if (lowest && lists_[list].old != no_slot) {
      age_ += step;
      step = 0;
      lowest = false;
    }
    if (slot != no_slot) return slot;
  }
  return no_slot;
}

PolicyNumbers GdsfPolicy::numbers() const {
  PolicyNumbers n;
  n.bytes = base_bytes();
  n.requests = now_;
  n.target = age_;
  return n;
}

Status GdsfPolicy::verify() const {
  if (Status s = Policy::verify(); !s.ok()) return s;
  for (SlotId slot = 0; slot < ctx_.records.used(); ++slot) {
    const Mark& m = marks_[slot];
    if (!m.has(Mark::listed_bit)) continue;
    if (m.stamp < age_ || m.stamp > age_ + touches_max || m.list != m.stamp % ring)
      return {Code::internal,
              fmt::format("slot {} has priority {} at age {}", slot, m.stamp, age_)};
  }
  for (std::uint32_t i = 0; i < ring; ++i)
    if ((filled_[i / 64] >> i % 64 & 1U) != (lists_[i].old != no_slot ? 1U : 0U))
      return {Code::internal, fmt::format("list {} is wrongly filled or empty", i)};
  return {};
}

}  // namespace kvc::tier
