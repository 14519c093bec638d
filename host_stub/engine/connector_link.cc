#include "host_stub/engine/connector_link.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/key_chain.h"
#include "host_stub/loader/status_text.h"
#include "plugin/coordinator/block_pool.h"

namespace kvc::host {
namespace {

// Threaded mode: progress is asked for without a wake at least every so many steps, for deadlines.
constexpr std::uint64_t quiet_collects = 256;

ConnectorLink* link_of(kvc_host* h) { return reinterpret_cast<ConnectorLink*>(h); }

}  // namespace

ConnectorLink::ConnectorLink(const LoadedConnector& connector, const Parts& parts)
    : connector_(connector),
      hooks_(parts.options.hooks),
      query_(parts.query),
      device_(parts.device),
      without_fences_(parts.options.device_without_fences),
      stepped_(parts.options.stepped),
      hash_unit_(parts.geometry.hash_unit().n),
      layers_(parts.options.layers),
      poisoned_(parts.ranks, false),
      counters_(parts.ranks) {
  const EngineOptions& o = parts.options;
  host_.struct_size = sizeof host_;
  host_.abi_minor = KVC_MINOR;
  host_.caps = (stepped_ ? KVC_HOST_STEPPED : 0) | (o.rank_verdicts ? KVC_HOST_RANK_VERDICTS : 0);
  if (!o.device_cache) host_.caps |= KVC_HOST_NO_DEVICE_CACHE;
  if (o.device_cache && o.block_query) host_.caps |= KVC_HOST_BLOCK_QUERY;
  host_.self = reinterpret_cast<kvc_host*>(this);
  host_.log = on_log;
  host_.now_ns = hooks_.now_ns ? on_now : nullptr;
  if (hooks_.alloc && hooks_.release) {
    host_.alloc = on_alloc;
    host_.release = on_release;
  }
  host_.wake = on_wake;
  if ((host_.caps & KVC_HOST_BLOCK_QUERY) != 0) {
    host_.has_key = on_has_key;
    host_.block_of = on_block_of;
  }
}

ConnectorLink::~ConnectorLink() { close(0); }

Result<std::unique_ptr<ConnectorLink>> ConnectorLink::open(const LoadedConnector& connector,
                                                           const Parts& parts) {
  std::unique_ptr<ConnectorLink> link(new ConnectorLink(connector, parts));
  if (Status s = link->open_handles(parts); !s.ok()) return s;
  if (Status s = link->register_ranks(parts); !s.ok()) return s;
  link->opening_ = false;
  return link;
}

void ConnectorLink::fill_open(const Parts& parts, kvc_open& open,
                              std::vector<kvc_group>& groups) const {
  const Geometry& geometry = parts.geometry;
  const EngineOptions& o = parts.options;
  for (GroupId g = 0; g < geometry.groups(); ++g) {
    const GroupSpec& spec = geometry.group(g);
    kvc_group out{};
    out.struct_size = sizeof out;
    out.kind = static_cast<std::int32_t>(spec.kind);
    const auto bit = [&](bool on, std::uint64_t cap) { out.caps |= on ? cap : 0; };
    bit(spec.cacheable, KVC_GROUP_CAP_CACHEABLE);
    bit(spec.position_stable, KVC_GROUP_CAP_POSITION_STABLE);
    bit(spec.fine_lookup, KVC_GROUP_CAP_FINE_LOOKUP);
    bit(spec.state, KVC_GROUP_CAP_STATE);
    bit(spec.sharded, KVC_GROUP_CAP_SHARDED);
    bit(spec.draft, KVC_GROUP_CAP_DRAFT);
    bit(spec.resume_inside_block, KVC_GROUP_CAP_RESUME_INSIDE_BLOCK);
    out.caps_known = KVC_GROUP_CAPS_ALL;
    out.tokens_per_block = spec.tokens_per_block.n;
    out.window_tokens = spec.window.n;
    out.extra_retained_tokens = spec.extra_retained.n;
    groups.push_back(out);
  }
  open.struct_size = sizeof open;
  open.groups = kvc_list_of(groups.data(), groups.size(), sizeof(kvc_group));
  open.flags = o.draft_drop ? KVC_OPEN_DRAFT_DROP : 0;
  open.hash_unit_tokens = geometry.hash_unit().n;
  open.scheduler_block_tokens = geometry.scheduler_block().n;
  open.context_parallel = geometry.options().context_parallel;
  open.ranks = parts.ranks;
  open.cp_interleave_tokens = geometry.options().cp_interleave.n;
  open.device_blocks = parts.device_blocks == 0 ? KVC_NO_LIMIT : parts.device_blocks;
  open.null_block = null_block;
  open.key_bytes = engine_key_bytes;
  open.max_prompt_tokens = o.max_prompt_tokens;
  open.max_total_tokens = o.max_total_tokens;
  open.max_batch_tokens = o.token_budget;
  open.max_live_requests = o.max_live_requests;
  open.max_running = o.max_running;
  open.max_request_bytes = o.max_request_bytes;
  open.max_steps_in_flight = o.steps_in_flight;
  open.retention_tokens = o.retention_tokens;
}

std::string ConnectorLink::refusal(const char* what, kvc_status status,
                                   const std::string& text) const {
  const std::string& why = text.empty() ? open_log_ : text;
  return fmt::format("connector {}: {} answered status {}{}{}", connector_.path, what,
                     host::Said{status}, why.empty() ? "" : ": ", why);
}

Status ConnectorLink::open_handles(const Parts& parts) {
  std::vector<kvc_group> groups;
  kvc_open open{};
  fill_open(parts, open, groups);
  const std::string name = fmt::format(
      "kvc-host-engine/1 model={} seed={} bytes={} layers={} ranks={}", parts.options.model.name,
      parts.options.seed, parts.options.model.sim_bytes_per_token, layers_, parts.ranks);
  open.namespace_id = kvc_bytes_of(name.data(), name.size());
  const std::string& toml = parts.options.connector_toml;
  open.config_toml = kvc_bytes_of(toml.data(), toml.size());
  kvc_status status = connector_.api.open_scheduler(&host_, &open, &sched_);
  note("open_scheduler", status);
  if (status < 0 || sched_ == nullptr) {
    sched_ = nullptr;
    return {static_cast<Code>(status < 0 ? status : KVC_E_INTERNAL),
            refusal("open_scheduler", status, {})};
  }
  find_extensions(parts.options);
  for (std::uint32_t rank = 0; rank < parts.ranks; ++rank) {
    open.rank = rank;
    kvc_rank* handle = nullptr;
    status = connector_.api.open_rank(&host_, &open, &handle);
    note("open_rank", status, rank);
    if (status < 0 || handle == nullptr) {
      return {static_cast<Code>(status < 0 ? status : KVC_E_INTERNAL),
              refusal("open_rank", status, {})};
    }
    ranks_.push_back(handle);
  }
  return {};
}

Status ConnectorLink::register_ranks(const Parts& parts) {
  std::vector<kvc_rank_info> infos(ranks_.size());
  std::uint64_t mask = 0;
  for (const GroupId g : parts.geometry.cacheable()) mask |= std::uint64_t{1} << g;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const RankMemory& memory = *parts.memory[rank];
    const std::uint64_t bytes = memory.block_bytes().n / layers_;
    std::vector<kvc_region> regions;
    for (std::uint64_t layer = 0; layer < layers_; ++layer) {
      kvc_region region{};
      region.struct_size = sizeof region;
      region.device_kind = memory.on_device() ? KVC_DEVICE_CUDA : KVC_DEVICE_HOST;
      region.layer = static_cast<std::uint32_t>(layer);
      region.base = reinterpret_cast<std::uint8_t*>(memory.base()) + layer * bytes;
      region.size_bytes = memory.region().n - layer * bytes;
      region.block_stride_bytes = memory.block_bytes().n;
      region.block_bytes = bytes;
      region.group_mask = mask;
      regions.push_back(region);
    }
    const kvc_list list = kvc_list_of(regions.data(), regions.size(), sizeof(kvc_region));
    infos[rank].struct_size = sizeof infos[rank];
    const kvc_status s = connector_.api.register_regions(ranks_[rank], &list, &infos[rank]);
    note("register_regions", s, rank);
    if (s < 0) return {static_cast<Code>(s), refusal("register_regions", s, rank_error(rank))};
  }
  const kvc_list list = kvc_list_of(infos.data(), infos.size(), sizeof(kvc_rank_info));
  kvc_list usable{};
  const kvc_status s = connector_.api.set_ranks(sched_, &list, &usable);
  note("set_ranks", s);
  if (s < 0) return {static_cast<Code>(s), refusal("set_ranks", s, last_error())};
  return {};
}

