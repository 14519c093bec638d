// Host and disk tier as one index: what lookups see when a hit may count blocks on disk.
#pragma once
#include "plugin/offload/disk_index.h"
#include "plugin/offload/host_tier.h"

namespace kvc {

// Slots of both tiers in one number: those of the disk have the highest bit.
inline constexpr SlotId disk_slot_bit = SlotId{1} << 31U;
[[nodiscard]] constexpr bool on_disk(SlotId slot) {
  return slot != no_slot && (slot & disk_slot_bit) != 0;
}
[[nodiscard]] constexpr SlotId disk_entry(SlotId slot) { return slot & ~disk_slot_bit; }

// Threads:    const calls may run together.
// Owns:       nothing; both tiers outlive it and are sized.
// Invariants: a key that both tiers have is in the host tier. Each tier is closed by itself, so
//             that of two prefixes of one path the longer one is that of both: prefix_closed holds
//             when it holds in each.
class BothTiers final : public KeyIndex {
 public:
  BothTiers(const HostTier& host, const DiskIndex& disk) : host_(host), disk_(disk) {}

  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override;
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override;
  [[nodiscard]] bool prefix_closed(GroupId group) const override;
  [[nodiscard]] std::uint64_t tail_offsets(GroupId group, SlotId base) const override;
  [[nodiscard]] bool keys_follow(GroupId group, const KeyRun& keys) const override;

  // Requires a keyed slot.
  [[nodiscard]] SlotKey key_of(SlotId slot) const {
    return on_disk(slot) ? disk_.index().key_of(disk_entry(slot)) : host_.key_of(slot);
  }

 private:
  const HostTier& host_;
  const DiskIndex& disk_;
};

}  // namespace kvc
