// How a waiting request comes in: device hit, connector hit, allocation over all groups, load or
// first chunk (5.2).
#include <algorithm>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/engine_body.h"
#include "host_stub/loader/status_text.h"

namespace kvc::host {

void Engine::Body::device_lookup(const Request& request) {
  const bool reads = options.device_cache && (request.spec.flags & KVC_REQUEST_NO_READ) == 0;
  const Code code = lookup(geometry, device->pool(),
                           reads ? request.keys.view() : KeyView{nullptr, engine_key_bytes, 0},
                           Tokens{0}, Tokens{request.known - 1}, hit);
  KVC_CHECK(code == Code::ok);
  device->pool().count(hit.cost);
}

// Block copies run before the step's forward: the block of attention that a hit ends in is
// no source of a copy in the step that writes tokens of the hit into it.
bool Engine::Body::copies_what_is_not_written(const Step& step) const {
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t span = geometry.block_tokens(g).n;
    const std::uint64_t position = hit.tokens.n / span;
    const GroupHit& found = hit.groups[g];
    if (geometry.group(g).kind == GroupKind::state || hit.tokens.n % span == 0 ||
        found.count() == 0) {
      continue;
    }
    for (const WorkItem& item : step.work) {
      const std::vector<BlockId>& table = item.request->tables[g].blocks;
      if (position < table.size() && table[position] == found.last() && item.begin < hit.tokens.n &&
          item.end > position * span) {
        return true;
      }
    }
  }
  return false;
}

// a state that is computed or copied in this very step must not be read in it.
bool Engine::Body::hit_is_of_this_step() const {
  if (states_of_step.empty()) return false;
  for (const GroupId g : geometry.cacheable()) {
    if (geometry.group(g).kind != GroupKind::state) continue;
    for (const SlotId slot : hit.groups[g].slots) {
      if (std::find(states_of_step.begin(), states_of_step.end(), slot) != states_of_step.end()) {
        return true;
      }
    }
  }
  return false;
}

bool Engine::Body::is_tired_of(Request& request) {
  if (request.later_since == 0) request.later_since = now();
  const std::uint64_t waited = now() - request.later_since;
  if (waited < patience()) return false;
  log(KVC_LOG_WARN, fmt::format("request {} is told to ask again for {} {}; it runs without a load",
                                request.id, waited, options.stepped ? "steps" : "ns"));
  request.no_load = true;
  return true;
}

bool Engine::Body::connector_lookup(Request& request, AdmissionPlan& plan) {
  plan.local = hit.tokens.n;
  plan.hit = &hit;
  if (!link_alive() || !request.tracked || request.no_load) return true;
  const std::uint64_t aligned = plan.local - plan.local % geometry.scheduler_block().n;
  kvc_lookup_in in{};
  in.struct_size = sizeof in;
  in.request = request.id;
  in.total_tokens = request.known;
  in.device_tokens = aligned;
  in.external_cap_tokens = KVC_NO_LIMIT;
  const LookupAnswer answer = link->lookup(in);
  if (answer.later) return is_tired_of(request);
  request.later_since = 0;
  std::uint64_t external = answer.tokens;
  // A part of a hit may be a length that cannot be served: after a failure all of it is taken.
  if (external > 0 && options.hooks.accept && request.failed_loads == 0) {
    external = options.hooks.accept(request.id, external);
  }
  KVC_CHECK(external <= answer.tokens);
  // the device's own hit inside a block stays if the load reaches no further.
  if (external == 0 || aligned + external <= plan.local) return true;
  const Status cut = truncate(geometry, hit, Tokens{aligned}, short_hit);
  KVC_CHECK(cut.ok());
  plan.local = aligned;
  plan.external = external;
  plan.hit = &short_hit;
  return true;
}

// Positions of group g that the request needs when its first `tokens` tokens are in place.
std::uint64_t Engine::Body::blocks_wanted(const AdmissionPlan& plan) const {
  const std::uint64_t have = plan.local + plan.external;
  const std::uint64_t end = have + plan.chunk;
  std::uint64_t wanted = 0;
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t span = geometry.block_tokens(g).n;
    const std::uint64_t from =
        std::max(geometry.first_needed_position(g, {have}), plan.local / span);
    const std::uint64_t positions = ceil_div(have, span);
    if (plan.external > 0) wanted += positions - std::min(positions, from);
    const bool copies = plan.external == 0 && have % span != 0;
    wanted += copies ? 1 : 0;
    if (geometry.is_state_align(g)) {
      wanted += ceil_div(end, span) > positions ? 1 : 0;
    } else {
      wanted += ceil_div(end, span) - positions;
    }
  }
  return wanted;
}

