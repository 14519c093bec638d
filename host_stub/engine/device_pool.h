// The device block pool of the engine with the references that open jobs of the connector hold.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include <kvc/kvc.h>

#include "host_stub/engine/candidates.h"
#include "host_stub/engine/connector_link.h"
#include "host_stub/engine/options.h"
#include "host_stub/engine/rank_memory.h"
#include "plugin/coordinator/block_pool.h"

namespace kvc::host {

// Threads:    one caller; the BlockQuery calls come from inside that caller's connector calls.
// Owns:       the pool and the hold references. Memory of the ranks outlives it.
// Invariants: a block has one pool reference per request table entry, per pending copy and per
//             (job, block) hold; it leaves the free queue before it is named and returns only
//             when its last reference goes.
class DevicePool final : public BlockQuery {
 public:
  // As BlockPool::make, with the chain of the layout; blocks 0 grows.
  static Result<std::unique_ptr<DevicePool>> make(
      const Geometry& geometry, Blocks blocks, std::span<const std::unique_ptr<RankMemory>> memory);

  [[nodiscard]] BlockPool& pool() { return pool_; }
  [[nodiscard]] const BlockPool& pool() const { return pool_; }
  [[nodiscard]] Candidates& candidates() { return candidates_; }

  // Blocks for `out`; false: not enough free ones, or no memory; nothing changed.
  bool allocate(std::span<BlockId> out);

  // The job holds these blocks (one more reference each) until release(job). A job may be given
  // blocks twice. A block out of range or the null block is refused: false, nothing changed.
  // `step`: the plan that carries it, 0 if a later one will.
  bool hold(kvc_job job, std::span<const BlockId> blocks, std::uint64_t step = 0);
  // Appends the jobs that hold the block and stand in a plan before `step`.
  void jobs_on(BlockId block, std::uint64_t step, std::vector<kvc_job>& jobs) const;
  // Ends the holds of the job, first in the order of `order`, then what is left, newest first.
  // Blocks that were taken as candidates go back to their place in the free queue.
  // Returns how many blocks `order` named that the job did not hold.
  std::uint64_t release(kvc_job job, std::span<const BlockId> order);
  // All jobs are over: the connector was closed.
  void release_all();
  [[nodiscard]] bool holds_any() const { return !holds_.empty(); }
  [[nodiscard]] std::uint64_t hold_references() const { return hold_references_; }
  // Blocks that only holds keep: they come back without anybody giving something up.
  [[nodiscard]] std::uint64_t held_only() const;
  [[nodiscard]] std::uint64_t holds_on(BlockId block) const;

  [[nodiscard]] DeviceUse use() const;

  [[nodiscard]] std::uint64_t has_key(std::uint32_t group, std::int64_t block,
                                      const std::uint8_t* key) const override;
  [[nodiscard]] std::int64_t block_of(std::uint32_t group, const std::uint8_t* key) const override;

 private:
  DevicePool(BlockPool pool, std::span<const std::unique_ptr<RankMemory>> memory)
      : pool_(std::move(pool)), memory_(memory) {}
  void drop(BlockId block);

  BlockPool pool_;
  std::span<const std::unique_ptr<RankMemory>> memory_;
  struct Hold {
    std::uint64_t step = 0;
    std::vector<BlockId> blocks;
  };
  std::unordered_map<kvc_job, Hold> holds_;
  std::unordered_map<BlockId, std::uint32_t> held_;  // holds per block
  std::uint64_t hold_references_ = 0;
  std::vector<BlockId> dropped_;
  Candidates candidates_{pool_};
};

}  // namespace kvc::host
