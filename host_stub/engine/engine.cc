// The engine's life: options, steps, passes, queries.
#include "host_stub/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include <fmt/format.h>
#include <xxhash.h>

#include "host_stub/engine/engine_body.h"
#include "host_stub/engine/layout.h"

namespace kvc::host {
namespace {

constexpr std::uint64_t wait_slice_ns = 20'000'000;
// Address space for a device pool that grows; sanitizers keep shadow memory for all of it.
#if defined(KVC_SANITIZED)
constexpr Bytes unlimited_reserve{std::uint64_t{1} << 32U};
#else
constexpr Bytes unlimited_reserve{std::uint64_t{1} << 38U};
#endif
constexpr std::uint32_t ranks_max = 1024;
constexpr std::uint64_t layers_max = 64;

std::uint64_t monotonic_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

// Groups whose bytes the model keeps but the cache does not would be empty after a hit.
Status check_groups(const EngineOptions& options) {
  for (const config::GroupConfig& group : options.model.groups) {
    if (group.cacheable == (group.kind == config::GroupKind::other)) {
      return {Code::unsupported,
              fmt::format("group {}: the host engine caches every group but those of kind other",
                          group.name)};
    }
  }
  return {};
}

Status check_options(const EngineOptions& o, std::uint64_t ranks) {
  if (ranks == 0 || ranks > ranks_max || ranks % o.model.context_parallel != 0) {
    return {Code::arg,
            fmt::format("ranks {} is no multiple of the model's context parallel size {} up to {}",
                        ranks, o.model.context_parallel, ranks_max)};
  }
  if (o.max_prompt_tokens == 0 || o.max_total_tokens <= o.max_prompt_tokens) {
    return {Code::arg, fmt::format("max_prompt_tokens {} must be > 0 and below max_total_tokens {}",
                                   o.max_prompt_tokens, o.max_total_tokens)};
  }
  if (o.max_running == 0 || o.token_budget == 0) {
    return {Code::arg, fmt::format("max_running {} and token_budget {} must be > 0", o.max_running,
                                   o.token_budget)};
  }
  if (o.steps_in_flight == 0 || o.steps_in_flight > 16) {
    return {Code::arg, fmt::format("steps_in_flight {} must be 1..16", o.steps_in_flight)};
  }
  if (o.layers == 0 || o.layers > layers_max) {
    return {Code::arg, fmt::format("layers {} must be 1..{}", o.layers, layers_max)};
  }
  if (o.stepped && !o.hooks.now_ns) return {Code::arg, "stepped mode needs a clock (hooks.now_ns)"};
  if (o.model.sim_bytes_per_token == 0 || o.model.sim_bytes_per_token % 8 != 0 ||
      o.model.vocabulary < 2) {
    return {Code::arg,
            fmt::format("sim_bytes_per_token {} must be a multiple of 8, vocabulary {} >= 2",
                        o.model.sim_bytes_per_token, o.model.vocabulary)};
  }
  return {};
}

// Blocks that one request of the longest length needs at once, by group kind.
std::uint64_t longest_request_blocks(const Geometry& geometry, const EngineOptions& o) {
  std::uint64_t blocks = 1;  // the null block
  for (const GroupId g : geometry.cacheable()) {
    const GroupSpec& group = geometry.group(g);
    const std::uint64_t span = geometry.block_tokens(g).n;
    const std::uint64_t whole = ceil_div(o.max_total_tokens, span);
    const std::uint64_t chunk = ceil_div(std::min(o.token_budget, o.max_total_tokens), span) + 2;
    switch (group.kind) {
      case GroupKind::full:
      case GroupKind::other:
        blocks += whole;
        break;
      case GroupKind::sliding:
      case GroupKind::chunked:
        blocks += std::min(
            whole, chunk +
                       ceil_div(group.window.n + group.extra_retained.n + o.steps_in_flight, span) +
                       1);
        break;
      case GroupKind::state:
        // The state before the chunk, the one after it, a copied hit and a moved tail.
        blocks += geometry.is_state_align(g) ? 4 : std::min(whole, chunk + o.steps_in_flight) + 2;
        break;
    }
    blocks += geometry.fine_hits() && group.kind == GroupKind::full ? 1 : 0;
  }
  return blocks;
}

}  // namespace

std::uint64_t Engine::Body::now() const { return options.stepped ? step_number : monotonic_ns(); }

std::uint64_t Engine::Body::patience() const {
  return options.stepped ? options.later_steps : options.later_ns;
}

Engine::Engine(std::unique_ptr<Body> body) : body_(std::move(body)) {}

Engine::~Engine() {
  // Rank copies must have ended before memory goes.
  if (body_->link) body_->link->close(0);
}

Result<std::uint64_t> Engine::blocks_needed(const EngineOptions& options) {
  Result<Geometry> geometry =
      geometry_of(options.model, options.draft_drop, options.retention_tokens);
  if (!geometry.ok()) return geometry.error();
  return longest_request_blocks(geometry.value(), options);
}

Result<std::unique_ptr<Engine>> Engine::make(EngineOptions options,
                                             std::optional<LoadedConnector> connector) {
  if (options.ranks == 0) options.ranks = options.model.context_parallel;
  if (Status s = check_options(options, options.ranks); !s.ok()) return s;
  if (Status s = check_groups(options); !s.ok()) return s;
  Result<Geometry> geometry =
      geometry_of(options.model, options.draft_drop, options.retention_tokens);
  if (!geometry.ok()) return geometry.error();
  const std::uint64_t needed = longest_request_blocks(geometry.value(), options);
  if (options.device_blocks != 0 && options.device_blocks < needed) {
    return {Code::arg,
            fmt::format("{} device blocks are fewer than the {} that a request of {} tokens needs",
                        options.device_blocks, needed, options.max_total_tokens)};
  }
  if (options.max_live_requests == 0) options.max_live_requests = 2 * options.max_running + 8;
  if (options.max_request_bytes == 0) {
    // Keys, a table entry and its bookkeeping per block of every group, and some room, per live
    // request.
    std::uint64_t bytes = 8192 + options.max_total_tokens / options.model.hash_unit_tokens * 64;
    for (const GroupId g : geometry.value().cacheable()) {
      bytes += (options.max_total_tokens / geometry.value().block_tokens(g).n + 2) * 64;
    }
    options.max_request_bytes = bytes * options.max_live_requests;
  }
  auto body = std::make_unique<Body>(std::move(options), std::move(geometry).value());
  if (Status s = body->init(std::move(connector)); !s.ok()) return s;
  return std::unique_ptr<Engine>(new Engine(std::move(body)));
}

Status Engine::Body::init(std::optional<LoadedConnector> connector) {
  ranks = static_cast<std::uint32_t>(options.ranks);
  rules = chunk_rules(geometry, {options.token_budget});
  const Bytes layer = Model::layer_bytes(geometry, options.model.sim_bytes_per_token);
  const Bytes block_bytes{layer.n * options.layers};
  if (!options.cuda_driver.empty()) {
    auto opened = ComputeDevice::open(options.cuda_driver, options.device_seed);
    if (!opened.ok()) return opened.error();
    compute_device = std::move(opened).value();
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    auto rank = RankMemory::make({options.device_blocks}, block_bytes, unlimited_reserve,
                                 compute_device.get());
    if (!rank.ok()) return rank.error();
    memory.push_back(std::move(rank).value());
  }
  auto pool = DevicePool::make(geometry, {options.device_blocks}, memory);
  if (!pool.ok()) return pool.error();
  device = std::move(pool).value();
  ModelShape shape;
  shape.bytes_per_token = options.model.sim_bytes_per_token;
  shape.vocabulary = options.model.vocabulary;
  shape.seed = options.seed;
  shape.ranks = ranks;
  shape.layers = options.layers;
  model = std::make_unique<Model>(geometry, shape, memory);
  hit.reserve(geometry, {options.max_total_tokens});
  short_hit.reserve(geometry, {options.max_total_tokens});
  record_tables.emplace_back();
  if (!connector) return {};
  if (options.stepped && !connector->can(KVC_CAP_STEPPED)) {
    return {Code::unsupported,
            fmt::format("connector {} cannot be run step by step", connector->path)};
  }
  auto opened = ConnectorLink::open(*connector, {geometry, options, ranks, options.device_blocks,
                                                 memory, *device, compute_device.get()});
  if (!opened.ok()) return opened.error();
  link = std::move(opened).value();
  if (options.device_cache && connector->can(KVC_CAP_CANDIDATES)) {
    device->candidates().enable(candidate_window(
        geometry, {options.token_budget, options.max_running, options.max_total_tokens}));
  }
  return {};
}

void Engine::Body::log(std::int32_t level, const std::string& text) const {
  if (options.hooks.log) {
    options.hooks.log(level, text);
  } else if (level >= KVC_LOG_WARN) {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
}

Result<RequestId> Engine::Body::submit(const RequestSpec& spec, std::vector<TokenId> prompt) {
  if (spec.prompt_tokens == 0 || spec.prompt_tokens != prompt.size() || spec.output_tokens == 0 ||
      spec.prompt_tokens > options.max_prompt_tokens ||
      spec.prompt_tokens + spec.output_tokens > options.max_total_tokens) {
    return {Code::arg, fmt::format("a request of {} + {} tokens (prompt given: {}) is out of the "
                                   "limits {} and {}",
                                   spec.prompt_tokens, spec.output_tokens, prompt.size(),
                                   options.max_prompt_tokens, options.max_total_tokens)};
  }
  if (live.size() >= options.max_live_requests) {
    return {Code::full, fmt::format("{} requests are live already", live.size())};
  }
  auto request = std::make_shared<Request>(next_id++, pass_index++, spec, geometry.hash_unit().n,
                                           options.seed);
  Request& r = *request;
  digests.push_back(0);
  r.tokens = std::move(prompt);
  r.tokens.reserve(spec.prompt_tokens + spec.output_tokens);
  r.prefix.reserve(spec.prompt_tokens + spec.output_tokens);
  model->extend(model->root(spec.salt), r.tokens, r.prefix);
  r.known = spec.prompt_tokens;
  r.keys.reserve((spec.prompt_tokens + spec.output_tokens) / geometry.hash_unit().n + 1);
  r.keys.extend(r.tokens);
  r.tables.resize(geometry.groups());
  if (link_alive()) {
    kvc_request begin{};
    begin.struct_size = sizeof begin;
    begin.flags = spec.flags;
    begin.request = r.id;
    begin.prompt_tokens = spec.prompt_tokens;
    begin.keys = reinterpret_cast<const std::uint8_t*>(r.keys.data());
    begin.n_keys = r.keys.count();
    begin.load_limit_tokens = spec.load_limit_tokens;
    begin.store_limit_tokens = spec.store_limit_tokens;
    r.tracked = link->begin(begin);
    if (r.tracked) link->hint(r.id, r.keys.view());
  }
  live.emplace(r.id, request);
  waiting.push_back(request);
  return r.id;
}

std::unique_ptr<Step> Engine::Body::new_step() {
  if (spare_steps.empty()) return std::make_unique<Step>();
  std::unique_ptr<Step> step = std::move(spare_steps.back());
  spare_steps.pop_back();
  return step;
}

StepResult Engine::Body::step() {
  StepResult result;
  collect(result);
  abandon_connector(result);
  keep_pace(result);
  std::unique_ptr<Step> step = new_step();
  step->number = ++step_number;
  schedule(*step);
  exchange(*step, result);
  pump();
  result.scheduled_tokens = step->tokens;
  result.progressed |= step->tokens > 0 || !preempted.empty();
  in_flight.push_back(std::move(step));
  while (in_flight.size() >= options.steps_in_flight) run_oldest(result);
  // Nothing more to launch: the stream runs dry, so that copies that wait for forwards can go on.
  while (result.scheduled_tokens == 0 && !in_flight.empty()) run_oldest(result);
  pump();
  abandon_connector(result);
  if (!result.progressed) wait_for_connector();
  result.idle = idle();
  return result;
}

void Engine::Body::wait_for_connector() {
  if (!link_alive()) return;
  // A simulation that budgets the work decides itself when it is done.
  if (options.stepped && options.hooks.pump_budget) return;
  const kvc_pending pending = link->pending();
  if (pending.load_jobs + pending.store_jobs + pending.tier_jobs == 0) return;
  std::vector<kvc_job> jobs;
  if (!loading.empty()) jobs.push_back(loading.front()->load.job);
  link->wait(jobs, wait_slice_ns);
}

bool Engine::Body::idle() const {
  if (!live.empty() || !in_flight.empty()) return false;
  if (!link_alive()) return true;
  const kvc_pending pending = link->pending();
  return pending.load_jobs + pending.store_jobs + pending.tier_jobs == 0;
}

void Engine::Body::begin_pass() {
  KVC_CHECK(live.empty());
  counters = {};
  digests.clear();
  pass_index = 0;
}

bool Engine::Body::abort(RequestId id) {
  const RequestPtr request = find(id);
  if (request == nullptr) return false;
  finish(request, KVC_END_ABORT, nullptr);
  return true;
}

Status Engine::Body::feed(const RequestSource& source, std::size_t& next) {
  while (next < source.size() && waiting.size() < options.max_running &&
         live.size() < options.max_live_requests) {
    std::vector<TokenId> prompt;
    const RequestSpec spec = source.request(next);
    source.expand_prompt(next, prompt);
    Result<RequestId> id = submit(spec, std::move(prompt));
    if (!id.ok()) {
      return {id.error().code, fmt::format("request {}: {}", next, id.error().text)};
    }
    ++next;
  }
  return {};
}

std::string Engine::Body::waits_for() const {
  const kvc_pending pending = link_alive() ? link->pending() : kvc_pending{};
  return fmt::format(
      "{} requests wait, {} load, {} run; the connector has {} load jobs, {} store jobs, {} held "
      "blocks; the pool has {} free blocks",
      waiting.size(), loading.size(), running.size(), pending.load_jobs, pending.store_jobs,
      pending.held_blocks, device->pool().free_blocks().n);
}

Result<PassCounters> Engine::Body::run(const RequestSource& source, const RunCallbacks& callbacks) {
  begin_pass();
  // The caller's callback counts for this run only.
  struct Restore {
    std::function<void(const FinishedRequest&)>& place;
    std::function<void(const FinishedRequest&)> before;
    ~Restore() { place = std::move(before); }
  } restore{finished_callback, finished_callback};
  if (callbacks.finished) finished_callback = callbacks.finished;
  std::size_t next = 0;
  std::uint64_t done = 0;
  std::uint64_t quiet_steps = 0;
  std::uint64_t quiet_since = monotonic_ns();
  for (;;) {
    if (Status s = feed(source, next); !s.ok()) return s;
    const StepResult result = step();
    if (!broken.ok()) return broken;
    done += result.finished;
    if (callbacks.progress) callbacks.progress(done);
    if (result.idle && next == source.size()) break;
    if (result.progressed) {
      quiet_steps = 0;
      continue;
    }
    if (quiet_steps++ == 0) quiet_since = monotonic_ns();
    const bool stalled = options.stepped ? quiet_steps > options.stall_steps
                                         : monotonic_ns() - quiet_since > options.stall_ns;
    if (!stalled) continue;
    const std::string why = "nothing moves any more: " + waits_for();
    if (!link_alive()) return {Code::internal, why};
    link->fail(why);
    quiet_steps = 0;
  }
  if (compute_device != nullptr) {
    if (std::string faults = compute_device->faults(); !faults.empty()) {
      return {Code::internal, std::move(faults)};
    }
  }
  PassCounters out = counters;
  out.output_digest = XXH3_64bits(digests.data(), digests.size() * sizeof(std::uint64_t));
  return out;
}

Leaks Engine::Body::leaks() const {
  Leaks leaks;
  if (link) {
    for (const StatValue& stat : link->stats()) {
      if (stat.name == "host_slots_leaked_now") leaks.slots += stat.value;
      if (stat.name == "leases_open_now") leaks.leases += stat.value;
    }
    leaks.holds = std::max(link->pending().held_blocks, device->hold_references());
  }
  leaks.device_blocks = device->pool().used_blocks().n - 1;
  return leaks;
}

// Every reference of every block is one of a table, a pending copy or a hold.
Status Engine::Body::verify() const {
  if (Status s = device->pool().verify(); !s.ok()) return s;
  if (compute_device != nullptr) {
    if (std::string faults = compute_device->faults(); !faults.empty()) {
      return {Code::internal, std::move(faults)};
    }
  }
  std::unordered_map<BlockId, std::uint64_t> expected;
  for (const auto& [id, request] : live) {
    for (const GroupTable& table : request->tables) {
      for (const BlockId block : table.blocks) {
        if (block != null_block) ++expected[block];
      }
    }
  }
  for (const auto& step : in_flight) {
    for (const BlockId block : step->copy_references) ++expected[block];
  }
  for (BlockId block = 1; block < device->pool().blocks().n; ++block) {
    const auto it = expected.find(block);
    const std::uint64_t own = it == expected.end() ? 0 : it->second;
    const std::uint64_t held = device->holds_on(block);
    if (device->pool().references(block) != own + held) {
      return {Code::internal, fmt::format("block {} has {} references, but {} tables and {} holds",
                                          block, device->pool().references(block), own, held)};
    }
  }
  return {};
}

Result<PassCounters> Engine::run(const RequestSource& source, const RunCallbacks& callbacks) {
  return body_->run(source, callbacks);
}
Result<RequestId> Engine::submit(const RequestSpec& spec, std::vector<TokenId> prompt) {
  return body_->submit(spec, std::move(prompt));
}
StepResult Engine::step() { return body_->step(); }
void Engine::begin_pass() { body_->begin_pass(); }

PassCounters Engine::counters() const {
  PassCounters out = body_->counters;
  out.output_digest =
      XXH3_64bits(body_->digests.data(), body_->digests.size() * sizeof(std::uint64_t));
  return out;
}

bool Engine::abort(RequestId id) { return body_->abort(id); }

bool Engine::preempt(RequestId id) {
  const RequestPtr request = body_->find(id);
  if (request == nullptr || request->phase != Phase::running) return false;
  request->must_preempt = true;
  return true;
}

bool Engine::empty_device_cache() { return body_->device->pool().reset(); }

kvc_status Engine::reset_connector(std::uint64_t flags) { return body_->reset_connector(flags); }

void Engine::on_finished(std::function<void(const FinishedRequest&)> callback) {
  body_->finished_callback = std::move(callback);
}

std::uint64_t Engine::live_requests() const { return body_->live.size(); }
bool Engine::is_live(RequestId id) const { return body_->find(id) != nullptr; }
std::uint64_t Engine::step_number() const { return body_->step_number; }
const Geometry& Engine::geometry() const { return body_->geometry; }
std::uint32_t Engine::ranks() const { return body_->ranks; }
std::uint64_t Engine::block_bytes() const { return body_->memory.front()->block_bytes().n; }
DeviceUse Engine::device_use() const { return body_->device->use(); }
bool Engine::connector_alive() const { return body_->link_alive(); }
std::string Engine::connector_failure() const {
  return body_->link ? body_->link->failure() : std::string();
}
kvc_boundary_stats Engine::boundary_stats() const {
  return body_->link ? body_->link->boundary_stats() : kvc_boundary_stats{};
}
kvc_pending Engine::pending() const { return body_->link ? body_->link->pending() : kvc_pending{}; }
std::uint64_t Engine::peer_faults() const { return body_->link ? body_->link->peer_faults() : 0; }
std::vector<StatValue> Engine::stats() const {
  return body_->link ? body_->link->stats() : std::vector<StatValue>{};
}
std::string Engine::explain(RequestId id) const {
  return body_->link ? body_->link->explain(id) : std::string();
}
Leaks Engine::leaks() const { return body_->leaks(); }
const std::string& Engine::first_mismatch() const { return body_->first_mismatch; }
Status Engine::verify() const { return body_->verify(); }

bool Engine::corrupt_device_byte(RequestId id, std::uint32_t group, std::uint64_t position,
                                 std::uint32_t rank, std::uint64_t offset_bytes) {
  const RequestPtr request = body_->find(id);
  if (request == nullptr || group >= request->tables.size() || rank >= body_->ranks) return false;
  const GroupTable& table = request->tables[group];
  if (position >= table.blocks.size() || table.blocks[position] == null_block) return false;
  RankMemory& memory = *body_->memory[rank];
  if (offset_bytes >= memory.block_bytes().n) return false;
  memory.block(table.blocks[position])[offset_bytes] ^= std::byte{0x40};
  return true;
}

}  // namespace kvc::host
