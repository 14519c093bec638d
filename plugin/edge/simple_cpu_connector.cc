// simple_cpu behind the edge: TOML to options, options to roles.
#include "config/simple_cpu_options.h"
#include "plugin/edge/connector.h"
#include "plugin/edge/tier_parts.h"
#include "plugin/simple_cpu/scheduler.h"

namespace kvc::edge {

namespace {

Result<config::SimpleCpuOptions> parse(const OpenConfig& open) {
  config::Parsed<config::SimpleCpuOptions> parsed =
      config::parse_simple_cpu(open.config_toml, "config_toml");
  if (!parsed.ok()) return Status(Code::arg, parsed.error().text);
  if (Status s = check_shared(open, parsed.value()); !s.ok()) return s;
  return parsed.value();
}

}  // namespace

std::string_view connector_name() { return "simple_cpu"; }

std::uint64_t connector_caps() {
  return KVC_CAP_STEPPED | KVC_CAP_FINE_HITS | KVC_CAP_STATES | KVC_CAP_EVENTS |
         KVC_CAP_PERSISTENT | KVC_CAP_CANDIDATES;
}

Result<std::unique_ptr<SchedulerRole>> make_scheduler(const OpenConfig& open, HostAdapter& host) {
  const auto o = parse(open);
  if (!o.ok()) return o.error();
  SimpleCpuSchedulerOptions s;
  take_shared(o.value(), s);
  s.lazy = o.value().mode == config::StoreMode::lazy;
  return make_simple_cpu_scheduler(open.geometry, open.limits, s, host);
}

Result<std::unique_ptr<RankEngine>> make_rank(const OpenConfig& open, HostAdapter& host) {
  const auto o = parse(open);
  if (!o.ok()) return o.error();
  const auto options = rank_options(open, o.value(), 1, host);
  if (!options.ok()) return options.error();
  return RankEngine::create(options.value(), make_copies(o.value(), open.rank, host), host);
}

}  // namespace kvc::edge
