// What a host tier of some size would have hit: requests one after the other, no device cache, the
// real index and policy, no bytes.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "host_stub/size/size_trace.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/lookup.h"
#include "plugin/coordinator/prefix_tags.h"
#include "plugin/coordinator/state_rule.h"
#include "plugin/coordinator/tier_index.h"
#include "plugin/core/result.h"

namespace kvc::host {

struct SizeSetup {
  Eviction eviction = Eviction::lru;
  std::uint64_t slots = 0;  // one entry of any group each; 0: unlimited
  StateRule states = StateRule::dense;
};

struct SizeCounts {
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t events = 0;  // entries that were used or offered
  std::uint64_t stored = 0;
  std::uint64_t evicted = 0;
  std::uint64_t declined = 0;  // blocks that the policy did not admit
  std::uint64_t entries = 0;   // at the end
  // Memory of index and policy.
  std::uint64_t index_bytes = 0;
  std::uint64_t policy_bytes = 0;
  [[nodiscard]] double ratio() const {
    return prompt_tokens == 0
               ? 0
               : static_cast<double>(hit_tokens) / static_cast<double>(prompt_tokens);
  }
};

// Threads:    one user.
// Owns:       the index. Geometry and trace must outlive it.
// Invariants: hits are those of kvc::lookup with at most P - 1 tokens; what a request stores, and
// in
//             which order, is what simple_cpu stores that runs alone: the chain, further attention,
//             windows, then attention tails and states, all of a boundary or none.
class SizeSimulator final : private TierSink {
 public:
  // Errors: those of TierIndex::make.
  static Result<std::unique_ptr<SizeSimulator>> make(const Geometry& geometry,
                                                     const SizeTrace& trace,
                                                     const SizeSetup& setup);
  // Runs requests [0, trace.requests().size()). Once.
  SizeCounts run();
  // The next one alone.
  void step(const SizeRequest& request);
  [[nodiscard]] const SizeCounts& counts() const { return counts_; }
  [[nodiscard]] const TierIndex& index() const { return index_; }

 private:
  SizeSimulator(const Geometry& geometry, const SizeTrace& trace, const SizeSetup& setup,
                TierIndex index);
  enum class Offer : std::uint8_t { held, stored, refused };
  void use_hit(const KeyView& keys, RunId run);
  // Offers the chain's whole blocks of the hit, which are there, and held by the deepest one, that
  // use_hit met. Returns how many there are.
  std::uint64_t use_path(GroupId chain, RunId run);
  void store_all(const SizeRequest& request, const KeyView& keys, RunId run);
  void store_positions(GroupId group, const KeyView& keys, RunId run);
  // Ascending, none twice.
  void list_boundaries(const SizeRequest& request);
  void store_boundary(Tokens boundary, const KeyView& keys, RunId run);
  // A used entry, or a reserved one in `slot`.
  [[nodiscard]] Offer offer(GroupId group, Tokens end, const KeyView& keys, RunId run,
                            SlotId& slot);
  void use(SlotId slot, const KeyView& keys, RunId run);
  [[nodiscard]] SlotId room(RunId run, GroupId group, const std::byte* key, Tokens end);
  void evicted(SlotId slot, const SlotKey& key, bool bad) override;
  void published(SlotId slot, std::uint32_t tag) override;
  void failed(SlotId slot, std::uint32_t tag, bool copy_open) override;

  const Geometry& geometry_;
  const SizeTrace& trace_;
  SizeSetup setup_;
  TierIndex index_;
  std::vector<GroupId> positions_;  // groups stored by position, in order
  std::vector<GroupId> tails_;
  std::vector<GroupId> states_;  // handed off at boundaries
  std::vector<SlotId> free_;
  std::vector<SlotId> reserved_;
  std::vector<SlotId> held_;  // by position
  std::vector<Tokens> boundaries_;
  StatePlan plan_;
  PrefixTags tags_;
  SlotId used_ = 0;
  Hit hit_;
  SizeCounts counts_;
};

}  // namespace kvc::host
