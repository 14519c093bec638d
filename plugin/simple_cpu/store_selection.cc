#include "plugin/simple_cpu/store_selection.h"

namespace kvc {

bool StoreSelection::hashed(const StoreCandidate& c) const {
  if (!core_.host.can_query_blocks()) return true;
  Tokens end;
  const auto* key = reinterpret_cast<const std::uint8_t*>(c.key);
  return core_.host.has_key(c.group, c.block, key, end) && (end == c.end || end == Tokens{});
}

bool StoreSelection::within_budget(const StoreCandidate& c) const {
  if (!finishing()) return core_.budget_left(0) > 0;
  return !new_orphan(c) || orphans_left() > 0;
}

SlotId StoreSelection::reserve(const StoreCandidate& c, SlotId bad, Refusal& refusal) {
  const Request& r = core_.requests[c.request];
  return core_.tier.reserve(c.group, c.key, core_.requests.keys(r), c.end, r.run, bad, refusal);
}

void StoreSelection::commit(const StoreCandidate& c, SlotId entry) {
  KVC_CHECK(room_ > 0);
  Request& r = core_.requests[c.request];
  if (job_ == nullptr) {
    job_ = &core_.jobs.create(JobKind::store, r.id, c.request);
  } else if (job_->request_index != c.request) {
    job_->request = 0;
    job_->request_index = no_request;
  }
  CopyRecord copy;
  copy.block = c.block;
  copy.position = static_cast<std::uint32_t>(c.position);
  copy.entry = entry;
  copy.group = static_cast<std::uint8_t>(c.group);
  copy.request = c.request;
  copy.handoff = c.handoff;
  copy.offer_open = c.counted;
  if (finishing()) {
    new_orphans_ += new_orphan(c);
  } else if (!core_.requests.has_cells(c.group)) {
    // Tables of such groups are not passed: the block counts as its request's until that is over.
    copy.owned = true;
    ++r.owned_handoffs;
    core_.holds.table_add(c.group, c.block, c.position);
  }
  core_.holds.hold(c.group, c.block);
  core_.jobs.add_copy(*job_, copy, r.open_parts);
  ++r.open_copies;
  --room_;
}

}  // namespace kvc
