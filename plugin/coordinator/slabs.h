// Arrays that grow without moving, of zeroed memory: what was never written is not resident, so a
// bounded arena may be sized for its worst case at once.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "plugin/core/check.h"
#include "plugin/core/zeroed.h"

namespace kvc {

// Threads: one user. Owns: the memory. Invariants: elements keep their address; fresh elements are
// all zero bytes.
class Slabs {
 public:
  static constexpr std::uint32_t shift = 16;
  static constexpr std::uint64_t per_slab = std::uint64_t{1} << shift;

  explicit Slabs(std::size_t stride) : stride_(stride) {}

  // Exactly `count` elements, for arenas that never grow. Called once, before anything else. False:
  // out of memory.
  [[nodiscard]] bool size_for(std::uint64_t count) {
    if (count == 0) return true;
    if (!extend(count)) return false;
    flat_ = extents_.back().get();
    return true;
  }

  // Room for `count` elements, growing by whole slabs and at least an eighth; false when memory ran
  // out (what was there stays). A sized arena is not asked for more than it was sized for.
  [[nodiscard]] bool ensure(std::uint64_t count) {
    if (count <= capacity_) return true;
    KVC_CHECK(flat_ == nullptr);
    const std::uint64_t more = std::max(count - capacity_, capacity_ / 8);
    return extend((more + per_slab - 1) / per_slab * per_slab);
  }

  [[nodiscard]] std::byte* at(std::uint64_t i) const { return at(i, stride_); }
  // Requires the stride of this array, which callers may know when they are compiled. A sized arena
  // is one piece: nothing has to be read to know where an element is.
  [[nodiscard]] std::byte* at(std::uint64_t i, std::size_t stride) const {
    if (flat_ != nullptr) [[likely]]
      return flat_ + i * stride;
    return slabs_[i >> shift] + (i & (per_slab - 1)) * stride;
  }
  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
  [[nodiscard]] std::size_t stride() const { return stride_; }

 private:
  [[nodiscard]] bool extend(std::uint64_t count) {
    Zeroed memory = make_zeroed(count * stride_);
    if (memory == nullptr) return false;
    for (std::uint64_t i = 0; i < count; i += per_slab)
      slabs_.push_back(memory.get() + i * stride_);
    extents_.push_back(std::move(memory));
    capacity_ += count;
    return true;
  }

  std::size_t stride_;
  std::uint64_t capacity_ = 0;
  std::byte* flat_ = nullptr;  // of a sized arena
  std::vector<std::byte*> slabs_;
  std::vector<Zeroed> extents_;
};

// Slabs of one trivial type whose all-zero bytes are a valid value.
template <class T>
class SlabArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  [[nodiscard]] bool size_for(std::uint64_t count) { return raw_.size_for(count); }
  [[nodiscard]] bool ensure(std::uint64_t count) { return raw_.ensure(count); }
  [[nodiscard]] std::uint64_t capacity() const { return raw_.capacity(); }
  T& operator[](std::uint64_t i) { return *reinterpret_cast<T*>(raw_.at(i, sizeof(T))); }
  const T& operator[](std::uint64_t i) const {
    return *reinterpret_cast<const T*>(raw_.at(i, sizeof(T)));
  }

 private:
  Slabs raw_{sizeof(T)};
};

}  // namespace kvc
