#include "plugin/offload/host_tier.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

// How many entries of other classes one reservation may evict one by one before it gives up.
constexpr int evictions_per_reservation_max = 64;

}  // namespace

HostTier::HostTier(const Geometry& geometry, std::uint32_t key_bytes, const TierRules& rules,
                   EventRing& events)
    : geometry_(geometry), key_bytes_(key_bytes), rules_(rules), events_(events) {
  if (!rules.chained || !geometry.chain()) rules_.eviction = Eviction::lru;
  sizes_.class_of_group.fill(TierSizes::no_class);
}

Status HostTier::resize(const TierSizes& sizes, std::uint64_t open_runs) {
  KVC_CHECK(!sized());
  const bool grows = sizes.pages == UINT64_MAX;
  const std::uint64_t widest =
      *std::max_element(sizes.slots_per_page.begin(), sizes.slots_per_page.end());
  if (!grows && sizes.pages >= (std::uint64_t{1} << 31U) / widest) {
    return {Code::arg,
            fmt::format("{} pages of {} slots are more than 2^31 slots", sizes.pages, widest)};
  }
  const std::uint64_t entries = grows ? 0 : sizes.pages * widest;
  Result<TierIndex> made = TierIndex::make(geometry_, {.key_bytes = key_bytes_,
                                                       .slots = entries,
                                                       .open_runs = open_runs,
                                                       .chained = rules_.chained,
                                                       .eviction = rules_.eviction,
                                                       .path_max = rules_.path_max});
  if (!made.ok()) return made.error();
  sizes_ = sizes;
  index_.emplace(std::move(made).value());
  slots_.emplace(sizes.pages, sizes.slots_per_page);
  return {};
}

Presence HostTier::find(GroupId group, const std::byte* key, SlotId& entry) const {
  entry = no_slot;
  return index_ ? index_->find_any(group, key, entry) : Presence::absent;
}

void HostTier::removed_event(const SlotKey& key) {
  if (!events_.enabled()) return;
  CacheEvent event;
  event.kind = EventKind::removed;
  event.group = key.group;
  event.end = key.end;
  const Tokens block = geometry_.block_tokens(key.group);
  event.begin = round_down(Tokens{key.end.n - 1}, block);
  std::memcpy(event.key.data(), key.key, key_bytes_);
  events_.push(event);
}

void HostTier::evicted(SlotId entry, const SlotKey& key, bool bad) {
  if (!resetting_) {
    if (!bad) removed_event(key);
    if (!bad && listener_ != nullptr) listener_->evicted(key);
    ++counters_.evictions;
  }
  slots_->give_back(entry);
}

void HostTier::published(SlotId entry, std::uint32_t tag) {
  ++epoch_;
  if (listener_ != nullptr) listener_->published(entry, tag);
}

void HostTier::failed(SlotId entry, std::uint32_t tag, bool copy_open) {
  if (copy_open) return;
  slots_->give_back(entry);
  if (listener_ != nullptr) listener_->landed_ended(tag, resetting_);
}

// Frees the whole page of a victim of another class, if nothing on it is in use or of higher
// priority.
bool HostTier::evict_page(SlotId victim, RunId run) {
  constexpr std::uint32_t normal = 1 - priority_least;
  const std::uint32_t most = index_->in_front(victim) ? normal : index_->eviction_class(victim);
  const SlotId first = slots_->page_first(victim);
  const std::uint32_t count = slots_->page_slots(victim);
  for (SlotId e = first; e < first + count; ++e) {
    if (!slots_->used(e)) continue;
    if (!index_->evictable(e)) return false;
    if (index_->in_front(e)) continue;
    if (index_->run_of(e) == run || index_->eviction_class(e) > most) return false;
  }
  for (SlotId e = first; e < first + count; ++e) {
    if (slots_->used(e)) index_->evict(e, *this);
  }
  return true;
}

SlotId HostTier::take_slot(GroupId group, const std::byte* key, Tokens end, RunId run,
                           Refusal& refusal, bool may_evict) {
  const std::uint8_t cls = sizes_.class_of_group[group];
  SlotId slot = slots_->take(cls);
  bool declined = false;
  const int evictions = may_evict ? evictions_per_reservation_max : 0;
  for (int i = 0; slot == no_slot && i < evictions; ++i) {
    const SlotId victim = index_->victim(run, group, key, end, declined);
    if (victim == no_slot) break;
    if (slots_->class_of(victim) == cls || !evict_page(victim, run)) index_->evict(victim, *this);
    slot = slots_->take(cls);
  }
  if (slot == no_slot) {
    refusal = declined                   ? Refusal::declined
              : numbers().lease_only > 0 ? Refusal::leased
                                         : Refusal::pool_full;
    ++counters_.refusals;
  }
  return slot;
}

