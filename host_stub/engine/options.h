// What the host engine is told when it is made, what it is asked to run, and what it counts.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <kvc/kvc.h>

#include "config/model_config.h"

namespace kvc::host {

using TokenId = std::uint32_t;    // below 2^31; the same as in traces
using RequestId = std::uint64_t;  // 1, 2, ... in the order of submission, never reused

// What happened in a scheduler or rank call, for EngineHooks::after_call.
struct CallInfo {
  const char* slot = "";   // name of the slot in kvc_plugin_api
  std::uint32_t rank = 0;  // of rank calls
  kvc_status status = KVC_OK;
};

// A report on its way from a rank to the scheduler.
struct CarriedReport {
  std::uint32_t rank = 0;
  std::vector<std::uint8_t> bytes;
};

// Where a simulation takes part. All may be empty. They run on the caller's thread inside Engine
// calls and must not call the engine, except its const queries.
struct EngineHooks {
  // After every call into the connector.
  std::function<void(const CallInfo&)> after_call;
  // Before reports are handed to `complete`: take out, keep, add, repeat, reorder. What is left is
  // handed over.
  std::function<void(std::vector<CarriedReport>&)> on_reports;
  // Stepped mode: units of work for a rank (or for the scheduler with rank == ranks) in this step.
  // Empty: enough for all that can be done.
  std::function<std::uint32_t(std::uint32_t rank)> pump_budget;
  // How much of an offered hit is taken: 0 or a multiple of h, at most `offered`. Empty: all.
  std::function<std::uint64_t(RequestId id, std::uint64_t offered)> accept;
  // Host allocator of the connector (kvc_host_api.alloc / release); both or none.
  std::function<void*(std::uint64_t size_bytes, std::uint64_t align_bytes)> alloc;
  std::function<void(void* p, std::uint64_t size_bytes, std::uint64_t align_bytes)> release;
  // Lines of the engine and of the connector (KVC_LOG_*). Called from any thread. Empty: warnings
  // and worse to stderr.
  std::function<void(std::int32_t level, std::string_view text)> log;
  // Monotonic ns. Required in stepped mode. Any thread.
  std::function<std::uint64_t()> now_ns;
};

// What a connector with kvc.hints/1 is told of requests 1, every + 1, 2 every + 1, ...
// (kvc_hints.h).
struct HintOptions {
  std::int32_t priority = 0;
  std::uint64_t ttl_ns = 0;      // 0: none
  std::uint64_t pin_tokens = 0;  // the first so many are pinned once they are stored; 0: none
  std::uint64_t every = 1;       // >= 1
  [[nodiscard]] bool any() const { return priority != 0 || ttl_ns != 0 || pin_tokens != 0; }
};

struct EngineOptions {
  config::ModelConfig model;
  std::uint64_t ranks = 0;  // a multiple of the model's context parallel; 0: that size
  std::uint64_t device_blocks =
      0;                     // with the null block, >= 2; 0: unlimited, grows (measuring only)
  bool device_cache = true;  // false: its own lookup answers 0 and registers nothing
  // Keeps back what the prefills under way still need. false: a request starts as soon as
  // its first chunk fits, and the latest are preempted when the others grow.
  bool reserve = true;
  std::uint64_t max_running =
      16;  // running requests and those that wait for a load, together; >= 1
  std::uint64_t token_budget = 8192;  // of one step; >= 1
  std::uint64_t steps_in_flight =
      1;                   // outputs of step k are processed with step k + this - 1; 1..16
  std::uint64_t seed = 1;  // of the model's hashes and of the keys' root
  std::uint64_t max_prompt_tokens = 0;  // required: longest prompt that will be submitted
  std::uint64_t max_total_tokens = 0;   // required: longest prompt + output
  std::uint64_t max_live_requests = 0;  // submitted and not over; 0: 2 x max_running + 8
  std::uint64_t max_request_bytes =
      0;                               // for the connector; 0: by max_live_requests and the lengths
  std::int64_t retention_tokens = -1;  // kvc_open.retention_tokens
  // Ask a connector with kvc.retention/1 which states it wants (kvc_retention.h).
  bool ask_retention = true;
  // Of the model: each has sim_bytes_per_token of a token, and a region of its own; 1..64.
  std::uint64_t layers = 1;
  // Run a request in the step of its load, with a connector that has kvc.layerwise/1: its forward
  // waits for each layer (kvc_layerwise.h).
  bool loads_in_step = false;
  HintOptions hints;
  bool draft_drop = false;     // KVC_OPEN_DRAFT_DROP
  bool stepped = false;        // KVC_HOST_STEPPED; needs hooks.now_ns
  bool rank_verdicts = false;  // act on load items of ranks (KVC_HOST_RANK_VERDICTS)
  bool block_query = true;     // KVC_HOST_BLOCK_QUERY; never with the device cache off
  bool verify = true;          // compare every block after a load and at the end of prefill
  std::string connector_toml;
  // Library of a fake CUDA device (docs/cuda.md): blocks lie in its memory, forwards run in its
  // stream, fences are its events and streams. Empty: the host is the device. The connector must be
  // told the same library ([cuda] driver).
  std::string cuda_driver;
  std::uint64_t device_seed = 1;  // in which order that device works
  // For controls: plans come with fences of kind none, which is wrong, and that device must say so.
  bool device_without_fences = false;
  // For controls: forwards do not wait for this layer of loads in step, which is wrong.
  std::uint64_t layer_without_wait = UINT64_MAX;
  // An answer "ask again later" is believed for so long per admission, then the request runs with
  // what the device has. Jobs are waited for as long as one ends in such a time; then the engine
  // goes on without the blocks of those that are open. Stepped mode counts steps.
  std::uint64_t later_ns = 20'000'000'000;
  std::uint64_t later_steps = 50'000;
  // After so long without any progress run() gives the connector up, and if that was not it,
  // itself.
  std::uint64_t stall_ns = 300'000'000'000;
  std::uint64_t stall_steps = 200'000;  // the same in stepped mode, in steps
  EngineHooks hooks;
};

// One request: how long, and what the connector is told about it.
struct RequestSpec {
  std::uint64_t prompt_tokens = 0;  // >= 1, <= max_prompt_tokens
  std::uint64_t output_tokens = 1;  // >= 1; ends by length after so many
  std::uint32_t flags = 0;          // KVC_REQUEST_*; NO_READ also skips the device cache
  std::uint64_t load_limit_tokens = KVC_NO_LIMIT;
  std::uint64_t store_limit_tokens = KVC_NO_LIMIT;
  std::string salt;  // extra bytes of the first hash unit: other salts share nothing
};

// The requests of a pass, expanded one at a time. kvc::host::Trace has the same calls.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  [[nodiscard]] virtual std::size_t size() const = 0;
  [[nodiscard]] virtual RequestSpec request(std::size_t index) const = 0;
  virtual void expand_prompt(std::size_t index, std::vector<TokenId>& tokens) const = 0;
};

