// The copy engine: moves bytes between a tier's host memory and device blocks, one interface for
// every backend.
//
// A caller hands in *operations* (one per job and rank) made of copy descriptors. The engine starts
// an operation when its fence is reached and every operation it comes after has ended, moves the
// bytes, and reports each operation once. It knows no job, key, group or slot: policy is the
// caller's.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// load: tier to device. store: device to tier. Loads overtake queued stores where order allows
// (latency of a request hangs on a load, never on a store).
enum class CopyDirection : std::uint8_t { load, store };

// What must have happened before the first byte of a batch may be read or written (field report
// K1).
enum class FenceKind : std::uint8_t {
  none,         // nothing: ready at once
  counter,      // reached when the atomic acquire load of *counter is >= value
  cuda_event,   // `handle` is a CUevent, captured at submit
  cuda_stream,  // `handle` is a CUstream (null: the default stream): its position at submit
  captured,     // `handle` is what CopyEngine::capture answered
};

struct Fence {
  FenceKind kind = FenceKind::none;
  // kind counter: 8-byte aligned, readable until the engine is destroyed, written by atomic release
  // stores.
  const std::uint64_t* counter = nullptr;
  std::uint64_t value = 0;
  void* handle = nullptr;  // kinds cuda_event, cuda_stream and captured
};

// `bytes` bytes from src to dst; the two ranges must not overlap. With bytes 0 neither pointer is
// looked at.
struct CopyDescriptor {
  void* dst = nullptr;
  const void* src = nullptr;
  std::uint64_t bytes = 0;
};

// Stands for operations that somebody waits for together (one layer of what a step loads). The
// caller owns it, and keeps it where it is until every operation that carries it has ended. Counts
// only grow.
struct CopyMark {
  // How many of them have ended, well or not: written by the engine, by atomic release additions.
  alignas(8) std::uint64_t ended = 0;
  // The caller's: how many of those that he waits for are never submitted.
  std::uint64_t skipped = 0;
  // The engine's: how many were handed to the device, and where the last of them stands.
  std::uint64_t issued = 0;
  std::uint64_t piece = 0;

  [[nodiscard]] std::uint64_t ended_now() const {
    return __atomic_load_n(&ended, __ATOMIC_ACQUIRE);
  }
  // `operations` that carry it end without being submitted.
  void skip(std::uint64_t operations) {
    skipped += operations;
    __atomic_fetch_add(&ended, operations, __ATOMIC_RELEASE);
  }
};

// One unit of completion. The copies of one operation may run in any order and at the same time, so
// none may read or write what another of them writes.
struct CopyOperation {
  std::uint64_t id = 0;  // not the id of an operation that was submitted and not yet polled
  CopyDirection direction = CopyDirection::load;
  std::span<const CopyDescriptor> copies;  // read during submit only; may be empty
  // Operations that must have ended before this one begins: submitted earlier, or standing earlier
  // in this batch. An id that the engine does not know (any more) counts as ended. If this is a
  // load and a *store* in the list fails, it ends with Code::io and side source without touching
  // memory: its source was never written. Other failures only order.
  std::span<const std::uint64_t> after;
  CopyMark* mark = nullptr;  // loads only; null: nobody waits for it beside others
};

struct CopyBatch {
  Fence fence;  // holds back every operation of the batch
  std::span<const CopyOperation> operations;
};

// Which end of a copy was at fault. Only a source fault says that the bytes of the source are lost
// (design 2.4).
enum class CopySide : std::uint8_t { none, source, destination };

inline constexpr std::uint64_t no_failed_copy = UINT64_MAX;

struct CopyCompletion {
  std::uint64_t id = 0;
  Code status = Code::ok;
  // Index into CopyOperation::copies of the first copy that failed; no_failed_copy if none did or
  // if the operation failed before its first copy. After a failure the bytes of every destination
  // of the operation are undefined.
  std::uint64_t first_failed = no_failed_copy;
  CopySide side = CopySide::none;
};

// What the device end of copies is. The numbers are those of kvc.h.
enum class CopyDevice : std::int32_t { host = 0, cuda = 1 };

// Injected trouble, for tests and simulation. The engine calls it from any of its threads and any
// that calls the engine: with workers an implementation must be thread-safe. It must not call the
// engine.
class CopyFault {
 public:
  struct Verdict {
    Code status = Code::ok;
    CopySide side = CopySide::none;
  };

  virtual ~CopyFault() = default;
  // Asked once per copy of a begun operation, before its bytes move, until one fails. An answer
  // that is not ok fails it.
  virtual Verdict on_copy(std::uint64_t op, CopyDirection direction, std::uint64_t index) = 0;
  // While false a ready operation is not begun. Asked again at every submit, poll, pump and worker
  // wake-up.
  virtual bool may_begin(std::uint64_t /*op*/) { return true; }
  // While false an operation whose copies are done is not reported, and what comes after it is not
  // begun.
  virtual bool may_end(std::uint64_t /*op*/) { return true; }
};

