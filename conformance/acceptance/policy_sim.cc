#include "conformance/acceptance/policy_sim.h"

#include <algorithm>
#include <cmath>
#include <list>
#include <set>
#include <tuple>
#include <unordered_map>

namespace kvc::acceptance {
namespace {

constexpr std::uint64_t span_tokens = 512;
constexpr std::uint64_t own_names = std::uint64_t{1} << 63U;  // of output blocks: above all ids

using Id = std::uint64_t;
using Path = std::vector<Id>;

// One request: the blocks of its prompt, then with those of its output.
struct Request {
  Path prompt;
  Path all;
};

// What every policy does alike: hits, and one insertion after the other, root first.
template <class Tier>
std::uint64_t simulate(const std::vector<Row>& rows, Tier& tier) {
  std::uint64_t hits = 0;
  Id own = own_names;
  for (const Row& row : rows) {
    const std::uint64_t complete = row.prompt_tokens / span_tokens;
    Request r;
    r.prompt.assign(row.ids.begin(), row.ids.begin() + static_cast<std::ptrdiff_t>(complete));
    r.all = r.prompt;
    const std::uint64_t written = row.prompt_tokens + std::max<std::uint64_t>(row.output_tokens, 1);
    for (std::uint64_t i = complete; i < (written - 1) / span_tokens; ++i) r.all.push_back(own++);
    std::uint64_t run = 0;
    while (run < complete && tier.has(r.prompt[run])) ++run;
    hits += std::min(run, (row.prompt_tokens - 1) / span_tokens) * span_tokens;
    tier.ask(r.prompt);
    const std::set<Id> spared(r.all.begin(), r.all.end());
    for (std::size_t i = 0; i < r.all.size(); ++i) {
      if (tier.has(r.all[i])) continue;
      if (tier.full() && !tier.evict(spared)) break;
      tier.insert(r.all[i], i == 0 ? 0 : r.all[i - 1]);
    }
    tier.finish(r.all);
  }
  return hits;
}

// The children of blocks that are there.
class Tree {
 public:
  void add(Id id, Id parent) {
    parent_[id] = parent;
    if (parent != 0) ++children_[parent];
  }
  void remove(Id id) {
    const Id parent = parent_.at(id);
    parent_.erase(id);
    if (parent != 0) --children_[parent];
  }
  [[nodiscard]] bool leaf(Id id) const {
    const auto at = children_.find(id);
    return at == children_.end() || at->second == 0;
  }

 private:
  std::unordered_map<Id, Id> parent_;
  std::unordered_map<Id, std::uint32_t> children_;
};

class Arc {
 public:
  explicit Arc(std::uint64_t capacity) : capacity_(capacity) {}

  [[nodiscard]] bool has(Id id) const { return where_.count(id) != 0; }
  [[nodiscard]] bool full() const { return where_.size() == capacity_; }
  void ask(const Path& prompt) {
    for (auto id = prompt.rbegin(); id != prompt.rend(); ++id) {
      if (has(*id)) continue;
      const auto b1 = static_cast<double>(ghosts_[0].size());
      const auto b2 = static_cast<double>(ghosts_[1].size());
      if (renew(0, *id)) {
        target_ = std::min(target_ + std::max(1.0, b2 / b1), static_cast<double>(capacity_));
      } else if (renew(1, *id)) {
        target_ = std::max(target_ - std::max(1.0, b1 / b2), 0.0);
      }
    }
  }
  bool evict(const std::set<Id>& spared) {
    const std::size_t first = static_cast<double>(lists_[0].size()) >= std::floor(target_) ? 0 : 1;
    return evict_from(first, spared) || evict_from(1 - first, spared);
  }
  void insert(Id id, Id parent) {
    for (std::size_t list = 0; list < 2; ++list) forget(list, id);
    tree_.add(id, parent);
    where_[id] = {0, lists_[0].insert(lists_[0].end(), id)};
    stored_.insert(id);
  }
  void finish(const Path& all) {
    for (auto id = all.rbegin(); id != all.rend(); ++id) {
      const auto at = where_.find(*id);
      if (at == where_.end()) continue;
      const std::size_t list = stored_.count(*id) != 0 ? at->second.list : 1;
      lists_[list].splice(lists_[list].end(), lists_[at->second.list], at->second.at);
      at->second.list = list;
    }
    stored_.clear();
  }

