#include "plugin/coordinator/tier_records.h"

#include "plugin/core/prefetch.h"

namespace kvc::tier {

// `known`: the key length where the compiler may know it; 0: key_bytes_.
template <std::uint32_t known, class KeyOf>
void Records::find_staged(GroupId group, std::size_t n, const KeyOf& key_of,
                          std::span<SlotId> out) const {
  const std::uint32_t key_bytes = known == 0 ? key_bytes_ : known;
  constexpr bool in_one_line = known != 0 && 64 % known == 0;
  constexpr std::size_t lag = 12;  // keys between two stages: about the misses a core keeps open
  constexpr std::size_t ring = 64;
  // NOLINTBEGIN(cppcoreguidelines-pro-type-member-init): written before it is read, hot
  std::array<std::uint32_t, ring> tags;
  std::array<std::uint64_t, ring> places;
  // NOLINTEND(cppcoreguidelines-pro-type-member-init)
  const auto hash = [&](std::size_t i) {
    const std::uint32_t tag = tag_of(group, key_of(i), key_bytes);
    tags[i % ring] = tag;
    prefetch(&table_[home(tag)]);
  };
  const auto probe = [&](std::size_t i) {
    const std::uint32_t tag = tags[i % ring];
    std::uint64_t p = home(tag);
    while (table_[p] != 0 && tag_at(table_[p]) != tag) p = after(p);
    places[i % ring] = p;
    if (table_[p] == 0) return;
    const std::byte* k = key(slot_at(table_[p]));
    prefetch(k);
    if (!in_one_line) prefetch(k + key_bytes - 1);
  };
  const auto compare = [&](std::size_t i) {
    const std::byte* k = key_of(i);
    const std::uint32_t tag = tags[i % ring];
    std::uint64_t p = places[i % ring];
    for (; table_[p] != 0; p = after(p))
      if (tag_at(table_[p]) == tag && key_hash::equal(key(slot_at(table_[p])), k, key_bytes)) break;
    out[i] = (table_[p] & visible_bit) != 0 ? slot_at(table_[p]) : no_slot;
  };
  std::size_t hashed = 0;
  std::size_t probed = 0;
  for (; hashed < std::min(n, lag); ++hashed) hash(hashed);
  for (; hashed < std::min(n, 2 * lag); ++hashed, ++probed) {
    hash(hashed);
    probe(probed);
  }
  std::size_t done = 0;
  for (; hashed < n; ++hashed, ++probed, ++done) {
    hash(hashed);
    probe(probed);
    compare(done);
  }
  for (; probed < n; ++probed) {
    probe(probed);
    if (probed >= done + lag) compare(done++);
  }
  for (; done < n; ++done) compare(done);
}

template <class KeyOf>
void Records::find_many(GroupId group, std::size_t n, const KeyOf& key_of,
                        std::span<SlotId> out) const {
  KVC_CHECK(out.size() >= n);
  switch (key_bytes_) {
    case 16:
      return find_staged<16>(group, n, key_of, out);
    case 32:
      return find_staged<32>(group, n, key_of, out);
    default:
      return find_staged<0>(group, n, key_of, out);
  }
}

void Records::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  find_many(
      group, keys.count,
      [&](std::size_t i) { return keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride; },
      out);
}

void Records::find_each(GroupId group, std::span<const std::byte* const> keys,
                        std::span<SlotId> out) const {
  find_many(
      group, keys.size(), [&](std::size_t i) { return keys[i]; }, out);
}

// Takes the word out and closes the gap: later words of the same cluster move towards their home,
// so that no search stops early and no tombstones pile up.
void Records::remove_word(std::uint64_t gap) {
  for (std::uint64_t p = after(gap); table_[p] != 0; p = after(p)) {
    const std::uint64_t want = home(tag_at(table_[p]));
    const bool reachable = gap <= p ? (want <= gap || want > p) : (want <= gap && want > p);
    if (!reachable) continue;
    table_[gap] = table_[p];
    gap = p;
  }
  table_[gap] = 0;
  --words_;
}

bool Records::make_table(std::uint64_t places) {
  Zeroed fresh = make_zeroed(places * sizeof(std::uint64_t));
  if (fresh == nullptr) return false;
  fresh.swap(table_memory_);  // the old table dies with `fresh`
  const std::uint64_t* old = table_;
  const std::uint64_t old_places = places_;
  table_ = reinterpret_cast<std::uint64_t*>(table_memory_.get());
  places_ = places;
  for (std::uint64_t i = 0; i < old_places; ++i)
    if (old[i] != 0) place_word(old[i]);
  return true;
}

}  // namespace kvc::tier
