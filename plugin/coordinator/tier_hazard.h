// The policy that the configuration calls "auto": classes, survival statistics, and an index of
// what a slot is worth (docs/policies.md).
#pragma once
#include <span>
#include <vector>

#include "plugin/coordinator/tier_ghosts.h"
#include "plugin/coordinator/tier_policy.h"
#include "plugin/coordinator/tier_samples.h"
#include "plugin/coordinator/tier_survival.h"

namespace kvc::tier {

// Old ends of classes by worth: a tree of minima, two levels deep.
class WorthIndex {
 public:
  static constexpr float empty = __builtin_inff();
  void make(std::uint32_t classes);
  void set(std::uint32_t id, float worth);
  [[nodiscard]] float at(std::uint32_t id) const;
  // Of the first `classes` the one with the least worth, the lowest id of equals; 0 if there are
  // none.
  [[nodiscard]] std::uint32_t least(std::uint32_t classes) const;

 private:
  static constexpr std::uint32_t span = 16;
  // Worth, then id: one number that sorts by both.
  std::vector<std::uint64_t> entries_;
  std::vector<std::uint64_t> minima_;
};

// Threads:    as Policy.
// Owns:       ghosts of chain entries, classes, samples. A mark's stamp is the number of the
//             request that touched the entry last, its list its class.
// Invariants: a chain entry's key is on the index or a ghost; the worth of a class is that of its
//             oldest entry when it became that or when all were computed last.
class HazardPolicy final : public Policy {
 public:
  using Policy::Policy;
  [[nodiscard]] bool make() override;
  void opened(RunId run) override;
  void begin(RunId run, const KeyView& keys, Tokens prompt) override;
  void end(RunId run, const KeyView& keys, Tokens answer) override;
  bool maintain() override;
  void reserved(SlotId slot, RunId run) override;
  void touched(SlotId slot, RunId run) override;
  void gone(SlotId slot) override;
  void reset() override;
  [[nodiscard]] SlotId victim(RunId store_run, const Newcomer& newcomer, bool& declined) override;
  [[nodiscard]] PolicyNumbers numbers() const override;
  [[nodiscard]] PolicyReport report() const override;
  [[nodiscard]] Status verify() const override;

 private:
  // What is known of a run's request; all zero: not begun.
  struct RunMark {
    std::uint32_t request;
    std::uint32_t prompt;  // tokens of whole blocks
    std::uint32_t last1;   // the entry that it stored or used last, + 1; 0: none
    std::uint8_t kind;
    std::uint8_t fresh;
    std::uint8_t unused[2];
  };
  struct Known {
    std::uint64_t blocks = 0;  // leading ones that are here or ghosts
    Mark* last = nullptr;
  };

  // Fills tags_: those of the blocks of the path that are not here.
  void find_tags(const KeyView& keys, std::span<const SlotId> path);
  // use or settle of the block come soon, and sooner.
  void expect_block(std::span<const SlotId> path, std::uint64_t position) const {
    path[position] != no_slot ? expect(path[position]) : ghosts_.expect_find(tags_[position]);
  }
  void expect_ghost(std::span<const SlotId> path, std::uint64_t position) const {
    if (path[position] == no_slot) ghosts_.expect_found(tags_[position]);
  }
  [[nodiscard]] Known known_part(std::span<const SlotId> path);
  // All positions from the last to the first, with what their use or settle reads fetched ahead;
  // moves what they queue.
  template <class Visit>
  void visit_back(std::span<const SlotId> path, const Visit& visit);
  void classify(RunMark& run, const Known& known, std::uint64_t blocks, Tokens prompt) const;
  [[nodiscard]] ClassId class_of(const RunMark& run, std::uint32_t out, std::uint8_t touches,
                                 std::uint32_t part);
  // Part of the class of a new entry of the run.
  [[nodiscard]] std::uint32_t part_of(bool of_chain, Tokens end, const RunMark& run) const;
  [[nodiscard]] std::uint64_t tag_of_entry(GroupId group, Tokens end, const std::byte* key) const;
  [[nodiscard]] bool chain_block(GroupId group, Tokens end) const {
    return group == ctx_.chain && end.n % ctx_.block.n == 0;
  }
  [[nodiscard]] std::uint32_t stamp_of(const RunMark& run) const {
    return run.request != 0 ? run.request : now_;
  }
  // Gives the class of the sample its waiting time until now.
  void expose(Samples::Sample& sample);
  // A further use, by the run's request: all of the mark but its class, which is returned, to be
  // set now.
  [[nodiscard]] ClassId use(Mark& mark, std::uint32_t where, const RunMark& run,
                            std::uint32_t part);
  void use_ghost(std::uint64_t tag, const RunMark& run, bool last);
  // The request's answer is known: the class of what it touched last.
  void settle(std::uint64_t tag, SlotId slot, const RunMark& run, std::uint32_t out,
              std::uint32_t part, bool last);
  GhostId add_ghost(std::uint64_t tag, const Mark& mark);
  void forget_ghost(GhostId ghost);
  void end_sample(const Mark& mark, std::uint32_t where);
  [[nodiscard]] bool worth_more(SlotId slot, const Newcomer& newcomer, RunId run);
  // Keys are computed when a victim is looked for, as of the request of the change.
  void old_end_changed(std::uint16_t list) override {
    if (changed_at_[list] == 0) changed_.push_back(list);
    changed_at_[list] = now_ + 1;
  }
  void rekey(std::uint16_t id, std::uint32_t now);
  void rekey_changed();
  void rekey_all();

  Ghosts ghosts_;
  Survival survival_;
  Samples samples_;
  WorthIndex worths_;
  SlabArray<RunMark> runs_;
  std::vector<std::uint64_t> tags_;  // by block of a path, scratch
  std::vector<std::uint16_t> skipped_;
  std::vector<std::uint16_t> changed_;     // lists whose old end changed
  std::vector<std::uint32_t> changed_at_;  // per list: now_ + 1 of its last change; 0: none
  std::uint32_t now_ = 0;
  std::uint32_t refreshed_ = 0;
  std::uint64_t declined_ = 0;
};

}  // namespace kvc::tier
