#include "plugin/coordinator/tests/boundary_twin.h"

namespace kvc::test {

BoundaryTwin::BoundaryTwin(const BoundaryLimits& limits, const TwinFacts& facts)
    : TwinLists(facts), limits_(limits), infos_(2) {
  learned_.make(2 * (limits.slots / limits.states) + limits.ghosts_more);
}

std::uint32_t BoundaryTwin::list_of(SlotId slot) {
  const Entry& e = entries_.at(slot);
  if (is_block(e)) return blocks;
  const auto at = whole_.find(e.key);
  return at == whole_.end() ? leftovers : static_cast<std::uint32_t>(at->second.list);
}

float BoundaryTwin::worth(int list, std::uint64_t age) const {
  const List& l = infos_[static_cast<std::size_t>(list)];
  return std::ldexp(learned_.worth(l.cls, age), l.level - 5);
}

void BoundaryTwin::rekey(int list) {
  if (list == blocks || static_cast<std::size_t>(list) >= infos_.size()) return;
  List& l = infos_[static_cast<std::size_t>(list)];
  const std::vector<SlotId>& slots = lists_[static_cast<std::uint32_t>(list)];
  if (slots.empty()) return;
  if (list == leftovers) {
    l.key = -1;
    return;
  }
  // What is being moved away is keyed no more.
  const auto at = whole_.find(entries_.at(slots.front()).key);
  if (at != whole_.end()) l.key = worth(list, now_ - at->second.stamp);
}

SurvivalTwin::Features BoundaryTwin::features(Type type, int kind, int out, int uses) {
  return {kind, out, uses <= 1 ? 0 : uses <= 4 ? 1 : 2, type % 4, type / 4};
}

int BoundaryTwin::id_of(const SurvivalTwin::Features& f, int level) {
  for (std::size_t i = 2; i < infos_.size(); ++i)
    if (infos_[i].features == f && infos_[i].level == level) return static_cast<int>(i);
  List l;
  l.features = f;
  l.cls = learned_.id_of(f);
  l.level = level;
  infos_.push_back(l);
  return static_cast<int>(infos_.size()) - 1;
}

BoundaryTwin::Type BoundaryTwin::type_of(std::uint64_t end, const Asking& a) const {
  if (end > a.prompt) return answer;
  if (end == a.tail) return tail;
  if (end % limits_.block != 0) return parting;
  for (std::uint64_t power = limits_.block; power <= end; power *= 2)
    if (power == end) return log_spaced;
  return inner_block;
}

int BoundaryTwin::new_list(std::uint64_t end, const Asking& a) {
  const Type type = type_of(end, a);
  const auto x = static_cast<double>(end);
  const auto b = static_cast<double>(limits_.block);
  double factor = x / (x + 4 * b);
  if (type != tail) {
    const std::uint64_t lower = a.last < end ? a.last : 0;
    const std::uint64_t slots = limits_.states + (end % limits_.block != 0 ? 1 : 0);
    factor = static_cast<double>(end - lower) / b / static_cast<double>(slots);
  }
  const int level = end == 0 ? 0 : static_cast<int>(std::lround(std::log2(factor))) + 5;
  return id_of(features(type, a.kind, 3, 1), std::max(0, std::min(7, level)));
}

std::vector<SlotId> BoundaryTwin::members(TwinKey key) const {
  std::vector<std::pair<std::uint64_t, SlotId>> found;
  for (const auto& [slot, e] : entries_)
    if (e.key == key && !is_block(e)) found.emplace_back(e.group, slot);
  std::sort(found.begin(), found.end());
  std::vector<SlotId> slots;
  for (const auto& [group, slot] : found) slots.push_back(slot);
  return slots;
}

BoundaryTwin::Known* BoundaryTwin::here(TwinKey key) {
  const auto at = whole_.find(key);
  if (at == whole_.end()) return nullptr;
  for (const SlotId slot : members(key))
    if (entries_.at(slot).group == 1) return &at->second;
  return nullptr;
}

BoundaryTwin::Known* BoundaryTwin::known(TwinKey key) {
  if (Known* k = here(key); k != nullptr) return k;
  const auto ghost = ghosts_.find(key);
  return ghost == ghosts_.end() ? nullptr : &ghost->second;
}

void BoundaryTwin::renew_all(TwinKey key) {
  for (const SlotId slot : members(key)) renew(slot);
}

void BoundaryTwin::relist(TwinKey key, Known& k, int list) {
  k.list = list;
  if (here(key) == &k) return renew_all(key);
  std::erase(ghost_order_, key);
  ghost_order_.push_back(key);
}

void BoundaryTwin::expose(Known& k) {
  if (!k.sampled) return;
  learned_.expose(infos_[static_cast<std::size_t>(k.list)].cls, k.accounted - k.stamp,
                  now_ - k.stamp);
  k.accounted = now_;
}

void BoundaryTwin::add_ghost(TwinKey key, const Known& k) {
  const std::uint64_t most =
      std::max<std::uint64_t>(1, limits_.slots / limits_.states + limits_.ghosts_more);
  if (ghosts_.size() == most) {
    expose(ghosts_.at(ghost_order_.front()));
    ghosts_.erase(ghost_order_.front());
    ghost_order_.erase(ghost_order_.begin());
  }
  ghost_order_.push_back(key);
  ghosts_[key] = k;
}

BoundaryTwin::Known BoundaryTwin::fresh(TwinKey key, std::uint64_t end, const Asking& a) {
  Known k;
  k.stamp = a.request;
  k.list = new_list(end, a);
  k.sampled = learned_.samples(key);
  k.accounted = now_;
  return k;
}

void BoundaryTwin::note(Asking& a, std::uint64_t end) const {
  a.last = std::max(a.last, end);
  if (a.ends.size() < 24) a.ends.push_back(end);
}

void BoundaryTwin::begin(RunId run, const std::vector<TwinKey>& path, std::uint64_t prompt,
                         std::uint64_t tail_end) {
  if (++now_ % 16 == 0)
    for (std::size_t i = 2; i < infos_.size(); ++i) rekey(static_cast<int>(i));
  Asking a;
  a.request = now_;
  a.prompt = prompt;
  a.tail = tail_end;
  if (tail_end != 0) a.tail_key = path[tail_end / limits_.unit - 1];
  Known* deepest = nullptr;
  for (std::uint64_t end = tail_end; end > 0 && deepest == nullptr; end -= limits_.unit) {
    const TwinKey key = path[end / limits_.unit - 1];
    deepest = known(key);
    if (deepest == nullptr) continue;
    a.used = end;
    a.used_key = key;
    if (here(key) == nullptr) continue;
    for (const SlotId slot : members(key))
      if (entries_.at(slot).group == 1) a.used_slot = slot;
  }
  if (deepest != nullptr) {
    const SurvivalTwin::Features f = infos_[static_cast<std::size_t>(deepest->list)].features;
    const Type type = type_in(f);
    if (a.used == a.tail) {
      a.kind = 3;
    } else if ((type == tail || type == extended) && deepest->fan <= 4) {
      a.kind = 1;
    } else {
      a.kind = a.used >= 1536 ? 2 : 0;
    }
    if (a.used != a.tail) deepest->fan = std::min(15, deepest->fan + 1);
    expose(*deepest);
    if (deepest->sampled) {
      learned_.hit(infos_[static_cast<std::size_t>(deepest->list)].cls, now_ - deepest->stamp);
    }
    deepest->uses = std::min(255, deepest->uses + 1);
    deepest->stamp = now_;
    relist(a.used_key, *deepest,
           id_of(features(type, a.kind, 3, deepest->uses),
                 infos_[static_cast<std::size_t>(deepest->list)].level));
    note(a, a.used);
  }
  if (tail_end != 0 && a.used != a.tail && ghosts_.count(a.tail_key) == 0) {
    add_ghost(a.tail_key, fresh(a.tail_key, tail_end, a));
  }
  asking_[run] = a;
}

void BoundaryTwin::extend(Asking& a) {
  if (a.extended || a.used == 0) return;
  a.extended = true;
  Known* k = nullptr;
  const auto at = entries_.find(a.used_slot);
  if (at != entries_.end() && at->second.key == a.used_key && !is_block(at->second) &&
      whole_.count(a.used_key) != 0) {
    k = &whole_.at(a.used_key);
  } else if (const auto ghost = ghosts_.find(a.used_key); ghost != ghosts_.end()) {
    k = &ghost->second;
  }
  if (k == nullptr || k->stamp != a.request) return;
  const List l = infos_[static_cast<std::size_t>(k->list)];
  if (type_in(l.features) != tail) return;
  expose(*k);
  SurvivalTwin::Features f = l.features;
  f.fresh = extended;
  relist(a.used_key, *k, id_of(f, l.level));
}

void BoundaryTwin::end(RunId run, const std::vector<TwinKey>& path, std::uint64_t answer_tokens) {
  const auto at = asking_.find(run);
  if (at == asking_.end()) return;
  const Asking a = at->second;
  asking_.erase(at);
  std::vector<std::uint64_t> ends(a.ends.rbegin(), a.ends.rend());
  ends.push_back(a.tail);
  for (const std::uint64_t end : ends) {
    if (end == 0 || end / limits_.unit > path.size()) continue;
    const TwinKey key = path[end / limits_.unit - 1];
    Known* k = known(key);
    if (k == nullptr || k->stamp != a.request) continue;
    const List l = infos_[static_cast<std::size_t>(k->list)];
    SurvivalTwin::Features f = l.features;
    f.out = answer_tokens < 8 ? 0 : answer_tokens < 128 ? 1 : 2;
    if (f == l.features) continue;
    expose(*k);
    relist(key, *k, id_of(f, l.level));
  }
}

void BoundaryTwin::maintain() {
  if (now_ - refreshed_ < (now_ < 2000 ? 100U : 256U)) return;
  refreshed_ = now_;
  for (auto& [key, k] : whole_) expose(k);
  for (auto& [key, k] : ghosts_) expose(k);
  learned_.refresh();
  for (std::size_t i = 2; i < infos_.size(); ++i) rekey(static_cast<int>(i));
}

void BoundaryTwin::reserved(SlotId slot, std::uint64_t group, TwinKey key, std::uint64_t end,
                            RunId run) {
  const Entry e{group, key, end};
  Asking& a = asking_.at(run);
  if (is_block(e)) {
    entries_[slot] = e;
    a.declined = false;
    return;
  }
  if (whole_.count(key) != 0) {
    entries_[slot] = e;
    return;
  }
  answers_ = answers_ || end > a.prompt;
  if (end > a.used) extend(a);
  Known k;
  if (const auto ghost = ghosts_.find(key); ghost != ghosts_.end()) {
    k = ghost->second;
    ghosts_.erase(ghost);
    std::erase(ghost_order_, key);
  } else {
    k = fresh(key, end, a);
  }
  note(a, end);
  const std::vector<SlotId> left = members(key);
  whole_[key] = k;
  entries_[slot] = e;
  for (const SlotId other : left) renew(other);
}

void BoundaryTwin::gone(SlotId slot) {
  take(slot);
  places_.erase(slot);
  const Entry e = entries_.at(slot);
  entries_.erase(slot);
  if (is_block(e)) return;
  const auto at = whole_.find(e.key);
  if (at == whole_.end()) return;
  Known k = at->second;
  whole_.erase(at);
  if (ghosts_.count(e.key) == 0) {
    add_ghost(e.key, k);
  } else {
    expose(k);
  }
  renew_all(e.key);
}

void BoundaryTwin::reset() {
  clear();
  entries_.clear();
  whole_.clear();
  ghosts_.clear();
  ghost_order_.clear();
}

bool BoundaryTwin::more_worth(int least, bool block, TwinKey key, std::uint64_t end, Asking& a) {
  if (least == leftovers) return true;
  const bool of_answer = end > a.prompt;
  bool more = block || !a.declined;
  if (block && of_answer && !answers_) more = false;
  if (more) {
    int list = 0;
    if (block && !of_answer) {
      const auto ghost = ghosts_.find(a.tail_key);
      const bool there = a.tail != 0 && ghost != ghosts_.end();
      list = there ? ghost->second.list : new_list(a.tail, a);
    } else if (block) {
      list = new_list(end, a);
    } else {
      const auto ghost = ghosts_.find(key);
      list = ghost != ghosts_.end() ? ghost->second.list : new_list(end, a);
    }
    more = !(worth(list, 0) < infos_[static_cast<std::size_t>(least)].key);
    if (!more && !block && ghosts_.count(key) == 0) add_ghost(key, fresh(key, end, a));
  }
  if (!more && block && !of_answer) a.declined = true;
  return more;
}

TwinChoice BoundaryTwin::victim(RunId store_run, std::uint64_t group, TwinKey key,
                                std::uint64_t end) {
  std::vector<int> skipped;
  SlotId found = no_slot;
  int list = 0;
  for (;;) {
    int best = -1;
    for (int i = 0; i < static_cast<int>(infos_.size()); ++i) {
      if (i == blocks || lists_[static_cast<std::uint32_t>(i)].empty()) continue;
      if (std::find(skipped.begin(), skipped.end(), i) != skipped.end()) continue;
      if (best < 0 ||
          infos_[static_cast<std::size_t>(i)].key < infos_[static_cast<std::size_t>(best)].key)
        best = i;
    }
    if (best < 0) break;
    const SlotId slot = lists_[static_cast<std::uint32_t>(best)].front();
    if (!facts_.may_go(slot)) {
      park(slot);
    } else if (facts_.user(slot) == store_run) {
      skipped.push_back(best);
    } else {
      found = slot;
      list = best;
      break;
    }
  }
  TwinChoice out{found, false};
  if (found != no_slot) {
    const bool block = group == 0 && end % limits_.block == 0;
    if (!more_worth(list, block, key, end, asking_.at(store_run))) out = {no_slot, true};
  }
  for (const int i : skipped) rekey(i);
  if (found == no_slot) out.slot = oldest(blocks, store_run);
  return out;
}

}  // namespace kvc::test
