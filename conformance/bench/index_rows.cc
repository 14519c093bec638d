// Batched finds in the tier's index against the raw map of Boost with the same keys.
#include <bit>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstring>
#include <memory>

#include "conformance/bench/arenas.h"
#include "conformance/bench/harness.h"
#include "plugin/core/prng.h"
#include "plugin/core/zeroed.h"

namespace kvc::bench {

namespace {

struct Key {
  std::byte bytes[key_bytes];
  friend bool operator==(const Key& a, const Key& b) {
    return std::memcmp(a.bytes, b.bytes, key_bytes) == 0;
  }
};

// The keys are random: the cheapest hash is as good as any.
struct FirstWord {
  using is_avalanching = void;
  std::size_t operator()(const Key& key) const noexcept {
    std::size_t word;
    std::memcpy(&word, key.bytes, sizeof word);
    return word;
  }
};

// Huge pages as the index has them; remembers where the map put its one array.
template <class T>
struct MapMemory {
  using value_type = T;
  std::byte** last;

  explicit MapMemory(std::byte** where) : last(where) {}
  template <class U>
  // NOLINTNEXTLINE(google-explicit-constructor): what an allocator must be able to do
  MapMemory(const MapMemory<U>& other) : last(other.last) {}
  T* allocate(std::size_t n) {
    Zeroed memory = make_zeroed(n * sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    *last = memory.release();
    return reinterpret_cast<T*>(*last);
  }
  void deallocate(T* p, std::size_t n) {
    zeroed_deleter(n * sizeof(T))(reinterpret_cast<std::byte*>(p));
  }
  friend bool operator==(const MapMemory&, const MapMemory&) { return true; }
};

// The raw loop: what anybody would write around the fastest map there is, its groups prefetched by
// hand. The map has no call for that; where its groups lie is that of Boost 1.81.
class RawMap {
 public:
  explicit RawMap(const Arena& arena)
      : map_(arena.size(), FirstWord{}, std::equal_to<Key>{}, Memory(&memory_)) {
    for (std::size_t i = 0; i < arena.size(); ++i) {
      map_.emplace(key_at(arena, i), static_cast<std::uint32_t>(i));
    }
    groups_ = map_.bucket_count() / group_slots + 1;
    const std::byte* end = memory_ + (groups_ * group_slots - 1) * sizeof(Map::value_type);
    const auto at = reinterpret_cast<std::uintptr_t>(end);
    first_group_ = end + (group_bytes - at % group_bytes) % group_bytes;
  }

  void find(const Arena& arena, std::size_t first, std::span<std::uint32_t> out) const {
    const int shift = 64 - std::countr_zero(groups_);
    for (std::size_t base = 0; base < out.size(); base += find_batch_keys) {
      for (std::size_t i = base; i < base + find_batch_keys; ++i) {
        const std::size_t group = FirstWord{}(key_at(arena, first + i)) >> shift;
        __builtin_prefetch(first_group_ + group * group_bytes);
      }
      for (std::size_t i = base; i < base + find_batch_keys; ++i) {
        out[i] = map_.find(key_at(arena, first + i))->second;
      }
    }
  }
  void find_plain(const Arena& arena, std::size_t first, std::span<std::uint32_t> out) const {
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] = map_.find(key_at(arena, first + i))->second;
    }
  }

 private:
  static constexpr std::size_t group_slots = 15;
  static constexpr std::size_t group_bytes = 16;
  static const Key& key_at(const Arena& arena, std::size_t i) {
    return *reinterpret_cast<const Key*>(arena.key(i));
  }
  using Memory = MapMemory<std::pair<const Key, std::uint32_t>>;
  using Map = boost::unordered_flat_map<Key, std::uint32_t, FirstWord, std::equal_to<Key>, Memory>;
  std::byte* memory_ = nullptr;
  Map map_;
  std::size_t groups_ = 0;
  const std::byte* first_group_ = nullptr;
};

void index_find_batched(benchmark::State& state) {
  constexpr std::size_t keys = std::size_t{1} << 12U;
  constexpr std::size_t pairs = 201;
  const Arena& arena = attention_arena();
  const RawMap raw(arena);
  std::vector<SlotId> slots(keys);
  std::vector<std::uint32_t> values(keys);
  Prng random(5);
  const auto first = [&] { return random.below(arena.size() - keys); };
  const auto ours = [&] {
    const std::size_t at = first();
    const double ns = time_ns([&] {
      arena.index().find_batch(arena.chain(), {arena.key(at), key_bytes, keys}, slots);
    });
    for (const SlotId s : slots) KVC_CHECK(s != no_slot);
    return ns / keys;
  };
  double plain = 0;
  const auto limit = [&] {
    std::size_t at = first();
    const double prefetched = time_ns([&] { raw.find(arena, at, values); });
    for (std::size_t i = 0; i < keys; ++i) KVC_CHECK(values[i] == at + i);
    at = first();
    plain = time_ns([&] { raw.find_plain(arena, at, values); });
    benchmark::DoNotOptimize(values.data());
    return std::min(prefetched, plain) / keys;
  };
  for (auto _ : state) {
    const Goal goal{0.7, Sense::at_least};
    report(state, goal, "ns per key; limit: raw flat_map loop",
           alternate(pairs, goal.sense, ours, limit));
    state.counters["keys"] = static_cast<double>(arena.size());
    state.counters["raw loop without prefetch, ns"] = plain / keys;
  }
}
BENCHMARK(index_find_batched)->Name("index/find_batched")->Iterations(1);

}  // namespace

}  // namespace kvc::bench
