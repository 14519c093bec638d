// The host's allocator, as a table offers it: keeps accounts, and fails on demand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

namespace kvc::rig {

// Threads: any.
// Owns:    what it gave and did not get back; freed at the end.
class HostMemory {
 public:
  HostMemory() = default;
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  // NULL: the call that was to fail, or no memory.
  void* give(std::uint64_t bytes, std::uint64_t align);
  void take(void* p, std::uint64_t bytes, std::uint64_t align);

  // More than so many bytes at a time are refused.
  void limit(std::uint64_t bytes) { limit_ = bytes; }
  // The n-th call of give from now on fails (0: the next), once.
  void fail_at(std::uint64_t n);
  // Whether the call that was to fail came.
  [[nodiscard]] bool failed() const;
  [[nodiscard]] std::uint64_t calls() const;
  [[nodiscard]] std::uint64_t live() const;  // pieces that were not given back
  [[nodiscard]] std::uint64_t live_bytes() const;
  // Pieces that came back twice, from elsewhere, or with other numbers.
  [[nodiscard]] std::uint64_t bad_releases() const;

 private:
  mutable std::mutex mutex_;
  std::map<void*, std::pair<std::uint64_t, std::uint64_t>> live_;
  std::uint64_t limit_ = std::uint64_t{1} << 46U;
  std::uint64_t calls_ = 0;
  std::uint64_t fail_at_ = UINT64_MAX;  // counted in calls_
  std::uint64_t bad_releases_ = 0;
  bool failed_ = false;
};

}  // namespace kvc::rig
