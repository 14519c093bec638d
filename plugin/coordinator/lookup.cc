#include "plugin/coordinator/lookup.h"

#include <algorithm>
#include <array>

#include "plugin/coordinator/finder.h"

namespace kvc {

void Finder::probe_all(Members members, Tokens end, Tokens step, bool down, std::size_t count,
                       Found& found) const {
  probe(members.front(), end, step, down, count, found);
  Found other;
  for (const GroupId g : members.subspan(1)) {
    probe(g, end, step, down, count, other);
    for (std::size_t i = 0; i < count; ++i)
      if (other[i] == no_slot) found[i] = no_slot;
  }
}

std::size_t Finder::first_common(Members members, Tokens end, std::size_t count,
                                 Found& found) const {
  probe(members.front(), end, align_, true, count, found);
  std::size_t i = 0;
  while (i < count && found[i] == no_slot) ++i;
  if (i == count || members.size() == 1) return i;
  const auto held = [&](GroupId g) { return probe_one(g, end - align_ * i) != no_slot; };
  if (std::all_of(members.begin() + 1, members.end(), held)) return i;
  // Not this one: the others are asked for the rest of the batch.
  Found other;
  const std::size_t from = i + 1;
  for (const GroupId g : members.subspan(1)) {
    if (from == count) return count;
    probe(g, end - align_ * from, align_, true, count - from, other);
    for (i = from; i < count; ++i)
      if (other[i - from] == no_slot) found[i] = no_slot;
  }
  for (i = from; i < count && found[i] == no_slot;) ++i;
  return i;
}

// The longest aligned end of which all members hold the window, R-303 without drops. Positions are
// probed downwards; an absent one moves the candidate below itself, so that none is probed twice
// but for the rest of a batch.
Tokens Finder::window_end(const Bundle& b, Tokens limit) const {
  const GroupId g = b.members.front();
  const Tokens block = geometry_.block_tokens(g);
  const std::uint64_t lo = low(g);
  Tokens end = round_down(std::min(limit, known_end_), align_);
  std::uint64_t batch_top =
      0;  // positions [batch_top - batch_size, batch_top) are in `found`, top first
  std::uint64_t batch_size = 0;
  Ramp ramp;
  Found found;
  // Positions below `next` are not decided. The last of them may reach behind the end.
  for (std::uint64_t next = geometry_.end_position(g, end); end > start_;) {
    if (next <= std::max(lo, geometry_.first_needed_position(g, end))) return end;
    const std::uint64_t p = next - 1;
    if (block * next > known_end_) {
      end = round_down(block * p, align_);
      next = geometry_.end_position(g, end);
      continue;
    }
    if (p >= batch_top || p < batch_top - batch_size) {
      batch_top = next;
      batch_size = ramp.next(next - lo);
      probe_all(b.members, block * next, block, true, batch_size, found);
    }
    if (found[batch_top - 1 - p] != no_slot) {
      next = p;
    } else {
      end = round_down(block * p, align_);
      next = geometry_.end_position(g, end);
    }
  }
  return start_;
}

// R-303 as it stands, for layouts with draft groups.
Tokens Finder::window_end_with_drafts(const Bundle& b, Tokens limit, bool drop) {
  const GroupId g = b.members.front();
  const GroupSpec& spec = geometry_.group(g);
  const Tokens block = geometry_.block_tokens(g);
  const std::uint64_t lo = low(g);
  const std::uint64_t need =
      blocks_touched(spec.window - Tokens{1} + spec.extra_retained, block).n + (drop ? 1 : 0);
  const auto aligned = [&](std::uint64_t position) { return (block * position).n % align_.n == 0; };
  std::uint64_t run = 0;
  std::uint64_t end = 0;  // position behind the run
  bool done = false;
  Found found;
  for (std::uint64_t next = std::min(limit, known_end_).n / block.n; next > lo && !done;) {
    const std::size_t n = std::min<std::uint64_t>(find_batch_keys, next - lo);
    probe_all(b.members, block * next, block, true, n, found);
    for (std::size_t i = 0; i < n && !done; ++i, --next) {
      if (found[i] == no_slot) {
        run = 0;
        continue;
      }
      if (run == 0) {
        if (block != align_ && !aligned(drop ? next - 1 : next)) continue;
        end = next;
      }
      done = ++run >= need;
    }
  }
  if (run == 0) return start_;
  while (!done && end > lo && !aligned(end)) --end;
  // In a tier with chunks the device's tokens may end inside the chunk at `lo`.
  if (!drop || end <= lo) return std::max(block * end, start_);
  const Tokens before = block * end;
  do --end;
  while (end > lo && !aligned(end));
  note_drop(before, block * end);
  return std::max(block * end, start_);
}

// R-304, with the absolute chunk (CW-1) and for any alignment: the longest aligned end of which all
// members hold the blocks since its chunk began.
Tokens Finder::chunk_end(const Bundle& b, Tokens limit) const {
  const GroupId g = b.members.front();
  const Tokens block = geometry_.block_tokens(g);
  Tokens end = round_down(std::min(limit, known_end_), align_);
  Found found;
  while (end > start_) {
    std::uint64_t stop = geometry_.end_position(g, end);
    std::uint64_t p = std::max(low(g), geometry_.first_needed_position(g, end));
    // A block that reaches behind the end may reach behind all keys.
    bool absent = block * stop > known_end_;
    if (absent) p = stop - 1;
    while (p < stop && !absent) {
      const std::size_t n = std::min<std::uint64_t>(find_batch_keys, stop - p);
      probe_all(b.members, block * (p + 1), block, false, n, found);
      for (std::size_t i = 0; i < n && !absent; ++i)
        if (found[i] == no_slot)
          absent = true;
        else
          ++p;
    }
    if (!absent) return end;
    end = round_down(block * p, align_);
  }
  return start_;
}

// the longest aligned end whose state all members hold.
Tokens Finder::state_end(const Bundle& b, Tokens limit) const {
  Ramp ramp;
  Found found;
  for (Tokens end = round_down(std::min(limit, known_end_), align_); end > start_;) {
    const std::size_t n = ramp.next((end - start_).n / align_.n);
    const std::size_t i = first_common(b.members, end, n, found);
    end -= align_ * i;
    if (i < n) return end;
  }
  return start_;
}

// Only what was lost against an answer without the drop counts: the margin makes up for it when
// more is held.
void Finder::note_drop(Tokens before, Tokens after) {
  const Tokens without = round_down(std::min(before, cand_), align_);
  if (without > after) out_.dropped_for_drafts = std::max(out_.dropped_for_drafts, without - after);
}

Tokens Finder::find(const Bundle& b, Tokens limit, bool drop) {
  switch (b.kind) {
    case GroupKind::full: {
      if (geometry_.has_drafts()) return full_together(b, limit, drop);
      Tokens end = full_reach(b.members.front(), limit);
      for (std::size_t m = 1; m < b.members.size(); ++m)
        end = std::min(end, full_reach(b.members[m], limit));
      return std::max(round_down(end, align_), start_);
    }
    case GroupKind::sliding:
      return geometry_.has_drafts() ? window_end_with_drafts(b, limit, drop) : window_end(b, limit);
    case GroupKind::chunked:
      return chunk_end(b, limit);
    case GroupKind::state:
      return state_end(b, limit);
    case GroupKind::other:
      break;
  }
  KVC_CHECK(false && "uncached groups are in no bundle");
  return start_;
}

// R-307 when there is only one group.
void Finder::reconcile(Tokens max_tokens) {
  const std::vector<Bundle>& bundles = geometry_.bundles();
  std::array<Tokens, groups_max> full_end{};
  std::uint64_t full_done = 0;
  std::uint64_t verified = 0;
  Tokens longest = start_;
  Tokens cand = max_tokens;
  Tokens cur = cand;
  out_.attention_tokens = max_tokens;
  for (;; cand = cur) {
    cur = cand;
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      const Bundle& b = bundles[i];
      const std::uint64_t bit = std::uint64_t{1} << i;
      if ((full_done & bit) != 0) {  // attention is closed downwards: its first answer stays good
        cur = std::min(cur, full_end[i]);
        continue;
      }
      const bool drop = b.drop && (verified & bit) == 0;
      Tokens limit = cand_ = cur;
      if (drop && b.kind != GroupKind::state && geometry_.hybrid())
        limit = std::min(cur + b.margin, known_end_);
      const Tokens end = find(b, limit, drop);
      if (drop)
        verified |= bit;
      else if (end < cur)
        verified = 0;
      cur = end;
      longest = std::max(longest, cur);
      if (b.kind != GroupKind::full) continue;
      full_done |= bit;
      full_end[i] = end;
      out_.attention_tokens = std::min(out_.attention_tokens, end);
    }
    if (cur >= cand || (bundles.size() == 2 && bundles[0].kind == GroupKind::full)) break;
  }
  out_.tokens = cur;
  if (geometry_.hybrid()) out_.uncached_common_prefix = longest - cur;
  if (!geometry_.chain()) out_.attention_tokens = cur;
  if (cur > start_)
    for (const GroupId g : geometry_.cacheable()) fill(g, cur);
}

