#include "conformance/rig/reach.h"

namespace kvc::rig {
namespace {

oracle::Kind kind_of(std::int32_t kind) {
  switch (kind) {
    case KVC_GROUP_SLIDING:
      return oracle::Kind::sliding;
    case KVC_GROUP_CHUNKED:
      return oracle::Kind::chunked;
    case KVC_GROUP_STATE:
      return oracle::Kind::state;
    case KVC_GROUP_OTHER:
      return oracle::Kind::other;
    default:
      return oracle::Kind::full;
  }
}

// Draft groups drop blocks, which only makes hits shorter: the best that they could serve counts.
oracle::Group group_of(const Group& g, bool by_position) {
  oracle::Group out;
  out.kind = kind_of(g.kind);
  out.rank_block = g.tokens;
  out.sharded = (g.caps & KVC_GROUP_CAP_SHARDED) != 0;
  out.window = g.window;
  out.align = out.kind == oracle::Kind::state && !by_position;
  out.cacheable = g.kind != KVC_GROUP_OTHER && (g.not_caps & KVC_GROUP_CAP_CACHEABLE) == 0;
  return out;
}

}  // namespace

Reach::Reach(const Setup& setup) {
  layout_.hash_unit = setup.h;
  layout_.scheduler_block = setup.s;
  layout_.context_parallel = setup.cp;
  for (const Group& g : setup.groups) {
    by_position_.push_back(g.kind == KVC_GROUP_STATE &&
                           (g.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0);
    layout_.groups.push_back(group_of(g, by_position_.back()));
  }
}

void Reach::wrote(const Request& r, std::uint64_t from, std::uint64_t upto) {
  for (std::uint64_t t = from; t < upto; ++t) written_.insert(r.chain.at(t));
}

void Reach::handed_off(const Request& r, std::uint32_t group, std::uint64_t boundary) {
  states_.emplace(group, r.chain.at(boundary - 1));
}

void Reach::reset() {
  written_.clear();
  states_.clear();
}

bool Reach::keeps(const Request& r, std::size_t group, std::uint64_t end) const {
  const std::uint64_t prefix = r.chain.at(end - 1);
  if (layout_.groups[group].align) return states_.contains({group, prefix});
  if (!written_.contains(prefix)) return false;
  // A state by position stands at ends of blocks; attention may be kept inside one, as a tail.
  return layout_.groups[group].kind == oracle::Kind::full || end % layout_.span(group) == 0 ||
         states_.contains({group, prefix});
}

bool Reach::serves(const Request& r, std::uint64_t tokens) const {
  oracle::World world = layout_;
  world.tokens = r.tokens.size();
  for (std::size_t g = 0; g < world.groups.size(); ++g) {
    for (std::uint64_t end = world.hash_unit; end <= world.tokens; end += world.hash_unit) {
      if (keeps(r, g, end)) world.groups[g].held.insert(end);
    }
  }
  return oracle::all_serve(world, tokens);
}

}  // namespace kvc::rig
