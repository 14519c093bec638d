// Both roles of one connector, opened for one engine: handles, host table, plans and reports
// carried between them.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <kvc/kvc.h>
#include <kvc/kvc_hints.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>

#include "host_stub/engine/options.h"
#include "host_stub/engine/rank_memory.h"
#include "host_stub/loader/loader.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/result.h"

namespace kvc::host {

// Copies element `i` of a list that a connector put out; what it did not fill is 0.
template <class T>
T list_element(const kvc_list& list, std::uint64_t i);

// The device cache's answers to the connector (KVC_HOST_BLOCK_QUERY).
class BlockQuery {
 public:
  virtual ~BlockQuery() = default;
  // Prefix tokens that the block's key covers; 0: the block has not that key.
  [[nodiscard]] virtual std::uint64_t has_key(std::uint32_t group, std::int64_t block,
                                              const std::uint8_t* key) const = 0;
  // A block with that key; negative: none.
  [[nodiscard]] virtual std::int64_t block_of(std::uint32_t group,
                                              const std::uint8_t* key) const = 0;
};

struct LookupAnswer {
  std::uint64_t tokens = 0;
  bool later = false;
  std::int32_t why = KVC_WHY_NONE;
};

// What came in since the last collect. The lists of `complete` are the connector's, valid until the
// next collect.
struct Collected {
  struct LoadItem {
    std::uint32_t rank = 0;
    kvc_load_done done{};
  };
  std::vector<LoadItem> items;
  kvc_complete_out complete{};
  bool completed = false;
};

// Threads:    one caller; log, clock, allocator and wake are called from any thread.
// Owns:       the scheduler handle, the rank handles, the fence counters.
// Invariants: steps count 1, 2, ...; every plan goes to every rank once. After fail() no slot is
//             called but close and the queries, and every method answers as if there were
//             nothing; the last snapshots stay readable.
class ConnectorLink {
 public:
  struct Parts {
    const Geometry& geometry;
    const EngineOptions& options;
    std::uint32_t ranks;
    std::uint64_t device_blocks;  // 0: grows
    std::span<const std::unique_ptr<RankMemory>> memory;
    const BlockQuery& query;
    ComputeDevice* device;  // null: the host is the device
  };
  // Opens the scheduler and all ranks, registers memory, joins them. The error text holds what the
  // connector logged.
  static Result<std::unique_ptr<ConnectorLink>> open(const LoadedConnector& connector,
                                                     const Parts& parts);
  ConnectorLink(const ConnectorLink&) = delete;
  ConnectorLink& operator=(const ConnectorLink&) = delete;
  ~ConnectorLink();

  [[nodiscard]] bool alive() const { return failure_.empty(); }
  [[nodiscard]] const std::string& failure() const { return failure_; }
  // Gives the connector up; the first reason is logged and kept.
  void fail(const std::string& why);
  // Takes last snapshots, waits for open copies (at most `wait_ns` a rank) and closes all handles.
  // From its return no byte of device memory is touched.
  void close(std::uint64_t wait_ns);

  // Scheduler role. False or empty: the connector failed, or the call has no effect for this id.
  bool begin(const kvc_request& request);
  void extend(const kvc_extend& extend);
  LookupAnswer lookup(const kvc_lookup_in& in);
  // KVC_OK and *out, a positive status for "nothing was done", or the connector's error for this
  // request; the link stays alive.
  kvc_status alloc_update(const kvc_alloc_in& in, kvc_alloc_out* out);
  bool build(kvc_step& step, kvc_plan* plan);
  bool end(const kvc_end_in& in, kvc_end_out* out);
  kvc_status reset(std::uint64_t flags);
  // kvc.retention/1: true, and the boundaries, if only states there are wanted. False: the
  // connector has no such extension or wish.
  bool retained(std::uint64_t request, std::uint64_t begin, std::vector<std::uint64_t>& boundaries);
  void pump(std::uint32_t budget);

  // kvc.hints/1, behind begin of a request with these keys: what the options say of it. A prefix is
  // pinned at the first request that finds all of it stored, and stays so.
  void hint(std::uint64_t request, const KeyView& keys);
  // kvc.layerwise/1: the request may run in the step of its load's plan.
  bool in_step(std::uint64_t request, kvc_job job);

  // Ranks. Submits the plan with "copies of this step are done" and "forward of this step is done".
  // On a device what a fence covers is in its stream before: loads put their copies there, stores
  // follow launch_layer of every layer.
  bool submit_loads(const kvc_plan& plan);
  bool submit_stores(const kvc_plan& plan);
  // kvc.layerwise/1, between the two: appends the fences of a layer of this step's loads, one per
  // rank. False, and nothing appended: not all of them are with the device yet.
  bool layer_fences(std::uint64_t layer, std::vector<kvc_fence>& out);
  // On a device: a turn of its stream, behind these fences.
  void launch_layer(std::span<const kvc_fence> fences);
  // The stream of all ranks has come to the block copies, or the forward, of `step`.
  void copies_done(std::uint64_t step);
  void forward_done(std::uint64_t step);
  void pump_rank(std::uint32_t rank, std::uint32_t budget);
  // Waits for the parts of `jobs` (empty: all) on every rank, at most `timeout_ns` a rank.
  void wait(std::span<const kvc_job> jobs, std::uint64_t timeout_ns);
  // Progress of all ranks, carried to the scheduler.
  const Collected& collect();

