#include "plugin/coordinator/state_rule.h"

#include <algorithm>

namespace kvc {

std::string_view name_of(StateRule rule) {
  switch (rule) {
    case StateRule::dense:
      break;
    case StateRule::tail:
      return "tail";
    case StateRule::automatic:
      return "auto";
  }
  return "dense";
}

StatePlan::StatePlan(const Geometry& geometry, StateRule rule, bool log_spaced)
    : geometry_(geometry), rule_(rule), log_spaced_(log_spaced) {
  for (const GroupId g : geometry.cacheable()) {
    if (!geometry.is_state_align(g)) continue;
    if (!any()) tail_of_ = g;
    block_ = std::max(block_, geometry.block_tokens(g));
  }
}

void StatePlan::add(Tokens end, Tokens after, const PromptFacts& facts,
                    std::vector<Tokens>& out) const {
  if (end <= after || end > facts.prompt) return;
  for (const GroupId g : geometry_.cacheable())
    if (!geometry_.legal_end(g, end)) return;
  out.push_back(end);
}

void StatePlan::list(const PromptFacts& facts, std::vector<Tokens>& out) const {
  out.clear();
  if (!any()) return;
  if (rule_ == StateRule::dense) {
    for (Tokens end = block_; end <= facts.prompt; end = end + block_)
      add(end, facts.begin, facts, out);
  }
  if (rule_ == StateRule::automatic) {
    const Tokens shared = round_down(facts.shared, geometry_.hit_alignment());
    const Tokens before = facts.begin == Tokens{} ? Tokens{} : facts.begin - Tokens{1};
    if (!facts.shared_at_end && shared < facts.prompt) add(shared, before, facts, out);
    for (Tokens end = block_; log_spaced_ && end <= facts.prompt; end = end * 2)
      add(end, facts.begin, facts, out);
  }
  add(geometry_.prompt_tail_boundary(tail_of_, facts.prompt), facts.begin, facts, out);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
}

}  // namespace kvc
