#include "conformance/validate/guard.h"

#include <sys/mman.h>
#include <array>
#include <mutex>

namespace kvc::validate {
namespace {

constexpr std::size_t reserved_bytes = std::size_t{64} << 20U;
constexpr std::size_t alignment = 16;
constexpr std::size_t kept = 256;

// The last ranges that were closed: unreadable, and not yet given back to the system.
void keep_closed(void* base) {
  static std::mutex mutex;
  static std::array<void*, kept> ring{};
  static std::size_t next = 0;
  const std::lock_guard lock(mutex);
  if (ring[next] != nullptr) ::munmap(ring[next], reserved_bytes);
  ring[next] = base;
  next = (next + 1) % kept;
}

}  // namespace

void* GuardPages::take(std::size_t bytes) {
  if (base_ == nullptr) {
    void* const mapped = ::mmap(nullptr, reserved_bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    base_ = static_cast<std::uint8_t*>(mapped);
  }
  const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  if (rounded < bytes || rounded > reserved_bytes - used_) return nullptr;
  void* const at = base_ + used_;
  used_ += rounded;
  return at;
}

void GuardPages::lock() {
  if (base_ != nullptr) ::mprotect(base_, reserved_bytes, PROT_READ);
}

void GuardPages::close() {
  if (base_ == nullptr) return;
  ::madvise(base_, reserved_bytes, MADV_DONTNEED);
  ::mprotect(base_, reserved_bytes, PROT_NONE);
  keep_closed(base_);
  base_ = nullptr;
  used_ = 0;
}

}  // namespace kvc::validate
