// The longest prefix that all groups can serve: R-301..R-318, with absolute positions (CW-1).
//
// Positions and token counts are absolute, from token 0 of the request. `start` is what the device
// already has: a tier's lookup finds blocks for [start, end) only and relies on the device holding
// what a prefix of `start` tokens needs. With start == 0 it is the device's own lookup.
#pragma once
#include <cstdint>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// What one group contributes: slots[i] holds position first_position + i. Positions below
// first_position are null (not needed, or held by the device); no slot in the list is null.
struct GroupHit {
  Tokens tokens;  // prefix this group serves: the common one, or its own (lookup_per_group)
  std::uint64_t first_position = 0;
  std::vector<SlotId> slots;

  // Length of the position list from token 0, leading nulls included (the `slots` column of the
  // vectors).
  [[nodiscard]] std::uint64_t list_length() const { return first_position + slots.size(); }
};

// The answer of a lookup, reusable. After reserve() no lookup with max_tokens up to that bound
// allocates.
//
// Threads: one user. Owns: its vectors. Invariants: after lookup: start <= tokens <= max_tokens,
// tokens % A == 0; per cacheable group the slots are exactly the needed set of `tokens` at or
// behind `start` (for_each_needed); groups that are not cacheable, and all groups of a miss (tokens
// == start), have no slots.
struct Hit {
  Tokens start;
  Tokens tokens;  // absolute end of the hit; == start: a miss
  // How much longer the first attention bundle alone reaches: meaningful for sparse
  // retention only.
  Tokens uncached_common_prefix;
  // Tokens that trailing-block drops took off the hit of the draft groups (K8-77); 0 without draft
  // groups.
  Tokens dropped_for_drafts;
  // Longest prefix the full-attention groups alone can serve; == tokens when nothing was lost to
  // others (K6-49).
  Tokens attention_tokens;
  std::vector<GroupHit> groups;  // one per group, in group order

  // Room for every lookup with max_tokens <= `max_tokens`.
  void reserve(const Geometry& geometry, Tokens max_tokens);
  // Tokens found beyond start.
  [[nodiscard]] Tokens external() const { return tokens - start; }
};

// The hybrid lookup R-310..R-313 (R-307 for a single group).
//   keys        the request's keys; keys of tokens beyond the list count as absent
//   start       tokens the device has; a multiple of S
//   max_tokens  the longest answer allowed; callers pass at most n - 1. Below or equal
//   start: a miss
// Without draft groups the answer is exactly the longest aligned prefix that all groups can serve:
// full attention serves every prefix inside what it holds (also the inside of a block that ends
// behind max_tokens), windows serve block ends of which they hold the window, states serve the ends
// they hold. With draft groups it is the answer of the rules R-301..R-312 as they stand, drops
// included. Code::arg (start not a multiple of S, key length 0) leaves `out` as a miss. Nothing is
// pinned or changed.
Code lookup(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Tokens start,
            Tokens max_tokens, Hit& out);

// every bundle on its own, with its drop, not reconciled; out.groups[g].tokens is the length
// of group g (start for groups that are not cacheable) and its slots the needed set of that length;
// out.tokens the smallest.
Code lookup_per_group(const Geometry& geometry, const KeyIndex& index, const KeyView& keys,
                      Tokens start, Tokens max_tokens, Hit& out);

// the leading `tokens` tokens of `hit` into `out`, a pure slice; `hit` is not changed and
// must not be `out`. Code::arg with a text naming the group and numbers when tokens is not a
// multiple of a cacheable group's B_g, when a group other than a state group has fewer than tokens
// / B_g positions, or when an uncached group has any. State groups keep what they have (the
// external load supplies the final state).
Status truncate(const Geometry& geometry, const Hit& hit, Tokens tokens, Hit& out);

// The needed set of a prefix of `end` tokens at or behind `start`: visit(group, position) for every
// cacheable group ascending, positions ascending. One rule for lookups, loads and verification
// ("loaded set == needed set", CW-1). Requires start % S == 0.
template <class Visit>
void for_each_needed(const Geometry& geometry, Tokens start, Tokens end, Visit visit) {
  if (end <= start) return;
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t lo = start.n / geometry.block_tokens(g).n;
    const std::uint64_t need = geometry.first_needed_position(g, end);
    for (std::uint64_t p = need > lo ? need : lo; p < geometry.end_position(g, end); ++p)
      visit(g, p);
  }
}

}  // namespace kvc
