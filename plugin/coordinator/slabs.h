// Arrays that grow without moving: zeroed slabs of 2^16 elements. Memory that was never written is
// not resident, so a bounded arena may be sized for its worst case at once.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <type_traits>
#include <vector>

namespace kvc {

// Threads: one user. Owns: the slabs. Invariants: elements keep their address; fresh elements are
// all zero bytes.
class Slabs {
 public:
  static constexpr std::uint32_t shift = 16;
  static constexpr std::uint64_t per_slab = std::uint64_t{1} << shift;

  explicit Slabs(std::size_t stride) : stride_(stride) {}

  // Room for `count` elements; false when memory ran out (what was there stays). count <= 2^32.
  [[nodiscard]] bool ensure(std::uint64_t count) {
    while (capacity_ < count) {
      auto* raw = static_cast<std::byte*>(std::calloc(per_slab, stride_));
      if (raw == nullptr) return false;
      slabs_.emplace_back(raw);
      capacity_ += per_slab;
    }
    return true;
  }

  [[nodiscard]] std::byte* at(std::uint64_t i) const {
    return slabs_[i >> shift].get() + (i & (per_slab - 1)) * stride_;
  }
  [[nodiscard]] std::uint64_t capacity() const { return capacity_; }
  [[nodiscard]] std::size_t stride() const { return stride_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::size_t stride_;
  std::uint64_t capacity_ = 0;
  std::vector<std::unique_ptr<std::byte, Free>> slabs_;
};

// Slabs of one trivial type whose all-zero bytes are a valid value.
template <class T>
class SlabArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  [[nodiscard]] bool ensure(std::uint64_t count) { return raw_.ensure(count); }
  [[nodiscard]] std::uint64_t capacity() const { return raw_.capacity(); }
  T& operator[](std::uint64_t i) { return *reinterpret_cast<T*>(raw_.at(i)); }
  const T& operator[](std::uint64_t i) const { return *reinterpret_cast<const T*>(raw_.at(i)); }

 private:
  Slabs raw_{sizeof(T)};
};

}  // namespace kvc
