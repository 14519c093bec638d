// A flat array of zeroes whose memory is touched only where it is used.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

#include "plugin/core/check.h"

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
    std::unique_ptr<T[], Free> fresh(static_cast<T*>(std::calloc(grown, sizeof(T))));
    if (fresh == nullptr) throw std::bad_alloc();
    if (size_ != 0) std::memcpy(static_cast<void*>(fresh.get()), data_.get(), size_ * sizeof(T));
    data_ = std::move(fresh);
    size_ = grown;
  }

  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] T& operator[](std::uint64_t i) {
    KVC_CHECK(i < size_);
    return data_[i];
  }
  [[nodiscard]] const T& operator[](std::uint64_t i) const {
    KVC_CHECK(i < size_);
    return data_[i];
  }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T[], Free> data_;
  std::uint64_t size_ = 0;
};

}  // namespace kvc
