#include "plugin/core/host_arena.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <new>

namespace kvc {

namespace {

std::uint64_t page_bytes() { return static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)); }

}  // namespace

Result<std::unique_ptr<HostArena>> HostArena::create(const HostArenaOptions& options) {
  const std::uint64_t unit = options.unit_bytes.n;
  if (unit == 0 || options.units_max == 0) {
    return {Code::arg, fmt::format("host memory of {} units of {} bytes: both must be above 0",
                                   options.units_max, unit)};
  }
  const std::uint64_t per_slab =
      options.units_per_slab == 0 ? options.units_max : options.units_per_slab;
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(per_slab, unit, &bytes) || bytes > UINT64_MAX - page_bytes() ||
      bytes > static_cast<std::uint64_t>(PTRDIFF_MAX)) {
    return {Code::arg,
            fmt::format("host memory of {} units of {} bytes is beyond the address space", per_slab,
                        unit)};
  }
  bytes = ceil_div(bytes, page_bytes()) * page_bytes();
  std::unique_ptr<HostArena> arena(new (std::nothrow) HostArena(options, per_slab, bytes));
  if (arena == nullptr) return {Code::full, "no memory for the description of a host arena"};
  if (options.units_per_slab == 0) {
    if (Status s = arena->grow_to(options.units_max); !s.ok()) return s;
  }
  return arena;
}

HostArena::~HostArena() {
  for (std::byte* slab : slabs_) ::munmap(slab, slab_bytes_);
}

Status HostArena::grow_to(std::uint64_t units) {
  if (units > options_.units_max) {
    return {Code::full,
            fmt::format("host memory is limited to {} units of {} bytes, unit {} was asked for",
                        options_.units_max, options_.unit_bytes.n, units - 1)};
  }
  while (units_usable() < units) {
    if (Status s = map_slab(); !s.ok()) return s;
  }
  return {};
}

Status HostArena::map_slab() {
  try {
    slabs_.reserve(slabs_.size() + 1 > slabs_.capacity() ? slabs_.size() * 2 + 1
                                                         : slabs_.size() + 1);
  } catch (const std::bad_alloc&) {
    return {Code::full, fmt::format("no memory for the list of {} host slabs", slabs_.size() + 1)};
  }
  void* base =
      ::mmap(nullptr, slab_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) {
    const int error = errno;
    return {Code::full,
            fmt::format("the system gives no {} bytes of host memory after {} mapped: {}",
                        slab_bytes_, mapped().n, std::strerror(error))};
  }
  auto* bytes = static_cast<std::byte*>(base);
  if (options_.prefault) {
    for (std::uint64_t at = 0; at < slab_bytes_; at += page_bytes()) {
      static_cast<volatile std::byte*>(bytes)[at] = std::byte{0};
    }
  }
  slabs_.push_back(bytes);
  return {};
}

std::byte* HostArena::unit(std::uint64_t index) const {
  const std::uint64_t slab = index / per_slab_;
  KVC_CHECK(slab < slabs_.size());
  return slabs_[slab] + (index % per_slab_) * options_.unit_bytes.n;
}

std::byte* HostArena::slab_base(std::size_t slab) const {
  KVC_CHECK(slab < slabs_.size());
  return slabs_[slab];
}

}  // namespace kvc
