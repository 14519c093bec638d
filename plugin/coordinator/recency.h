// Exact LRU over paths, tails before heads (CW-2): who goes when a tier is full.
//
// Entries (slots of a tier) belong to *runs*. A run is what one request (or lookup) used last:
// every live request has one. Runs are ordered by when they were last scheduled; within a run the
// deepest entry goes first. So one request's prefix loses its tail before its head, whichever way
// its blocks came and went, and requests that run one after the other give exactly the order of a
// plain LRU that touches a request's blocks last one first.
#pragma once
#include <cstdint>
#include <memory>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

using RunId = std::uint32_t;
inline constexpr RunId no_run = UINT32_MAX;

struct RecencyOptions {
  std::uint64_t slots = 0;      // slots of the tier, ids below it; 0: unlimited, grows in slabs
  std::uint64_t open_runs = 0;  // open at once: live requests + lookups; 0: unlimited
};

// Threads:    scheduler role only; no lock inside.
// Owns:       the order. Slots, keys and bytes belong to the tier.
// Invariants: an entry belongs to exactly one run and, unless pinned, stands in that run's strand
// of its group, in
//             ascending end order; a closed run without entries is gone. Memory is sized at
//             construction (what was never used is not touched) or grows in slabs; no operation
//             allocates otherwise.
// Cost:       O(1) per call, with these exceptions: finding the strand is O(groups of the run); an
// entry that is
//             linked neither deepest nor shallowest of its strand walks from the nearer end
//             (touching or releasing in ascending or descending order never does); victim passes
//             runs of which every entry is pinned.
// Wrong ids (a slot that is not an entry, a run that is not open where one must be) are broken
// invariants.
class Recency {
 public:
  static Result<Recency> make(const RecencyOptions& options);
  Recency(Recency&&) noexcept;
  Recency& operator=(Recency&&) noexcept;
  ~Recency();

  // A new run, the newest one. no_run when options.open_runs are open.
  RunId open_run();
  // The request is over: the run stays in its place until its last entry leaves; the id must not be
  // used again.
  void close_run(RunId run);
  // The request of the run is scheduled: newest from now on.
  void schedule(RunId run);

  // A published entry joins, unpinned, as part of `run`. Requires that the slot is no entry. `end`:
  // its prefix tokens, below 2^32.
  void add(RunId run, SlotId slot, GroupId group, Tokens end);
  // The run uses the entry (hit, or a store skipped because the key is there, CW-10): it moves to
  // the run, whatever run it was in, pinned or not. The order of the runs does not change.
  void touch(RunId run, SlotId slot);
  // The entry is gone (evicted, bad, reset). Requires that it is not pinned.
  void remove(SlotId slot);
  // Pins add; a pinned entry is no victim. The last unpin puts it back to its place in its run.
  void pin(SlotId slot);
  void unpin(SlotId slot);

  // The entry to evict for a store of `store_run` (no_run: for nobody in particular): the one with
  // the most end tokens (ties: higher group index) of the oldest run that has an unpinned entry.
  // no_slot when there is none, or when that run is store_run itself: a store never evicts what its
  // own request just used, its ancestors among them. Changes nothing: the caller takes the slot out
  // with remove().
  [[nodiscard]] SlotId victim(RunId store_run) const;

  [[nodiscard]] bool contains(SlotId slot) const;
  [[nodiscard]] std::uint32_t pins(SlotId slot) const;
  // The run the entry belongs to. Requires contains(slot).
  [[nodiscard]] RunId run_of(SlotId slot) const;
  [[nodiscard]] std::uint64_t entries() const;
  // Entries that are not pinned.
  [[nodiscard]] std::uint64_t evictable() const;
  // Runs that are open or hold entries.
  [[nodiscard]] std::uint64_t runs() const;
  [[nodiscard]] std::uint64_t bytes() const;
  // Forgets all entries and pins; open runs stay open.
  void clear();
  // Checks the whole structure (slow, for tests).
  [[nodiscard]] Status verify() const;

 private:
  struct Body;
  explicit Recency(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace kvc
