// The disk tier in the scheduler role: what goes to disk and when, what comes back for a hit, and
// what ranks say of it (design 3.2, spec O-319..O-332, OW-04, OW-07, OW-10).
//
//   spill   an entry of the host tier is written to disk on every rank; its slot is pinned until
//           then
//   fill    entries of a decided hit are read from disk into slots of the host tier; the load of
//           the hit is in the same plan, and on each rank its copies wait for their slots
//   drop    ranks forget keys that left the index
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "plugin/coordinator/hit.h"
#include "plugin/core/zeroed.h"
#include "plugin/offload/both_tiers.h"
#include "plugin/offload/disk_index.h"
#include "plugin/offload/disk_jobs.h"
#include "plugin/offload/flows/options.h"
#include "plugin/offload/host_tier.h"
#include "plugin/offload/inventory_merge.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/report_format.h"
#include "plugin/offload/request_table.h"

namespace kvc {

struct DiskFlowCounters {
  std::uint64_t prefetched = 0;       // entries that hints asked for
  std::uint64_t hit_tokens = 0;       // that came from disk, of accepted hits
  std::uint64_t lookups_pending = 0;  // answered LATER: a block is on its way into the host tier
  std::uint64_t lookups_warming = 0;  // .. or: inventories were still coming
  std::uint64_t hits_cut = 0;         // the host tier had no room for all of a hit on disk
  std::uint64_t spills_ok = 0;        // entries, as all below
  std::uint64_t spills_failed = 0;
  std::uint64_t spills_skipped = 0;  // too many were open, or the tier was off
  std::uint64_t fills_ok = 0;
  std::uint64_t fills_failed = 0;
  std::uint64_t lost_on_eviction = 0;  // left the host tier, and were not on disk
  std::uint64_t drops = 0;
  std::uint64_t resets = 0;        // of all ranks, ended
  std::uint64_t switched_off = 0;  // ranks, each time
  std::uint64_t restored = 0;      // from inventories
  std::uint64_t restore_no_parent = 0;
  std::uint64_t restore_no_room = 0;
};

// What a hit that counts blocks on disk needs.
struct DiskNeed {
  bool pending = false;       // a block of it is on its way into the host tier (HIT_PENDING)
  std::uint64_t entries = 0;  // that must be read
  Tokens tokens;              // of the hit, in them
};

// Threads:    scheduler role only.
// Owns:       the index of the disk tier, its jobs, notes of the current call.
// Invariants: an entry is filled once at a time (single flight); a slot that is filled is reserved
//             until the load that reads it has ended, too; nothing is written to disk for a key
//             whose drop was not planned before; lookups change nothing here. Without a disk tier
//             every call does nothing. No heap in hot calls after set_ranks.
class DiskFlow {
 public:
  DiskFlow(const Geometry& tier_geometry, const OpenLimits& limits, const FlowOptions& options,
           HostTier& host, RequestTable& requests, EventRing& events, HostServices& services);
  DiskFlow(const DiskFlow&) = delete;
  DiskFlow& operator=(const DiskFlow&) = delete;

  // There is one, and ranks are set.
  [[nodiscard]] bool on() const { return index_.sized(); }
  [[nodiscard]] bool configured() const { return options_.bytes != 0; }
  // Once, after the host tier's resize. Errors: a rank has no disk tier, or its inventory is
  // malformed; those of DiskIndex::resize.
  Status set_ranks(std::span<const RankInfo> ranks, std::uint64_t open_runs);
  // Bytes of a plan for disk jobs, beside loads and stores.
  [[nodiscard]] std::uint64_t plan_bytes() const;
  // Of them for the fills of one plan: one of the longest request fits.
  [[nodiscard]] std::uint64_t fill_room() const;

  // --- lookups (disk_reads.cc)
  // Hits may count blocks on disk: no rank is off, no reset is open.
  [[nodiscard]] bool readable() const {
    return on() && ranks_off_ == 0 && !reset_open() && index_.numbers().published != 0;
  }
  // Not all inventories are here: what is missing may be on disk (RETRY).
  [[nodiscard]] bool warming() const { return on() && merge_.open(); }
  [[nodiscard]] const BothTiers& both() const { return both_; }
  [[nodiscard]] std::uint64_t warming_since() const { return warming_since_; }
  void count_pending() { ++counters_.lookups_pending; }
  void count_warming() { ++counters_.lookups_warming; }
  void count_cut() { ++counters_.hits_cut; }
  void count_hit(Tokens tokens) { counters_.hit_tokens += tokens.n; }
  // What `hit`, found in both() for these keys, needs. Linear in the hit.
  [[nodiscard]] DiskNeed need_of(const Hit& hit, const KeyView& keys) const;
  // So many entries can be read for one hit, as far as is known before they are reserved.
  [[nodiscard]] std::uint64_t read_room() const;
  // And so many without that anything goes for them.
  [[nodiscard]] std::uint64_t free_room() const;
  // Whether the hit names entries of the disk tier.
  [[nodiscard]] static bool counts_disk(const Hit& hit);

