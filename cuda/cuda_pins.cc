#include "cuda/cuda_pins.h"

#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

namespace kvc::cuda {

namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr int policy_bind = 2;  // MPOL_BIND of linux/mempolicy.h
constexpr std::int32_t numa_nodes_max = 1024;

Status bind_to_node(void* base, Bytes size, std::int32_t node) {
  std::uint64_t mask[numa_nodes_max / 64] = {};
  if (node >= numa_nodes_max) {
    return {Code::arg,
            fmt::format("NUMA node {} is out of range 0 to {}", node, numa_nodes_max - 1)};
  }
  mask[node / 64] = std::uint64_t{1} << (node % 64);
  if (::syscall(SYS_mbind, base, size.n, policy_bind, mask, std::uint64_t{numa_nodes_max} + 1, 0) !=
      0) {
    return {Code::full, fmt::format("cannot take {} bytes from NUMA node {}: {}", size.n, node,
                                    std::strerror(errno))};
  }
  return {};
}

}  // namespace

std::vector<std::uint64_t> pin_pieces(Bytes size, Bytes row, Bytes piece_max) {
  std::vector<std::uint64_t> ends;
  if (size.n <= piece_max.n) {
    if (size.n != 0) ends.push_back(size.n);
    return ends;
  }
  if (row.n == 0) return ends;
  const std::uint64_t step_rows = page_bytes / std::gcd(row.n, page_bytes);
  if (step_rows > piece_max.n / row.n) return ends;
  const std::uint64_t step = row.n * step_rows;
  const std::uint64_t piece = piece_max.n / step * step;
  for (std::uint64_t end = piece; end < size.n; end += piece) ends.push_back(end);
  ends.push_back(size.n);
  return ends;
}

Status CudaPins::add(const Driver& driver, void* base, Bytes size, Bytes row, Bytes piece_max,
                     std::int32_t numa_node) {
  if (size.n == 0) return {};
  const std::vector<std::uint64_t> ends = pin_pieces(size, row, piece_max);
  if (ends.empty()) {
    return {Code::arg,
            fmt::format("{} bytes in rows of {} cannot be registered in pieces of at most {} bytes "
                        "that end on borders of rows and pages",
                        size.n, row.n, piece_max.n)};
  }
  if (numa_node >= 0) {
    if (Status s = bind_to_node(base, size, numa_node); !s.ok()) return s;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(base);
  std::uint64_t from = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    auto* at = static_cast<std::byte*>(base) + from;
    const DriverResult r =
        driver.host_register(at, ends[i] - from, host_register_portable | host_register_device_map);
    if (r != driver_success) {
      for (std::size_t back = i; back-- > 0;) {
        const std::uint64_t begun = back == 0 ? 0 : ends[back - 1];
        static_cast<void>(driver.host_unregister(static_cast<std::byte*>(base) + begun));
      }
      return driver.error(
          r,
          fmt::format(
              "cannot page-lock {} bytes of host memory: piece {} of {}, {} bytes at offset "
              "{}, is refused (the limit of locked memory is that of ulimit -l)",
              size.n, i + 1, ends.size(), ends[i] - from, from),
          Code::full);
    }
    from = ends[i];
  }
  from = 0;
  for (const std::uint64_t end : ends) {
    ranges_.push_back({begin + from, begin + end});
    from = end;
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const PinRange& a, const PinRange& b) { return a.begin < b.begin; });
  return {};
}

void CudaPins::clear(const Driver& driver) {
  for (const PinRange& r : ranges_) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): as it was registered
    static_cast<void>(driver.host_unregister(reinterpret_cast<void*>(r.begin)));
  }
  ranges_.clear();
}

std::optional<PinRange> CudaPins::find(const void* p) const {
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  auto it = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                             [](std::uintptr_t a, const PinRange& r) { return a < r.begin; });
  if (it == ranges_.begin() || (--it)->end <= address) return std::nullopt;
  return *it;
}

}  // namespace kvc::cuda
