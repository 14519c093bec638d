// Log lines of a handle whose host gave no log function, kept until take_log drains them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <mutex>
#include <string_view>
#include <vector>

#include "plugin/offload/scheduler_role.h"

namespace kvc::edge {

// Threads:    any; one lock, held for the copy of one line.
// Owns:       its room, taken at construction; no heap after.
// Invariants: holds whole lines "level text\n", oldest first. When a line does not fit, the oldest
// lines give way and
//             are counted; the next drain begins with a line that tells how many were lost.
class LogRing {
 public:
  LogRing(std::size_t bytes, std::pmr::memory_resource* memory) : room_(bytes, memory) {}

  void add(LogLevel level, std::string_view text) noexcept;

  // Moves whole lines into buf; returns the bytes written. more: lines are left. A line that is
  // longer than an empty buf is cut to it, so that a drain always advances.
  std::size_t take(char* buf, std::size_t cap, bool& more) noexcept;

 private:
  void put(std::string_view part) noexcept;
  void drop_line() noexcept;
  [[nodiscard]] std::size_t line_bytes() const noexcept;
  [[nodiscard]] char at(std::size_t i) const noexcept { return room_[(first_ + i) % room_.size()]; }

  std::mutex mutex_;
  std::pmr::vector<char> room_;
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  std::uint64_t lost_ = 0;
};

[[nodiscard]] std::string_view name_of(LogLevel level);

}  // namespace kvc::edge
