// What goes to the connector and comes back: records, plans, holds, verdicts.
#include <algorithm>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/engine_body.h"

namespace kvc::host {
namespace {

constexpr std::uint32_t pump_all = 1U << 20U;
constexpr std::uint64_t failed_loads_max = 8;
constexpr std::uint64_t pace_slice_ns = 20'000'000;
constexpr std::uint64_t close_wait_ns = 5'000'000'000;

}  // namespace

RequestPtr Engine::Body::find(RequestId id) const {
  const auto it = live.find(id);
  return it == live.end() ? nullptr : it->second;
}

// Tables as kvc.h wants them, one element per group. Unless `all_groups`, groups whose positions
// are reused pass none (design 2.3, step record); unchanged tables are empty unless `whole`.
void Engine::Body::fill_tables(Request& request, bool whole, bool all_groups,
                               std::vector<kvc_table>& out) {
  out.resize(request.tables.size());
  for (GroupId g = 0; g < out.size(); ++g) {
    GroupTable& table = request.tables[g];
    out[g] = {};
    out[g].struct_size = sizeof(kvc_table);
    out[g].group = g;
    const bool passed = all_groups || geometry.group(g).position_stable;
    const bool changed = whole || table.changed_from < table.wide.size();
    if (!passed || !changed || table.wide.empty()) continue;
    out[g].blocks = table.wide.data();
    out[g].count = table.wide.size();
    out[g].first_changed = whole ? 0 : table.changed_from;
  }
}

void Engine::Body::fill_record(const Step& step) {
  record.clear();
  while (record_tables.size() < step.work.size() + 1) record_tables.emplace_back();
  std::size_t used = 1;  // the first is for alloc_update
  for (const WorkItem& item : step.work) {
    Request& r = *item.request;
    if (!r.tracked) continue;
    std::vector<kvc_table>& tables = record_tables[used++];
    fill_tables(r, r.record_whole, false, tables);
    for (GroupTable& table : r.tables) table.changed_from = table.wide.size();
    kvc_step_request out{};
    out.struct_size = sizeof out;
    out.flags = r.resumed ? KVC_STEP_RESUMED : 0;
    out.request = r.id;
    out.confirmed_tokens = r.load.in_step ? r.load.local_tokens : std::min(r.computed, r.known);
    out.tables = kvc_list_of(tables.data(), tables.size(), sizeof(kvc_table));
    record.push_back(out);
    r.resumed = false;
    r.record_whole = false;
  }
}

// The blocks of a hold list get a reference each for the job; false: a block that the device pool
// does not have.
bool Engine::Body::take_holds(kvc_job job, const kvc_list& held, std::uint64_t* blocks,
                              std::uint64_t step) {
  std::vector<BlockId>& list = touched;
  list.clear();
  for (std::uint64_t i = 0; i < held.count; ++i) {
    const auto block = list_element<kvc_block>(held, i);
    if (block.block <= null_block ||
        static_cast<std::uint64_t>(block.block) >= device->pool().blocks().n) {
      link->fail(fmt::format("job {} holds block {} of a device pool of {} blocks", job,
                             block.block, device->pool().blocks().n));
      return false;
    }
    list.push_back(static_cast<BlockId>(block.block));
  }
  if (blocks != nullptr) *blocks = list.size();
  return device->hold(job, list, step);
}

// The default of the connector's budget of held blocks (design 2.3, Holds).
std::uint64_t Engine::Body::hold_limit() const {
  std::uint64_t limit = 0;
  for (const GroupId g : geometry.cacheable()) {
    limit += ceil_div(options.token_budget, geometry.block_tokens(g).n);
  }
  return std::max(limit, options.device_blocks / 10);
}

// Offers that the connector refused for want of room so far.
std::uint64_t Engine::Body::refusals() const {
  const kvc_offer_counts c = link->boundary_stats().all_offers;
  return c.dropped_pool_full + c.dropped_leased + c.dropped_hold_budget + c.dropped_plan_full;
}

// What an engine that names candidates does on a reset: blocks that the connector forgot are named
// again, and none that was written with old weights is named at all.
kvc_status Engine::Body::reset_connector(std::uint64_t flags) {
  if (!link) return KVC_OK;
  const kvc_status status = link->reset(flags);
  if (status < 0) return status;
  const bool invalidate = (flags & KVC_RESET_INVALIDATE) != 0;
  device->candidates().forget(invalidate);
  if (invalidate) {
    for (const auto& [id, request] : live) request->stale = true;
  }
  return status;
}

void Engine::Body::exchange(Step& step, StepResult& result) {
  if (!link_alive()) return;
  fill_record(step);
  kvc_step in{};
  in.struct_size = sizeof in;
  in.scheduled = kvc_list_of(record.data(), record.size(), sizeof(kvc_step_request));
  in.preempted = preempted.data();
  in.n_preempted = preempted.size();
  std::erase_if(handoffs, [&](const kvc_handoff& h) {
    const RequestPtr request = find(h.request);
    return request == nullptr || !request->tracked;
  });
  in.handoffs = kvc_list_of(handoffs.data(), handoffs.size(), sizeof(kvc_handoff));
  Candidates& candidates = device->candidates();
  std::span<const kvc_candidate> named;
  if (candidates.enabled()) {
    const kvc_pending pending = link->pending();
    const std::uint64_t limit = hold_limit() + pending.quarantined_blocks;
    named = candidates.collect(pending.quarantined_blocks,
                               limit - std::min(limit, pending.held_blocks));
  }
  in.candidates = kvc_list_of(named.data(), named.size(), sizeof(kvc_candidate));
  const std::uint64_t refused = named.empty() ? 0 : refusals();
  kvc_plan plan{};
  if (!link->build(in, &plan)) return;
  step.number = link->step_number();
  for (std::uint64_t i = 0; i < plan.jobs.count; ++i) {
    const auto job = list_element<kvc_plan_job>(plan.jobs, i);
    if (!take_holds(job.job, job.held, nullptr, step.number)) return;
  }
  if (!named.empty()) candidates.settle(refusals() > refused);
  if (!link->submit_loads(plan)) return;
  launch_layers(step, result);
  if (link_alive()) link->submit_stores(plan);
}

void Engine::Body::collect(StepResult& result) {
  if (!link_alive()) return;
  const Collected& news = link->collect();
  if (options.rank_verdicts) {
    for (const Collected::LoadItem& item : news.items) {
      const RequestPtr request = find(item.done.request);
      if (request == nullptr || request->load.job != item.done.job) continue;
      ++request->load.ranks_ended;
      request->load.rank_failed |= item.done.status != KVC_OK;
      if (request->load.ranks_ended == ranks) {
        load_verdict(item.done.request, item.done.job, !request->load.rank_failed, result);
        result.progressed = true;
      }
    }
  }
  const kvc_complete_out& out = news.complete;
  for (std::uint64_t i = 0; i < out.jobs.count; ++i) {
    end_job(list_element<kvc_ended_job>(out.jobs, i), result);
  }
  for (std::uint64_t i = 0; i < out.verdicts.count; ++i) {
    const auto verdict = list_element<kvc_verdict>(out.verdicts, i);
    load_verdict(verdict.request, verdict.job, verdict.status == KVC_OK, result);
    result.progressed = true;
  }
}

void Engine::Body::end_job(const kvc_ended_job& job, StepResult& result) {
  ++result.ended_jobs;
  jobs_quiet_since = 0;
  result.progressed = true;
  freed.clear();
  for (std::uint64_t i = 0; i < job.released.count; ++i) {
    const auto block = list_element<kvc_block>(job.released, i);
    freed.push_back(block.block > 0 ? static_cast<BlockId>(block.block) : null_block);
  }
  std::uint64_t blocks = freed.size();
  blocks -= std::min(blocks, job.failed.count);
  const std::uint64_t bytes = blocks * memory.front()->block_bytes().n * ranks;
  if (job.kind == KVC_JOB_LOAD && job.status == KVC_OK) {
    counters.loaded_blocks += blocks;
    counters.loaded_bytes += bytes;
  } else if (job.kind == KVC_JOB_STORE && (job.status == KVC_OK || job.status == KVC_E_IO)) {
    counters.stored_blocks += blocks;
    counters.stored_bytes += bytes;
  }
  const std::uint64_t foreign = device->release(job.job, freed);
  if (foreign > 0) {
    link->fail(fmt::format("job {} released {} blocks that it did not hold", job.job, foreign));
  }
}

void Engine::Body::load_verdict(RequestId id, kvc_job job, bool ok, StepResult& result) {
  const RequestPtr request = find(id);
  // The request is over, or its verdict came from the ranks already.
  if (request == nullptr || request->phase != Phase::loading || request->load.job != job) return;
  if (ok) {
    load_done(request, result);
  } else {
    load_failed(request);
  }
}

void Engine::Body::load_done(const RequestPtr& request, StepResult& result) {
  Request& r = *request;
  if (r.load.in_step) return landed_in_step(request, result);
  if (options.verify) verify_load(r);
  const std::uint64_t end = r.load.local_tokens + r.load.external_tokens;
  count_hits(r, r.load.local_tokens, end);
  register_keys(r, end);
  r.load = {};
  r.failed_loads = 0;
  r.just_loaded = true;
  r.phase = Phase::running;
  remove_from(loading, r);
  insert_by_arrival(running, request);
}

// Everything is given back; the request starts again with what the device has (R-522, recompute).
void Engine::Body::load_failed(const RequestPtr& request) {
  Request& r = *request;
  ++counters.failed_loads;
  // A connector must not offer the hit again (design 2.4); one that does is not asked for ever.
  if (++r.failed_loads >= failed_loads_max) r.no_load = true;
  r.reached = std::max(r.reached, r.load.local_tokens + r.load.external_tokens);
  if (r.load.in_step) failed_in_step(r);
  free_tables(r);
  r.load = {};
  r.computed = 0;
  r.phase = Phase::waiting;
  remove_from(loading, r);
  insert_by_arrival(waiting, request);
}

void Engine::Body::tell_new_keys(Request& request, std::uint64_t first) {
  if (!link_alive() || !request.tracked) return;
  kvc_extend extend{};
  extend.struct_size = sizeof extend;
  extend.request = request.id;
  extend.first_key = first;
  extend.keys = reinterpret_cast<const std::uint8_t*>(request.keys.view().at(first));
  extend.n_keys = request.keys.count() - first;
  link->extend(extend);
}

// A block in the answer's list stays until the jobs that name it end.
void Engine::Body::tell_end(Request& request, std::int32_t reason) {
  if (!link_alive()) return;
  std::vector<kvc_table>& tables = record_tables.front();
  const bool owns = request.phase == Phase::running || request.phase == Phase::loading;
  std::vector<kvc_handoff> last;
  if (owns) {
    handoffs.swap(last);
    register_landed(request);
    fill_tables(request, true, true, tables);
    for (const GroupId g : geometry.cacheable()) {
      GroupTable& table = request.tables[g];
      const std::uint64_t tail = table.producer_tail;
      if (tail == 0 || tail != request.computed || request.in_flight > 0) continue;
      if (!request.wants_state(tail)) continue;
      hand_off(request, g, table.blocks[tail / geometry.block_tokens(g).n], tail);
    }
    handoffs.swap(last);
  }
  kvc_end_in in{};
  in.struct_size = sizeof in;
  in.reason = reason;
  in.request = request.id;
  in.confirmed_tokens = request.phase == Phase::running ? std::min(request.computed, request.known)
                        : request.load.in_step          ? request.load.local_tokens
                                                        : 0;
  if (owns && request.tracked) {
    in.tables = kvc_list_of(tables.data(), tables.size(), sizeof(kvc_table));
    in.handoffs = kvc_list_of(last.data(), last.size(), sizeof(kvc_handoff));
  } else {
    in.tables = kvc_list_of(nullptr, 0, sizeof(kvc_table));
    in.handoffs = kvc_list_of(nullptr, 0, sizeof(kvc_handoff));
  }
  kvc_end_out out{};
  if (!link->end(in, &out)) return;
  // The list also repeats blocks of older jobs. Holding all of it for the new job is never too
  // little.
  if (out.job != 0) take_holds(out.job, out.held, nullptr);
}

void Engine::Body::pump() {
  if (!options.stepped || !link_alive()) return;
  const auto& budget = options.hooks.pump_budget;
  const std::uint32_t own = budget ? budget(ranks) : pump_all;
  if (own > 0) link->pump(own);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const std::uint32_t units = budget ? budget(rank) : pump_all;
    if (units > 0) link->pump_rank(rank, units);
  }
}

