#include "plugin/coordinator/tier_arc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvc::tier {

bool ArcPolicy::make() {
  lists_.resize(2);
  const std::uint64_t ghosts = std::max<std::uint64_t>(ctx_.slots, 1);
  if (!Policy::make() || !ghosts_[once].make(ghosts) || !ghosts_[often].make(ghosts)) return false;
  return ctx_.slots == 0 || ctx_.open_runs == 0 || requests_.size_for(ctx_.slots + ctx_.open_runs);
}

void ArcPolicy::opened(RunId run) {
  if (!requests_.ensure(std::uint64_t{run} + 1)) throw std::bad_alloc();
  requests_[run] = 0;
}

// O-247.
void ArcPolicy::learn(std::uint64_t tag) {
  const auto ratio = [&](std::uint16_t over, std::uint16_t under) {
    return std::max(1.0, static_cast<double>(ghosts_[over].size()) /
                             static_cast<double>(ghosts_[under].size()));
  };
  for (const std::uint16_t list : {once, often}) {
    const GhostId ghost = ghosts_[list].find(tag);
    if (ghost == no_ghost) continue;
    if (list == once) {
      target_ = std::min(target_ + ratio(often, once), static_cast<double>(ctx_.slots));
    } else {
      target_ = std::max(target_ - ratio(once, often), 0.0);
    }
    ghosts_[list].make_youngest(ghost);
    return;
  }
}

void ArcPolicy::begin(RunId run, const KeyView& keys, Tokens prompt) {
  if (requests_[run] != 0) return;
  requests_[run] = ++now_;
  const std::uint64_t count = blocks_of(keys, prompt);
  const std::span<const SlotId> path = find_path(keys, count);
  for (std::uint64_t i = count; i > 0; --i)
    if (path[i - 1] == no_slot) learn(tag_of(key_of(keys, i - 1)));
}

void ArcPolicy::set_list(SlotId slot, std::uint16_t list) {
  --sizes_[marks_[slot].list];
  move_young(slot, list);
  ++sizes_[list];
}

// O-248: what the request stored itself was used once by it, anything else is used again.
void ArcPolicy::use(SlotId slot, std::uint32_t request) {
  const Mark& m = marks_[slot];
  set_list(slot, m.stamp == request ? m.list : often);
}

void ArcPolicy::end(RunId run, const KeyView& keys, Tokens /*answer*/) {
  if (requests_[run] == 0) return;
  const std::uint64_t count = blocks_of(keys, Tokens{UINT64_MAX});
  const std::span<const SlotId> path = find_path(keys, count);
  for (std::uint64_t i = count; i > 0; --i)
    if (path[i - 1] != no_slot) use(path[i - 1], requests_[run]);
}

void ArcPolicy::reserved(SlotId slot, RunId run) {
  if (is_chain(slot)) {
    const std::uint64_t tag = tag_of(slot);
    for (Ghosts& list : ghosts_)
      if (const GhostId ghost = list.find(tag); ghost != no_ghost) list.erase(ghost);
  }
  marks_[slot] = {requests_[run], once, 1, 0};
  ++sizes_[once];
}

// The end of a request sees its chain entries; the others are used when they are touched.
void ArcPolicy::touched(SlotId slot, RunId run) {
  if (!is_chain(slot)) use(slot, requests_[run]);
}

void ArcPolicy::gone(SlotId slot) {
  if (marks_[slot].touches == 0) return;  // a reset
  const std::uint16_t list = marks_[slot].list;
  delist(slot);
  --sizes_[list];
  marks_[slot] = {};
  if (!is_chain(slot) || !ctx_.records[slot].published()) return;
  Ghosts& ghosts = ghosts_[list];
  const std::uint64_t tag = tag_of(slot);
  if (ghosts_[once].find(tag) != no_ghost || ghosts_[often].find(tag) != no_ghost) return;
  if (ghosts.size() == ghosts.capacity()) ghosts.erase(ghosts.oldest());
  ghosts.insert(tag, {});
}

void ArcPolicy::reset() {
  Policy::reset();
  for (Ghosts& list : ghosts_) list.clear();
  sizes_ = {};
  target_ = 0;
}

// O-250, one at a time.
SlotId ArcPolicy::victim(RunId store_run, const Newcomer& /*newcomer*/, bool& /*declined*/) {
  const bool first = static_cast<double>(sizes_[once]) >= std::floor(target_);
  const SlotId slot = oldest(first ? once : often, store_run);
  return slot != no_slot ? slot : oldest(first ? often : once, store_run);
}

PolicyNumbers ArcPolicy::numbers() const {
  PolicyNumbers n;
  n.bytes = base_bytes() + ghosts_[once].bytes() + ghosts_[often].bytes();
  n.ghosts = ghosts_[once].size() + ghosts_[often].size();
  n.requests = now_;
  n.target = static_cast<std::uint64_t>(target_);
  return n;
}

Status ArcPolicy::verify() const {
  if (Status s = Policy::verify(); !s.ok()) return s;
  std::array<std::uint64_t, 2> sizes{};
  for (SlotId slot = 0; slot < ctx_.records.used(); ++slot)
    if (ctx_.records[slot].keyed()) ++sizes[marks_[slot].list];
  if (sizes != sizes_)
    return {Code::internal, fmt::format("T1 and T2 have {} and {} entries, counted {} and {}",
                                        sizes[0], sizes[1], sizes_[0], sizes_[1])};
  if (!ghosts_[once].verify() || !ghosts_[often].verify())
    return {Code::internal, "a ghost list is broken"};
  return {};
}

}  // namespace kvc::tier
