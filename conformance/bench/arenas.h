// The warm arenas of the rows: 2M slots after ten times as much was stored and evicted.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "conformance/bench/engine.h"

namespace kvc::bench {

inline constexpr std::uint64_t arena_slots = std::uint64_t{1} << 21U;
inline constexpr std::uint64_t long_blocks = 8192;  // of the longest requests: 128k tokens by 16

// How often the slots are written before anything is measured: 10, or KVC_BENCH_CHURN for a quick
// look (figures of it do not count).
std::uint64_t churn_times();

// An engine with a full tier, and what is in it.
//
// Threads:    one. Owns: the engine. Invariants: keys() are keys of the chain group that the tier
//             held when the arena was made, in random order; records() are where their entries
//             lie; the requests of kept() are in the tier as a whole.
class Arena {
 public:
  // Stores and evicts requests as `churn` gives them until ten times the slots were written, then
  // stores the kept ones.
  template <class Churn>
  Arena(const EngineOptions& options, Churn&& churn, std::span<const Content> kept)
      : engine_(options), kept_(kept.begin(), kept.end()) {
    while (written() < churn_times() * options.slots) {
      std::vector<Content> batch = churn();
      engine_.serve(batch);
      remember(batch);
    }
    engine_.serve(kept_);
    remember(kept_);
    sample();
  }

  [[nodiscard]] Engine& engine() { return engine_; }
  [[nodiscard]] const KeyIndex& index() const { return engine_.core().tier.index(); }
  [[nodiscard]] const Geometry& geometry() const { return engine_.core().geometry; }
  [[nodiscard]] GroupId chain() const { return *geometry().chain(); }
  [[nodiscard]] Tokens unit() const { return geometry().hash_unit(); }
  [[nodiscard]] std::span<const Content> kept() const { return kept_; }
  [[nodiscard]] const std::byte* key(std::size_t i) const {
    return keys_.data() + i % size() * key_bytes;
  }
  [[nodiscard]] std::size_t size() const { return keys_.size() / key_bytes; }
  [[nodiscard]] std::span<const std::byte* const> records() const { return records_; }

 private:
  [[nodiscard]] std::uint64_t written() const { return engine_.core().counters.store_blocks; }
  void remember(std::span<const Content> contents);
  void sample();

  Engine engine_;
  std::vector<Content> kept_;
  std::deque<Content> recent_;  // newest last; at least what the tier can hold
  std::uint64_t recent_blocks_ = 0;
  std::vector<std::byte> keys_;
  std::vector<const std::byte*> records_;
};

// One full-attention group, 16 tokens a block; kept: 32 requests of 8,192 blocks.
Arena& attention_arena();
// 16 tokens a block and 8 a hash unit, three state groups; kept: 32 requests of 8,192 blocks with
// states every 8,192 tokens and at their tail.
Arena& hybrid_arena();
// 784 tokens a block and 8 a hash unit, three state groups; kept: the prefixes of tail_rows.cc.
Arena& coarse_arena();

// What the coarse arena keeps: prefixes of one block with the tails of other requests behind it.
enum class TailCase : std::uint8_t { ours_lowest, none_ours, overflowed };
inline constexpr std::uint64_t tail_prefixes = 32;  // of each case
inline constexpr std::uint64_t tail_units = 98;     // hash units of a block
// The request that looks for a tail behind prefix `i` of the case.
Content tail_query(TailCase which, std::uint64_t i);

}  // namespace kvc::bench
