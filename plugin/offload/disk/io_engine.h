// Runs the reads and writes of the disk tier, one interface for threads, io_uring and the stepped
// mode.
//
// A *task* is a small state machine: the engine calls step() with the result of its last call to
// the system and gets the next one, until there is none. So checksums and copies of memory run in
// the engine's threads too, never in those of the caller.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "plugin/core/result.h"

namespace kvc::disk {

class Files;

enum class IoKind : std::uint8_t {
  none,   // the task has ended
  read,   // bytes at offset of fd into memory
  write,  // the other way round
  sync,   // what was written to fd is on the device
  punch,  // the file gives `bytes` at `offset` back to the file system
};

struct IoCall {
  IoKind kind = IoKind::none;
  int fd = -1;
  std::byte* memory = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
};

// Of a read or write: the bytes that moved, which may be fewer than asked for; of the others 0; or
// a negative errno, never -EINTR.
using IoResult = std::int64_t;

// Threads:    step() by one thread of the engine at a time, never by the one that submits, but in
//             the stepped mode.
// Owns:       what its calls read and write, until poll has reported it.
class IoTask {
 public:
  IoTask() = default;
  IoTask(const IoTask&) = delete;
  IoTask& operator=(const IoTask&) = delete;
  virtual ~IoTask() = default;
  // `result`: of the call that the last step asked for; 0 the first time. Kind none: it has ended,
  // and the engine touches it no more but to report it.
  virtual IoCall step(IoResult result) = 0;
};

// Each has its own queue, its own limit and its own threads: a read never waits behind a write.
enum class IoLane : std::uint8_t { read, write };
inline constexpr std::size_t io_lanes = 2;

struct IoEngineOptions {
  std::uint32_t read_depth = 16;  // tasks at work at once; the others wait in order
  std::uint32_t write_depth = 8;
  std::uint32_t hung_max = 16;     // given-up tasks a lane that may be at work beside them
  std::uint32_t tasks_max = 1024;  // submitted and not polled, a lane
  std::function<void()>
      on_ended;  // a task can be polled; by any thread of the engine; may be empty
};

// Threads:    one caller at a time; the engine has its own threads.
// Owns:       its threads and queues. Tasks are the caller's and live until poll reported them.
// Invariants: a task is reported once, after its last call has ended; no heap in submit, poll and
//             pump; no lock is held while the system works.
class IoEngine {
 public:
  IoEngine() = default;
  IoEngine(const IoEngine&) = delete;
  IoEngine& operator=(const IoEngine&) = delete;
  virtual ~IoEngine() = default;

  [[nodiscard]] virtual const char* name() const = 0;
  // No thread of its own: pump works.
  [[nodiscard]] virtual bool stepped() const = 0;

  // False: tasks_max are open in the lane.
  [[nodiscard]] virtual bool submit(IoLane lane, IoTask& task) = 0;
  // Fills `out` from its front with tasks that have ended; returns how many.
  virtual std::size_t poll(std::span<IoTask*> out) = 0;
  // The caller waits for this task no longer; from now on it is not one of the lane's depth, so
  // that others can go on. False: hung_max are already, it keeps its place. Requires: open, in this
  // lane, not given up before.
  virtual bool give_up(IoLane lane, IoTask& task) = 0;
  // Waits until poll has something, at most `timeout`. Stepped: no wait.
  virtual void wait(std::chrono::nanoseconds timeout) = 0;
  // Stepped: up to `budget` calls; returns how many it did. Otherwise 0.
  virtual std::uint64_t pump(std::uint64_t budget) = 0;

  // Begins no further task and waits for those at work for at most `patience`. True: nothing
  // touches a task any more, those not begun included. False: some hang in the system; they, their
  // memory and their files must stay for ever. Nothing but the destructor may be called then.
  virtual bool close(std::chrono::nanoseconds patience) = 0;
};

// `files` outlives the engine, and for ever if close is false.
std::unique_ptr<IoEngine> make_thread_engine(const IoEngineOptions& options, Files& files);
// `seed` decides which of the tasks at work moves next; 0: the oldest read, then the oldest write.
std::unique_ptr<IoEngine> make_stepped_engine(const IoEngineOptions& options, Files& files,
                                              std::uint64_t seed);
// unsupported, with the reason: this kernel, or who runs this process, does not allow io_uring.
Result<std::unique_ptr<IoEngine>> make_uring_engine(const IoEngineOptions& options, Files& files);

}  // namespace kvc::disk
