#include "host_stub/engine/rank_memory.h"

#include <algorithm>

#include <fmt/format.h>
#include <sys/mman.h>

namespace kvc::host {
namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t slab_bytes = std::uint64_t{64} << 20U;

std::uint64_t round_up(std::uint64_t n, std::uint64_t unit) { return ceil_div(n, unit) * unit; }

}  // namespace

Result<std::unique_ptr<RankMemory>> RankMemory::make(Blocks blocks, Bytes block_bytes,
                                                     Bytes reserve, ComputeDevice* device) {
  const bool grows = blocks.n == 0;
  if (block_bytes.n == 0 || (!grows && blocks.n > (std::uint64_t{1} << 46U) / block_bytes.n)) {
    return {Code::arg, fmt::format("device memory of {} blocks of {} bytes is out of range",
                                   blocks.n, block_bytes.n)};
  }
  if (device != nullptr) {
    if (grows) return {Code::arg, "memory of a device does not grow: give a number of blocks"};
    std::byte* const p = device->allocate({blocks.n * block_bytes.n});
    if (p == nullptr) {
      return {Code::full,
              fmt::format("no device memory for {} blocks of {} bytes", blocks.n, block_bytes.n)};
    }
    std::unique_ptr<RankMemory> memory(
        new RankMemory(p, block_bytes, Bytes{blocks.n * block_bytes.n}, device));
    memory->committed_ = memory->reserve_;
    return memory;
  }
  const std::uint64_t bytes = round_up(grows ? reserve.n : blocks.n * block_bytes.n, page_bytes);
  void* const p =
      mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    return {Code::full, fmt::format("no address space for {} bytes of device memory", bytes)};
  }
  std::unique_ptr<RankMemory> memory(
      new RankMemory(static_cast<std::byte*>(p), block_bytes, Bytes{bytes}, nullptr));
  if (!grows && !memory->ensure(blocks)) {
    return {Code::full,
            fmt::format("no memory for {} device blocks of {} bytes", blocks.n, block_bytes.n)};
  }
  return memory;
}

RankMemory::~RankMemory() {
  if (device_ != nullptr) {
    device_->free(base_);
  } else {
    munmap(base_, reserve_.n);
  }
}

bool RankMemory::ensure(Blocks blocks) {
  if (blocks.n > reserve_.n / block_bytes_.n) return false;
  const std::uint64_t need = blocks.n * block_bytes_.n;
  if (need <= committed_.n) return true;
  const std::uint64_t end = std::min(round_up(need, slab_bytes), reserve_.n);
  const std::uint64_t begin = committed_.n;
  if (mprotect(base_ + begin, end - begin, PROT_READ | PROT_WRITE) != 0) return false;
  committed_ = {end};
  return true;
}

}  // namespace kvc::host
