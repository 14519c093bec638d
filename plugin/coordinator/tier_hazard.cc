#include "plugin/coordinator/tier_hazard.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc::tier {

namespace {

constexpr std::uint64_t branch_tokens = 1'536;  // known ones that make a branch
constexpr std::uint32_t fan_most = Mark::fan_mask;
constexpr std::uint32_t fan_of_turns = 4;  // continuations that a conversation may have
constexpr std::uint32_t rekey_every = 16;  // requests
constexpr std::uint32_t refresh_every = 256;
constexpr std::uint32_t refresh_every_early = 100;
constexpr std::uint32_t early = 2'000;  // requests
constexpr std::uint32_t touches_most = 255;
constexpr std::size_t ahead = 8;                        // blocks of a path
constexpr std::uint8_t counted_bit = Mark::parked_bit;  // of a ghost: its refusal was counted

constexpr std::uint32_t part_prompt = 0;
constexpr std::uint32_t part_dependent = 1;
constexpr std::uint32_t part_answer = 2;

void set_fan(Mark& mark) {
  const std::uint32_t fan = mark.flags & Mark::fan_mask;
  if (fan < fan_most) ++mark.flags;
}

}  // namespace

bool HazardPolicy::make() {
  lists_.resize(ClassCode::count);
  worths_.make(ClassCode::count);
  skipped_.reserve(ClassCode::count);
  changed_.reserve(ClassCode::count);
  changed_at_.assign(ClassCode::count, 0);
  tags_.reserve(ctx_.path_max);
  const std::uint64_t ghosts = std::max<std::uint64_t>(1, ctx_.slots + ctx_.ghosts_more);
  if (!Policy::make() || !ghosts_.make(ghosts) ||
      !samples_.make(ctx_.slots, ghosts, ctx_.slots + ghosts)) {
    return false;
  }
  survival_.make(std::max(0.5F, 8.0F / static_cast<float>(samples_.every())));
  return ctx_.slots == 0 || ctx_.open_runs == 0 || runs_.size_for(ctx_.slots + ctx_.open_runs);
}

void HazardPolicy::opened(RunId run) {
  if (!runs_.ensure(std::uint64_t{run} + 1)) throw std::bad_alloc();
  runs_[run] = RunMark{};
}

void HazardPolicy::find_tags(const KeyView& keys, std::span<const SlotId> path) {
  tags_.resize(path.size());
  for (std::uint64_t i = path.size(); i > 0 && path[i - 1] == no_slot; --i)
    tags_[i - 1] = tag_of(key_of(keys, i - 1));
}

HazardPolicy::Known HazardPolicy::known_part(std::span<const SlotId> path) {
  Known known;
  while (known.blocks < path.size() && path[known.blocks] != no_slot) ++known.blocks;
  if (known.blocks > 0) known.last = &marks_[path[known.blocks - 1]];
  const std::uint64_t first = known.blocks;
  for (std::uint64_t i = first; i < path.size() && i < first + ahead; ++i)
    ghosts_.expect_find(tags_[i]);
  for (; known.blocks < path.size(); ++known.blocks) {
    if (known.blocks + ahead < path.size()) ghosts_.expect_find(tags_[known.blocks + ahead]);
    const GhostId ghost = ghosts_.find(tags_[known.blocks]);
    if (ghost == no_ghost) break;
    known.last = &ghosts_[ghost].mark;
  }
  return known;
}

template <class Visit>
void HazardPolicy::visit_back(std::span<const SlotId> path, const Visit& visit) {
  const std::uint64_t count = path.size();
  for (std::uint64_t i = count; i > 0 && i + 2 * ahead > count; --i) expect_block(path, i - 1);
  for (std::uint64_t i = count; i > 0 && i + ahead > count; --i) expect_ghost(path, i - 1);
  for (std::uint64_t i = count; i > 0; --i) {
    if (i > 2 * ahead) expect_block(path, i - 1 - 2 * ahead);
    if (i > ahead) expect_ghost(path, i - 1 - ahead);
    visit(i - 1);
  }
  move_queued();
}

