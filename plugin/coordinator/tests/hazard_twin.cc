// docs/policies.md "auto", literally.
#include <limits>

#include "plugin/coordinator/tests/policy_twin.h"
#include "plugin/coordinator/tests/survival_twin.h"

namespace kvc::test {
namespace {

using Features = SurvivalTwin::Features;

struct Known {
  std::uint64_t stamp = 0;
  int cls = 0;
  int touches = 1;
  int fan = 0;
  bool end = false;
  bool sampled = false;
  std::uint64_t accounted = 0;
};

struct Asking {
  std::uint64_t request = 0;
  std::uint64_t prompt = 0;
  int kind = 0;
  int fresh = 0;
};

class HazardTwin final : public PolicyTwin, public TwinLists {
 public:
  HazardTwin(const TwinLimits& limits, const TwinFacts& facts) : TwinLists(facts), limits_(limits) {
    learned_.make(2 * limits.slots + limits.ghosts_more);
  }

  void begin(RunId run, const std::vector<TwinKey>& path, std::uint64_t prompt) override {
    if (++now_ % 16 == 0) rekey_all();
    const std::uint64_t blocks = std::min<std::uint64_t>(path.size(), prompt / limits_.block);
    std::uint64_t g = 0;
    Known* x = nullptr;
    for (; g < blocks; ++g) {
      Known* k = known(path[g]);
      if (k == nullptr) break;
      x = k;
    }
    Asking a;
    a.request = now_;
    a.prompt = blocks * limits_.block;
    const std::uint64_t fresh = prompt - g * limits_.block;
    a.fresh = fresh == 0 ? 0 : fresh < 2048 ? 1 : fresh < 8192 ? 2 : 3;
    if (g * limits_.block == prompt) {
      a.kind = 3;
    } else if (x != nullptr && x->end && x->fan <= 4) {
      a.kind = 1;
    } else {
      a.kind = g * limits_.block >= 1536 ? 2 : 0;
    }
    if (x != nullptr && g * limits_.block < prompt) x->fan = std::min(15, x->fan + 1);
    asking_[run] = a;
    for (std::uint64_t i = blocks; i-- > 0;) {
      Known* k = known(path[i]);
      if (k == nullptr) {
        k = &add_ghost(path[i], a, 0);
      } else {
        use(*k, a, 0);
        const auto at = by_key_.find(path[i]);
        if (at != by_key_.end()) {
          renew(at->second);
        } else {
          std::erase(ghost_order_, path[i]);
          ghost_order_.push_back(path[i]);
        }
      }
      if (i + 1 == blocks) k->end = true;
    }
  }

  void end(RunId run, const std::vector<TwinKey>& path, std::uint64_t answer) override {
    const Asking& a = asking_.at(run);
    for (std::uint64_t i = path.size(); i-- > 0;) {
      Known* k = known(path[i]);
      if (k == nullptr) continue;
      if (i + 1 == path.size()) k->end = true;
      if (k->stamp != a.request) continue;
      expose(*k);
      Features f = features(a, k->touches, (i + 1) * limits_.block <= a.prompt ? 0 : 2);
      f.out = answer < 8 ? 0 : answer < 128 ? 1 : 2;
      k->cls = id_of(f);
      const auto at = by_key_.find(path[i]);
      if (at != by_key_.end()) renew(at->second);
    }
  }

  void maintain() override {
    if (now_ - refreshed_ < (now_ < 2000 ? 100U : 256U)) return;
    refreshed_ = now_;
    for (auto& [slot, entry] : all_) expose(entry.known);
    for (auto& [key, k] : ghosts_) expose(k);
    learned_.refresh();
    rekey_all();
  }

  void reserved(SlotId slot, TwinKey key, std::uint64_t end, RunId run) override {
    const Asking& a = asking_.at(run);
    Entry& e = all_[slot];
    e.key = key;
    e.end = end;
    by_key_[key] = slot;
    const int part = end <= a.prompt ? 0 : 2;
    const auto ghost = ghosts_.find(key);
    if (ghost == ghosts_.end()) {
      e.known = fresh(key, a, part);
      return;
    }
    e.known = ghost->second;
    ghosts_.erase(ghost);
    std::erase(ghost_order_, key);
    if (e.known.stamp < a.request) use(e.known, a, part);
  }
  void published(SlotId slot) override { TwinLists::published(slot); }

  void touched(SlotId slot, RunId run) override {
    Known& k = all_.at(slot).known;
    const Asking& a = asking_.at(run);
    if (k.stamp >= a.request) return;
    use(k, a, all_.at(slot).end <= a.prompt ? 0 : 2);
    renew(slot);
  }
  void gone(SlotId slot, bool /*stored*/) override {
    take(slot);
    places_.erase(slot);
    const Entry e = all_.at(slot);
    all_.erase(slot);
    by_key_.erase(e.key);
    put_ghost(e.key, e.known);
  }
  void reset() override {
    clear();
    all_.clear();
    by_key_.clear();
    ghosts_.clear();
    ghost_order_.clear();
  }
  void settle() override { TwinLists::settle(); }

