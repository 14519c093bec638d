// The parts that the flows of a scheduler role share. Each flow is a class of its own over this
// aggregate; the aggregate has no behaviour but small helpers that several flows need.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/lookup.h"
#include "plugin/core/check.h"
#include "plugin/core/result.h"
#include "plugin/offload/cost_gate.h"
#include "plugin/offload/event_ring.h"
#include "plugin/offload/explain_ring.h"
#include "plugin/offload/flows/disk_flow.h"
#include "plugin/offload/flows/options.h"
#include "plugin/offload/hold_book.h"
#include "plugin/offload/host_tier.h"
#include "plugin/offload/job_table.h"
#include "plugin/offload/lease_table.h"
#include "plugin/offload/offer_counter.h"
#include "plugin/offload/offer_ledger.h"
#include "plugin/offload/peer_faults.h"
#include "plugin/offload/pin_book.h"
#include "plugin/offload/request_table.h"
#include "plugin/offload/scheduler_role.h"
#include "plugin/offload/store_filter.h"

namespace kvc {

// What the role counts beside offers; the names are those of stats().
struct RoleCounters {
  std::uint64_t lookups = 0;
  std::uint64_t lookup_hit_tokens = 0;
  std::uint64_t bisections = 0;    // searches of one group whose prefix was closed
  std::uint64_t linear_walks = 0;  // and of one whose was not
  std::uint64_t lookups_attached = 0;
  std::uint64_t tokens_lost_no_state = 0;  // K6-49
  std::uint64_t draft_dropped_tokens = 0;  // K8-77
  std::uint64_t loads_ok = 0;
  std::uint64_t loads_failed = 0;
  std::uint64_t loads_cancelled = 0;
  std::uint64_t load_blocks = 0;
  std::uint64_t store_blocks = 0;
  std::uint64_t loaded_bytes = 0;  // of all ranks, as is the next
  std::uint64_t stored_bytes = 0;  // copied, published or not
  std::uint64_t reports_rejected = 0;
  std::uint64_t resets = 0;
  std::uint64_t requests_begun = 0;
  std::uint64_t requests_refused = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t stores_below_threshold = 0;  // blocks, chunks, tails and states passed over
  std::uint64_t retention_questions = 0;     // of engines with kvc.retention/1
  std::uint64_t retention_boundaries = 0;    // named in answers
  std::uint64_t loads_in_step = 0;           // of engines with kvc.layerwise/1
  std::uint64_t hints_taken = 0;             // of engines with kvc.hints/1
  std::uint64_t candidates_unreachable = 0;  // lazy mode: keys that end inside a block
};

// What a call finds that names a request. Live: `index` is its place. Otherwise the call is over,
// with `status`: arg for an id that never began or is over, ok for one that the role does not
// track, for which every call is a no-op.
struct FoundRequest {
  RequestIndex index = no_request;
  Status status;

  [[nodiscard]] bool live() const { return index != no_request; }
  // The answer to a call that has more to say than a status. Requires: !live().
  template <class T>
  [[nodiscard]] Result<T> or_answer(T untracked) const {
    KVC_CHECK(!live());
    if (status.ok()) return untracked;
    return status;
  }
};

// Threads:    scheduler role only, but `explain`.
// Owns:       all state of the role. Invariants: those of its parts; the ledger is balanced between
//             calls.
struct SchedulerCore {
  // `tier`: as `layout`, or with chunks (GeometryOptions::blocks_per_chunk).
  SchedulerCore(Geometry layout, Geometry tier, const OpenLimits& open, const FlowOptions& opts,
                HostServices& services);
  SchedulerCore(const SchedulerCore&) = delete;
  SchedulerCore& operator=(const SchedulerCore&) = delete;

  const Geometry geometry;       // of the engine: tables, blocks, what a request needs
  const Geometry tier_geometry;  // of the tier: entries, hits, offers
  const OpenLimits limits;
  const FlowOptions options;
  HostServices& host;

  EventRing events;
  HostTier tier;
  HoldBook holds;
  RequestTable requests;
  DiskFlow disk;
  LeaseTable leases;
  PinBook pins;
  JobTable jobs;
  OfferCounter offer_counter;
  StoreFilter store_filter;
  CostGate gate;
  OfferLedger ledger;
  ExplainRing explain;
  PeerFaults faults;
  RoleCounters counters;