 private:
  struct Place {
    std::size_t list;
    std::list<Id>::iterator at;
  };
  bool evict_from(std::size_t list, const std::set<Id>& spared) {
    for (const Id id : lists_[list]) {
      if (!tree_.leaf(id) || spared.count(id) != 0) continue;
      lists_[list].erase(where_.at(id).at);
      where_.erase(id);
      tree_.remove(id);
      ghost_at_[list][id] = ghosts_[list].insert(ghosts_[list].end(), id);
      if (ghosts_[list].size() > capacity_) forget(list, Id{ghosts_[list].front()});
      return true;
    }
    return false;
  }
  bool renew(std::size_t list, Id id) {
    const auto at = ghost_at_[list].find(id);
    if (at == ghost_at_[list].end()) return false;
    ghosts_[list].splice(ghosts_[list].end(), ghosts_[list], at->second);
    return true;
  }
  void forget(std::size_t list, Id id) {
    const auto at = ghost_at_[list].find(id);
    if (at == ghost_at_[list].end()) return;
    ghosts_[list].erase(at->second);
    ghost_at_[list].erase(at);
  }

  std::uint64_t capacity_;
  double target_ = 0;
  Tree tree_;
  std::list<Id> lists_[2];
  std::list<Id> ghosts_[2];
  std::unordered_map<Id, Place> where_;
  std::unordered_map<Id, std::list<Id>::iterator> ghost_at_[2];
  std::set<Id> stored_;  // by the request at hand
};

class Gdsf {
 public:
  explicit Gdsf(std::uint64_t capacity) : capacity_(capacity) {}

  [[nodiscard]] bool has(Id id) const { return all_.count(id) != 0; }
  [[nodiscard]] bool full() const { return all_.size() == capacity_; }
  void ask(const Path& prompt) {
    for (auto id = prompt.rbegin(); id != prompt.rend(); ++id) {
      const auto at = all_.find(*id);
      if (at == all_.end()) continue;
      order_.erase({at->second.priority, at->second.turn, *id});
      at->second.uses = std::min<std::uint64_t>(at->second.uses + 1, 255);
      place(*id, at->second);
    }
  }
  bool evict(const std::set<Id>& spared) {
    for (const auto& [priority, turn, id] : order_) {
      if (!tree_.leaf(id) || spared.count(id) != 0) continue;
      age_ = std::max(age_, priority);
      const Id gone = id;
      order_.erase({priority, turn, gone});
      all_.erase(gone);
      tree_.remove(gone);
      return true;
    }
    return false;
  }
  void insert(Id id, Id parent) {
    tree_.add(id, parent);
    place(id, all_[id]);
  }
  void finish(const Path& /*all*/) {}

 private:
  struct Entry {
    std::uint64_t uses = 1;
    std::uint64_t priority = 0;
    std::uint64_t turn = 0;
  };
  void place(Id id, Entry& e) {
    e.priority = age_ + e.uses;
    e.turn = ++turn_;
    order_.insert({e.priority, e.turn, id});
  }

  std::uint64_t capacity_;
  std::uint64_t age_ = 0;
  std::uint64_t turn_ = 0;
  Tree tree_;
  std::unordered_map<Id, Entry> all_;
  std::set<std::tuple<std::uint64_t, std::uint64_t, Id>> order_;
};

}  // namespace

std::uint64_t arc_hit_tokens(const std::vector<Row>& rows, std::uint64_t capacity_blocks) {
  Arc tier(capacity_blocks);
  return simulate(rows, tier);
}

std::uint64_t gdsf_hit_tokens(const std::vector<Row>& rows, std::uint64_t capacity_blocks) {
  Gdsf tier(capacity_blocks);
  return simulate(rows, tier);
}

}  // namespace kvc::acceptance
