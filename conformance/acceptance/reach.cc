#include "conformance/acceptance/reach.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>

namespace kvc::acceptance {
namespace {

oracle::Kind kind_of(config::GroupKind kind) {
  switch (kind) {
    case config::GroupKind::full:
      return oracle::Kind::full;
    case config::GroupKind::sliding:
      return oracle::Kind::sliding;
    case config::GroupKind::chunked:
      return oracle::Kind::chunked;
    case config::GroupKind::state:
      return oracle::Kind::state;
    case config::GroupKind::other:
      break;
  }
  return oracle::Kind::other;
}

Key key_at(const std::uint8_t* bytes) {
  Key key;
  std::memcpy(key.data(), bytes, key.size());
  return key;
}

}  // namespace

std::uint64_t Reach::held_sum() const {
  return std::accumulate(held.begin(), held.end(), std::uint64_t{0});
}
std::uint64_t Reach::unreachable_sum() const {
  return std::accumulate(unreachable.begin(), unreachable.end(), std::uint64_t{0});
}

std::size_t TierMirror::HashKey::operator()(const Key& key) const {
  std::size_t out = 0;
  std::memcpy(&out, key.data(), sizeof out);
  return out;
}

TierMirror::TierMirror(const config::ModelConfig& model) : held_(model.groups.size()) {
  layout_.hash_unit = model.hash_unit_tokens;
  layout_.scheduler_block = model.scheduler_block_tokens;
  layout_.context_parallel = model.context_parallel;
  for (const config::GroupConfig& g : model.groups) {
    if (g.draft) throw std::logic_error("draft groups drop what is served");
    oracle::Group group;
    group.kind = kind_of(g.kind);
    group.rank_block = g.tokens_per_block;
    group.sharded = g.sharded;
    group.window = g.window_tokens + g.chunk_tokens;
    group.extra_retained = g.extra_retained_tokens;
    group.align = g.kind == config::GroupKind::state && g.mode == config::StateMode::align;
    group.cacheable = g.cacheable;
    layout_.groups.push_back(group);
  }
}

void TierMirror::keys(std::uint64_t request, const std::uint8_t* keys, std::uint64_t count) {
  Path& path = paths_[request];
  for (std::uint64_t i = 0; i < count; ++i) path.keys.push_back(key_at(keys + i * sizeof(Key)));
}

void TierMirror::stored(std::uint32_t group, const std::uint8_t* key, std::uint64_t request) {
  if (paths_.count(request) == 0) throw std::logic_error("stored for an unknown request");
  if (!held_.at(group).emplace(key_at(key), Entry{request, false}).second) {
    throw std::logic_error("an entry was stored twice");
  }
}

void TierMirror::removed(std::uint32_t group, const std::uint8_t* key) {
  if (held_.at(group).erase(key_at(key)) != 1) {
    throw std::logic_error("an entry was removed that was not held");
  }
}

Reach TierMirror::reach() {
  std::set<std::uint64_t> owners;
  for (Held& group : held_) {
    for (auto& [key, entry] : group) {
      entry.reachable = false;
      owners.insert(entry.request);
    }
  }
  std::erase_if(paths_, [&](const auto& p) { return p.second.over && !owners.contains(p.first); });
  for (const std::uint64_t owner : owners) judge(paths_.at(owner));
  Reach out;
  for (const Held& group : held_) {
    out.held.push_back(group.size());
    out.unreachable.push_back(static_cast<std::uint64_t>(std::count_if(
        group.begin(), group.end(), [](const auto& e) { return !e.second.reachable; })));
  }
  return out;
}

void TierMirror::judge(const Path& path) {
  oracle::World world = layout_;
  const std::uint64_t h = world.hash_unit;
  const std::uint64_t end = path.keys.size() * h;
  world.tokens = end + 1;  // a longer request may follow
  for (std::size_t g = 0; g < held_.size(); ++g) {
    for (std::size_t i = 0; i < path.keys.size(); ++i) {
      if (held_[g].contains(path.keys[i])) world.groups[g].held.insert((i + 1) * h);
    }
  }
  const std::uint64_t unit = oracle::alignment(world);
  for (std::uint64_t t = unit; t <= end; t += unit) {
    if (states_are_held(world, t) && oracle::all_serve(world, t)) use(path, world, t);
  }
}

// A state must be held at exactly t: the cheap part of all_serve first.
bool TierMirror::states_are_held(const oracle::World& world, std::uint64_t t) const {
  return std::all_of(world.groups.begin(), world.groups.end(), [&](const oracle::Group& g) {
    return g.kind != oracle::Kind::state || !g.cacheable || g.held.contains(t);
  });
}

void TierMirror::use(const Path& path, const oracle::World& world, std::uint64_t t) {
  for (const auto& [group, block] : oracle::needed(world, t)) {
    const std::uint64_t block_end = (block + 1) * world.span(group);
    const bool state = world.groups[group].kind == oracle::Kind::state;
    const std::set<std::uint64_t>& held = world.groups[group].held;
    const std::uint64_t first = state || block_end > t ? t : block_end;
    const std::uint64_t last = state ? t : block_end;
    for (auto e = held.lower_bound(first); e != held.end() && *e <= last; ++e) {
      held_[group].at(path.keys[*e / world.hash_unit - 1]).reachable = true;
    }
  }
}

}  // namespace kvc::acceptance
