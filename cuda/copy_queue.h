// Bookkeeping of the copy engines: records of operations, their merged runs, lists, and who waits
// for whom. Internal to cuda/. Everything is reserved by the constructor; indices stand for
// pointers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/copy_engine.h"

namespace kvc::copy_detail {

inline constexpr std::uint32_t none = UINT32_MAX;

// Adjacent copies merged into one. `first` is the index of its first copy in the operation, `count`
// how many it joins.
struct Run {
  std::byte* dst = nullptr;
  const std::byte* src = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
};

inline constexpr std::uint32_t runs_per_chunk = 32;

struct Chunk {
  Run runs[runs_per_chunk];
  std::uint32_t used = 0;
  std::uint32_t next = none;
};

// Where the next piece of an operation starts: a run and an offset into it.
struct Cursor {
  std::uint32_t chunk = none;
  std::uint32_t run = 0;
  std::uint64_t offset = 0;
};

struct Op {
  std::uint64_t id = 0;
  std::uint64_t sequence = 0;
  CopyDirection direction = CopyDirection::load;
  Fence fence;
  bool fence_open = false;          // still to be reached
  bool source_lost = false;         // a store it comes after failed
  bool begun = false;               // a piece of it was taken
  std::uint32_t predecessors = 0;   // still open
  std::uint32_t successors = none;  // list of edges
  std::uint32_t chunks_first = none;
  std::uint32_t chunks_last = none;
  Cursor cursor;
  std::uint64_t bytes = 0;  // of all runs
  bool pieces_left = true;
  std::uint32_t pieces_out = 0;
  CopyCompletion result;
  std::uint32_t next = none;  // in the list it is in
  std::uint32_t prev = none;
  std::uint32_t hash_next = none;
  bool in_use = false;
  bool ended = false;
  CopyMark* mark = nullptr;
  // Of the CUDA backend only.
  bool issued = false;             // wholly in its stream: `piece` is the last of it
  std::uint64_t piece = 0;         // number of that piece, from 1
  std::uint64_t after_piece[2]{};  // by direction: the piece of that stream it comes after, 0: none
  std::uint32_t capture = none;    // a captured fence it comes after
};

struct List {
  std::uint32_t head = none;
  std::uint32_t tail = none;
  std::uint32_t size = 0;
};

// "successor comes after the operation whose list this edge is in".
struct Edge {
  std::uint32_t successor = none;
  std::uint32_t next = none;
};

// Appends one copy to a run if both ends continue it and the joined ranges still do not overlap.
bool joins(const Run& run, const CopyDescriptor& copy);

// What a batch takes: the runs that its copies merge into, and their chunks.
struct BatchSize {
  std::uint64_t runs = 0;
  std::uint64_t chunks = 0;
};

// Error: arg, naming the first copy that cannot be made at all.
Result<BatchSize> size_of(const CopyBatch& batch);

// Threads:    none of its own; the engine's mutex guards it.
// Owns:       records, chunks and edges, in arrays of fixed size.
// Invariants: ids of records in use are distinct; every record, chunk and edge is either free or
// owned by one record.
class Queue {
 public:
  Queue(std::uint32_t operations, std::uint64_t runs, std::uint32_t edges);

  [[nodiscard]] std::uint32_t operations_free() const { return operations_free_; }
  [[nodiscard]] std::uint32_t chunks_free() const { return chunks_free_; }
  [[nodiscard]] std::uint32_t edges_free() const { return edges_free_; }
  [[nodiscard]] std::size_t operations() const { return ops_.size(); }
  [[nodiscard]] std::size_t edges() const { return edges_.size(); }

  [[nodiscard]] Op& op(std::uint32_t at) { return ops_[at]; }
  [[nodiscard]] const Op& op(std::uint32_t at) const { return ops_[at]; }
  [[nodiscard]] Chunk& chunk(std::uint32_t at) { return chunks_[at]; }
  [[nodiscard]] const Edge& edge(std::uint32_t at) const { return edges_[at]; }

  // The record with this id, or none.
  [[nodiscard]] std::uint32_t find(std::uint64_t id) const;
  // Requires a free record and an id that is not in use.
  std::uint32_t take(std::uint64_t id);
  // Gives a record back, with all that it owns.
  void release(std::uint32_t at);

  // Requires enough free chunks (size_of).
  void set_runs(std::uint32_t at, std::span<const CopyDescriptor> copies);
  void drop_runs(std::uint32_t at);
  // Requires a free edge.
  void link(std::uint32_t predecessor, std::uint32_t successor);
  void drop_edges(std::uint32_t predecessor);