  // --- reads
  // Pins what the host tier has of the hit, reserves slots for the rest and opens the fill that
  // `load` waits for. `entries`: the host entries of the hit by group, positions ascending. False:
  // it cannot be served; nothing changed.
  [[nodiscard]] bool open_fill(RequestIndex request, const Hit& hit, JobId load,
                               PagedVector<SlotId>& entries, DiskNeed& need);
  // Reads what the host tier lacks of the hit into free slots, for no load. False: not now; nothing
  // changed.
  [[nodiscard]] bool prefetch(RequestIndex request, const Hit& hit);
  // So many bytes of the plan does the fill of the load take; 0: it has none.
  [[nodiscard]] std::uint64_t fill_bytes(JobId load);
  // The load is in this plan, so the fill is.
  void plan_fill(JobId load);
  // The load is planned without copies: its fill is not wanted.
  void cancel_fill(JobId load);
  // The load has ended on every rank.
  void load_ended(JobId load);

  // --- writes (disk_writes.cc). Notes are taken in a call and dealt with at its end.
  // The entry was published for the request, whose keys are known until settle_notes.
  void note_stored(SlotId entry, RequestIndex request) {
    if (on() && !options_.on_eviction) note(entry, request);
  }
  // A hit or a skipped offer met it.
  void note_used(SlotId entry, RequestIndex request) {
    if (on()) note(entry, request);
  }
  void settle_notes();
  // On eviction: makes room in the host tier before it is needed.
  void make_headroom();
  // The host tier evicts the entry for want of room.
  void evicted_from_host(GroupId group, const std::byte* key);

  // --- plans and reports (disk_plan.cc)
  // `room`: bytes that are left of fill_room.
  void encode(PlanEncoder& encoder, std::uint64_t room);
  enum class Heard : std::uint8_t { ok, unknown, repeated };
  [[nodiscard]] Heard take_entry(std::uint32_t rank, const ReportEntry& entry);
  // State and inventory of the rank's disk tier.
  [[nodiscard]] Status take_report(std::uint32_t rank, const ReportView& report);
  // Requests of which something here ended: their shells may be free now.
  template <class Visit>
  void drain(Visit visit) {
    for (const RequestIndex index : drained_) visit(index);
    drained_.clear();
  }
  // The host entry that is published now as the end of a fill; no_slot: none.
  [[nodiscard]] SlotId publishing() const { return publishing_; }
  // What the host tier is told when it publishes what was filled for a request: its index and this.
  static constexpr std::uint32_t fill_tag = 1U << 30U;

  // Nothing older is found from now on. With the ranks' disk tiers only when reset_open is false.
  void reset();
  [[nodiscard]] bool reset_open() const { return reset_wanted_ || reset_planned_; }
  // As of the host tier: of one request.
  void release_path(Request& r) { index_.release_path(r.disk_run); }
  void close_run(Request& r) {
    index_.close_run(r.disk_run);
    r.disk_run = no_run;
  }

  // --- numbers
  [[nodiscard]] const DiskIndex& index() const { return index_; }
  [[nodiscard]] DiskIndex& index() { return index_; }
  [[nodiscard]] const DiskFlowCounters& counters() const { return counters_; }
  [[nodiscard]] const InventoryCounters& inventory() const { return merge_.counters(); }
  // Jobs of ranks that are open or wait for a plan.
  [[nodiscard]] std::uint64_t pending_jobs() const;
  [[nodiscard]] std::uint64_t open_spills() const { return jobs_.copies_of(JobKind::spill); }
  // Host entries that open fills write, and those that they will.
  [[nodiscard]] std::uint64_t filling() const { return jobs_.copies_of(JobKind::fill); }
  [[nodiscard]] std::uint32_t ranks_off() const { return ranks_off_; }
  // A JSON object.
  [[nodiscard]] std::string explain() const;
  [[nodiscard]] std::string verify() const;

