#include "conformance/validate/layout.h"

#include <algorithm>

namespace kvc::validate {
namespace {

// Lists of engines without a limit still have one here, so that no hostile count walks the address
// space.
constexpr std::uint64_t entries_max = std::uint64_t{1} << 24U;
constexpr std::uint64_t spare_entries = 64;  // draft slots, spare states

std::uint64_t limited(std::uint64_t value) { return std::min(value, entries_max); }

std::uint64_t at_least_one(std::uint64_t value) { return value == 0 ? 1 : value; }

std::uint64_t back(std::uint64_t from, std::uint64_t by) { return from - std::min(from, by); }

}  // namespace

Layout Layout::of(const OpenIn& open) {
  Layout l;
  l.hash_unit = at_least_one(open.hash_unit);
  l.scheduler_block = at_least_one(open.scheduler_block);
  l.ranks = std::max(1U, open.ranks);
  l.device_blocks = open.device_blocks;
  l.null_block = open.null_block;
  l.key_bytes = open.key_bytes;
  l.max_prompt = open.max_prompt;
  l.max_total = open.max_total;
  l.max_batch = open.max_batch;
  l.max_live = open.max_live;
  l.steps_in_flight = at_least_one(open.max_steps_in_flight);
  l.host_caps = open.host_caps;
  l.scheduled_max = limited(open.max_running);
  l.candidates_max = limited(limited(open.device_blocks) * open.groups.size());
  l.reports_max = limited(4096 + open.ranks * (limited(open.max_steps_in_flight) + 64));
  l.keys_max = ceil_of(std::min(open.max_total, entries_max * l.hash_unit), l.hash_unit);
  l.handoffs_max = limited(open.groups.size() *
                           (limited(open.max_batch) / l.hash_unit + 4 * l.scheduled_max + 4));
  const std::uint64_t tokens = limited(open.max_total) + limited(open.max_batch) + open.lookahead;
  for (const GroupInfo& g : open.groups) {
    Group out;
    out.kind = g.kind;
    out.cacheable = (g.caps & KVC_GROUP_CAP_CACHEABLE) != 0;
    out.stable = (g.caps & KVC_GROUP_CAP_POSITION_STABLE) != 0;
    out.state = (g.caps & KVC_GROUP_CAP_STATE) != 0;
    const bool sharded = (g.caps & KVC_GROUP_CAP_SHARDED) != 0;
    out.span =
        at_least_one(g.tokens_per_block) * (sharded ? std::max(1U, open.context_parallel) : 1);
    out.span = at_least_one(out.span);
    out.window = g.window;
    out.extra = g.extra_retained;
    out.table_entries_max = ceil_of(tokens, out.span) + spare_entries;
    l.groups.push_back(out);
  }
  return l;
}

std::uint64_t Layout::first_needed(std::uint32_t g, std::uint64_t end) const {
  const Group& group = groups[g];
  switch (group.kind) {
    case KVC_GROUP_FULL:
      return 0;
    case KVC_GROUP_SLIDING:
      return back(back(end, back(group.window, 1)), group.extra) / group.span;
    case KVC_GROUP_CHUNKED:
      return back(end / at_least_one(group.window) * at_least_one(group.window), group.extra) /
             group.span;
    case KVC_GROUP_STATE:
      return back(end, 1) / group.span;
    default:
      return ceil_of(end, group.span);
  }
}

}  // namespace kvc::validate
