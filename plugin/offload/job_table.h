// Jobs between the call that hands their id out and the last rank's report (design 2.3 "Jobs").
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "plugin/coordinator/key_index.h"
#include "plugin/core/op_count.h"
#include "plugin/core/zeroed.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

using RequestIndex = std::uint32_t;
inline constexpr RequestIndex no_request = UINT32_MAX;

// One block of a job: a tier entry and the device block that the job holds. The blocks of a chunk
// share an entry and follow each other; the last of them closes it: what is done once per entry is
// done with that one. Positions are those of the engine's table and fit 32 bits: the index takes
// ends below 2^32 tokens only.
struct CopyRecord {
  BlockId block = 0;
  std::uint32_t position = 0;
  SlotId entry = no_slot;
  RequestIndex request = no_request;
  std::uint8_t group = 0;
  bool handoff : 1 = false;
  bool offer_open : 1 = false;  // a store whose offer has no outcome yet
  bool owned : 1 = false;       // counts as named by its live request (groups without cells)
  bool failed : 1 = false;      // a rank named it
  bool pinned : 1 = false;      // a load that pins its entry by itself
  bool closes : 1 = true;       // the last block of its entry in this job
};
static_assert(sizeof(CopyRecord) == 24 && groups_max <= 256);

// Copies of one job, in the order of addition.
struct CopyChunk {
  static constexpr std::uint32_t room = 21;
  std::uint32_t next = 0;  // the job's next chunk + 1, or the next free one
  std::uint32_t used = 0;
  std::array<CopyRecord, room> copies;
};
static_assert(sizeof(CopyChunk) == 512);

// Copies of one request and group: blocks[i] and entries[i] at position first + i.
struct CopyRun {
  RequestIndex request = no_request;
  GroupId group = 0;
  std::uint64_t first = 0;
  const BlockId* blocks = nullptr;
  std::span<const SlotId> entries;
  std::size_t pinned_from = 0;         // entries from here on are pinned by themselves
  std::uint32_t blocks_per_chunk = 1;  // above 1: entries are those of the chunks of the positions
  std::uint64_t count = 0;             // of blocks, with chunks
};

struct Job {
  JobId id = 0;
  JobKind kind = JobKind::store;
  RequestId request = 0;  // 0: stores of several requests
  RequestIndex request_index = no_request;
  Code status = Code::ok;  // the first failure of a rank
  Code forced = Code::ok;  // ends so whatever the ranks say: cancelled, not served, invalidated
  bool planned = false;
  bool in_step = false;         // a load that the forward of its step reads layer by layer
  bool without_copies = false;  // its plan entry is empty
  bool verdict_given = false;   // loads
  bool overdue = false;         // a rank said deadline and has not ended yet
  std::uint32_t ranks_ended = 0;
  std::uint32_t ranks_heard = 0;  // ended or past their deadline
  std::uint64_t started_ns = 0;
  Tokens begin;  // loads: tokens [begin, end)
  Tokens end;
  Tokens from_disk;                 // loads: so many of them are read from disk first
  std::uint64_t gate_beats_ns = 0;  // loads: a probe of the cost gate (CostGate::loaded)
  // Loads that wait, as PlanFlow::next_plan_has counts them: copies of those up to this one, and
  // whether one of them reads from disk.
  std::uint64_t copies_in_line = 0;
  bool fills_in_line = false;
  std::uint64_t copies = 0;
  std::uint64_t entries = 0;              // stores: copies that close one
  std::vector<std::uint64_t> ended_bits;  // one per rank
  std::vector<std::uint64_t> heard_bits;
  std::vector<FailedBlock> failed;

  // The rank's part is over. Requires: rank < ranks of the table.
  [[nodiscard]] bool has_ended(std::uint32_t rank) const {
    return (ended_bits[rank / 64] >> (rank % 64) & 1U) != 0;
  }
  // Links of the table.
  std::uint32_t first_chunk = 0;  // + 1
  std::uint32_t last_chunk = 0;
  std::uint32_t first_part = 0;  // + 1
  std::uint32_t last_part = 0;
  std::uint32_t next_waiting = 0;  // + 1: next job that waits for a plan
  std::uint32_t open_at = 0;
  std::uint32_t load_at = 0;  // loads: the place among open loads
};