void Finder::each_alone(Tokens max_tokens) {
  out_.tokens = max_tokens;
  out_.attention_tokens = max_tokens;
  for (const Bundle& b : geometry_.bundles()) {
    Tokens limit = cand_ = max_tokens;
    if (b.drop && b.kind != GroupKind::state) limit = std::min(limit + b.margin, known_end_);
    const Tokens end = find(b, limit, b.drop);
    for (const GroupId g : b.members) {
      if (end > start_) fill(g, end);
      out_.groups[g].tokens = end;
    }
    out_.tokens = std::min(out_.tokens, end);
    if (b.kind == GroupKind::full) out_.attention_tokens = std::min(out_.attention_tokens, end);
  }
  if (!geometry_.chain()) out_.attention_tokens = out_.tokens;
}

// The group's needed set of a prefix of `end` tokens. Attention kept its own from the search; the
// others probe what they need once more.
void Finder::fill(GroupId g, Tokens end) {
  GroupHit& hit = out_.groups[g];
  const std::uint64_t stop = geometry_.end_position(g, end);
  hit.tokens = end;
  hit.first_position = std::max(low(g), geometry_.first_needed_position(g, end));
  if (geometry_.group(g).kind == GroupKind::full) return fill_full(g, end);
  hit.slots.clear();
  const Tokens block = geometry_.block_tokens(g);
  Found found;
  for (std::uint64_t p = hit.first_position; p < stop;) {
    const std::size_t n = std::min<std::uint64_t>(find_batch_keys, stop - p);
    // A state's single position may end inside its block; a window's blocks are whole.
    const Tokens first =
        geometry_.group(g).state ? geometry_.position_end(g, p, end) : block * (p + 1);
    probe(g, first, block, false, n, found);
    for (std::size_t i = 0; i < n; ++i, ++p) {
      KVC_CHECK(found[i] != no_slot);
      hit.slots.push_back(found[i]);
    }
  }
}

