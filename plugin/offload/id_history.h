// Which request ids were ever used: ids are never reused (design 2.3 request_begin).
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvc {

// Ids as ranges: ids given out one after the other cost nothing. A host with scattered ids makes
// many ranges; beyond `ranges_max` the lowest are forgotten, and then an old id is not recognised.
//
// Threads: one user. Owns: the ranges. Invariants: sorted, disjoint, not adjacent.
class IdHistory {
 public:
  static constexpr std::size_t ranges_max = 16'384;

  [[nodiscard]] bool contains(std::uint64_t id) const {
    const auto it = behind(id);
    return it != ranges_.begin() && std::prev(it)->last >= id;
  }
  // Requires: !contains(id).
  void insert(std::uint64_t id) {
    auto it = ranges_.begin() + (behind(id) - ranges_.cbegin());
    const bool joins_left = it != ranges_.begin() && std::prev(it)->last + 1 == id;
    const bool joins_right = it != ranges_.end() && it->first == id + 1;
    if (joins_left && joins_right) {
      std::prev(it)->last = it->last;
      ranges_.erase(it);
    } else if (joins_left) {
      std::prev(it)->last = id;
    } else if (joins_right) {
      it->first = id;
    } else {
      ranges_.insert(it, Range{id, id});
      if (ranges_.size() > ranges_max) ranges_.erase(ranges_.begin());
    }
  }
  [[nodiscard]] std::size_t ranges() const { return ranges_.size(); }

 private:
  struct Range {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
  };
  // The first range that begins behind id.
  [[nodiscard]] std::vector<Range>::const_iterator behind(std::uint64_t id) const {
    return std::upper_bound(ranges_.begin(), ranges_.end(), id,
                            [](std::uint64_t v, const Range& r) { return v < r.first; });
  }
  std::vector<Range> ranges_;
};

}  // namespace kvc
