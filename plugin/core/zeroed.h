// Zeroed memory that is not resident before it is written, on huge pages wherever the kernel gives
// them: indexes and tables are read at random, and with 4 KiB pages most of these reads would miss
// the TLB as well. Under a hypervisor such a miss costs several reads of memory.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace kvc {

enum class ZeroedFrom : unsigned char {
  heap,     // small
  chunk,    // a piece of a mapping that it shares with others
  mapping,  // one of its own
};

struct ZeroedFree {
  ZeroedFrom from = ZeroedFrom::heap;
  std::size_t bytes = 0;  // of its own mapping
  void operator()(std::byte* p) const;
};
// Of memory of make_zeroed(bytes).
ZeroedFree zeroed_deleter(std::size_t bytes);
using Zeroed = std::unique_ptr<std::byte, ZeroedFree>;

// `bytes` zero bytes, aligned for any type; null when memory ran out. Pieces of 16 KiB and more
// begin on a cache line. What pieces of up to 4 MiB give back goes back to the system with the last
// piece of the 16 MiB of address space that they lie in. Any thread.
Zeroed make_zeroed(std::size_t bytes);

// For vectors that are read at random, or that many users read in turn: memory as of make_zeroed.
// What they outgrow stays in its chunk, so they are for vectors that keep their room.
template <class T>
struct PagedAllocator {
  using value_type = T;
  PagedAllocator() = default;
  template <class U>
  PagedAllocator(const PagedAllocator<U>&) noexcept {}  // NOLINT: as the standard's allocators

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > SIZE_MAX / sizeof(T)) throw std::bad_alloc();
    Zeroed memory = make_zeroed(count * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return reinterpret_cast<T*>(memory.release());
  }
  void deallocate(T* p, std::size_t count) noexcept {
    zeroed_deleter(count * sizeof(T))(reinterpret_cast<std::byte*>(p));
  }
  template <class U>
  friend bool operator==(const PagedAllocator&, const PagedAllocator<U>&) {
    return true;
  }
};
template <class T>
using PagedVector = std::vector<T, PagedAllocator<T>>;

}  // namespace kvc
