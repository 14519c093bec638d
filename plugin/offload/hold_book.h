// Device blocks that jobs hold, and which of them no request's table names any more (design 2.3
// "Holds").
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/core/op_count.h"
#include "plugin/core/prefetch.h"
#include "plugin/offload/scheduler_role.h"
#include "plugin/offload/zeroed_array.h"

namespace kvc {

// Counts, per (group, device block): tables of live requests that name it, and jobs that hold it.
//
// Threads:    scheduler role only.
// Owns:       the counts; blocks belong to the engine.
// Invariants: orphaned() <= held(); both count blocks, not holds. No heap after construction when
//             the number of device blocks is bounded.
class HoldBook {
 public:
  // device_blocks UINT64_MAX: grows with the blocks that are named, at most block_jump ids at a
  // time; a number further off is no block, so that no number can ask for all memory. `null_block`
  // is never counted.
  HoldBook(const Geometry& geometry, std::uint64_t device_blocks, BlockId null_block);

  // A block that a request may name: inside the pool and not the null block.
  [[nodiscard]] bool real(BlockId block) const {
    return block != null_block_ && block >= 0 &&
           static_cast<std::uint64_t>(block) < device_blocks_ && block < reach_;
  }
  // The first position in [first, behind) whose block is not real, or `behind`. Of a pool that
  // grows nothing is known before: `behind`.
  [[nodiscard]] std::uint64_t first_unreal(const BlockId* blocks, std::uint64_t first,
                                           std::uint64_t behind) const;
  [[nodiscard]] bool null(BlockId block) const { return block == null_block_; }

  // A live request's table names the block at `position`. Requires real(block), here and below.
  void table_add(GroupId group, BlockId block, std::uint64_t position) {
    Use& u = use(group, block);
    if (u.tables == 0 && u.holds != 0) --orphaned_;
    ++u.tables;
    ++table_references_;
    u.position = position;
  }
  void table_remove(GroupId group, BlockId block) {
    Use& u = use(group, block);
    KVC_CHECK(u.tables > 0);
    --u.tables;
    --table_references_;
    if (u.tables == 0 && u.holds != 0) ++orphaned_;
  }
  void hold(GroupId group, BlockId block) {
    Use& u = use(group, block);
    if (u.holds == 0) first_hold(u);
    ++u.holds;
  }
  // hold, if no job holds the block yet: true.
  [[nodiscard]] bool hold_alone(GroupId group, BlockId block) {
    Use& u = use(group, block);
    if (u.holds != 0) return false;
    first_hold(u);
    u.holds = 1;
    return true;
  }
  // table_add and hold of blocks[i] at position i for every i in [first, behind), in one visit
  // each. Stops before the first that is no block of the pool or that a job holds, and returns its
  // position; `behind`: none is. Requires nothing of the blocks.
  [[nodiscard]] std::uint64_t name_and_hold(GroupId group, const BlockId* blocks,
                                            std::uint64_t first, std::uint64_t behind);
  void release(GroupId group, BlockId block) {
    Use& u = use(group, block);
    KVC_CHECK(u.holds > 0);
    --u.holds;
    if (u.holds != 0) return;
    --held_;
    if (u.tables == 0) {
      KVC_CHECK(orphaned_ > 0);
      --orphaned_;
    }
  }

  // An open job reads or writes the block.
  [[nodiscard]] bool held_by_job(GroupId group, BlockId block) const;
  [[nodiscard]] std::uint64_t held() const { return held_; }
  // Held blocks that no live request's table names: what the budget counts.
  [[nodiscard]] std::uint64_t orphaned() const { return orphaned_; }
  // Whether a hold of this block will be a new orphan once its owner is gone: no job holds it yet,
  // and at most `own_tables` tables name it.
  [[nodiscard]] bool adds_orphan(GroupId group, BlockId block, std::uint32_t own_tables) const;
  // Exactly one table names the block, and a job holds it.
  [[nodiscard]] bool only_table(GroupId group, BlockId block) const;
  // The position at which a table named the block last (K3-17).
  [[nodiscard]] std::uint64_t last_position(GroupId group, BlockId block) const;
  [[nodiscard]] std::uint64_t table_references() const { return table_references_; }
  // Where the counts of the block lie; null if there are none yet. Requires nothing.
  [[nodiscard]] const std::byte* where(GroupId group, BlockId block) const {
    return block < 0 ? nullptr : uses_[group].where(static_cast<std::uint64_t>(block));
  }
  // The counts of the block are asked for soon. Requires nothing.
  void prefetch(GroupId group, BlockId block) const { prefetch_write(where(group, block)); }
  // How many blocks ahead of the one at hand a pass asks: as many as the core can have under way.
  static constexpr std::uint64_t ahead = 24;

 private:
  static constexpr BlockId block_limit = BlockId{1} << 40;
  static constexpr BlockId block_jump = BlockId{1} << 24;
  // Four to a cache line: none lies across two.
  struct alignas(16) Use {
    std::uint32_t tables = 0;
    std::uint32_t holds = 0;
    std::uint64_t position = 0;
  };
  Use& use(GroupId group, BlockId block) {
    KVC_OP(block, 1);
    KVC_CHECK(real(block));
    const auto i = static_cast<std::uint64_t>(block);
    if (device_blocks_ == UINT64_MAX) make_room(group, block);
    return uses_[group][i];
  }
  // An unlimited pool grows with the ids that are named.
  void make_room(GroupId group, BlockId block);
  void first_hold(const Use& u) {
    ++held_;
    if (u.tables == 0) ++orphaned_;
  }
  [[nodiscard]] const Use* find(GroupId group, BlockId block) const;

  std::uint64_t device_blocks_;
  BlockId null_block_;
  BlockId reach_ = block_limit;         // ids below it may be named
  std::vector<ZeroedArray<Use>> uses_;  // per group
  std::uint64_t held_ = 0;
  std::uint64_t orphaned_ = 0;
  std::uint64_t table_references_ = 0;
};

}  // namespace kvc
