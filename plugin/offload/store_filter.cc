#include "plugin/offload/store_filter.h"

#include <algorithm>
#include <numeric>

namespace kvc {

StoreFilter::StoreFilter(const Geometry& tier, bool on)
    : tier_(tier),
      steps_(tier.groups(), Tokens{1}),
      periods_(tier.groups(), 1),
      per_period_(tier.groups(), 1) {
  if (!on || tier.has_drafts()) return;
  const std::int64_t retention = tier.options().retention;
  const Tokens unit = tier.hit_alignment();
  const bool chunks = tier.options().blocks_per_chunk > 1;
  prompts_ = retention >= 0 || chunks;
  for (const GroupId g : tier.cacheable()) {
    const GroupSpec& s = tier.group(g);
    if (s.kind == GroupKind::full || !s.position_stable) continue;
    Tokens step = retention < 0 ? unit : Tokens{static_cast<std::uint64_t>(retention)};
    if (s.state && retention < 0 && chunks) {
      const Tokens chunk = tier.block_tokens(g) * tier.options().blocks_per_chunk;
      step = unit * ceil_div(chunk.n, unit.n);
    }
    steps_[g] = step;
    if (step == Tokens{}) {
      per_period_[g] = 0;
      continue;
    }
    const std::uint64_t block = tier.block_tokens(g).n;
    periods_[g] = step.n / std::gcd(step.n, block);
    per_period_[g] = 0;
    for (std::uint64_t p = 0; p < periods_[g]; ++p) per_period_[g] += wanted_by_step(g, p);
    if (per_period_[g] == periods_[g]) steps_[g] = Tokens{1};
  }
}

// The first useful boundary behind the position's first token reaches back the least, so it alone
// decides for windows; a state is needed at its very end.
bool StoreFilter::wanted_by_step(GroupId group, std::uint64_t position) const {
  const Tokens step = steps_[group];
  if (step == Tokens{1}) return true;
  if (step == Tokens{}) return false;
  const Tokens block = tier_.block_tokens(group);
  if (tier_.group(group).state) return (block * (position + 1)).n % step.n == 0;
  const Tokens boundary = step * ((block * position).n / step.n + 1);
  return position >= tier_.first_needed_position(group, boundary);
}

bool StoreFilter::wanted_by_prompt(GroupId group, std::uint64_t position, Tokens prompt) const {
  if (!prompts_ || prompt == Tokens{}) return false;
  const Tokens boundary = round_down(prompt - Tokens{1}, tier_.hit_alignment());
  return boundary > Tokens{} && position >= tier_.first_needed_position(group, boundary) &&
         position < tier_.end_position(group, boundary);
}

bool StoreFilter::wanted(GroupId group, std::uint64_t position, Tokens prompt) const {
  return wanted_by_step(group, position) || wanted_by_prompt(group, position, prompt);
}

std::uint64_t StoreFilter::count_by_step(GroupId group, std::uint64_t behind) const {
  const std::uint64_t whole = behind / periods_[group];
  std::uint64_t n = whole * per_period_[group];
  for (std::uint64_t p = whole * periods_[group]; p < behind; ++p) n += wanted_by_step(group, p);
  return n;
}

std::uint64_t StoreFilter::count(GroupId group, std::uint64_t first, std::uint64_t behind,
                                 Tokens prompt) const {
  if (first >= behind) return 0;
  if (keeps_all(group)) return behind - first;
  std::uint64_t n = count_by_step(group, behind) - count_by_step(group, first);
  if (!prompts_ || prompt == Tokens{}) return n;
  const Tokens boundary = round_down(prompt - Tokens{1}, tier_.hit_alignment());
  const std::uint64_t end = std::min(behind, tier_.end_position(group, boundary));
  for (std::uint64_t p = std::max(first, tier_.first_needed_position(group, boundary)); p < end;
       ++p) {
    n += !wanted_by_step(group, p);
  }
  return n;
}

}  // namespace kvc
