// Aligned buffers through which all blocks go to and from disk (docs/adr/0010).
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "plugin/core/host_arena.h"

namespace kvc::disk {

inline constexpr std::uint32_t no_buffer = UINT32_MAX;

// Threads:    any; one lock inside, never held for longer than a list operation.
// Owns:       the buffers: address space at creation, memory when first used.
// Invariants: a buffer is with one taker at a time.
class Staging {
 public:
  // Requires: bytes is a multiple of `alignment`. Errors: full.
  Status create(std::uint32_t buffers, std::uint64_t bytes) {
    auto made = HostArena::create({{bytes}, buffers, 0, false});
    if (!made.ok()) return made.error();
    arena_ = std::move(made.value());
    if (Status s = arena_->grow_to(buffers); !s.ok()) return s;
    for (std::uint32_t i = buffers; i != 0; --i) free_.push_back(i - 1);
    return {};
  }

  // no_buffer: all are taken.
  std::uint32_t take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) return no_buffer;
    const std::uint32_t buffer = free_.back();
    free_.pop_back();
    return buffer;
  }
  void give_back(std::uint32_t buffer) {
    const std::lock_guard lock(mutex_);
    free_.push_back(buffer);  // room for all since create
  }
  [[nodiscard]] std::byte* bytes(std::uint32_t buffer) const { return arena_->unit(buffer); }
  [[nodiscard]] std::size_t free() const {
    const std::lock_guard lock(mutex_);
    return free_.size();
  }

 private:
  std::unique_ptr<HostArena> arena_;
  mutable std::mutex mutex_;
  std::vector<std::uint32_t> free_;
};

}  // namespace kvc::disk
