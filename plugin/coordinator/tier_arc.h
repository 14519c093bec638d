// ARC (O-245..O-252) for a chained index: docs/policies.md.
#pragma once
#include <array>

#include "plugin/coordinator/tier_ghosts.h"
#include "plugin/coordinator/tier_policy.h"

namespace kvc::tier {

// Threads:    as Policy.
// Owns:       T1 and T2 as lists, B1 and B2 as ghosts of chain entries, the target.
// Invariants: sizes_ count reserved entries too; B1 and B2 have no key in common with each other
//             and with the index; 0 <= target <= slots.
class ArcPolicy final : public Policy {
 public:
  using Policy::Policy;
  [[nodiscard]] bool make() override;
  void opened(RunId run) override;
  void begin(RunId run, const KeyView& keys, Tokens prompt) override;
  void end(RunId run, const KeyView& keys, Tokens answer) override;
  void reserved(SlotId slot, RunId run) override;
  void touched(SlotId slot, RunId run) override;
  void gone(SlotId slot) override;
  void reset() override;
  [[nodiscard]] SlotId victim(RunId store_run, const Newcomer& newcomer, bool& declined) override;
  [[nodiscard]] PolicyNumbers numbers() const override;
  [[nodiscard]] Status verify() const override;

 private:
  static constexpr std::uint16_t once = 0;   // T1, B1
  static constexpr std::uint16_t often = 1;  // T2, B2

  // The store that missed the key will come: the target learns from a ghost.
  void learn(std::uint64_t tag);
  void set_list(SlotId slot, std::uint16_t list);
  void use(SlotId slot, std::uint32_t request);

  std::array<Ghosts, 2> ghosts_;
  std::array<std::uint64_t, 2> sizes_{};
  SlabArray<std::uint32_t> requests_;  // of a run: the number of its request; 0: not begun
  double target_ = 0;                  // of T1
  std::uint32_t now_ = 0;
};

}  // namespace kvc::tier
