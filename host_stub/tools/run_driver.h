// Runs the passes of kvc-run through the host engine.
#pragma once
#include "host_stub/tools/progress.h"
#include "host_stub/tools/run_inputs.h"
#include "host_stub/tools/run_options.h"
#include "host_stub/tools/run_report.h"
#include "plugin/core/result.h"

namespace kvc::host {

// A run that was checked as far as it can be without running.
//
// Threads:    one.
// Owns:       nothing beyond the run; RunInputs stay the caller's.
Result<RunReport> run_passes(const RunOptions& options, const RunInputs& inputs,
                             Progress& progress);

}  // namespace kvc::host
