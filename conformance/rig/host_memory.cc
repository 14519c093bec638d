#include "conformance/rig/host_memory.h"

#include <algorithm>
#include <cstdlib>

namespace kvc::rig {

HostMemory::~HostMemory() {
  for (const auto& [p, size] : live_) std::free(p);
}

void* HostMemory::give(std::uint64_t bytes, std::uint64_t align) {
  const std::lock_guard lock(mutex_);
  if (calls_++ == fail_at_) {
    failed_ = true;
    return nullptr;
  }
  void* p = nullptr;
  const std::uint64_t at = std::max<std::uint64_t>(align, sizeof(void*));
  if ((at & (at - 1)) != 0 || bytes > limit_) return nullptr;
  if (::posix_memalign(&p, at, std::max<std::uint64_t>(bytes, 1)) != 0) return nullptr;
  live_[p] = {bytes, align};
  return p;
}

void HostMemory::take(void* p, std::uint64_t bytes, std::uint64_t align) {
  const std::lock_guard lock(mutex_);
  const auto it = live_.find(p);
  if (it == live_.end() || it->second != std::pair(bytes, align)) {
    ++bad_releases_;
    return;
  }
  live_.erase(it);
  std::free(p);
}

void HostMemory::fail_at(std::uint64_t n) {
  const std::lock_guard lock(mutex_);
  fail_at_ = calls_ + n;
  failed_ = false;
}

bool HostMemory::failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

std::uint64_t HostMemory::calls() const {
  const std::lock_guard lock(mutex_);
  return calls_;
}

std::uint64_t HostMemory::live() const {
  const std::lock_guard lock(mutex_);
  return live_.size();
}

std::uint64_t HostMemory::live_bytes() const {
  const std::lock_guard lock(mutex_);
  std::uint64_t sum = 0;
  for (const auto& [p, size] : live_) sum += size.first;
  return sum;
}

std::uint64_t HostMemory::bad_releases() const {
  const std::lock_guard lock(mutex_);
  return bad_releases_;
}

}  // namespace kvc::rig
