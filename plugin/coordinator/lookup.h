// The longest prefix that all groups can serve: R-301..R-318, with absolute positions (CW-1).
//
// Positions and token counts are absolute, from token 0 of the request. `start` is what the device
// already has: a tier's lookup finds blocks for [start, end) only and relies on the device holding
// what a prefix of `start` tokens needs. With start == 0 it is the device's own lookup.
#pragma once
#include <algorithm>
#include <cstdint>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/hit.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// Whether a search may use the promises of an index. They hold for lists of keys of which every key
// names all tokens before it, too; a search that meets a contradiction starts again without them,
// but it does not look for one.
enum class Trust : bool { nothing, promises };

// The hybrid lookup R-310..R-313 (R-307 for a single group).
//   keys        the request's keys; keys of tokens beyond the list count as absent
//   start       tokens the device has; a multiple of S
//   max_tokens  the longest answer allowed; callers pass at most n - 1. Below or equal
//   start: a miss
// Without draft groups the answer is exactly the longest aligned prefix that all groups can serve:
// full attention serves every prefix inside what it holds (also the inside of a block that ends
// behind max_tokens), windows serve block ends of which they hold the window, states serve the ends
// they hold. With draft groups it is the answer of the rules R-301..R-312 as they stand, drops
// included. The answer does not depend on what the index promises (prefix_closed, tail_offsets);
// the promises only save probes: a closed full-attention group of n candidate positions costs at
// most ceil(2 log2 n) + 2 probes for its run, whatever is found, and one or two for the ends that
// the common prefix has there (the group's hit is then brief); any other is walked from `start`.
// `out.cost` counts. Code::arg (start not a multiple of S, key length 0) leaves `out` as a miss.
// Nothing is pinned or changed.
Code lookup(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Tokens start,
            Tokens max_tokens, Hit& out, Trust trust = Trust::promises);

// every bundle on its own, with its drop, not reconciled; out.groups[g].tokens is the length
// of group g (start for groups that are not cacheable) and its slots the needed set of that length;
// out.tokens the smallest.
Code lookup_per_group(const Geometry& geometry, const KeyIndex& index, const KeyView& keys,
                      Tokens start, Tokens max_tokens, Hit& out, Trust trust = Trust::promises);

// The needed set in ranges: visit(group, first, behind) for every cacheable group ascending that
// needs positions [first, behind). Requires start % S == 0.
template <class Visit>
void for_each_needed_range(const Geometry& geometry, Tokens start, Tokens end, Visit visit) {
  if (end <= start) return;
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t lo = start.n / geometry.block_tokens(g).n;
    const std::uint64_t first = std::max(geometry.first_needed_position(g, end), lo);
    const std::uint64_t behind = geometry.end_position(g, end);
    if (first < behind) visit(g, first, behind);
  }
}

// The needed set of a prefix of `end` tokens at or behind `start`: visit(group, position) for every
// cacheable group ascending, positions ascending. One rule for lookups, loads and verification
// ("loaded set == needed set", CW-1). Requires start % S == 0.
template <class Visit>
void for_each_needed(const Geometry& geometry, Tokens start, Tokens end, Visit visit) {
  for_each_needed_range(geometry, start, end,
                        [&](GroupId g, std::uint64_t first, std::uint64_t behind) {
                          for (std::uint64_t p = first; p < behind; ++p) visit(g, p);
                        });
}

}  // namespace kvc
