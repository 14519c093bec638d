#include "plugin/coordinator/sched_rules.h"

#include <algorithm>

#include "plugin/coordinator/geometry.h"
#include "plugin/core/check.h"

namespace kvc {
namespace {

// The last boundary on `unit` that a later lookup can prove: cp(x, g) of R-560.
std::uint64_t provable(std::uint64_t x, std::uint64_t unit, bool drop) {
  if (x == 0) return 0;
  if (!drop) return (x - 1) / unit * unit;
  const std::uint64_t whole = x / unit * unit;
  return whole > unit ? whole - unit : 0;
}

}  // namespace

Tokens clip_chunk(const ChunkRules& rules, const ChunkInput& input) {
  KVC_CHECK(input.want.n > 0 && input.total >= input.prompt);
  const std::uint64_t start = input.start.n;
  const std::uint64_t prompt = input.prompt.n;
  const std::uint64_t prefill_end = std::max(prompt, input.total.n - 1);
  const std::uint64_t m = rules.state_block.n;
  if (m == 0 || start >= prefill_end) return input.want;
  std::uint64_t end = start + input.want.n;
  const bool internal = input.internal_checkpoint.n != 0;
  if (end < prefill_end) {
    const std::uint64_t aligned = end / m * m;
    if (aligned > start || m <= rules.max_chunk.n) end = aligned;
  }
  std::uint64_t stop = end;
  const auto consider = [&](std::uint64_t at) {
    if (at > start && at < stop) stop = at;
  };
  if (start % m != 0 && !internal) consider(start / m * m + m);
  for (const Tokens block : rules.smaller_state_blocks) {
    if (start % block.n != 0) consider(start / block.n * block.n + block.n);
  }
  if (!internal) consider(provable(input.total.n, m, rules.draft_drop));
  const std::uint64_t last = internal ? 0 : provable(input.total.n, m, rules.draft_drop);
  const std::uint64_t tail = provable(prompt, rules.hash_unit.n, rules.draft_drop);
  if (rules.fine && !internal && last < tail && tail < prompt) consider(tail);
  const std::uint64_t junction = input.junction.n;
  if (start < junction && junction < end) {
    const bool exact = rules.stop_at_junction && junction <= prompt;
    consider(exact ? junction : start + (junction - start) / m * m);
  }
  const auto next = std::upper_bound(input.stops.begin(), input.stops.end(), start);
  if (next != input.stops.end()) consider(*next);
  return {stop > start ? stop - start : 0};
}

ChunkRules chunk_rules(const Geometry& geometry, Tokens max_chunk) {
  ChunkRules rules;
  for (const GroupId g : geometry.cacheable())
    if (geometry.is_state_align(g))
      rules.state_block = std::max(rules.state_block, geometry.block_tokens(g));
  for (const GroupId g : geometry.cacheable())
    if (geometry.is_state_align(g) && geometry.block_tokens(g) < rules.state_block)
      rules.smaller_state_blocks.push_back(geometry.block_tokens(g));
  rules.hash_unit = geometry.hash_unit();
  rules.fine = geometry.fine_hits() && geometry.hash_unit() < geometry.scheduler_block();
  rules.draft_drop = geometry.has_drafts();
  rules.max_chunk = max_chunk;
  return rules;
}

}  // namespace kvc
