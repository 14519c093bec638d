#include "plugin/offload/flows/store_selection.h"

namespace kvc {

bool StoreSelection::hashed(const StoreCandidate& c) const {
  if (!core_.host.can_query_blocks()) return true;
  Tokens said;
  const auto has = [&](BlockId block, const std::byte* key, Tokens end) {
    return core_.host.has_key(c.group, block, reinterpret_cast<const std::uint8_t*>(key), said) &&
           (said == end || said == Tokens{});
  };
  const Tokens block = core_.geometry.block_tokens(c.group);
  for (std::uint32_t i = 0; i < c.earlier_count; ++i) {
    const Tokens end = block * (c.position - c.earlier_count + i + 1);
    const KeyView keys = core_.requests.keys(core_.requests[c.request]);
    if (!has(c.earlier[i], block_key(keys, end, core_.geometry.hash_unit()), end)) return false;
  }
  return has(c.block, c.key, c.end);
}

std::uint64_t StoreSelection::new_orphans(const StoreCandidate& c) const {
  if (!finishing()) return 0;
  std::uint64_t orphans = core_.holds.adds_orphan(c.group, c.block, 1);
  for (std::uint32_t i = 0; i < c.earlier_count; ++i) {
    orphans += core_.holds.adds_orphan(c.group, c.earlier[i], 1);
  }
  return orphans;
}

bool StoreSelection::within_budget(const StoreCandidate& c) const {
  if (!finishing()) return core_.budget_left(0) > 0;
  return new_orphans(c) <= orphans_left();
}

SlotId StoreSelection::reserve(const StoreCandidate& c, SlotId bad, Refusal& refusal) {
  const Request& r = core_.requests[c.request];
  return core_.tier.reserve(c.group, c.key, core_.requests.keys(r), c.end, r.run, bad, refusal);
}

void StoreSelection::commit(const StoreCandidate& c, SlotId entry) {
  KVC_CHECK(fits(c));
  if (job_ == nullptr) {
    job_ = &core_.jobs.create(JobKind::store, core_.requests[c.request].id, c.request);
  } else if (job_->request_index != c.request) {
    job_->request = 0;
    job_->request_index = no_request;
  }
  const std::uint64_t first = c.position - c.earlier_count;
  new_orphans_ += new_orphans(c);
  for (std::uint32_t i = 0; i < c.earlier_count; ++i) {
    copy_block(c, first + i, c.earlier[i], entry);
  }
  copy_block(c, c.position, c.block, entry);
}

void StoreSelection::copy_block(const StoreCandidate& c, std::uint64_t position, BlockId block,
                                SlotId entry) {
  Request& r = core_.requests[c.request];
  CopyRecord copy;
  copy.block = block;
  copy.position = static_cast<std::uint32_t>(position);
  copy.entry = entry;
  copy.group = static_cast<std::uint8_t>(c.group);
  copy.request = c.request;
  copy.handoff = c.handoff;
  copy.closes = position == c.position;
  copy.offer_open = c.counted && copy.closes;
  if (!finishing() && !core_.requests.has_cells(c.group)) {
    // Tables of such groups are not passed: the block counts as its request's until that is over.
    copy.owned = true;
    ++r.owned_handoffs;
    core_.holds.table_add(c.group, block, position);
  }
  core_.holds.hold(c.group, block);
  core_.jobs.add_copy(*job_, copy, r.open_parts);
  ++r.open_copies;
  --room_;
}

}  // namespace kvc
