#include "conformance/oracle/oracle.h"

#include <algorithm>

namespace kvc::oracle {
namespace {

std::uint64_t down(std::uint64_t tokens, std::uint64_t unit) { return tokens / unit * unit; }

// The first token that group `g` still needs once everything up to t is computed (R-106, last
// column).
std::uint64_t first_needed_token(const Group& g, std::uint64_t t) {
  switch (g.kind) {
    case Kind::full:
      return 0;
    case Kind::sliding: {
      const std::uint64_t back = g.window - 1 + g.extra_retained;
      return t > back ? t - back : 0;
    }
    case Kind::chunked:
      return down(t, g.window);
    case Kind::state:
      return t - 1;  // the state itself stands in the block of the last token
    case Kind::other:
      break;
  }
  return t;
}

// The request has a key for this prefix and the cache holds it.
bool is_held(const World& world, const Group& g, std::uint64_t end) {
  return end <= down(world.tokens, world.hash_unit) && g.held.count(end) != 0;
}

bool place_is_served(const World& world, const Place& place, std::uint64_t t) {
  const Group& g = world.groups[place.first];
  const std::uint64_t block = world.kept_span(place.first);
  const std::uint64_t block_end = (place.second + 1) * block;
  if (g.kind == Kind::state) return is_held(world, g, t);
  if (is_held(world, g, block_end)) return true;
  if (g.kind != Kind::full || block_end <= t) return false;
  for (std::uint64_t end = t; end < block_end; ++end) {
    if (is_held(world, g, end)) return true;
  }
  return false;
}

}  // namespace

std::uint64_t World::span(std::size_t group) const {
  return groups[group].rank_block * (groups[group].sharded ? context_parallel : 1);
}

std::uint64_t World::kept_span(std::size_t group) const {
  return span(group) * groups[group].chunk;
}

void set_chunks(World& world, std::uint64_t wanted) {
  const bool fine = fine_hits(world);
  for (std::size_t i = 0; i < world.groups.size(); ++i) {
    Group& g = world.groups[i];
    const bool window = g.kind == Kind::sliding || g.kind == Kind::chunked;
    const auto whole = [&](std::uint64_t n) {
      const std::uint64_t chunk = world.span(i) * n;
      for (std::uint64_t c = 0; c < 64; ++c) {
        if (first_needed_token(g, (c + 1) * chunk - 1) > c * chunk) return false;
      }
      return true;
    };
    std::uint64_t n = wanted;
    if (g.kind == Kind::state || !g.cacheable || (window && fine)) n = 1;
    while (window && n > 1 && !whole(n)) --n;
    g.chunk = n;
  }
}

bool keeps_tails(const World& world) {
  if (fine_hits(world)) return true;
  bool chunks = false;
  for (const Group& g : world.groups) {
    if (g.cacheable && (g.kind == Kind::sliding || g.kind == Kind::chunked)) return false;
    chunks = chunks || g.chunk > 1;
  }
  return chunks;
}

bool fine_hits(const World& world) {
  if (world.groups.size() < 2 || !world.fine_hits_allowed) return false;
  const std::uint64_t h = world.hash_unit;
  bool gain = false;
  for (std::size_t i = 0; i < world.groups.size(); ++i) {
    const Group& g = world.groups[i];
    if (!g.cacheable) continue;
    if (g.kind == Kind::state && g.align) {
      if (world.context_parallel == 1 ? g.rank_block > h : g.rank_block >= h) gain = true;
    }
    const bool fine_capable = g.kind == Kind::full || g.kind == Kind::state;
    if (!fine_capable && world.span(i) != h) return false;
  }
  return gain;
}

std::uint64_t alignment(const World& world) {
  if (world.groups.size() == 1) return world.span(0);
  return fine_hits(world) ? world.hash_unit : world.scheduler_block;
}

std::vector<Place> needed(const World& world, std::uint64_t t) {
  std::vector<Place> places;
  if (t <= world.start) return places;
  for (std::size_t i = 0; i < world.groups.size(); ++i) {
    if (!world.groups[i].cacheable) continue;
    const std::uint64_t block = world.kept_span(i);
    const std::uint64_t first = first_needed_token(world.groups[i], t);
    for (std::uint64_t b = 0; b * block < t; ++b) {
      const std::uint64_t end = (b + 1) * block;
      if (first < t && end > first && end > world.start) places.emplace_back(i, b);
    }
  }
  return places;
}

bool serves(const World& world, std::size_t group, std::uint64_t t) {
  const auto places = needed(world, t);
  return std::all_of(places.begin(), places.end(), [&](const Place& place) {
    return place.first != group || place_is_served(world, place, t);
  });
}

bool all_serve(const World& world, std::uint64_t t) {
  const auto places = needed(world, t);
  return std::all_of(places.begin(), places.end(),
                     [&](const Place& place) { return place_is_served(world, place, t); });
}

std::uint64_t best_hit(const World& world, std::uint64_t cap) {
  const std::uint64_t unit = alignment(world);
  std::uint64_t best = world.start;
  for (std::uint64_t t = unit; t <= cap && t < world.tokens; t += unit) {
    if (t > world.start && all_serve(world, t)) best = t;
  }
  return best;
}

std::uint64_t tail_boundary(const World& world, std::size_t group, std::uint64_t prompt,
                            bool drafts_drop) {
  const Group& g = world.groups[group];
  const std::uint64_t h = world.hash_unit;
  if (!g.cacheable || prompt == 0) return 0;
  if (g.kind == Kind::full) return drafts_drop && g.draft ? down(prompt, h) : down(prompt - 1, h);
  if (g.kind != Kind::state) return 0;
  if (!drafts_drop) return down(prompt - 1, h);
  return down(prompt, h) < h ? 0 : down(prompt, h) - h;
}

std::uint64_t cacheable_tokens(const World& world, std::size_t group, std::uint64_t confirmed,
                               std::uint64_t again, bool drafts_drop) {
  const Group& g = world.groups[group];
  if (!g.cacheable) return 0;
  const std::uint64_t settled = confirmed < again ? 0 : confirmed - again;
  if (world.groups.size() == 1) return settled;
  const bool fine = fine_hits(world);
  const auto align = [&](std::uint64_t t) { return fine ? t : down(t, world.scheduler_block); };
  if (drafts_drop && g.draft && align(confirmed) > 0) {
    return std::min(settled, align(settled) + world.span(group));
  }
  return align(confirmed);
}

}  // namespace kvc::oracle