namespace {

// A miss at `start` with empty lists.
Code begin(const Geometry& geometry, const KeyView& keys, Tokens start, Hit& out) {
  out.start = out.tokens = out.attention_tokens = start;
  out.uncached_common_prefix = out.dropped_for_drafts = Tokens{};
  out.cost = {};
  out.groups.resize(geometry.groups());
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    GroupHit& hit = out.groups[g];
    hit.tokens = start;
    hit.clear();
    hit.first_position = geometry.end_position(g, start);
  }
  const bool good = keys.key_bytes >= key_bytes_min && keys.key_bytes <= key_bytes_max &&
                    start.n % geometry.scheduler_block().n == 0;
  return good ? Code::ok : Code::arg;
}

// Groups whose search went further than the common end were cut by fill; those of a miss are
// emptied here.
void finish(const Geometry& geometry, Hit& out) {
  for (GroupHit& hit : out.groups)
    if (hit.tokens == out.start) hit.clear();
  for (GroupId g = 0; g < geometry.groups(); ++g)
    if (!geometry.group(g).cacheable) out.groups[g].tokens = out.start;
}

}  // namespace

Code lookup(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Tokens start,
            Tokens max_tokens, Hit& out, Trust trust) {
  if (const Code c = begin(geometry, keys, start, out); c != Code::ok) return c;
  if (max_tokens > start && geometry.hash_unit() * keys.count > start) {
    Finder finder(geometry, index, keys, out, trust);
    finder.reconcile(max_tokens);
    if (finder.contradicted()) {
      return lookup(geometry, index, keys, start, max_tokens, out, Trust::nothing);
    }
  }
  finish(geometry, out);
  return Code::ok;
}

Code lookup_per_group(const Geometry& geometry, const KeyIndex& index, const KeyView& keys,
                      Tokens start, Tokens max_tokens, Hit& out, Trust trust) {
  if (const Code c = begin(geometry, keys, start, out); c != Code::ok) return c;
  if (max_tokens > start && geometry.hash_unit() * keys.count > start) {
    Finder finder(geometry, index, keys, out, trust);
    finder.each_alone(max_tokens);
    if (finder.contradicted()) {
      return lookup_per_group(geometry, index, keys, start, max_tokens, out, Trust::nothing);
    }
  }
  finish(geometry, out);
  return Code::ok;
}

}  // namespace kvc
