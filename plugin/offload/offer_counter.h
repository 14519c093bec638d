// How often keys were offered for storing, for connectors that store only what comes again (O-240,
// O-241).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plugin/coordinator/geometry.h"

namespace kvc {

struct OfferedKey {
  GroupId group = 0;
  const std::byte* key = nullptr;
};

// Counts offers of at most `capacity` keys; the one whose last offer is oldest is forgotten first.
//
// Threads:    scheduler role only.
// Owns:       copies of the keys.
// Invariants: no heap after construction; a key of the offer at hand is not forgotten in it.
class OfferCounter {
 public:
  // threshold 0 or 1: off, and no memory. Requires capacity >= 1, key_bytes 8..32.
  OfferCounter(std::uint32_t threshold, std::uint32_t capacity, std::uint32_t key_bytes);

  [[nodiscard]] bool on() const { return threshold_ > 1; }
  // Counts one offer of several keys: first those that are known, each then the newest, then the
  // others, for each of which the oldest goes that is not of this offer; one for which there is
  // none is not counted. Nothing when off.
  void offer(std::span<const OfferedKey> keys);
  // Offered at least as often as the threshold says; always when off.
  [[nodiscard]] bool admits(GroupId group, const std::byte* key) const;
  // 0: not known.
  [[nodiscard]] std::uint32_t count(GroupId group, const std::byte* key) const;
  [[nodiscard]] std::uint32_t size() const { return used_; }

 private:
  static constexpr std::uint32_t none = UINT32_MAX;
  struct Entry {
    std::uint32_t count = 0;
    std::uint32_t older = none;
    std::uint32_t newer = none;
    std::uint32_t group = 0;
    std::uint64_t offer = 0;  // the last one that named it
  };
  [[nodiscard]] std::size_t place_of(GroupId group, const std::byte* key) const;
  [[nodiscard]] bool is(std::uint32_t entry, GroupId group, const std::byte* key) const;
  [[nodiscard]] std::size_t home_of(std::uint32_t entry) const;
  void add(const OfferedKey& key);
  void forget(std::uint32_t entry);
  void link_newest(std::uint32_t entry);
  void unlink(std::uint32_t entry);
  [[nodiscard]] std::byte* key_of(std::uint32_t entry) {
    return keys_.data() + std::size_t{entry} * key_bytes_;
  }
  [[nodiscard]] const std::byte* key_of(std::uint32_t entry) const {
    return keys_.data() + std::size_t{entry} * key_bytes_;
  }

  std::uint32_t threshold_;
  std::uint32_t capacity_;
  std::uint32_t key_bytes_;
  std::uint64_t offers_ = 0;
  std::uint32_t used_ = 0;
  std::uint32_t oldest_ = none;
  std::uint32_t newest_ = none;
  std::vector<Entry> entries_;
  std::vector<std::byte> keys_;
  std::vector<std::uint32_t> places_;  // entries + 1 by hash, probed upwards; a power of two
};

}  // namespace kvc
