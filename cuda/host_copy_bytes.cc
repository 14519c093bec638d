#include "cuda/host_copy_bytes.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

// Sanitizers do not see what such stores write.
#if defined(__SSE2__) && !defined(KVC_SANITIZED)
#define KVC_STREAMING_STORES 1
#include <emmintrin.h>
#endif

namespace kvc::copy_detail {

namespace {

constexpr std::uint64_t cache_most = std::uint64_t{32} << 20U;
#if defined(KVC_STREAMING_STORES)
constexpr std::size_t line = 64;
#endif

}  // namespace

std::uint64_t streaming_bytes_default() {
  const long bytes = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  return bytes > 0 ? std::min(static_cast<std::uint64_t>(bytes), cache_most) : cache_most;
}

void copy_streaming(std::byte* dst, const std::byte* src, std::size_t bytes) {
#if defined(KVC_STREAMING_STORES)
  // Up to a border of lines, then lines, then the rest.
  const std::size_t head =
      std::min(bytes, (line - reinterpret_cast<std::uintptr_t>(dst) % line) % line);
  std::memcpy(dst, src, head);
  dst += head;
  src += head;
  bytes -= head;
  for (; bytes >= line; bytes -= line, dst += line, src += line) {
    const auto* from = reinterpret_cast<const __m128i*>(src);
    auto* to = reinterpret_cast<__m128i*>(dst);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  _mm_sfence();
#endif
  std::memcpy(dst, src, bytes);
}

}  // namespace kvc::copy_detail
