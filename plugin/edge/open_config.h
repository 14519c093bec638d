// kvc_open, checked and in C++ types.
#pragma once
#include <kvc/kvc.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/core/result.h"
#include "plugin/edge/host_adapter.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc::edge {

enum class Role { scheduler, rank };

// What open said, with everything of its form and of single numbers checked; what a layout of
// groups may be is checked by Geometry, what an option may be by config.
struct OpenConfig {
  Geometry geometry;
  OpenLimits limits;  // namespace_id points into the member below
  std::vector<std::uint8_t> namespace_id;
  std::string config_toml;
  std::uint32_t rank = 0;
};

// Largest numbers that open takes where KVC_NO_LIMIT is not given: beyond them an engine is wrong
// about its own size, and no list that follows from them could be reserved. KVC_E_ARG names the
// number and the bound.
inline constexpr std::uint64_t ranks_max = 1U << 16U;
inline constexpr std::uint64_t running_max = 1U << 20U;
inline constexpr std::uint64_t live_requests_max = 1U << 24U;
inline constexpr std::uint64_t steps_in_flight_max = 1U << 12U;
inline constexpr std::uint64_t tokens_max = std::uint64_t{1} << 40U;
inline constexpr std::uint64_t namespace_bytes_max = 64U << 10U;
inline constexpr std::uint64_t toml_bytes_max = 16U << 20U;

// Nothing is allocated before the numbers that size it were checked.
Result<OpenConfig> read_open(const kvc_open* open, Role role, const HostAdapter& host);

}  // namespace kvc::edge
