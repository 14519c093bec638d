// Disk jobs between the scheduler's decision and the last rank's report.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plugin/coordinator/key_index.h"
#include "plugin/core/check.h"
#include "plugin/offload/job_table.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

// One entry of a spill or fill: where it is in the host tier and in the disk tier.
struct DiskCopy {
  SlotId host = no_slot;
  SlotId disk = no_slot;
  std::uint32_t next = 0;  // of its job, + 1; or the next free one
  bool failed = false;     // a rank named it
  bool lost = false;       // .. and could not read it: it is not on that rank any more
};

struct DiskJob {
  JobId id = 0;
  JobKind kind = JobKind::spill;
  bool planned = false;
  bool ended = false;       // every rank told its end
  bool all_failed = false;  // a rank failed and did not name all of what failed
  bool full = false;        // a rank had no room
  Code status = Code::ok;   // the first failure of a rank
  JobId load = 0;           // fills: the load that reads what is filled
  bool load_ended = false;
  RequestIndex request = no_request;  // whose load it is
  std::uint32_t first = 0;            // copies, + 1
  std::uint32_t last = 0;
  std::uint32_t copies = 0;
  std::uint32_t ranks_ended = 0;
  std::vector<std::uint64_t> ended_bits;
};

// Threads:    scheduler role only.
// Owns:       jobs and copies; as many as it is made with, never more.
// Invariants: ids are not those of loads and stores; a copy is in one job.
class DiskJobs {
 public:
  // Of `jobs` so many as `kept` are for fills alone.
  DiskJobs(std::uint32_t ranks, std::uint32_t jobs, std::uint32_t kept, std::uint32_t copies);

  // Null: there are as many as there may be.
  [[nodiscard]] DiskJob* create(JobKind kind);
  [[nodiscard]] DiskJob* find(JobId id);
  [[nodiscard]] DiskJob* find_fill(JobId load);
  [[nodiscard]] bool used(JobId id) const { return id >= first_id && id < next_id_; }
  [[nodiscard]] std::uint32_t copies_left() const { return copies_left_; }
  // Requires copies_left() != 0.
  void add(DiskJob& job, SlotId host, SlotId disk);
  template <class Visit>
  void for_each(const DiskJob& job, Visit visit) {
    for (std::uint32_t at = job.first; at != 0;) {
      DiskCopy& copy = copies_[at - 1];
      at = copy.next;
      visit(copy);
    }
  }
  // Requires number < job.copies.
  [[nodiscard]] DiskCopy& copy(const DiskJob& job, std::uint64_t number);
  void remove(DiskJob& job);
  // Takes out the copies of which gone(copy) is true.
  template <class Gone>
  void erase_if(DiskJob& job, Gone gone) {
    std::uint32_t at = job.first;
    job.first = job.last = 0;
    const std::uint32_t before = job.copies;
    job.copies = 0;
    while (at != 0) {
      DiskCopy& copy = copies_[at - 1];
      const std::uint32_t next = copy.next;
      copy.next = 0;
      if (gone(copy)) {
        copy.next = free_copy_;
        free_copy_ = at;
        ++copies_left_;
      } else {
        (job.last == 0 ? job.first : copies_[job.last - 1].next) = at;
        job.last = at;
        ++job.copies;
      }
      at = next;
    }
    (job.kind == JobKind::fill ? fill_copies_ : spill_copies_) -= before - job.copies;
  }

  [[nodiscard]] std::size_t open() const { return open_.size(); }
  [[nodiscard]] DiskJob& open_at(std::size_t i) { return pool_[open_[i]]; }
  [[nodiscard]] const DiskJob& open_at(std::size_t i) const { return pool_[open_[i]]; }
  [[nodiscard]] std::uint64_t copies_of(JobKind kind) const {
    return kind == JobKind::fill ? fill_copies_ : spill_copies_;
  }
  // False: told before. Requires rank < ranks.
  bool mark_ended(DiskJob& job, std::uint32_t rank);
  [[nodiscard]] std::string verify() const;

 private:
  // Beyond all ids of loads and stores.
  static constexpr JobId first_id = JobId{1} << 63U;
  std::uint32_t ranks_;
  std::uint32_t kept_;
  JobId next_id_ = first_id;
  std::vector<DiskJob> pool_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> open_;
  std::vector<DiskCopy> copies_;
  std::uint32_t free_copy_ = 0;  // + 1
  std::uint32_t copies_left_ = 0;
  std::uint64_t fill_copies_ = 0;
  std::uint64_t spill_copies_ = 0;
};

}  // namespace kvc
