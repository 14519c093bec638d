// Time is a parameter: nothing below the edge reads a clock of its own (style: time, threads and
// devices are parameters). The coordinator has no time at all.
#pragma once
#include <chrono>
#include <cstdint>

#include "plugin/core/check.h"

namespace kvc {

// Threads: now_ns may be called by any thread. Owns: nothing. Invariants: now_ns never falls.
class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds since a fixed moment of this clock.
  [[nodiscard]] virtual std::uint64_t now_ns() const = 0;
};

// The monotonic clock of the machine.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override {
    const auto t = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(t).count());
  }
};

// A clock that a test or a simulation moves. Threads: one user.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] std::uint64_t now_ns() const override { return now_; }
  void advance_ns(std::uint64_t by) {
    KVC_CHECK(now_ + by >= now_);
    now_ += by;
  }

 private:
  std::uint64_t now_ = 0;
};

}  // namespace kvc
