#include "plugin/core/zeroed.h"

#include <sys/mman.h>

#include <cstdlib>

namespace kvc {
namespace {

// Two huge pages: below it their rounding and zeroing cost more than they save.
constexpr std::size_t mapped_from_bytes = std::size_t{4} << 20;

}  // namespace

void ZeroedFree::operator()(std::byte* p) const {
  if (mapped == 0)
    std::free(p);
  else
    ::munmap(p, mapped);
}

Zeroed make_zeroed(std::size_t bytes) {
  if (bytes < mapped_from_bytes)
    return Zeroed(static_cast<std::byte*>(std::calloc(bytes == 0 ? 1 : bytes, 1)), ZeroedFree{0});
  void* p = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return Zeroed(nullptr, ZeroedFree{0});
  // Only a hint: where the kernel refuses, everything works with small pages.
  static_cast<void>(::madvise(p, bytes, MADV_HUGEPAGE));
  return Zeroed(static_cast<std::byte*>(p), ZeroedFree{bytes});
}

}  // namespace kvc