void ConnectorLink::fail(const std::string& why) {
  if (!failure_.empty()) return;
  failure_ = why;
  log_line(KVC_LOG_ERROR, fmt::format("connector {} is given up: {}", connector_.path, why));
}

void ConnectorLink::close(std::uint64_t wait_ns) {
  if (sched_ != nullptr) {
    last_boundary_ = read_boundary_stats();
    last_stats_ = read_stats();
    last_explain_ = explain(0);
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (wait_ns > 0 && !poisoned_[rank]) {
      static_cast<void>(connector_.api.wait(ranks_[rank], nullptr, 0, wait_ns));
    }
    connector_.api.close_rank(ranks_[rank]);
  }
  ranks_.clear();
  if (sched_ != nullptr) connector_.api.close_scheduler(sched_);
  sched_ = nullptr;
  if (failure_.empty()) failure_ = "closed";
}

// Every status passes here: the observer sees it, and a poisoned handle is noticed at once.
kvc_status ConnectorLink::note(const char* slot, kvc_status status, std::uint32_t rank) {
  const bool known = status <= 0 ? status >= KVC_E_DEADLINE : status <= KVC_LATER;
  const kvc_status seen = known ? status : status > 0 ? KVC_OK : KVC_E_INTERNAL;
  if (hooks_.after_call) hooks_.after_call({slot, rank == scheduler ? 0 : rank, status});
  if (seen == KVC_E_INTERNAL && !opening_) {
    if (rank != scheduler) poisoned_[rank] = true;
    fail(fmt::format("{} answered {}: {}", slot, host::Said{status},
                     sched_ == nullptr ? std::string() : last_error()));
  }
  return seen;
}

