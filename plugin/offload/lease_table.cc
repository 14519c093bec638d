#include "plugin/offload/lease_table.h"

#include <algorithm>

#include "plugin/core/op_count.h"

namespace kvc {

LeaseTable::LeaseTable(const Geometry& geometry, HostTier& tier, std::uint32_t leases_max,
                       Tokens max_tokens)
    : tier_(tier), leases_(leases_max) {
  KVC_CHECK(leases_max >= 1);
  free_.reserve(leases_max);
  for (std::uint32_t i = leases_max; i > 0; --i) free_.push_back(i - 1);
  for (std::uint32_t i = 0; i < leases_max; ++i) {
    leases_[i].hit.groups.resize(geometry.groups());
    if (max_tokens != no_token_limit && i < 256) leases_[i].hit.reserve(geometry, max_tokens);
  }
}

std::uint32_t LeaseTable::open(RequestIndex request, std::uint64_t step, Tokens max_tokens,
                               Hit& hit, RequestIndex& dropped) {
  dropped = no_request;
  if (free_.empty()) {
    dropped = leases_[oldest()].request;
    end(oldest());
    ++dropped_;
  }
  const std::uint32_t at = free_.back();
  free_.pop_back();
  Lease& lease = leases_[at];
  lease.request = request;
  lease.step = step;
  lease.epoch = epoch();
  lease.max_tokens = max_tokens;
  std::swap(lease.hit, hit);
  lease.hit.for_each_pinned([&](SlotId entry) {
    KVC_OP(entry, 1);
    if (on_disk(entry)) {
      disk_->pin(disk_entry(entry), PinKind::lease);
    } else {
      tier_.pin(entry, PinKind::lease);
    }
  });
  link_newest(at);
  ++open_;
  return at;
}

void LeaseTable::link_newest(std::uint32_t at) {
  Lease& lease = leases_[at];
  lease.older = newest_;
  lease.newer = 0;
  if (newest_ != 0) leases_[newest_ - 1].newer = at + 1;
  newest_ = at + 1;
  if (oldest_ == 0) oldest_ = at + 1;
}

void LeaseTable::unlink(std::uint32_t at) {
  Lease& lease = leases_[at];
  if (lease.older != 0) {
    leases_[lease.older - 1].newer = lease.newer;
  } else {
    oldest_ = lease.newer;
  }
  if (lease.newer != 0) {
    leases_[lease.newer - 1].older = lease.older;
  } else {
    newest_ = lease.older;
  }
  lease.older = lease.newer = 0;
}

void LeaseTable::refresh(std::uint32_t at, std::uint64_t step) {
  KVC_CHECK(leases_[at].request != no_request);
  leases_[at].step = step;
  unlink(at);
  link_newest(at);
}

void LeaseTable::end(std::uint32_t at) {
  Lease& lease = leases_[at];
  KVC_CHECK(lease.request != no_request);
  lease.hit.for_each_pinned_backwards([&](SlotId entry) {
    KVC_OP(entry, 1);
    if (on_disk(entry)) {
      disk_->unpin(disk_entry(entry), PinKind::lease);
    } else {
      tier_.unpin(entry, PinKind::lease);
    }
  });
  unlink(at);
  lease.request = no_request;
  --open_;
  free_.push_back(at);
}

}  // namespace kvc
