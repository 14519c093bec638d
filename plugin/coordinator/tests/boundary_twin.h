// docs/policies.md "Hybrid layouts", literally: maps by key, every answer searched for.
#pragma once
#include <cmath>
#include <limits>
#include <set>

#include "plugin/coordinator/tests/policy_twin.h"
#include "plugin/coordinator/tests/survival_twin.h"

namespace kvc::test {

struct BoundaryLimits {
  std::uint64_t slots = 0;
  std::uint64_t ghosts_more = 0;
  std::uint64_t block = 0;  // tokens of all groups
  std::uint64_t unit = 0;
  std::uint64_t states = 0;  // groups: 1 .. states; the chain is group 0
};

// Calls as those of TierIndex. Paths are keys of hash units, in order.
class BoundaryTwin final : public TwinLists {
 public:
  BoundaryTwin(const BoundaryLimits& limits, const TwinFacts& facts);

  // `tail`: the boundary of the prompt's tail, 0 for none.
  void begin(RunId run, const std::vector<TwinKey>& path, std::uint64_t prompt, std::uint64_t tail);
  void end(RunId run, const std::vector<TwinKey>& path, std::uint64_t answer);
  void maintain();
  void reserved(SlotId slot, std::uint64_t group, TwinKey key, std::uint64_t end, RunId run);
  void gone(SlotId slot);
  void reset();
  [[nodiscard]] TwinChoice victim(RunId store_run, std::uint64_t group, TwinKey key,
                                  std::uint64_t end);

 private:
  static constexpr int leftovers = 0;
  static constexpr int blocks = 1;
  enum Type { tail, extended, log_spaced, parting, inner_block, answer };

  struct List {
    SurvivalTwin::Features features;
    int cls = 0;
    int level = 0;
    float key = std::numeric_limits<float>::infinity();
  };
  struct Known {
    std::uint64_t stamp = 0;
    int list = 0;
    int uses = 1;
    int fan = 0;
    bool sampled = false;
    std::uint64_t accounted = 0;
  };
  struct Entry {
    std::uint64_t group = 0;
    TwinKey key = 0;
    std::uint64_t end = 0;
  };
  struct Asking {
    std::uint64_t request = 0;
    std::uint64_t prompt = 0;
    std::uint64_t tail = 0;
    TwinKey tail_key = 0;
    std::uint64_t used = 0;
    TwinKey used_key = 0;
    SlotId used_slot = no_slot;
    std::uint64_t last = 0;
    int kind = 0;
    bool extended = false;
    bool declined = false;
    std::vector<std::uint64_t> ends;
  };

  [[nodiscard]] bool is_block(const Entry& e) const {
    return e.group == 0 && e.end % limits_.block == 0;
  }
  std::uint32_t list_of(SlotId slot) override;
  void old_end_changed(std::uint32_t list) override { rekey(static_cast<int>(list)); }
  void rekey(int list);
  [[nodiscard]] float worth(int list, std::uint64_t age) const;
  int id_of(const SurvivalTwin::Features& f, int level);
  [[nodiscard]] static SurvivalTwin::Features features(Type type, int kind, int out, int uses);
  [[nodiscard]] static Type type_in(const SurvivalTwin::Features& f) {
    return static_cast<Type>(f.part * 4 + f.fresh);
  }
  [[nodiscard]] Type type_of(std::uint64_t end, const Asking& a) const;
  int new_list(std::uint64_t end, const Asking& a);
  // Of a boundary that is whole or in the making, and has an entry of the first state group.
  [[nodiscard]] Known* here(TwinKey key);
  [[nodiscard]] Known* known(TwinKey key);
  [[nodiscard]] std::vector<SlotId> members(TwinKey key) const;
  void renew_all(TwinKey key);
  void relist(TwinKey key, Known& k, int list);
  void expose(Known& k);
  void add_ghost(TwinKey key, const Known& k);
  [[nodiscard]] Known fresh(TwinKey key, std::uint64_t end, const Asking& a);
  void note(Asking& a, std::uint64_t end) const;
  void extend(Asking& a);
  bool more_worth(int least, bool block, TwinKey key, std::uint64_t end, Asking& a);

  BoundaryLimits limits_;
  SurvivalTwin learned_;
  std::vector<List> infos_;
  std::uint64_t now_ = 0;
  std::uint64_t refreshed_ = 0;
  bool answers_ = false;
  std::map<RunId, Asking> asking_;
  std::map<SlotId, Entry> entries_;
  std::map<TwinKey, Known> whole_;  // not left over
  std::map<TwinKey, Known> ghosts_;
  std::vector<TwinKey> ghost_order_;  // oldest first
};

}  // namespace kvc::test
