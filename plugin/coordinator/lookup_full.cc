// The searches of full attention: runs, tails, and what of them a hit keeps.
#include "plugin/coordinator/finder.h"

namespace kvc {
namespace {

// Keys that one round of a search in a closed run asks for. Four in one prefetched batch take
// little longer than one, and leave a fifth of the run: fewer rounds and fewer probes than
// galloping and halving (docs/adr/0008).
constexpr std::uint64_t cuts = 4;

}  // namespace

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
  hit.brief = trust_ == Trust::promises && index_.prefix_closed(g);
  if (position_end <= low(g)) return low(g);
  if (!hit.brief) {
    ++out_.cost.linear_walks;
    return walked_run(g, position_end, &hit.slots);
  }
  ++out_.cost.bisections;
  closed_run(g, position_end);
#if defined(KVC_SANITIZED)
  const LookupCost cost = out_.cost;
  const std::uint64_t walked = walked_run(g, position_end, nullptr);
  if (walked != hit.list_length()) {
    const std::uint64_t end = std::max(walked, hit.list_length());
    KVC_CHECK(!index_.keys_follow(g, block_keys(geometry_, keys_, g, low(g), end - low(g))));
    contradicted_ = true;
  }
  out_.cost = cost;
#endif
  return hit.list_length();
}

// A brief hit that was cut back does not know the slot that is its last one now.
void Finder::know_deepest(GroupId g) {
  GroupHit& hit = out_.groups[g];
  if (!hit.brief || hit.whole == 0 || hit.deepest != no_slot) return;
  hit.deepest = probe_one(g, geometry_.block_tokens(g) * (hit.first_position + hit.whole));
  contradicted_ = contradicted_ || hit.deepest == no_slot;
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

// The group's highest tail at one of `ends`, its slot noted; their `from` if there is none. The
// highest are asked first, then all others at once.
Tokens Finder::tail_of_one(GroupId g, const TailEnds& ends) {
  constexpr std::size_t at_first = 8;
  constexpr std::size_t at_once = 128;
  std::array<const std::byte*, at_once> keys;
  std::array<Tokens, at_once> asked;
  std::array<SlotId, at_once> found;
  std::size_t most = at_first;
  for (std::uint64_t left = ends.count; left > 0;) {
    std::size_t n = 0;
    for (; left > 0 && n < most; --left) {
      if (!ends.may_be(left)) continue;
      keys[n] = block_key(keys_, ends.at(left), h_);
      asked[n++] = ends.at(left);
    }
    index_.find_each(g, {keys.data(), n}, {found.data(), n});
    out_.cost.probes += n;
    for (std::size_t i = 0; i < n; ++i) {
      if (found[i] == no_slot) continue;
      end_inside(g, asked[i], found[i]);
      return asked[i];
    }
    most = at_once;
  }
  return ends.from;
}

// R-302 step 2: the highest tail at or below `top` inside the block at `position` that every member
// holds, its slots given to the hits; the block's start if there is none. Boundaries at which the
// index rules tails out are not asked for.
Tokens Finder::best_tail(Members members, std::uint64_t position, Tokens top) {
  const Tokens block = geometry_.block_tokens(members.front());
  TailEnds ends;
  ends.from = block * position;
  if (!geometry_.keeps_tails()) return ends.from;
  // A chunk may begin between two possible ends.
  ends.base = round_down(ends.from, align_);
  ends.step = align_;
  const Tokens last = ends.from + block - Tokens{1};
  const Tokens first = round_down(std::min({last, top, known_end_}), align_);
  if (first <= ends.from) return ends.from;
  ends.possible = tails_behind(members.front(), position);
  if (ends.possible == 0) return ends.from;
  ends.step_units = align_.n / h_.n;
  ends.lead_units = (ends.from - ends.base).n / h_.n;
  ends.units = block.n / h_.n;
  ends.count = (first - ends.base).n / align_.n;
  if (members.size() == 1) return tail_of_one(members.front(), ends);
  Ramp ramp;
  Found found;
  for (std::uint64_t left = ends.count; left > 0;) {
    if (!ends.may_be(left)) {
      --left;
      continue;
    }
    std::size_t n = 1;
    for (const std::size_t most = ramp.next(left); n < most && ends.may_be(left - n);) ++n;
    const std::size_t i = first_common(members, ends.at(left), n, found);
    if (i < n) {
      const Tokens tail = ends.at(left - i);
      end_inside(members.front(), tail, found[i]);
      for (const GroupId g : members.subspan(1)) end_inside(g, tail, probe_one(g, tail));
      return tail;
    }
    left -= n;
  }
  return ends.from;
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

// In a tier with chunks: the aligned limit if every member holds the whole chunk at `position`,
// which ends behind it; else 0. With blocks as they are the rules R-302 look at no block behind the
// limit.
Tokens Finder::inside_next_chunk(Members members, std::uint64_t position, Tokens limit) {
  const Tokens end = geometry_.block_tokens(members.front()) * (position + 1);
  const Tokens inside = round_down(limit, align_);
  if (geometry_.blocks_per_chunk(members.front()) == 1 || end > known_end_ || end <= limit ||
      inside <= geometry_.block_tokens(members.front()) * position) {
    return {};
  }
  const auto held = [&](GroupId g) { return probe_one(g, end) != no_slot; };
  if (!std::all_of(members.begin(), members.end(), held)) return {};
  for (const GroupId g : members) end_inside(g, end, probe_one(g, end));
  return inside;
}

// R-302 as it stands for a bundle in a layout with draft groups: present means present in every
// member.
Tokens Finder::full_together(const Bundle& b, Tokens limit, bool drop) {
  const Tokens block = geometry_.block_tokens(b.members.front());
  std::uint64_t n = std::min(limit, known_end_).n / block.n;
  for (const GroupId g : b.members) n = full_run(g, n);
  for (const GroupId g : b.members) out_.groups[g].keep(n - low(g));
  Tokens before = inside_next_chunk(b.members, n, limit);
  if (before == Tokens{}) before = best_tail(b.members, n, limit);
  if (!drop || before <= start_) return std::max(round_down(before, align_), start_);
  const Tokens after = std::max(round_down(before - std::min(align_, block), align_), start_);
  note_drop(before, after);
  return after;
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

}  // namespace kvc
