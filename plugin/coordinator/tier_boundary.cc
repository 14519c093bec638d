#include "plugin/coordinator/tier_boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace kvc::tier {

namespace {

constexpr std::uint64_t branch_tokens = 1'536;  // known ones that make a branch
constexpr std::uint32_t fan_of_turns = 4;       // continuations that a conversation may have
constexpr std::uint32_t rekey_every = 16;       // requests
constexpr std::uint32_t refresh_every = 256;
constexpr std::uint32_t refresh_every_early = 100;
constexpr std::uint32_t early = 2'000;  // requests
constexpr std::uint32_t uses_most = 255;
constexpr std::uint32_t lists_most = 4'096;
constexpr std::uint64_t tail_cost = 4;  // blocks that a tail costs beside its prefix

std::uint32_t use_level(std::uint32_t uses) { return uses <= 1 ? 0 : uses <= 4 ? 1 : 2; }

// A class of boundaries in the features of a class of blocks.
ClassCode code_for(BoundaryType type, std::uint32_t kind, std::uint32_t out, std::uint32_t uses) {
  const auto t = static_cast<std::uint32_t>(type);
  return {kind, out, use_level(uses), t % ClassCode::new_levels, t / ClassCode::new_levels};
}
BoundaryType type_in(const ClassCode& code) {
  return static_cast<BoundaryType>(code.part * ClassCode::new_levels + code.fresh);
}

}  // namespace

bool BoundaryPolicy::fits(const Geometry& geometry) {
  if (!geometry.chain() || geometry.has_drafts() || !geometry.hybrid()) return false;
  Tokens block;
  for (const GroupId g : geometry.cacheable()) {
    if (g == *geometry.chain()) continue;
    if (!geometry.is_state_align(g)) return false;
    if (block != Tokens{} && geometry.block_tokens(g) != block) return false;
    block = geometry.block_tokens(g);
  }
  return block != Tokens{};
}

bool BoundaryPolicy::make() {
  lists_.resize(lists_most);
  infos_.reserve(lists_most);
  infos_.resize(first_class);
  list_ids_.assign(std::size_t{ClassCode::count} * levels, 0);
  worths_.make(lists_most);
  skipped_.reserve(lists_most);
  changed_.reserve(lists_most);
  changed_at_.assign(lists_most, 0);
  // Of so many boundaries a tier is full.
  const std::uint64_t room = ctx_.slots / std::max<std::size_t>(1, ctx_.states.size());
  const std::uint64_t ghosts = std::max<std::uint64_t>(1, room + ctx_.ghosts_more);
  notes_.reserve(ctx_.open_runs);
  free_notes_.reserve(ctx_.open_runs);
  if (!Policy::make() || !ghosts_.make(ghosts) ||
      !samples_.make(ctx_.slots, ghosts, room + ghosts)) {
    return false;
  }
  survival_.make(std::max(0.5F, 8.0F / static_cast<float>(samples_.every())));
  return ctx_.slots == 0 || ctx_.open_runs == 0 ||
         notes_of_run_.size_for(ctx_.slots + ctx_.open_runs);
}

void BoundaryPolicy::opened(RunId run) {
  if (!notes_of_run_.ensure(std::uint64_t{run} + 1)) throw std::bad_alloc();
  if (notes_of_run_[run] != 0) free_notes_.push_back(notes_of_run_[run] - 1);
  notes_of_run_[run] = 0;
}

BoundaryPolicy::Notes* BoundaryPolicy::notes_of(RunId run) {
  if (run == no_run || notes_of_run_[run] == 0) return nullptr;
  return &notes_[notes_of_run_[run] - 1];
}

BoundaryPolicy::Found BoundaryPolicy::find(const std::byte* key, std::uint64_t tag,
                                           Tokens end) const {
  Found found;
  const SlotId slot = ctx_.records.find(ctx_.states.front(), key);
  if (slot != no_slot && ctx_.records[slot].end == end.n && marks_[slot].list != leftovers) {
    found.slot = slot;
  } else {
    found.ghost = ghosts_.find(tag);
  }
  return found;
}

