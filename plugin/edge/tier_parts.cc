#include "plugin/edge/tier_parts.h"

#include <fmt/format.h>

#include "plugin/core/fault.h"
#include "plugin/edge/test_extension.h"
#include "plugin/offload/flows/tier_scheduler.h"

namespace kvc::edge {

namespace {

// Fault points "copy.load" and "copy.store": the next copy of that direction fails, at the tier's
// end of it; "copy.load_destination" and "copy.store_source": at the device's end.
class CopyFaultPoints final : public CopyFault {
 public:
  Verdict on_copy(std::uint64_t /*op*/, CopyDirection direction, std::uint64_t /*index*/) override {
    if (direction == CopyDirection::load && KVC_FAULT("copy.load")) {
      return {Code::io, CopySide::source};
    }
    if (direction == CopyDirection::store && KVC_FAULT("copy.store")) {
      return {Code::io, CopySide::destination};
    }
    if (direction == CopyDirection::load && KVC_FAULT("copy.load_destination")) {
      return {Code::io, CopySide::destination};
    }
    if (direction == CopyDirection::store && KVC_FAULT("copy.store_source")) {
      return {Code::io, CopySide::source};
    }
    return {};
  }
};

CopyFault* copy_faults() {
#if defined(KVC_FAULT_POINTS)
  static CopyFaultPoints points;
  return &points;
#else
  return nullptr;
#endif
}

CopyPath path_of(config::CudaCopyPath path) {
  switch (path) {
    case config::CudaCopyPath::automatic:
      break;
    case config::CudaCopyPath::batch:
      return CopyPath::batch;
    case config::CudaCopyPath::loop:
      return CopyPath::loop;
    case config::CudaCopyPath::kernel:
      return CopyPath::kernel;
  }
  return CopyPath::automatic;
}

void wake_host(void* host) { static_cast<const HostAdapter*>(host)->wake(); }

}  // namespace

namespace {

Eviction eviction_of(config::EvictionKind kind) {
  switch (kind) {
    case config::EvictionKind::lru:
      break;
    case config::EvictionKind::arc:
      return Eviction::arc;
    case config::EvictionKind::gdsf:
      return Eviction::gdsf;
    case config::EvictionKind::hazard:
      return Eviction::hazard;
  }
  return Eviction::lru;
}

StateRule states_of(config::StatesKind kind) {
  switch (kind) {
    case config::StatesKind::dense:
      break;
    case config::StatesKind::tail:
      return StateRule::tail;
    case config::StatesKind::automatic:
      return StateRule::automatic;
  }
  return StateRule::dense;
}

CostGateMode gate_mode_of(config::CostGateKind kind) {
  switch (kind) {
    case config::CostGateKind::off:
      break;
    case config::CostGateKind::on:
      return CostGateMode::on;
    case config::CostGateKind::report:
      return CostGateMode::report;
  }
  return CostGateMode::off;
}

disk::DiskTierOptions disk_options(const OpenConfig& open, const config::DiskOptions& o,
                                   std::uint32_t blocks_per_chunk, HostAdapter& host) {
  constexpr std::uint64_t ns_per_ms = 1'000'000;
  disk::DiskTierOptions d;
  d.paths = o.paths;
  disk::DiskStoreOptions& s = d.store;
  s.namespace_id = open.namespace_id;
  // Keys do not say how many blocks share a slot (OW-25).
  if (blocks_per_chunk > 1) {
    const std::string chunks = fmt::format("\n{} blocks a chunk", blocks_per_chunk);
    s.namespace_id.insert(s.namespace_id.end(), chunks.begin(), chunks.end());
  }
  s.key_bytes = open.limits.key_bytes;
  s.budget = {o.bytes / o.paths.size()};
  s.read_deadline_ns = o.read_deadline_ms * ns_per_ms;
  s.write_deadline_ns = o.write_deadline_ms * ns_per_ms;
  s.sync = o.sync;
  s.direct = o.direct;
  s.checksum = o.checksum;
  if (host.stepped()) {
    s.engine = disk::EngineChoice::stepped;
    s.stepped_seed = copy_order_seed();
  } else if (o.io != config::DiskIo::best) {
    s.engine =
        o.io == config::DiskIo::uring ? disk::EngineChoice::uring : disk::EngineChoice::threads;
  }
  if (host.wants_wake()) s.io.on_ended = [&host] { host.wake(); };
  return d;
}

}  // namespace

void take_shared(const config::SharedOptions& o, FlowOptions& s) {
  s.lease_steps = o.lease_steps;
  s.max_leases = o.max_leases;
  s.max_pins = o.max_pins;
  s.max_pinned_percent = o.max_pinned_percent;
  s.attach_steps = o.attach_steps;
  s.held_device_blocks_max = o.held_device_blocks_max;
  s.load_deadline_ms = o.load_deadline_ms;
  s.chained_index = o.index == config::IndexKind::chained;
  s.eviction = eviction_of(o.eviction);
  s.states = states_of(o.states);
  s.store_decode_blocks = o.store_decode_blocks;
  s.single_flight = o.single_flight;
  s.cost_gate = {gate_mode_of(o.cost_gate), o.prefill_tokens_per_second};
  s.event_ring_entries = o.event_ring_entries;
  s.plan_bytes_max = o.plan_bytes_max;
  if (o.disk.paths.empty()) return;
  s.disk.bytes = o.disk.bytes;
  s.disk.paths = static_cast<std::uint32_t>(o.disk.paths.size());
  s.disk.on_eviction = o.disk.store == config::DiskStoreWhen::on_eviction;
  s.disk.open_blocks = o.disk.open_blocks;
}

Status check_shared(const OpenConfig& open, const config::SharedOptions& o) {
  if (!open.limits.random_root || o.disk.paths.empty()) return {};
  return {Code::unsupported,
          fmt::format("KVC_OPEN_RANDOM_ROOT and a disk tier of {} paths: after a restart no key "
                      "would be that of a block on disk (KVC-P-036); fix the root of the hash, or "
                      "leave disk.paths empty",
                      o.disk.paths.size())};
}

Result<RankOptions> rank_options(const OpenConfig& open, const config::SharedOptions& o,
                                 std::uint32_t blocks_per_chunk, HostAdapter& host) {
  const Result<Geometry> tier = tier_geometry_of(open.geometry, blocks_per_chunk);
  if (!tier.ok()) return tier.error();
  RankOptions r;
  r.rank = open.rank;
  r.layout.groups = open.geometry.groups();
  for (const GroupId g : open.geometry.cacheable()) {
    r.layout.cacheable_mask |= std::uint64_t{1} << g;
  }
  for (GroupId g = 0; g < open.geometry.groups(); ++g) {
    r.layout.blocks_per_slot.push_back(tier.value().blocks_per_chunk(g));
  }
  r.layout.device_blocks = open.limits.device_blocks;
  r.layout.null_block = open.limits.null_block;
  r.layout.host_unlimited = o.host_unlimited;
  r.layout.host_blocks = o.host_blocks;
  r.layout.host_bytes = {o.host_bytes};
  r.load_deadline_ms = o.load_deadline_ms;
  r.store_deadline_ms = o.store_deadline_ms;
  if (!o.disk.paths.empty()) r.disk = disk_options(open, o.disk, blocks_per_chunk, host);
  return r;
}

std::unique_ptr<CopyEngine> make_copies(const config::SharedOptions& o, std::uint32_t rank,
                                        HostAdapter& host) {
  HostCopyOptions c;
  c.workers = host.stepped() ? 0 : o.copy_threads;
  c.fault = copy_faults();
  if (const std::uint64_t seed = copy_order_seed(); host.stepped() && seed != 0) {
    c.order = StepOrder::seeded;
    c.seed = seed + rank;
  }
  CudaCopyOptions d;
  d.driver = o.cuda_driver;
  d.path = path_of(o.cuda_copy_path);
  d.kernel_below_load = {o.cuda_kernel_below_load};
  d.kernel_below_store = {o.cuda_kernel_below_store};
  d.numa_node = o.cuda_numa_node;
  d.fault = c.fault;
  if (host.wants_wake()) {
    c.on_ended = d.on_ended = wake_host;
    c.on_ended_arg = d.on_ended_arg = &host;
  }
  return std::make_unique<DeviceCopyEngine>(c, d);
}

}  // namespace kvc::edge