SlotId HostTier::reserve(GroupId group, const std::byte* key, const KeyView& path, Tokens end,
                         RunId run, SlotId bad, Refusal& refusal, bool may_evict) {
  refusal = Refusal::none;
  const std::uint8_t cls = sizes_.class_of_group[group];
  if (!sized() || cls == TierSizes::no_class) {
    refusal = Refusal::pool_full;
    return no_slot;
  }
  if (bad != no_slot) {
    // What reads it ends failed, but it reads until then.
    if (index_->pins(bad) != 0) {
      refusal = Refusal::pool_full;
      ++counters_.refusals;
      return no_slot;
    }
    index_->rewrite(bad);
    index_->touch(bad, run);
    return bad;
  }
  const Supports supports = index_->hold_supports(group, path, end, run);
  if (supports.no_parent) {
    refusal = Refusal::no_parent;
    return no_slot;
  }
  const SlotId entry = take_slot(group, key, end, run, refusal, may_evict);
  if (entry == no_slot) {
    index_->drop_supports(supports);
    return no_slot;
  }
  index_->reserve(entry, group, key, path, end, run, supports);
  return entry;
}

bool HostTier::publish(SlotId entry, std::uint32_t tag) {
  KVC_CHECK(!doomed(entry));
  counters_.rewritten_entries += index_->rewriting(entry) ? 1U : 0U;
  return index_->publish(entry, tag, *this);
}

void HostTier::abandon(SlotId entry) {
  if (doomed(entry)) {
    if (index_->release(entry)) slots_->give_back(entry);
    return;
  }
  const bool rewritten = published(entry);
  index_->fail(entry, *this);
  if (!rewritten) slots_->give_back(entry);
}

void HostTier::give_up(SlotId entry) {
  if (!doomed(entry)) index_->fail(entry, *this, true);
}

void HostTier::pin(SlotId entry, PinKind kind) { index_->pin(entry, kind); }

void HostTier::unpin(SlotId entry, PinKind kind) {
  if (index_->unpin(entry, kind)) slots_->give_back(entry);
}

void HostTier::use(SlotId entry, RunId run, const KeyView& path) {
  index_->meet(entry, path);  // before touch: what waits for a support keeps its run
  index_->touch(entry, run);
  index_->hold_path(run, entry);
}

void HostTier::condemn(SlotId entry) {
  if (!published(entry) || index_->bad(entry)) return;
  ++counters_.bad_entries;
  removed_event(index_->key_of(entry));
  index_->mark_bad(entry);
  ++epoch_;
}

void HostTier::reset() {
  ++epoch_;
  if (!sized()) return;
  KVC_CHECK(numbers().lease_only == 0);
  resetting_ = true;
  index_->reset(*this);
  resetting_ = false;
  CacheEvent event;
  event.kind = EventKind::cleared;
  events_.push(event);
}

RunId HostTier::open_run() {
  static_cast<void>(maintain());
  return index_ ? index_->open_run() : no_run;
}

void HostTier::begin_request(RunId run, const KeyView& path, Tokens prompt) {
  if (index_ && run != no_run) index_->begin_request(run, path, prompt);
}

void HostTier::end_request(RunId run, const KeyView& path, Tokens answer) {
  if (index_ && run != no_run) index_->end_request(run, path, answer);
}

void HostTier::close_run(RunId run) {
  if (index_ && run != no_run) index_->close_run(run);
}

void HostTier::schedule(RunId run) {
  if (index_ && run != no_run) index_->schedule(run);
}

void HostTier::expect_find(GroupId group, const std::byte* key) const {
  if (index_) index_->expect_find(group, key);
}

void HostTier::expect_schedule(RunId run) const {
  if (index_) index_->expect_schedule(run);
}

void HostTier::release_path(RunId run) {
  if (index_ && run != no_run) index_->release_path(run);
}

void HostTier::hint(RunId run, const Hint& hint) {
  if (index_ && run != no_run) index_->hint(run, hint);
}

std::uint64_t HostTier::slots_total() const {
  if (!slots_) return 0;
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t c = 0; c < sizes_.slots_per_page.size(); ++c) {
    least = std::min(least, slots_->slots_of(c));
  }
  return least;
}

std::uint64_t HostTier::unaccounted() const {
  const TierIndexCounters& n = numbers();
  const std::uint64_t known = n.published + n.reserved + n.doomed_reserved + n.doomed_pinned;
  return slots_used() > known ? slots_used() - known : known - slots_used();
}

std::string HostTier::verify() const {
  if (!sized()) return {};
  if (std::string text = slots_->verify(); !text.empty()) return text;
  if (const Status s = index_->verify(); !s.ok()) return s.text;
  const std::uint64_t seen = slots_->entries_seen();
  for (std::uint64_t i = 0; i < seen; ++i) {
    const auto e = static_cast<SlotId>(i);
    if (slots_->used(e) != (index_->state(e) != EntryState::free)) {
      return fmt::format("slot {} is used and free", i);
    }
  }
  if (unaccounted() != 0) return "the counters of the host tier do not match its slots";
  return {};
}

}  // namespace kvc
