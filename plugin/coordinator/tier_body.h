// The inside of TierIndex, shared by its files.
#pragma once
#include <vector>

#include "plugin/coordinator/tier_index.h"
#include "plugin/coordinator/tier_order.h"
#include "plugin/coordinator/tier_records.h"

namespace kvc {

struct TierIndex::Body {
  using Record = tier::Record;

  const Geometry& geometry;
  TierIndexOptions options;
  GroupId chain = groups_max;  // groups_max: flat
  Tokens block;                // of the chain group
  Tokens unit;                 // h
  bool dead_rule = false;      // chain entries without servable boundary go first
  std::vector<GroupId> exact;  // groups that serve a boundary with an entry that ends there
  std::vector<GroupId> wide;   // further attention groups: any entry that covers it
  tier::Records records;
  tier::Order order;
  TierIndexCounters counts;
  std::uint64_t root_offsets = 0;
  // Unsupported tails, which no base knows, and where they may end in their block.
  std::uint64_t loose_tails = 0;
  std::uint64_t loose_offsets = 0;

  Body(const Geometry& layout, const TierIndexOptions& o);

  [[nodiscard]] bool chained() const { return chain != groups_max; }
  [[nodiscard]] Record& at(SlotId slot) const {
    KVC_CHECK(records.known(slot));
    return records[slot];
  }
  // A dependent that may have a support which it is not linked to.
  [[nodiscard]] bool lacks_support(const Record& r) const {
    if (r.has(Record::unsupported_bit)) return true;
    return chained() && !r.carries() && r.end % block.n != 0 && (r.support == 0 || r.second == 0);
  }
  [[nodiscard]] bool rooted(const Record& r) const {
    return r.has(Record::tail_bit) && r.end < block.n;
  }

  // --- holders
  void add_holder(SlotId slot, std::uint64_t unit_of);
  void drop_holder(SlotId slot, std::uint64_t unit_of);
  void enter_order(SlotId slot);
  // The reason for standing in front or not may have changed.
  void retest(SlotId slot);
  [[nodiscard]] bool belongs_in_front(SlotId slot) const;

  [[nodiscard]] bool walk_path(GroupId group, const KeyRun& keys, std::size_t share,
                               std::span<SlotId> out, PathListener* listener) const;
  // Every slot is the child of the one before it.
  [[nodiscard]] bool linked(std::span<const SlotId> path) const;

  // --- dependents
  void link_first(SlotId slot, SlotId support);
  void link_second(SlotId slot, SlotId tail);
  void unlink_first(SlotId slot);
  void unlink_second(SlotId slot);
  void link_supports(SlotId slot, SlotId first, SlotId second);
  void list_unsupported(SlotId slot);
  void unlist(SlotId slot);
  void make_unsupported(SlotId slot);
  void end_unsupported(SlotId slot);
  // The entry of the chain group under the key; no_slot also for one that ends elsewhere.
  [[nodiscard]] SlotId find_at(const std::byte* key, std::uint64_t end) const;
  // The supports that the keys name now; no_slot where absent.
  [[nodiscard]] Supports find_supports(GroupId group, const KeyView& path, Tokens end,
                                       RunId run) const;
  // A new chain entry or tail of the run becomes a support of what waits for it.
  void adopt(SlotId slot, const KeyView& path, RunId run);
  void adopt_through_tails(SlotId slot, const KeyView& path);
  void share_dependents(SlotId tail, const KeyView& path);
  // Something at this end went or was linked: the chain entries that it makes reachable are tested
  // again. Not needed where it kept them out of the order until now, as by an open copy.
  void boundary_changed(const Record& r);
  [[nodiscard]] bool servable(SlotId entry) const;
  [[nodiscard]] bool reaches_back(const Record& entry) const;
  [[nodiscard]] bool needs(GroupId group, Tokens end) const;
  template <class Next>
  [[nodiscard]] bool holds_at(GroupId group, Tokens end, std::uint32_t first, Next next) const;
  [[nodiscard]] bool covered(const Record& entry, GroupId group, Tokens end) const;
  [[nodiscard]] bool servable_at(const Record& entry, const Record* tail, Tokens end) const;
  [[nodiscard]] bool dead(SlotId entry) const;
  void note_tail(const Record& tail);
  [[nodiscard]] std::uint64_t offset_bit(std::uint64_t tokens) const;
  [[nodiscard]] std::uint64_t offsets_of_tails(SlotId entry) const;

  // --- chain
  void join_siblings(SlotId slot);
  void leave_siblings(SlotId slot);
  void publish_chain(SlotId slot, std::uint32_t tag, TierSink& sink);
  void publish_dependent(SlotId slot);
  void fail_chain(SlotId slot, TierSink& sink);
  [[nodiscard]] SlotId writer_fallback(RunId run, SlotId first_failed) const;
  // What may become childless is as new as the child it loses.
  void inherit_run(SlotId parent, RunId run);
  void fail_one(SlotId slot, SlotId first_failed, TierSink& sink);
  void fail_dependent(SlotId slot);
  [[nodiscard]] SlotId take_dependent(SlotId carrier);
  void drop_all_dependents(SlotId slot);
  void hold_path(RunId run, SlotId entry);
  void release_path(RunId run);

  // --- ends
  void evict(SlotId slot, TierSink& sink);
  void evict_dependents(SlotId slot, TierSink& sink);
  // Key, run and everything else of the record are gone. Requires: out of order and lists.
  void erase(SlotId slot);
  void end_bad(Record& r);

  [[nodiscard]] Status verify_entry(SlotId slot, const std::vector<std::uint64_t>& links) const;
  [[nodiscard]] Status verify_stretch(SlotId slot) const;
  [[nodiscard]] Status verify_dependent(SlotId slot) const;
  [[nodiscard]] Status verify_lists(SlotId slot) const;
  [[nodiscard]] Status verify_counts() const;
};

}  // namespace kvc
