// offloading behind the edge: TOML to options, options to roles.
#include "config/offloading_options.h"
#include "plugin/edge/connector.h"
#include "plugin/edge/tier_parts.h"
#include "plugin/offloading/scheduler.h"

namespace kvc::edge {

namespace {

Result<config::OffloadingOptions> parse(const OpenConfig& open) {
  config::Parsed<config::OffloadingOptions> parsed =
      config::parse_offloading(open.config_toml, "config_toml");
  if (!parsed.ok()) return Status(Code::arg, parsed.error().text);
  if (Status s = check_shared(open, parsed.value()); !s.ok()) return s;
  return parsed.value();
}

}  // namespace

std::string_view connector_name() { return "offloading"; }

std::uint64_t connector_caps() {
  return KVC_CAP_STEPPED | KVC_CAP_FINE_HITS | KVC_CAP_STATES | KVC_CAP_EVENTS | KVC_CAP_PERSISTENT;
}

Result<std::unique_ptr<SchedulerRole>> make_scheduler(const OpenConfig& open, HostAdapter& host) {
  const auto o = parse(open);
  if (!o.ok()) return o.error();
  OffloadingSchedulerOptions s;
  take_shared(o.value(), s);
  s.blocks_per_chunk = o.value().blocks_per_chunk;
  s.store_threshold = o.value().store_threshold;
  s.max_tracker_size = o.value().max_tracker_size;
  return make_offloading_scheduler(open.geometry, open.limits, s, host);
}

Result<std::unique_ptr<RankEngine>> make_rank(const OpenConfig& open, HostAdapter& host) {
  const auto o = parse(open);
  if (!o.ok()) return o.error();
  const auto options = rank_options(open, o.value(), o.value().blocks_per_chunk, host);
  if (!options.ok()) return options.error();
  return RankEngine::create(options.value(), make_copies(o.value(), open.rank, host), host);
}

}  // namespace kvc::edge
