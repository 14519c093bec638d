// Preallocated lists of the edge.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <new>
#include <span>
#include <type_traits>

#include "plugin/core/check.h"
#include "plugin/core/prefetch.h"

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
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  Arena(std::uint64_t reserved, std::pmr::memory_resource* memory) : memory_(memory) {
    begin(reserved);
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { give_back(); }

  // Empties the list and makes room for `count` elements. Throws std::bad_alloc.
  void begin(std::uint64_t count) {
    size_ = 0;
    if (count <= room_) return;
    T* const more = memory_.allocate(static_cast<std::size_t>(count));
    give_back();
    items_ = more;
    room_ = count;
  }
  // Requires that begin() made room for it.
  T& add(const T& item) {
    KVC_CHECK(size_ < room_);
    // The list was not looked at since the last call: it is fetched while it is filled.
    prefetch_write(reinterpret_cast<const std::byte*>(&items_[size_]) + fetched_ahead_bytes);
    return *new (&items_[size_++]) T(item);
  }
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const T* data() const { return items_; }
  [[nodiscard]] std::span<const T> all() const { return {items_, static_cast<std::size_t>(size_)}; }
  [[nodiscard]] std::span<const T> from(std::uint64_t first) const { return all().subspan(first); }

 private:
  static constexpr std::size_t fetched_ahead_bytes = 768;
  void give_back() {
    if (room_ != 0) memory_.deallocate(items_, static_cast<std::size_t>(room_));
  }

  std::pmr::polymorphic_allocator<T> memory_;
  T* items_ = nullptr;
  std::uint64_t room_ = 0;
  std::uint64_t size_ = 0;
};

}  // namespace kvc::edge
