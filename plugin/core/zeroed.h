// Zeroed memory that is not resident before it is written, with huge pages for large pieces: an
// index of millions of entries is read at random, and with 4 KiB pages every read would miss the
// TLB as well.
#pragma once
#include <cstddef>
#include <memory>

namespace kvc {

struct ZeroedFree {
  std::size_t mapped = 0;  // bytes of the mapping; 0: from the heap
  void operator()(std::byte* p) const;
};
using Zeroed = std::unique_ptr<std::byte, ZeroedFree>;

// `bytes` zero bytes, aligned for any type; null when memory ran out. Any thread.
Zeroed make_zeroed(std::size_t bytes);

}  // namespace kvc
