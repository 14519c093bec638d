// Who gets tokens in a step: running requests in order of arrival, then waiting ones.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "host_stub/engine/engine_body.h"

namespace kvc::host {

void Engine::Body::insert_by_arrival(std::vector<RequestPtr>& list, const RequestPtr& request) {
  const auto at = std::find_if(list.rbegin(), list.rend(),
                               [&](const RequestPtr& r) { return r->id < request->id; });
  list.insert(at.base(), request);
}

void Engine::Body::remove_from(std::vector<RequestPtr>& list, const Request& request) {
  const auto at = std::find_if(list.begin(), list.end(),
                               [&](const RequestPtr& r) { return r->id == request.id; });
  KVC_CHECK(at != list.end());
  list.erase(at);
}

void Engine::Body::schedule(Step& step) {
  handoffs.clear();
  preempted.clear();
  states_of_step.clear();
  blocks_are_coming = false;
  settling = false;
  for (const RequestPtr& request : waiting) {
    if (std::exchange(request->tell_preempted, false)) preempted.push_back(request->id);
  }
  for (std::size_t i = running.size(); i-- > 0;) {
    const RequestPtr request = running[i];
    if (request->must_preempt) preempt(request);
  }
  std::uint64_t budget = options.token_budget;
  schedule_running(step, budget);
  if (preempted.empty() && !blocks_are_coming) schedule_waiting(step, budget);
}

std::uint64_t Engine::Body::clip(const Request& request, std::uint64_t start,
                                 std::uint64_t want) const {
  const std::uint64_t total = request.available();
  if (want == 0 || start >= std::max(request.prompt(), total - 1)) return want;
  ChunkInput input;
  input.start = {start};
  input.want = {want};
  input.prompt = {request.prompt()};
  input.total = {total};
  input.junction = {request.junction};
  input.stops = request.states;
  return clip_chunk(rules, input).n;
}

void Engine::Body::schedule_running(Step& step, std::uint64_t& budget) {
  for (std::size_t i = 0; i < running.size() && budget > 0; ++i) {
    const RequestPtr request = running[i];
    const std::uint64_t want = std::min(request->available() - request->computed, budget);
    const std::uint64_t chunk = clip(*request, request->computed, want);
    // 0: its outputs are still in flight, or a state block does not fit the rest of the budget.
    if (chunk == 0) continue;
    const std::uint64_t end = request->computed + chunk;
    register_landed(*request);
    if (!make_room(request, end, step)) {
      // Nothing is handed off for a request that the record does not name.
      std::erase_if(handoffs, [&](const kvc_handoff& h) { return h.request == request->id; });
      return;
    }
    budget -= chunk;
    add_work(step, request, end);
  }
}

bool Engine::Body::make_room(const RequestPtr& request, std::uint64_t end, Step& step) {
  while (!grow(*request, end, step)) {
    // Blocks that jobs hold come back by themselves, and parked loads end: nobody is preempted for
    // them.
    const bool held = device->held_only() > 0;
    if ((held || (running.back() == request && !loading.empty())) && copies_coming()) {
      blocks_are_coming = true;
      return false;
    }
    const RequestPtr victim = running.back();
    if (victim == request && running.size() == 1) {
      // Alone: what it gave up would only be computed up to here again. Steps in flight let go of
      // copies and of positions that their outputs let it pass; a state that is still to be handed
      // off keeps its block until the job that names the block too has ended.
      if (!in_flight.empty() || !step.copy_references.empty() || !loading.empty() ||
          device->hold_references() > 0) {
        blocks_are_coming = true;
        return false;
      }
      broken = {Code::full, fmt::format("request {} needs more device blocks for {} tokens than "
                                        "the pool of {} has",
                                        request->id, end, device->pool().blocks().n)};
      return false;
    }
    preempt(victim);
    if (victim == request) return false;
  }
  return true;
}

void Engine::Body::preempt(const RequestPtr& request) {
  free_tables(*request);
  std::erase_if(handoffs, [&](const kvc_handoff& h) { return h.request == request->id; });
  request->computed = 0;
  request->resumed = true;
  request->must_preempt = false;
  request->verified = false;
  request->just_loaded = false;
  request->asked_begin = UINT64_MAX;
  request->phase = Phase::waiting;
  remove_from(running, *request);
  insert_by_arrival(waiting, request);
  preempted.push_back(request->id);
  ++counters.preemptions;
}

// Where the tokens of this chunk come from, if they are there for the first time (PassCounters).
void Engine::Body::count_computed(Request& r, std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t prompt_end = std::min(end, r.prompt());
  if (prompt_end > r.attributed) {
    r.computed_first += prompt_end - r.attributed;
    r.attributed = prompt_end;
  }
  if (r.reached > begin) counters.recomputed_tokens += std::min(end, r.reached) - begin;
  r.reached = std::max(r.reached, end);
}

void Engine::Body::add_work(Step& step, const RequestPtr& request, std::uint64_t end) {
  Request& r = *request;
  if (r.just_loaded) {
    // the allocation is told again, with the grown table and nothing to load.
    r.just_loaded = false;
    tell_allocation(request, {});
  }
  WorkItem item;
  item.request = request;
  item.begin = r.computed;
  item.end = end;
  item.samples = end == r.available() && r.sampled < r.spec.output_tokens;
  item.life = r.life;
  if (r.load.in_step) {
    // What is computed counts, and gets keys, with the load's verdict.
    item.loads_from = r.load.local_tokens;
    item.loads_to = r.load.local_tokens + r.load.external_tokens;
    r.load.samples = item.samples;
    step.loads_in_step = true;
  } else {
    register_chunk(r, end);
    count_computed(r, item.begin, end);
  }
  r.computed = end;
  if (item.samples) ++r.sampled;
  ++r.in_flight;
  if (options.steps_in_flight > 1) {
    item.own_tables = true;
    for (const GroupTable& table : r.tables) item.tables.push_back(table.blocks);
  }
  step.tokens += end - item.begin;
  step.work.push_back(std::move(item));
}

// An idle engine settles its copies before the next arrival: then what the next request hits does
// not depend on how fast copies are, and one running request at a time means one request after the
// other.
bool Engine::Body::must_settle(const Request& request) {
  if (!link_alive() || request.admitted || !running.empty() || !loading.empty()) return false;
  return copies_coming();
}

void Engine::Body::schedule_waiting(Step& step, std::uint64_t& budget) {
  for (std::size_t i = 0; i < waiting.size();) {
    if (running.size() >= options.max_running || budget == 0) return;
    // Loads that do not end take nobody's place.
    if (running.size() + loading.size() >= options.max_running && copies_coming()) return;
    const RequestPtr request = waiting[i];
    if (must_settle(*request)) {
      settling = true;
      return;
    }
    switch (admit(request, step, budget)) {
      case Admission::admitted:
        remove_from(waiting, *request);
        break;
      case Admission::aside:
        ++i;
        break;
      case Admission::stop:
        return;
    }
  }
}

}  // namespace kvc::host
