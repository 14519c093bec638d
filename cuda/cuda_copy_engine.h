// The CUDA backend of the copy engine: two streams of lowest priority, one per direction, that the
// driver works off. docs/cuda.md tells how it orders copies and chooses between its three ways.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "cuda/copy_engine.h"

namespace kvc {

enum class CopyPath : std::uint8_t {
  automatic,  // by size of a fragment
  batch,      // cuMemcpyBatchAsync
  loop,       // one call per fragment
  kernel,     // reads and writes page-locked host memory from the device
};

// Every single wait that keeps copies in order, by name. A test takes one away and must see the
// fake device find a race (cuda/tests/cuda_waits_test.cc).
enum class CudaWait : std::uint8_t {
  event_fence_caught,    // the catching stream waits for the caller's event
  load_fence,            // the load stream waits for a captured fence
  store_fence,           // the store stream does
  counter_fence,         // the host looks at the counter before it issues
  load_after_store,      // a load waits for the piece of a store it comes after
  store_after_load,      // a store waits for the piece of a load it comes after
  same_direction,        // an operation is in a later piece than one of its direction before it
  chained_source_order,  // ... and its source is read in stream order
  store_source_order,    // sources of stores are read in stream order
  completion,            // an operation is reported when the event behind it is reached
  table_reuse,           // the kernel's table is written again when its launch is over
  close,                 // the destructor waits for what was issued
};

struct CudaCopyOptions {
  std::string driver;       // library of the driver; empty: libcuda.so.1
  std::int32_t device = 0;  // ordinal
  bool stepped = false;     // no thread, no clock: poll, wait and pump do everything
  // Room reserved by create, as in HostCopyOptions.
  std::uint32_t operations_max = 4096;
  std::uint64_t runs_max = std::uint64_t{1} << 18;
  std::uint32_t predecessors_max = 8192;
  std::uint32_t captures_max = 256;  // fences that are open at one time
  // Entries of ours in the queue of a stream: far below the 1024 that drivers hold, because a call
  // on a full queue blocks.
  std::uint32_t stream_entries_max = 384;
  std::uint32_t pieces_max = 128;  // calls with an event behind them, per stream
  std::uint32_t copies_per_piece_max = 16384;
  CopyPath path = CopyPath::automatic;
  // Fragments below so many bytes go by the kernel, where there is one.
  Bytes kernel_below_load{28u << 10};
  Bytes kernel_below_store{28u << 10};
  // With fewer small fragments than this in a piece a launch is not worth it.
  std::uint32_t kernel_fragments_min = 16;
  Bytes register_bytes_max{std::uint64_t{64} << 30};
  std::int32_t numa_node = -1;  // of page-locked memory; -1: as the system likes
  CopyFault* fault = nullptr;
  void (*on_ended)(void*) = nullptr;  // as in HostCopyOptions
  void* on_ended_arg = nullptr;
#if defined(KVC_FAULT_POINTS)
  std::uint32_t skip_waits = 0;  // 1 << CudaWait: for negative controls
#endif
};

struct CudaCopyCounters {
  std::uint64_t operations_ok = 0;
  std::uint64_t operations_failed = 0;
  std::uint64_t bytes_loaded = 0;  // issued
  std::uint64_t bytes_stored = 0;
  std::uint64_t descriptors = 0;
  std::uint64_t runs = 0;
  std::uint64_t pieces = 0;  // submissions: all calls between two events
  std::uint64_t batch_calls = 0;
  std::uint64_t single_calls = 0;
  std::uint64_t launches = 0;
  std::uint64_t kernel_fragments = 0;
  std::uint64_t looks = 0;  // at fences, events and operations, by anything but their end
};

// Threads:    as CopyEngine; one mutex. Unless stepped one thread looks at the device while
//             something is open there, at first every 20 us, then up to every 2 ms.
// Owns:       streams, events, page-locked tables, registrations of host memory, the thread.
// Invariants: as CopyEngine, and: no call of the driver is made that waits for the device, but by
//             the destructor and when the device is lost; an operation is reported when the event
//             behind it is reached; a load whose source may still be being written reads it in
//             stream order. A fence that the device never reaches keeps what came after it in its
//             direction, and the destructor, waiting.
class CudaCopyEngine final : public CopyEngine {
 public:
  // Errors: arg (a reservation of 0), unsupported (no driver, no such device), io, full.
  static Result<std::unique_ptr<CudaCopyEngine>> create(const CudaCopyOptions& options);
  ~CudaCopyEngine() override;

  Status attach(CopyDevice device, std::int32_t ordinal) override;
  [[nodiscard]] std::string describe() const override;
  std::string take_trouble() override;
  [[nodiscard]] std::uint32_t part_copies() const override;
  Result<Fence> capture(const Fence& fence) override;
  void release(const Fence& fence) override;
  Code fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out) override;
  [[nodiscard]] bool supports(FenceKind /*kind*/) const override { return true; }
  [[nodiscard]] bool stepped() const override;
  Status submit(const CopyBatch& batch) override;
  std::size_t poll(std::span<CopyCompletion> out) override;
  Code wait(std::span<const std::uint64_t> ops, std::chrono::nanoseconds timeout) override;
  std::uint64_t pump(std::uint64_t budget) override;
  Status pin(void* base, Bytes size, Bytes row) override;
  void unpin() override;

  [[nodiscard]] CudaCopyCounters counters() const;

 private:
  struct Core;
  CudaCopyEngine();
  std::unique_ptr<Core> core_;
};

}  // namespace kvc