bool ConnectorLink::begin(const kvc_request& request) {
  if (!alive()) return false;
  const kvc_status s = note("request_begin", connector_.api.request_begin(sched_, &request));
  if (s < 0 && s != KVC_E_FULL) {
    fail(fmt::format("request_begin of {} answered {}: {}", request.request, host::Said{s},
                     last_error()));
  }
  return s >= 0;
}

void ConnectorLink::extend(const kvc_extend& extend) {
  if (!alive()) return;
  const kvc_status s = note("request_extend", connector_.api.request_extend(sched_, &extend));
  if (s < 0 && s != KVC_E_FULL) {
    fail(fmt::format("request_extend of {} answered {}: {}", extend.request, host::Said{s},
                     last_error()));
  }
}

LookupAnswer ConnectorLink::lookup(const kvc_lookup_in& in) {
  if (!alive()) return {};
  kvc_lookup_out out{};
  out.struct_size = sizeof out;
  const kvc_status s = note("lookup", connector_.api.lookup(sched_, &in, &out));
  // A load of this id whose rank items are known but whose end is not: ask again
  // (KVC_HOST_RANK_VERDICTS).
  if (s == KVC_E_STATE) return {0, true, KVC_WHY_NONE};
  if (s < 0) {
    fail(fmt::format("lookup of {} answered {}: {}", in.request, host::Said{s}, last_error()));
    return {};
  }
  if (s == KVC_LATER) return {0, true, out.why};
  const std::uint64_t most =
      std::min(in.total_tokens - 1 - in.device_tokens, in.external_cap_tokens);
  if (out.external_tokens > most || out.external_tokens % hash_unit_ != 0) {
    fail(fmt::format("lookup of {} answered {} tokens behind {} of {}, in units of {}", in.request,
                     out.external_tokens, in.device_tokens, in.total_tokens, hash_unit_));
    return {};
  }
  return {out.external_tokens, false, out.why};
}