// Counters since begin_pass. prompt_tokens == local_hit_tokens + external_hit_tokens +
// computed_tokens once every request of the pass is over by length: every prompt token is counted
// where it came from the first time. recomputed_tokens counts beside that sum what was computed
// again after a preemption, and what had to be computed because a load failed.
struct PassCounters {
  std::uint64_t requests = 0;  // finished by length
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t local_hit_tokens = 0;
  std::uint64_t external_hit_tokens = 0;
  std::uint64_t computed_tokens = 0;
  std::uint64_t recomputed_tokens = 0;
  std::uint64_t loaded_blocks = 0;  // device blocks of loads that ended well
  std::uint64_t stored_blocks = 0;  // device blocks of stores that ended well
  std::uint64_t loaded_bytes = 0;   // over all ranks
  std::uint64_t stored_bytes = 0;
  std::uint64_t verified_blocks = 0;
  std::uint64_t mismatched_blocks = 0;
  std::uint64_t failed_loads = 0;
  std::uint64_t loads_in_step = 0;  // requests that ran in the step of their load
  std::uint64_t preemptions = 0;
  // Over the output tokens of all requests of the pass, in the order of submission. The same for
  // every pool size, chunking, connector, rank count and preemption; aborted requests do not count.
  std::uint64_t output_digest = 0;
};

// A request that is over, for callbacks.
struct FinishedRequest {
  RequestId id = 0;
  std::size_t index = 0;  // order of submission in this pass
  std::int32_t reason = KVC_END_LENGTH;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t local_tokens = 0;  // of the prompt, where they came from first
  std::uint64_t external_tokens = 0;
  std::uint64_t computed_tokens = 0;
  std::uint64_t output_digest = 0;
  std::span<const TokenId> outputs;  // valid in the call only
};

// What the device pool holds now, in blocks without the null block.
struct DeviceUse {
  std::uint64_t total = 0;   // grows in an unlimited pool
  std::uint64_t used = 0;    // referenced by a request or a job
  std::uint64_t cached = 0;  // not referenced, but a prefix hit would find them
  // Searches of attention in lookups of the device cache so far: where no block was missing before
  // a cached one, and where one was.
  std::uint64_t bisections = 0;
  std::uint64_t linear_walks = 0;
};

struct StatValue {
  std::string name;
  std::string labels;
  std::uint64_t value = 0;
};

// What is still taken when nothing is open. All zero in a correct run.
struct Leaks {
  std::uint64_t slots = 0;   // stat host_slots_leaked_now
  std::uint64_t holds = 0;   // has_pending.held_blocks, or the engine's own hold references if more
  std::uint64_t leases = 0;  // stat leases_open_now
  std::uint64_t device_blocks = 0;  // still referenced
};

}  // namespace kvc::host
