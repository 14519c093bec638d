// "auto" for layouts with states: whole boundaries are what is kept or goes (docs/policies.md,
// "Hybrid layouts").
#pragma once
#include <array>
#include <cmath>
#include <span>
#include <vector>

#include "plugin/coordinator/tier_ghosts.h"
#include "plugin/coordinator/tier_hazard.h"
#include "plugin/coordinator/tier_policy.h"
#include "plugin/coordinator/tier_survival.h"

namespace kvc::tier {

// What a boundary is to the requests that left or used it.
enum class BoundaryType : std::uint32_t {
  tail = 0,        // of a prompt, the deepest one
  extended = 1,    // a tail that a request used, and left a deeper boundary
  log_spaced = 2,  // at block 1, 2, 4, 8, ... of a prompt
  parting = 3,     // inside a block, and no tail: where prompts part
  block = 4,       // at another block's end
  answer = 5       // behind the prompt
};

// Threads:    as Policy.
// Owns:       ghosts of boundaries, classes, samples, notes of requests. All entries of one
//             boundary (its states, and the chain's tail where it lies inside a block) have equal
//             marks but for what says where they stand: the stamp is the number of the request that
//             used it last, or stored it.
// Invariants: entries of a boundary that lost one of them stand in the list of leftovers, which is
//             worth less than anything. Chain blocks stand in a list of their own, of which nothing
//             goes while a boundary may: they go as dead ones.
class BoundaryPolicy final : public Policy {
 public:
  using Policy::Policy;
  // Whether the layout is one for it: one attention group, and states of one block size that are
  // all handed off.
  [[nodiscard]] static bool fits(const Geometry& geometry);

  [[nodiscard]] bool make() override;
  void opened(RunId run) override;
  void begin(RunId run, const KeyView& keys, Tokens prompt) override;
  void end(RunId run, const KeyView& keys, Tokens answer) override;
  bool maintain() override;
  void reserved(SlotId slot, RunId run) override;
  void touched(SlotId /*slot*/, RunId /*run*/) override {}
  void gone(SlotId slot) override;
  void reset() override;
  [[nodiscard]] SlotId victim(RunId store_run, const Newcomer& newcomer, bool& declined) override;
  [[nodiscard]] PolicyNumbers numbers() const override;
  [[nodiscard]] PolicyReport report() const override;
  [[nodiscard]] Status verify() const override;

 private:
  static constexpr std::uint16_t leftovers = 0;
  static constexpr std::uint16_t blocks = 1;
  static constexpr std::uint16_t first_class = 2;
  static constexpr std::uint32_t levels = 8;
  static constexpr int level_of_one = 5;  // whose index is the worth itself
  static constexpr std::uint32_t notes_ends = 24;

  // What is known of a run's request.
  struct Notes {
    std::uint64_t used_tag;  // of the deepest boundary of its prompt that was known; 0: none
    std::uint64_t tail_tag;  // 0: the prompt has no tail
    std::uint32_t request;   // 0: not begun
    std::uint32_t prompt;    // tokens
    std::uint32_t tail;
    std::uint32_t used;
    SlotId used_slot;    // no_slot: it was a ghost
    std::uint32_t last;  // the deepest boundary that it used or stored
    std::uint8_t kind;
    std::uint8_t count;     // of ends
    std::uint8_t extended;  // it left a boundary behind `used`
    std::uint8_t declined;  // 1: a block of the prompt, after the last stored one; 2: an answer's
    std::uint32_t ends[notes_ends];  // of boundaries that it used or stored, the first ones
    std::uint32_t unused;
  };
  struct ListInfo {
    ClassId cls;
    std::uint16_t level;
  };
  struct Found {
    SlotId slot = no_slot;  // of the first state group, not left over
    GhostId ghost = no_ghost;
    [[nodiscard]] bool known() const { return slot != no_slot || ghost != no_ghost; }
  };

  [[nodiscard]] Found find(const std::byte* key, std::uint64_t tag, Tokens end) const;
  [[nodiscard]] Mark& mark_of(const Found& found) {
    return found.slot != no_slot ? marks_[found.slot] : ghosts_[found.ghost].mark;
  }
  // The keyed entries of the boundary, the chain's tail first; valid until the next call.
  [[nodiscard]] std::span<const SlotId> members(const std::byte* key, Tokens end);
  [[nodiscard]] std::uint32_t members_wanted(Tokens end) const {
    return static_cast<std::uint32_t>(ctx_.states.size()) + (end.n % ctx_.block.n != 0 ? 1U : 0U);
  }
  [[nodiscard]] Notes* notes_of(RunId run);
  [[nodiscard]] BoundaryType type_of(Tokens end, const Notes& notes) const;
  [[nodiscard]] std::uint32_t level_of(BoundaryType type, Tokens end, const Notes& notes) const;
  [[nodiscard]] std::uint16_t list_of(const ClassCode& code, std::uint32_t level);
  // The list of a new boundary of the request.
  [[nodiscard]] std::uint16_t new_list(Tokens end, const Notes& notes);
  [[nodiscard]] ClassCode code_of(std::uint16_t list) const {
    return ClassCode::unpack(survival_.code(infos_[list].cls));
  }
  void note_end(Notes& notes, Tokens end) const;
  // Its new list and stamp, for all entries that it has.
  void renew(const Found& found, std::uint16_t list, std::uint32_t stamp, std::uint32_t uses);
  void use(const Found& found, const Notes& notes);
  // A deeper boundary is left behind the one that was used.
  void extend(Notes& notes);
  // Entries that are here beside `slot`, which goes, are left over.
  void break_up(SlotId slot, const Mark& mark);
  [[nodiscard]] float worth(std::uint16_t list, std::uint32_t age) const {
    const ListInfo& info = infos_[list];
    return std::ldexp(survival_.worth(info.cls, age), static_cast<int>(info.level) - level_of_one);
  }
  [[nodiscard]] bool worth_more(std::uint16_t least, const Newcomer& newcomer, Notes* notes);

  void expose(Samples::Sample& sample);
  void expose(const Mark& mark, std::uint32_t where);
  void end_sample(const Mark& mark, std::uint32_t where);
  GhostId add_ghost(std::uint64_t tag, const Mark& mark);
  void forget_ghost(GhostId ghost);

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
  SlabArray<std::uint32_t> notes_of_run_;  // index + 1; 0: none
  std::vector<Notes> notes_;
  std::vector<std::uint32_t> free_notes_;
  std::vector<std::uint16_t> list_ids_;  // per packed class and level; 0: none
  std::vector<ListInfo> infos_;          // of lists from first_class on; the first ones are unused
  std::vector<std::uint16_t> skipped_;
  std::vector<std::uint16_t> changed_;     // lists whose old end changed
  std::vector<std::uint32_t> changed_at_;  // per list: now_ + 1 of its last change; 0: none
  std::array<SlotId, groups_max + 1> members_{};
  std::uint32_t now_ = 0;
  std::uint32_t refreshed_ = 0;
  std::uint64_t declined_ = 0;
  bool answers_ = false;  // boundaries behind prompts are handed off
};

}  // namespace kvc::tier
