// Whether a device is well: a tier that fails or hangs is switched off, and on again by a probe.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>

#include "plugin/core/check.h"

namespace kvc::disk {

struct HealthOptions {
  std::uint32_t failures_in_a_row = 4;
  std::uint32_t failures_of_64 = 16;                 // of the last 64 operations
  std::uint64_t probe_after_ns = 5'000'000'000;      // doubled by every probe that fails ..
  std::uint64_t probe_at_most_ns = 300'000'000'000;  // .. up to this
};

// Threads: one user. Owns: nothing. Invariants: off has a reason; on begins with a clean record.
class Health {
 public:
  explicit Health(const HealthOptions& options) : options_(options) {}

  [[nodiscard]] bool on() const { return reason_.empty(); }
  [[nodiscard]] const std::string& reason() const { return reason_; }

  // An operation ended, or is past its deadline. True: that switched the device off.
  bool note(bool well, const char* what, std::uint64_t now_ns) {
    history_ = history_ << 1U | (well ? 0U : 1U);
    if (!on() || well) return false;
    const auto in_a_row = static_cast<std::uint32_t>(std::countr_one(history_));
    const auto of_64 = static_cast<std::uint32_t>(std::popcount(history_));
    if (in_a_row < options_.failures_in_a_row && of_64 < options_.failures_of_64) return false;
    return switch_off(fmt::format("{}; {} operations failed or hung in a row, {} of the last 64",
                                  what, in_a_row, of_64),
                      now_ns);
  }

  bool switch_off(std::string reason, std::uint64_t now_ns) {
    const bool was_on = on();
    reason_ = std::move(reason);
    if (was_on) wait_ns_ = options_.probe_after_ns;
    next_probe_ns_ = now_ns + wait_ns_;
    return was_on;
  }

  [[nodiscard]] bool probe_due(std::uint64_t now_ns) const {
    return !on() && now_ns >= next_probe_ns_;
  }
  void probe_failed(std::uint64_t now_ns) {
    KVC_CHECK(!on());
    wait_ns_ = std::min(wait_ns_ * 2, options_.probe_at_most_ns);
    next_probe_ns_ = now_ns + wait_ns_;
  }
  void switch_on() {
    reason_.clear();
    history_ = 0;
  }

 private:
  HealthOptions options_;
  std::string reason_;
  std::uint64_t history_ = 0;  // one bit an operation, the last one lowest; 1: failed
  std::uint64_t wait_ns_ = 0;
  std::uint64_t next_probe_ns_ = 0;
};

}  // namespace kvc::disk
