// The host engine: a small real engine that drives any connector through kvc.h (design section 4).
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_stub/engine/options.h"
#include "host_stub/loader/loader.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/core/result.h"

namespace kvc::host {

// What one step did.
struct StepResult {
  std::uint64_t scheduled_tokens = 0;
  std::uint64_t finished = 0;    // requests that ended in it
  std::uint64_t ended_jobs = 0;  // jobs of the connector
  bool progressed = false;       // tokens, outputs, ended jobs or verdicts
  bool idle = false;  // no request is live, no step in flight, nothing pending in the connector
};

struct RunCallbacks {
  std::function<void(const FinishedRequest&)> finished;
  // After every step with the number of requests of this pass that are over.
  std::function<void(std::uint64_t finished)> progress;
};

// A scheduler with a device pool, a verifiable model and one connector or none.
//
// Step k: (1) reports of ranks go to the connector, verdicts wake parked requests; (2) running
// requests in order of arrival get tokens, the latest arrival is preempted when blocks are missing;
// (3) waiting requests are admitted in order of arrival: device hit, connector hit, two-phase
// allocation, load or first chunk; (4) the connector plans, ranks submit; (5) the forward
// runs: with one step in flight at once, else steps_in_flight - 1 steps later; its outputs are
// processed then. Loads wait for counter fences "forwards before this step and this step's block
// copies are done", stores for "this step's forward is done".
// An idle engine settles its copies before the next arrival: while no request runs or loads, a new
// request is looked up only when the connector has no open job. So max_running 1 is "one request
// after the other". With a limited device pool a step starts only when jobs hold fewer blocks than
// one step fills or 10 % of the pool, whichever is more, or no copy ends for 20 ms: what is stored
// does not depend on how fast copies are. A connector that answers KVC_E_INTERNAL, or breaks the
// contract in a way that cannot be worked around, is logged once and closed: open loads count as
// failed, held blocks return, and the engine runs on without it.
//
// Threads:    one caller. The connector's threads only reach the log, clock, allocator and wake.
// Owns:       device memory of all ranks, the device pool, all requests, both connector roles.
// Invariants: a block named in a job is not reused before `complete` released it; a parked request
//             is not scheduled before its load's verdict; output tokens depend on nothing but the
//             prompt, the model and the seed.
class Engine {
 public:
  // `connector`: none runs on the device cache alone. Errors, one line each: an option out of
  // range, a layout that the coordinator refuses, a device pool that cannot hold the longest
  // request, ranks that are no multiple of the context parallel size, device memory, and whatever
  // the connector says when it refuses to open (its own text).
  static Result<std::unique_ptr<Engine>> make(EngineOptions options,
                                              std::optional<LoadedConnector> connector);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  // Runs all requests of `source` to their end and settles all copies; counters start at 0.
  // Requests enter in order, as many at a time as may run. When nothing moves any more (stall
  // options) the connector is given up, and if that does not help: Code::internal, and the text
  // says what is waited for.
  Result<PassCounters> run(const RequestSource& source, const RunCallbacks& callbacks = {});

  // Step by step, for simulations.
  // Code::arg: lengths out of range; Code::full: max_live_requests.
  Result<RequestId> submit(const RequestSpec& spec, std::vector<TokenId> prompt);
  StepResult step();
  // Starts a new pass: counters and digests at 0. Requires that no request is live.
  void begin_pass();
  [[nodiscard]] PassCounters counters() const;
  // Ends the request now, wherever it is. False: it is not live.
  bool abort(RequestId id);
  // Preempts the request in the next step if it runs then. False: it is not running.
  bool preempt(RequestId id);
  // The device cache forgets everything; false: blocks are still referenced, nothing
  // changed.
  bool empty_device_cache();
  // Connector reset with KVC_RESET_* flags; its status (KVC_LATER: slots still drain). KVC_OK
  // without a connector.
  kvc_status reset_connector(std::uint64_t flags);
  // Finished requests, in submit and step mode.
  void on_finished(std::function<void(const FinishedRequest&)> callback);

  [[nodiscard]] std::uint64_t live_requests() const;
  [[nodiscard]] bool is_live(RequestId id) const;
  [[nodiscard]] std::uint64_t step_number() const;  // of the last step; 0 before the first
  [[nodiscard]] const Geometry& geometry() const;
  [[nodiscard]] std::uint32_t ranks() const;
  [[nodiscard]] std::uint64_t block_bytes() const;  // on one rank, every group
  [[nodiscard]] DeviceUse device_use() const;
  // Blocks the longest request needs at once (for sizing a pool), with the null block.
  static Result<std::uint64_t> blocks_needed(const EngineOptions& options);

  // The connector, as it was when it was closed if it failed. Zeros without one.
  [[nodiscard]] bool connector_alive() const;
  [[nodiscard]] std::string connector_failure() const;  // why it was given up; empty if it was not
  [[nodiscard]] kvc_boundary_stats boundary_stats() const;
  [[nodiscard]] kvc_pending pending() const;
  // PEER_FAULT lines of the connector: it says that this host broke a rule.
  [[nodiscard]] std::uint64_t peer_faults() const;
  [[nodiscard]] std::vector<StatValue> stats() const;
  [[nodiscard]] std::string explain(RequestId id) const;
  [[nodiscard]] Leaks leaks() const;
  // "group g position p block b token t rank r: expected .. found .."; empty: no mismatch so far.
  [[nodiscard]] const std::string& first_mismatch() const;
  // Status of an own invariant check over pool, tables and holds (slow, for tests).
  [[nodiscard]] Status verify() const;

  // Faults for negative controls: overwrites one byte of the device block that a live request's
  // table holds at (group, position) on `rank`. False: no such block.
  bool corrupt_device_byte(RequestId id, std::uint32_t group, std::uint64_t position,
                           std::uint32_t rank, std::uint64_t offset_bytes);

 private:
  struct Body;
  explicit Engine(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace kvc::host
