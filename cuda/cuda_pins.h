// Host memory that is page-locked for a device, and where its pieces end. Internal to cuda/.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda/driver/cuda_driver.h"
#include "plugin/core/units.h"

namespace kvc::cuda {

struct PinRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

// How [0, size) is cut: pieces of at most `piece_max` bytes that end on borders of rows and of
// pages (two registrations may not share a page), but for the last. Empty: no such piece exists.
std::vector<std::uint64_t> pin_pieces(Bytes size, Bytes row, Bytes piece_max);

// Threads:    one user at a time, with the device's context current in add and clear.
// Owns:       the registrations, not the memory.
// Invariants: ranges are sorted and do not overlap; a range is what one call registered, so no copy
//             may cross from one into the next.
class CudaPins {
 public:
  // All of it or nothing; a driver that refuses one piece costs what was registered before it and
  // nothing else (docs/cuda.md). numa_node >= 0: its pages come from that node.
  Status add(const Driver& driver, void* base, Bytes size, Bytes row, Bytes piece_max,
             std::int32_t numa_node);
  void clear(const Driver& driver);

  // The registration that holds the address; none: the memory is not registered.
  [[nodiscard]] std::optional<PinRange> find(const void* p) const;
  [[nodiscard]] std::size_t pieces() const { return ranges_.size(); }

 private:
  std::vector<PinRange> ranges_;
};

}  // namespace kvc::cuda