kvc_status ConnectorLink::alloc_update(const kvc_alloc_in& in, kvc_alloc_out* out) {
  if (!alive()) return KVC_E_INTERNAL;
  *out = {};
  out->struct_size = sizeof *out;
  const kvc_status s = connector_.api.alloc_update(sched_, &in, out);
  const kvc_status seen = note("alloc_update", s);
  return s > 0 && seen >= 0 ? s : seen;
}

bool ConnectorLink::build(kvc_step& step, kvc_plan* plan) {
  if (!alive()) return false;
  step.step = step_ + 1;
  *plan = {};
  plan->struct_size = sizeof *plan;
  const kvc_status s =
      note("build_store_jobs", connector_.api.build_store_jobs(sched_, &step, plan));
  if (s < 0) {
    fail(fmt::format("build_store_jobs of step {} answered {}: {}", step.step, host::Said{s},
                     last_error()));
    return false;
  }
  ++step_;
  return true;
}

bool ConnectorLink::end(const kvc_end_in& in, kvc_end_out* out) {
  if (!alive()) return false;
  *out = {};
  out->struct_size = sizeof *out;
  const kvc_status s = note("request_end", connector_.api.request_end(sched_, &in, out));
  if (s < 0) {
    fail(fmt::format("request_end of {} answered {}: {}", in.request, host::Said{s}, last_error()));
  }
  return s >= 0;
}

kvc_status ConnectorLink::reset(std::uint64_t flags) {
  if (!alive()) return KVC_OK;
  pinned_.clear();
  pins_refused_ = false;
  return note("reset", connector_.api.reset(sched_, flags));
}

void ConnectorLink::pump(std::uint32_t budget) {
  if (alive()) note("pump_scheduler", connector_.api.pump_scheduler(sched_, budget));
}

bool ConnectorLink::hand_over(bool loads, const kvc_plan& plan, std::uint32_t rank,
                              const kvc_fence& fence) {
  const auto slot = loads ? connector_.api.submit_loads : connector_.api.submit_stores;
  const kvc_status s =
      note(loads ? "submit_loads" : "submit_stores", slot(ranks_[rank], plan.bytes, &fence), rank);
  if (s < 0) {
    fail(fmt::format("rank {} refused the plan of step {} with {}: {}", rank, step_, host::Said{s},
                     rank_error(rank)));
  }
  return s >= 0;
}

bool ConnectorLink::submit_loads(const kvc_plan& plan) { return submit_all(true, plan); }

bool ConnectorLink::submit_stores(const kvc_plan& plan) { return submit_all(false, plan); }

// As an engine does on a device: what a fence covers is in the stream when the plan is handed over.
// Without one it is a counter; its values of step k: 2k - 1 its block copies, 2k its forward.
bool ConnectorLink::submit_all(bool loads, const kvc_plan& plan) {
  if (device_ != nullptr && loads) device_->launch_turn();
  for (std::uint32_t rank = 0; rank < ranks_.size() && alive(); ++rank) {
    kvc_fence fence{};
    fence.struct_size = sizeof fence;
    if (device_ == nullptr) {
      fence.kind = KVC_FENCE_COUNTER;
      fence.counter = &counters_[rank].value;
      fence.value = 2 * step_ - (loads ? 1 : 0);
    } else if (!without_fences_) {
      fence = device_->fence_now();
    }
    hand_over(loads, plan, rank, fence);
  }
  return alive();
}

