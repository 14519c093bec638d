// What a lookup found: per group a list of slots, or, where the index lets a lookup skip the list,
// how long it is and where it ends (docs/adr/0008).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/check.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// What one group contributes, in one of two forms.
//
// Listed: slots[i] holds position first_position + i; no slot in the list is null.
// Brief (only a full-attention group of an index that says prefix_closed): the positions are
// [first_position, first_position + count()), and only the ends are known: the deepest whole block
// and, if the hit ends inside a block, the entry it ends in. list_slots adds the list; the group
// stays brief, which is what tells its pins.
struct GroupHit {
  Tokens tokens;  // prefix this group serves: the common one, or its own (lookup_per_group)
  std::uint64_t first_position = 0;
  std::vector<SlotId> slots;

  bool brief = false;
  // The rest: brief only.
  std::uint64_t whole = 0;   // whole blocks from first_position on
  SlotId deepest = no_slot;  // slot of the last of them; no_slot if there is none, and after a
                             // truncate that cut it off
  SlotId inside = no_slot;   // a tail, or a block that reaches behind the hit: it has position
                             // first_position + whole; no_slot: the hit ends at a block's end
  Tokens inside_end;         // prefix tokens that its key covers

  // Positions of the hit in this group.
  [[nodiscard]] std::uint64_t count() const {
    return brief ? whole + (inside == no_slot ? 0 : 1) : slots.size();
  }
  // Length of the position list from token 0, leading nulls included (the `slots` column of the
  // vectors).
  [[nodiscard]] std::uint64_t list_length() const { return first_position + count(); }
  // All slots are in the list.
  [[nodiscard]] bool listed() const { return slots.size() == count(); }
  // The slot of the last position; no_slot if there is no position (or truncate cut it off).
  [[nodiscard]] SlotId last() const {
    if (brief) return inside != no_slot ? inside : deepest;
    return slots.empty() ? no_slot : slots.back();
  }
  // No position.
  void clear() {
    slots.clear();
    brief = false;
    whole = 0;
    deepest = inside = no_slot;
    inside_end = {};
  }
  // Keeps the first `n` positions. Requires n <= count(). A brief group forgets the deepest slot
  // when it goes.
  void keep(std::uint64_t n);
};

// The answer of a lookup, reusable. After reserve() no lookup with max_tokens up to that bound
// allocates, nor does list_slots.
//
// Threads: one user. Owns: its vectors. Invariants: after lookup: start <= tokens <= max_tokens,
// tokens % A == 0; per cacheable group the positions are exactly the needed set of `tokens` at or
// behind `start` (for_each_needed); groups that are not cacheable, and all groups of a miss (tokens
// == start), have none.
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
  LookupCost cost;               // of the lookup that filled it

  // Room for every lookup with max_tokens <= `max_tokens`.
  void reserve(const Geometry& geometry, Tokens max_tokens);
  // Tokens found beyond start.
  [[nodiscard]] Tokens external() const { return tokens - start; }

  // What a lease on this hit pins (design 3.1 "Pins"): visit(slot) for every slot of a group that
  // is not brief, positions ascending; of a brief one the deepest whole block, whose ancestors its
  // index keeps for it, and the entry the hit ends in. The same set whether it was listed or not.
  template <class Visit>
  void for_each_pinned(Visit visit) const;
  // The same slots; within each group the deepest first, for releasing.
  template <class Visit>
  void for_each_pinned_backwards(Visit visit) const;
};

// Keys of positions [first, first + count) of a group. Requires them in `keys`, count > 0.
inline KeyRun block_keys(const Geometry& geometry, const KeyView& keys, GroupId g,
                         std::uint64_t first, std::uint64_t count) {
  const Tokens block = geometry.block_tokens(g);
  const Tokens h = geometry.hash_unit();
  return {block_key(keys, block * (first + 1), h),
          static_cast<std::ptrdiff_t>(block.n / h.n * keys.key_bytes), count};
}

// visit(position, slot) for all positions of group `g`, ascending. A group that is not listed is
// found again in prefetched batches: its entries must still be there, which holds as long as the
// index did not change, or for a pinned hit (Hit::for_each_pinned). `keys` are those of the lookup.
template <class Visit>
void for_each_slot(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, GroupId g,
                   const GroupHit& hit, Visit visit) {
  if (hit.listed()) {
    for (std::size_t i = 0; i < hit.slots.size(); ++i) visit(hit.first_position + i, hit.slots[i]);
    return;
  }
  const std::uint64_t end = hit.first_position + hit.whole;
  const std::uint64_t known = hit.whole > 0 && hit.deepest != no_slot ? 1 : 0;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written before it is read, hot
  std::array<SlotId, find_path_keys> found;
  for (std::uint64_t p = hit.first_position; p < end - known;) {
    const std::size_t n = std::min<std::uint64_t>(find_path_keys, end - known - p);
    index.find_path(g, block_keys(geometry, keys, g, p, n), found);
    for (std::size_t i = 0; i < n; ++i, ++p) {
      KVC_CHECK(found[i] != no_slot);
      visit(p, found[i]);
    }
  }
  if (known != 0) visit(end - 1, hit.deepest);
  if (hit.inside != no_slot) visit(end, hit.inside);
}

// Lists every group that is not listed, as for_each_slot does; the others stay as they are.
void list_slots(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Hit& hit);

// the leading `tokens` tokens of `hit` into `out`, a pure slice; `hit` is not changed and
// must not be `out`. Code::arg with a text naming the group and numbers when tokens is not a
// multiple of a cacheable group's B_g, when a group other than a state group has fewer than tokens
// / B_g positions, or when an uncached group has any. State groups keep what they have (the
// external load supplies the final state). A brief group that loses its deepest block does not know
// its new one (`deepest` is no_slot): such a hit is for list_slots, not for pins.
Status truncate(const Geometry& geometry, const Hit& hit, Tokens tokens, Hit& out);

template <class Visit>
void Hit::for_each_pinned(Visit visit) const {
  for (const GroupHit& g : groups) {
    if (!g.brief) {
      for (const SlotId slot : g.slots) visit(slot);
      continue;
    }
    KVC_CHECK(g.whole == 0 || g.deepest != no_slot);
    if (g.deepest != no_slot) visit(g.deepest);
    if (g.inside != no_slot) visit(g.inside);
  }
}

template <class Visit>
void Hit::for_each_pinned_backwards(Visit visit) const {
  for (const GroupHit& g : groups) {
    if (!g.brief) {
      for (auto it = g.slots.rbegin(); it != g.slots.rend(); ++it) visit(*it);
      continue;
    }
    if (g.inside != no_slot) visit(g.inside);
    if (g.deepest != no_slot) visit(g.deepest);
  }
}

}  // namespace kvc
