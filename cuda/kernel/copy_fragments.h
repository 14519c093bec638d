// What the gather/scatter kernel does, once for the device and for the fake of it: the same lines
// run under nvcc and under the sanitizers.
#pragma once
#include <cstdint>

#if defined(__CUDACC__)
#define KVC_DEVICE_INLINE __host__ __device__ inline
#else
#define KVC_DEVICE_INLINE inline
#endif

namespace kvc::cuda {

// `bytes` bytes from src to dst, addresses that the device sees. A table of these lies in pinned
// host memory.
struct Fragment {
  std::uint64_t dst;
  std::uint64_t src;
  std::uint64_t bytes;
};

// The kernel's name in the module. Parameters: const Fragment* table, std::uint32_t count.
inline constexpr const char* fragments_kernel = "kvc_copy_fragments";
inline constexpr unsigned fragment_lanes = 32;         // threads that share a fragment: one warp
inline constexpr unsigned fragment_block = 256;        // threads of a block
inline constexpr unsigned fragment_groups_max = 8192;  // warps of a launch

struct alignas(16) FragmentWord {
  std::uint64_t low;
  std::uint64_t high;
};

template <class Word>
KVC_DEVICE_INLINE void copy_words(const Fragment& f, unsigned lane, unsigned lanes) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): addresses of the device's address space
  auto* dst = reinterpret_cast<Word*>(f.dst);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const auto* src = reinterpret_cast<const Word*>(f.src);
  const std::uint64_t words = f.bytes / sizeof(Word);
  std::uint64_t i = lane;
  // Four reads are on their way before the first is written: the bus is far.
  for (; i + 3 * std::uint64_t{lanes} < words; i += 4 * std::uint64_t{lanes}) {
    const Word a = src[i];
    const Word b = src[i + lanes];
    const Word c = src[i + 2 * std::uint64_t{lanes}];
    const Word d = src[i + 3 * std::uint64_t{lanes}];
    dst[i] = a;
    dst[i + lanes] = b;
    dst[i + 2 * std::uint64_t{lanes}] = c;
    dst[i + 3 * std::uint64_t{lanes}] = d;
  }
  for (; i < words; i += lanes) dst[i] = src[i];
}

// The part of one lane of one group: every groups-th fragment, every lanes-th word of it, in the
// widest words that its addresses and its length allow.
KVC_DEVICE_INLINE void copy_fragments(const Fragment* table, std::uint32_t count, unsigned group,
                                      unsigned groups, unsigned lane, unsigned lanes) {
  for (std::uint64_t at = group; at < count; at += groups) {
    const Fragment f = table[at];
    const std::uint64_t bits = f.dst | f.src | f.bytes;
    if (bits % 16 == 0) {
      copy_words<FragmentWord>(f, lane, lanes);
    } else if (bits % 8 == 0) {
      copy_words<std::uint64_t>(f, lane, lanes);
    } else if (bits % 4 == 0) {
      copy_words<std::uint32_t>(f, lane, lanes);
    } else {
      copy_words<unsigned char>(f, lane, lanes);
    }
  }
}

}  // namespace kvc::cuda
