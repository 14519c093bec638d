// A flat array of zeroes whose memory is touched only where it is used. Unlike SlabArray
// (plugin/coordinator/slabs.h) it may be small, one for each request, and moves when it grows.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "plugin/core/check.h"
#include "plugin/core/zeroed.h"

namespace kvc {

// Threads:    one user. Owns: its memory.
// Invariants: elements that were never written are zero; ensure() inside the first capacity does
//             not allocate. Throws std::bad_alloc when memory runs out, with nothing changed.
template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ZeroedArray() = default;
  explicit ZeroedArray(std::uint64_t size) { ensure(size); }

  // Makes indices below `size` usable; grows at least by half.
  void ensure(std::uint64_t size) {
    if (size <= size_) return;
    std::uint64_t grown = size_ + size_ / 2;
    if (grown < size) grown = size;
    if (grown > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    Zeroed fresh = make_zeroed(grown * sizeof(T));
    if (fresh == nullptr) throw std::bad_alloc();
    if (size_ != 0) std::memcpy(fresh.get(), memory_.get(), size_ * sizeof(T));
    memory_ = std::move(fresh);
    size_ = grown;
  }

  [[nodiscard]] std::uint64_t size() const { return size_; }
  // size() elements.
  [[nodiscard]] T* data() { return reinterpret_cast<T*>(memory_.get()); }
  // Where element i lies, to prefetch it; null if there is none.
  [[nodiscard]] const std::byte* where(std::uint64_t i) const {
    return i < size_ ? memory_.get() + i * sizeof(T) : nullptr;
  }
  [[nodiscard]] T& operator[](std::uint64_t i) {
    KVC_CHECK(i < size_);
    return reinterpret_cast<T*>(memory_.get())[i];
  }
  [[nodiscard]] const T& operator[](std::uint64_t i) const {
    KVC_CHECK(i < size_);
    return reinterpret_cast<const T*>(memory_.get())[i];
  }

 private:
  Zeroed memory_;
  std::uint64_t size_ = 0;
};

}  // namespace kvc
