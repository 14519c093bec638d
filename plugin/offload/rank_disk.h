// The disk jobs of a rank: blocks between slots of the host tier and the disk tier (design 3.2).
//
// What a plan asks for is done in its order as far as order matters: a spill of a slot comes after
// the stores that fill it, a load of a slot after the fill. Which blocks go where is the scheduler
// role's choice.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "plugin/core/result.h"
#include "plugin/offload/disk/disk_tier.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/rank_layout.h"
#include "plugin/offload/rank_pages.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

// Threads:    those of RankEngine: one user.
// Owns:       the disk tier, the open disk jobs. Layout and pages outlive it.
// Invariants: a slot that is spilled counts as read until the disk tier has let go of it, one that
//             is to be filled as written from take on; each job ends once; no byte outside the pool
//             is touched.
class RankDisk {
 public:
  struct Ended {
    JobId job = 0;
    JobKind kind = JobKind::spill;
    Code status = Code::ok;  // of the first block that failed
    std::uint64_t moved_bytes = 0;
    std::vector<FailedBlock> failed;  // position: number of the block in the job; block -1
  };

  RankDisk(std::unique_ptr<disk::DiskTier> tier, const RankLayout& layout, RankPages& pages,
           HostServices& host, std::uint32_t rank)
      : tier_(std::move(tier)), layout_(layout), pages_(pages), host_(host), rank_(rank) {}

  // Whether `jobs` can be taken: ids that are not 0, not open, not twice.
  [[nodiscard]] Status check(PlanReader jobs) const;
  // Takes the disk jobs of a checked plan. Requires: check said ok.
  void take(PlanReader jobs);
  // Starts what can start, and takes what ended.
  void advance();
  // Stepped: up to `budget` calls to the system; how many.
  std::uint64_t pump(std::uint64_t budget) { return tier_->pump(budget); }
  // Waits for the disk, not longer than told. Not for jobs that wait for others.
  void wait(std::uint64_t timeout_ns) { tier_->wait(timeout_ns); }

  // The job that ended first and was not dropped yet; null: none.
  [[nodiscard]] const Ended* ended() const { return ended_.empty() ? nullptr : &ended_.front(); }
  void drop_ended() { ended_.pop_front(); }
  [[nodiscard]] bool open(JobId job) const;
  [[nodiscard]] std::size_t open_jobs() const { return jobs_.size(); }
  // Whether the disk has something to do for an open job.
  [[nodiscard]] bool busy() const { return tier_->open_operations() != 0; }

  [[nodiscard]] disk::DiskTier& tier() { return *tier_; }
  [[nodiscard]] const disk::DiskTier& tier() const { return *tier_; }

  // For verify of RankEngine: calls f(class, slot, written) for every slot that is read or written.
  template <class F>
  void for_each_slot(F f) const {
    for (const Job& job : jobs_) {
      for (const Block& b : job.blocks) {
        if (b.state != BlockState::at_disk && !b.marked) continue;
        f(layout_.class_of(b.what.group), b.what.slot, job.kind == JobKind::fill);
      }
    }
  }

 private:
  enum class BlockState : std::uint8_t { waiting, at_disk, done };
  struct Block {
    PlanDiskBlock what;
    BlockState state = BlockState::waiting;
    std::uint64_t bytes = 0;  // that are moved
    bool marked = false;      // a fill: its slot counts as written
  };
  struct Job {
    std::uint64_t number = 0;  // of this rank's disk jobs
    JobId id = 0;
    JobKind kind = JobKind::spill;
    bool asked = false;  // a reset is at the disk
    std::vector<Block> blocks;
    std::size_t left = 0;  // blocks that are not done
    Ended result;
  };
  enum class Start { started, wait };

  Start start(Job& job, std::uint32_t i);
  Start start_spill(Job& job, std::uint32_t i);
  Start start_fill(Job& job, std::uint32_t i);
  void start_reset(Job& job);
  void mark_fill(Block& block);
  void unmark_fill(Block& block, std::uint8_t written);
  void finish(const disk::DiskDone& done);
  void fail(Job& job, std::uint32_t i, Code status, FailedSide side);
  void block_done(Job& job, std::uint32_t i);
  [[nodiscard]] std::uint32_t class_of(const PlanDiskBlock& block) const;
  [[nodiscard]] SlotState& state(const PlanDiskBlock& block) const;

  std::unique_ptr<disk::DiskTier> tier_;
  const RankLayout& layout_;
  RankPages& pages_;
  HostServices& host_;
  const std::uint32_t rank_;
  std::deque<Job> jobs_;  // in the order of their plans
  std::uint64_t next_number_ = 0;
  std::deque<Ended> ended_;
};

}  // namespace kvc
