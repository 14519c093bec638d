// GDSF over leaves: docs/policies.md. All slots of a class cost and weigh the same, so that the
// priority of an entry is the age of the tier plus the number of its uses.
#pragma once
#include <array>

#include "plugin/coordinator/tier_policy.h"

namespace kvc::tier {

// Threads:    as Policy.
// Owns:       a ring of lists, one per priority; the mark's stamp is the priority.
// Invariants: listed entries have priorities in [age, age + touches_max]; age never falls.
class GdsfPolicy final : public Policy {
 public:
  using Policy::Policy;
  [[nodiscard]] bool make() override;
  void opened(RunId run) override;
  void begin(RunId run, const KeyView& keys, Tokens prompt) override;
  void end(RunId run, const KeyView& keys, Tokens answer) override;
  void reserved(SlotId slot, RunId run) override;
  void touched(SlotId slot, RunId run) override;
  void gone(SlotId slot) override;
  [[nodiscard]] SlotId victim(RunId store_run, const Newcomer& newcomer, bool& declined) override;
  [[nodiscard]] PolicyNumbers numbers() const override;
  [[nodiscard]] Status verify() const override;

 private:
  static constexpr std::uint32_t ring = 256;
  static constexpr std::uint32_t touches_max = ring - 1;

  void listing(SlotId slot) override;
  void old_end_changed(std::uint16_t list) override;
  void use(SlotId slot);
  // The first list with entries, from the age on; ring: none.
  [[nodiscard]] std::uint32_t first_step(std::uint32_t from) const;

  std::array<std::uint64_t, ring / 64> filled_{};  // bit per list that has entries
  SlabArray<std::uint32_t> requests_;              // of a run; 0: not begun
  std::uint32_t age_ = 0;
  std::uint32_t now_ = 0;
};

}  // namespace kvc::tier
