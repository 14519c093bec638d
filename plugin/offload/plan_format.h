// The plan: flat bytes that the engine carries from the scheduler role to every rank once per step
// (design 2.1). Byte layout: docs/formats/plan.md.
//
// A plan has two sections, loads before stores; each is a sequence of jobs, each job a sequence of
// copies between a slot of the host tier and a device block. Slots count within the class of the
// copy's group (design 2.4); which bytes belong to a slot or block is the rank's business. A third
// section, for ranks with a disk tier, has jobs between host slots and disk, where blocks have
// keys.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "plugin/core/result.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

inline constexpr std::uint32_t plan_magic = 0x5043564B;  // the bytes "KVCP"
inline constexpr std::uint16_t plan_version = 1;
inline constexpr std::size_t plan_header_bytes = 64;
inline constexpr std::size_t plan_job_bytes = 32;
inline constexpr std::size_t plan_copy_bytes = 24;
inline constexpr std::size_t plan_disk_block_bytes = 88;
inline constexpr std::size_t plan_key_bytes = 32;  // shorter keys: zeroes behind

// Exact size of a plan with so many jobs and copies.
// Requires: the result fits 64 bits.
[[nodiscard]] constexpr std::uint64_t plan_bytes(std::uint64_t jobs, std::uint64_t copies) {
  return plan_header_bytes + jobs * plan_job_bytes + copies * plan_copy_bytes;
}

struct PlanCopy {
  std::uint32_t group = 0;
  std::uint32_t slot = 0;  // of the group's class
  BlockId block = 0;
  std::uint64_t position = 0;  // in the request's table; for reports only

  friend bool operator==(const PlanCopy&, const PlanCopy&) = default;
};

// A block of a disk job. Of a drop slot, end and parent mean nothing.
struct PlanDiskBlock {
  std::uint32_t group = 0;
  std::uint32_t slot = 0;  // of the group's class
  std::uint64_t end_tokens = 0;
  bool has_parent = false;
  std::array<std::uint8_t, plan_key_bytes> key{};
  std::array<std::uint8_t, plan_key_bytes> parent{};

  friend bool operator==(const PlanDiskBlock&, const PlanDiskBlock&) = default;
};

// Writes one plan after another into a buffer of the caller. No heap.
//
// Threads:    one user. Owns: nothing; the buffer outlives the encoder.
// Invariants: what is written never exceeds the buffer; between begin and finish the buffer holds
//             no valid plan, after finish it does. Loads are added before stores, disk jobs last.
class PlanEncoder {
 public:
  // Requires: buffer.size() >= plan_header_bytes.
  explicit PlanEncoder(std::span<std::uint8_t> buffer);

  // Starts an empty plan; drops an unfinished one.
  void begin(std::uint64_t epoch, std::uint64_t step);

  // Loads and stores leave so many bytes of the buffer for disk jobs. Requires room for the header.
  void set_aside(std::uint64_t bytes);

  // How many copies a job begun now could still hold; with a job open: how many it can still take.
  // UINT64_MAX never occurs; `no_job` if not even an empty job fits (only while none is open).
  static constexpr std::uint64_t no_job = UINT64_MAX;
  [[nodiscard]] std::uint64_t copies_that_fit() const;

  // Opens a job. False, and nothing changed, if not even an empty one fits. `outcome`: a failure
  // that was decided before the job began: every rank ends it so.
  // `in_step`: a load that the forward of this step reads layer by layer (kvc.layerwise/1).
  // Requires: no job is open; no load after a store; outcome is ok or an error; in_step only loads.
  [[nodiscard]] bool begin_job(JobKind kind, JobId job, RequestId request, Code outcome = Code::ok,
                               bool in_step = false);
  // Adds a copy to the open job. False, and nothing changed, if it does not fit.
  // Requires: the outcome of the open job is not decided.
  [[nodiscard]] bool add_copy(const PlanCopy& copy);
  // Takes back the last copy of the open job. Requires: it has one.
  void drop_last_copy();
  // Closes the open job, also one without copies.
  void end_job();
  // All or nothing: a disk job. False, and nothing changed, if it does not fit. `request`: whose
  // hit a fill is for; 0 else. Requires: no job is open; kind is one of the disk; a disk_reset has
  // no blocks.
  [[nodiscard]] bool add_disk_job(JobKind kind, JobId job, RequestId request,
                                  std::span<const PlanDiskBlock> blocks);
  // Takes the open job back with all its copies.
  void abandon_job();