// Blocks that the request still takes until its known tokens are computed: windows and states reuse
// theirs.
std::uint64_t Engine::Body::blocks_ahead(const Request& request, std::uint64_t have) const {
  std::uint64_t blocks = 0;
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t span = geometry.block_tokens(g).n;
    const std::uint64_t known = ceil_div(request.available(), span);
    std::uint64_t more = known - std::min(known, ceil_div(have, span));
    if (geometry.is_state_align(g)) {
      // One for the chunk's end, one for the next block end, one for a tail that moves.
      const bool tail = request.tables[g].producer_tail != 0 ||
                        have < geometry.partial_tail(g, {request.prompt()}).n;
      more = std::min<std::uint64_t>(more, 1) + (tail ? 2 : 1);
    } else if (geometry.group(g).kind != GroupKind::full) {
      more = std::min(more, ceil_div(options.token_budget, span) + 1);
    }
    blocks += more;
  }
  return blocks;
}

// what the prefills under way still need is not given to a newcomer, nor does one start that
// could not finish its own: it would only be preempted. Alone in the engine it may always try.
std::uint64_t Engine::Body::blocks_reserved(const Request& newcomer, std::uint64_t have) {
  const bool loads_end = !loading.empty() && copies_coming();
  if (running.empty() && !loads_end) return 0;
  std::uint64_t blocks = blocks_ahead(newcomer, have);
  for (const RequestPtr& r : running) blocks += blocks_ahead(*r, r->computed);
  for (const RequestPtr& r : loading) {
    if (loads_end) blocks += blocks_ahead(*r, r->computed);
  }
  return blocks;
}

// all hits are referenced before anything is allocated. R-336: a hit that ends inside a
// block is copied, the source keeps its reference until the copy has run.
bool Engine::Body::allocate(Request& request, const AdmissionPlan& plan, Step& step) {
  const std::uint64_t have = plan.local + plan.external;
  list_slots(geometry, device->pool(), request.keys.view(), *plan.hit);
  touched.clear();
  std::uint64_t free_hits = 0;
  for (const GroupId g : geometry.cacheable()) {
    const GroupHit& group = plan.hit->groups[g];
    const std::uint64_t need = geometry.first_needed_position(g, {have});
    for (std::size_t i = 0; i < group.slots.size(); ++i) {
      if (group.first_position + i < need) continue;
      touched.push_back(group.slots[i]);
      free_hits += device->pool().references(group.slots[i]) == 0 ? 1 : 0;
    }
  }
  const std::uint64_t wanted = blocks_wanted(plan);
  const std::uint64_t reserved = options.reserve ? blocks_reserved(request, have + plan.chunk) : 0;
  if (device->pool().free_blocks().n < wanted + free_hits + reserved) return false;
  KVC_CHECK(device->pool().touch(touched) == Code::ok);
  device->candidates().used(touched);
  new_blocks.resize(wanted);
  if (!device->allocate(new_blocks)) {
    KVC_CHECK(device->pool().free(touched) == Code::ok);
    return false;
  }
  std::size_t next_new = 0;
  for (const GroupId g : geometry.cacheable()) fill_table(request, g, plan, step, next_new);
  KVC_CHECK(next_new == wanted);
  return true;
}

void Engine::Body::fill_table(Request& request, GroupId group, const AdmissionPlan& plan,
                              Step& step, std::size_t& next_new) {
  GroupTable& table = request.tables[group];
  const GroupHit& found = plan.hit->groups[group];
  const std::uint64_t span = geometry.block_tokens(group).n;
  const std::uint64_t have = plan.local + plan.external;
  const std::uint64_t positions = ceil_div(have, span);
  const std::uint64_t need = geometry.first_needed_position(group, {have});
  table.clear();
  for (std::uint64_t p = 0; p < positions; ++p) {
    if (p < need) {
      table.push(null_block);
    } else if (p >= found.first_position && p < found.list_length()) {
      table.push(found.slots[p - found.first_position]);
    } else {
      KVC_CHECK(plan.external > 0 && p >= plan.local / span);
      table.push(new_blocks[next_new++]);
    }
  }
  table.live_from = std::min(need, positions);
  if (plan.external == 0 && have % span != 0) {
    const BlockId source = table.blocks.back();
    KVC_CHECK(source != null_block);
    const BlockId copy = new_blocks[next_new++];
    step.copies.push_back({source, copy});
    step.copy_references.push_back(source);
    table.set(positions - 1, copy);
  }
  const std::uint64_t all = ceil_div(have + plan.chunk, span);
  while (table.blocks.size() < all) {
    const bool skipped = geometry.is_state_align(group) && table.blocks.size() + 1 < all;
    table.push(skipped ? null_block : new_blocks[next_new++]);
  }
  table.changed_from = 0;
}