 private:
  static constexpr std::uint32_t prefetches_max = 32;  // open at once: loads have the rest
  struct Note {
    SlotId entry = no_slot;
    RequestIndex request = no_request;
  };
  // One entry of a hit.
  struct Part {
    GroupId group = 0;
    const std::byte* key = nullptr;
    Tokens end;
  };
  // visit(part, wanted) for every entry of the hit, by group, ends ascending, and before those of
  // the chain for the ancestors that the device has and the host tier lacks (wanted: false).
  template <class Visit>
  void for_each_part(const Hit& hit, const KeyView& keys, Visit visit) const;
  void note(SlotId entry, RequestIndex request);
  [[nodiscard]] RunId run_of(Request& r);
  [[nodiscard]] bool spill_path(SlotId entry, const KeyView& path, RunId run);
  [[nodiscard]] bool spill_one(SlotId entry, const KeyView& path, RunId run);
  // `path` names the request's prefix that the entry holds.
  [[nodiscard]] bool on_path(SlotId entry, const KeyView& path) const;
  [[nodiscard]] bool demote(SlotId entry);
  // Fewer host slots than there should be are free.
  [[nodiscard]] bool short_of_slots(std::uint64_t coming = 0) const;
  void leave_host(const DiskCopy& copy);
  // The keys of scratch_ that the entry and its supports have; clear takes them out again.
  void lay_path(SlotId entry);
  void lay_key(Tokens end, const std::byte* key);
  void clear_path();
  [[nodiscard]] KeyView laid_path() const;
  void undo_fill(DiskJob& job);
  [[nodiscard]] bool take_part(const Part& part, RequestIndex request, DiskJob& job, SlotId& entry,
                               bool may_evict);
  void use_below(DiskJob& job, Request& r);
  void plan_prefetches(std::uint64_t room);
  void drop_prefetches();
  void fill_over(const DiskJob& job);
  void settle_fill(DiskJob& job);
  void finish(DiskJob& job);
  void finish_spill(DiskJob& job);
  void finish_reset(const DiskJob& job);
  void encode_copies(PlanEncoder& encoder, DiskJob& job);
  void encode_drops(PlanEncoder& encoder);
  void encode_reset(PlanEncoder& encoder);
  void encode_spills(PlanEncoder& encoder);
  void restore(const disk::InventoryEntry& entry);
  [[nodiscard]] bool restore_one(const disk::InventoryEntry& entry);
  void finish_restore();
  [[nodiscard]] PlanDiskBlock block_of(SlotId host, SlotId disk) const;
  [[nodiscard]] Status take_inventory(std::uint32_t rank, std::span<const std::uint8_t> bytes);
  void take_state(std::uint32_t rank, DiskState state, std::uint64_t report);

  const Geometry& geometry_;
  const DiskFlowOptions options_;
  const std::uint32_t key_bytes_;
  const std::uint32_t ranks_;
  const Tokens max_total_;
  const Tokens batch_;
  HostTier& host_;
  RequestTable& requests_;
  HostServices& services_;
  DiskIndex index_;
  BothTiers both_;
  DiskJobs jobs_;
  InventoryMerge merge_;
  DiskFlowCounters counters_;
  std::uint64_t path_entries_ = 0;  // of the longest request

  DiskJob* spills_ = nullptr;  // the job that waits for the next plan
  std::vector<Note> notes_;
  std::vector<SlotId> climb_;
  std::vector<SlotId> pinned_;
  std::vector<PlanDiskBlock> blocks_;
  std::vector<RequestIndex> drained_;
  std::vector<std::byte> scratch_;  // keys of a path of which only some are known
  std::vector<Tokens> laid_;
  std::uint64_t headroom_ = 0;  // on eviction: host slots that are to be free
  // A spill failed when so many were used: no further try before more are.
  bool paused_ = false;
  std::uint64_t paused_used_ = 0;
  std::vector<DiskJob*> fills_now_;   // of the plan at hand
  std::vector<DiskJob*> prefetches_;  // fills for no load, that wait for a plan
  std::uint32_t prefetching_ = 0;     // with those on their way
  SlotId publishing_ = no_slot;

  bool reset_wanted_ = false;
  bool reset_planned_ = false;
  bool clean_ = false;  // a reset has ended, and nothing was written since
  bool wrote_ = true;   // something was, since the last reset was planned
  std::vector<DiskState> states_;
  std::vector<std::uint64_t> state_reports_;  // number of the report that told it
  std::uint32_t ranks_off_ = 0;

  // A restart.
  std::uint64_t warming_since_ = 0;
  std::vector<disk::InventoryEntry> orphans_;  // wait for their parent
  RunId restore_run_ = no_run;
  std::uint64_t restored_in_run_ = 0;
};

}  // namespace kvc
