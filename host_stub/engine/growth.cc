// Blocks of running requests, the keys they get, and the states that are handed off (R-330..R-339).
#include <algorithm>

#include "host_stub/engine/engine_body.h"
#include "plugin/coordinator/registration.h"

namespace kvc::host {

// Entries of the table below this are needed by nobody any more: windows that moved on, old
// states.
std::uint64_t Engine::Body::passed_positions(const Request& request, GroupId group) const {
  const Tokens settled{std::min(request.computed, request.known)};
  return std::min<std::uint64_t>(
      geometry.skipped_tokens(group, settled).n / geometry.block_tokens(group).n,
      request.tables[group].blocks.size());
}

// A passed state that is handed off beside the coming record: its block must not be given to
// anybody before the plan holds it, or this step's forward would write over what the plan stores.
bool Engine::Body::is_offered_now(const Request& request, GroupId group, std::uint64_t p) const {
  if (options.steps_in_flight == 1) return false;
  const std::uint64_t boundary = (p + 1) * geometry.block_tokens(group).n;
  const auto& due = request.tables[group].boundaries;
  return boundary <= request.known && std::find(due.begin(), due.end(), boundary) != due.end();
}

// Blocks that release_passed will put back into the pool.
std::uint64_t Engine::Body::blocks_passed(const Request& request) const {
  std::uint64_t count = 0;
  for (const GroupId g : geometry.cacheable()) {
    const GroupTable& table = request.tables[g];
    const std::uint64_t passed = passed_positions(request, g);
    for (std::uint64_t p = table.live_from; p < passed; ++p) {
      const BlockId block = table.blocks[p];
      if (block == null_block || is_offered_now(request, g, p)) continue;
      count += device->pool().references(block) == 1 ? 1 : 0;
    }
  }
  return count;
}

// Gives up handing off the passed states where only their blocks make `wanted` blocks fit: going on
// is worth more than what is stored. False, and nothing given up: not even that would do.
bool Engine::Body::forgo_offers(Request& request, std::uint64_t wanted) {
  std::vector<std::vector<std::uint64_t>> kept(request.tables.size());
  for (const GroupId g : geometry.cacheable()) {
    std::vector<std::uint64_t>& due = request.tables[g].boundaries;
    kept[g] = due;
    const std::uint64_t passed = passed_positions(request, g) * geometry.block_tokens(g).n;
    std::erase_if(due, [&](std::uint64_t boundary) { return boundary <= passed; });
  }
  if (device->pool().free_blocks().n + blocks_passed(request) >= wanted) return true;
  for (const GroupId g : geometry.cacheable()) request.tables[g].boundaries.swap(kept[g]);
  return false;
}

// Gives back the blocks of all passed positions but those that are handed off now.
void Engine::Body::release_passed(Request& request) {
  freed.clear();
  for (const GroupId g : geometry.cacheable()) {
    GroupTable& table = request.tables[g];
    const std::uint64_t end = passed_positions(request, g);
    std::uint64_t passed = end;
    for (std::uint64_t p = end; p-- > table.live_from;) {
      if (table.blocks[p] == null_block) continue;
      if (is_offered_now(request, g, p)) {
        passed = p;  // of the next step
        continue;
      }
      freed.push_back(table.blocks[p]);
      give_up(request, g, p, table.blocks[p]);
      table.set(p, null_block);
    }
    table.live_from = std::max(table.live_from, passed);
  }
  KVC_CHECK(device->pool().free(freed) == Code::ok);
}

bool Engine::Body::grow(Request& request, std::uint64_t end, Step& step) {
  if (options.steps_in_flight > 1 && request.load.job == 0) {
    // Keys that came with outputs processed since: states must get theirs before they are released.
    register_keys(request, std::min(request.computed, request.known));
  }
  std::uint64_t wanted = 0;
  for (const GroupId g : geometry.cacheable()) {
    const GroupTable& table = request.tables[g];
    const std::uint64_t positions = ceil_div(end, geometry.block_tokens(g).n);
    const std::uint64_t more = positions - std::min<std::uint64_t>(positions, table.blocks.size());
    wanted += geometry.is_state_align(g) ? std::min<std::uint64_t>(more, 1) : more;
    wanted += table.producer_tail != 0 ? 1 : 0;
  }
  const std::uint64_t passed = blocks_passed(request);
  if (device->pool().free_blocks().n < wanted - std::min(wanted, passed) &&
      !forgo_offers(request, wanted)) {
    release_passed(request);  // what jobs hold of it is waited for
    return false;
  }
  release_passed(request);
  if (options.steps_in_flight > 1) {
    for (const GroupId g : geometry.cacheable()) offer_boundaries(request, g);
  }
  new_blocks.resize(wanted);
  if (!device->allocate(new_blocks)) return false;
  std::size_t next = 0;
  for (const GroupId g : geometry.cacheable()) {
    GroupTable& table = request.tables[g];
    if (table.producer_tail != 0) move_producer_tail(request, g, new_blocks[next++], step);
    const std::uint64_t positions = ceil_div(end, geometry.block_tokens(g).n);
    while (table.blocks.size() < positions) {
      const bool skipped = geometry.is_state_align(g) && table.blocks.size() + 1 < positions;
      table.changed_from = std::min<std::uint64_t>(table.changed_from, table.blocks.size());
      table.push(skipped ? null_block : new_blocks[next++]);
    }
  }
  KVC_CHECK(next == wanted);
  return true;
}

void Engine::Body::hand_off(const Request& request, GroupId group, BlockId block,
                            std::uint64_t boundary) {
  kvc_handoff out{};
  out.struct_size = sizeof out;
  out.group = group;
  out.request = request.id;
  out.block = block;
  out.boundary_tokens = boundary;
  handoffs.push_back(out);
}

// the request goes on in its block, the cached state moves to a copy that is made before
// this step's forward.
void Engine::Body::move_producer_tail(Request& request, GroupId group, BlockId to, Step& step) {
  GroupTable& table = request.tables[group];
  const std::uint64_t boundary = table.producer_tail;
  table.producer_tail = 0;
  const BlockId from = table.blocks[boundary / geometry.block_tokens(group).n];
  KVC_CHECK(from != null_block);
  step.copies.push_back({from, to});
  step.copy_references.push_back(to);
  if (options.device_cache) {
    KVC_CHECK(device->pool().move_keys(from, to) == Code::ok);
    give_up(request, group, boundary / geometry.block_tokens(group).n, to);
    states_of_step.push_back(to);
  }
  if (request.wants_state(boundary)) hand_off(request, group, to, boundary);
}

void Engine::Body::register_keys(Request& request, std::uint64_t tokens) {
  if (!options.device_cache) return;
  for (const GroupId g : geometry.cacheable()) {
    GroupTable& table = request.tables[g];
    RegisterInput in;
    in.group = g;
    in.keys = request.keys.view();
    in.table = table.blocks;
    in.computed = {tokens};
    in.prompt = {request.prompt()};
    in.junction = {request.junction};
    if (request.states_listed && request.wants_state(tokens)) in.kept = {tokens};
    RegisterOutput out;
    const Code code = register_blocks(geometry, device->pool(), in, table.cursor, out);
    KVC_CHECK(code == Code::ok);
    if (out.tail.n != 0 && geometry.is_state_align(g)) table.producer_tail = out.tail.n;
  }
}

void Engine::Body::register_chunk(Request& request, std::uint64_t end) {
  register_keys(request, std::min(end, request.known));
  for (const GroupId g : geometry.cacheable()) {
    if (geometry.group(g).kind != GroupKind::state) continue;
    GroupTable& table = request.tables[g];
    const std::uint64_t span = geometry.block_tokens(g).n;
    for (std::uint64_t p = request.computed / span; p < table.blocks.size(); ++p) {
      if (table.blocks[p] != null_block) states_of_step.push_back(table.blocks[p]);
    }
    if (!geometry.is_state_align(g)) continue;
    if (end == geometry.partial_tail(g, {request.prompt()}).n) {
      table.producer_tail = end;
    } else if (request.states_listed) {
      if (!request.wants_state(end)) continue;
      if (end % span == 0) {
        table.boundaries.push_back(end);
      } else {
        table.producer_tail = end;
      }
    } else if (end % span == 0 &&
               keeps_state(geometry, g, {end}, {request.prompt()}, {request.junction})) {
      table.boundaries.push_back(end);
    }
    offer_boundaries(request, g);
  }
}

// states at block ends, in the step that computes them, or later if the keys of their last
// tokens are not known yet (several steps in flight).
void Engine::Body::offer_boundaries(Request& request, GroupId group) {
  GroupTable& table = request.tables[group];
  const std::uint64_t span = geometry.block_tokens(group).n;
  while (!table.boundaries.empty() && table.boundaries.front() <= request.known) {
    const std::uint64_t boundary = table.boundaries.front();
    table.boundaries.erase(table.boundaries.begin());
    const BlockId block = table.blocks[boundary / span - 1];
    if (block != null_block) hand_off(request, group, block, boundary);
  }
}

void Engine::Body::give_up(const Request& request, GroupId group, std::uint64_t position,
                           BlockId block) {
  const RequestSpec& spec = request.spec;
  const bool may_store = (spec.flags & KVC_REQUEST_NO_WRITE) == 0 && !request.stale &&
                         (position + 1) * geometry.block_tokens(group).n <= spec.store_limit_tokens;
  device->candidates().given_up(block, may_store);
}

// deepest position first, so that tails are evicted before heads.
void Engine::Body::free_tables(Request& request) {
  for (GroupId g = 0; g < request.tables.size(); ++g) {
    GroupTable& table = request.tables[g];
    freed.clear();
    for (std::size_t p = table.blocks.size(); p-- > 0;) {
      if (table.blocks[p] == null_block) continue;
      freed.push_back(table.blocks[p]);
      give_up(request, g, p, table.blocks[p]);
    }
    KVC_CHECK(device->pool().free(freed) == Code::ok);
    table.clear();
  }
}

}  // namespace kvc::host
