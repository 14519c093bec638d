// The host backend of the copy engine: memcpy by worker threads, or by the caller in stepped mode.
//
// Waiting for a counter fence never spins: open fences are looked at in submit, poll, wait and
// pump, whenever a worker looks for work, and, if nothing else happens, by one worker that sleeps
// on a condition variable between looks, first 20 us, doubling to at most 2 ms while no fence
// opens.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "cuda/copy_engine.h"

namespace kvc {

// Which ready operation is worked on next when there are no worker threads.
enum class StepOrder : std::uint8_t {
  fifo,    // loads before stores, each in the order in which they became ready (what workers do)
  seeded,  // any ready operation, one piece at a time, drawn from the seed: same seed, same order
};

struct HostCopyOptions {
  std::uint32_t workers = 2;  // 0: stepped mode, no thread is started and no clock is read
  // Room reserved by the constructor. Operations count from submit to poll, runs and predecessors
  // from submit until the operation ended. A run is what is left of copies after merging: adjacent
  // in source and destination.
  std::uint32_t operations_max = 1024;
  std::uint64_t runs_max = 65536;
  std::uint32_t predecessors_max = 4096;
  // What one worker takes at a time; a longer run is split, shorter ones are taken together.
  Bytes piece_bytes{1u << 20};
  // Operations of at least so many bytes are written past the caches; 0: as many as the largest
  // cache holds, at most 32 MiB.
  Bytes streaming_bytes{0};
  // Ready stores are let through after this many pieces of loads in a row. >= 1.
  std::uint32_t loads_in_a_row_max = 64;
  StepOrder order = StepOrder::fifo;
  std::uint64_t seed = 0;
  CopyFault* fault = nullptr;  // outlives the engine; null: nothing is injected
  // Told by a worker thread, outside all locks, that operations ended: poll has news. It must not
  // call the engine.
  void (*on_ended)(void*) = nullptr;
  void* on_ended_arg = nullptr;
};

struct HostCopyCounters {
  std::uint64_t operations_ok = 0;
  std::uint64_t operations_failed = 0;
  std::uint64_t bytes_loaded = 0;  // moved, also by operations that failed later
  std::uint64_t bytes_stored = 0;
  std::uint64_t memcpy_calls = 0;
  std::uint64_t bytes_streamed = 0;  // of those moved: past the caches
  std::uint64_t descriptors = 0;
  std::uint64_t runs = 0;
};

// Threads:    as CopyEngine. One mutex guards the queues; it is never held during a memcpy or a
// call of CopyFault::on_copy. Owns:       worker threads and all queues; no heap after create
// except in error texts. Invariants: an operation is in exactly one state: waiting (fence or
// predecessors), ready, running, held, ended, free;
//             runs and predecessor records are free again when an operation ends, its record when
//             it is polled.
class HostCopyEngine final : public CopyEngine {
 public:
  // Errors: arg (a reservation, piece_bytes or loads_in_a_row_max of 0), full (no memory or no
  // thread).
  static Result<std::unique_ptr<HostCopyEngine>> create(const HostCopyOptions& options);

  // Finishes the pieces that workers are in the middle of and abandons everything else.
  ~HostCopyEngine() override;

  [[nodiscard]] bool supports(FenceKind kind) const override {
    return kind == FenceKind::none || kind == FenceKind::counter;
  }
  [[nodiscard]] bool stepped() const override;
  [[nodiscard]] std::string describe() const override;
  Status submit(const CopyBatch& batch) override;
  std::size_t poll(std::span<CopyCompletion> out) override;
  Code wait(std::span<const std::uint64_t> ops, std::chrono::nanoseconds timeout) override;
  std::uint64_t pump(std::uint64_t budget) override;

  [[nodiscard]] HostCopyCounters counters() const;

 private:
  struct Core;
  HostCopyEngine();
  std::unique_ptr<Core> core_;
};

}  // namespace kvc
