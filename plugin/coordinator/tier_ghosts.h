// Keys that were here, or were asked for and are not: bounded, the oldest is forgotten.
#pragma once
#include <cstdint>
#include <new>

#include "plugin/coordinator/slabs.h"
#include "plugin/coordinator/tier_policy.h"
#include "plugin/core/prefetch.h"

namespace kvc::tier {

using GhostId = std::uint32_t;
inline constexpr GhostId no_ghost = UINT32_MAX;

// Threads:    one user.
// Owns:       the ghosts, oldest to youngest, and their table: ghosts with one place of it are a
//             chain, so that nothing is moved when one of them goes.
// Invariants: at most `capacity` ghosts, of different tags. Two keys with one tag are one ghost. No
//             heap after make().
class Ghosts {
 public:
  struct Ghost {
    std::uint64_t tag;  // 0: free
    Mark mark;
    std::uint32_t older;  // id + 1
    std::uint32_t younger;
    std::uint32_t chained;  // id + 1 of the next one in its place
    std::uint32_t unused;
  };
  static_assert(sizeof(Ghost) == 32);

  // False: no memory. Requires capacity > 0.
  [[nodiscard]] bool make(std::uint64_t capacity) {
    capacity_ = capacity;
    places_ = capacity * 2 + 8;
    return ghosts_.size_for(capacity) && table_.size_for(places_);
  }

  [[nodiscard]] GhostId find(std::uint64_t tag) const {
    std::uint32_t at = table_[home(tag)];
    while (at != 0 && ghosts_[at - 1].tag != tag) at = ghosts_[at - 1].chained;
    return at - 1;
  }
  // find of the tag comes soon: fetches its place of the table; and, once that is there, the ghost.
  void expect_find(std::uint64_t tag) const { prefetch(&table_[home(tag)]); }
  void expect_found(std::uint64_t tag) const {
    if (const std::uint32_t at = table_[home(tag)]; at != 0) prefetch_write(&ghosts_[at - 1]);
  }
  // The oldest ghost will be erased. Requires size() > 0.
  void expect_erase_oldest() const {
    const Ghost& g = ghosts_[oldest_ - 1];
    prefetch_write(&table_[home(g.tag)]);
    if (g.younger != 0) prefetch_write(&ghosts_[g.younger - 1]);
  }
  [[nodiscard]] Ghost& operator[](GhostId id) { return ghosts_[id]; }
  [[nodiscard]] const Ghost& operator[](GhostId id) const { return ghosts_[id]; }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
  [[nodiscard]] GhostId oldest() const { return oldest_ - 1; }
  [[nodiscard]] std::uint64_t bytes() const {
    return used_ * sizeof(Ghost) + places_ * sizeof(std::uint32_t);
  }

  // A new youngest ghost. Requires: the tag is absent, size() < capacity().
  GhostId insert(std::uint64_t tag, const Mark& mark);
  void erase(GhostId id);
  void make_youngest(GhostId id);
  void clear();
  // False: something is wrong (slow, for tests).
  [[nodiscard]] bool verify() const;

 private:
  [[nodiscard]] std::uint64_t home(std::uint64_t tag) const {
    return ((tag >> 32U) * places_) >> 32U;
  }
  void link_youngest(GhostId id);
  void unlink(GhostId id);

  SlabArray<Ghost> ghosts_;
  SlabArray<std::uint32_t> table_;  // id + 1 of the first one in each place
  std::uint64_t capacity_ = 0;
  std::uint64_t places_ = 0;
  std::uint64_t size_ = 0;
  std::uint32_t used_ = 0;
  std::uint32_t free_ = 0;    // id + 1
  std::uint32_t oldest_ = 0;  // id + 1
  std::uint32_t youngest_ = 0;
};

}  // namespace kvc::tier
