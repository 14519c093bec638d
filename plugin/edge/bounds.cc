#include "plugin/edge/bounds.h"

#include <algorithm>

namespace kvc::edge {

namespace {

// Lists of engines without a limit: still a number, so that no hostile count walks the address
// space.
constexpr std::uint64_t no_limit_entries = std::uint64_t{1} << 24U;

std::uint64_t limited(std::uint64_t value, std::uint64_t otherwise = no_limit_entries) {
  return value == KVC_NO_LIMIT ? otherwise : value;
}

// Slots behind the last token that real engines keep in a table (draft slots, spare states).
constexpr std::uint64_t spare_table_entries = 64;

}  // namespace

InBounds InBounds::of(const OpenConfig& config) {
  const OpenLimits& l = config.limits;
  const Geometry& g = config.geometry;
  InBounds b;
  b.groups = g.groups();
  b.scheduled = limited(l.max_running);
  b.preempted = b.scheduled;
  // Every boundary of a step is a multiple of h below what the step computes, or the tail of a
  // scheduled prompt.
  const std::uint64_t steps = limited(l.max_batch_tokens.n) / g.hash_unit().n;
  b.handoffs = std::min(no_limit_entries, b.groups * (steps + 4 * b.scheduled + 4));
  b.candidates = std::min(no_limit_entries, limited(l.device_blocks) * b.groups);
  b.ranks = l.ranks;
  b.reports = std::min(no_limit_entries, 4096 + l.ranks * (l.max_steps_in_flight + 64));
  const std::uint64_t tokens = limited(l.max_total_tokens.n, tokens_max) +
                               limited(l.max_batch_tokens.n, tokens_max) + g.options().lookahead.n;
  for (GroupId i = 0; i < g.groups(); ++i) {
    b.table_entries.push_back(ceil_div(tokens, g.block_tokens(i).n) + spare_table_entries);
  }
  return b;
}

Reserved Reserved::of(const OpenConfig& config, const InBounds& bounds) {
  constexpr std::uint64_t most = std::uint64_t{1} << 18U;
  Reserved r;
  r.tables = std::min(most, bounds.scheduled * bounds.groups);
  r.handoffs = std::min(most, bounds.handoffs);
  r.blocks = std::min(4 * most, 2 * limited(config.limits.device_blocks, most));
  r.jobs = std::min(most, 64 + 2 * limited(config.limits.max_live_requests, most));
  return r;
}

}  // namespace kvc::edge
