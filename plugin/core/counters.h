// A snapshot of numbers that one thread publishes and any thread reads without a lock (design 2.3:
// boundary_stats, stats and explain read the snapshot published at the end of the last
// scheduler-role call).
#pragma once
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "plugin/core/prefetch.h"

namespace kvc {

// Threads:    publish: one writer. read: any thread, any number; a reader repeats while the writer
// is inside
//             publish, which is a few stores long.
// Owns:       one copy of T, kept as 64-bit words.
// Invariants: read returns a T that was published as a whole (or the initial one), with the words
//             that were replaced since.
template <class T>
class alignas(64) Snapshot {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(std::uint64_t) == 0,
                "a snapshot is a plain struct of 64-bit numbers");
  static constexpr std::size_t words = sizeof(T) / sizeof(std::uint64_t);

 public:
  void publish(const T& value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    const std::uint64_t s = sequence_.load(std::memory_order_relaxed);
    sequence_.store(s + 1, std::memory_order_relaxed);
    // release on every word: who sees one of them sees the odd sequence too.
    for (std::size_t i = 0; i < words; ++i) {
      std::uint64_t word;
      std::memcpy(&word, bytes + i * sizeof word, sizeof word);
      words_[i].store(word, std::memory_order_release);
    }
    sequence_.store(s + 2, std::memory_order_release);
  }

  // Replaces one word of what was published last, the one of the 64-bit member at `offset` bytes.
  // One of the first seven lies in the cache line of the sequence: nothing else is touched.
  void replace_word(std::size_t offset, std::uint64_t word) {
    const std::uint64_t s = sequence_.load(std::memory_order_relaxed);
    sequence_.store(s + 1, std::memory_order_relaxed);
    words_[offset / sizeof word].store(word, std::memory_order_release);
    sequence_.store(s + 2, std::memory_order_release);
  }

  // A replace_word of one of the first seven words will come soon.
  void expect_replace() const { prefetch_write(&sequence_); }

  // A publish will come soon: its memory is fetched beside other work.
  void expect_publish() const { prefetch_write_all(this, sizeof *this); }

  [[nodiscard]] T read() const {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the loop writes all of it
    std::array<std::uint64_t, words> raw;
    for (;;) {
      const std::uint64_t before = sequence_.load(std::memory_order_acquire);
      // acquire on every word keeps the second look at the sequence behind them.
      for (std::size_t i = 0; i < words; ++i) raw[i] = words_[i].load(std::memory_order_acquire);
      if (before % 2 == 0 && sequence_.load(std::memory_order_relaxed) == before) break;
    }
    return std::bit_cast<T>(raw);
  }

 private:
  std::atomic<std::uint64_t> sequence_{0};
  std::array<std::atomic<std::uint64_t>, words> words_{};
};

}  // namespace kvc
