// The host tier as the scheduler role sees it: which key is in which slot, in which state, and who
// goes when it is full. The bytes are the ranks' business.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/recency.h"
#include "plugin/offload/event_ring.h"
#include "plugin/offload/slot_pool.h"

namespace kvc {

// What set_ranks settled: pages (minimum over ranks; UINT64_MAX grows), slots per page of each
// class, and the class of each group (no_class: not stored).
struct TierSizes {
  static constexpr std::uint8_t no_class = 0xFF;
  std::uint64_t pages = 0;
  std::vector<std::uint32_t> slots_per_page;
  std::array<std::uint8_t, groups_max> class_of_group{};
};

enum class Presence : std::uint8_t { absent, reserved, published };

// Why a slot was not given: everything evictable is used by its own request or by copies, or only
// leases stand in the way (design 2.5.2 dropped_leased).
enum class Refusal : std::uint8_t { none, pool_full, leased };

enum class PinKind : std::uint8_t { lease, job };

struct TierCounters {
  std::uint64_t evictions = 0;
  std::uint64_t bad_entries = 0;  // source failures that took an entry out (design 3.1 d)
  std::uint64_t refusals = 0;
};

// Threads:    scheduler role only.
// Owns:       index, recency and slots of the tier.
// Invariants: an entry is free, reserved (a copy writes it), published, or doomed (invisible; its
//             slot returns with its last pin or with the end of its copy). A key is on one reserved
//             or published entry at most (CW-9). Lookups see published entries only. A pinned or
//             reserved entry is never evicted, nor is one of the storing request's own run. No heap
//             after resize() unless the tier grows.
class HostTier {
 public:
  HostTier(const Geometry& geometry, std::uint32_t key_bytes, EventRing& events);

  // Once. `open_runs`: how many may be open at once; 0 grows. Errors: the numbers do not fit the
  // index (Code::arg), memory (std::bad_alloc).
  Status resize(const TierSizes& sizes, std::uint64_t open_runs);
  [[nodiscard]] bool sized() const { return slots_.has_value(); }

  // Published entries, for lookups. Requires sized().
  [[nodiscard]] const KeyIndex& index() const { return view_; }
  // Any state; entry is set unless absent.
  [[nodiscard]] Presence find(GroupId group, const std::byte* key, SlotId& entry) const;

  // A slot for a key that is absent; evicts if it must. no_slot: `refusal` says why, nothing
  // changed but evictions on the way. `run` is the storing request's.
  [[nodiscard]] SlotId reserve(GroupId group, const std::byte* key, Tokens end, RunId run,
                               Refusal& refusal);
  // The copy landed: visible from now on, part of `run`. False: the entry was doomed meanwhile, and
  // its slot is free now.
  bool publish(SlotId entry, RunId run);
  // The copy failed or was given up: the slot is free, the key absent.
  void abandon(SlotId entry);

  // Pins add. Requires: published or, for unpin, doomed.
  void pin(SlotId entry, PinKind kind);
  void unpin(SlotId entry, PinKind kind);
  // The run uses the entry (a hit, or a store skipped because the key is there: CW-10).
  void touch(SlotId entry, RunId run);
  // A source failure: the bytes under this key are bad. The key is absent from now on, so that its
  // next offer writes it again; the slot returns with the last pin. Nothing if not published.
  void condemn(SlotId entry);
  // No lookup finds anything older from now on; one `cleared` event. Requires: no lease pins.
  void reset();

  // no_run: as many as allowed are open, or the tier has no size yet.
  [[nodiscard]] RunId open_run();
  void close_run(RunId run);
  void schedule(RunId run);

  [[nodiscard]] bool doomed(SlotId entry) const { return is_doomed(state_[entry]); }
  [[nodiscard]] bool published(SlotId entry) const { return state_[entry] == State::published; }
  // The slot number inside the class of the entry's group, as plans name it.
  [[nodiscard]] std::uint32_t slot_number(SlotId entry) const { return slots_->slot_number(entry); }
  // Requires: reserved or published.
  [[nodiscard]] SlotKey key_of(SlotId entry) const { return index_->primary(entry); }
  [[nodiscard]] std::uint32_t pins(SlotId entry) const { return pins_[entry].all; }

  // Slots that exist at the narrowest use of pages: the sum a full tier of whole pages has.
  [[nodiscard]] std::uint64_t slots_total() const;
  [[nodiscard]] std::uint64_t slots_used() const { return slots_ ? slots_->used_slots() : 0; }
  [[nodiscard]] std::uint64_t evictable() const { return recency_ ? recency_->evictable() : 0; }
  [[nodiscard]] std::uint64_t reserved() const { return reserved_; }  // doomed ones included
  [[nodiscard]] std::uint64_t pinned() const { return pinned_; }      // entries, any state
  [[nodiscard]] std::uint64_t doomed_reserved() const { return doomed_reserved_; }
  [[nodiscard]] std::uint64_t doomed_pinned() const { return doomed_pinned_; }
  [[nodiscard]] std::uint64_t published_entries() const {
    return recency_ ? recency_->entries() : 0;
  }
  [[nodiscard]] std::uint64_t entries_max() const { return slots_ ? slots_->entries_max() : 0; }
  [[nodiscard]] const TierCounters& counters() const { return counters_; }
  // Grows with every publication: a lookup repeated under the same number finds the same.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] IndexCounters index_counters() const {
    return index_ ? index_->counters() : IndexCounters{};
  }

  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  enum class State : std::uint8_t { free, reserved, published, doomed_reserved, doomed_pinned };
  struct Pins {
    std::uint32_t all = 0;
    std::uint32_t leases = 0;
  };
  static bool is_doomed(State s) {
    return s == State::doomed_reserved || s == State::doomed_pinned;
  }
  [[nodiscard]] static bool lease_only(const Pins& p) { return p.all != 0 && p.all == p.leases; }

  // What lookups see.
  class View final : public KeyIndex {
   public:
    explicit View(const HostTier& tier) : tier_(tier) {}
    [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override;
    void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override;

   private:
    const HostTier& tier_;
  };

  [[nodiscard]] SlotId take_slot(std::uint32_t cls, RunId run, Refusal& refusal);
  [[nodiscard]] bool evict_page(SlotId victim, RunId run);
  void evict(SlotId entry);
  void free_slot(SlotId entry);
  void removed_event(SlotId entry);

  const Geometry& geometry_;
  std::uint32_t key_bytes_;
  EventRing& events_;
  View view_;
  TierSizes sizes_;
  std::optional<SlotPool> slots_;
  std::optional<FlatIndex> index_;
  std::optional<Recency> recency_;
  ZeroedArray<State> state_;
  ZeroedArray<Pins> pins_;
  std::uint64_t reserved_ = 0;
  std::uint64_t pinned_ = 0;
  std::uint64_t lease_only_ = 0;
  std::uint64_t doomed_reserved_ = 0;
  std::uint64_t doomed_pinned_ = 0;
  std::uint64_t epoch_ = 1;
  TierCounters counters_;
};

}  // namespace kvc
