#include "plugin/coordinator/lookup.h"

#include <algorithm>
#include <array>
#include <span>

namespace kvc {
namespace {

// Keys that one round of a search in a closed run asks for. Four in one prefetched batch take
// little longer than one, and leave a fifth of the run: fewer rounds and fewer probes than
// galloping and halving (docs/adr/0008).
constexpr std::uint64_t cuts = 4;

// Batch sizes of a downward search: the common case is met at the top, so it begins small.
class Ramp {
 public:
  [[nodiscard]] std::size_t next(std::uint64_t left) {
    const std::size_t n = std::min<std::uint64_t>(size_, left);
    size_ = std::min(size_ * 2, find_batch_keys);
    return n;
  }

 private:
  std::size_t size_ = 4;
};

// One lookup. All ends and positions are absolute; positions below start / B belong to the device.
class Finder {
 public:
  Finder(const Geometry& geometry, const KeyIndex& index, const KeyView& keys, Hit& out)
      : geometry_(geometry),
        index_(index),
        keys_(keys),
        out_(out),
        start_(out.start),
        known_end_(geometry.hash_unit() * keys.count),
        align_(geometry.hit_alignment()),
        h_(geometry.hash_unit()) {}

  void reconcile(Tokens max_tokens);
  void each_alone(Tokens max_tokens);

 private:
  using Found = std::array<SlotId, find_batch_keys>;
  using Members = std::span<const GroupId>;

  [[nodiscard]] std::uint64_t low(GroupId g) const {
    return start_.n / geometry_.block_tokens(g).n;
  }
  // Slots of `count` <= find_batch_keys ends, from `end` on in steps of `step` tokens downwards or
  // upwards.
  void probe(GroupId g, Tokens end, Tokens step, bool down, std::size_t count, Found& found) const {
    const auto stride = static_cast<std::ptrdiff_t>(step.n / h_.n * keys_.key_bytes);
    out_.cost.probes += count;
    index_.find_batch(g, {block_key(keys_, end, h_), down ? -stride : stride, count},
                      {found.data(), count});
  }
  // As probe, for all members: entry i stays a slot (the first member's) only when every member has
  // it.
  void probe_all(Members members, Tokens end, Tokens step, bool down, std::size_t count,
                 Found& found) const;

  // As probe_all, but for the first entry only: how many entries precede the first one that every
  // member holds; `count` if none does. One member is asked first, the others only on a match.
  [[nodiscard]] std::size_t first_common(Members members, Tokens end, std::size_t count,
                                         Found& found) const;
  [[nodiscard]] SlotId probe_one(GroupId g, Tokens end) const {
    ++out_.cost.probes;
    return index_.find(g, block_key(keys_, end, h_));
  }

  [[nodiscard]] Tokens find(const Bundle& b, Tokens limit, bool drop);
  std::uint64_t full_run(GroupId g, std::uint64_t position_end);
  [[nodiscard]] std::uint64_t walked_run(GroupId g, std::uint64_t position_end,
                                         std::vector<SlotId>* slots);
  void closed_run(GroupId g, std::uint64_t position_end);
  void know_deepest(GroupId g);
  void end_inside(GroupId g, Tokens end, SlotId slot);
  [[nodiscard]] std::uint64_t tails_behind(GroupId g, std::uint64_t position);
  [[nodiscard]] Tokens full_reach(GroupId g, Tokens limit);
  [[nodiscard]] Tokens full_together(const Bundle& b, Tokens limit, bool drop);
  [[nodiscard]] Tokens best_tail(Members members, std::uint64_t position, Tokens top);
  std::uint64_t tail_of_one(GroupId g, Tokens from, Tokens first, std::uint64_t possible);
  [[nodiscard]] Tokens window_end(const Bundle& b, Tokens limit) const;
  [[nodiscard]] Tokens window_end_with_drafts(const Bundle& b, Tokens limit, bool drop);
  [[nodiscard]] Tokens chunk_end(const Bundle& b, Tokens limit) const;
  [[nodiscard]] Tokens state_end(const Bundle& b, Tokens limit) const;
  void note_drop(Tokens before, Tokens after);
  void fill(GroupId g, Tokens end);
  void fill_full(GroupId g, Tokens end);

