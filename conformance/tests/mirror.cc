#include "conformance/tests/mirror.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "plugin/coordinator/test_support.h"

namespace kvc::oracle_tests {
namespace {

constexpr std::uint64_t slots_most = 1 << 14;

GroupKind kind_of(oracle::Kind kind) {
  switch (kind) {
    case oracle::Kind::full:
      return GroupKind::full;
    case oracle::Kind::sliding:
      return GroupKind::sliding;
    case oracle::Kind::chunked:
      return GroupKind::chunked;
    case oracle::Kind::state:
      return GroupKind::state;
    case oracle::Kind::other:
      break;
  }
  return GroupKind::other;
}

const char* name_of_kind(oracle::Kind kind) {
  static constexpr const char* names[] = {"full", "sliding", "chunked", "state", "other"};
  return names[static_cast<std::size_t>(kind)];
}

FlatIndex make_index() {
  auto index =
      FlatIndex::make({.key_bytes = 8, .slots = slots_most, .aliases = 0, .duplicates = false});
  KVC_CHECK(index.ok());
  return std::move(index).value();
}

bool any_draft(const oracle::World& world) {
  bool any = false;
  for (const auto& g : world.groups) any = any || (g.draft && g.cacheable);
  return any;
}

template <class... Parts>
std::string text(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

}  // namespace

GeometryOptions options_of(const oracle::World& world, std::uint32_t chunk) {
  GeometryOptions options;
  options.blocks_per_chunk = chunk;
  for (const auto& g : world.groups) {
    const bool all_mode = g.kind == oracle::Kind::state && !g.align;
    GroupSpec spec = group_spec(kind_of(g.kind), {g.rank_block}, {g.window}, all_mode);
    spec.extra_retained = {g.extra_retained};
    spec.cacheable = g.cacheable;
    spec.sharded = g.sharded;
    spec.draft = g.draft;
    options.groups.push_back(spec);
  }
  options.hash_unit = {world.hash_unit};
  options.scheduler_block = {world.scheduler_block};
  options.context_parallel = static_cast<std::uint32_t>(world.context_parallel);
  options.draft_drop = any_draft(world);
  options.fine_hits_allowed = world.fine_hits_allowed;
  return options;
}

std::string describe(const oracle::World& world, std::uint64_t cap) {
  std::ostringstream out;
  out << "h " << world.hash_unit << ", S " << world.scheduler_block << ", cp "
      << world.context_parallel << (world.fine_hits_allowed ? "" : ", fine hits forbidden")
      << ", n " << world.tokens << ", start " << world.start << ", cap " << cap;
  for (const auto& g : world.groups) {
    out << "; " << name_of_kind(g.kind) << " " << g.rank_block << (g.sharded ? " sharded" : "");
    if (g.window != 0) out << " window " << g.window << "+" << g.extra_retained;
    if (g.kind == oracle::Kind::state) out << (g.align ? " align" : " all");
    if (g.chunk != 1) out << " chunk " << g.chunk;
    out << (g.draft ? " draft" : "") << (g.cacheable ? "" : " uncached") << " holds";
    for (const auto end : g.held) out << " " << end;
  }
  return out.str();
}

Mirror::Mirror(Geometry geometry) : geometry_(std::move(geometry)), index_(make_index()) {}

std::optional<Mirror> Mirror::make(const oracle::World& layout, std::string& why,
                                   std::uint32_t chunk) {
  auto geometry = Geometry::make(options_of(layout, chunk));
  if (!geometry.ok()) {
    why = geometry.error().text;
    return std::nullopt;
  }
  return Mirror(std::move(geometry).value());
}

void Mirror::load(const oracle::World& world) {
  index_.clear();
  slots_.clear();
  for (std::size_t g = 0; g < world.groups.size(); ++g) {
    for (const std::uint64_t end : world.groups[g].held) {
      const std::uint64_t key = end / world.hash_unit;
      const auto slot = static_cast<SlotId>(slots_.size());
      const Code code = index_.insert(static_cast<GroupId>(g),
                                      reinterpret_cast<const std::byte*>(&key), slot, {end});
      KVC_CHECK(code == Code::ok);
      slots_.push_back({g, end});
    }
  }
}

KeyView Mirror::keys_of(const oracle::World& world) {
  keys_.clear();
  for (std::uint64_t i = 1; i <= world.tokens / world.hash_unit; ++i) keys_.push_back(i);
  return {reinterpret_cast<const std::byte*>(keys_.data()), 8, keys_.size()};
}

bool Mirror::slot_fits(const oracle::World& world, std::size_t group, std::uint64_t position,
                       std::uint64_t end, SlotId slot) const {
  if (slot >= slots_.size() || slots_[slot].group != group) return false;
  const std::uint64_t held = slots_[slot].end;
  if (world.groups[group].kind == oracle::Kind::state) return held == end;
  const std::uint64_t block_end = (position + 1) * world.kept_span(group);
  // The whole block, or at least what lies below `end` of it.
  return held == block_end || (held >= end && held < block_end && block_end > end);
}

std::optional<std::string> Mirror::compare_group(const oracle::World& world, std::size_t group,
                                                 std::uint64_t end) const {
  const GroupHit& found = hit_.groups[group];
  std::vector<std::uint64_t> positions;
  for (const auto& place : oracle::needed(world, end)) {
    if (place.first == group) positions.push_back(place.second);
  }
  if (found.slots.size() != positions.size()) {
    return text("group ", group, " has ", found.slots.size(), " blocks, a prefix of ", end,
                " needs ", positions.size());
  }
  for (std::size_t i = 0; i < positions.size(); ++i) {
    if (found.first_position + i != positions[i]) {
      return text("group ", group, " has position ", found.first_position + i, " where ",
                  positions[i], " is needed");
    }
    if (!slot_fits(world, group, positions[i], end, found.slots[i])) {
      return text("group ", group, " position ", positions[i], " has slot ", found.slots[i],
                  ", which does not hold what a prefix of ", end, " needs there");
    }
  }
  return std::nullopt;
}

std::optional<std::string> Mirror::compare(const oracle::World& world, std::uint64_t cap) {
  load(world);
  const Code code = lookup(geometry_, index_, keys_of(world), {world.start}, {cap}, hit_);
  if (code != Code::ok) return text("lookup answers ", static_cast<int>(code));
  const bool drafts = any_draft(world);
  const std::uint64_t right = drafts ? oracle::rule_hit(world, cap) : oracle::best_hit(world, cap);
  if (hit_.tokens.n != right) {
    return text("lookup hits ", hit_.tokens.n, ", the oracle ", right, " (the rules ",
                oracle::rule_hit(world, cap), ")");
  }
  if (!oracle::all_serve(world, hit_.tokens.n))
    return text("not every group serves ", hit_.tokens.n);
  for (std::size_t g = 0; g < world.groups.size(); ++g) {
    if (auto why = compare_group(world, g, hit_.tokens.n)) return why;
  }
  return compare_closed(world, cap);
}

std::optional<std::string> Mirror::compare_served(const oracle::World& world, std::uint64_t cap) {
  load(world);
  const Code code = lookup(geometry_, index_, keys_of(world), {world.start}, {cap}, hit_);
  if (code != Code::ok) return text("lookup answers ", static_cast<int>(code));
  if (hit_.tokens.n > world.start && !oracle::all_serve(world, hit_.tokens.n))
    return text("not every group serves ", hit_.tokens.n);
  if (hit_.tokens.n > oracle::best_hit(world, cap))
    return text("lookup hits ", hit_.tokens.n, ", beyond the best");
  for (std::size_t g = 0; g < world.groups.size(); ++g) {
    if (auto why = compare_group(world, g, hit_.tokens.n)) return why;
  }
  return compare_closed(world, cap);
}

// Full-attention groups that hold every block before one that they hold, from the start on.
std::uint64_t Mirror::closed_groups(const oracle::World& world) const {
  std::uint64_t mask = 0;
  for (std::size_t g = 0; g < world.groups.size(); ++g) {
    if (world.groups[g].kind != oracle::Kind::full || !world.groups[g].cacheable) continue;
    const std::uint64_t span = world.kept_span(g);
    std::uint64_t blocks = 0;
    std::uint64_t last = 0;
    for (const std::uint64_t end : world.groups[g].held) {
      if (end % span != 0 || end <= world.start) continue;
      ++blocks;
      last = std::max(last, end);
    }
    if (blocks == 0 || blocks == last / span - world.start / span) mask |= std::uint64_t{1} << g;
  }
  return mask;
}

std::optional<std::string> Mirror::compare_closed(const oracle::World& world, std::uint64_t cap) {
  const std::uint64_t closed = closed_groups(world);
  if (closed == 0) return std::nullopt;
  ++closed_compared_;
  const KeyView keys = keys_of(world);
  const test::ClosedIndex index(geometry_, index_, keys, closed);
  if (lookup(geometry_, index, keys, {world.start}, {cap}, closed_hit_) != Code::ok)
    return text("lookup of the closed index fails");
  list_slots(geometry_, index, keys, closed_hit_);
  const std::string why = test::difference(hit_, closed_hit_);
  if (why.empty()) return std::nullopt;
  return text("the closed index answers differently: ", why);
}

std::optional<std::string> Mirror::compare_per_group(const oracle::World& world,
                                                     std::uint64_t cap) {
  load(world);
  const Code code = lookup_per_group(geometry_, index_, keys_of(world), {world.start}, {cap}, hit_);
  if (code != Code::ok) return text("lookup_per_group answers ", static_cast<int>(code));
  const std::uint64_t unit = oracle::alignment(world);
  const auto same_spec = [&](std::size_t a, std::size_t b) {
    const auto& x = world.groups[a];
    const auto& y = world.groups[b];
    return x.cacheable && y.cacheable && x.kind == y.kind && x.rank_block == y.rank_block &&
           x.sharded == y.sharded && x.window == y.window && x.extra_retained == y.extra_retained &&
           x.align == y.align;
  };
  for (std::size_t g = 0; g < world.groups.size(); ++g) {
    std::uint64_t own = world.start;
    for (std::uint64_t t = unit; t <= cap && world.groups[g].cacheable; t += unit) {
      bool served = t > world.start;
      for (std::size_t o = 0; o < world.groups.size() && served; ++o) {
        if (same_spec(g, o)) served = oracle::serves(world, o, t);
      }
      if (served) own = t;
    }
    if (hit_.groups[g].tokens.n != own) {
      return text("group ", g, " alone hits ", hit_.groups[g].tokens.n, ", the oracle ", own);
    }
    if (auto why = compare_group(world, g, own)) return why;
  }
  return std::nullopt;
}

}  // namespace kvc::oracle_tests
