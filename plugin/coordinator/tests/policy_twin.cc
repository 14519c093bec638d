#include "plugin/coordinator/tests/policy_twin.h"

#include <cmath>
#include <set>

namespace kvc::test {

void TwinLists::push(SlotId slot, bool old_end) {
  const std::uint32_t list = list_of(slot);
  places_[slot] = {true, false, list};
  std::vector<SlotId>& slots = lists_[list];
  const bool changes = old_end || slots.empty();
  slots.insert(old_end ? slots.begin() : slots.end(), slot);
  if (changes) old_end_changed(list);
}

void TwinLists::take(SlotId slot) {
  Place& place = places_[slot];
  place.parked = false;
  if (!place.listed) return;
  place.listed = false;
  std::vector<SlotId>& slots = lists_[place.list];
  const bool changes = slots.front() == slot;
  slots.erase(std::find(slots.begin(), slots.end(), slot));
  if (changes) old_end_changed(place.list);
}

void TwinLists::renew(SlotId slot) {
  if (!stands(slot)) return;
  take(slot);
  push(slot, false);
}

void TwinLists::settle() {
  std::vector<SlotId> all;
  for (const auto& [slot, place] : places_) all.push_back(slot);
  for (const SlotId slot : all) {
    if (facts_.in_front(slot)) {
      take(slot);
    } else if (places_[slot].parked && facts_.may_go(slot)) {
      places_[slot].parked = false;
      push(slot, true);
    } else if (!stands(slot) && facts_.may_go(slot)) {
      push(slot, false);
    }
  }
}

SlotId TwinLists::oldest(std::uint32_t list, RunId store_run) {
  while (!lists_[list].empty()) {
    const SlotId slot = lists_[list].front();
    if (facts_.may_go(slot)) return facts_.user(slot) == store_run ? no_slot : slot;
    park(slot);
  }
  return no_slot;
}

namespace {

class ArcTwin final : public PolicyTwin, public TwinLists {
 public:
  ArcTwin(const TwinLimits& limits, const TwinFacts& facts)
      : TwinLists(facts), n_(static_cast<double>(limits.slots)), limits_(limits) {}

  void begin(RunId run, const std::vector<TwinKey>& path, std::uint64_t prompt) override {
    const std::uint64_t blocks = std::min<std::uint64_t>(path.size(), prompt / limits_.block);
    asking_[run] = ++request_;
    for (std::uint64_t i = blocks; i-- > 0;) {
      if (by_key_.count(path[i]) != 0) continue;
      const auto b1 = static_cast<double>(ghosts_[0].size());
      const auto b2 = static_cast<double>(ghosts_[1].size());
      if (again(0, path[i])) {
        p_ = std::min(n_, p_ + std::max(1.0, b2 / b1));
      } else if (again(1, path[i])) {
        p_ = std::max(0.0, p_ - std::max(1.0, b1 / b2));
      }
    }
  }
  void end(RunId run, const std::vector<TwinKey>& path, std::uint64_t /*answer*/) override {
    for (std::uint64_t i = path.size(); i-- > 0;) {
      const auto at = by_key_.find(path[i]);
      if (at == by_key_.end()) continue;
      Entry& e = all_.at(at->second);
      if (e.stored_by != asking_.at(run)) e.t2 = true;
      renew(at->second);
    }
  }
  void reserved(SlotId slot, TwinKey key, std::uint64_t /*end*/, RunId run) override {
    for (auto& list : ghosts_) std::erase(list, key);
    all_[slot] = {key, asking_.at(run), false};
    by_key_[key] = slot;
  }
  void published(SlotId slot) override { TwinLists::published(slot); }
  void touched(SlotId /*slot*/, RunId /*run*/) override {}
  void gone(SlotId slot, bool stored) override {
    const Entry e = all_.at(slot);
    take(slot);
    places_.erase(slot);
    all_.erase(slot);
    by_key_.erase(e.key);
    if (!stored) return;
    std::vector<TwinKey>& list = ghosts_[e.t2 ? 1 : 0];
    list.push_back(e.key);
    if (list.size() > limits_.slots) list.erase(list.begin());
  }
  void reset() override {
    clear();
    all_.clear();
    by_key_.clear();
    for (auto& list : ghosts_) list.clear();
    p_ = 0;
  }
  void settle() override { TwinLists::settle(); }
  TwinChoice victim(RunId store_run, TwinKey /*key*/, std::uint64_t /*end*/) override {
    const auto t1 = std::count_if(all_.begin(), all_.end(), [](auto& e) { return !e.second.t2; });
    const std::uint32_t first = static_cast<double>(t1) >= std::floor(p_) ? 0 : 1;
    const SlotId slot = oldest(first, store_run);
    return {slot != no_slot ? slot : oldest(1 - first, store_run), false};
  }