  void push_back(List& list, std::uint32_t at);
  // Puts `at` behind `place`, which is in the list; none: to its front.
  void insert_after(List& list, std::uint32_t place, std::uint32_t at);
  void remove(List& list, std::uint32_t at);
  // Takes what ended off the front of the list into `out` and gives the records back; how many.
  std::size_t report(List& ended, std::span<CopyCompletion> out);

 private:
  [[nodiscard]] std::size_t bucket(std::uint64_t id) const;

  std::vector<Op> ops_;
  std::vector<Chunk> chunks_;
  std::vector<Edge> edges_;
  std::vector<std::uint32_t> buckets_;
  std::uint32_t free_op_ = none;
  std::uint32_t free_chunk_ = none;
  std::uint32_t free_edge_ = none;
  std::uint32_t operations_free_ = 0;
  std::uint32_t chunks_free_ = 0;
  std::uint32_t edges_free_ = 0;
  std::uint64_t sequence_ = 0;
};

// Whether `after` is a load whose source a failed store was to write.
[[nodiscard]] inline bool loses_source(const Op& before, const Op& after) {
  return before.direction == CopyDirection::store && before.result.status != Code::ok &&
         after.direction == CopyDirection::load;
}

// The last of an operation's life, the same in both engines: its copies are done, perhaps a test
// holds it back, it ends, those that come after it may go, it is polled.
//
// Threads:    as Queue.
// Owns:       the lists of held and of ended operations, and the counts; the records are the
//             queue's.
// Invariants: an operation that ended was counted, and its mark told, once.
class Ends {
 public:
  Ends(Queue& queue, CopyFault* fault) : queue_(queue), fault_(fault) {}

  // A test lets it end.
  [[nodiscard]] bool may_end(const Op& o) const {
    return fault_ == nullptr || fault_->may_end(o.id);
  }
  // Its copies are done: end(at) is called now, or by look once it may end.
  template <class End>
  void copied(std::uint32_t at, End end) {
    if (may_end(queue_.op(at))) return end(at);
    queue_.push_back(held_, at);
  }
  // Looks at those that are held, counting them; true: some ended.
  template <class End>
  bool look(End end, std::uint64_t& looks) {
    bool moved = false;
    for (std::uint32_t at = held_.head; at != none;) {
      const std::uint32_t next = queue_.op(at).next;
      ++looks;
      if (may_end(queue_.op(at))) {
        queue_.remove(held_, at);
        end(at);
        moved = true;
      }
      at = next;
    }
    return moved;
  }
  // Those that come after `at` need not wait for it any more. tell(operation): what else the engine
  // wants them to know; ready(index): nothing is left that it waits for.
  template <class Tell, class Ready>
  void let_go(std::uint32_t at, Tell tell, Ready ready) {
    const Op& o = queue_.op(at);
    for (std::uint32_t e = o.successors; e != none; e = queue_.edge(e).next) {
      const std::uint32_t s = queue_.edge(e).successor;
      Op& after = queue_.op(s);
      tell(after);
      after.source_lost = after.source_lost || loses_source(o, after);
      if (--after.predecessors == 0 && !after.fence_open) ready(s);
    }
    queue_.drop_edges(at);
  }
  // It has ended. Requires that its successors were let go.
  void finish(std::uint32_t at) {
    Op& o = queue_.op(at);
    o.ended = true;
    ++(o.result.status == Code::ok ? ok_ : failed_);
    queue_.drop_runs(at);
    queue_.push_back(ended_, at);
    if (o.mark != nullptr) __atomic_fetch_add(&o.mark->ended, 1, __ATOMIC_RELEASE);
  }
  std::size_t report(std::span<CopyCompletion> out) { return queue_.report(ended_, out); }

  [[nodiscard]] std::uint32_t held() const { return held_.size; }
  [[nodiscard]] std::uint64_t ok() const { return ok_; }
  [[nodiscard]] std::uint64_t failed() const { return failed_; }
  [[nodiscard]] std::uint64_t all() const { return ok_ + failed_; }

 private:
  Queue& queue_;
  CopyFault* fault_;
  List held_;
  List ended_;
  std::uint64_t ok_ = 0;
  std::uint64_t failed_ = 0;
};

// Takes records for all operations of the batch, or none. Errors: full, arg (id in use, or the
// order is impossible).
Status reserve(Queue& queue, const CopyBatch& batch, BatchSize size);

}  // namespace kvc::copy_detail
