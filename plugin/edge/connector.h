// What a connector library adds to the edge: its name, its abilities and how its roles are made.
#pragma once
#include <cstdint>
#include <memory>
#include <string_view>

#include "plugin/core/result.h"
#include "plugin/edge/host_adapter.h"
#include "plugin/edge/open_config.h"
#include "plugin/offload/rank_engine.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc::edge {

// Each library that links the edge defines these; the texts of errors name the numbers and the keys
// of the TOML.
//
// Threads: any. The host adapter outlives what is made.
[[nodiscard]] std::string_view connector_name();
[[nodiscard]] std::uint64_t connector_caps();
Result<std::unique_ptr<SchedulerRole>> make_scheduler(const OpenConfig& config, HostAdapter& host);
Result<std::unique_ptr<RankEngine>> make_rank(const OpenConfig& config, HostAdapter& host);

}  // namespace kvc::edge