  // All or nothing: a whole job. False, and nothing changed, if it does not fit.
  [[nodiscard]] bool add_job(JobKind kind, JobId job, RequestId request,
                             std::span<const PlanCopy> copies);

  [[nodiscard]] std::uint64_t jobs() const { return loads_ + stores_ + disk_jobs_; }
  // Copies of the open job.
  [[nodiscard]] std::uint64_t open_copies() const { return open_copies_; }

  // Completes the plan: the bytes to carry, inside the buffer, valid until the next begin.
  // Requires: begin was called, no job is open.
  [[nodiscard]] std::span<const std::uint8_t> finish();

 private:
  // For loads and stores.
  [[nodiscard]] std::uint64_t left() const {
    return buffer_.size() - std::min<std::uint64_t>(buffer_.size(), aside_ + used_);
  }

  std::span<std::uint8_t> buffer_;
  std::uint64_t used_ = 0;
  std::uint64_t aside_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t step_ = 0;
  std::uint32_t loads_ = 0;
  std::uint32_t stores_ = 0;
  std::uint32_t disk_jobs_ = 0;
  std::uint64_t load_bytes_ = 0;
  std::uint64_t disk_bytes_ = 0;
  std::uint64_t open_at_ = 0;  // offset of the open job; 0: none
  std::uint64_t open_copies_ = 0;
  JobKind open_kind_ = JobKind::load;
  Code open_outcome_ = Code::ok;
};

// One job of a plan; a view into its bytes.
class PlanJob {
 public:
  [[nodiscard]] JobKind kind() const { return kind_; }
  [[nodiscard]] JobId job() const { return job_; }
  [[nodiscard]] RequestId request() const { return request_; }  // 0: stores of several requests
  // Not ok: the job has no copies and ends so.
  [[nodiscard]] Code outcome() const { return outcome_; }
  // A load: layer by layer, before the others.
  [[nodiscard]] bool in_step() const { return in_step_; }
  [[nodiscard]] std::uint64_t size() const { return count_; }
  // Requires: i < size(), a load or store.
  [[nodiscard]] PlanCopy copy(std::uint64_t i) const;
  // Requires: i < size(), a disk job.
  [[nodiscard]] PlanDiskBlock disk_block(std::uint64_t i) const;

 private:
  friend class PlanReader;
  JobKind kind_ = JobKind::load;
  bool in_step_ = false;
  Code outcome_ = Code::ok;
  JobId job_ = 0;
  RequestId request_ = 0;
  std::uint64_t count_ = 0;
  const std::uint8_t* copies_ = nullptr;
};

// Forward pass over the jobs of one section of a checked plan.
class PlanReader {
 public:
  // False at the end.
  [[nodiscard]] bool next(PlanJob& job);

 private:
  friend class PlanView;
  static PlanJob read(const std::uint8_t* at);
  const std::uint8_t* at_ = nullptr;
  std::uint32_t left_ = 0;
};

// A plan whose every byte was checked.
//
// Threads: immutable; any thread. Owns: nothing; the bytes outlive the view.
class PlanView {
 public:
  // Survives any bytes. Errors: arg, with a text that names the field: too short, magic, version,
  // length, checksum, a job that crosses its section, a job of the wrong kind, unknown flags, an
  // outcome that is no error or has copies.
  static Result<PlanView> read(std::span<const std::uint8_t> bytes);

  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  [[nodiscard]] std::uint64_t step() const { return step_; }
  [[nodiscard]] std::uint32_t load_jobs() const { return loads_.left_; }
  [[nodiscard]] std::uint32_t store_jobs() const { return stores_.left_; }
  [[nodiscard]] std::uint32_t disk_jobs() const { return disk_.left_; }
  [[nodiscard]] PlanReader loads() const { return loads_; }
  [[nodiscard]] PlanReader stores() const { return stores_; }
  [[nodiscard]] PlanReader disk() const { return disk_; }

 private:
  std::uint64_t epoch_ = 0;
  std::uint64_t step_ = 0;
  PlanReader loads_;
  PlanReader stores_;
  PlanReader disk_;
};

}  // namespace kvc