std::span<const SlotId> BoundaryPolicy::members(const std::byte* key, Tokens end) {
  std::size_t n = 0;
  const auto add = [&](GroupId g) {
    const SlotId slot = ctx_.records.find(g, key);
    if (slot != no_slot && ctx_.records[slot].end == end.n) members_[n++] = slot;
  };
  if (end.n % ctx_.block.n != 0) add(ctx_.chain);
  for (const GroupId g : ctx_.states) add(g);
  return {members_.data(), n};
}

BoundaryType BoundaryPolicy::type_of(Tokens end, const Notes& notes) const {
  if (end.n > notes.prompt) return BoundaryType::answer;
  if (end.n == notes.tail) return BoundaryType::tail;
  if (end.n % ctx_.block.n != 0) return BoundaryType::parting;
  return std::has_single_bit(end.n / ctx_.block.n) ? BoundaryType::log_spaced : BoundaryType::block;
}

// Tokens that it serves, per slot that it takes: one block of tokens per slot is 1.
std::uint32_t BoundaryPolicy::level_of(BoundaryType type, Tokens end, const Notes& notes) const {
  if (end == Tokens{}) return 0;
  const auto x = static_cast<double>(end.n);
  const auto b = static_cast<double>(ctx_.block.n);
  double factor = x / (x + static_cast<double>(tail_cost) * b);
  if (type != BoundaryType::tail) {
    const std::uint64_t lower = notes.last < end.n ? notes.last : 0;
    factor = static_cast<double>(end.n - lower) / b / members_wanted(end);
  }
  const long level = std::lround(std::log2(factor)) + level_of_one;
  return static_cast<std::uint32_t>(std::clamp<long>(level, 0, levels - 1));
}

std::uint16_t BoundaryPolicy::list_of(const ClassCode& code, std::uint32_t level) {
  std::uint16_t& id = list_ids_[std::size_t{code.packed()} * levels + level];
  if (id != 0) return id;
  // More lists than there is room for share the last one's end: classes of which a few entries are.
  if (infos_.size() == lists_most) return static_cast<std::uint16_t>(lists_most - 1);
  infos_.push_back({survival_.id_of(code.packed()), static_cast<std::uint16_t>(level)});
  return id = static_cast<std::uint16_t>(infos_.size() - 1);
}

std::uint16_t BoundaryPolicy::new_list(Tokens end, const Notes& notes) {
  const BoundaryType type = type_of(end, notes);
  return list_of(code_for(type, notes.kind, ClassCode::running, 1), level_of(type, end, notes));
}

void BoundaryPolicy::note_end(Notes& notes, Tokens end) const {
  notes.last = std::max(notes.last, static_cast<std::uint32_t>(end.n));
  if (notes.count < notes_ends) notes.ends[notes.count++] = static_cast<std::uint32_t>(end.n);
}

void BoundaryPolicy::expose(Samples::Sample& sample) {
  survival_.expose(infos_[sample.list].cls, sample.accounted - sample.stamp, now_ - sample.stamp);
  sample.accounted = now_;
}

void BoundaryPolicy::expose(const Mark& mark, std::uint32_t where) {
  if (mark.has(Mark::sampled_bit)) expose(samples_.at(where));
}

void BoundaryPolicy::end_sample(const Mark& mark, std::uint32_t where) {
  if (!mark.has(Mark::sampled_bit)) return;
  expose(mark, where);
  samples_.end(where);
}

GhostId BoundaryPolicy::add_ghost(std::uint64_t tag, const Mark& mark) {
  if (ghosts_.size() == ghosts_.capacity()) forget_ghost(ghosts_.oldest());
  Mark plain = mark;
  plain.set(Mark::listed_bit | Mark::parked_bit, false);
  return ghosts_.insert(tag, plain);
}

void BoundaryPolicy::forget_ghost(GhostId ghost) {
  end_sample(ghosts_[ghost].mark, ghost | Samples::ghost_bit);
  ghosts_.erase(ghost);
}

