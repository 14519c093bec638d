#include "host_stub/engine/candidates.h"

#include <algorithm>

namespace kvc::host {

std::uint64_t candidate_window(const Geometry& geometry, const CandidateLimits& limits) {
  std::uint64_t step = 0;
  std::uint64_t load = 0;
  for (const GroupId g : geometry.cacheable()) {
    const std::uint64_t chunk = ceil_div(limits.token_budget, geometry.block_tokens(g).n) + 1;
    // One state per chunk of a request, and one for a tail that moves.
    step += geometry.is_state_align(g) ? 2 * limits.max_running : chunk;
    const std::uint64_t end = geometry.end_position(g, {limits.max_total_tokens});
    load += end - std::min(end, geometry.first_needed_position(g, {limits.max_total_tokens}));
  }
  return step + std::max(step, load);
}

void Candidates::enable(std::uint64_t window) {
  window_ = pool_.unlimited() ? 0 : window;
  uses_.assign(window_ == 0 ? 0 : pool_.blocks().n, {});
}

void Candidates::allocated(std::span<const BlockId> blocks) {
  if (!enabled()) return;
  for (const BlockId b : blocks) uses_[b] = {};
}

void Candidates::used(std::span<const BlockId> blocks) {
  if (!enabled()) return;
  for (const BlockId b : blocks) {
    Use& use = uses_[b];
    held_ -= (use.marks & borrowed) != 0 ? 1 : 0;
    use.marks = static_cast<std::uint8_t>(use.marks & ~borrowed);
  }
}

void Candidates::given_up(BlockId block, bool allowed) {
  if (enabled() && allowed) uses_[block].marks |= may_store;
}

void Candidates::name(BlockId block) {
  Use& use = uses_[block];
  if ((use.marks & may_store) == 0 || !pool_.has_keys(block)) return;
  use.marks |= named;
  use.turn = ++turns_;
  named_.push_back(block);
  const SlotKey key = pool_.primary(block);
  kvc_candidate out{};
  out.struct_size = sizeof out;
  out.group = key.group;
  out.block = block;
  out.key = reinterpret_cast<const std::uint8_t*>(key.key);
  out.end_tokens = key.end.n;
  list_.push_back(out);
}

std::span<const kvc_candidate> Candidates::collect(std::uint64_t stuck, std::uint64_t most) {
  list_.clear();
  named_.clear();
  if (!enabled()) return list_;
  // A block that was used meanwhile comes to the mark again by itself.
  std::size_t named_again = 0;
  for (; named_again < again_.size() && list_.size() < most; ++named_again) {
    if (pool_.visited(again_[named_again])) name(again_[named_again]);
  }
  again_.erase(again_.begin(), again_.begin() + static_cast<std::ptrdiff_t>(named_again));
  const std::uint64_t out = held_ - std::min(held_, stuck);
  while (again_.empty() && list_.size() < most && pool_.visited_blocks().n + out < window_) {
    const BlockId b = pool_.visit_next();
    if (b == no_block) break;
    name(b);
  }
  return list_;
}

void Candidates::taken(std::span<const BlockId> blocks) {
  if (!enabled()) return;
  for (const BlockId b : blocks) {
    Use& use = uses_[b];
    if ((use.marks & named) == 0) continue;
    use.marks = static_cast<std::uint8_t>((use.marks & ~named) | borrowed);
    ++held_;
  }
}

void Candidates::settle(bool refused) {
  std::erase_if(named_, [this](BlockId b) {
    Use& use = uses_[b];
    const bool left = (use.marks & named) != 0;
    use.marks = static_cast<std::uint8_t>(use.marks & ~named);
    return !left;
  });
  // They were in front of those that were not named again.
  if (refused) again_.insert(again_.begin(), named_.begin(), named_.end());
  named_.clear();
}

std::span<const BlockId> Candidates::released(std::vector<BlockId>& blocks) {
  back_.clear();
  if (held_ == 0) return back_;
  std::erase_if(blocks, [this](BlockId b) {
    Use& use = uses_[b];
    if ((use.marks & borrowed) == 0) return false;
    use.marks = static_cast<std::uint8_t>(use.marks & ~borrowed);
    --held_;
    back_.push_back(b);
    return true;
  });
  std::sort(back_.begin(), back_.end(),
            [this](BlockId a, BlockId b) { return uses_[a].turn < uses_[b].turn; });
  return back_;
}

void Candidates::forget(bool stale) {
  if (!enabled()) return;
  const std::uint8_t kept = stale ? 0 : may_store;
  for (Use& use : uses_) use.marks &= kept;
  held_ = 0;
  again_.clear();
  pool_.rewind_visits();
}

}  // namespace kvc::host
