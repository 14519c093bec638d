// The disk tier as the scheduler role sees it: which key every rank has on disk, and which goes
// when the budget is used up. The bytes are the ranks' business (plugin/offload/disk).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/tier_index.h"
#include "plugin/offload/event_ring.h"
#include "plugin/offload/zeroed_array.h"

namespace kvc {

// What set_ranks settled. A block costs its place in a file and the record of the place.
struct DiskSizes {
  std::uint64_t budget_bytes = 0;                         // of one rank
  std::array<std::uint64_t, groups_max> cost_of_group{};  // of an entry, the most of all ranks
  std::uint64_t open_runs = 0;                            // as TierIndexOptions
};

// A key that the ranks are to forget.
struct DiskDrop {
  GroupId group = 0;
  std::array<std::uint8_t, key_bytes_max> key{};
};

struct DiskIndexCounters {
  std::uint64_t evictions = 0;
  std::uint64_t refusals = 0;
  std::uint64_t lost = 0;  // entries that could not be read, or not written
};

// Threads:    scheduler role only.
// Owns:       the index of the tier, entries and bytes; what is to be dropped.
// Invariants: as those of TierIndex, for this tier alone: it is closed by itself, whatever the
//             host tier has, so that it can be published after a restart as it is. Entries cost at
//             most the budget. What left the index while ranks have its bytes is in drops() until
//             taken. No heap after resize() but for drops beyond those it has room for.
class DiskIndex final : private TierSink {
 public:
  DiskIndex(const Geometry& geometry, std::uint32_t key_bytes, bool chained, EventRing& events);
  DiskIndex(const DiskIndex&) = delete;
  DiskIndex& operator=(const DiskIndex&) = delete;

  // Once. Errors: no room for two entries of every group (Code::arg with the numbers), memory.
  Status resize(const DiskSizes& sizes);
  [[nodiscard]] bool sized() const { return index_.has_value(); }

  // Published entries, for lookups. Requires sized().
  [[nodiscard]] const TierIndex& index() const { return *index_; }
  // As HostTier::find.
  [[nodiscard]] Presence find(GroupId group, const std::byte* key, SlotId& entry) const;

  // An entry for a key that is absent; evicts if it must. no_slot: there is no room, or its parent
  // is not there. `bad`: what find said of the absent key.
  [[nodiscard]] SlotId reserve(GroupId group, const std::byte* key, const KeyView& path, Tokens end,
                               RunId run, SlotId bad);
  // Every rank has it. Requires: reserved, not doomed.
  void publish(SlotId entry);
  // The block of the chain that it continues, or, of another group, ends in; null: the first one,
  // or not known. Requires a keyed entry; valid until the next change.
  [[nodiscard]] const std::byte* parent_of(SlotId entry) const;
  // Not every rank has it, or it is doomed: it goes, and what waited for it.
  void abandon(SlotId entry);
  // The reservation is taken back before any rank knew of it.
  void give_back(SlotId entry);
  // An entry that a rank could not read: found no more, its next offer writes it again.
  void condemn(SlotId entry);

  // As HostTier. Requires: published or, for unpin, doomed.
  void pin(SlotId entry, PinKind kind) { index_->pin(entry, kind); }
  void unpin(SlotId entry, PinKind kind);
  void use(SlotId entry, RunId run, const KeyView& path);
  [[nodiscard]] RunId open_run();
  void close_run(RunId run);
  void schedule(RunId run);
  void release_path(RunId run);

  // Nothing older is found from now on; drops are forgotten: a reset of the ranks comes.
  void reset();

  // Ranks are to forget these, oldest first, before anything of the same key is written again.
  [[nodiscard]] std::size_t drops() const { return drops_.size() - first_drop_; }
  // Requires drops() != 0.
  [[nodiscard]] DiskDrop take_drop();
  void drop(GroupId group, const std::byte* key);

  // The ranks have less room than was thought: what is used now, without this entry.
  void shrink_budget();

  [[nodiscard]] bool published(SlotId entry) const {
    return index_->state(entry) == EntryState::published && !index_->bad(entry);
  }
  [[nodiscard]] bool doomed(SlotId entry) const {
    const EntryState s = index_->state(entry);
    return s == EntryState::doomed_reserved || s == EntryState::doomed_pinned;
  }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_; }
  [[nodiscard]] std::uint64_t budget_bytes() const { return budget_; }
  [[nodiscard]] const DiskIndexCounters& counters() const { return counters_; }
  [[nodiscard]] const TierIndexCounters& numbers() const {
    return index_ ? index_->counters() : no_numbers_;
  }
  // Copies that write: reserved and doomed entries, open rewrites.
  [[nodiscard]] std::uint64_t reserved() const {
    const TierIndexCounters& n = numbers();
    return n.reserved - n.landed + n.doomed_reserved + n.rewriting;
  }
  // Grows with every publication and loss.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  void evicted(SlotId entry, const SlotKey& key, bool bad) override;
  void published(SlotId entry, std::uint32_t tag) override;
  void failed(SlotId entry, std::uint32_t tag, bool copy_open) override;
  [[nodiscard]] SlotId take(GroupId group, RunId run);
  void free(SlotId entry);
  void drop_stray(SlotId entry);
  [[nodiscard]] CacheEvent event_of(EventKind kind, const SlotKey& key) const;

  const Geometry& geometry_;
  const std::uint32_t key_bytes_;
  const bool chained_;
  EventRing& events_;
  std::optional<TierIndex> index_;
  std::array<std::uint64_t, groups_max> cost_{};
  std::uint64_t budget_ = 0;
  std::uint64_t used_ = 0;
  // Entries by number: the group + 1 of one in use, and the next free one + 1.
  ZeroedArray<std::uint8_t> group_of_;
  ZeroedArray<SlotId> next_free_;
  std::uint64_t entries_ = 0;
  std::uint64_t in_use_ = 0;
  SlotId fresh_ = 0;
  SlotId first_free_ = 0;  // + 1
  std::vector<DiskDrop> drops_;
  std::size_t first_drop_ = 0;
  bool resetting_ = false;
  std::uint64_t epoch_ = 1;
  DiskIndexCounters counters_;
  TierIndexCounters no_numbers_;
};

}  // namespace kvc