  [[nodiscard]] kvc_pending pending() const;
  [[nodiscard]] kvc_boundary_stats boundary_stats() const;
  [[nodiscard]] std::vector<StatValue> stats() const;
  [[nodiscard]] std::string explain(std::uint64_t request) const;
  [[nodiscard]] std::string last_error() const;
  [[nodiscard]] std::uint64_t step_number() const { return step_; }
  [[nodiscard]] std::uint64_t peer_faults() const { return peer_faults_.load(); }

 private:
  struct alignas(64) Counter {
    std::uint64_t value = 0;
  };
  explicit ConnectorLink(const LoadedConnector& connector, const Parts& parts);
  Status open_handles(const Parts& parts);
  void find_extensions(const EngineOptions& options);
  void find_hints(const EngineOptions& options);
  Status register_ranks(const Parts& parts);
  void fill_open(const Parts& parts, kvc_open& open, std::vector<kvc_group>& groups) const;
  [[nodiscard]] std::string refusal(const char* what, kvc_status status,
                                    const std::string& text) const;
  static constexpr std::uint32_t scheduler = UINT32_MAX;
  kvc_status note(const char* slot, kvc_status status, std::uint32_t rank = scheduler);
  void log_line(std::int32_t level, std::string_view text);
  void set_counters(std::uint64_t value);
  bool hand_over(bool loads, const kvc_plan& plan, std::uint32_t rank, const kvc_fence& fence);
  bool submit_all(bool loads, const kvc_plan& plan);
  kvc_status layer_fence(std::uint32_t rank, std::uint64_t layer, kvc_fence* out);
  void pin(std::uint64_t request, const KeyView& keys);
  [[nodiscard]] kvc_boundary_stats read_boundary_stats() const;
  [[nodiscard]] std::vector<StatValue> read_stats() const;
  [[nodiscard]] std::string rank_error(std::uint32_t rank) const;
  void progress_rank(std::uint32_t rank);

  static void on_log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept;
  static std::uint64_t on_now(kvc_host* h) noexcept;
  static void* on_alloc(kvc_host* h, std::uint64_t size, std::uint64_t align) noexcept;
  static void on_release(kvc_host* h, void* p, std::uint64_t size, std::uint64_t align) noexcept;
  static void on_wake(kvc_host* h) noexcept;
  static kvc_status on_has_key(kvc_host* h, std::uint32_t group, std::int64_t block,
                               const std::uint8_t* key, std::uint64_t* end_tokens) noexcept;
  static kvc_status on_block_of(kvc_host* h, std::uint32_t group, const std::uint8_t* key,
                                std::int64_t* block) noexcept;

  LoadedConnector connector_;
  const EngineHooks& hooks_;
  const BlockQuery& query_;
  ComputeDevice* device_;
  bool without_fences_;
  bool stepped_;
  std::uint64_t hash_unit_;
  std::uint64_t layers_;
  kvc_host_api host_{};
  kvc_sched* sched_ = nullptr;
  const kvc_retention_api* retention_ = nullptr;  // NULL: absent
  const kvc_layerwise_api* layerwise_ = nullptr;  // NULL: absent, or not wanted
  const kvc_hints_api* hints_ = nullptr;          // the same
  HintOptions hint_options_;
  std::set<std::string> pinned_;  // last keys of pinned prefixes
  bool pins_refused_ = false;     // for want of room; said once
  std::vector<kvc_rank*> ranks_;
  std::vector<bool> poisoned_;  // ranks that answered KVC_E_INTERNAL: nothing but close and queries
  std::vector<Counter> counters_;
  std::uint64_t step_ = 0;
  std::uint64_t collects_ = 0;
  std::string failure_;
  mutable std::string open_log_;  // refusals of open, until it succeeded
  std::atomic<bool> opening_{true};
  std::atomic<bool> news_{false};
  std::atomic<std::uint64_t> peer_faults_{0};
  std::vector<CarriedReport> reports_;
  std::vector<kvc_bytes> report_views_;
  Collected collected_;
  kvc_boundary_stats last_boundary_{};
  std::vector<StatValue> last_stats_;
  std::string last_explain_;
};

template <class T>
T list_element(const kvc_list& list, std::uint64_t i) {
  T value{};
  const std::size_t n = list.stride < sizeof value ? list.stride : sizeof value;
  __builtin_memcpy(&value, static_cast<const std::uint8_t*>(list.data) + i * list.stride, n);
  return value;
}

}  // namespace kvc::host
