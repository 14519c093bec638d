// The small engine of simple_cpu's tests over the role of the offloading connector.
#pragma once
#include "plugin/offloading/scheduler.h"
#include "plugin/simple_cpu/tests/byte_world.h"

namespace kvc::test {

inline Result<std::unique_ptr<SchedulerRole>> make_offloading(
    Geometry geometry, const OpenLimits& limits, const SimpleCpuSchedulerOptions& flows,
    HostServices& host) {
  return make_offloading_scheduler(std::move(geometry), limits, flows, host);
}

inline SimpleCpuSchedulerOptions chunks_of(std::uint32_t blocks_per_chunk) {
  SimpleCpuSchedulerOptions o;
  o.blocks_per_chunk = blocks_per_chunk;
  return o;
}

}  // namespace kvc::test
