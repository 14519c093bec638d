// The search for a tail behind one block of 784 tokens against a batch of finds.
#include <array>

#include "conformance/bench/arenas.h"
#include "conformance/bench/harness.h"
#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

constexpr std::size_t pairs = 61;
constexpr std::size_t per_sample = 16;

// The whole lookup is timed: the block in front costs its probes too.
void tail_search(benchmark::State& state, TailCase which, std::uint64_t expected, double times) {
  Arena& arena = coarse_arena();
  Engine& engine = arena.engine();
  std::vector<RequestId> ids;
  std::vector<Tokens> totals;
  for (std::uint64_t i = 0; i < tail_prefixes; ++i) {
    const Content query = tail_query(which, i);
    ids.push_back(engine.begin(query));
    totals.push_back(query.prompt);
  }
  std::size_t next = 0;
  const auto ours = [&] {
    cool();
    std::uint64_t found = 0;
    const double ns = time_ns([&] {
      for (std::size_t i = 0; i < per_sample; ++i) {
        const std::size_t q = (next + i) % ids.size();
        found += engine.lookup(ids[q], totals[q]);
      }
    });
    KVC_CHECK(found == expected * per_sample);
    for (std::size_t i = 0; i < per_sample; ++i) {
      KVC_CHECK(engine.role().lookup_cancel(ids[next++ % ids.size()]).ok());
    }
    return ns / per_sample;
  };
  Prng random(13);
  const auto limit = [&] {
    cool();
    std::array<SlotId, tail_units> slots{};
    const std::size_t first = random.below(arena.size() - tail_units * per_sample);
    const double ns = time_ns([&] {
      for (std::size_t i = 0; i < per_sample; ++i) {
        arena.index().find_batch(arena.chain(),
                                 {arena.key(first + i * tail_units), key_bytes, tail_units}, slots);
        benchmark::DoNotOptimize(slots);
      }
    });
    return ns / per_sample;
  };
  for (auto _ : state) {
    const Goal goal{times, Sense::at_most};
    report(state, goal, "ns per lookup; limit: a batch of 98 finds",
           alternate(pairs, goal.sense, ours, limit));
  }
  for (const RequestId id : ids) engine.end(id, {});
}

BENCHMARK_CAPTURE(tail_search, ours_lowest, TailCase::ours_lowest, 784 + 8, 1.0)
    ->Name("tail/ours_lowest_of_64")
    ->Iterations(1);
BENCHMARK_CAPTURE(tail_search, none_ours, TailCase::none_ours, 784, 1.0)
    ->Name("tail/none_ours_of_64")
    ->Iterations(1);
BENCHMARK_CAPTURE(tail_search, overflowed, TailCase::overflowed, 784, 1.5)
    ->Name("tail/overflowed")
    ->Iterations(1);

}  // namespace

}  // namespace kvc::bench