void HazardPolicy::classify(RunMark& run, const Known& known, std::uint64_t blocks,
                            Tokens prompt) const {
  const Tokens head = ctx_.block * known.blocks;
  run.prompt = static_cast<std::uint32_t>((ctx_.block * blocks).n);
  run.fresh = static_cast<std::uint8_t>(new_level(prompt.n - std::min(prompt, head).n));
  if (head == prompt) {
    run.kind = 3;
  } else if (known.last != nullptr && known.last->has(Mark::end_bit) &&
             (known.last->flags & Mark::fan_mask) <= fan_of_turns) {
    run.kind = 1;
  } else {
    run.kind = head.n >= branch_tokens ? 2 : 0;
  }
}

ClassId HazardPolicy::class_of(const RunMark& run, std::uint32_t out, std::uint8_t touches,
                               std::uint32_t part) {
  const ClassCode code{run.kind, out, touch_level(touches), run.fresh, part};
  return survival_.id_of(code.packed());
}

std::uint32_t HazardPolicy::part_of(bool of_chain, Tokens end, const RunMark& run) const {
  if (!of_chain) return part_dependent;
  return end.n <= run.prompt ? part_prompt : part_answer;
}

// Entries of several groups share a key; those of the chain have its plain tag.
std::uint64_t HazardPolicy::tag_of_entry(GroupId group, Tokens end, const std::byte* key) const {
  const std::uint64_t tag = tag_of(key);
  if (chain_block(group, end)) return tag;
  const std::uint64_t mixed = (tag ^ (group + 1)) * 0xd6e8feb86659fd93U;
  return mixed == 0 ? 1 : mixed;
}

void HazardPolicy::expose(Samples::Sample& sample) {
  survival_.expose(sample.list, sample.accounted - sample.stamp, now_ - sample.stamp);
  sample.accounted = now_;
}

void HazardPolicy::end_sample(const Mark& mark, std::uint32_t where) {
  if (!mark.has(Mark::sampled_bit)) return;
  expose(samples_.at(where));
  samples_.end(where);
}

ClassId HazardPolicy::use(Mark& mark, std::uint32_t where, const RunMark& run, std::uint32_t part) {
  mark.touches =
      static_cast<std::uint8_t>(std::min<std::uint32_t>(mark.touches + 1U, touches_most));
  const std::uint32_t stamp = stamp_of(run);
  const ClassId id = class_of(run, ClassCode::running, mark.touches, part);
  if (mark.has(Mark::sampled_bit)) {
    Samples::Sample& sample = samples_.at(where);
    survival_.hit(mark.list, sample.accounted - mark.stamp, now_ - mark.stamp);
    sample.accounted = now_;
    sample.renew(stamp, id);
  }
  mark.stamp = stamp;
  return id;
}

GhostId HazardPolicy::add_ghost(std::uint64_t tag, const Mark& mark) {
  if (ghosts_.size() < ghosts_.capacity()) return ghosts_.insert(tag, mark);
  forget_ghost(ghosts_.oldest());
  const GhostId ghost = ghosts_.insert(tag, mark);
  ghosts_.expect_erase_oldest();
  return ghost;
}

void HazardPolicy::forget_ghost(GhostId ghost) {
  end_sample(ghosts_[ghost].mark, ghost | Samples::ghost_bit);
  ghosts_.erase(ghost);
}

// A block of a prompt that is not here: from now on at least a ghost.
void HazardPolicy::use_ghost(std::uint64_t tag, const RunMark& run, bool last) {
  GhostId ghost = ghosts_.find(tag);
  if (ghost != no_ghost) {
    Mark& mark = ghosts_[ghost].mark;
    mark.list = use(mark, ghost | Samples::ghost_bit, run, part_prompt);
    mark.set(counted_bit, false);
    ghosts_.make_youngest(ghost);
  } else {
    const ClassId id = class_of(run, ClassCode::running, 1, part_prompt);
    ghost = add_ghost(tag, {stamp_of(run), id, 1, 0});
    samples_.start(ghosts_[ghost].mark, tag, ghost | Samples::ghost_bit, now_);
  }
  if (last) ghosts_[ghost].mark.set(Mark::end_bit, true);
}