void BoundaryPolicy::renew(const Found& found, std::uint16_t list, std::uint32_t stamp,
                           std::uint32_t uses) {
  const auto set = [&](Mark& mark, std::uint32_t where) {
    mark.stamp = stamp;
    mark.touches = static_cast<std::uint8_t>(uses);
    if (mark.has(Mark::sampled_bit)) samples_.at(where).renew(stamp, list);
  };
  if (found.slot == no_slot) {
    Mark& mark = ghosts_[found.ghost].mark;
    set(mark, found.ghost | Samples::ghost_bit);
    mark.list = list;
    return ghosts_.make_youngest(found.ghost);
  }
  const Tokens end{ctx_.records[found.slot].end};
  for (const SlotId slot : members(ctx_.records.key(found.slot), end)) {
    set(marks_[slot], slot);
    move_young(slot, list);
  }
}

void BoundaryPolicy::use(const Found& found, const Notes& notes) {
  const Mark mark = mark_of(found);
  const auto hit = [&](const Mark& m, std::uint32_t where) {
    if (!m.has(Mark::sampled_bit)) return;
    Samples::Sample& sample = samples_.at(where);
    survival_.hit(infos_[m.list].cls, sample.accounted - m.stamp, now_ - m.stamp);
    sample.accounted = now_;
  };
  if (found.slot == no_slot) {
    hit(mark, found.ghost | Samples::ghost_bit);
  } else {
    const Tokens end{ctx_.records[found.slot].end};
    for (const SlotId slot : members(ctx_.records.key(found.slot), end)) hit(marks_[slot], slot);
  }
  const std::uint32_t uses = std::min<std::uint32_t>(mark.touches + 1U, uses_most);
  const BoundaryType type = type_in(code_of(mark.list));
  renew(found,
        list_of(code_for(type, notes.kind, ClassCode::running, uses), infos_[mark.list].level),
        notes.request, uses);
}

void BoundaryPolicy::begin(RunId run, const KeyView& keys, Tokens prompt) {
  if (notes_of(run) != nullptr) return;
  if (free_notes_.empty()) {
    free_notes_.push_back(static_cast<std::uint32_t>(notes_.size()));
    notes_.emplace_back();
  }
  const std::uint32_t at = free_notes_.back();
  free_notes_.pop_back();
  notes_of_run_[run] = at + 1;
  Notes& notes = notes_[at] = Notes{};
  notes.request = ++now_;
  if (now_ % rekey_every == 0) rekey_all();
  notes.prompt = static_cast<std::uint32_t>(prompt.n);
  notes.used_slot = no_slot;
  Tokens tail = ctx_.geometry.prompt_tail_boundary(ctx_.states.front(), prompt);
  tail = std::min(tail, ctx_.unit * keys.count);
  notes.tail = static_cast<std::uint32_t>(tail.n);
  Found found;
  for (std::uint64_t i = tail.n / ctx_.unit.n; i > 0 && !found.known(); --i) {
    const std::uint64_t tag = tag_of(keys.at(i - 1));
    const Tokens end = ctx_.unit * i;
    if (end == tail) notes.tail_tag = tag;
    found = find(keys.at(i - 1), tag, end);
    if (!found.known()) continue;
    notes.used_tag = tag;
    notes.used = static_cast<std::uint32_t>(end.n);
    notes.used_slot = found.slot;
  }
  if (found.known()) {
    Mark& mark = mark_of(found);
    const std::uint32_t fan = mark.flags & Mark::fan_mask;
    const bool of_tail = type_in(code_of(mark.list)) <= BoundaryType::extended;
    notes.kind = notes.used == notes.tail         ? 3
                 : of_tail && fan <= fan_of_turns ? 1
                 : notes.used >= branch_tokens    ? 2
                                                  : 0;
    if (notes.used != notes.tail && fan < Mark::fan_mask) {
      if (found.slot == no_slot) {
        ++mark.flags;
      } else {
        const Tokens end{notes.used};
        for (const SlotId slot : members(ctx_.records.key(found.slot), end)) ++marks_[slot].flags;
      }
    }
    use(found, notes);
    note_end(notes, Tokens{notes.used});
  }
  if (notes.tail_tag != 0 && notes.used != notes.tail && ghosts_.find(notes.tail_tag) == no_ghost) {
    const GhostId ghost = add_ghost(notes.tail_tag, {notes.request, new_list(tail, notes), 1, 0});
    samples_.start(ghosts_[ghost].mark, notes.tail_tag, ghost | Samples::ghost_bit, now_);
  }
}

