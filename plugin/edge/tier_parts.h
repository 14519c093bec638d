// What the connectors of this library make of the options that they share
// (config/shared_options.h).
#pragma once
#include <memory>

#include "config/shared_options.h"
#include "cuda/device_copy_engine.h"
#include "plugin/core/result.h"
#include "plugin/edge/host_adapter.h"
#include "plugin/edge/open_config.h"
#include "plugin/offload/flows/options.h"
#include "plugin/offload/rank_engine.h"

namespace kvc::edge {

// Into `flows`, which keeps what is not shared.
void take_shared(const config::SharedOptions& shared, FlowOptions& flows);

// Whether this engine can have what the options ask for: keys whose root is random are of no use
// after a restart (unsupported, KVC-P-036).
Status check_shared(const OpenConfig& open, const config::SharedOptions& shared);

// Errors: those of tier_geometry_of. `host` outlives the rank: its disk tier wakes it.
Result<RankOptions> rank_options(const OpenConfig& open, const config::SharedOptions& shared,
                                 std::uint32_t blocks_per_chunk, HostAdapter& host);

// The copy engine of a rank, for whatever device its regions lie on; wakes the host when copies
// end. `host` outlives it.
std::unique_ptr<CopyEngine> make_copies(const config::SharedOptions& shared, std::uint32_t rank,
                                        HostAdapter& host);

}  // namespace kvc::edge