void ConnectorLink::set_counters(std::uint64_t value) {
  for (Counter& counter : counters_) {
    std::atomic_ref<std::uint64_t>(counter.value).store(value, std::memory_order_release);
  }
}

void ConnectorLink::copies_done(std::uint64_t step) { set_counters(2 * step - 1); }
void ConnectorLink::forward_done(std::uint64_t step) { set_counters(2 * step); }

void ConnectorLink::pump_rank(std::uint32_t rank, std::uint32_t budget) {
  if (alive()) note("pump_rank", connector_.api.pump_rank(ranks_[rank], budget), rank);
}

void ConnectorLink::wait(std::span<const kvc_job> jobs, std::uint64_t timeout_ns) {
  for (std::uint32_t rank = 0; rank < ranks_.size() && alive(); ++rank) {
    note("wait", connector_.api.wait(ranks_[rank], jobs.data(), jobs.size(), timeout_ns), rank);
  }
  news_ = true;
}

void ConnectorLink::progress_rank(std::uint32_t rank) {
  kvc_progress out{};
  out.struct_size = sizeof out;
  const kvc_status s = note("progress", connector_.api.progress(ranks_[rank], &out), rank);
  if (s < 0) {
    fail(fmt::format("progress of rank {} answered {}: {}", rank, host::Said{s}, rank_error(rank)));
    return;
  }
  for (std::uint64_t i = 0; i < out.loads.count; ++i) {
    collected_.items.push_back({rank, list_element<kvc_load_done>(out.loads, i)});
  }
  if (out.report.size == 0) return;
  reports_.push_back({rank, {out.report.data, out.report.data + out.report.size}});
}

const Collected& ConnectorLink::collect() {
  collected_.items.clear();
  collected_.complete = {};
  collected_.completed = false;
  if (!alive()) return collected_;
  const bool quiet = !stepped_ && !news_.exchange(false) && ++collects_ % quiet_collects != 0;
  if (quiet && reports_.empty()) return collected_;
  for (std::uint32_t rank = 0; rank < ranks_.size() && alive(); ++rank) progress_rank(rank);
  if (hooks_.on_reports) hooks_.on_reports(reports_);
  if (reports_.empty() || !alive()) return collected_;
  report_views_.clear();
  for (const CarriedReport& report : reports_) {
    report_views_.push_back(kvc_bytes_of(report.bytes.data(), report.bytes.size()));
  }
  collected_.complete.struct_size = sizeof collected_.complete;
  const kvc_status s =
      note("complete", connector_.api.complete(sched_, report_views_.data(), report_views_.size(),
                                               &collected_.complete));
  reports_.clear();
  if (s < 0) {
    fail(fmt::format("complete answered {}: {}", host::Said{s}, last_error()));
    collected_.complete = {};
    return collected_;
  }
  collected_.completed = true;
  return collected_;
}

kvc_pending ConnectorLink::pending() const {
  kvc_pending out{};
  out.struct_size = sizeof out;
  if (!alive() || sched_ == nullptr || connector_.api.has_pending(sched_, &out) < 0) return {};
  return out;
}

kvc_boundary_stats ConnectorLink::read_boundary_stats() const {
  kvc_boundary_stats out{};
  out.struct_size = sizeof out;
  if (connector_.api.boundary_stats(sched_, &out) < 0) return {};
  return out;
}

kvc_boundary_stats ConnectorLink::boundary_stats() const {
  return sched_ == nullptr ? last_boundary_ : read_boundary_stats();
}

