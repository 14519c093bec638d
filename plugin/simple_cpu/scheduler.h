// The scheduler role of the simple_cpu connector: eager mode stores a block when it is filled, lazy
// mode when the engine is about to evict it (spec R-601..R-696, design section 3).
#pragma once
#include <memory>

#include "plugin/offload/flows/tier_scheduler.h"

namespace kvc {

struct SimpleCpuSchedulerOptions : FlowOptions {
  // Blocks are stored when the engine is about to evict them, not when they are filled. Decides
  // store_when_filled.
  bool lazy = false;
};

// What simple_cpu is beside the flows.
std::unique_ptr<StorePolicy> make_simple_cpu_policy(bool lazy);

// Errors: those of make_tier_scheduler; Code::unsupported: lazy mode without a device cache, which
// would never name a candidate. `host` must outlive the role.
Result<std::unique_ptr<SchedulerRole>> make_simple_cpu_scheduler(
    Geometry geometry, const OpenLimits& limits, const SimpleCpuSchedulerOptions& options,
    HostServices& host);

}  // namespace kvc
