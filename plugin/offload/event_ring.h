// Cache events until the engine takes them (design 2.3 take_events): bounded, loss is counted.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "plugin/offload/scheduler_role.h"

namespace kvc {

// Threads:    scheduler role only.
// Owns:       `entries` events, sized once.
// Invariants: when full the oldest event goes and is counted; events come out in order.
class EventRing {
 public:
  explicit EventRing(std::uint32_t entries) : ring_(entries) {}

  [[nodiscard]] bool enabled() const { return !ring_.empty(); }
  void push(const CacheEvent& event) {
    if (ring_.empty()) return;
    if (count_ == ring_.size()) {
      first_ = (first_ + 1) % ring_.size();
      --count_;
      ++lost_;
    }
    ring_[(first_ + count_) % ring_.size()] = event;
    ++count_;
  }
  // Moves the oldest events to `out`; true: more wait.
  [[nodiscard]] bool take(std::span<CacheEvent> out, std::size_t& count) {
    for (count = 0; count < out.size() && count_ > 0; ++count) {
      out[count] = ring_[first_];
      first_ = (first_ + 1) % ring_.size();
      --count_;
    }
    return count_ > 0;
  }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] std::uint64_t lost() const { return lost_; }

 private:
  std::vector<CacheEvent> ring_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::uint64_t lost_ = 0;
};

}  // namespace kvc
