// The sampled entries of a policy that learns: one of so many keys, where it is, up to when its
// class has its waiting time, and what of its mark a walk over all samples needs.
#pragma once
#include <cstdint>
#include <new>
#include <vector>

#include "plugin/coordinator/slabs.h"
#include "plugin/coordinator/tier_policy.h"

namespace kvc::tier {

// Threads:    one user.
// Owns:       its tables. A place is a slot, or with ghost_bit a ghost.
// Invariants: the places of all samples differ, and are those of the marks with sampled_bit, whose
//             stamp and list the samples have, too: the policy says so when they change.
class Samples {
 public:
  struct Sample {
    std::uint32_t where;
    std::uint32_t accounted;
    std::uint32_t stamp;
    std::uint16_t list;
    std::uint16_t unused;

    void renew(std::uint32_t new_stamp, std::uint16_t new_list) {
      stamp = new_stamp;
      list = new_list;
    }
  };
  static_assert(sizeof(Sample) == 16);
  static constexpr std::uint32_t ghost_bit = 1U << 31U;
  static constexpr std::uint32_t wanted = 24'576;

  // Room for so many slots (0: it grows) and ghosts, of which up to `entries` are known at a time.
  // False: out of memory.
  [[nodiscard]] bool make(std::uint64_t slots, std::uint64_t ghosts, std::uint64_t entries) {
    all_.reserve(most);
    std::uint32_t shift = 0;
    while (entries >> shift > wanted) ++shift;
    mask_ = (std::uint64_t{1} << shift) - 1;
    return ghosts_.size_for(ghosts) && slots_.size_for(slots);
  }
  // One key of so many is sampled.
  [[nodiscard]] std::uint64_t every() const { return mask_ + 1; }

  // Samples the entry if its tag is one of those, and there is room. Throws std::bad_alloc when an
  // unlimited index is out of memory, here and in move.
  void start(Mark& mark, std::uint64_t tag, std::uint32_t where, std::uint32_t now) {
    if ((tag & mask_) != 0 || all_.size() == most) return;
    ensure(where);
    all_.push_back({where, now, mark.stamp, mark.list, 0});
    id_at(where) = size();
    mark.set(Mark::sampled_bit, true);
  }
  // Requires: there is a sample at `from`, here and below at `where`.
  void move(std::uint32_t from, std::uint32_t to) {
    ensure(to);
    const std::uint32_t id = id_at(from);
    id_at(from) = 0;
    id_at(to) = id;
    all_[id - 1].where = to;
  }
  void end(std::uint32_t where) {
    const std::uint32_t id = id_at(where);
    id_at(where) = 0;
    all_[id - 1] = all_.back();
    all_.pop_back();
    if (id <= size()) id_at(all_[id - 1].where) = id;
  }
  void clear() {
    for (const Sample& sample : all_) id_at(sample.where) = 0;
    all_.clear();
  }
  [[nodiscard]] Sample& at(std::uint32_t where) { return all_[id_at(where) - 1]; }
  // False: what the sample of the mark has of it is wrong (for tests).
  [[nodiscard]] bool agrees(const Mark& mark, std::uint32_t where) const {
    if (!mark.has(Mark::sampled_bit)) return true;
    const Sample& sample = all_[id_at(where) - 1];
    return sample.where == where && sample.stamp == mark.stamp && sample.list == mark.list;
  }

  [[nodiscard]] std::vector<Sample>& all() { return all_; }
  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(all_.size()); }
  // Without the tables by place.
  [[nodiscard]] std::uint64_t bytes() const { return all_.capacity() * sizeof(Sample); }

 private:
  static constexpr std::uint32_t most = wanted * 3 / 2;
  void ensure(std::uint32_t where) {
    if ((where & ghost_bit) == 0 && !slots_.ensure(std::uint64_t{where} + 1))
      throw std::bad_alloc();
  }
  // The place in all_, + 1; 0: none.
  [[nodiscard]] std::uint32_t& id_at(std::uint32_t where) {
    return (where & ghost_bit) != 0 ? ghosts_[where & ~ghost_bit] : slots_[where];
  }
  [[nodiscard]] std::uint32_t id_at(std::uint32_t where) const {
    return (where & ghost_bit) != 0 ? ghosts_[where & ~ghost_bit] : slots_[where];
  }

  std::vector<Sample> all_;
  SlabArray<std::uint32_t> slots_;
  SlabArray<std::uint32_t> ghosts_;
  std::uint64_t mask_ = 0;
};

}  // namespace kvc::tier