void Engine::Body::count_hits(Request& r, std::uint64_t local_end, std::uint64_t external_end) {
  const std::uint64_t local_to = std::min(local_end, r.prompt());
  const std::uint64_t external_to = std::min(external_end, r.prompt());
  if (local_to > r.attributed) {
    r.local += local_to - r.attributed;
    r.attributed = local_to;
  }
  if (external_to > r.attributed) {
    r.external += external_to - r.attributed;
    r.attributed = external_to;
  }
  r.reached = std::max(r.reached, std::max(local_end, external_end));
}

// with or without a load. False: the connector refused, the request goes on without loads.
bool Engine::Body::tell_allocation(const RequestPtr& request, const AdmissionPlan& plan) {
  Request& r = *request;
  if (!link_alive() || !r.tracked) return plan.external == 0;
  std::vector<kvc_table>& tables = record_tables.front();
  fill_tables(r, true, true, tables);
  kvc_alloc_in in{};
  in.struct_size = sizeof in;
  in.request = r.id;
  in.accepted_tokens = plan.external;
  in.tables = kvc_list_of(tables.data(), tables.size(), sizeof(kvc_table));
  kvc_alloc_out out{};
  const kvc_status status = link->alloc_update(in, &out);
  if (status > 0) return plan.external == 0;  // nothing was done: there is no load
  if (status < 0) {
    log(KVC_LOG_WARN, fmt::format("alloc_update of request {} with {} tokens answered {}: {}", r.id,
                                  plan.external, host::Said{status}, link->last_error()));
    return plan.external == 0;
  }
  if (plan.external == 0) return true;
  if (out.job == 0) {
    link->fail(fmt::format("alloc_update of request {} accepted {} tokens without a job", r.id,
                           plan.external));
    return false;
  }
  r.load = {};
  r.load.job = out.job;
  r.load.local_tokens = plan.local;
  r.load.external_tokens = plan.external;
  return take_holds(out.job, out.held, &r.load.blocks);
}

// A state that the device serves is not computed again, so nobody would offer it to a connector
// that lost it, or never got it because the request was preempted between the state and its
// hand-off. The hit's own block still has its reference: the table's, or that of the pending copy.
void Engine::Body::offer_hit_states(const Request& request, const AdmissionPlan& plan) {
  if (plan.local == 0) return;
  for (const GroupId g : geometry.cacheable()) {
    const GroupHit& found = plan.hit->groups[g];
    if (geometry.is_state_align(g) && !found.slots.empty() && request.wants_state(plan.local)) {
      hand_off(request, g, found.slots.back(), plan.local);
    }
  }
}

// Which states the connector wants of what this admission computes.
void Engine::Body::ask_retention(Request& request, std::uint64_t begin) {
  if (request.asked_begin == begin) return;
  request.asked_begin = begin;
  request.states_listed = false;
  request.states.clear();
  if (!options.ask_retention || !link_alive() || !request.tracked || begin > request.prompt()) {
    return;
  }
  request.states_listed = link->retained(request.id, begin, request.states);
}

Admission Engine::Body::admit(const RequestPtr& request, Step& step, std::uint64_t& budget) {
  Request& r = *request;
  // Outputs of the admission before the preemption are still on their way.
  if (r.in_flight > 0) return Admission::aside;
  device_lookup(r);
  if (hit_is_of_this_step() || copies_what_is_not_written(step)) return Admission::stop;
  r.junction = hit.uncached_common_prefix.n == 0 ? 0 : hit.tokens.n + hit.uncached_common_prefix.n;
  AdmissionPlan plan;
  if (!connector_lookup(r, plan)) return Admission::aside;
  ask_retention(r, plan.local + plan.external);
  if (plan.external == 0) {
    plan.chunk = clip(r, plan.local, std::min(r.available() - plan.local, budget));
    if (plan.chunk == 0) return Admission::stop;
  }
  if (!allocate(r, plan, step)) {
    if (running.empty() && loading.empty() && in_flight.empty() && device->held_only() == 0) {
      broken = {Code::full, fmt::format("request {} of {} tokens does not fit the device pool of "
                                        "{} blocks",
                                        r.id, r.known, device->pool().blocks().n)};
    }
    blocks_are_coming = true;
    return Admission::stop;
  }
  r.record_whole = true;
  if (plan.local == 0) r.stale = false;
  r.computed = plan.local + plan.external;
  if (!tell_allocation(request, plan)) {
    free_tables(r);
    r.computed = 0;
    r.no_load = true;
    return Admission::stop;
  }
  r.admitted = true;
  if (plan.external > 0) {
    r.phase = Phase::loading;
    insert_by_arrival(loading, request);
    run_in_step(request, step, budget);
    return Admission::admitted;
  }
  offer_hit_states(r, plan);
  count_hits(r, plan.local, 0);
  r.failed_loads = 0;
  r.phase = Phase::running;
  insert_by_arrival(running, request);
  add_work(step, request, plan.local + plan.chunk);
  budget -= plan.chunk;
  return Admission::admitted;
}

}  // namespace kvc::host
