#include "plugin/offload/disk/places.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace kvc::disk {

Status Places::create(std::uint64_t payload_bytes, std::uint64_t places) {
  constexpr std::uint64_t most = std::uint64_t{1} << 31U;
  if (places == 0 || places > most) {
    return {Code::arg, fmt::format("{} places of {} bytes: 1 to {} are possible", places,
                                   payload_bytes, most)};
  }
  payload_ = payload_bytes;
  size_ = static_cast<std::uint32_t>(places);
  // Two of three at most are in use.
  const std::uint64_t table = std::bit_ceil(places + places / 2 + 1);
  mask_ = table - 1;
  place_memory_ = make_zeroed(places * sizeof(Place));
  table_memory_ = make_zeroed(table * sizeof(std::uint32_t));
  if (place_memory_ == nullptr || table_memory_ == nullptr) {
    return {Code::full, fmt::format("no memory for {} places on disk ({} bytes)", places,
                                    places * sizeof(Place) + table * sizeof(std::uint32_t))};
  }
  place_ = reinterpret_cast<Place*>(place_memory_.get());
  table_ = reinterpret_cast<std::uint32_t*>(table_memory_.get());
  return {};
}

std::uint64_t Places::home(std::uint32_t group, const Key& key) const {
  // Keys are hashes already; an engine's may be good in some bits only.
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::memcpy(&a, key.data(), sizeof a);
  std::memcpy(&b, key.data() + sizeof a, sizeof b);
  std::uint64_t h = (a ^ (b + group)) * 0x9e3779b97f4a7c15u;
  h ^= h >> 32;
  return (h * 0x94d049bb133111ebu >> 20) & mask_;
}

std::uint32_t Places::find(std::uint32_t group, const Key& key) const {
  for (std::uint64_t i = home(group, key); table_[i] != 0; i = (i + 1) & mask_) {
    const Place& p = place_[table_[i] - 1];
    if (p.group == group && p.key == key) return table_[i] - 1;
  }
  return no_place;
}

void Places::insert(std::uint32_t place) {
  std::uint64_t i = home(place_[place].group, place_[place].key);
  while (table_[i] != 0) i = (i + 1) & mask_;
  table_[i] = place + 1;
}

void Places::remove(std::uint32_t place) {
  std::uint64_t hole = home(place_[place].group, place_[place].key);
  while (table_[hole] != place + 1) {
    KVC_CHECK(table_[hole] != 0);
    hole = (hole + 1) & mask_;
  }
  // What stands behind moves up, unless it is at home between the hole and itself.
  for (std::uint64_t i = (hole + 1) & mask_; table_[i] != 0; i = (i + 1) & mask_) {
    const Place& p = place_[table_[i] - 1];
    const std::uint64_t from_home = (i - home(p.group, p.key)) & mask_;
    if (from_home < ((i - hole) & mask_)) continue;
    table_[hole] = table_[i];
    hole = i;
  }
  table_[hole] = 0;
}

void Places::link(std::uint32_t place, List& list) {
  Place& p = place_[place];
  p.next = 0;
  p.previous = list.last;
  (list.last == 0 ? list.first : place_[list.last - 1].next) = place + 1;
  list.last = place + 1;
}

void Places::unlink(std::uint32_t place, List& list) {
  Place& p = place_[place];
  (p.previous == 0 ? list.first : place_[p.previous - 1].next) = p.next;
  (p.next == 0 ? list.last : place_[p.next - 1].previous) = p.previous;
  p.next = 0;
  p.previous = 0;
}

void Places::move(std::uint32_t place, Use use) {
  KVC_CHECK(place < fresh_);
  Place& p = place_[place];
  if (listed(p.use)) unlink(place, lists_[index(p.use)]);
  if (p.use == Use::live) remove(place);
  --count_[index(p.use)];
  p.use = use;
  ++count_[index(use)];
  if (listed(use)) link(place, lists_[index(use)]);
  if (use == Use::live) insert(place);
}

std::uint32_t Places::take(bool hole_allowed) {
  // The free one that came last is the likeliest to be in caches of the device.
  std::uint32_t place = lists_[index(Use::free)].last - 1;
  if (place == no_place && hole_allowed) {
    place = lists_[index(Use::hole)].first - 1;
    if (place == no_place && fresh_ < size_) {
      begin_at(fresh_ + 1);
      place = fresh_ - 1;
    }
  }
  if (place != no_place) move(place, Use::writing);
  return place;
}

void Places::begin_at(std::uint32_t fresh) {
  KVC_CHECK(fresh >= fresh_ && fresh <= size_);
  for (; fresh_ < fresh; ++fresh_) {
    link(fresh_, lists_[index(Use::hole)]);
    ++count_[index(Use::hole)];
  }
}

std::string Places::verify() const {
  std::uint32_t counted[uses] = {};
  for (std::uint32_t i = 0; i < size_; ++i) {
    const Place& p = place_[i];
    if (i >= fresh_) {
      if (p.use != Use::hole) return fmt::format("place {} was never used and is in use", i);
      continue;
    }
    ++counted[index(p.use)];
    const std::uint32_t found = find(p.group, p.key);
    if (p.use == Use::live && found != i) {
      return fmt::format("place {} is live, its key is found at {}", i, found);
    }
    if (p.use != Use::live && found == i) return fmt::format("place {} is found, not live", i);
    if (p.readers != 0 && p.use != Use::live && p.use != Use::queued && p.use != Use::leaving &&
        p.use != Use::lost) {
      return fmt::format("place {} is read and not live", i);
    }
  }
  for (std::size_t u = 0; u < uses; ++u) {
    if (counted[u] != count_[u]) {
      return fmt::format("{} places of use {}, {} counted", counted[u], u, count_[u]);
    }
    if (!listed(static_cast<Use>(u))) continue;
    std::uint32_t listed_places = 0;
    for (std::uint32_t p = lists_[u].first; p != 0; p = place_[p - 1].next) {
      ++listed_places;
      if (index(place_[p - 1].use) != u) return fmt::format("place {} is in a wrong list", p - 1);
      if (listed_places > size_) return "a list has a ring";
    }
    if (listed_places != counted[u]) {
      return fmt::format("{} places in the list of use {}, {} have it", listed_places, u,
                         counted[u]);
    }
  }
  std::uint64_t in_table = 0;
  for (std::uint64_t i = 0; i <= mask_; ++i) in_table += table_[i] != 0 ? 1 : 0;
  if (in_table != counted[index(Use::live)]) return "the key table has another size";
  return {};
}

}  // namespace kvc::disk
