#include "plugin/offload/disk_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "plugin/core/disk_room.h"

namespace kvc {

namespace {

constexpr std::size_t drops_reserved = 4096;

}  // namespace

DiskIndex::DiskIndex(const Geometry& geometry, std::uint32_t key_bytes, bool chained,
                     EventRing& events)
    : geometry_(geometry), key_bytes_(key_bytes), chained_(chained), events_(events) {}

Status DiskIndex::resize(const DiskSizes& sizes) {
  KVC_CHECK(!sized());
  std::uint64_t least = UINT64_MAX;
  std::uint64_t all = 0;
  for (const GroupId g : geometry_.cacheable()) {
    const std::uint64_t cost = sizes.cost_of_group[g];
    if (cost == 0) continue;
    least = std::min(least, cost);
    all += cost;
  }
  if (all == 0 || sizes.budget_bytes < disk::entries_least * all) {
    return {Code::arg,
            fmt::format("a disk tier of {} bytes a rank has no room for two blocks of every group, "
                        "which take {}",
                        sizes.budget_bytes, disk::entries_least * all)};
  }
  entries_ = std::min(sizes.budget_bytes / least, disk::entries_most);
  Result<TierIndex> made = TierIndex::make(geometry_, {.key_bytes = key_bytes_,
                                                       .slots = entries_,
                                                       .open_runs = sizes.open_runs,
                                                       .chained = chained_});
  if (!made.ok()) return made.error();
  group_of_.ensure(entries_);
  next_free_.ensure(entries_);
  drops_.reserve(drops_reserved);
  cost_ = sizes.cost_of_group;
  budget_ = sizes.budget_bytes;
  index_.emplace(std::move(made).value());
  return {};
}

Presence DiskIndex::find(GroupId group, const std::byte* key, SlotId& entry) const {
  entry = no_slot;
  return index_ ? index_->find_any(group, key, entry) : Presence::absent;
}

// A number for one more entry of the group, within the budget.
SlotId DiskIndex::take(GroupId group, RunId run) {
  const std::uint64_t cost = cost_[group];
  while (used_ + cost > budget_ || in_use_ == entries_) {
    const SlotId victim = index_->victim(run);
    if (victim == no_slot) return no_slot;
    index_->evict(victim, *this);
  }
  SlotId entry = first_free_ - 1;
  if (first_free_ != 0) {
    first_free_ = next_free_[entry];
  } else {
    entry = fresh_++;
  }
  group_of_[entry] = static_cast<std::uint8_t>(group + 1);
  used_ += cost;
  ++in_use_;
  return entry;
}

void DiskIndex::free(SlotId entry) {
  KVC_CHECK(group_of_[entry] != 0);
  used_ -= cost_[group_of_[entry] - std::size_t{1}];
  group_of_[entry] = 0;
  next_free_[entry] = first_free_;
  first_free_ = entry + 1;
  --in_use_;
}

SlotId DiskIndex::reserve(GroupId group, const std::byte* key, const KeyView& path, Tokens end,
                          RunId run, SlotId bad) {
  if (cost_[group] == 0) return no_slot;
  if (bad != no_slot) {
    if (index_->pins(bad) != 0) return no_slot;
    index_->rewrite(bad);
    index_->touch(bad, run);
    return bad;
  }
  const Supports supports = index_->hold_supports(group, path, end, run);
  if (supports.no_parent) return no_slot;
  const SlotId entry = take(group, run);
  if (entry == no_slot) {
    ++counters_.refusals;
    index_->drop_supports(supports);
    return no_slot;
  }
  index_->reserve(entry, group, key, path, end, run, supports);
  return entry;
}

void DiskIndex::publish(SlotId entry) {
  KVC_CHECK(!doomed(entry));
  static_cast<void>(index_->publish(entry, 0, *this));
}

const std::byte* DiskIndex::parent_of(SlotId entry) const {
  const SlotId parent = index_->supports_of(entry).first;
  return parent == no_slot ? nullptr : index_->last_key(parent);
}

void DiskIndex::abandon(SlotId entry) {
  ++epoch_;
  if (doomed(entry)) {
    if (!index_->release(entry)) return;
    drop_stray(entry);
    free(entry);
    return;
  }
  ++counters_.lost;
  const SlotKey key = index_->key_of(entry);
  drop(key.group, key.key);
  const bool rewritten = index_->state(entry) == EntryState::published;
  index_->fail(entry, *this);
  if (!rewritten) free(entry);
}

// Ranks may have written what the entry was; unless another one has its key by now, it must go.
void DiskIndex::drop_stray(SlotId entry) {
  const GroupId group = group_of_[entry] - GroupId{1};
  const std::byte* const key = index_->last_key(entry);
  SlotId other = no_slot;
  if (index_->find_any(group, key, other) == Presence::absent && other == no_slot) drop(group, key);
}

void DiskIndex::give_back(SlotId entry) {
  if (doomed(entry)) {
    if (index_->release(entry)) free(entry);
    return;
  }
  const bool rewritten = index_->state(entry) == EntryState::published;
  index_->fail(entry, *this);
  if (!rewritten) free(entry);
}

void DiskIndex::condemn(SlotId entry) {
  if (!published(entry)) return;
  ++epoch_;
  ++counters_.lost;
  const SlotKey key = index_->key_of(entry);
  if (events_.enabled()) events_.push(event_of(EventKind::removed, key));
  drop(key.group, key.key);
  index_->mark_bad(entry);
}

void DiskIndex::unpin(SlotId entry, PinKind kind) {
  if (index_->unpin(entry, kind)) free(entry);
}

void DiskIndex::use(SlotId entry, RunId run, const KeyView& path) {
  index_->meet(entry, path);
  index_->touch(entry, run);
  index_->hold_path(run, entry);
}

RunId DiskIndex::open_run() {
  const RunId run = index_ ? index_->open_run() : no_run;
  if (run != no_run) index_->schedule(run);
  return run;
}

void DiskIndex::close_run(RunId run) {
  if (index_ && run != no_run) index_->close_run(run);
}

void DiskIndex::schedule(RunId run) {
  if (index_ && run != no_run) index_->schedule(run);
}

void DiskIndex::release_path(RunId run) {
  if (index_ && run != no_run) index_->release_path(run);
}

void DiskIndex::reset() {
  ++epoch_;
  if (!sized()) return;
  resetting_ = true;
  index_->reset(*this);
  resetting_ = false;
  drops_.clear();
  first_drop_ = 0;
  CacheEvent event;
  event.kind = EventKind::cleared;
  event.medium = Medium::disk;
  events_.push(event);
}

void DiskIndex::drop(GroupId group, const std::byte* key) {
  if (first_drop_ == drops_.size()) {
    drops_.clear();
    first_drop_ = 0;
  }
  DiskDrop& d = drops_.emplace_back();
  d.group = group;
  std::memcpy(d.key.data(), key, key_bytes_);
}

DiskDrop DiskIndex::take_drop() {
  KVC_CHECK(drops() != 0);
  return drops_[first_drop_++];
}

void DiskIndex::shrink_budget() {
  const std::uint64_t most = *std::max_element(cost_.begin(), cost_.end());
  budget_ = std::min(budget_, std::max(used_ > most ? used_ - most : 0, 2 * most));
}

CacheEvent DiskIndex::event_of(EventKind kind, const SlotKey& key) const {
  CacheEvent event;
  event.kind = kind;
  event.medium = Medium::disk;
  event.group = key.group;
  event.end = key.end;
  event.begin = round_down(Tokens{key.end.n - 1}, geometry_.block_tokens(key.group));
  std::memcpy(event.key.data(), key.key, key_bytes_);
  return event;
}

void DiskIndex::evicted(SlotId entry, const SlotKey& key, bool bad) {
  if (!resetting_) {
    if (!bad) {
      if (events_.enabled()) events_.push(event_of(EventKind::removed, key));
      drop(key.group, key.key);
    }
    ++counters_.evictions;
  }
  free(entry);
}

void DiskIndex::published(SlotId entry, std::uint32_t /*tag*/) {
  ++epoch_;
  if (!events_.enabled()) return;
  CacheEvent event = event_of(EventKind::stored, index_->key_of(entry));
  // Of the chain the block before it; what other groups hang on ends elsewhere.
  const bool chain = geometry_.chain() == event.group;
  if (const std::byte* const parent = chain ? parent_of(entry) : nullptr; parent != nullptr) {
    event.has_parent = true;
    std::memcpy(event.parent_key.data(), parent, key_bytes_);
  }
  events_.push(event);
}

// What hung on a failed entry: one whose write is open is doomed until it ended.
void DiskIndex::failed(SlotId entry, std::uint32_t /*tag*/, bool copy_open) {
  if (copy_open) return;
  if (!resetting_) drop_stray(entry);
  free(entry);
}

std::string DiskIndex::verify() const {
  if (!sized()) return {};
  if (const Status s = index_->verify(); !s.ok()) return "disk: " + s.text;
  std::uint64_t used = 0;
  std::uint64_t in_use = 0;
  for (SlotId e = 0; e < fresh_; ++e) {
    if ((group_of_[e] != 0) != (index_->state(e) != EntryState::free)) {
      return fmt::format("disk: entry {} is used and free", e);
    }
    if (group_of_[e] == 0) continue;
    used += cost_[group_of_[e] - std::size_t{1}];
    ++in_use;
  }
  if (used != used_ || in_use != in_use_) {
    return fmt::format("disk: {} entries of {} bytes are in use, {} of {} are counted", in_use,
                       used, in_use_, used_);
  }
  return {};
}

}  // namespace kvc
