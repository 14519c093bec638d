// The host tier as the scheduler role sees it: which key is in which slot, in which state, and who
// goes when it is full. The bytes are the ranks' business.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/tier_index.h"
#include "plugin/core/hint.h"
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

// Why a slot was not given: everything evictable is used by its own request or by copies, only
// leases stand in the way (design 2.5.2 dropped_leased), or the block before it is not there.
// declined: something could go, but the policy keeps it rather than the new block, or it has a
// higher priority.
enum class Refusal : std::uint8_t { none, pool_full, leased, no_parent, declined };

struct TierCounters {
  std::uint64_t evictions = 0;
  std::uint64_t bad_entries = 0;        // source failures that made an entry bad (design 3.1 d)
  std::uint64_t rewritten_entries = 0;  // of them whose next offer was written again in place
  std::uint64_t refusals = 0;
};

// How the tier's index works. A policy that the layout cannot have (no chain, or not `chained`)
// becomes lru.
struct TierRules {
  bool chained = true;  // the chained index where the layout has a chain; false: the flat one
  Eviction eviction = Eviction::lru;
  Tokens path_max{};  // of the longest request; 0: not known
};

// Told what became of entries whose copy had ended before an ancestor's (design 3.1 c). `tag` is
// what publish was given.
class TierListener {
 public:
  virtual ~TierListener() = default;
  virtual void published(SlotId entry, std::uint32_t tag) = 0;
  // An ancestor failed, or a reset came; the entry is gone.
  virtual void landed_ended(std::uint32_t tag, bool by_reset) = 0;
  // A good entry left for want of room. `key` is valid in the call only.
  virtual void evicted(const SlotKey& key) = 0;
};

// Threads:    scheduler role only.
// Owns:       index and slots of the tier.
// Invariants: an entry is free, reserved (a copy writes it), landed (an ancestor's copy is open),
//             published, or doomed (invisible; its slot returns with its last pin or with the end
//             of its copy). A key is on one entry at most (CW-9). Lookups see published entries
//             only. A pinned or reserved entry is never evicted, nor is one of the storing
//             request's own run, nor what the chain rules hold (design 3.1). No heap after resize()
//             unless the tier grows.
class HostTier final : private TierSink {
 public:
  HostTier(const Geometry& geometry, std::uint32_t key_bytes, const TierRules& rules,
           EventRing& events);
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;
  // Called by publish, abandon, give_up and reset from now on.
  void set_listener(TierListener& listener) { listener_ = &listener; }

  // Once. `open_runs`: how many may be open at once; 0 grows. Errors: the numbers do not fit the
  // index (Code::arg), memory (std::bad_alloc).
  Status resize(const TierSizes& sizes, std::uint64_t open_runs);
  [[nodiscard]] bool sized() const { return slots_.has_value(); }
  [[nodiscard]] Eviction eviction() const { return rules_.eviction; }

  // Published entries, for lookups. Requires sized().
  [[nodiscard]] const TierIndex& index() const { return *index_; }
  // Any state; entry is set unless absent, and of a bad entry, which the next offer rewrites.
  [[nodiscard]] Presence find(GroupId group, const std::byte* key, SlotId& entry) const;
  // find of the key, or publish of the entry, comes soon.
  void expect_find(GroupId group, const std::byte* key) const;
  void expect_publish(SlotId entry) const { index_->expect_publish(entry); }

  // A slot for a key that is absent; evicts if it must and may. no_slot: `refusal` says why,
  // nothing changed but evictions on the way. `run` is the storing request's, `path` its keys
  // (empty: not known). `bad`: what find said of the absent key.
  [[nodiscard]] SlotId reserve(GroupId group, const std::byte* key, const KeyView& path, Tokens end,
                               RunId run, SlotId bad, Refusal& refusal, bool may_evict = true);
  // The copy landed. True: visible from now on (listener), false: as soon as its ancestors are.
  // Requires: reserved, not doomed.
  bool publish(SlotId entry, std::uint32_t tag);
  // The copy failed or was given up, or it ended in a doomed entry: the slot is free, the key
  // absent. A rewrite that failed leaves the entry bad.
  void abandon(SlotId entry);
  // The copy will not count, but it still writes: doomed until abandon.
  void give_up(SlotId entry);

  // Pins add. Requires: published or, for unpin, doomed.
  void pin(SlotId entry, PinKind kind);
  void pin_all(std::span<const SlotId> entries, PinKind kind) { index_->pin_all(entries, kind); }
  void unpin(SlotId entry, PinKind kind);
  // The run uses the entry (a hit, or a store skipped because the key is there: CW-10), which is on
  // `path`: as new as the run, held by its writer pin if it is of the chain, linked to its supports
  // if it had none.
  void use(SlotId entry, RunId run, const KeyView& path);
  // A source failure: the bytes under this key are bad. Nobody finds it from now on; its next offer
  // writes it again. Nothing if not published.
  void condemn(SlotId entry);
  // No lookup finds anything older from now on; one `cleared` event. Requires: no lease pins.
  void reset();

  // As TierIndex::begin_request and end_request: at the first admission, and when it is over.
  void begin_request(RunId run, const KeyView& path, Tokens prompt);
  void end_request(RunId run, const KeyView& path, Tokens answer);
  // Work that is due now and then, not for hot calls; open_run does it, too. True: some was.
  bool maintain() { return index_ && index_->maintain(); }