 private:
  struct Entry {
    TwinKey key = 0;
    std::uint64_t stored_by = 0;
    bool t2 = false;
  };
  std::uint32_t list_of(SlotId slot) override { return all_.at(slot).t2 ? 1 : 0; }
  // A ghost of that list is asked for again.
  bool again(std::size_t list, TwinKey key) {
    std::vector<TwinKey>& keys = ghosts_[list];
    const auto at = std::find(keys.begin(), keys.end(), key);
    if (at == keys.end()) return false;
    keys.erase(at);
    keys.push_back(key);
    return true;
  }

  double n_;
  double p_ = 0;
  TwinLimits limits_;
  std::uint64_t request_ = 0;
  std::map<RunId, std::uint64_t> asking_;
  std::map<SlotId, Entry> all_;
  std::map<TwinKey, SlotId> by_key_;
  std::vector<TwinKey> ghosts_[2];
};

class GdsfTwin final : public PolicyTwin, public TwinLists {
 public:
  GdsfTwin(const TwinLimits& limits, const TwinFacts& facts) : TwinLists(facts), limits_(limits) {}

  void begin(RunId /*run*/, const std::vector<TwinKey>& path, std::uint64_t prompt) override {
    const std::uint64_t blocks = std::min<std::uint64_t>(path.size(), prompt / limits_.block);
    for (std::uint64_t i = blocks; i-- > 0;) {
      const auto at = by_key_.find(path[i]);
      if (at == by_key_.end()) continue;
      Entry& e = all_.at(at->second);
      e.uses = std::min<std::uint64_t>(255, e.uses + 1);
      e.priority = age_ + e.uses;
      renew(at->second);
    }
  }
  void end(RunId /*run*/, const std::vector<TwinKey>& /*path*/, std::uint64_t /*a*/) override {}
  void reserved(SlotId slot, TwinKey key, std::uint64_t /*end*/, RunId /*run*/) override {
    all_[slot] = {key, 1, age_ + 1};
    by_key_[key] = slot;
  }
  void published(SlotId slot) override { TwinLists::published(slot); }
  void touched(SlotId /*slot*/, RunId /*run*/) override {}
  void gone(SlotId slot, bool /*stored*/) override {
    take(slot);
    places_.erase(slot);
    by_key_.erase(all_.at(slot).key);
    all_.erase(slot);
  }
  void reset() override {
    clear();
    all_.clear();
    by_key_.clear();
  }
  void settle() override { TwinLists::settle(); }
  TwinChoice victim(RunId store_run, TwinKey /*key*/, std::uint64_t /*end*/) override {
    std::set<std::uint32_t> priorities;
    for (const auto& [list, slots] : lists_)
      if (!slots.empty()) priorities.insert(list);
    bool first = true;
    for (const std::uint32_t priority : priorities) {
      const SlotId slot = oldest(priority, store_run);
      if (first && !lists_[priority].empty()) {
        age_ = priority;
        first = false;
      }
      if (slot != no_slot) return {slot, false};
    }
    return {};
  }

 private:
  struct Entry {
    TwinKey key = 0;
    std::uint64_t uses = 1;
    std::uint64_t priority = 0;
  };
  // What comes back later than the tier aged has the tier's age.
  std::uint32_t list_of(SlotId slot) override {
    Entry& e = all_.at(slot);
    e.priority = std::max(e.priority, age_);
    return static_cast<std::uint32_t>(e.priority);
  }

  TwinLimits limits_;
  std::uint64_t age_ = 0;
  std::map<SlotId, Entry> all_;
  std::map<TwinKey, SlotId> by_key_;
};

}  // namespace

std::unique_ptr<PolicyTwin> make_policy_twin(Eviction eviction, const TwinLimits& limits,
                                             const TwinFacts& facts) {
  if (eviction == Eviction::arc) return std::make_unique<ArcTwin>(limits, facts);
  if (eviction == Eviction::gdsf) return std::make_unique<GdsfTwin>(limits, facts);
  return make_hazard_twin(limits, facts);
}

}  // namespace kvc::test
