#include "plugin/offload/flows/retention.h"

#include <fmt/format.h>

#include <new>

namespace kvc {

namespace {

constexpr std::uint64_t prefix_tags = std::uint64_t{1} << 22U;

}  // namespace

Retention::Retention(SchedulerCore& core)
    : core_(core),
      plan_(core.tier_geometry, core.options.states, core.tier.eviction() != Eviction::lru) {
  boundaries_.reserve(StatePlan::most);
  if (plan_.wants_shared() && !tags_.make(prefix_tags)) throw std::bad_alloc();
}

// The tier has, or is getting, all states there.
bool Retention::holds(const Request& r, Tokens boundary) const {
  const KeyView keys = core_.requests.keys(r);
  const Tokens h = core_.geometry.hash_unit();
  if (boundary.n / h.n > keys.count) return true;
  for (const GroupId g : core_.tier_geometry.cacheable()) {
    SlotId entry = no_slot;
    if (core_.tier_geometry.is_state_align(g) &&
        core_.tier.find(g, block_key(keys, boundary, h), entry) == Presence::absent)
      return false;
  }
  return true;
}

Result<RetentionAnswer> Retention::ask(RequestId request, Tokens begin) {
  const FoundRequest found = core_.find(request);
  if (!found.live()) return found.or_answer(RetentionAnswer{});
  const RequestIndex index = found.index;
  Request& r = core_.requests[index];
  if (begin > r.prompt) {
    return {Code::arg, fmt::format("request {} begins at {} of {} prompt tokens", request, begin.n,
                                   r.prompt.n)};
  }
  ++core_.counters.retention_questions;
  if (!lists()) return RetentionAnswer{};
  if (plan_.wants_shared() && !r.shared_known) {
    const PrefixTags::Shared shared = tags_.note(core_.requests.keys(r));
    r.shared_known = true;
    r.shared = core_.geometry.hash_unit() * shared.keys;
    r.shared_at_end = shared.at_end;
  }
  r.states_listed = true;
  plan_.list({r.prompt, begin, r.shared, r.shared_at_end}, boundaries_);
  std::span<const Tokens> wanted = boundaries_;
  if (!wanted.empty() && wanted.front() == begin && holds(r, begin)) wanted = wanted.subspan(1);
  core_.counters.retention_boundaries += wanted.size();
  return RetentionAnswer{true, wanted};
}

}  // namespace kvc