  // no_run: as many as allowed are open, or the tier has no size yet.
  [[nodiscard]] RunId open_run();
  void close_run(RunId run);
  void schedule(RunId run);
  void expect_schedule(RunId run) const;
  // Preemption, request_end: nothing is held for the request any more.
  void release_path(RunId run);
  // As TierIndex::hint and tick; nothing for no_run.
  void hint(RunId run, const Hint& hint);
  void tick(std::uint64_t now_ns) {
    if (index_) index_->tick(now_ns);
  }
  [[nodiscard]] bool timed() const { return index_ && index_->timed(); }

  [[nodiscard]] bool doomed(SlotId entry) const {
    const EntryState s = index_->state(entry);
    return s == EntryState::doomed_reserved || s == EntryState::doomed_pinned;
  }
  [[nodiscard]] bool published(SlotId entry) const {
    return index_->state(entry) == EntryState::published;
  }
  [[nodiscard]] bool bad(SlotId entry) const { return index_->bad(entry); }
  [[nodiscard]] bool rewriting(SlotId entry) const { return index_->rewriting(entry); }
  [[nodiscard]] bool readable(SlotId entry) const { return published(entry) && !bad(entry); }
  // What a block of the chain or a tail continues, and what another entry hangs on; no_slot: the
  // root, or nothing. Requires a keyed entry.
  [[nodiscard]] SlotId parent_of(SlotId entry) const {
    const Supports s = index_->supports_of(entry);
    return s.first != no_slot ? s.first : s.second;
  }
  // Who would go next, whoever stores; no_slot: none. It may be evicted.
  [[nodiscard]] SlotId next_victim() { return index_->victim(no_run); }
  void evict(SlotId entry) { index_->evict(entry, *this); }
  [[nodiscard]] bool evictable(SlotId entry) const {
    return published(entry) && index_->evictable(entry);
  }
  // The slot number inside the class of the entry's group, as plans name it.
  [[nodiscard]] std::uint32_t slot_number(SlotId entry) const { return slots_->slot_number(entry); }
  // Requires: not free, not doomed.
  [[nodiscard]] SlotKey key_of(SlotId entry) const { return index_->key_of(entry); }
  [[nodiscard]] std::uint32_t pins(SlotId entry) const { return index_->pins(entry); }

  // Slots that exist at the narrowest use of pages: the sum a full tier of whole pages has.
  [[nodiscard]] std::uint64_t slots_total() const;
  [[nodiscard]] std::uint64_t slots_used() const { return slots_ ? slots_->used_slots() : 0; }
  // Published entries that no lease, job or writer pins itself: they can go, children first.
  [[nodiscard]] std::uint64_t evictable() const {
    const TierIndexCounters& n = numbers();
    const std::uint64_t held = n.pinned - n.doomed_pinned + n.writer_pins;
    return n.published - std::min(n.published, held);
  }
  // Copies that write: reserved and doomed entries, open rewrites.
  [[nodiscard]] std::uint64_t reserved() const {
    const TierIndexCounters& n = numbers();
    return n.reserved - n.landed + n.doomed_reserved + n.rewriting;
  }
  [[nodiscard]] std::uint64_t pinned() const { return numbers().pinned; }  // entries, any state
  [[nodiscard]] std::uint64_t doomed_reserved() const { return numbers().doomed_reserved; }
  [[nodiscard]] std::uint64_t doomed_pinned() const { return numbers().doomed_pinned; }
  [[nodiscard]] std::uint64_t published_entries() const { return numbers().published; }
  // Used slots that are in no state that accounts for them: 0, or a fault of ours.
  [[nodiscard]] std::uint64_t unaccounted() const;
  [[nodiscard]] std::uint64_t entries_max() const { return slots_ ? slots_->entries_max() : 0; }
  [[nodiscard]] const TierCounters& counters() const { return counters_; }
  [[nodiscard]] const TierIndexCounters& numbers() const {
    return index_ ? index_->counters() : no_numbers_;
  }
  [[nodiscard]] PolicyNumbers policy() const { return index_ ? index_->policy() : PolicyNumbers{}; }
  [[nodiscard]] PolicyReport policy_report() const {
    return index_ ? index_->policy_report() : PolicyReport{};
  }
  // Grows with every publication: a lookup repeated under the same number finds the same.
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }

  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  void evicted(SlotId entry, const SlotKey& key, bool bad) override;
  void published(SlotId entry, std::uint32_t tag) override;
  void failed(SlotId entry, std::uint32_t tag, bool copy_open) override;
  [[nodiscard]] SlotId take_slot(GroupId group, const std::byte* key, Tokens end, RunId run,
                                 Refusal& refusal, bool may_evict);
  [[nodiscard]] bool evict_page(SlotId victim, RunId run);
  void removed_event(const SlotKey& key);

  const Geometry& geometry_;
  std::uint32_t key_bytes_;
  TierRules rules_;
  EventRing& events_;
  TierListener* listener_ = nullptr;
  TierSizes sizes_;
  std::optional<SlotPool> slots_;
  std::optional<TierIndex> index_;
  bool resetting_ = false;
  std::uint64_t epoch_ = 1;
  TierCounters counters_;
  TierIndexCounters no_numbers_;
};

}  // namespace kvc
