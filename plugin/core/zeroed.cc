#include "plugin/core/zeroed.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>

namespace kvc {
namespace {

constexpr std::size_t huge_page_bytes = std::size_t{2} << 20;
constexpr std::size_t line_bytes = 64;
constexpr std::size_t chunk_bytes = 8 * huge_page_bytes;
// Below it a piece lies on few pages, whatever their size.
constexpr std::size_t shared_from_bytes = std::size_t{16} << 10;
constexpr std::size_t mapped_from_bytes = 2 * huge_page_bytes;
#if defined(__SANITIZE_ADDRESS__)
#define KVC_WATCHED_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KVC_WATCHED_HEAP 1
#endif
#endif
#ifdef KVC_WATCHED_HEAP
// The sanitizer sees the ends of pieces that come from the heap.
constexpr bool shares_chunks = false;
#else
constexpr bool shares_chunks = true;
#endif

// A mapping whose start is a multiple of `alignment`, which is one of the page size; null: none.
// Only a hint makes its pages huge: where the kernel refuses, everything works with small ones.
std::byte* map_aligned(std::size_t bytes, std::size_t alignment) {
  if (bytes > SIZE_MAX - alignment) return nullptr;
  const std::size_t whole = bytes + alignment;
  void* mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const at = static_cast<std::byte*>(mapped);
  const std::size_t head =
      (alignment - reinterpret_cast<std::uintptr_t>(at) % alignment) % alignment;
  if (head != 0) ::munmap(at, head);
  if (whole - head != bytes) ::munmap(at + head + bytes, whole - head - bytes);
  static_cast<void>(::madvise(at + head, bytes, MADV_HUGEPAGE));
  return at + head;
}

std::size_t whole_pages(std::size_t bytes) {
  constexpr std::size_t page = 4096;
  return bytes > SIZE_MAX - page ? bytes : (bytes + page - 1) / page * page;
}

// The head of a chunk, in its first line. Pieces are cut off one behind the other and used once, so
// they are zero; the chunk goes with its last piece.
struct Chunk {
  std::size_t used = line_bytes;
  std::size_t pieces = 0;
};
static_assert(sizeof(Chunk) <= line_bytes);

std::mutex chunks_mutex;  // guards `open_chunk` and all chunks
Chunk* open_chunk = nullptr;

std::byte* cut(std::size_t bytes) {
  bytes = (bytes + line_bytes - 1) / line_bytes * line_bytes;
  const std::lock_guard lock(chunks_mutex);
  if (open_chunk == nullptr || chunk_bytes - open_chunk->used < bytes) {
    std::byte* const fresh = map_aligned(chunk_bytes, chunk_bytes);
    if (fresh == nullptr) return nullptr;
    open_chunk = new (fresh) Chunk;
  }
  std::byte* const piece = reinterpret_cast<std::byte*>(open_chunk) + open_chunk->used;
  open_chunk->used += bytes;
  ++open_chunk->pieces;
  return piece;
}

void give_back(std::byte* piece) {
  auto* const chunk =
      reinterpret_cast<Chunk*>(piece - reinterpret_cast<std::uintptr_t>(piece) % chunk_bytes);
  const std::lock_guard lock(chunks_mutex);
  if (--chunk->pieces != 0) return;
  if (chunk == open_chunk) open_chunk = nullptr;
  ::munmap(chunk, chunk_bytes);
}

}  // namespace

void ZeroedFree::operator()(std::byte* p) const {
  switch (from) {
    case ZeroedFrom::heap:
      std::free(p);
      return;
    case ZeroedFrom::chunk:
      give_back(p);
      return;
    case ZeroedFrom::mapping:
      ::munmap(p, bytes);
      return;
  }
}

ZeroedFree zeroed_deleter(std::size_t bytes) {
  if (bytes >= mapped_from_bytes) return ZeroedFree{ZeroedFrom::mapping, whole_pages(bytes)};
  if (shares_chunks && bytes >= shared_from_bytes) return ZeroedFree{ZeroedFrom::chunk, 0};
  return ZeroedFree{ZeroedFrom::heap, 0};
}

Zeroed make_zeroed(std::size_t bytes) {
  const ZeroedFree deleter = zeroed_deleter(bytes);
  switch (deleter.from) {
    case ZeroedFrom::mapping:
      return Zeroed(map_aligned(deleter.bytes, huge_page_bytes), deleter);
    case ZeroedFrom::chunk:
      return Zeroed(cut(bytes), deleter);
    case ZeroedFrom::heap:
      break;
  }
  return Zeroed(static_cast<std::byte*>(std::calloc(bytes == 0 ? 1 : bytes, 1)), deleter);
}

}  // namespace kvc