void BoundaryPolicy::extend(Notes& notes) {
  if (notes.extended != 0 || notes.used_tag == 0) return;
  notes.extended = 1;
  Found found;
  const SlotId slot = notes.used_slot;
  if (slot != no_slot && ctx_.records[slot].keyed() && ctx_.records[slot].end == notes.used &&
      marks_[slot].list >= first_class && tag_of(slot) == notes.used_tag) {
    found.slot = slot;
  } else {
    found.ghost = ghosts_.find(notes.used_tag);
  }
  if (!found.known()) return;
  const Mark mark = mark_of(found);
  ClassCode code = code_of(mark.list);
  if (mark.stamp != notes.request || type_in(code) != BoundaryType::tail) return;
  if (found.slot == no_slot) {
    expose(mark, found.ghost | Samples::ghost_bit);
  } else {
    for (const SlotId member : members(ctx_.records.key(slot), Tokens{notes.used}))
      expose(marks_[member], member);
  }
  const auto type = static_cast<std::uint32_t>(BoundaryType::extended);
  code.fresh = type % ClassCode::new_levels;
  code.part = type / ClassCode::new_levels;
  renew(found, list_of(code, infos_[mark.list].level), mark.stamp, mark.touches);
}

void BoundaryPolicy::end(RunId run, const KeyView& keys, Tokens answer) {
  Notes* notes = notes_of(run);
  if (notes == nullptr) return;
  const std::uint32_t out = out_level(answer.n);
  const auto settle = [&](Tokens end) {
    if (end.n == 0 || end.n / ctx_.unit.n > keys.count) return;
    const std::byte* key = keys.at(end.n / ctx_.unit.n - 1);
    const Found found = find(key, tag_of(key), end);
    if (!found.known()) return;
    const Mark mark = mark_of(found);
    ClassCode code = code_of(mark.list);
    if (mark.stamp != notes->request || code.out == out) return;
    if (found.slot == no_slot) {
      expose(mark, found.ghost | Samples::ghost_bit);
    } else {
      for (const SlotId slot : members(key, end)) expose(marks_[slot], slot);
    }
    code.out = out;
    renew(found, list_of(code, infos_[mark.list].level), mark.stamp, mark.touches);
  };
  for (std::uint32_t i = notes->count; i > 0; --i) settle(Tokens{notes->ends[i - 1]});
  settle(Tokens{notes->tail});
  free_notes_.push_back(notes_of_run_[run] - 1);
  notes_of_run_[run] = 0;
}

void BoundaryPolicy::reserved(SlotId slot, RunId run) {
  const Record& r = ctx_.records[slot];
  Mark& mark = marks_[slot];
  Notes* notes = notes_of(run);
  const Tokens end{r.end};
  if (is_chain(slot)) {
    mark = {now_, blocks, 1, 0};
    if (notes != nullptr) notes->declined &= 2U;
    return;
  }
  const std::byte* key = ctx_.records.key(slot);
  const std::span<const SlotId> all = members(key, end);
  for (const SlotId other : all) {
    if (other == slot || marks_[other].list == leftovers) continue;
    mark = marks_[other];
    mark.set(Mark::listed_bit | Mark::parked_bit | Mark::sampled_bit, false);
    return;
  }
  const std::uint64_t tag = tag_of(key);
  Notes nobody{};
  nobody.request = now_;
  Notes& own = notes != nullptr ? *notes : nobody;
  answers_ = answers_ || (own.prompt != 0 && end.n > own.prompt);
  if (end.n > own.used) extend(own);
  const GhostId ghost = ghosts_.find(tag);
  if (ghost != no_ghost) {
    mark = ghosts_[ghost].mark;
    if (mark.has(Mark::sampled_bit)) samples_.move(ghost | Samples::ghost_bit, slot);
    ghosts_.erase(ghost);
  } else {
    mark = {own.request, new_list(end, own), 1, 0};
    samples_.start(mark, tag, slot, now_);
  }
  note_end(own, end);
  Mark whole = mark;
  whole.set(Mark::sampled_bit, false);
  for (const SlotId other : members(key, end)) {
    if (other == slot) continue;
    marks_[other].stamp = whole.stamp;
    marks_[other].touches = whole.touches;
    move_young(other, whole.list);
  }
}

