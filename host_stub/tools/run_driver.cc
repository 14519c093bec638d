#include "host_stub/tools/run_driver.h"

#include <fmt/format.h>
#include <algorithm>
#include <chrono>

#include "host_stub/engine/layerwise_table.h"
#include "host_stub/engine/trace_source.h"
#include "host_stub/tools/report_text.h"

namespace kvc::host {
namespace {

// Levels of simple_cpu's host pool, summed over labels; a connector without them has no line in the
// plot.
constexpr const char* host_used_stat = "host_slots_used_now";
constexpr const char* host_total_stat = "host_slots_total";

const char* kind_name(config::GroupKind kind) {
  switch (kind) {
    case config::GroupKind::full:
      return "full";
    case config::GroupKind::sliding:
      return "sliding";
    case config::GroupKind::chunked:
      return "chunked";
    case config::GroupKind::state:
      return "state";
    case config::GroupKind::other:
      break;
  }
  return "other";
}

ModelReport model_report(const RunOptions& options, const RunInputs& inputs,
                         std::uint64_t device_blocks) {
  const config::ModelConfig& m = inputs.model;
  ModelReport out;
  out.file = options.model;
  out.name = m.name;
  out.origin = m.origin;
  out.hash_unit_tokens = m.hash_unit_tokens;
  out.scheduler_block_tokens = m.scheduler_block_tokens;
  out.context_parallel = m.context_parallel;
  out.cp_interleave_tokens = m.cp_interleave_tokens;
  out.ranks = inputs.ranks;
  out.sim_bytes_per_token = m.sim_bytes_per_token;
  out.device_blocks = device_blocks;
  for (const config::GroupConfig& g : m.groups) {
    out.groups.push_back({g.name, kind_name(g.kind), g.tokens_per_block,
                          config::ModelConfig::block_span_tokens(g, m.context_parallel),
                          g.window_tokens + g.chunk_tokens, g.origin});
  }
  return out;
}

EngineOptions engine_options(const RunOptions& options, const RunInputs& inputs) {
  EngineOptions e;
  e.model = inputs.model;
  e.ranks = inputs.ranks;
  e.device_cache = options.device_cache;
  e.reserve = options.reserve;
  e.ask_retention = options.ask_retention;
  e.layers = std::max<std::uint64_t>(options.layerwise, 1);
  e.loads_in_step = options.layerwise != 0;
  e.hints = {options.hint_priority, options.hint_ttl_ms * 1'000'000, options.hint_pin_tokens,
             options.hint_every};
  e.max_running = options.max_running;
  e.token_budget = options.token_budget;
  e.steps_in_flight = options.steps_in_flight;
  e.seed = options.seed;
  e.max_prompt_tokens = inputs.trace.totals().longest_prompt_tokens;
  e.max_total_tokens = inputs.trace.totals().longest_total_tokens;
  e.connector_toml = inputs.connector_text;
  e.cuda_driver = options.fake_device;
  e.device_seed = options.device_seed;
  e.stall_ns = options.patience_s * 1'000'000'000;
  e.later_ns = std::min(e.later_ns, e.stall_ns / 2);
  return e;
}

std::uint64_t sum_of(const std::vector<StatValue>& stats, const char* name) {
  std::uint64_t sum = 0;
  for (const StatValue& stat : stats) {
    if (stat.name == name) sum += stat.value;
  }
  return sum;
}

std::uint64_t host_slots(const Engine& engine) {
  const std::uint64_t slots = sum_of(engine.stats(), host_total_stat);
  return slots == KVC_NO_LIMIT ? 0 : slots;
}

OfferRow offer_row(const kvc_offer_counts& c) {
  return {{c.published, c.stored, c.pending, c.skipped_already_cached, c.skipped_in_flight,
           c.skipped_not_hashed, c.dropped_pool_full, c.dropped_request_gone, c.dropped_null_block,
           c.dropped_bad_offer, c.dropped_no_parent, c.dropped_parent_failed, c.dropped_copy_failed,
           c.dropped_leased, c.dropped_hold_budget, c.dropped_reset, c.dropped_plan_full}};
}

PassReport pass_report(const std::string& name, const PassCounters& c, double wall_s) {
  PassReport p;
  p.name = name;
  p.requests = c.requests;
  p.prompt_tokens = c.prompt_tokens;
  p.output_tokens = c.output_tokens;
  p.local_hit_tokens = c.local_hit_tokens;
  p.external_hit_tokens = c.external_hit_tokens;
  p.computed_tokens = c.computed_tokens;
  p.recomputed_tokens = c.recomputed_tokens;
  p.loaded_blocks = c.loaded_blocks;
  p.stored_blocks = c.stored_blocks;
  p.loaded_bytes = c.loaded_bytes;
  p.stored_bytes = c.stored_bytes;
  p.verified_blocks = c.verified_blocks;
  p.mismatched_blocks = c.mismatched_blocks;
  p.failed_loads = c.failed_loads;
  p.preemptions = c.preemptions;
  p.output_digest = c.output_digest;
  p.wall_s = wall_s;
  return p;
}

// The size of the device pool, or why it cannot be.
Result<std::uint64_t> device_blocks(const RunOptions& options, const RunInputs& inputs,
                                    std::uint64_t needed) {
  if (!options.device_blocks) return needed > UINT64_MAX / 2 ? needed : 2 * needed;
  if (*options.device_blocks != 0 && *options.device_blocks < needed) {
    return Status{Code::arg,
                  fmt::format("--device-blocks: {} blocks are too few; the longest request of {} "
                              "has {} tokens and needs {} blocks",
                              *options.device_blocks, options.trace,
                              inputs.trace.totals().longest_total_tokens, needed)};
  }
  return *options.device_blocks;
}

}  // namespace

Result<Run> Run::open(const RunOptions& options, const RunInputs& inputs) {
  Run run(options, inputs);
  EngineOptions e = engine_options(options, inputs);
  const auto needed = Engine::blocks_needed(e);
  if (!needed.ok()) return needed.error();
  run.blocks_needed_ = needed.value();
  const auto pool = device_blocks(options, inputs, needed.value());
  if (!pool.ok()) return pool.error();
  e.device_blocks = pool.value();
  e.hooks.log = [log = run.log_.get()](std::int32_t level, std::string_view text) {
    log->add(level, text);
  };
  auto engine = Engine::make(std::move(e), inputs.connector);
  if (!engine.ok()) {
    Status why = engine.error();
    if (!options.connector_config.empty() && inputs.connector) {
      why.text += fmt::format(" (connector options: {})", options.connector_config);
    }
    if (options.host_blocks && inputs.connector) {
      why.text += fmt::format(" (--host-blocks wrote [host] blocks = {} into its options)",
                              *options.host_blocks);
    }
    return why;
  }
  run.engine_ = std::move(engine).value();
  run.report_.model = model_report(options, inputs, pool.value());
  run.report_.connector_name = "none";
  if (inputs.connector) {
    run.report_.connector_name = inputs.connector->name;
    run.report_.connector_version = inputs.connector->version;
    run.report_.connector_path = inputs.connector->path;
    run.report_.host_slots = host_slots(*run.engine_);
  }
  return run;
}

std::string Run::geometry() const {
  const TraceTotals& trace = inputs_.trace.totals();
  std::string out = geometry_text(report_.model);
  out += fmt::format(
      "trace {}: {} requests, {} prompt tokens, {} output tokens; the longest "
      "request has {} tokens and needs {} device blocks\n",
      options_.trace, grouped(trace.requests), grouped(trace.prompt_tokens),
      grouped(trace.output_tokens), grouped(trace.longest_total_tokens), grouped(blocks_needed_));
  out += report_.model.device_blocks == 0
             ? std::string("device pool: unlimited")
             : fmt::format("device pool: {} blocks", grouped(report_.model.device_blocks));
  out += fmt::format(" of {} per rank{}\n", bytes_text(engine_->block_bytes()),
                     options_.device_cache ? "" : ", device cache off");
  // Without the extension the engine has warned that loads are waited for.
  if (options_.layerwise != 0 && inputs_.connector && layerwise_table(*inputs_.connector)) {
    out +=
        fmt::format("{} layers, read in the step of their load as they come\n", options_.layerwise);
  }
  if (!inputs_.connector) return out + "connector: none\n";
  out += fmt::format("connector {} {} ({})", report_.connector_name, report_.connector_version,
                     report_.connector_path);
  if (report_.host_slots != 0) out += fmt::format(": {} host slots", grouped(report_.host_slots));
  return out + '\n';
}

Status Run::one_pass(const std::string& name, Progress& progress) {
  if (!engine_->empty_device_cache()) {
    return {Code::internal,
            fmt::format("before pass {}: device blocks are still referenced", name)};
  }
  const TraceSource source(inputs_.trace);
  RunCallbacks callbacks;
  callbacks.finished = [this](const FinishedRequest& request) {
    const DeviceUse device = engine_->device_use();
    RequestSample sample;
    sample.pass = static_cast<std::uint32_t>(report_.passes.size());
    sample.local_tokens = request.local_tokens;
    sample.external_tokens = request.external_tokens;
    sample.computed_tokens = request.computed_tokens;
    sample.device_used_blocks = device.used;
    sample.device_cached_blocks = device.cached;
    if (inputs_.connector) sample.host_used_slots = sum_of(engine_->stats(), host_used_stat);
    report_.samples.push_back(sample);
  };
  callbacks.progress = [&](std::uint64_t finished) {
    progress.show(name, finished, inputs_.trace.size());
    publish(false);
  };
  const auto begin = std::chrono::steady_clock::now();
  const auto counters = engine_->run(source, callbacks);
  if (!counters.ok()) return counters.error();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  report_.passes.push_back(pass_report(name, counters.value(), wall.count()));
  return {};
}

Result<RunReport> Run::passes(Progress& progress) {
  for (const std::string& name : options_.passes) {
    Status status = one_pass(name, progress);
    if (!status.ok()) return status;
    publish(true);
  }
  finish_report();
  return report_;
}

void Run::publish(bool now) {
  if (server_ == nullptr) return;
  const auto time = std::chrono::steady_clock::now();
  if (!now && time < next_publish_) return;
  next_publish_ = time + std::chrono::milliseconds(200);
  MetricsSnapshot s;
  s.connector = engine_->stats();
  s.pass = engine_->counters();
  s.passes = report_.passes.size();
  s.device = engine_->device_use();
  if (inputs_.connector) s.explain = engine_->explain(0);
  server_->publish(std::move(s));
}

void Run::finish_report() {
  const kvc_boundary_stats offers = engine_->boundary_stats();
  report_.handoffs = offer_row(offers.handoffs);
  report_.all_offers = offer_row(offers.all_offers);
  for (StatValue& stat : engine_->stats()) {
    report_.stats.push_back({std::move(stat.name), std::move(stat.labels), stat.value});
  }
  // A pool that grew during the run has no size to be full of.
  if (host_slots(*engine_) != report_.host_slots) report_.host_slots = 0;
  const Leaks leaks = engine_->leaks();
  report_.leaks = {leaks.slots, leaks.holds, leaks.leases, leaks.device_blocks};
  report_.connector_failure = engine_->connector_failure();
  report_.first_mismatch = engine_->first_mismatch();
}

}  // namespace kvc::host
