// Which device blocks the engine names as eviction candidates (kvc_step.candidates; lazy mode).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include <kvc/kvc.h>

#include "plugin/coordinator/block_pool.h"

namespace kvc::host {

struct CandidateLimits {
  std::uint64_t token_budget = 0;  // of one step
  std::uint64_t max_running = 0;
  std::uint64_t max_total_tokens = 0;
};

// How many blocks from the front of the free queue are looked after: what this step can take from
// it and the next one, which may also start a load. R-670 takes twice a step, but counts groups
// with a window by the window, where a step takes a block for all its tokens, and forgets loads.
[[nodiscard]] std::uint64_t candidate_window(const Geometry& geometry,
                                             const CandidateLimits& limits);

// Candidates are the keyed blocks among the first `window` of the pool's free queue, counted with
// those that are out of it because a store of theirs is open; each is named once for every time
// that it comes there, in the order of the queue, by the mark of the pool: no step scans the queue,
// and no block is passed over (CW-12). One that the connector refused for want of room is named
// again in the next step. A block that was stored goes back
// behind those that were looked at, not to the back: storing is no use.
//
// Threads:    one caller, the device pool's.
// Owns:       a few bytes per block; the pool is its owner's.
// Invariants: a block is named only if a request that may write gave it up since it was allocated;
//             held() counts the blocks that were taken for a store and not used since. A pool that
//             grows evicts nothing: nothing is named.
class Candidates {
 public:
  // Off until enable().
  explicit Candidates(BlockPool& pool) : pool_(pool) {}
  // `window` 0: off.
  void enable(std::uint64_t window);
  [[nodiscard]] bool enabled() const { return window_ != 0; }
  [[nodiscard]] std::uint64_t window() const { return window_; }

  // The blocks were handed out: what was known of them is forgotten.
  void allocated(std::span<const BlockId> blocks);
  // A request uses the cached blocks again.
  void used(std::span<const BlockId> blocks);
  // A request gives the block up; `may_store`: its writer allows storing it (KVC_REQUEST_NO_WRITE,
  // store limits).
  void given_up(BlockId block, bool may_store);

  // The list of this step, at most `most`, valid until the next call of collect. `stuck`: held
  // blocks that nobody knows the end of (kvc_pending.quarantined_blocks).
  [[nodiscard]] std::span<const kvc_candidate> collect(std::uint64_t stuck, std::uint64_t most);
  // A store job took the blocks; those of the list count as held from now on.
  void taken(std::span<const BlockId> blocks);
  // The plan was read. `refused`: some of the list were refused for want of room.
  void settle(bool refused);
  [[nodiscard]] std::uint64_t held() const { return held_; }

  // A job's holds end: moves from `blocks` to the result those that go back to where they were, in
  // the order of the queue. Valid until the next call.
  [[nodiscard]] std::span<const BlockId> released(std::vector<BlockId>& blocks);
  // The connector forgot everything: all is named again when it comes to the front. `stale`: and
  // nothing that is in the pool now may be stored (KVC_RESET_INVALIDATE).
  void forget(bool stale);

 private:
  enum Mark : std::uint8_t { may_store = 1, named = 2, borrowed = 4 };
  struct Use {
    std::uint64_t turn = 0;  // when it was named last
    std::uint8_t marks = 0;
  };
  void name(BlockId block);

  BlockPool& pool_;
  std::uint64_t window_ = 0;
  std::uint64_t turns_ = 0;
  std::uint64_t held_ = 0;
  std::vector<Use> uses_;
  std::vector<BlockId> again_;  // refused, in the order of the queue
  std::vector<BlockId> named_;
  std::vector<kvc_candidate> list_;
  std::vector<BlockId> back_;
};

}  // namespace kvc::host