void BoundaryPolicy::break_up(SlotId slot, const Mark& mark) {
  const std::byte* key = ctx_.records.key(slot);
  const Tokens end{ctx_.records[slot].end};
  const std::uint64_t tag = tag_of(key);
  // The sample is that of any of the entries.
  SlotId sampled = mark.has(Mark::sampled_bit) ? slot : no_slot;
  const std::span<const SlotId> all = members(key, end);
  for (const SlotId other : all)
    if (marks_[other].has(Mark::sampled_bit)) sampled = other;
  if (ghosts_.find(tag) == no_ghost) {
    Mark known = mark;
    known.set(Mark::sampled_bit, sampled != no_slot);
    const GhostId ghost = add_ghost(tag, known);
    if (sampled != no_slot) samples_.move(sampled, ghost | Samples::ghost_bit);
  } else if (sampled != no_slot) {
    end_sample(sampled == slot ? mark : marks_[sampled], sampled);
  }
  for (const SlotId other : members(key, end)) {
    if (other == slot) continue;
    marks_[other].set(Mark::sampled_bit, false);
    move_young(other, leftovers);
  }
}

void BoundaryPolicy::gone(SlotId slot) {
  delist(slot);
  const Mark mark = marks_[slot];
  marks_[slot] = {};
  if (mark.touches == 0 || mark.list == leftovers || is_chain(slot)) return;
  break_up(slot, mark);
}

void BoundaryPolicy::reset() {
  Policy::reset();
  ghosts_.clear();
  samples_.clear();
}

void BoundaryPolicy::rekey(std::uint16_t id, std::uint32_t now) {
  const SlotId old = lists_[id].old;
  if (old == no_slot || id == blocks) return worths_.set(id, WorthIndex::empty);
  worths_.set(id, id == leftovers ? -1.0F : worth(id, now - marks_[old].stamp));
}

void BoundaryPolicy::rekey_changed() {
  for (const std::uint16_t id : changed_) {
    rekey(id, changed_at_[id] - 1);
    changed_at_[id] = 0;
  }
  changed_.clear();
}

void BoundaryPolicy::rekey_all() {
  rekey_changed();
  for (std::size_t id = first_class; id < infos_.size(); ++id)
    rekey(static_cast<std::uint16_t>(id), now_);
}

bool BoundaryPolicy::maintain() {
  const std::uint32_t period = now_ < early ? refresh_every_early : refresh_every;
  if (now_ - refreshed_ < period) return false;
  refreshed_ = now_;
  for (Samples::Sample& sample : samples_.all()) expose(sample);
  survival_.refresh();
  rekey_all();
  return true;
}

// Whether the newcomer, or for a block the boundary that it is stored for, is worth more than what
// the list gives up.
bool BoundaryPolicy::worth_more(std::uint16_t least, const Newcomer& newcomer, Notes* notes) {
  if (newcomer.key == nullptr || notes == nullptr || least == leftovers) return true;
  const bool block = newcomer.group == ctx_.chain && newcomer.end.n % ctx_.block.n == 0;
  const bool answer = newcomer.end.n > notes->prompt;
  bool more = block || (notes->declined & 1U) == 0;
  if (more && block && answer && !answers_) more = false;
  if (more) {
    const std::uint64_t tag = block ? (answer ? 0 : notes->tail_tag) : tag_of(newcomer.key);
    const GhostId ghost = tag == 0 ? no_ghost : ghosts_.find(tag);
    const Tokens end = block && !answer ? Tokens{notes->tail} : newcomer.end;
    const std::uint16_t list = ghost != no_ghost ? ghosts_[ghost].mark.list : new_list(end, *notes);
    more = !(worth(list, 0) < worths_.at(least));
    if (!more && !block && ghost == no_ghost) {
      const GhostId made = add_ghost(tag, {notes->request, list, 1, 0});
      samples_.start(ghosts_[made].mark, tag, made | Samples::ghost_bit, now_);
    }
  }
  if (more) return true;
  const std::uint8_t flag = answer ? 2 : 1;
  if (!block || (notes->declined & flag) == 0) ++declined_;
  if (block) notes->declined |= flag;
  return false;
}