  TwinChoice victim(RunId store_run, TwinKey key, std::uint64_t end) override {
    std::vector<int> skipped;
    SlotId found = no_slot;
    for (;;) {
      int best = -1;
      for (int c = 0; c < static_cast<int>(keys_.size()); ++c) {
        if (std::find(skipped.begin(), skipped.end(), c) != skipped.end()) continue;
        if (lists_[static_cast<std::uint32_t>(c)].empty()) continue;
        if (best < 0 || key_of(c) < key_of(best)) best = c;
      }
      if (best < 0) break;
      const SlotId slot = lists_[static_cast<std::uint32_t>(best)].front();
      if (!facts_.may_go(slot)) {
        park(slot);
      } else if (facts_.user(slot) == store_run) {
        skipped.push_back(best);
      } else {
        found = slot;
        break;
      }
    }
    TwinChoice out{found, false};
    if (found != no_slot) {
      const Asking& a = asking_.at(store_run);
      const float least = key_of(all_.at(found).known.cls);
      const auto ghost = ghosts_.find(key);
      const int part = end <= a.prompt ? 0 : 2;
      const int cls = ghost != ghosts_.end() ? ghost->second.cls : id_of(features(a, 1, part));
      if (learned_.worth(cls, 0) < least) {
        out = {no_slot, true};
        if (ghost == ghosts_.end()) put_ghost(key, fresh(key, a, part));
      }
    }
    for (const int c : skipped) rekey(c);
    return out;
  }

 private:
  struct Entry {
    TwinKey key = 0;
    std::uint64_t end = 0;
    Known known;
  };

  float& key_of(int c) { return keys_[static_cast<std::size_t>(c)]; }
  std::uint32_t list_of(SlotId slot) override {
    return static_cast<std::uint32_t>(all_.at(slot).known.cls);
  }
  void old_end_changed(std::uint32_t list) override { rekey(static_cast<int>(list)); }
  void rekey(int c) {
    const std::vector<SlotId>& slots = lists_[static_cast<std::uint32_t>(c)];
    if (slots.empty()) return;
    key_of(c) = learned_.worth(c, now_ - all_.at(slots.front()).known.stamp);
  }
  void rekey_all() {
    for (int c = 0; c < static_cast<int>(keys_.size()); ++c) rekey(c);
  }

  static Features features(const Asking& a, int touches, int part) {
    const int level = touches <= 1    ? 0
                      : touches == 2  ? 1
                      : touches <= 5  ? 2
                      : touches <= 15 ? 3
                      : touches <= 63 ? 4
                                      : 5;
    return {a.kind, 3, level, a.fresh, part};
  }
  int id_of(const Features& f) {
    const int id = learned_.id_of(f);
    if (static_cast<std::size_t>(id) == keys_.size()) {
      keys_.push_back(std::numeric_limits<float>::infinity());
    }
    return id;
  }

  Known* known(TwinKey key) {
    if (const auto at_slot = by_key_.find(key); at_slot != by_key_.end())
      return &all_.at(at_slot->second).known;
    const auto ghost = ghosts_.find(key);
    return ghost == ghosts_.end() ? nullptr : &ghost->second;
  }
  Known fresh(TwinKey key, const Asking& a, int part) {
    Known k;
    k.stamp = a.request;
    k.cls = id_of(features(a, 1, part));
    k.sampled = learned_.samples(key);
    k.accounted = now_;
    return k;
  }
  Known& put_ghost(TwinKey key, const Known& k) {
    if (ghosts_.size() == limits_.slots + limits_.ghosts_more) {
      expose(ghosts_.at(ghost_order_.front()));
      ghosts_.erase(ghost_order_.front());
      ghost_order_.erase(ghost_order_.begin());
    }
    ghost_order_.push_back(key);
    return ghosts_[key] = k;
  }
  Known& add_ghost(TwinKey key, const Asking& a, int part) {
    return put_ghost(key, fresh(key, a, part));
  }

  void expose(Known& k) {
    if (!k.sampled) return;
    learned_.expose(k.cls, k.accounted - k.stamp, now_ - k.stamp);
    k.accounted = now_;
  }
  void use(Known& k, const Asking& a, int part) {
    expose(k);
    if (k.sampled) learned_.hit(k.cls, now_ - k.stamp);
    k.touches = std::min(255, k.touches + 1);
    k.stamp = a.request;
    k.cls = id_of(features(a, k.touches, part));
  }

  TwinLimits limits_;
  SurvivalTwin learned_;
  std::uint64_t now_ = 0;
  std::uint64_t refreshed_ = 0;
  std::vector<float> keys_;  // of classes
  std::map<RunId, Asking> asking_;
  std::map<SlotId, Entry> all_;
  std::map<TwinKey, SlotId> by_key_;
  std::map<TwinKey, Known> ghosts_;
  std::vector<TwinKey> ghost_order_;  // oldest first
};

}  // namespace

std::unique_ptr<PolicyTwin> make_hazard_twin(const TwinLimits& limits, const TwinFacts& facts) {
  return std::make_unique<HazardTwin>(limits, facts);
}

}  // namespace kvc::test