bool Engine::Body::copies_coming() {
  if (!link_alive()) return false;
  const kvc_pending pending = link->pending();
  const std::uint64_t open = pending.load_jobs + pending.store_jobs;
  lost_jobs = std::min(lost_jobs, open);
  if (open == lost_jobs) {
    jobs_quiet_since = 0;
    return false;
  }
  if (jobs_quiet_since == 0) jobs_quiet_since = now();
  if (now() - jobs_quiet_since < patience()) return true;
  log(KVC_LOG_WARN, fmt::format("{} jobs of the connector do not end; the engine goes on without "
                                "their {} blocks",
                                open, pending.held_blocks));
  lost_jobs = open;
  return false;
}

// The forward of this engine takes microseconds, its copies do not: without this the connector's
// budget of held blocks (design 2.3, Holds) would decide what is stored, by the speed of the
// machine. The limit is that budget's default, so that a step starts below it. Candidates that are
// being stored are missing in the free queue, and what a step takes instead of them is lost: their
// copies end before the next step, or with several steps in flight half of them.
void Engine::Body::keep_pace(StepResult& result) {
  if (options.stepped || options.device_blocks == 0 || !link_alive()) return;
  const std::uint64_t limit = hold_limit();
  const std::uint64_t borrowed_max =
      options.steps_in_flight == 1 ? 0 : device->candidates().window() / 2;
  const auto too_many = [&] {
    const kvc_pending pending = link->pending();
    return pending.held_blocks >= limit ||
           device->candidates().held() > borrowed_max + pending.quarantined_blocks;
  };
  while (link_alive() && too_many()) {
    // Stores wait for their forward, which may be still in flight.
    while (!in_flight.empty()) run_oldest(result);
    const std::uint64_t ended = result.ended_jobs;
    link->wait({}, pace_slice_ns);
    collect(result);
    abandon_connector(result);
    if (result.ended_jobs == ended) return;
  }
}

void Engine::Body::abandon_connector(StepResult& result) {
  if (!link || link->alive() || connector_abandoned) return;
  connector_abandoned = true;
  // Copies that wait for a forward must be able to end.
  while (!in_flight.empty()) run_oldest(result);
  link->close(options.stepped ? 0 : close_wait_ns);
  device->release_all();
  while (!loading.empty()) load_failed(loading.back());
  for (const auto& [id, request] : live) request->tracked = false;
}

}  // namespace kvc::host