// The parts of open jobs that hold copies of one request, newest first: what the request keeps, so
// that its copies are found without a look at those of others.
struct OpenParts {
  std::uint32_t first = 0;  // + 1
};

// Threads:    scheduler role only.
// Owns:       open jobs and their copies.
// Invariants: ids are 1, 2, ... and never reused; a job waits for exactly one plan, in the order of
//             creation within its kind. Every copy of an open job is in one part, and a part in the
//             list of its request. No heap while jobs and copies stay below what reserve() was
//             told.
class JobTable {
 public:
  explicit JobTable(std::uint32_t ranks) : ranks_(ranks) {}
  void reserve(std::uint64_t jobs, std::uint64_t copies);

  // A job that waits for a plan.
  Job& create(JobKind kind, RequestId request, RequestIndex index);
  // Null: unknown or ended.
  [[nodiscard]] Job* find(JobId id);
  // The id was handed out, its job may have ended.
  [[nodiscard]] bool used(JobId id) const { return id != 0 && id <= last_id_; }
  // `parts`: those of copy.request. They stay where they are until the job is removed.
  void add_copy(Job& job, const CopyRecord& copy, OpenParts& parts);
  void add_copies(Job& job, const CopyRun& run, OpenParts& parts);
  // In the order of addition.
  template <class Visit>
  void for_each_copy(const Job& job, Visit visit) {
    for (std::uint32_t at = job.first_chunk; at != 0; at = chunks_[at - 1].next) {
      CopyChunk& chunk = chunks_[at - 1];
      KVC_OP(copy, chunk.used);
      for (std::uint32_t i = 0; i < chunk.used; ++i) visit(chunk.copies[i]);
    }
  }
  // `soon` sees every copy before `visit` does, 22 to 42 copies ahead.
  template <class Soon, class Visit>
  void for_each_copy(const Job& job, Soon soon, Visit visit) {
    const auto ahead = [&](std::uint32_t at) {
      for (std::uint32_t i = 0; at != 0 && i < chunks_[at - 1].used; ++i) {
        soon(chunks_[at - 1].copies[i]);
      }
    };
    ahead(job.first_chunk);
    for (std::uint32_t at = job.first_chunk; at != 0; at = chunks_[at - 1].next) {
      ahead(chunks_[at - 1].next);
      CopyChunk& chunk = chunks_[at - 1];
      KVC_OP(copy, chunk.used);
      for (std::uint32_t i = 0; i < chunk.used; ++i) visit(chunk.copies[i]);
    }
  }
  template <class Visit>
  void for_each_copy(const Job& job, Visit visit) const {
    for (std::uint32_t at = job.first_chunk; at != 0; at = chunks_[at - 1].next) {
      const CopyChunk& chunk = chunks_[at - 1];
      KVC_OP(copy, chunk.used);
      for (std::uint32_t i = 0; i < chunk.used; ++i) visit(chunk.copies[i]);
    }
  }
  // Copies of one request in all open jobs, newest part first, each part in the order of addition.
  template <class Visit>
  void for_each_copy(const OpenParts& parts, Visit visit) {
    for (std::uint32_t at = parts.first; at != 0; at = parts_[at - 1].next_of_request) {
      const Part& part = parts_[at - 1];
      std::uint32_t chunk = part.first_chunk;
      std::uint32_t i = part.first_copy;
      KVC_OP(copy, part.copies);
      for (std::uint32_t n = 0; n < part.copies; ++n, ++i) {
        if (i == CopyChunk::room) {
          chunk = chunks_[chunk - 1].next;
          i = 0;
        }
        visit(chunks_[chunk - 1].copies[i]);
      }
    }
  }
  // Forgets the job and its copies. parts_of(request): the OpenParts of each request that has some.
  template <class PartsOf>
  void remove(Job& job, PartsOf parts_of) {
    for (std::uint32_t at = job.first_part; at != 0; at = parts_[at - 1].next_of_job) {
      unlink_part(parts_[at - 1], parts_of(parts_[at - 1].request));
    }
    forget(job);
  }

