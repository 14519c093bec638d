#include "conformance/bench/arenas.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

constexpr std::uint64_t kept_long = 32;
constexpr std::uint64_t first_kept_stream = std::uint64_t{1} << 40U;
constexpr Tokens long_tokens{long_blocks * 16};

EngineOptions options_of(std::vector<GroupSpec> groups, Tokens hash_unit, Tokens block) {
  EngineOptions o;
  o.groups = std::move(groups);
  o.hash_unit = hash_unit;
  o.scheduler_block = block;
  o.slots = arena_slots;
  o.device_blocks = std::uint64_t{1} << 19U;
  return o;
}

// Requests of 64 to 4,096 blocks, 16 at a time; `more` tokens behind their last block.
auto mixed_lengths(Tokens more) {
  return [random = Prng(7), stream = std::uint64_t{1}, more]() mutable {
    std::vector<Content> batch;
    batch.reserve(16);
    for (int i = 0; i < 16; ++i) {
      batch.push_back({stream++, Tokens{random.between(64, 4096) * 16} + more, 0, 0});
    }
    return batch;
  };
}

std::vector<Content> long_requests(Tokens more) {
  std::vector<Content> kept;
  for (std::uint64_t i = 0; i < kept_long; ++i) {
    kept.push_back({first_kept_stream + i, long_tokens + more, 0, 0});
  }
  return kept;
}

std::vector<GroupSpec> with_states(Tokens block) {
  std::vector<GroupSpec> groups{group_spec(GroupKind::full, block)};
  for (int i = 0; i < 3; ++i) groups.push_back(group_spec(GroupKind::state, block));
  return groups;
}

// Streams of the coarse arena's kept requests: a prefix, and what is behind it.
std::uint64_t prefix_stream(TailCase which, std::uint64_t i) {
  return first_kept_stream + (static_cast<std::uint64_t>(which) * tail_prefixes + i) * 256;
}

// A request with the prefix and a tail of `units` hash units behind it.
Content behind_prefix(TailCase which, std::uint64_t i, std::uint64_t own, std::uint64_t units) {
  const std::uint64_t prefix = prefix_stream(which, i);
  return {prefix + own, Tokens{(tail_units + units) * 8 + 1}, prefix, tail_units};
}

// The prefix itself with its state first, then tails of others from the highest down; in the first
// case ours is the lowest. A directory has 64 places (design 3.1).
std::vector<Content> kept_tails() {
  std::vector<Content> kept;
  for (const TailCase which : {TailCase::ours_lowest, TailCase::none_ours, TailCase::overflowed}) {
    const std::uint64_t foreign = which == TailCase::ours_lowest ? 63
                                  : which == TailCase::none_ours ? 64
                                                                 : 80;
    for (std::uint64_t i = 0; i < tail_prefixes; ++i) {
      kept.push_back({prefix_stream(which, i), Tokens{tail_units * 8 + 1}, 0, 0});
      for (std::uint64_t f = 0; f < foreign; ++f) {
        kept.push_back(behind_prefix(which, i, 2 + f, tail_units - 1 - f));
      }
      if (which == TailCase::ours_lowest) kept.push_back(behind_prefix(which, i, 1, 1));
    }
  }
  return kept;
}

}  // namespace

std::uint64_t churn_times() {
  const char* times = std::getenv("KVC_BENCH_CHURN");
  return times == nullptr ? 10 : std::strtoull(times, nullptr, 10);
}

Content tail_query(TailCase which, std::uint64_t i) {
  Content query = behind_prefix(which, i, 1, tail_units);
  return query;
}

void Arena::remember(std::span<const Content> contents) {
  const std::uint64_t block = geometry().block_tokens(chain()).n;
  for (const Content& c : contents) {
    recent_.push_back(c);
    recent_blocks_ += c.prompt.n / block;
  }
  while (recent_blocks_ - recent_.front().prompt.n / block >= engine_.options().slots) {
    recent_blocks_ -= recent_.front().prompt.n / block;
    recent_.pop_front();
  }
}

void Arena::sample() {
  const Geometry& geometry = engine_.core().geometry;
  const HostTier& tier = engine_.core().tier;
  const std::uint64_t per_block = geometry.block_tokens(chain()).n / geometry.hash_unit().n;
  struct Place {
    std::uint64_t stream;
    std::uint64_t unit;
    const std::byte* record;
  };
  std::vector<Place> places;
  std::byte key[key_bytes];
  for (auto c = recent_.rbegin(); c != recent_.rend(); ++c) {
    const std::uint64_t units = c->prompt.n / geometry.hash_unit().n;
    for (std::uint64_t u = std::max(per_block, c->shared_units) - 1; u < units; u += per_block) {
      if ((u + 1) % per_block != 0) break;
      make_key(u < c->shared_units ? c->shared_stream : c->stream, u, key);
      const SlotId slot = index().find(chain(), key);
      if (slot == no_slot) continue;
      places.push_back({c->stream, u, tier.key_of(slot).key});
    }
  }
  Prng random(3);
  for (std::size_t i = places.size(); i > 1; --i) {
    std::swap(places[i - 1], places[random.below(i)]);
  }
  keys_.resize(places.size() * key_bytes);
  records_.resize(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    make_key(places[i].stream, places[i].unit, keys_.data() + i * key_bytes);
    records_[i] = places[i].record;
  }
  recent_ = {};
}

Arena& attention_arena() {
  static Arena arena = [] {
    EngineOptions o = options_of({group_spec(GroupKind::full, Tokens{16})}, Tokens{16}, Tokens{16});
    o.max_tokens = long_tokens + Tokens{4096};
    o.chunk = Tokens{8192};
    return Arena(o, mixed_lengths(Tokens{1}), long_requests(Tokens{1}));
  }();
  return arena;
}

Arena& hybrid_arena() {
  static Arena arena = [] {
    EngineOptions o = options_of(with_states(Tokens{16}), Tokens{8}, Tokens{16});
    o.max_tokens = long_tokens + Tokens{4096};
    o.chunk = Tokens{8192};
    return Arena(o, mixed_lengths(Tokens{9}), long_requests(Tokens{9}));
  }();
  return arena;
}

Arena& coarse_arena() {
  static Arena arena = [] {
    EngineOptions o = options_of(with_states(Tokens{784}), Tokens{8}, Tokens{784});
    o.max_tokens = o.chunk = Tokens{3136};  // four blocks
    o.lanes = 128;
    auto churn = [random = Prng(9), stream = std::uint64_t{1}]() mutable {
      std::vector<Content> batch;
      batch.reserve(1024);
      for (int i = 0; i < 1024; ++i) {
        batch.push_back({stream++, Tokens{784 + 8 * random.between(1, 97) + 1}, 0, 0});
      }
      return batch;
    };
    return Arena(o, churn, kept_tails());
  }();
  return arena;
}

}  // namespace kvc::bench