  std::uint64_t epoch = 0;          // of this open: in plans and reports
  std::uint64_t step = 0;           // of the last plan
  std::uint64_t copies_ended = 0;   // store jobs that ended, and resets: what waiting offers watch
  std::uint64_t landed_offers = 0;  // offers whose copy ended before an ancestor's (design 3.1 c)
  std::uint64_t quarantined = 0;    // device blocks of jobs past their deadline
  std::uint64_t hold_budget = 0;    // UINT64_MAX: none
  std::vector<RequestIndex> dirty;
  std::vector<std::uint64_t> block_bytes;  // per group, of all ranks together; from set_ranks
  RunId candidate_run = no_run;            // lazy mode: of what is stored and refreshed now
  // Of candidates, which belong to no request.
  OfferCounts nobody;
  OpenParts parts_of_nobody;

  // Lazy mode: what is stored or refreshed from here on is newer than everything else.
  void renew_candidate_run() {
    if (candidate_run == no_run) return;
    tier.close_run(candidate_run);
    candidate_run = tier.open_run();
    KVC_CHECK(candidate_run != no_run);
  }
  // Times to live end by the host's clock, where there are any.
  void tick() {
    if (tier.timed()) tier.tick(host.now_ns());
  }
  // How many blocks of the engine are in an entry of the tier.
  [[nodiscard]] std::uint64_t blocks_of(const SlotKey& entry) const {
    const std::uint64_t per = tier_geometry.blocks_per_chunk(entry.group);
    if (per == 1) return 1;
    return (geometry.end_position(entry.group, entry.end) - 1) % per + 1;
  }
  // The request that a call names; every call with an id as its subject begins with it.
  [[nodiscard]] FoundRequest find(RequestId id) const;
  // The request that a step record lists, where `guess` is probably right; no_request: it has none.
  // An id that never began or is over is a bad element, a fault of the peer under `rule`: it `does`
  // what the record says, and is unknown.
  [[nodiscard]] RequestIndex find_listed(RequestId id, RequestIndex guess, std::string_view rule,
                                         std::string_view does);
  // The row of the request's own offers.
  [[nodiscard]] OfferCounts& offers_of(RequestIndex index) {
    return index == no_request ? nobody : requests[index].explain.offers;
  }

  [[nodiscard]] OpenParts& parts_of(RequestIndex index) {
    return index == no_request ? parts_of_nobody : requests[index].open_parts;
  }

  // The request's explain record changed; no_request has none.
  void touch_explain(RequestIndex index) {
    if (index == no_request) return;
    Request& r = requests[index];
    if (r.dirty) return;
    r.dirty = true;
    dirty.push_back(index);
  }
  // What a load of the prefix [begin, end) is for the gate; so many tokens of it are on disk.
  [[nodiscard]] HitCost cost_of(Tokens begin, Tokens end, Tokens on_disk) const;
  // Ends the request's lease, if any.
  void end_lease(Request& r) {
    if (r.lease == no_lease) return;
    leases.end(r.lease);
    r.lease = no_lease;
  }
  // The budget of holds is used up: what no live request's table names, without what is
  // quarantined.
  [[nodiscard]] std::uint64_t budget_left(std::uint64_t more) const {
    const std::uint64_t counted = holds.orphaned() + more;
    const std::uint64_t used = counted > quarantined ? counted - quarantined : 0;
    return used < hold_budget ? hold_budget - used : 0;
  }
  // Offers without an outcome, counted where they are: open copies, refused and waiting positions.
  [[nodiscard]] std::uint64_t pending_offers() const;
  // The shell of an ended request goes with its last copy.
  void release_if_drained(RequestIndex index);
};

// Deepest position first, in tokens; ties by group and position, so that the order is the same in
// every list of a job (design 2.3 "Holds").
struct DeepestFirst {
  const Geometry& geometry;
  bool operator()(const HeldBlock& a, const HeldBlock& b) const {
    const std::uint64_t ea = (a.position + 1) * geometry.block_tokens(a.group).n;
    const std::uint64_t eb = (b.position + 1) * geometry.block_tokens(b.group).n;
    if (ea != eb) return ea > eb;
    if (a.group != b.group) return a.group > b.group;
    return a.block > b.block;
  }
};

// Copies of one request come group by group with ascending positions: backwards they are in this
// order already, or nearly so.
void sort_deepest_first(const Geometry& geometry, std::span<HeldBlock> held);

}  // namespace kvc
