// The calls of a step against random reads of the entries that they have to touch.
#include <algorithm>
#include <cstring>

#include "conformance/bench/arenas.h"
#include "conformance/bench/harness.h"
#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

// A load of a kept request, admitted, reported and ended again.
class Load {
 public:
  Load(Engine& engine, const Content& content, std::uint64_t lane)
      : engine_(engine), tokens_(round_down(content.prompt, Tokens{16})) {
    id_ = engine.begin(content);
    KVC_CHECK(engine.lookup(id_, content.prompt) == tokens_.n);
    const std::span<const TableView> views = engine.tables(lane, tokens_);
    tables_.assign(views.begin(), views.end());
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;
  ~Load() {
    engine_.step({});
    engine_.end(id_, {});
  }

  double alloc_ns() {
    bool ok = false;
    const double ns =
        time_ns([&] { ok = engine_.role().alloc_update(id_, tokens_, tables_).ok(); });
    KVC_CHECK(ok);
    return ns;
  }

 private:
  Engine& engine_;
  Tokens tokens_;
  RequestId id_ = 0;
  std::vector<TableView> tables_;
};

struct Pair {
  const std::byte* record;
  const std::byte* cell;
};

// Where the tier's record and the hold book's cell of every pair of a load lie, in random order.
std::vector<Pair> pairs_of(Arena& arena, const Content& content, std::uint64_t lane) {
  const SchedulerCore& core = arena.engine().core();
  const std::vector<std::byte> keys = all_keys(content, arena.unit());
  const Tokens tokens = round_down(content.prompt, Tokens{16});
  const TableView table = arena.engine().tables(lane, tokens)[arena.chain()];
  std::vector<Pair> out;
  for (std::uint64_t p = 0; p < table.count; ++p) {
    const SlotId slot = arena.index().find(arena.chain(), keys.data() + p * key_bytes);
    KVC_CHECK(slot != no_slot);
    out.push_back({core.tier.key_of(slot).key, core.holds.where(arena.chain(), table.blocks[p])});
  }
  Prng random(content.stream);
  for (std::size_t i = out.size(); i > 1; --i) std::swap(out[i - 1], out[random.below(i)]);
  return out;
}

double prefetched_reads_ns(std::span<const Pair> pairs) {
  constexpr std::size_t ahead = 24;
  std::uint64_t sum = 0;
  const double ns = time_ns([&] {
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const Pair& soon = pairs[std::min(i + ahead, pairs.size() - 1)];
      __builtin_prefetch(soon.record);
      __builtin_prefetch(soon.cell);
      std::uint64_t record = 0;
      std::uint32_t cell = 0;
      std::memcpy(&record, pairs[i].record, sizeof record);
      std::memcpy(&cell, pairs[i].cell, sizeof cell);
      sum += record + cell;
    }
    benchmark::DoNotOptimize(sum);
  });
  return ns;
}

// No walk through memory before a sample here: every sample takes the next of 32 requests, whose
// entries are 29 MB together, so that those of one are out of the core's caches when its turn
// comes.
void alloc_update(benchmark::State& state) {
  constexpr std::size_t samples = 97;
  Arena& arena = attention_arena();
  Engine& engine = arena.engine();
  const std::size_t requests = arena.kept().size();
  std::vector<std::vector<Pair>> pairs;
  for (std::size_t i = 0; i < requests; ++i) pairs.push_back(pairs_of(arena, arena.kept()[i], i));
  std::vector<double> ours;
  std::vector<double> limit;
  for (std::size_t i = 0; i < samples; ++i) {
    Load load(engine, arena.kept()[i % requests], i % requests);
    const std::vector<Pair>& other = pairs[(i + requests / 2) % requests];
    const auto count = static_cast<double>(other.size());
    const auto measure_limit = [&] { limit.push_back(prefetched_reads_ns(other) / count); };
    if (i % 2 != 0) measure_limit();
    ours.push_back(load.alloc_ns() / count);
    if (i % 2 == 0) measure_limit();
  }
  for (auto _ : state) {
    const Goal goal{0.7, Sense::at_least};
    report(state, goal, "ns per pair; limit: prefetched random reads of record and cell",
           compare(ours, limit, goal.sense));
  }
}
BENCHMARK(alloc_update)->Name("alloc_update/8192_pairs")->Iterations(1);

// 256 requests that decode: one token more each step, and no block becomes full.
void step_nothing_new(benchmark::State& state) {
  constexpr std::size_t running = 256;
  constexpr std::size_t pairs = 61;
  constexpr Tokens prompt{2048};
  Arena& arena = attention_arena();
  Engine& engine = arena.engine();
  std::vector<Content> contents;
  std::vector<RequestId> ids;
  std::vector<ScheduledRequest> scheduled;
  std::vector<std::vector<TableView>> tables;
  for (std::size_t i = 0; i < running; ++i) {
    ids.push_back(engine.begin({(std::uint64_t{1} << 60U) + i, prompt, 0, 0}));
    const std::span<const TableView> views = engine.tables(i % 32, prompt);
    tables.emplace_back(views.begin(), views.end());
    scheduled.push_back({ids[i], false, prompt, tables[i]});
  }
  engine.step(scheduled);
  for (ScheduledRequest& s : scheduled) s.tables = {};
  const auto advance = [&] {
    for (ScheduledRequest& s : scheduled) s.confirmed = s.confirmed + Tokens{1};
    StepRecord record;
    record.step = engine.next_step();
    record.scheduled = scheduled;
    Result<PlanResult> plan = PlanResult{};
    const double ns = time_ns([&] { plan = engine.role().build_store_jobs(record); });
    KVC_CHECK(plan.ok());
    engine.stepped(plan.value());
    return ns;
  };
  const auto ours = [&] {
    if (scheduled[0].confirmed.n % 16 == 15) advance();  // this one fills a block
    cool();
    return advance();
  };
  std::uint64_t seed = 17;
  const auto limit = [&] {
    const std::vector<const std::byte*> reads = shuffled(arena.records(), running, ++seed);
    cool();
    return chase_ns(reads);
  };
  for (auto _ : state) {
    const Goal goal{4.0, Sense::at_most};
    report(state, goal, "ns per step; limit: 256 dependent random reads",
           alternate(pairs, goal.sense, ours, limit));
  }
  for (const RequestId id : ids) engine.end(id, scheduled[0].confirmed);
}
BENCHMARK(step_nothing_new)->Name("build_store_jobs/256_running")->Iterations(1);

}  // namespace

}  // namespace kvc::bench
