// The engine's pool of device blocks: allocation that evicts, and opening a large one.
#include <algorithm>
#include <cstring>
#include <optional>

#include "conformance/bench/harness.h"
#include "plugin/coordinator/block_pool.h"
#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

constexpr std::uint32_t pool_key_bytes = 32;
constexpr std::uint64_t pool_blocks = std::uint64_t{1} << 21U;

void fill_key(std::uint64_t number, std::byte* out) {
  Prng random(number);
  for (std::size_t i = 0; i < pool_key_bytes; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(out + i, &word, sizeof word);
  }
}

// A full pool after ten times its blocks were allocated, keyed and freed, as requests of mixed
// lengths would do it: eight at a time, tails first.
class WarmPool {
 public:
  WarmPool() {
    BlockPoolOptions options;
    options.blocks = Blocks{pool_blocks};
    options.key_bytes = pool_key_bytes;
    Result<BlockPool> made = BlockPool::make(options);
    KVC_CHECK(made.ok());
    pool_.emplace(std::move(made).value());
    Prng random(21);
    while (keys_ < 10 * pool_blocks) {
      std::vector<std::vector<BlockId>> requests(8);
      for (int chunk = 0; chunk < 8; ++chunk) {
        for (auto& blocks : requests) extend(blocks, random.between(16, 512));
      }
      for (auto& blocks : requests) release(blocks);
    }
    for (BlockId b = 1; b < pool_blocks; ++b) {
      KVC_CHECK(pool_->has_keys(b));
      records_.push_back(pool_->primary(b).key);
    }
  }
  [[nodiscard]] BlockPool& pool() { return *pool_; }
  [[nodiscard]] std::span<const std::byte* const> records() const { return records_; }

  void extend(std::vector<BlockId>& blocks, std::size_t count) {
    const std::size_t first = blocks.size();
    blocks.resize(first + count);
    KVC_CHECK(pool_->allocate({blocks.data() + first, count}) == Code::ok);
    key(blocks, first);
  }
  void key(const std::vector<BlockId>& blocks, std::size_t first) {
    std::byte bytes[pool_key_bytes];
    for (std::size_t i = first; i < blocks.size(); ++i) {
      fill_key(++keys_, bytes);
      const BlockKey key{0, bytes, Tokens{(i + 1) * 16}, Tokens{16}, nullptr};
      KVC_CHECK(pool_->insert_full(blocks[i], key) == Code::ok);
    }
  }
  void release(std::vector<BlockId>& blocks) {
    std::reverse(blocks.begin(), blocks.end());
    KVC_CHECK(pool_->free(blocks) == Code::ok);
  }

 private:
  std::optional<BlockPool> pool_;
  std::uint64_t keys_ = 0;
  std::vector<const std::byte*> records_;
};

void allocate_evict(benchmark::State& state) {
  constexpr std::size_t pairs = 101;
  constexpr std::size_t blocks_per_sample = 64;
  static WarmPool warm;
  std::vector<BlockId> blocks(blocks_per_sample);
  const auto ours = [&] {
    cool();
    const std::uint64_t evictions = warm.pool().evictions();
    bool ok = true;
    const double ns = time_ns([&] {
      for (BlockId& b : blocks) ok = warm.pool().allocate({&b, 1}) == Code::ok && ok;
    });
    KVC_CHECK(ok && warm.pool().evictions() == evictions + blocks_per_sample);
    warm.key(blocks, 0);
    warm.release(blocks);
    return ns / blocks_per_sample;
  };
  std::uint64_t seed = 23;
  const auto limit = [&] {
    const auto reads = shuffled(warm.records(), 4 * blocks_per_sample, ++seed);
    cool();
    return chase_ns(reads) / (4 * blocks_per_sample);
  };
  for (auto _ : state) {
    const Goal goal{3.0, Sense::at_most};
    report(state, goal, "ns per block; limit: one dependent random read",
           alternate(pairs, goal.sense, ours, limit));
  }
}
BENCHMARK(allocate_evict)->Name("block_pool/allocate_evict")->Iterations(1);

void open_pool(benchmark::State& state) {
  for (auto _ : state) {
    BlockPoolOptions options;
    options.blocks = Blocks{10'000'000};
    options.key_bytes = pool_key_bytes;
    bool ok = false;
    const double seconds = time_ns([&] { ok = BlockPool::make(options).ok(); }) / 1e9;
    KVC_CHECK(ok);
    report(state, {1.0, Sense::at_most}, "s; limit: 3 s", {seconds, 3.0, seconds / 3.0});
  }
}
BENCHMARK(open_pool)->Name("open/10M_device_blocks")->Iterations(1);

}  // namespace

}  // namespace kvc::bench
