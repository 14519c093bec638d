#include "plugin/offload/flows/core.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

// Design 2.3 "Holds": the larger of 10 % of the device blocks and the blocks of one full step.
std::uint64_t default_budget(const Geometry& geometry, const OpenLimits& limits) {
  if (limits.device_blocks == UINT64_MAX || limits.max_batch_tokens == no_token_limit) {
    return UINT64_MAX;
  }
  std::uint64_t step_blocks = 0;
  for (const GroupId g : geometry.cacheable()) {
    step_blocks += blocks_touched(limits.max_batch_tokens, geometry.block_tokens(g)).n;
  }
  return std::max(limits.device_blocks / 10, step_blocks);
}

TierRules rules_of(const OpenLimits& open, const FlowOptions& opts) {
  const bool bounded = open.max_total_tokens != no_token_limit;
  return {.chained = opts.chained_index,
          .eviction = opts.eviction,
          .path_max = bounded ? open.max_total_tokens : Tokens{}};
}

Tokens lease_tokens(const OpenLimits& limits) { return limits.max_total_tokens; }

}  // namespace

SchedulerCore::SchedulerCore(Geometry layout, Geometry tier_layout, const OpenLimits& open,
                             const FlowOptions& opts, HostServices& services)
    : geometry(std::move(layout)),
      tier_geometry(std::move(tier_layout)),
      limits(open),
      options(opts),
      host(services),
      events(opts.event_ring_entries),
      tier(tier_geometry, open.key_bytes, rules_of(open, opts), events),
      holds(geometry, open.device_blocks, open.null_block),
      requests(geometry, tier_geometry,
               RequestLimits{.live_max = open.max_live_requests,
                             .key_bytes_max = open.max_request_bytes.n,
                             .key_bytes = open.key_bytes,
                             .max_total = open.max_total_tokens},
               holds),
      disk(tier_geometry, open, opts, tier, requests, events, services),
      leases(tier_geometry, tier, opts.max_leases, lease_tokens(open)),
      pins(tier_geometry, tier, opts.max_pins, lease_tokens(open)),
      jobs(open.ranks),
      offer_counter(opts.store_threshold, opts.max_tracker_size, open.key_bytes),
      store_filter(tier_geometry, opts.store_reachable_only),
      gate(opts.cost_gate),
      faults(services) {
  hold_budget = opts.held_device_blocks_max != 0 ? opts.held_device_blocks_max
                                                 : default_budget(geometry, open);
  leases.set_disk(disk.index());
}

FoundRequest SchedulerCore::find(RequestId id) const {
  FoundRequest found;
  if (requests.find(id, found.index) == RequestTable::Known::unknown) {
    found.status = {Code::arg, fmt::format("request {} is unknown", id)};
  }
  return found;
}

RequestIndex SchedulerCore::find_listed(RequestId id, RequestIndex guess, std::string_view rule,
                                        std::string_view does) {
  RequestIndex index = no_request;
  if (requests.find(id, guess, index) == RequestTable::Known::unknown) {
    faults.report(rule, "request {} is {} and unknown", id, does);
  }
  return index;
}

// Blocks of a hit are much alike, so that its part on disk is as large as its share of the tokens.
HitCost SchedulerCore::cost_of(Tokens begin, Tokens end, Tokens on_disk) const {
  HitCost cost{end - begin, {}, {}};
  for_each_needed_range(geometry, begin, end,
                        [&](GroupId g, std::uint64_t first, std::uint64_t behind) {
                          cost.bytes += Bytes{(behind - first) * block_bytes[g]};
                        });
  const double share = static_cast<double>(on_disk.n) / static_cast<double>(cost.tokens.n);
  cost.disk = Bytes{static_cast<std::uint64_t>(share * static_cast<double>(cost.bytes.n))};
  return cost;
}

std::uint64_t SchedulerCore::pending_offers() const {
  std::uint64_t pending = landed_offers;
  for (std::size_t i = 0; i < jobs.open(); ++i) {
    jobs.for_each_copy(jobs.open_at(i), [&](const CopyRecord& c) { pending += c.offer_open; });
  }
  for (RequestIndex i = 0; i < requests.capacity(); ++i) {
    const Request& r = requests[i];
    if (!r.live) continue;
    for (const GroupProgress& g : r.groups) {
      pending += g.pending_at != 0;
      for (std::uint64_t p = std::max(g.wait_low, g.counted); p < g.wait_high; ++p) {
        pending += g.waiting > 0 && RequestTable::has_mark(g, p) && RequestTable::waits(g, p);
      }
    }
  }
  return pending;
}

void sort_deepest_first(const Geometry& geometry, std::span<HeldBlock> held) {
  std::reverse(held.begin(), held.end());
  const DeepestFirst order{geometry};
  if (!std::is_sorted(held.begin(), held.end(), order)) std::sort(held.begin(), held.end(), order);
}

void SchedulerCore::release_if_drained(RequestIndex index) {
  Request& r = requests[index];
  // One that was released before in this call has no id.
  if (r.id == 0 || r.live || r.open_copies != 0 || r.landed != 0 || r.fills != 0) return;
  if (r.dirty) {
    r.explain.confirmed = r.confirmed;
    explain.put(r.explain_ticket, r.explain);
    std::erase(dirty, index);
  }
  tier.close_run(r.run);
  disk.close_run(r);
  requests.release(index);
}

}  // namespace kvc
