// Preallocated lists of the edge.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory_resource>
#include <span>
#include <vector>

namespace kvc::edge {

// A list that is refilled by every call and keeps its room.
//
// Threads:    one user.
// Owns:       room for `reserved` elements from the start; a longer list (unlimited pools, engines
// that said
//             KVC_NO_LIMIT) takes more from the host's allocator once and keeps it.
// Invariants: pointers into it stay valid until the next begin().
template <class T>
class Arena {
 public:
  Arena(std::uint64_t reserved, std::pmr::memory_resource* memory) : items_(memory) {
    items_.reserve(static_cast<std::size_t>(reserved));
  }

  // Empties the list and makes room for `count` elements. Throws std::bad_alloc.
  void begin(std::uint64_t count) {
    items_.clear();
    items_.reserve(static_cast<std::size_t>(count));
  }
  // Requires that begin() made room for it.
  T& add(const T& item) { return items_.emplace_back(item); }
  [[nodiscard]] std::uint64_t size() const { return items_.size(); }
  [[nodiscard]] const T* data() const { return items_.data(); }
  [[nodiscard]] T* end() { return items_.data() + items_.size(); }
  [[nodiscard]] std::span<const T> all() const { return {items_.data(), items_.size()}; }
  [[nodiscard]] std::span<const T> from(std::uint64_t first) const { return all().subspan(first); }

 private:
  std::pmr::vector<T> items_;
};

}  // namespace kvc::edge
