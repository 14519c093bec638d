// Device memory of one rank: the bytes of all blocks, in one region.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "host_stub/engine/compute_device.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc::host {

// Threads:    block() from any thread; ensure() beside no other call.
// Owns:       the address range and its pages.
// Invariants: base() never moves; blocks below blocks() are readable and writable; a grown memory
//             commits pages of its reserved range slab by slab.
class RankMemory {
 public:
  // On `device` if that is not null, which outlives it; then it does not grow.
  // `blocks` 0: grows up to `reserve`. Code::full with the numbers when the system gives no memory.
  static Result<std::unique_ptr<RankMemory>> make(Blocks blocks, Bytes block_bytes, Bytes reserve,
                                                  ComputeDevice* device = nullptr);
  RankMemory(const RankMemory&) = delete;
  RankMemory& operator=(const RankMemory&) = delete;
  ~RankMemory();

  // Makes blocks below `blocks` usable. False: beyond the reserved range, or the system refused.
  bool ensure(Blocks blocks);
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] std::byte* block(std::uint64_t id) const { return base_ + id * block_bytes_.n; }
  [[nodiscard]] Bytes block_bytes() const { return block_bytes_; }
  [[nodiscard]] Bytes region() const { return reserve_; }
  [[nodiscard]] bool on_device() const { return device_ != nullptr; }
  // The model, or the host, reads or writes here: the device wants to know.
  void touched(const void* p, std::uint64_t bytes, bool writes) const {
    if (device_ != nullptr) device_->touched(p, bytes, writes);
  }
  [[nodiscard]] Blocks blocks() const { return {committed_.n / block_bytes_.n}; }

 private:
  RankMemory(std::byte* base, Bytes block_bytes, Bytes reserve, ComputeDevice* device)
      : device_(device), base_(base), block_bytes_(block_bytes), reserve_(reserve) {}
  ComputeDevice* device_;
  std::byte* base_;
  Bytes block_bytes_;
  Bytes reserve_;
  Bytes committed_;
};

}  // namespace kvc::host
