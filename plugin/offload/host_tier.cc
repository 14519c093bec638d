#include "plugin/offload/host_tier.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

// How many entries of other classes one reservation may evict one by one before it gives up.
constexpr int evictions_per_reservation_max = 64;

}  // namespace

SlotId HostTier::View::find(GroupId group, const std::byte* key) const {
  const SlotId entry = tier_.index_->find(group, key);
  return entry != no_slot && tier_.published(entry) ? entry : no_slot;
}

void HostTier::View::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  tier_.index_->find_batch(group, keys, out);
  for (std::size_t i = 0; i < keys.count; ++i) {
    if (out[i] != no_slot && !tier_.published(out[i])) out[i] = no_slot;
  }
}

HostTier::HostTier(const Geometry& geometry, std::uint32_t key_bytes, EventRing& events)
    : geometry_(geometry), key_bytes_(key_bytes), events_(events), view_(*this) {
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
  FlatIndexOptions index;
  index.key_bytes = key_bytes_;
  index.slots = entries;
  Result<FlatIndex> made = FlatIndex::make(index);
  if (!made.ok()) return made.error();
  Result<Recency> recency = Recency::make(RecencyOptions{.slots = entries, .open_runs = open_runs});
  if (!recency.ok()) return recency.error();
  state_.ensure(entries);
  pins_.ensure(entries);
  sizes_ = sizes;
  index_.emplace(std::move(made).value());
  recency_.emplace(std::move(recency).value());
  slots_.emplace(sizes.pages, sizes.slots_per_page);
  return {};
}

std::uint64_t HostTier::slots_total() const {
  if (!slots_) return 0;
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t c = 0; c < sizes_.slots_per_page.size(); ++c) {
    least = std::min(least, slots_->slots_of(c));
  }
  return least;
}

Presence HostTier::find(GroupId group, const std::byte* key, SlotId& entry) const {
  entry = index_ ? index_->find(group, key) : no_slot;
  if (entry == no_slot) return Presence::absent;
  return published(entry) ? Presence::published : Presence::reserved;
}

void HostTier::removed_event(SlotId entry) {
  if (!events_.enabled()) return;
  const SlotKey key = index_->primary(entry);
  CacheEvent event;
  event.kind = EventKind::removed;
  event.group = key.group;
  event.end = key.end;
  const Tokens block = geometry_.block_tokens(key.group);
  event.begin = round_down(Tokens{key.end.n - 1}, block);
  std::memcpy(event.key.data(), key.key, key_bytes_);
  events_.push(event);
}

void HostTier::free_slot(SlotId entry) {
  state_[entry] = State::free;
  slots_->give_back(entry);
}

void HostTier::evict(SlotId entry) {
  removed_event(entry);
  recency_->remove(entry);
  index_->erase_slot(entry);
  free_slot(entry);
  ++counters_.evictions;
}

// Frees the whole page of a victim of another class, if nothing on it is in use.
bool HostTier::evict_page(SlotId victim, RunId run) {
  const SlotId first = slots_->page_first(victim);
  const std::uint32_t count = slots_->page_slots(victim);
  for (SlotId e = first; e < first + count; ++e) {
    if (!slots_->used(e)) continue;
    if (!published(e) || pins_[e].all != 0 || recency_->run_of(e) == run) return false;
  }
  for (SlotId e = first; e < first + count; ++e) {
    if (slots_->used(e)) evict(e);
  }
  return true;
}

SlotId HostTier::take_slot(std::uint32_t cls, RunId run, Refusal& refusal) {
  SlotId slot = slots_->take(cls);
  for (int i = 0; slot == no_slot && i < evictions_per_reservation_max; ++i) {
    const SlotId victim = recency_->victim(run);
    if (victim == no_slot) break;
    if (slots_->class_of(victim) == cls || !evict_page(victim, run)) evict(victim);
    slot = slots_->take(cls);
  }
  if (slot == no_slot) {
    refusal = lease_only_ > 0 ? Refusal::leased : Refusal::pool_full;
    ++counters_.refusals;
  }
  return slot;
}

SlotId HostTier::reserve(GroupId group, const std::byte* key, Tokens end, RunId run,
                         Refusal& refusal) {
  refusal = Refusal::none;
  const std::uint8_t cls = sizes_.class_of_group[group];
  if (!sized() || cls == TierSizes::no_class) {
    refusal = Refusal::pool_full;
    return no_slot;
  }
  const SlotId entry = take_slot(cls, run, refusal);
  if (entry == no_slot) return no_slot;
  state_.ensure(entry + std::uint64_t{1});
  pins_.ensure(entry + std::uint64_t{1});
  const Code code = index_->insert(group, key, entry, end);
  KVC_CHECK(code == Code::ok);
  state_[entry] = State::reserved;
  ++reserved_;
  return entry;
}

bool HostTier::publish(SlotId entry, RunId run) {
  const State state = state_[entry];
  KVC_CHECK(state == State::reserved || state == State::doomed_reserved);
  if (state == State::doomed_reserved) {
    abandon(entry);
    return false;
  }
  --reserved_;
  state_[entry] = State::published;
  const SlotKey key = index_->primary(entry);
  recency_->add(run, entry, key.group, key.end);
  ++epoch_;
  return true;
}