  const Geometry& geometry_;
  const KeyIndex& index_;
  const KeyView& keys_;
  Hit& out_;
  Tokens start_;
  Tokens known_end_;
  Tokens align_;
  Tokens h_;
  Tokens cand_;  // longest answer the search at hand may give
};

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

// The position behind the last of the present ones that follow each other from `low` on (R-302
// step 1); their slots are appended to `slots` if it is given.
std::uint64_t Finder::walked_run(GroupId g, std::uint64_t position_end,
                                 std::vector<SlotId>* slots) {
  const Tokens block = geometry_.block_tokens(g);
  Found found;
  for (std::uint64_t p = low(g); p < position_end;) {
    const std::size_t n = std::min<std::uint64_t>(find_batch_keys, position_end - p);
    probe(g, block * (p + 1), block, false, n, found);
    for (std::size_t i = 0; i < n; ++i, ++p) {
      if (found[i] == no_slot) return p;
      if (slots != nullptr) slots->push_back(found[i]);
    }
  }
  return std::max(position_end, low(g));
}

// The same run where presence is monotone. The first and the last position are asked first: they
// settle a miss and a full hit. What is not known between a present and an absent one is then cut
// in five until nothing is left.
void Finder::closed_run(GroupId g, std::uint64_t position_end) {
  GroupHit& hit = out_.groups[g];
  const std::uint64_t n = position_end - low(g);
  const Tokens block = geometry_.block_tokens(g);
  const Tokens from = block * low(g);  // entry number k of the run ends at from + k * block
  Found found;
  probe(g, from + block, block * std::max<std::uint64_t>(n - 1, 1), false, n == 1 ? 1 : 2, found);
  if (found[0] == no_slot) return;
  hit.whole = 1;
  hit.deepest = found[0];
  if (n == 1) return;
  if (found[1] != no_slot) {
    hit.whole = n;
    hit.deepest = found[1];
    return;
  }
  for (std::uint64_t absent = n; absent - hit.whole > 1;) {
    const std::uint64_t unknown = absent - hit.whole - 1;
    const std::uint64_t step = (unknown + 1 + cuts) / (cuts + 1);
    const std::size_t count = std::min(cuts, unknown / step);
    const std::uint64_t base = hit.whole;
    probe(g, from + block * (base + step), block * step, false, count, found);
    for (std::size_t i = 0; i < count; ++i) {
      if (found[i] == no_slot) {
        absent = base + step * (i + 1);
        break;
      }
      hit.whole = base + step * (i + 1);
      hit.deepest = found[i];
    }
  }
}

// Searches the group's run of present positions [low, position_end) and leaves it in its hit;
// returns the position behind it.
std::uint64_t Finder::full_run(GroupId g, std::uint64_t position_end) {
  GroupHit& hit = out_.groups[g];
  hit.clear();
  hit.first_position = low(g);
  hit.brief = index_.prefix_closed(g);
  if (position_end <= low(g)) return low(g);
  if (!hit.brief) {
    ++out_.cost.linear_walks;
    return walked_run(g, position_end, &hit.slots);
  }
  ++out_.cost.bisections;
  closed_run(g, position_end);
#if defined(KVC_SANITIZED)
  const LookupCost cost = out_.cost;
  KVC_CHECK(walked_run(g, position_end, nullptr) == hit.list_length());
  out_.cost = cost;
#endif
  return hit.list_length();
}

// A brief hit that was cut back does not know the slot that is its last one now.
void Finder::know_deepest(GroupId g) {
  GroupHit& hit = out_.groups[g];
  if (!hit.brief || hit.whole == 0 || hit.deepest != no_slot) return;
  hit.deepest = probe_one(g, geometry_.block_tokens(g) * (hit.first_position + hit.whole));
  KVC_CHECK(hit.deepest != no_slot);
}

// The hit of an attention group goes on inside the entry in `slot`, whose key covers `end` tokens.
void Finder::end_inside(GroupId g, Tokens end, SlotId slot) {
  GroupHit& hit = out_.groups[g];
  if (hit.brief) {
    hit.inside = slot;
    hit.inside_end = end;
  } else {
    hit.slots.push_back(slot);
  }
}

// KeyIndex::tail_offsets for the block at `position`, which follows the group's run.
std::uint64_t Finder::tails_behind(GroupId g, std::uint64_t position) {
  const std::uint64_t anywhere = ~std::uint64_t{0};
  GroupHit& hit = out_.groups[g];
  if (!hit.brief) return anywhere;
  if (position == 0) return index_.tail_offsets(g, no_slot);
  if (position > low(g)) {
    know_deepest(g);
    return index_.tail_offsets(g, hit.deepest);
  }
  // The device has what is before; whether the index has it too, nobody asked yet.
  const SlotId base = probe_one(g, geometry_.block_tokens(g) * position);
  return base == no_slot ? anywhere : index_.tail_offsets(g, base);
}

// The hash unit at which the group's highest tail in (from, first] ends, counted from `from`, its
// slot noted; 0 if there is none. The highest are asked first, then all others at once.
std::uint64_t Finder::tail_of_one(GroupId g, Tokens from, Tokens first, std::uint64_t possible) {
  constexpr std::size_t at_first = 8;
  constexpr std::size_t at_once = 128;
  const std::uint64_t units = geometry_.block_tokens(g).n / align_.n;
  std::array<const std::byte*, at_once> keys;
  std::array<std::uint32_t, at_once> ends;
  std::array<SlotId, at_once> found;
  std::size_t most = at_first;
  for (std::uint64_t left = possible == 0 ? 0 : (first - from).n / align_.n; left > 0;) {
    std::size_t n = 0;
    for (; left > 0 && n < most; --left) {
      if ((possible >> tail_offset_bit(left - 1, units) & 1) == 0) continue;
      keys[n] = block_key(keys_, from + align_ * left, h_);
      ends[n++] = static_cast<std::uint32_t>(left);
    }
    index_.find_each(g, {keys.data(), n}, {found.data(), n});
    out_.cost.probes += n;
    for (std::size_t i = 0; i < n; ++i) {
      if (found[i] == no_slot) continue;
      end_inside(g, from + align_ * ends[i], found[i]);
      return ends[i];
    }
    most = at_once;
  }
  return 0;
}

// R-302 step 2: the highest tail at or below `top` inside the block at `position` that every member
// holds, its slots given to the hits; the block's start if there is none. Boundaries at which the
// index rules tails out are not asked for.
Tokens Finder::best_tail(Members members, std::uint64_t position, Tokens top) {
  const Tokens block = geometry_.block_tokens(members.front());
  const Tokens from = block * position;
  if (!geometry_.fine_hits() || block <= align_) return from;
  const Tokens first = round_down(std::min({from + block - align_, top, known_end_}), align_);
  if (first <= from) return from;
  const std::uint64_t possible = tails_behind(members.front(), position);
  const std::uint64_t units = block.n / align_.n;
  const auto may_be = [&](std::uint64_t i) {
    return (possible >> tail_offset_bit(i, units) & 1) != 0;
  };
  if (members.size() == 1)
    return from + align_ * tail_of_one(members.front(), from, first, possible);
  Ramp ramp;
  Found found;
  for (std::uint64_t left = possible == 0 ? 0 : (first - from).n / align_.n; left > 0;) {
    if (!may_be(left - 1)) {
      --left;
      continue;
    }
    std::size_t n = 1;
    for (const std::size_t most = ramp.next(left); n < most && may_be(left - 1 - n);) ++n;
    const Tokens end = from + align_ * left;
    const std::size_t i = first_common(members, end, n, found);
    if (i < n) {
      const Tokens tail = end - align_ * i;
      end_inside(members.front(), tail, found[i]);
      for (const GroupId g : members.subspan(1)) end_inside(g, tail, probe_one(g, tail));
      return tail;
    }
    left -= n;
  }
  return from;
}

// The longest prefix up to `limit` that one attention group serves. What ends behind the limit
// serves its inside: the next block, or a tail in it.
Tokens Finder::full_reach(GroupId g, Tokens limit) {
  const Tokens block = geometry_.block_tokens(g);
  const std::uint64_t n = full_run(g, std::min(limit, known_end_).n / block.n);
  const Tokens inside = round_down(limit, align_);
  if (inside <= block * n) return block * n;
  if (block * (n + 1) <= known_end_ && block * (n + 1) > limit) {
    const SlotId next = probe_one(g, block * (n + 1));
    if (next != no_slot) {
      end_inside(g, block * (n + 1), next);
      return inside;
    }
  }
  return std::min(best_tail({&g, 1}, n, known_end_), inside);
}

// R-302 as it stands for a bundle in a layout with draft groups: present means present in every
// member.
Tokens Finder::full_together(const Bundle& b, Tokens limit, bool drop) {
  const Tokens block = geometry_.block_tokens(b.members.front());
  std::uint64_t n = std::min(limit, known_end_).n / block.n;
  for (const GroupId g : b.members) n = full_run(g, n);
  for (const GroupId g : b.members) out_.groups[g].keep(n - low(g));
  const Tokens before = best_tail(b.members, n, limit);
  if (!drop || before <= start_) return std::max(round_down(before, align_), start_);
  const Tokens after = std::max(round_down(before - std::min(align_, block), align_), start_);
  note_drop(before, after);
  return after;
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
  for (std::uint64_t next = end.n / block.n;
       end > start_;) {  // positions below `next` are not decided
    if (next <= std::max(lo, geometry_.first_needed_position(g, end))) return end;
    const std::uint64_t p = next - 1;
    if (p >= batch_top || p < batch_top - batch_size) {
      batch_top = next;
      batch_size = ramp.next(next - lo);
      probe_all(b.members, block * next, block, true, batch_size, found);
    }
    if (found[batch_top - 1 - p] != no_slot) {
      next = p;
    } else {
      end = round_down(block * p, align_);
      next = end.n / block.n;
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
  if (!drop || end <= lo) return block * end;
  const Tokens before = block * end;
  do --end;
  while (end > lo && !aligned(end));
  note_drop(before, block * end);
  return block * end;
}

// R-304, with the absolute chunk (CW-1) and for any alignment: the longest aligned end of which all
// members hold the blocks since its chunk began.
Tokens Finder::chunk_end(const Bundle& b, Tokens limit) const {
  const GroupId g = b.members.front();
  const Tokens block = geometry_.block_tokens(g);
  Tokens end = round_down(std::min(limit, known_end_), align_);
  Found found;
  while (end > start_) {
    const std::uint64_t stop = end.n / block.n;
    std::uint64_t p = std::max(low(g), geometry_.first_needed_position(g, end));
    bool absent = false;
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

// The needed set of a prefix of `end` tokens of an attention group, from what its search left.
void Finder::fill_full(GroupId g, Tokens end) {
  GroupHit& hit = out_.groups[g];
  const Tokens block = geometry_.block_tokens(g);
  const std::uint64_t stop = geometry_.end_position(g, end);
  KVC_CHECK(hit.count() >= stop - hit.first_position);
  hit.keep(stop - hit.first_position);
  if (!hit.brief) return;
  if (end.n % block.n != 0 && hit.inside == no_slot) {
    // The hit ends inside a whole block of the run.
    know_deepest(g);
    const SlotId slot = hit.deepest;
    hit.keep(hit.whole - 1);
    end_inside(g, block * stop, slot);
  }
  know_deepest(g);
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
    // Only a state's single position may end inside its block.
    probe(g, geometry_.position_end(g, p, end), block, false, n, found);
    for (std::size_t i = 0; i < n; ++i, ++p) {
      KVC_CHECK(found[i] != no_slot);
      hit.slots.push_back(found[i]);
    }
  }
}

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
            Tokens max_tokens, Hit& out) {
  if (const Code c = begin(geometry, keys, start, out); c != Code::ok) return c;
  if (max_tokens > start && geometry.hash_unit() * keys.count > start)
    Finder(geometry, index, keys, out).reconcile(max_tokens);
  finish(geometry, out);
  return Code::ok;
}

Code lookup_per_group(const Geometry& geometry, const KeyIndex& index, const KeyView& keys,
                      Tokens start, Tokens max_tokens, Hit& out) {
  if (const Code c = begin(geometry, keys, start, out); c != Code::ok) return c;
  if (max_tokens > start && geometry.hash_unit() * keys.count > start)
    Finder(geometry, index, keys, out).each_alone(max_tokens);
  finish(geometry, out);
  return Code::ok;
}

}  // namespace kvc