SlotId BoundaryPolicy::victim(RunId store_run, const Newcomer& newcomer, bool& declined) {
  SlotId slot = no_slot;
  std::uint16_t list = leftovers;
  skipped_.clear();
  for (;;) {
    rekey_changed();
    const auto id =
        static_cast<std::uint16_t>(worths_.least(static_cast<std::uint32_t>(infos_.size())));
    if (worths_.at(id) == WorthIndex::empty) break;
    const SlotId old = lists_[id].old;
    const Record& r = ctx_.records[old];
    if (r.place() != Place::strand) {
      park(old);
      continue;
    }
    if (r.run() != store_run) {
      slot = old;
      list = id;
      break;
    }
    skipped_.push_back(id);
    worths_.set(id, WorthIndex::empty);
  }
  declined = slot != no_slot && !worth_more(list, newcomer, notes_of(store_run));
  for (const std::uint16_t id : skipped_) rekey(id, now_);
  if (declined) return no_slot;
  return slot != no_slot ? slot : oldest(blocks, store_run);
}

PolicyNumbers BoundaryPolicy::numbers() const {
  PolicyNumbers n;
  n.classes = survival_.used();
  n.declined = declined_;
  n.refreshes = survival_.refreshes();
  n.ghosts = ghosts_.size();
  n.requests = now_;
  n.bytes = base_bytes() + (ctx_.records.used() + ghosts_.size()) * sizeof(std::uint32_t) +
            ghosts_.bytes() + survival_.bytes() + samples_.bytes() +
            notes_.capacity() * sizeof(Notes) + list_ids_.size() * sizeof(std::uint16_t);
  return n;
}

PolicyReport BoundaryPolicy::report() const { return report_of(survival_); }

Status BoundaryPolicy::verify() const {
  if (Status s = Policy::verify(); !s.ok()) return s;
  if (!ghosts_.verify()) return {Code::internal, "the ghost list is broken"};
  std::uint64_t sampled = 0;
  for (SlotId slot = 0; slot < ctx_.records.used(); ++slot) {
    const Record& r = ctx_.records[slot];
    const Mark& m = marks_[slot];
    if (r.keyed() != (m.touches != 0))
      return {Code::internal, fmt::format("slot {} is keyed and unknown, or the reverse", slot)};
    if (m.touches == 0) continue;
    if (m.stamp > now_ || m.list >= infos_.size() || (m.list == blocks) != is_chain(slot))
      return {Code::internal, fmt::format("slot {} is in no list of its kind", slot)};
    sampled += m.has(Mark::sampled_bit) ? 1 : 0;
    if (!samples_.agrees(m, slot))
      return {Code::internal, fmt::format("slot {} has a wrong sample", slot)};
    if (m.list == blocks) continue;
    std::uint32_t together = 0;
    for (GroupId g = 0; g < groups_max; ++g) {
      const bool own = g == ctx_.chain ? r.end % ctx_.block.n != 0
                                       : std::find(ctx_.states.begin(), ctx_.states.end(), g) !=
                                             ctx_.states.end();
      const SlotId other = own ? ctx_.records.find(g, ctx_.records.key(slot)) : no_slot;
      if (other == no_slot || ctx_.records[other].end != r.end) continue;
      ++together;
      if (marks_[other].list != m.list || marks_[other].stamp != m.stamp ||
          marks_[other].touches != m.touches)
        return {Code::internal,
                fmt::format("slots {} and {} are of one boundary and differ", slot, other)};
    }
    if (m.list == leftovers && together == members_wanted(Tokens{r.end}))
      return {Code::internal, fmt::format("slot {} is left over by a whole boundary", slot)};
  }
  for (GhostId g = ghosts_.oldest(); g != no_ghost; g = ghosts_[g].younger - 1) {
    const Mark& m = ghosts_[g].mark;
    sampled += m.has(Mark::sampled_bit) ? 1 : 0;
    if (!samples_.agrees(m, g | Samples::ghost_bit))
      return {Code::internal, fmt::format("ghost {} has a wrong sample", g)};
  }
  if (sampled != samples_.size())
    return {Code::internal, fmt::format("{} boundaries are sampled, {} samples are kept", sampled,
                                        samples_.size())};
  return {};
}

}  // namespace kvc::tier