void HazardPolicy::begin(RunId run_id, const KeyView& keys, Tokens prompt) {
  RunMark& run = runs_[run_id];
  if (run.request != 0) return;
  run.request = ++now_;
  if (now_ % rekey_every == 0) rekey_all();
  const std::uint64_t count = blocks_of(keys, prompt);
  const std::span<const SlotId> path = find_path(keys, count);
  find_tags(keys, path);
  const Known known = known_part(path);
  classify(run, known, count, prompt);
  if (known.last != nullptr && ctx_.block * known.blocks < prompt) set_fan(*known.last);
  visit_back(path, [&](std::uint64_t position) {
    const SlotId slot = path[position];
    const bool last = position + 1 == count;
    if (slot == no_slot) return use_ghost(tags_[position], run, last);
    Mark& mark = marks_[slot];
    const ClassId id = use(mark, slot, run, part_prompt);
    if (last) mark.set(Mark::end_bit, true);
    queue_young(slot, id);
  });
}

void HazardPolicy::settle(std::uint64_t tag, SlotId slot, const RunMark& run, std::uint32_t out,
                          std::uint32_t part, bool last) {
  Mark* mark = nullptr;
  std::uint32_t where = slot;
  if (slot != no_slot) {
    mark = &marks_[slot];
  } else if (const GhostId ghost = ghosts_.find(tag); ghost != no_ghost) {
    mark = &ghosts_[ghost].mark;
    where = ghost | Samples::ghost_bit;
  }
  if (mark == nullptr) return;
  if (last) mark->set(Mark::end_bit, true);
  if (mark->stamp != run.request) return;
  const ClassId id = class_of(run, out, mark->touches, part);
  if (mark->has(Mark::sampled_bit)) {
    Samples::Sample& sample = samples_.at(where);
    expose(sample);
    sample.renew(mark->stamp, id);
  }
  if (slot == no_slot) {
    mark->list = id;
  } else {
    queue_young(slot, id);
  }
}

void HazardPolicy::end(RunId run_id, const KeyView& keys, Tokens answer) {
  const RunMark& run = runs_[run_id];
  if (run.request == 0) return;
  const std::uint64_t count = blocks_of(keys, Tokens{UINT64_MAX});
  const std::span<const SlotId> path = find_path(keys, count, run.last1 - 1);
  find_tags(keys, path);
  const std::uint32_t out = out_level(answer.n);
  visit_back(path, [&](std::uint64_t position) {
    settle(tags_[position], path[position], run, out,
           part_of(true, ctx_.block * (position + 1), run), position + 1 == count);
  });
}

void HazardPolicy::reserved(SlotId slot, RunId run_id) {
  const Record& r = ctx_.records[slot];
  RunMark& run = runs_[run_id];
  run.last1 = slot + 1;
  const bool of_chain = is_chain(slot);
  const std::uint64_t tag = tag_of_entry(r.group(), Tokens{r.end}, ctx_.records.key(slot));
  const std::uint32_t part = part_of(of_chain, Tokens{r.end}, run);
  Mark& mark = marks_[slot];
  const GhostId ghost = of_chain ? ghosts_.find(tag) : no_ghost;
  if (ghost == no_ghost) {
    mark = {stamp_of(run), class_of(run, ClassCode::running, 1, part), 1, 0};
    samples_.start(mark, tag, slot, now_);
    return;
  }
  mark = ghosts_[ghost].mark;
  mark.set(counted_bit, false);
  if (mark.has(Mark::sampled_bit)) samples_.move(ghost | Samples::ghost_bit, slot);
  ghosts_.erase(ghost);
  if (mark.stamp < stamp_of(run)) mark.list = use(mark, slot, run, part);
}

void HazardPolicy::touched(SlotId slot, RunId run_id) {
  RunMark& run = runs_[run_id];
  run.last1 = slot + 1;
  Mark& mark = marks_[slot];
  if (mark.stamp >= stamp_of(run)) return;
  const Tokens end{ctx_.records[slot].end};
  move_young(slot, use(mark, slot, run, part_of(is_chain(slot), end, run)));
}

