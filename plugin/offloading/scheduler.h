// The scheduler role of the offloading connector: chunks, partial tails, tiers (spec
// offloading.md with the deviations of design section 3).
#pragma once
#include <cstdint>
#include <memory>

#include "plugin/offload/flows/tier_scheduler.h"

namespace kvc {

using OffloadingSchedulerOptions = FlowOptions;

// Positions of windows and states that no hit can need are passed over (store_reachable_only).
// Errors: those of make_tier_scheduler; Code::arg: max_tracker_size 0. `host` must outlive the
// role.
Result<std::unique_ptr<SchedulerRole>> make_offloading_scheduler(
    Geometry geometry, const OpenLimits& limits, const OffloadingSchedulerOptions& options,
    HostServices& host);

}  // namespace kvc
