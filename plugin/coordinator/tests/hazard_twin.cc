// docs/policies.md "auto", literally.
#include <array>
#include <cmath>
#include <limits>

#include "plugin/coordinator/tests/policy_twin.h"

namespace kvc::test {
namespace {

constexpr int buckets = 32;

// In multiples of 1/256 of a request, so that sums are exact in any order.
double edge(int i) { return i == 0 ? 0.0 : std::round(std::pow(2.0, (i - 1) / 2.0) * 256) / 256; }

int bucket(std::uint64_t age) {
  if (age == 0) return 0;
  return std::min(31, 1 + static_cast<int>(std::floor(2 * std::log2(static_cast<double>(age)))));
}

using Row = std::array<float, buckets>;
using Sums = std::array<double, buckets>;

struct Features {
  int kind = 0;
  int out = 3;
  int touches = 0;
  int fresh = 0;
  int part = 0;
  auto operator<=>(const Features&) const = default;
};

struct Class {
  Features features;
  Sums hit{};
  Sums risk{};
  Row worth{};
  float key = std::numeric_limits<float>::infinity();
};

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
    std::uint64_t all = 2 * limits.slots + limits.ghosts_more;
    for (; all > 16384; all /= 2) step_ *= 2;
    kappa_ = std::max(0.5F, 8.0F / static_cast<float>(step_));
    pool();
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
    refresh();
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
      for (int c = 0; c < static_cast<int>(classes_.size()); ++c) {
        if (std::find(skipped.begin(), skipped.end(), c) != skipped.end()) continue;
        if (lists_[static_cast<std::uint32_t>(c)].empty()) continue;
        if (best < 0 || at(c).key < at(best).key) best = c;
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
      const float least = at(all_.at(found).known.cls).key;
      const auto ghost = ghosts_.find(key);
      const int part = end <= a.prompt ? 0 : 2;
      const int cls = ghost != ghosts_.end() ? ghost->second.cls : id_of(features(a, 1, part));
      if (at(cls).worth[0] < least) {
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

  Class& at(int c) { return classes_[static_cast<std::size_t>(c)]; }
  std::uint32_t list_of(SlotId slot) override {
    return static_cast<std::uint32_t>(all_.at(slot).known.cls);
  }
  void old_end_changed(std::uint32_t list) override { rekey(static_cast<int>(list)); }
  void rekey(int c) {
    const std::vector<SlotId>& slots = lists_[static_cast<std::uint32_t>(c)];
    if (slots.empty()) return;
    const auto age = now_ - all_.at(slots.front()).known.stamp;
    at(c).key = at(c).worth[static_cast<std::size_t>(bucket(age))];
  }
  void rekey_all() {
    for (int c = 0; c < static_cast<int>(classes_.size()); ++c) rekey(c);
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
    for (std::size_t i = 0; i < classes_.size(); ++i)
      if (classes_[i].features == f) return static_cast<int>(i);
    Class c;
    c.features = f;
    c.worth = worth({}, {});
    classes_.push_back(c);
    return static_cast<int>(classes_.size()) - 1;
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
    k.sampled = tag(key) % step_ == 0;
    k.accounted = now_;
    return k;
  }
  static std::uint64_t tag(TwinKey key) {
    std::uint64_t h = 8;
    for (const std::uint64_t word : {key, std::uint64_t{0}}) {
      h = (h ^ word) * 0x9e3779b97f4a7c15U;
      h ^= h / 4294967296U;
    }
    return h;
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
    auto from = static_cast<double>(k.accounted - k.stamp);
    const auto to = static_cast<double>(now_ - k.stamp);
    for (int b = bucket(k.accounted - k.stamp); b < buckets; ++b) {
      const double stop = b == buckets - 1 ? to : std::min(to, edge(b + 1));
      if (stop <= from) continue;
      at(k.cls).risk[static_cast<std::size_t>(b)] += stop - from;
      from = stop;
    }
    k.accounted = now_;
  }
  void use(Known& k, const Asking& a, int part) {
    expose(k);
    if (k.sampled) at(k.cls).hit[static_cast<std::size_t>(bucket(now_ - k.stamp))] += 1;
    k.touches = std::min(255, k.touches + 1);
    k.stamp = a.request;
    k.cls = id_of(features(a, k.touches, part));
  }

  void pool() {
    Sums hits{};
    Sums risks{};
    for (const Class& c : classes_)
      for (std::size_t b = 0; b < buckets; ++b) {
        hits[b] += c.hit[b];
        risks[b] += c.risk[b];
      }
    double all_hits = 0;
    double all_risks = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      all_hits += hits[b];
      all_risks += risks[b];
    }
    float expected = (static_cast<float>(all_hits) + 1) / (static_cast<float>(all_risks) + 100);
    for (std::size_t b = 0; b < buckets; ++b) {
      pooled_[b] = (static_cast<float>(hits[b]) + kappa_) /
                   (static_cast<float>(risks[b]) + kappa_ / expected);
      expected = pooled_[b] / std::sqrt(2.0F);
    }
  }
  Row worth(const Sums& hits, const Sums& risks) const {
    Row hit{};
    Row risk{};
    for (std::size_t b = 0; b < buckets; ++b) {
      hit[b] = static_cast<float>(hits[b]);
      risk[b] = static_cast<float>(risks[b]);
    }
    float h = 0;
    float r = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      h += hit[b];
      r += risk[b] * pooled_[b];
    }
    const float ratio = (h + kappa_) / (r + kappa_);
    Row best{};
    for (std::size_t from = 0; from < buckets; ++from) {
      float alive = 1;
      float waited = 0;
      for (std::size_t b = from; b < buckets; ++b) {
        const float base = pooled_[b] * ratio;
        const float rate = base * (hit[b] + kappa_) / (risk[b] * base + kappa_);
        const auto width =
            static_cast<float>(edge(static_cast<int>(b) + 1) - edge(static_cast<int>(b)));
        const float dies = -std::expm1(-rate * width);
        waited += alive * (dies / rate);
        alive *= 1 - dies;
        best[from] = std::max(best[from], (1 - alive) / waited);
      }
    }
    return best;
  }
  void refresh() {
    pool();
    for (Class& c : classes_) {
      Sums hit = c.hit;
      Sums risk = c.risk;
      for (int out = 0; out < 3 && c.features.out == 3; ++out) {
        Features sibling = c.features;
        sibling.out = out;
        for (const Class& s : classes_) {
          if (s.features != sibling) continue;
          for (std::size_t b = 0; b < buckets; ++b) {
            hit[b] += s.hit[b];
            risk[b] += s.risk[b];
          }
        }
      }
      c.worth = worth(hit, risk);
    }
  }

  TwinLimits limits_;
  std::uint64_t step_ = 1;
  float kappa_ = 0;
  Row pooled_{};
  std::uint64_t now_ = 0;
  std::uint64_t refreshed_ = 0;
  std::vector<Class> classes_;
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
