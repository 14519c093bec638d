#include "plugin/offload/offer_counter.h"

#include <bit>
#include <cstring>

#include "plugin/coordinator/key_hash.h"
#include "plugin/core/check.h"

namespace kvc {

OfferCounter::OfferCounter(std::uint32_t threshold, std::uint32_t capacity, std::uint32_t key_bytes)
    : threshold_(threshold), capacity_(capacity), key_bytes_(key_bytes) {
  if (!on()) return;
  KVC_CHECK(capacity >= 1);
  entries_.resize(capacity);
  keys_.resize(std::size_t{capacity} * key_bytes);
  places_.resize(std::bit_ceil(std::size_t{capacity} * 2));
}

bool OfferCounter::is(std::uint32_t entry, GroupId group, const std::byte* key) const {
  return entries_[entry].group == group && key_hash::equal(key_of(entry), key, key_bytes_);
}

// Where the key is, or the free place where it would be.
std::size_t OfferCounter::place_of(GroupId group, const std::byte* key) const {
  const std::size_t mask = places_.size() - 1;
  std::size_t p = key_hash::tag_of(group, key, key_bytes_) & mask;
  while (places_[p] != 0 && !is(places_[p] - 1, group, key)) p = (p + 1) & mask;
  return p;
}

std::size_t OfferCounter::home_of(std::uint32_t entry) const {
  return key_hash::tag_of(entries_[entry].group, key_of(entry), key_bytes_) & (places_.size() - 1);
}

void OfferCounter::link_newest(std::uint32_t entry) {
  Entry& e = entries_[entry];
  e.older = newest_;
  e.newer = none;
  (newest_ == none ? oldest_ : entries_[newest_].newer) = entry;
  newest_ = entry;
}

void OfferCounter::unlink(std::uint32_t entry) {
  const Entry& e = entries_[entry];
  (e.older == none ? oldest_ : entries_[e.older].newer) = e.newer;
  (e.newer == none ? newest_ : entries_[e.newer].older) = e.older;
}

// Closes the gap in the places: later entries of the same cluster move towards their home.
void OfferCounter::forget(std::uint32_t entry) {
  const std::size_t mask = places_.size() - 1;
  std::size_t gap = place_of(entries_[entry].group, key_of(entry));
  for (std::size_t p = (gap + 1) & mask; places_[p] != 0; p = (p + 1) & mask) {
    const std::size_t home = home_of(places_[p] - 1);
    if (((p - home) & mask) < ((p - gap) & mask)) continue;
    places_[gap] = places_[p];
    gap = p;
  }
  places_[gap] = 0;
  unlink(entry);
}

void OfferCounter::add(const OfferedKey& key) {
  std::uint32_t entry = used_;
  if (used_ == capacity_) {
    entry = oldest_;
    if (entries_[entry].offer == offers_) return;
    forget(entry);
  } else {
    ++used_;
  }
  Entry& e = entries_[entry];
  e.count = 1;
  e.group = key.group;
  e.offer = offers_;
  std::memcpy(key_of(entry), key.key, key_bytes_);
  places_[place_of(key.group, key.key)] = entry + 1;
  link_newest(entry);
}

void OfferCounter::offer(std::span<const OfferedKey> keys) {
  if (!on()) return;
  ++offers_;
  for (const OfferedKey& key : keys) {
    const std::uint32_t at = places_[place_of(key.group, key.key)];
    if (at == 0 || entries_[at - 1].offer == offers_) continue;
    Entry& e = entries_[at - 1];
    e.count += e.count != UINT32_MAX;
    e.offer = offers_;
    unlink(at - 1);
    link_newest(at - 1);
  }
  for (const OfferedKey& key : keys) {
    if (places_[place_of(key.group, key.key)] == 0) add(key);
  }
}

std::uint32_t OfferCounter::count(GroupId group, const std::byte* key) const {
  if (!on()) return 0;
  const std::uint32_t at = places_[place_of(group, key)];
  return at == 0 ? 0 : entries_[at - 1].count;
}

bool OfferCounter::admits(GroupId group, const std::byte* key) const {
  return !on() || count(group, key) >= threshold_;
}

}  // namespace kvc