void HostTier::abandon(SlotId entry) {
  const State state = state_[entry];
  KVC_CHECK(state == State::reserved || state == State::doomed_reserved);
  --reserved_;
  if (state == State::doomed_reserved) {
    --doomed_reserved_;
  } else {
    index_->erase_slot(entry);
  }
  free_slot(entry);
}

void HostTier::pin(SlotId entry, PinKind kind) {
  KVC_CHECK(state_[entry] == State::published);
  Pins& p = pins_[entry];
  if (p.all == 0) {
    recency_->pin(entry);
    ++pinned_;
  }
  lease_only_ -= lease_only(p);
  ++p.all;
  if (kind == PinKind::lease) ++p.leases;
  lease_only_ += lease_only(p);
}

void HostTier::unpin(SlotId entry, PinKind kind) {
  Pins& p = pins_[entry];
  KVC_CHECK(p.all > 0);
  lease_only_ -= lease_only(p);
  --p.all;
  if (kind == PinKind::lease) {
    KVC_CHECK(p.leases > 0);
    --p.leases;
  }
  KVC_CHECK(p.leases <= p.all);
  lease_only_ += lease_only(p);
  if (p.all != 0) return;
  --pinned_;
  if (state_[entry] == State::doomed_pinned) {
    --doomed_pinned_;
    free_slot(entry);
    return;
  }
  KVC_CHECK(state_[entry] == State::published);
  recency_->unpin(entry);
}

void HostTier::touch(SlotId entry, RunId run) {
  KVC_CHECK(state_[entry] == State::published);
  recency_->touch(run, entry);
}

void HostTier::condemn(SlotId entry) {
  if (state_[entry] != State::published) return;
  ++counters_.bad_entries;
  removed_event(entry);
  if (pins_[entry].all != 0) recency_->unpin(entry);
  recency_->remove(entry);
  index_->erase_slot(entry);
  ++epoch_;
  if (pins_[entry].all != 0) {
    state_[entry] = State::doomed_pinned;
    ++doomed_pinned_;
  } else {
    free_slot(entry);
  }
}

void HostTier::reset() {
  ++epoch_;
  if (!sized()) return;
  KVC_CHECK(lease_only_ == 0);
  index_->clear();
  recency_->clear();
  const std::uint64_t seen = std::min(slots_->entries_seen(), state_.size());
  for (std::uint64_t i = 0; i < seen; ++i) {
    const auto entry = static_cast<SlotId>(i);
    if (state_[i] == State::reserved) {
      state_[i] = State::doomed_reserved;
      ++doomed_reserved_;
    } else if (state_[i] == State::published) {
      if (pins_[i].all != 0) {
        state_[i] = State::doomed_pinned;
        ++doomed_pinned_;
      } else {
        free_slot(entry);
      }
    }
  }
  CacheEvent event;
  event.kind = EventKind::cleared;
  events_.push(event);
}

RunId HostTier::open_run() { return recency_ ? recency_->open_run() : no_run; }

void HostTier::close_run(RunId run) {
  if (recency_ && run != no_run) recency_->close_run(run);
}

void HostTier::schedule(RunId run) {
  if (recency_ && run != no_run) recency_->schedule(run);
}

std::string HostTier::verify() const {
  if (!sized()) return {};
  if (const std::string text = slots_->verify(); !text.empty()) return text;
  if (const Status s = index_->verify(); !s.ok()) return s.text;
  if (const Status s = recency_->verify(); !s.ok()) return s.text;
  std::uint64_t count[5] = {};
  std::uint64_t pinned = 0;
  std::uint64_t lease_only_seen = 0;
  const std::uint64_t seen = std::min(slots_->entries_seen(), state_.size());
  for (std::uint64_t i = 0; i < seen; ++i) {
    const auto e = static_cast<SlotId>(i);
    const State s = state_[i];
    ++count[static_cast<int>(s)];
    if (slots_->used(e) != (s != State::free)) return fmt::format("slot {} is used and free", i);
    const bool keyed = s == State::reserved || s == State::published;
    if (index_->has_keys(e) != keyed) return fmt::format("entry {} has a wrong key state", i);
    if (recency_->contains(e) != (s == State::published)) {
      return fmt::format("entry {} has a wrong place in the eviction order", i);
    }
    if (s == State::published && (recency_->pins(e) != 0) != (pins_[i].all != 0)) {
      return fmt::format("entry {} is pinned on one side only", i);
    }
    if (pins_[i].all != 0 && s != State::published && s != State::doomed_pinned) {
      return fmt::format("entry {} is pinned in the wrong state", i);
    }
    pinned += pins_[i].all != 0;
    lease_only_seen += lease_only(pins_[i]);
  }
  const auto of = [&count](State s) { return count[static_cast<int>(s)]; };
  if (of(State::reserved) + of(State::doomed_reserved) != reserved_ ||
      of(State::doomed_reserved) != doomed_reserved_ ||
      of(State::doomed_pinned) != doomed_pinned_ || pinned != pinned_ ||
      lease_only_seen != lease_only_ || of(State::published) != recency_->entries()) {
    return "the counters of the host tier do not match its entries";
  }
  return {};
}

}  // namespace kvc
