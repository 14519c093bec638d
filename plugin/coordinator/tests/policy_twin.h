// The slow twins of the eviction policies: docs/policies.md over plain maps and vectors. Every
// answer is searched for; nothing is shared with the policies but the text.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "plugin/coordinator/tier_index.h"

namespace kvc::test {

using TwinKey = std::uint64_t;  // the 8 bytes of a key

struct TwinChoice {
  SlotId slot = no_slot;
  bool declined = false;
};

// What the twin asks about entries: the rules of the index are another twin's matter.
struct TwinFacts {
  std::function<bool(SlotId)> may_go;    // evictable and not in front
  std::function<bool(SlotId)> in_front;  // of a published entry
  std::function<RunId(SlotId)> user;     // whose run it is
};

// Lists of entries, oldest first, with the rule of parking.
class TwinLists {
 public:
  explicit TwinLists(TwinFacts facts) : facts_(std::move(facts)) {}
  virtual ~TwinLists() = default;

  void published(SlotId slot) { push(slot, false); }
  // After every call of the index: what may go comes back, what is in front leaves.
  void settle();

 protected:
  struct Place {
    bool listed = false;
    bool parked = false;
    std::uint32_t list = 0;
  };
  virtual void old_end_changed(std::uint32_t /*list*/) {}
  virtual std::uint32_t list_of(SlotId slot) = 0;
  void push(SlotId slot, bool old_end);
  void take(SlotId slot);
  void park(SlotId slot) {
    take(slot);
    places_[slot].parked = true;
  }
  // To the young end of the list that list_of names now, if it stands anywhere.
  void renew(SlotId slot);
  [[nodiscard]] bool stands(SlotId slot) { return places_[slot].listed || places_[slot].parked; }
  [[nodiscard]] SlotId oldest(std::uint32_t list, RunId store_run);
  void clear() {
    places_.clear();
    for (auto& [list, slots] : lists_) {
      slots.clear();
      old_end_changed(list);
    }
  }

  TwinFacts facts_;
  std::map<SlotId, Place> places_;  // of published entries
  std::map<std::uint32_t, std::vector<SlotId>> lists_;
};

// Calls as those of TierIndex. Paths are keys of blocks, in order.
class PolicyTwin {
 public:
  virtual ~PolicyTwin() = default;
  virtual void begin(RunId run, const std::vector<TwinKey>& path, std::uint64_t prompt) = 0;
  virtual void end(RunId run, const std::vector<TwinKey>& path, std::uint64_t answer) = 0;
  virtual void maintain() {}
  virtual void reserved(SlotId slot, TwinKey key, std::uint64_t end, RunId run) = 0;
  virtual void published(SlotId slot) = 0;
  virtual void touched(SlotId slot, RunId run) = 0;
  // `stored`: it was published.
  virtual void gone(SlotId slot, bool stored) = 0;
  virtual void reset() = 0;
  virtual void settle() = 0;
  virtual TwinChoice victim(RunId store_run, TwinKey key, std::uint64_t end) = 0;
};

struct TwinLimits {
  std::uint64_t slots = 0;
  std::uint64_t ghosts_more = 0;
  std::uint64_t block = 0;  // tokens
};

std::unique_ptr<PolicyTwin> make_policy_twin(Eviction eviction, const TwinLimits& limits,
                                             const TwinFacts& facts);
// The hazard twin, in its own file.
std::unique_ptr<PolicyTwin> make_hazard_twin(const TwinLimits& limits, const TwinFacts& facts);

}  // namespace kvc::test
