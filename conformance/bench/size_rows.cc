// Memory and time of opening: what a stored block costs, and how long a large pool takes.
#include <malloc.h>

#include "conformance/bench/engine.h"
#include "conformance/bench/harness.h"

namespace kvc::bench {

namespace {

constexpr Tokens block{16};

EngineOptions options_of(std::uint64_t slots) {
  EngineOptions o;
  o.groups = {group_spec(GroupKind::full, block)};
  o.hash_unit = block;
  o.scheduler_block = block;
  o.slots = slots;
  o.device_blocks = std::uint64_t{1} << 18U;
  o.max_tokens = Tokens{8192 * 16 + 16};
  o.chunk = Tokens{8192};
  return o;
}

void store_blocks(Engine& engine, std::uint64_t blocks, std::uint64_t& stream) {
  while (blocks > 0) {
    std::vector<Content> batch;
    for (std::uint64_t i = 0; i < engine.options().lanes && blocks > 0; ++i) {
      const std::uint64_t some = std::min<std::uint64_t>(blocks, 8192);
      batch.push_back({++stream, block * some, 0, 0});
      blocks -= some;
    }
    engine.serve(batch);
  }
}

// Stores twice what the tier holds and hits all that is left, so that whatever is kept for a block
// is in use.
void use_all(Engine& engine) {
  std::uint64_t stream = 0;
  const std::uint64_t slots = engine.options().slots;
  store_blocks(engine, 2 * slots, stream);
  KVC_CHECK(engine.core().tier.published_entries() == slots);
  const std::uint64_t kept = slots / 8192;
  for (std::uint64_t i = 0; i < kept; ++i) {
    const RequestId id = engine.begin({stream - i, block * 8192, 0, 0});
    KVC_CHECK(engine.lookup(id, block * 8192) > 0);
    engine.end(id, {});
  }
}

double used_bytes(std::uint64_t slots) {
  ::malloc_trim(0);
  const std::uint64_t before = resident_bytes();
  Engine engine(options_of(slots));
  use_all(engine);
  ::malloc_trim(0);
  return static_cast<double>(resident_bytes() - before);
}

// Live requests of 8,192 blocks, with keys and tables; bytes for each of their blocks.
double request_state_bytes() {
  constexpr std::uint64_t live = 64;
  Engine engine(options_of(1024));
  ::malloc_trim(0);
  const std::uint64_t before = resident_bytes();
  for (std::uint64_t i = 0; i < live; ++i) {
    const RequestId id = engine.begin({i + 1, block * 8192, 0, 0});
    const std::span<const TableView> tables = engine.tables(i % 16, block * 8192);
    KVC_CHECK(engine.role().alloc_update(id, {}, tables).ok());
  }
  ::malloc_trim(0);
  return static_cast<double>(resident_bytes() - before) / static_cast<double>(live * 8192);
}

// What a tier of 2M slots keeps resident beyond one of 128k slots, for each further slot: what is
// the same for both is not a block's.
void metadata_per_block(benchmark::State& state) {
  constexpr std::uint64_t large = std::uint64_t{1} << 21U;
  constexpr std::uint64_t small = std::uint64_t{1} << 17U;
  constexpr double limit_bytes = 96;
  for (auto _ : state) {
    const double base = used_bytes(small);
    const double bytes = (used_bytes(large) - base) / static_cast<double>(large - small);
    report(state, {1.0, Sense::at_most}, "bytes per block; limit: 96",
           {bytes, limit_bytes, bytes / limit_bytes});
    state.counters["request state, bytes per block of a live request"] = request_state_bytes();
  }
}
BENCHMARK(metadata_per_block)->Name("metadata/bytes_per_block")->Iterations(1);

void open_tier(benchmark::State& state) {
  for (auto _ : state) {
    const double seconds = time_ns([&] { const Engine engine(options_of(10'000'000)); }) / 1e9;
    report(state, {1.0, Sense::at_most}, "s; limit: 3 s", {seconds, 3.0, seconds / 3.0});
  }
}
BENCHMARK(open_tier)->Name("open/10M_host_slots")->Iterations(1);

}  // namespace

}  // namespace kvc::bench