  // The oldest job of the kind that waits for a plan, or null; pop takes it out.
  [[nodiscard]] Job* waiting(JobKind kind);
  void pop_waiting(JobKind kind);
  // The one that waits behind it, or null. Requires: the job waits.
  [[nodiscard]] Job* next_waiting(const Job& job) {
    return job.next_waiting == 0 ? nullptr : pool_[job.next_waiting - 1].get();
  }
  // Jobs that are not ended, in no order.
  [[nodiscard]] std::size_t open() const { return open_.size(); }
  [[nodiscard]] Job& open_at(std::size_t i) { return *pool_[open_[i]]; }
  [[nodiscard]] const Job& open_at(std::size_t i) const { return *pool_[open_[i]]; }
  [[nodiscard]] std::uint64_t open_of(JobKind kind) const {
    return kind == JobKind::load ? open_loads_.size() : open_.size() - open_loads_.size();
  }
  // Of them the loads, in no order.
  [[nodiscard]] std::size_t open_loads() const { return open_loads_.size(); }
  [[nodiscard]] Job& open_load_at(std::size_t i) { return *pool_[open_loads_[i]]; }
  [[nodiscard]] std::uint64_t copies_of(JobKind kind) const {
    return kind == JobKind::load ? load_copies_ : store_copies_;
  }
  // Tier entries that open jobs write: copies that close one.
  [[nodiscard]] std::uint64_t entries_written() const { return store_entries_; }
  [[nodiscard]] std::uint32_t ranks() const { return ranks_; }

  enum class Heard { first, repeated };
  // A rank's part is over or past its deadline.
  Heard mark_ended(Job& job, std::uint32_t rank);
  Heard mark_overdue(Job& job, std::uint32_t rank);

  [[nodiscard]] std::string verify() const;

 private:
  // Consecutive copies of a job that are of one request.
  struct Part {
    RequestIndex request = no_request;
    std::uint32_t first_chunk = 0;  // + 1, as all links
    std::uint32_t first_copy = 0;   // its place in the chunk
    std::uint32_t copies = 0;
    std::uint32_t next_of_request = 0;
    std::uint32_t prev_of_request = 0;
    std::uint32_t next_of_job = 0;  // or next free part
  };
  struct Queue {
    std::uint32_t first = 0;  // + 1
    std::uint32_t last = 0;
  };
  Queue& queue(JobKind kind) { return kind == JobKind::load ? loads_ : stores_; }
  [[nodiscard]] std::unique_ptr<Job> fresh() const;
  // The job's last chunk, with room for a copy.
  CopyChunk& chunk_with_room(Job& job);
  // The part that the job's next copy, of this request, belongs to.
  Part& part_of(Job& job, RequestIndex request, OpenParts& parts);
  void add_chunks(Job& job, const CopyRun& run, OpenParts& parts);
  void unlink_part(const Part& part, OpenParts& parts);
  void forget(Job& job);
  // Places of ids: a table of pool indices + 1 by the low bits of the id, probed upwards. Unlike a
  // general map it needs no new memory however many jobs come and go.
  [[nodiscard]] std::size_t place_of(JobId id) const;
  void insert_id(std::uint32_t at);
  void erase_id(JobId id);
  static bool set_bit(std::vector<std::uint64_t>& bits, std::uint32_t rank);

  std::uint32_t ranks_;
  JobId last_id_ = 0;
  std::vector<std::unique_ptr<Job>> pool_;
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> open_;
  std::vector<std::uint32_t> open_loads_;
  std::vector<std::uint32_t> ids_;  // a power of two, at least twice the jobs
  PagedVector<CopyChunk> chunks_;
  std::uint32_t free_chunk_ = 0;  // + 1
  PagedVector<Part> parts_;
  std::uint32_t free_part_ = 0;  // + 1
  Queue loads_;
  Queue stores_;
  std::uint64_t load_copies_ = 0;
  std::uint64_t store_copies_ = 0;
  std::uint64_t store_entries_ = 0;
};

}  // namespace kvc
