// The lookup call of the scheduler role against dependent finds in the same arena.
#include <bit>
#include <cmath>

#include "conformance/bench/arenas.h"
#include "conformance/bench/harness.h"
#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

constexpr std::size_t pairs = 61;
constexpr std::size_t lookups_per_sample = 8;

// What a search by galloping and bisection needs at most (design section 6).
std::uint64_t finds_of(std::uint64_t blocks) {
  return static_cast<std::uint64_t>(std::ceil(2 * std::log2(static_cast<double>(blocks)))) + 2;
}

// So many finds, each of a key whose number depends on the find before.
double dependent_finds_ns(const Arena& arena, std::size_t first, std::size_t count) {
  static volatile std::size_t unknown_zero = 0;
  const std::size_t zero = unknown_zero;
  SlotId slot = 0;
  const double ns = time_ns([&] {
    for (std::size_t i = 0; i < count; ++i) {
      slot = arena.index().find(arena.chain(), arena.key(first + i + (slot & zero)));
    }
    benchmark::DoNotOptimize(slot);
  });
  KVC_CHECK(slot != no_slot);
  return ns;
}

// Live requests that look up and give the answer back.
class Queries {
 public:
  Queries(Arena& arena, std::span<const Content> contents, std::uint64_t expected)
      : arena_(arena), expected_(expected) {
    for (const Content& c : contents) queries_.push_back({arena.engine().begin(c), c.prompt});
  }
  Queries(const Queries&) = delete;
  Queries& operator=(const Queries&) = delete;
  ~Queries() {
    for (const Query& q : queries_) arena_.engine().end(q.id, {});
  }

  // Nanoseconds of one lookup, the mean over some different requests one after the other.
  double lookup_ns() {
    cool();
    std::uint64_t found = 0;
    const double ns = time_ns([&] {
      for (std::size_t i = 0; i < lookups_per_sample; ++i) {
        const Query& q = queries_[(next_ + i) % queries_.size()];
        found += arena_.engine().lookup(q.id, q.total);
      }
    });
    KVC_CHECK(found == expected_ * lookups_per_sample);
    for (std::size_t i = 0; i < lookups_per_sample; ++i) {
      const Query& q = queries_[next_++ % queries_.size()];
      KVC_CHECK(arena_.engine().role().lookup_cancel(q.id).ok());
    }
    return ns / lookups_per_sample;
  }

 private:
  struct Query {
    RequestId id;
    Tokens total;
  };
  Arena& arena_;
  std::uint64_t expected_;
  std::vector<Query> queries_;
  std::size_t next_ = 0;
};

// The kept requests again, or requests that share the first half of them.
std::vector<Content> queries_of(const Arena& arena, bool half) {
  std::vector<Content> out;
  for (const Content& kept : arena.kept()) {
    Content c = kept;
    if (half) {
      const std::uint64_t units = c.prompt.n / arena.unit().n;
      c = {kept.stream + (std::uint64_t{1} << 50U), kept.prompt, kept.stream, units / 2};
    }
    out.push_back(c);
  }
  return out;
}

void measure(benchmark::State& state, Arena& arena, bool half, std::uint64_t expected,
             std::uint64_t finds, double goal_times) {
  Queries queries(arena, queries_of(arena, half), expected);
  Prng random(11);
  const auto ours = [&] { return queries.lookup_ns(); };
  const auto limit = [&] {
    cool();
    const std::size_t count = finds * lookups_per_sample;
    return dependent_finds_ns(arena, random.below(arena.size() - count), count) /
           lookups_per_sample;
  };
  for (auto _ : state) {
    const Goal goal{goal_times, Sense::at_most};
    report(state, goal, "ns per lookup; limit: " + std::to_string(finds) + " dependent finds",
           alternate(pairs, goal.sense, ours, limit));
  }
}

void lookup_attention(benchmark::State& state, bool half) {
  const std::uint64_t blocks = half ? long_blocks / 2 : long_blocks;
  measure(state, attention_arena(), half, blocks * 16, finds_of(long_blocks), 1.5);
}

// Three states at the end and, in the full hit, a tail of 8 tokens behind the last block.
void lookup_hybrid(benchmark::State& state, bool half) {
  const std::uint64_t tokens = half ? long_blocks / 2 * 16 : long_blocks * 16 + 8;
  measure(state, hybrid_arena(), half, tokens, finds_of(long_blocks) + 4, 2.0);
}

BENCHMARK_CAPTURE(lookup_attention, full, false)->Name("lookup/8192_full_hit")->Iterations(1);
BENCHMARK_CAPTURE(lookup_attention, half, true)->Name("lookup/8192_half_hit")->Iterations(1);
BENCHMARK_CAPTURE(lookup_hybrid, full, false)->Name("lookup/hybrid_full_hit")->Iterations(1);
BENCHMARK_CAPTURE(lookup_hybrid, half, true)->Name("lookup/hybrid_half_hit")->Iterations(1);

// Counts what a lookup asks of the index.
class CountingIndex final : public KeyIndex {
 public:
  explicit CountingIndex(const KeyIndex& index) : index_(index) {}
  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override {
    ++probes;
    return index_.find(group, key);
  }
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override {
    probes += keys.count;
    index_.find_batch(group, keys, out);
  }
  [[nodiscard]] bool prefix_closed(GroupId group) const override {
    return index_.prefix_closed(group);
  }
  [[nodiscard]] std::uint64_t tail_offsets(GroupId group, SlotId base) const override {
    return index_.tail_offsets(group, base);
  }
  mutable std::uint64_t probes = 0;

 private:
  const KeyIndex& index_;
};

// Keys that a lookup probes of which the first half is there: the search asks first and last
// position, which settle a full hit, and then closes in on the border. Grows with the logarithm of
// the length.
void lookup_probes(benchmark::State& state, bool half) {
  const Arena& arena = attention_arena();
  const Geometry& geometry = arena.geometry();
  const Tokens tokens{static_cast<std::uint64_t>(state.range(0)) * 1024};
  const Tokens there{half ? tokens.n / 2 : tokens.n};
  Content content = arena.kept()[0];
  content.prompt = tokens + Tokens{1};
  if (half) {
    content.shared_stream = content.stream;
    content.shared_units = there.n / arena.unit().n;
    content.stream = UINT64_MAX;  // of nobody
  }
  const std::vector<std::byte> keys = all_keys(content, arena.unit());
  CountingIndex counting(arena.index());
  Hit hit;
  hit.reserve(geometry, tokens);
  const KeyView view{keys.data(), key_bytes, keys.size() / key_bytes};
  for (auto _ : state) {
    KVC_CHECK(lookup(geometry, counting, view, Tokens{}, tokens, hit) == Code::ok);
    KVC_CHECK(hit.tokens == there);
  }
  const auto limit = static_cast<double>(finds_of(tokens.n / 16));
  const auto probes = static_cast<double>(counting.probes);
  report(state, {1.0, Sense::at_most}, "probes; limit: ceil(2 log2 n) + 2",
         {probes, limit, probes / limit});
}
void at_lengths(benchmark::internal::Benchmark* row) {
  for (const std::int64_t ktokens : {1, 8, 32, 128}) row->Arg(ktokens);
  row->Iterations(1);
}
BENCHMARK_CAPTURE(lookup_probes, full, false)
    ->Name("lookup/probes_full_hit_at_ktokens")
    ->Apply(at_lengths);
BENCHMARK_CAPTURE(lookup_probes, half, true)
    ->Name("lookup/probes_half_hit_at_ktokens")
    ->Apply(at_lengths);

}  // namespace

}  // namespace kvc::bench
