// Named fault points: places where a test may make the code fail. Compiled in under
// KVC_FAULT_POINTS (the presets for tests and simulation); the release preset leaves no trace of
// them in the code.
//
// A fallible step asks `KVC_FAULT("copy.submit")` and takes its own failure path when the answer is
// true. A test arms one point ("fail the n-th time") or counts the steps of all points and fails
// the n-th of them:
//   for (std::uint64_t n = 0;; ++n) { faults().arm_any(n); run(); if (!faults().tripped()) break; }
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace kvc {

// Threads:    any; one lock inside (fault points are for tests, they may cost something).
// Owns:       the counts and the armed points of this process.
// Invariants: an armed point fires once, then is disarmed.
class Faults {
 public:
  // Point `name` fails at its n-th visit from now on (n = 0: the next one).
  void arm(std::string_view name, std::uint64_t nth);
  // The n-th visit from now on of any point fails.
  void arm_any(std::uint64_t nth);
  // Disarms everything, forgets counts and `tripped`.
  void clear();
  // True when an armed point fired since the last arm, arm_any or clear.
  [[nodiscard]] bool tripped() const;
  // Visits of `name` since the last clear.
  [[nodiscard]] std::uint64_t visits(std::string_view name) const;
  // Called through KVC_FAULT: counts the visit, true when this one must fail.
  [[nodiscard]] bool visit(std::string_view name);

 private:
  struct Point {
    // A visit uses no heap: the calls that pass the points must not either (design 2.5.3).
    std::array<char, 48> name{};
    std::uint64_t visits = 0;
    std::uint64_t left = 0;
    bool armed = false;
  };
  mutable std::mutex mutex_;
  // The point of that name, a new one if there is none; NULL: there are too many.
  Point* find(std::string_view name);

  std::array<Point, 64> points_;
  std::size_t used_ = 0;
  std::uint64_t any_left_ = 0;
  bool any_armed_ = false;
  bool tripped_ = false;
};

// The fault points of this process.
Faults& faults();

}  // namespace kvc

#if defined(KVC_FAULT_POINTS)
#define KVC_FAULT(name) (::kvc::faults().visit(name))
#else
#define KVC_FAULT(name) (false)
#endif
