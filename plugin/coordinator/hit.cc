#include "plugin/coordinator/hit.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

void GroupHit::keep(std::uint64_t n) {
  KVC_CHECK(n <= count());
  if (n == count()) return;
  slots.resize(std::min<std::size_t>(slots.size(), n));
  if (!brief) return;
  inside = no_slot;
  inside_end = {};
  if (n < whole) deepest = no_slot;
  whole = n;
}

void Hit::reserve(const Geometry& geometry, Tokens max_tokens) {
  groups.resize(geometry.groups());
  for (const GroupId g : geometry.cacheable()) {
    const GroupSpec& s = geometry.group(g);
    const Tokens block = geometry.block_tokens(g);
    const std::uint64_t all = blocks_touched(max_tokens, block).n;
    std::uint64_t most = all;
    if (s.kind == GroupKind::sliding)
      most = blocks_touched(s.window + s.extra_retained, block).n + 1;
    if (s.kind == GroupKind::chunked) most = blocks_touched(s.window, block).n + 1;
    if (s.kind == GroupKind::state) most = 1;
    groups[g].slots.reserve(std::min(all, most));
  }
}

void list_slots(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Hit& hit) {
  for (GroupId g = 0; g < hit.groups.size(); ++g) {
    GroupHit& group = hit.groups[g];
    if (group.listed()) continue;
    std::vector<SlotId> list = std::move(group.slots);
    group.slots.clear();
    list.clear();
    for_each_slot(geometry, index, keys, g, group,
                  [&](std::uint64_t, SlotId slot) { list.push_back(slot); });
    group.slots = std::move(list);
  }
}

Status truncate(const Geometry& geometry, const Hit& hit, Tokens tokens, Hit& out) {
  KVC_CHECK(&hit != &out && hit.groups.size() == geometry.groups());
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    const GroupHit& from = hit.groups[g];
    if (!geometry.group(g).cacheable) {
      if (from.list_length() != 0)
        return {Code::arg,
                fmt::format("group {} is not cacheable but its list has {} positions (R-317)", g,
                            from.list_length())};
      continue;
    }
    const Tokens block = geometry.block_tokens(g);
    if (tokens.n % block.n != 0)
      return {Code::arg,
              fmt::format(
                  "{} tokens are not a multiple of the {} tokens of a block of group {} (R-317)",
                  tokens.n, block.n, g)};
    if (from.list_length() < tokens.n / block.n && !geometry.group(g).state)
      return {Code::arg, fmt::format("group {} has {} positions, {} tokens need {} (R-317)", g,
                                     from.list_length(), tokens.n, tokens.n / block.n)};
  }
  out.start = std::min(hit.start, tokens);
  out.tokens = tokens;
  out.uncached_common_prefix = out.dropped_for_drafts = Tokens{};
  out.attention_tokens = tokens;
  out.cost = {};
  out.groups.resize(geometry.groups());
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    const GroupHit& from = hit.groups[g];
    GroupHit& to = out.groups[g];
    to.clear();
    to.tokens = std::min(from.tokens, tokens);
    to.first_position = 0;
    if (!geometry.group(g).cacheable) continue;
    const std::uint64_t stop = std::min(from.list_length(), tokens.n / geometry.block_tokens(g).n);
    to.first_position = std::min(from.first_position, stop);
    const std::uint64_t n = stop - to.first_position;
    const auto listed = static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(n, from.slots.size()));
    to.slots.assign(from.slots.begin(), from.slots.begin() + listed);
    if (!from.brief) continue;
    to.brief = true;
    to.whole = from.whole;
    to.deepest = from.deepest;
    to.inside = from.inside;
    to.inside_end = from.inside_end;
    to.keep(n);
  }
  return {};
}

}  // namespace kvc
