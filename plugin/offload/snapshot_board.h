// Numbers that scheduler calls publish and any thread reads whole (design 2.3: "the snapshot
// published at the end of the last scheduler-role call").
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <span>

namespace kvc {

// A sequence lock over N numbers.
//
// Threads:    publish: one caller at a time; read: any, never waits for slow work.
// Owns:       the numbers. Invariants: read returns what one publish wrote.
template <std::size_t N>
class SnapshotBoard {
 public:
  void publish(std::span<const std::uint64_t, N> values) {
    const std::uint64_t s = sequence_.load(std::memory_order_relaxed);
    sequence_.store(s + 1, std::memory_order_relaxed);
    // Release stores: who sees one of them sees the odd number before it.
    for (std::size_t i = 0; i < N; ++i) values_[i].store(values[i], std::memory_order_release);
    sequence_.store(s + 2, std::memory_order_release);
  }

  void read(std::span<std::uint64_t, N> out) const {
    for (;;) {
      const std::uint64_t before = sequence_.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < N; ++i) out[i] = values_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) return;
    }
  }

 private:
  std::atomic<std::uint64_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, N> values_{};
};

}  // namespace kvc
