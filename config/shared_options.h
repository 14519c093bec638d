// Options that every connector of this library has: the host pool, and what the flows of the
// scheduler role are told. One parser, so that one word means one thing in every connector's file.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.h"

namespace kvc::config {

enum class IndexKind { chained, flat };
enum class StatesKind { dense, tail, automatic };  // automatic: "auto"
// How copies reach a CUDA device (docs/cuda.md)
enum class CudaCopyPath { automatic, batch, loop, kernel };
enum class CostGateKind { off, on, report };
enum class DiskStoreWhen { write_through, on_eviction };
enum class DiskIo { best, uring, threads };          // best: "auto"
enum class EvictionKind { lru, arc, gdsf, hazard };  // hazard: "auto"

// [disk] The tier below the host pool, in files that outlive the process (docs/formats/disk.md).
// Every rank has a folder of its own, `rank-<n>`, in each of the paths.
struct DiskOptions {
  std::vector<std::string> paths;                  // at most 64; empty: there is no disk tier
  std::uint64_t bytes = std::uint64_t{64} << 30U;  // per rank, of all paths together, 1 .. 2^60
  // write_through: a block goes to disk when it is in the host pool; on_eviction: when it is about
  // to leave it
  DiskStoreWhen store = DiskStoreWhen::write_through;
  std::uint32_t open_blocks = 256;  // 1 .. 65536: blocks on their way to disk at the same time
  std::uint64_t read_deadline_ms = 10'000;
  std::uint64_t write_deadline_ms = 30'000;
  DiskIo io = DiskIo::best;
  bool direct = true;    // O_DIRECT where the file system takes it
  bool sync = false;     // true: blocks survive a loss of power; two waits for the device a block
  bool checksum = true;  // false: nothing is verified; to measure what that costs

  friend bool operator==(const DiskOptions&, const DiskOptions&) = default;
};

// How much is stored, and how long anything may take. Immutable once parsed.
struct SharedOptions {
  // [host] Exactly one rule sizes the host pool of a rank: unlimited, else host_blocks if not 0,
  // else host_bytes.
  std::uint64_t host_bytes = std::uint64_t{8}
                             << 30U;  // per rank, 1 .. 2^60 (R-601: the peer's default, 8 GiB)
  std::uint64_t host_blocks =
      0;  // blocks of the largest group, 2 .. 2^40; 0: not given, host_bytes counts
  bool host_unlimited = false;     // for measuring only: grows in slabs (design section 4)
  std::uint32_t copy_threads = 1;  // 1 .. 64, per rank

  // [cuda] Only for ranks whose blocks lie on a CUDA device (docs/cuda.md)
  std::string cuda_driver = "libcuda.so.1";  // library of the driver, as dlopen finds it
  CudaCopyPath cuda_copy_path = CudaCopyPath::automatic;  // "auto"
  // Fragments below so many bytes go by the kernel, 0 .. 2^30 (0: none); UINT64_MAX: "auto"
  std::uint64_t cuda_kernel_below_load = 28'672;
  std::uint64_t cuda_kernel_below_store = 28'672;
  std::int32_t cuda_numa_node = -1;  // of the host pool, 0 .. 1023; -1: "any"

  // [connector]
  IndexKind index = IndexKind::chained;  // flat: also where the layout has a chain (design 3.1)
  // Who goes when the pool is full, and what is not stored at all (docs/policies.md)
  EvictionKind eviction = EvictionKind::lru;
  // Which states an engine with kvc.retention/1 is asked for (docs/policies.md)
  StatesKind states = StatesKind::dense;
  std::uint32_t lease_steps = 1;  // 1 .. 8 (design 2.3 Lease)
  std::uint32_t max_leases = 64;  // 1 .. 65536 (design 2.3 Lease)
  // Of engines with kvc.hints/1 (docs/hints.md)
  std::uint32_t max_pins = 32;            // 0 .. 256; 0: none are taken
  std::uint32_t max_pinned_percent = 50;  // 0 .. 100: of the host pool
  std::uint64_t attach_steps =
      UINT64_MAX;  // LATER answers per admission; UINT64_MAX: no limit (design section 3)
  std::uint64_t held_device_blocks_max = 0;  // 0: the rule of design 2.3 Holds
  std::uint64_t load_deadline_ms = 30'000;   // design 2.4
  std::uint64_t store_deadline_ms = 60'000;  // design 2.4
  bool store_decode_blocks = true;  // false: only positions below the prompt's end are stored
  bool single_flight = true;        // false: lookup never answers LATER for another request's load
  // Which hits are worth a load; report: counts only (docs/cost_gate.md)
  CostGateKind cost_gate = CostGateKind::off;
  std::uint64_t prefill_tokens_per_second = 0;  // 1 .. 10^9; 0: "auto", measured
  std::uint32_t event_ring_entries = 65'536;    // 0: no events are kept
  std::uint64_t plan_bytes_max =
      0;  // 0: large enough for one load of max_total_tokens (design 2.3 Jobs)

  DiskOptions disk;

  friend bool operator==(const SharedOptions&, const SharedOptions&) = default;
};

class TomlTable;

// The tables [host] and [connector] of a document take from these; unknown keys are refused by the
// caller, who may have keys of his own. The table [cuda] is wholly shared. Another eviction than
// lru with a flat index is refused.
void read_shared_host(TomlTable& table, SharedOptions& options);
void read_shared_cuda(TomlTable table, SharedOptions& options);
// [disk], unknown keys included. An empty path, one twice, and more paths than bytes for them are
// refused.
void read_shared_disk(TomlTable table, SharedOptions& options);
void read_shared_connector(TomlTable& table, SharedOptions& options);
// Their lines of effective TOML, without the tables' names.
[[nodiscard]] std::string shared_connector_toml(const SharedOptions& options);
[[nodiscard]] std::string shared_cuda_toml(const SharedOptions& options);
[[nodiscard]] std::string shared_host_toml(const SharedOptions& options);
// The table [disk] with its name.
[[nodiscard]] std::string shared_disk_toml(const SharedOptions& options);

// `text` with [host] blocks = `blocks` and, where unlimited is given, unlimited = false; all other
// lines stay as they are, and where they are if that is possible (config/toml_edit.h), so that
// errors of whoever reads it name lines of the file. The text may belong to any connector. For
// programs that override the pool size from their command line. Errors: not TOML, host is no table.
Parsed<std::string> with_host_blocks(std::string_view text, std::string_view file,
                                     std::uint64_t blocks);
// The same with [cuda] driver = `driver`. Errors: not TOML, cuda is no table.
Parsed<std::string> with_cuda_driver(std::string_view text, std::string_view file,
                                     std::string_view driver);

// `text` without a disk tier, everything else kept (comments are lost): for programs that open a
// connector to ask it something, and must not touch the folders of one that runs. Errors: not TOML.
Parsed<std::string> without_disk(std::string_view text, std::string_view file);

}  // namespace kvc::config