// Threads:    every function may be called from any thread, except the destructor. No function
// waits for a copy but
//             wait() and, without worker threads, pump().
// Owns:       its queues and threads. Memory named by descriptors and fences belongs to the caller
// and must stay valid
//             until the operation was reported or the engine is destroyed.
// Invariants: every accepted operation is reported by poll exactly once, unless the engine is
// destroyed first; no
//             source is read and no destination written before the fence was seen reached and the
//             predecessors ended; after the destructor returned nothing is touched. A failed copy
//             is a status, never a crash.
class CopyEngine {
 public:
  CopyEngine() = default;
  CopyEngine(const CopyEngine&) = delete;
  CopyEngine& operator=(const CopyEngine&) = delete;
  virtual ~CopyEngine() = default;

  // Says which memory the device ends of copies lie in: once, before anything else is asked.
  // Errors: unsupported (this backend serves no such device), io (the device fails), full.
  virtual Status attach(CopyDevice device, std::int32_t ordinal);

  // One line for the log: which backend and, of a device, which driver and ways of copying.
  [[nodiscard]] virtual std::string describe() const { return {}; }

  // What went wrong at the device since the last call, for the log; empty: nothing new.
  virtual std::string take_trouble() { return {}; }

  // How many copies an operation should have where a job can be cut: a backend that pays per
  // operation wants more. 0: as the caller likes.
  [[nodiscard]] virtual std::uint32_t part_copies() const { return 0; }

  // A fence of kind cuda_event or cuda_stream holds for what the device was given before this call.
  // Answers one of kind captured that stands for this moment in any number of submits, until
  // release. Other fences come back as they are; release of them does nothing. Errors: unsupported,
  // arg, io, full (too many that are not reached; poll and try again).
  virtual Result<Fence> capture(const Fence& fence) { return fence; }
  virtual void release(const Fence& /*fence*/) {}

  // What somebody waits for who wants the bytes of the first `operations` operations that carried
  // the mark, all of which were submitted or skipped. ok: `out` is of kind none: they are there;
  // counter: of the mark itself; or cuda_event, which stands for this until operations are
  // submitted whose fence the device has not been given yet. later: some are not with the device.
  // Costs the same however many operations are open.
  virtual Code fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out);

  // Whether submit accepts fences of this kind.
  [[nodiscard]] virtual bool supports(FenceKind kind) const = 0;

  // True if no thread moves bytes: pump and wait do.
  [[nodiscard]] virtual bool stepped() const = 0;

  // Takes all operations of the batch or none. Errors: arg (null, wrapping or overlapping range,
  // null or misaligned counter, id in use, an operation in its own predecessors or after a later
  // one of the batch), unsupported (fence kind), full (more operations, runs or predecessors than
  // reserved; poll and try again). No heap on success.
  virtual Status submit(const CopyBatch& batch) = 0;

  // Fills `out` from its front with operations that ended since they were submitted, in the order
  // in which they ended; returns how many. Each operation once. Also looks at open fences.
  virtual std::size_t poll(std::span<CopyCompletion> out) = 0;

  // Waits until each of `ops` has ended (polled or not; unknown ids count as ended). Does not take
  // completions from poll. Answers ok, or deadline when `timeout` has passed; without worker
  // threads it pumps and answers deadline as soon as nothing can move. A negative timeout is 0,
  // nanoseconds::max() is no limit.
  virtual Code wait(std::span<const std::uint64_t> ops, std::chrono::nanoseconds timeout) = 0;

  // Without worker threads: does up to `budget` pieces of work in the calling thread and returns
  // how many it did; less than `budget` means that nothing is ready. With worker threads: 0.
  virtual std::uint64_t pump(std::uint64_t budget) = 0;

  // Prepares host memory of a tier for fast copies (page-locks it, where a device needs that); the
  // destructor undoes it. The memory is page aligned, untouched so far, holds rows of `row` bytes
  // (the last may be cut), of which no copy crosses a border, and outlives the engine. All of it or
  // nothing. Nothing to do for memcpy. Errors: full (the system or the driver refuses), arg.
  virtual Status pin(void* /*base*/, Bytes /*size*/, Bytes /*row*/) { return {}; }
  // Undoes all pins. Requires that no operation is open.
  virtual void unpin() {}
};

inline Status CopyEngine::attach(CopyDevice device, std::int32_t ordinal) {
  if (device == CopyDevice::host) return {};
  return {Code::unsupported, "this copy engine serves host memory only, not device kind " +
                                 std::to_string(static_cast<std::int32_t>(device)) + " number " +
                                 std::to_string(ordinal)};
}

inline Code CopyEngine::fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out) {
  out = {};
  if (mark.ended_now() >= operations) return Code::ok;
  out.kind = FenceKind::counter;
  out.counter = &mark.ended;
  out.value = operations;
  return Code::ok;
}

}  // namespace kvc
