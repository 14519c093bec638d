#include "plugin/offload/both_tiers.h"

#include <algorithm>
#include <array>

namespace kvc {

SlotId BothTiers::find(GroupId group, const std::byte* key) const {
  if (const SlotId slot = host_.index().find(group, key); slot != no_slot) return slot;
  const SlotId slot = disk_.index().find(group, key);
  return slot == no_slot ? no_slot : slot | disk_slot_bit;
}

void BothTiers::find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const {
  std::array<SlotId, find_batch_keys> below{};
  for (std::size_t first = 0; first < keys.count; first += find_batch_keys) {
    const std::size_t n = std::min(find_batch_keys, keys.count - first);
    const KeyRun part{keys.first + static_cast<std::ptrdiff_t>(first) * keys.stride, keys.stride,
                      n};
    const std::span<SlotId> mine = out.subspan(first, n);
    host_.index().find_batch(group, part, mine);
    if (std::find(mine.begin(), mine.end(), no_slot) == mine.end()) continue;
    disk_.index().find_batch(group, part, below);
    for (std::size_t i = 0; i < n; ++i) {
      if (mine[i] == no_slot && below[i] != no_slot) mine[i] = below[i] | disk_slot_bit;
    }
  }
}

bool BothTiers::prefix_closed(GroupId group) const {
  return host_.index().prefix_closed(group) && disk_.index().prefix_closed(group);
}

// The base of a tail has an entry in each tier that has the tail, or the tail is unsupported there.
std::uint64_t BothTiers::tail_offsets(GroupId group, SlotId base) const {
  if (base == no_slot) {
    return host_.index().tail_offsets(group, no_slot) | disk_.index().tail_offsets(group, no_slot);
  }
  const auto offsets = [&](const TierIndex& tier, SlotId slot) {
    if (slot != no_slot) return tier.tail_offsets(group, slot);
    return tier.counters().unsupported != 0 ? ~std::uint64_t{0} : std::uint64_t{0};
  };
  const std::byte* const key = key_of(base).key;
  const SlotId above = on_disk(base) ? host_.index().find(group, key) : base;
  const SlotId below = on_disk(base) ? disk_entry(base) : disk_.index().find(group, key);
  return offsets(host_.index(), above) | offsets(disk_.index(), below);
}

bool BothTiers::keys_follow(GroupId group, const KeyRun& keys) const {
  const std::byte* const last =
      keys.first + static_cast<std::ptrdiff_t>(keys.count - 1) * keys.stride;
  const bool host = host_.index().find(group, last) != no_slot;
  return host ? host_.index().keys_follow(group, keys) : disk_.index().keys_follow(group, keys);
}

}  // namespace kvc
