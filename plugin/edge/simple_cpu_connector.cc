// simple_cpu behind the edge: TOML to options, options to roles.
#include <fmt/format.h>

#include <memory>
#include <string>

#include "config/simple_cpu_options.h"
#include "cuda/host_copy_engine.h"
#include "plugin/core/fault.h"
#include "plugin/edge/connector.h"
#include "plugin/edge/test_extension.h"
#include "plugin/simple_cpu/scheduler.h"

namespace kvc::edge {

namespace {

Result<config::SimpleCpuOptions> parse(const OpenConfig& open) {
  config::Parsed<config::SimpleCpuOptions> parsed =
      config::parse_simple_cpu(open.config_toml, "config_toml");
  if (!parsed.ok()) return Status(Code::arg, parsed.error().text);
  return parsed.value();
}

RankOptions rank_options(const OpenConfig& open, const config::SimpleCpuOptions& o) {
  RankOptions r;
  r.rank = open.rank;
  r.layout.groups = open.geometry.groups();
  for (const GroupId g : open.geometry.cacheable()) {
    r.layout.cacheable_mask |= std::uint64_t{1} << g;
  }
  r.layout.device_blocks = open.limits.device_blocks;
  r.layout.null_block = open.limits.null_block;
  r.layout.host_unlimited = o.host_unlimited;
  r.layout.host_blocks = o.host_blocks;
  r.layout.host_bytes = {o.host_bytes};
  r.load_deadline_ms = o.load_deadline_ms;
  r.store_deadline_ms = o.store_deadline_ms;
  return r;
}

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

void wake_host(void* host) { static_cast<const HostAdapter*>(host)->wake(); }

Result<std::unique_ptr<HostCopyEngine>> make_copies(const config::SimpleCpuOptions& o,
                                                    std::uint32_t rank, HostAdapter& host) {
  HostCopyOptions c;
  c.workers = host.stepped() ? 0 : o.copy_threads;
  c.fault = copy_faults();
  if (const std::uint64_t seed = copy_order_seed(); host.stepped() && seed != 0) {
    c.order = StepOrder::seeded;
    c.seed = seed + rank;
  }
  if (host.wants_wake()) {
    c.on_ended = wake_host;
    c.on_ended_arg = &host;
  }
  return HostCopyEngine::create(c);
}

}  // namespace

std::string_view connector_name() { return "simple_cpu"; }

std::uint64_t connector_caps() {
  return KVC_CAP_STEPPED | KVC_CAP_FINE_HITS | KVC_CAP_STATES | KVC_CAP_EVENTS | KVC_CAP_CANDIDATES;
}

Result<std::unique_ptr<SchedulerRole>> make_scheduler(const OpenConfig& open, HostAdapter& host) {
  const auto o = parse(open);
  if (!o.ok()) return o.error();
  SimpleCpuSchedulerOptions s;
  s.lazy = o.value().mode == config::StoreMode::lazy;
  s.lease_steps = o.value().lease_steps;
  s.max_leases = o.value().max_leases;
  s.attach_steps = o.value().attach_steps;
  s.held_device_blocks_max = o.value().held_device_blocks_max;
  s.load_deadline_ms = o.value().load_deadline_ms;
  s.chained_index = o.value().index == config::IndexKind::chained;
  s.store_decode_blocks = o.value().store_decode_blocks;
  s.single_flight = o.value().single_flight;
  s.event_ring_entries = o.value().event_ring_entries;
  s.plan_bytes_max = o.value().plan_bytes_max;
  return make_simple_cpu_scheduler(open.geometry, open.limits, s, host);
}

Result<std::unique_ptr<RankEngine>> make_rank(const OpenConfig& open, HostAdapter& host) {
  const auto o = parse(open);
  if (!o.ok()) return o.error();
  auto copies = make_copies(o.value(), open.rank, host);
  if (!copies.ok()) return copies.error();
  return RankEngine::create(rank_options(open, o.value()), std::move(copies).value(), host);
}

}  // namespace kvc::edge
