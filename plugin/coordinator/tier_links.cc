// Who hangs on whom: holders, dependents and their supports, dead chain entries (design 3.1).
#include <algorithm>

#include "plugin/coordinator/tier_body.h"

namespace kvc {

using tier::link_unit;
using tier::Place;
using tier::Record;

TierIndex::Body::Body(const Geometry& layout, const TierIndexOptions& o)
    : geometry(layout), options(o), records(o.key_bytes, o.slots, layout.groups()), order(records) {
  unit = layout.hash_unit();
  if (!o.chained || !layout.chain()) return;
  chain = *layout.chain();
  block = layout.block_tokens(chain);
  for (const GroupId g : layout.cacheable()) {
    if (g == chain) continue;
    (layout.group(g).kind == GroupKind::full ? wide : exact).push_back(g);
  }
  // A trailing-block drop needs entries behind the boundary it serves.
  dead_rule = !layout.has_drafts() && layout.hybrid();
}

void TierIndex::Body::add_holder(SlotId slot, std::uint64_t unit_of) {
  Record& r = at(slot);
  const bool was_blocked = r.blocked();
  r.holders += unit_of;
  if (was_blocked) return;
  order.unlink(slot);
  if (r.has(Record::chain_bit)) return;
  if (r.support != 0) add_holder(r.support - 1, link_unit);
  if (!r.carries() && r.second != 0) add_holder(r.second - 1, link_unit);
}

void TierIndex::Body::drop_holder(SlotId slot, std::uint64_t unit_of) {
  Record& r = at(slot);
  KVC_CHECK(r.holders >= unit_of);
  r.holders -= unit_of;
  if (r.blocked()) return;
  enter_order(slot);
  if (r.has(Record::chain_bit)) return;
  if (r.support != 0) drop_holder(r.support - 1, link_unit);
  if (!r.carries() && r.second != 0) drop_holder(r.second - 1, link_unit);
}

bool TierIndex::Body::belongs_in_front(SlotId slot) const {
  const Record& r = records[slot];
  return r.has(Record::bad_bit | Record::unsupported_bit) ||
         (r.has(Record::chain_bit) && dead(slot));
}

void TierIndex::Body::enter_order(SlotId slot) {
  if (belongs_in_front(slot)) {
    order.link_front(slot, records[slot].has(Record::bad_bit));
  } else {
    order.link(slot);
  }
}

void TierIndex::Body::retest(SlotId slot) {
  const Record& r = records[slot];
  if (r.place() == Place::out || (r.place() == Place::front) == belongs_in_front(slot)) return;
  order.unlink(slot);
  enter_order(slot);
}

void TierIndex::Body::link_first(SlotId slot, SlotId support) {
  Record& r = at(slot);
  Record& s = at(support);
  r.support = support + 1;
  r.dep_prev = 0;
  r.dep_next = s.second;
  if (s.second != 0) at(s.second - 1).dep_prev = slot + 1;
  s.second = slot + 1;
}

void TierIndex::Body::unlink_first(SlotId slot) {
  Record& r = at(slot);
  if (r.dep_prev != 0) {
    at(r.dep_prev - 1).dep_next = r.dep_next;
  } else {
    at(r.support - 1).second = r.dep_next;
  }
  if (r.dep_next != 0) at(r.dep_next - 1).dep_prev = r.dep_prev;
  r.support = r.dep_next = r.dep_prev = 0;
}

void TierIndex::Body::link_second(SlotId slot, SlotId tail) {
  Record& r = at(slot);
  r.second = tail + 1;
  r.dep2_next = at(tail).second;
  at(tail).second = slot + 1;
}

// A tail carries at most one entry per group.
void TierIndex::Body::unlink_second(SlotId slot) {
  Record& r = at(slot);
  std::uint32_t* link = &at(r.second - 1).second;
  while (*link != slot + 1) link = &at(*link - 1).dep2_next;
  *link = r.dep2_next;
  r.second = r.dep2_next = 0;
}

void TierIndex::Body::link_supports(SlotId slot, SlotId first, SlotId second) {
  const bool blocked = at(slot).blocked();
  if (first != no_slot && at(slot).support == 0) {
    link_first(slot, first);
    if (blocked) add_holder(first, link_unit);
  }
  if (second != no_slot && !at(slot).carries() && at(slot).second == 0) {
    link_second(slot, second);
    if (blocked) add_holder(second, link_unit);
  }
}

void TierIndex::Body::list_unsupported(SlotId slot) {
  Record& r = at(slot);
  tier::Run& run = order.run(r.run());
  r.dep_prev = 0;
  r.dep_next = run.unsupported;
  if (run.unsupported != 0) at(run.unsupported - 1).dep_prev = slot + 1;
  run.unsupported = slot + 1;
  r.set(Record::listed_bit, true);
  add_holder(slot, link_unit);
}

// Does not drop the holder: the caller does when the entry is whole again.
void TierIndex::Body::unlist(SlotId slot) {
  Record& r = at(slot);
  if (r.dep_prev != 0) {
    at(r.dep_prev - 1).dep_next = r.dep_next;
  } else {
    order.run(r.run()).unsupported = r.dep_next;
  }
  if (r.dep_next != 0) at(r.dep_next - 1).dep_prev = r.dep_prev;
  r.dep_next = r.dep_prev = 0;
  r.set(Record::listed_bit, false);
}

void TierIndex::Body::make_unsupported(SlotId slot) {
  Record& r = at(slot);
  if (!chained() || r.has(Record::unsupported_bit)) return;
  r.set(Record::unsupported_bit, true);
  ++counts.unsupported;
  if (r.has(Record::tail_bit)) {
    ++loose_tails;
    loose_offsets |= offset_bit(r.end % block.n);
  }
  if (order.run(r.run()).writing) {
    list_unsupported(slot);
  } else {
    retest(slot);
  }
}

void TierIndex::Body::end_unsupported(SlotId slot) {
  Record& r = at(slot);
  if (!r.has(Record::unsupported_bit)) return;
  r.set(Record::unsupported_bit, false);
  --counts.unsupported;
  if (r.has(Record::tail_bit) && --loose_tails == 0) loose_offsets = 0;
}

// An engine whose keys do not say where they end breaks its own hits, and no link of ours.
SlotId TierIndex::Body::find_at(const std::byte* key, std::uint64_t end) const {
  const SlotId slot = records.find(chain, key);
  return slot == no_slot || records[slot].end != end ? no_slot : slot;
}

Supports TierIndex::Body::find_supports(GroupId group, const KeyView& path, Tokens end,
                                        RunId run) const {
  Supports s;
  if (!chained()) return s;
  const auto find = [&](Tokens at_end) {
    if (at_end.n / unit.n > path.count) return no_slot;
    const std::byte* key = block_key(path, at_end, unit);
    // Mostly what the run wrote or hit last.
    const SlotId last = run == no_run ? no_slot : order.run(run).writer;
    if (last != no_slot && records[last].end == at_end.n && records.has_key(last, key)) return last;
    return find_at(key, at_end.n);
  };
  const Tokens inside{end.n % block.n};
  if (group == chain) {
    const Tokens before = inside == Tokens{} ? end - block : end - inside;
    s.root = before == Tokens{};
    if (!s.root) s.first = find(before);
    s.no_parent = inside == Tokens{} && !s.root && s.first == no_slot;
    return s;
  }
  s.first = find(inside == Tokens{} ? end : end - inside + block);
  if (inside != Tokens{}) s.second = find(end);
  return s;
}

void TierIndex::Body::adopt_through_tails(SlotId slot, const KeyView& path) {
  const Record& r = at(slot);
  std::uint64_t offsets = root_offsets;
  if (r.support != 0) {
    const Record& parent = at(r.support - 1);
    offsets =
        loose_offsets | (parent.published() ? parent.offsets() : offsets_of_tails(r.support - 1));
  }
  if (offsets == 0) return;
  const std::uint64_t base = r.end - block.n;
  for (std::uint64_t t = base + unit.n; t < r.end && t / unit.n <= path.count; t += unit.n) {
    if ((offsets & offset_bit(t - base)) == 0) continue;
    const SlotId tail = find_at(block_key(path, Tokens{t}, unit), t);
    if (tail == no_slot) continue;
    for (std::uint32_t d = at(tail).second; d != 0; d = at(d - 1).dep2_next)
      link_supports(d - 1, slot, no_slot);
  }
}

void TierIndex::Body::adopt(SlotId slot, const KeyView& path, RunId run) {
  const Record& r = at(slot);
  const bool whole = r.has(Record::chain_bit);
  const std::uint64_t behind = whole ? r.end - block.n : r.end - 1;
  for (std::uint32_t d = order.run(run).unsupported; d != 0;) {
    const SlotId waiting = d - 1;
    d = at(waiting).dep_next;
    const Record& w = at(waiting);
    if (w.has(Record::tail_bit)) {
      if (!whole || r.end != w.end - w.end % block.n) continue;
    } else if (w.end <= behind || w.end > r.end) {
      continue;
    }
    unlist(waiting);
    end_unsupported(waiting);
    if (whole) {
      link_supports(waiting, slot, no_slot);
    } else {
      link_supports(waiting, no_slot, slot);
    }
    drop_holder(waiting, link_unit);
  }
  if (whole) {
    adopt_through_tails(slot, path);
  } else {
    share_dependents(slot, path);
  }
}

// What a chain entry supports at the end of a new tail inside its block hangs on the tail too.
void TierIndex::Body::share_dependents(SlotId tail, const KeyView& path) {
  const Record& t = at(tail);
  const Tokens end{t.end - t.end % block.n + block.n};
  if (end.n / unit.n > path.count) return;
  const SlotId whole = find_at(block_key(path, end, unit), end.n);
  if (whole == no_slot) return;
  for (std::uint32_t d = at(whole).second; d != 0; d = at(d - 1).dep_next)
    if (at(d - 1).end == t.end) link_supports(d - 1, no_slot, tail);
}

void TierIndex::Body::boundary_changed(const Record& r) {
  if (!chained() || r.has(Record::chain_bit)) return;
  if (r.support != 0) retest(r.support - 1);
  if (r.carries() || r.second == 0) return;
  const Record& tail = at(r.second - 1);
  if (tail.support != 0) retest(tail.support - 1);
}

namespace {

bool serves(const Record& r) { return r.published() && !r.has(Record::bad_bit); }

std::uint32_t by_first(const Record& r) { return r.dep_next; }
std::uint32_t by_second(const Record& r) { return r.dep2_next; }

}  // namespace

template <class Next>
bool TierIndex::Body::holds_at(GroupId g, Tokens end, std::uint32_t first, Next next) const {
  const bool covers = geometry.group(g).kind == GroupKind::full || geometry.blocks_per_chunk(g) > 1;
  const std::uint64_t position = geometry.end_position(g, end);
  for (std::uint32_t d = first; d != 0; d = next(at(d - 1))) {
    const Record& r = at(d - 1);
    if (r.group() != g || !serves(r)) continue;
    if (r.end == end.n) return true;
    if (covers && r.end > end.n && geometry.end_position(g, Tokens{r.end}) == position) return true;
  }
  return false;
}

// Whether what hangs on `entry` or on one of its tails covers a boundary. Of a tail that is asked
// without regard to its path: rather keep an entry than drop a useful one.
bool TierIndex::Body::covered(const Record& entry, GroupId g, Tokens end) const {
  if (holds_at(g, end, entry.second, by_first)) return true;
  for (std::uint32_t d = entry.second; d != 0; d = at(d - 1).dep_next)
    if (at(d - 1).has(Record::tail_bit) && holds_at(g, end, at(d - 1).second, by_second))
      return true;
  return false;
}

// Whether the other groups have what they need last for a boundary: entries that end there among
// the dependents of `entry` (no tail) or of its tail, and what covers it.
bool TierIndex::Body::servable_at(const Record& entry, const Record* tail, Tokens end) const {
  if (!geometry.legal_end(chain, end)) return false;
  const auto held = [&](GroupId g) {
    return !needs(g, end) || (tail == nullptr ? holds_at(g, end, entry.second, by_first)
                                              : holds_at(g, end, tail->second, by_second));
  };
  return std::all_of(exact.begin(), exact.end(), held) &&
         std::all_of(wide.begin(), wide.end(), [&](GroupId g) { return covered(entry, g, end); });
}

bool TierIndex::Body::needs(GroupId g, Tokens end) const {
  return geometry.first_needed_position(g, end) != geometry.end_position(g, end);
}

// With fine hits a wider block of attention that hangs on `entry` serves boundaries in front of the
// entry, too. Which of them others need is not asked: rather keep an entry than drop a useful one.
bool TierIndex::Body::reaches_back(const Record& entry) const {
  if (!geometry.keeps_tails() || wide.empty()) return false;
  const auto starts_before = [&](const Record& d) {
    if (!serves(d) || std::find(wide.begin(), wide.end(), d.group()) == wide.end()) return false;
    return round_down(Tokens{d.end - std::uint64_t{1}}, geometry.block_tokens(d.group())) + block <
           Tokens{entry.end};
  };
  for (std::uint32_t d = entry.second; d != 0; d = at(d - 1).dep_next) {
    const Record& dependent = at(d - 1);
    if (starts_before(dependent)) return true;
    if (!dependent.has(Record::tail_bit)) continue;
    for (std::uint32_t e = dependent.second; e != 0; e = at(e - 1).dep2_next)
      if (starts_before(at(e - 1))) return true;
  }
  return false;
}

// Whether a boundary that `entry` makes reachable has, beside it, what every other group needs
// last: at an end inside its block, or at a tail that continues it.
bool TierIndex::Body::servable(SlotId entry) const {
  const Record& r = at(entry);
  if (reaches_back(r)) return true;
  // A chunk may end between two boundaries; it serves its inside.
  const auto last_boundary = [&](std::uint64_t end) {
    const Tokens at_end{end};
    if (geometry.blocks_per_chunk(chain) == 1) return at_end;
    const Tokens boundary = round_down(at_end, geometry.hit_alignment());
    return boundary + block > Tokens{r.end} ? boundary : at_end;
  };
  if (servable_at(r, nullptr, last_boundary(r.end))) return true;
  for (std::uint32_t d = r.second; d != 0; d = at(d - 1).dep_next) {
    const Record& dependent = at(d - 1);
    if (dependent.has(Record::tail_bit)) {
      if (serves(dependent) && servable_at(r, &dependent, Tokens{dependent.end})) return true;
    } else if (dependent.end != r.end && servable_at(r, nullptr, last_boundary(dependent.end))) {
      return true;
    }
  }
  return false;
}

bool TierIndex::Body::dead(SlotId entry) const { return dead_rule && !servable(entry); }

std::uint64_t TierIndex::Body::offset_bit(std::uint64_t tokens) const {
  const std::uint64_t i = tokens / unit.n - 1;
  return std::uint64_t{1} << (i * 64 / (block.n / unit.n));
}

std::uint64_t TierIndex::Body::offsets_of_tails(SlotId entry) const {
  std::uint64_t offsets = 0;
  for (std::uint32_t d = at(entry).second; d != 0; d = at(d - 1).dep_next) {
    const Record& r = at(d - 1);
    if (r.has(Record::tail_bit)) offsets |= offset_bit(r.end - at(entry).end);
  }
  return offsets;
}

void TierIndex::Body::note_tail(const Record& tail) {
  if (!tail.has(Record::tail_bit)) return;
  if (rooted(tail)) {
    root_offsets |= offset_bit(tail.end);
  } else if (tail.support != 0 && at(tail.support - 1).published()) {
    Record& base = at(tail.support - 1);
    base.set_offsets(base.offsets() | offset_bit(tail.end - base.end));
  }
}

}  // namespace kvc
