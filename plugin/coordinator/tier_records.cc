#include "plugin/coordinator/tier_records.h"

namespace kvc::tier {

void Records::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  KVC_CHECK(out.size() >= keys.count);
  std::array<std::uint32_t, find_batch_keys> tags;
  std::array<std::uint64_t, find_batch_keys> places;
  const auto key_of = [&](std::size_t i) {
    return keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride;
  };
  for (std::size_t base = 0; base < keys.count; base += find_batch_keys) {
    const std::size_t n = std::min(find_batch_keys, keys.count - base);
    for (std::size_t i = 0; i < n; ++i) {
      tags[i] = key_hash::tag_of(group, key_of(base + i), key_bytes_);
      __builtin_prefetch(&table_[home(tags[i])]);
    }
    for (std::size_t i = 0; i < n; ++i) {
      std::uint64_t p = home(tags[i]);
      while (table_[p] != 0 && tag_at(table_[p]) != tags[i]) p = after(p);
      places[i] = p;
      if (table_[p] == 0) continue;
      const std::byte* record = raw_.at(slot_at(table_[p]));
      __builtin_prefetch(record);
      __builtin_prefetch(record + raw_.stride() - 1);  // it may lie across two lines
    }
    for (std::size_t i = 0; i < n; ++i) {
      const std::byte* k = key_of(base + i);
      std::uint64_t p = places[i];
      for (; table_[p] != 0; p = after(p))
        if (tag_at(table_[p]) == tags[i] && has_key(slot_at(table_[p]), group, k)) break;
      out[base + i] = table_[p] == 0 ? no_slot : slot_at(table_[p]);
    }
  }
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