void HazardPolicy::gone(SlotId slot) {
  delist(slot);
  const Mark mark = marks_[slot];
  marks_[slot] = {};
  if (mark.touches == 0) return;
  const std::uint64_t tag = is_chain(slot) ? tag_of(slot) : 0;
  // Keys with the same tag are one ghost.
  if (tag == 0 || ghosts_.find(tag) != no_ghost) return end_sample(mark, slot);
  const GhostId ghost = add_ghost(tag, mark);
  if (mark.has(Mark::sampled_bit)) samples_.move(slot, ghost | Samples::ghost_bit);
}

void HazardPolicy::reset() {
  Policy::reset();
  ghosts_.clear();
  samples_.clear();
}

void HazardPolicy::rekey(std::uint16_t id, std::uint32_t now) {
  const SlotId old = lists_[id].old;
  worths_.set(id,
              old == no_slot ? WorthIndex::empty : survival_.worth(id, now - marks_[old].stamp));
}

void HazardPolicy::rekey_changed() {
  for (const std::uint16_t id : changed_) {
    rekey(id, changed_at_[id] - 1);
    changed_at_[id] = 0;
  }
  changed_.clear();
}

void HazardPolicy::rekey_all() {
  rekey_changed();
  for (std::uint32_t id = 0; id < survival_.used(); ++id)
    rekey(static_cast<std::uint16_t>(id), now_);
}

bool HazardPolicy::maintain() {
  const std::uint32_t period = now_ < early ? refresh_every_early : refresh_every;
  if (now_ - refreshed_ < period) return false;
  refreshed_ = now_;
  for (Samples::Sample& sample : samples_.all()) expose(sample);
  survival_.refresh();
  rekey_all();
  return true;
}

// Whether the newcomer, were it here, would be worth more than what the class gives up for it.
bool HazardPolicy::worth_more(SlotId slot, const Newcomer& newcomer, RunId run_id) {
  if (newcomer.key == nullptr || run_id == no_run) return true;
  const RunMark& run = runs_[run_id];
  const float least = worths_.at(marks_[slot].list);
  const bool of_chain = chain_block(newcomer.group, newcomer.end);
  const std::uint64_t tag = of_chain ? tag_of(newcomer.key) : 0;
  GhostId ghost = of_chain ? ghosts_.find(tag) : no_ghost;
  const ClassId id = ghost != no_ghost ? ghosts_[ghost].mark.list
                                       : class_of(run, ClassCode::running, 1,
                                                  part_of(of_chain, newcomer.end, run));
  if (!(survival_.worth(id, 0) < least)) return true;
  if (of_chain && ghost == no_ghost) {
    ghost = add_ghost(tag, {stamp_of(run), id, 1, 0});
    samples_.start(ghosts_[ghost].mark, tag, ghost | Samples::ghost_bit, now_);
  }
  const bool counted = of_chain && ghosts_[ghost].mark.has(counted_bit);
  if (of_chain) ghosts_[ghost].mark.set(counted_bit, true);
  declined_ += counted ? 0 : 1;
  return false;
}

SlotId HazardPolicy::victim(RunId store_run, const Newcomer& newcomer, bool& declined) {
  SlotId slot = no_slot;
  skipped_.clear();
  for (;;) {
    rekey_changed();
    const auto id = static_cast<std::uint16_t>(worths_.least(survival_.used()));
    if (worths_.at(id) == WorthIndex::empty) break;
    const SlotId old = lists_[id].old;
    const Record& r = ctx_.records[old];
    if (r.place() != Place::strand) {
      park(old);
      continue;
    }
    if (r.run() != store_run) {
      slot = old;
      if (r.next != 0) expect_gone(r.next - 1);  // who goes next, as a rule
      break;
    }
    skipped_.push_back(id);
    worths_.set(id, WorthIndex::empty);
  }
  declined = slot != no_slot && !worth_more(slot, newcomer, store_run);
  for (const std::uint16_t id : skipped_) rekey(id, now_);
  return declined ? no_slot : slot;
}

}  // namespace kvc::tier