std::vector<StatValue> ConnectorLink::read_stats() const {
  std::uint64_t needed = 0;
  connector_.api.stats(sched_, nullptr, sizeof(kvc_stat), 0, &needed);
  std::vector<kvc_stat> raw(needed);
  if (needed == 0 ||
      connector_.api.stats(sched_, raw.data(), sizeof(kvc_stat), raw.size(), &needed) < 0) {
    return {};
  }
  std::vector<StatValue> values;
  const auto text = [](const kvc_bytes& b) {
    return b.size == 0 ? std::string() : std::string(reinterpret_cast<const char*>(b.data), b.size);
  };
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(needed, raw.size()); ++i) {
    values.push_back({text(raw[i].name), text(raw[i].labels), raw[i].value});
  }
  return values;
}

std::vector<StatValue> ConnectorLink::stats() const {
  return sched_ == nullptr ? last_stats_ : read_stats();
}

std::string ConnectorLink::explain(std::uint64_t request) const {
  if (sched_ == nullptr) return last_explain_;
  std::uint64_t needed = 0;
  kvc_status s = connector_.api.explain(sched_, request, nullptr, 0, &needed);
  std::string text;
  for (int tries = 0; s == KVC_E_ROOM && tries < 4; ++tries) {
    text.resize(needed);
    s = connector_.api.explain(sched_, request, text.data(), text.size(), &needed);
  }
  if (s < 0) return {};
  text.resize(std::min<std::size_t>(needed, text.size()));
  return text;
}

std::string ConnectorLink::last_error() const {
  char text[1024];
  std::uint64_t needed = 0;
  if (connector_.api.last_error_scheduler(sched_, text, sizeof text, &needed) != KVC_OK) return {};
  return {text, std::min<std::uint64_t>(needed, sizeof text)};
}

std::string ConnectorLink::rank_error(std::uint32_t rank) const {
  char text[1024];
  std::uint64_t needed = 0;
  if (connector_.api.last_error_rank(ranks_[rank], text, sizeof text, &needed) != KVC_OK) return {};
  return {text, std::min<std::uint64_t>(needed, sizeof text)};
}

void ConnectorLink::log_line(std::int32_t level, std::string_view text) {
  if (level == KVC_LOG_PEER_FAULT) ++peer_faults_;
  if (hooks_.log) {
    hooks_.log(level, text);
  } else if (level >= KVC_LOG_WARN) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(text.size()), text.data());
  }
}

void ConnectorLink::on_log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
  const std::string_view line(reinterpret_cast<const char*>(text.data), text.size);
  ConnectorLink* const link = link_of(h);
  // While it opens, errors become the text of our own refusal instead of lines of their own.
  if (link->opening_ && level == KVC_LOG_ERROR) {
    link->open_log_ = line;
    return;
  }
  link->log_line(level, line);
}

std::uint64_t ConnectorLink::on_now(kvc_host* h) noexcept { return link_of(h)->hooks_.now_ns(); }

void* ConnectorLink::on_alloc(kvc_host* h, std::uint64_t size, std::uint64_t align) noexcept {
  return link_of(h)->hooks_.alloc(size, align);
}

void ConnectorLink::on_release(kvc_host* h, void* p, std::uint64_t size,
                               std::uint64_t align) noexcept {
  link_of(h)->hooks_.release(p, size, align);
}

void ConnectorLink::on_wake(kvc_host* h) noexcept { link_of(h)->news_ = true; }

kvc_status ConnectorLink::on_has_key(kvc_host* h, std::uint32_t group, std::int64_t block,
                                     const std::uint8_t* key, std::uint64_t* end_tokens) noexcept {
  const std::uint64_t end = link_of(h)->query_.has_key(group, block, key);
  if (end_tokens != nullptr) *end_tokens = end;
  return end > 0 ? 1 : 0;
}

kvc_status ConnectorLink::on_block_of(kvc_host* h, std::uint32_t group, const std::uint8_t* key,
                                      std::int64_t* block) noexcept {
  const std::int64_t found = link_of(h)->query_.block_of(group, key);
  if (block != nullptr && found >= 0) *block = found;
  return found >= 0 ? 1 : 0;
}

}  // namespace kvc::host
