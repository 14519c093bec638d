// Runs the passes of kvc-run through the host engine.
#pragma once
#include <chrono>
#include <memory>

#include "host_stub/engine/engine.h"
#include "host_stub/tools/log_lines.h"
#include "host_stub/tools/metrics_server.h"
#include "host_stub/tools/progress.h"
#include "host_stub/tools/run_inputs.h"
#include "host_stub/tools/run_options.h"
#include "host_stub/tools/run_report.h"
#include "plugin/core/result.h"

namespace kvc::host {

// A run that is ready: the engine is open, the connector has accepted layout and options.
//
// Threads:    one.
// Owns:       the engine. Options and inputs are the caller's and outlive it.
class Run {
 public:
  // Opens engine and connector. The token limits that they are told come from the rows read, the
  // device pool from --device-blocks, or else twice the blocks of the longest request. Errors: a
  // pool that cannot hold the longest request, and whatever engine or connector refuse; one line,
  // nothing has run.
  static Result<Run> open(const RunOptions& options, const RunInputs& inputs);

  // Writes what engine and connector logged so far to stderr, and from now on at once.
  void release_log() { log_->release(); }

  // Model, pools and connector as they are now, for people.
  [[nodiscard]] std::string geometry() const;

  // What a scrape sees from now on: the end of the newest step, a fifth of a second old at most.
  void serve(MetricsServer* server) { server_ = server; }

  // All passes. Before each the device cache is emptied; the engine settles the connector's work at
  // the end of each. Errors: the engine cannot go on.
  Result<RunReport> passes(Progress& progress);

 private:
  Run(const RunOptions& options, const RunInputs& inputs) : options_(options), inputs_(inputs) {}
  Status one_pass(const std::string& name, Progress& progress);
  void finish_report();
  void publish(bool now);

  const RunOptions& options_;
  const RunInputs& inputs_;
  std::unique_ptr<LogLines> log_ = std::make_unique<LogLines>();  // outlives the engine
  std::unique_ptr<Engine> engine_;
  std::uint64_t blocks_needed_ = 0;
  MetricsServer* server_ = nullptr;
  std::chrono::steady_clock::time_point next_publish_;
  RunReport report_;
};

}  // namespace kvc::host
