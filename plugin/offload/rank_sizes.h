// What the ranks registered, turned into the sizes of the tier (design 2.3 set_ranks, CW-7, CW-24).
#pragma once
#include <span>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/offload/host_tier.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

struct RankSizes {
  TierSizes sizes;
  std::vector<SlotClass> usable;  // bytes are those of rank 0
};

// Errors, all Code::arg with the numbers: a rank missing, twice or beyond `ranks`; ranks that
// disagree on classes, their groups or slots per page; a cacheable group in no class or in two; a
// class with fewer than two slots on some rank.
Result<RankSizes> settle_ranks(const Geometry& geometry, std::uint32_t ranks,
                               std::span<const RankInfo> infos);

}  // namespace kvc
