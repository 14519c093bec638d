// What lookups found stays in the tier until the lease ends (design 2.3 "Lease").
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plugin/coordinator/lookup.h"
#include "plugin/offload/both_tiers.h"
#include "plugin/offload/request_table.h"

namespace kvc {

struct Lease {
  RequestIndex request = no_request;  // no_request: not open
  std::uint64_t step = 0;             // opened after so many plans
  std::uint64_t epoch = 0;            // of the table
  Tokens max_tokens;                  // the bound of the lookup
  Hit hit;
  std::uint32_t older = 0;  // + 1
  std::uint32_t newer = 0;
};

// Threads:    scheduler role only.
// Owns:       at most `leases_max` leases; each pins its hit once (Hit::for_each_pinned).
// Invariants: open leases form a list by age. No heap after construction for hits up to
//             `max_tokens`.
class LeaseTable {
 public:
  // Hits are given room for `max_tokens` up front for at most 256 leases; others grow on first use.
  LeaseTable(const Geometry& geometry, HostTier& tier, std::uint32_t leases_max, Tokens max_tokens);

  // Hits may name entries of this tier from now on (BothTiers).
  void set_disk(DiskIndex& disk) { disk_ = &disk; }
  // A lookup repeated under the same number finds the same.
  [[nodiscard]] std::uint64_t epoch() const {
    return tier_.epoch() + (disk_ == nullptr ? 0 : disk_->epoch());
  }

  // Opens a lease on `hit`, whose memory is exchanged for that of an older lease. If all are open
  // the oldest ends first; `dropped` is its request, else no_request.
  std::uint32_t open(RequestIndex request, std::uint64_t step, Tokens max_tokens, Hit& hit,
                     RequestIndex& dropped);
  // As if it was opened now.
  void refresh(std::uint32_t lease, std::uint64_t step);
  // Ends it: the pins are gone.
  void end(std::uint32_t lease);
  // The oldest open lease, or no_lease.
  [[nodiscard]] std::uint32_t oldest() const { return oldest_ == 0 ? no_lease : oldest_ - 1; }

  [[nodiscard]] Lease& operator[](std::uint32_t lease) { return leases_[lease]; }
  [[nodiscard]] const Lease& operator[](std::uint32_t lease) const { return leases_[lease]; }
  [[nodiscard]] std::uint64_t open_leases() const { return open_; }
  [[nodiscard]] std::uint64_t dropped() const { return dropped_; }
  [[nodiscard]] std::uint32_t capacity() const {
    return static_cast<std::uint32_t>(leases_.size());
  }

 private:
  void link_newest(std::uint32_t at);
  void unlink(std::uint32_t at);

  HostTier& tier_;
  DiskIndex* disk_ = nullptr;
  std::vector<Lease> leases_;
  std::vector<std::uint32_t> free_;
  std::uint32_t oldest_ = 0;  // + 1
  std::uint32_t newest_ = 0;
  std::uint64_t open_ = 0;
  std::uint64_t dropped_ = 0;
};

}  // namespace kvc
