// How tests and the host stub steer the fake CUDA device (libkvc_fake_cuda.so): C functions of that
// library beside the driver's own entries, found by name in a loaded Driver.
//
// The fake runs the driver's calls over host memory. Streams are queues; a command of any stream
// whose turn it is may run next, as the seed decides: a little at each call of the driver, in
// fake_run, and in waits. Nothing runs by itself: there is no thread. Every access to memory is
// held against what is ordered before it (streams, events, what the host has waited for), so a race
// is found also in an order in which it does no harm.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cuda/driver/cuda_driver.h"

extern "C" {

struct kvc_fake_options {
  std::uint64_t seed;
  std::uint64_t queue_entries;       // of a stream; a call on a full one would block: 0: 1024
  std::uint64_t register_bytes_max;  // of one cuMemHostRegister; 0: 64 GiB
  std::uint32_t devices;             // 0: 1
  std::uint32_t without_batch;       // 1: cuGetProcAddress knows no cuMemcpyBatchAsync
  std::uint32_t other_host_pointer;  // 1: registered memory has another address on the device
  std::uint32_t record_accesses;     // 1: keeps what kvc_fake_accesses tells
  std::uint32_t idle_calls;          // 1: only queries and waits move the device
  std::uint32_t reserved;
};

struct kvc_fake_counts {
  std::uint64_t submissions;  // calls that copy: batches, single copies, launches of the kernel
  std::uint64_t batch_calls;
  std::uint64_t batch_copies;
  std::uint64_t single_copies;
  std::uint64_t launches;
  std::uint64_t waits;  // cuStreamWaitEvent
  std::uint64_t records;
  std::uint64_t queries;        // cuEventQuery
  std::uint64_t blocked_calls;  // calls that would have blocked on a full stream
  std::uint64_t commands_run;
  std::uint64_t registered_bytes;
  std::uint64_t registered_pieces;
};

struct kvc_fake_access_record {
  std::uint64_t stream;  // number of the stream, 0: the host
  std::uint64_t time;    // commands that ran before it, in all
  std::uint64_t address;
  std::uint64_t bytes;
  std::uint32_t writes;  // 1: a write
  std::uint32_t reserved;
};
}

namespace kvc::cuda {

// The control entries of a loaded fake.
//
// Threads:    any; the fake has one lock.
// Owns:       nothing; the Driver it came from must live.
// Invariants: every entry is set, or find answered false.
struct FakeControl {
  // Forgets everything and begins anew. Requires that no stream, event or memory of it is used.
  void (*reset)(const kvc_fake_options*) = nullptr;
  // Runs up to `budget` commands; how many it ran. Less than `budget`: none can run.
  std::uint64_t (*run)(std::uint64_t budget) = nullptr;
  // Runs up to `budget` commands of this stream, also while it is held, in the calling thread: as
  // if they had waited for the host to come here; with `calls` 0 up to the next callback. How many
  // it ran.
  std::uint64_t (*run_stream)(Stream, std::uint64_t budget, int calls) = nullptr;
  // While held no command of the stream begins.
  void (*hold)(Stream, int on) = nullptr;
  // Puts a callback into the stream: work of the device, which tells its accesses by access().
  DriverResult (*launch)(Stream, void (*)(void*), void*) = nullptr;
  // Inside a callback: the callback reads or writes. Else: the host does.
  void (*access)(const void*, std::size_t, int writes) = nullptr;
  // What went wrong: number of faults since reset; the text of one, "" beyond the last (valid until
  // reset; at most 64 are kept).
  std::uint64_t (*faults)() = nullptr;
  const char* (*fault_text)(std::uint64_t) = nullptr;
  void (*counters)(kvc_fake_counts*) = nullptr;
  // Copies up to `max` recorded accesses; how many there are.
  std::uint64_t (*accesses)(kvc_fake_access_record*, std::uint64_t max) = nullptr;
  // The nth call from now (0: the next one) of the entry, named as exported without _v2, does
  // nothing and answers `result`.
  void (*fail)(const char* entry, std::uint64_t nth, DriverResult result) = nullptr;
  // The device is dead: every later call answers cuda launch failed, what is queued never runs.
  void (*kill)() = nullptr;

  [[nodiscard]] bool find(const Driver& driver);
  [[nodiscard]] std::vector<std::string> all_faults() const;
};

}  // namespace kvc::cuda
