// The rank role of a connector with a host tier: turns plans into copies, and copies into verdicts
// and reports (design 2.4). Free of ABI types; plugin/edge unpacks kvc.h and calls this.
#pragma once
#include <array>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/copy_engine.h"
#include "plugin/core/result.h"
#include "plugin/offload/disk/disk_tier.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/rank_disk.h"
#include "plugin/offload/rank_layout.h"
#include "plugin/offload/rank_pages.h"
#include "plugin/offload/report_format.h"
#include "plugin/offload/scheduler_role.h"

namespace kvc {

inline constexpr std::uint64_t no_deadline_ms = UINT64_MAX;

struct RankOptions {
  std::uint32_t rank = 0;
  RankLayoutOptions layout;
  // By the host's clock from submit, checked in progress (design 2.4). no_deadline_ms: never.
  std::uint64_t load_deadline_ms = 30'000;
  std::uint64_t store_deadline_ms = 60'000;
  std::uint64_t report_bytes_max =
      std::uint64_t{256} * 1024;  // >= 4096; what does not fit travels in the next
  // Of the inventory of a disk tier at most so much with register_regions, the rest with reports.
  std::size_t first_inventory_bytes = std::size_t{64} << 20U;
  // A job is handed to the copy engine in parts of about so many copy descriptors (at least one
  // block each). The engine must have room for one part: runs_max >= this + the regions of a group.
  std::uint32_t part_descriptors = 1024;
  Bytes slab_bytes{std::uint64_t{64} << 20};  // unlimited pools grow by this much
  // A disk tier, opened by register_regions, which sets rank and sizes of blocks in it.
  std::optional<disk::DiskTierOptions> disk;
};

// This rank's part of a load has ended, or is past its deadline (status deadline).
struct LoadDone {
  Code status = Code::ok;
  RequestId request = 0;
  JobId job = 0;
  std::span<const FailedBlock> failed;  // not exhaustive: docs/formats/report.md
};

struct RankProgress {
  std::span<const LoadDone> loads;
  std::span<const std::uint8_t> report;  // empty: nothing to say
};

struct RankCounters {
  std::uint64_t loads_ok = 0;
  std::uint64_t loads_failed = 0;
  std::uint64_t stores_ok = 0;
  std::uint64_t stores_failed = 0;
  std::uint64_t jobs_late = 0;     // past their deadline
  std::uint64_t jobs_refused = 0;  // named a block, group or slot that must not be touched
  std::uint64_t loaded_bytes = 0;  // of parts that ended ok
  std::uint64_t stored_bytes = 0;
  std::uint64_t reports = 0;
};

// Threads:    one caller at a time (kvc.h [rank]); the copy engine has its own threads.
// Owns:       the copy engine, the host memory of the tier, all open jobs. Device regions and fence
//             counters are the engine's and stay valid until destruction, which stops all copies.
// Invariants: no byte outside the registered regions and the own pool is read or written, whatever
// a
//             plan says; each job is reported ended exactly once, each load has exactly one item;
//             a slot is loaded only if its last store ended ok; store -> load of one slot is
//             ordered.
class RankEngine {
 public:
  // `host` outlives the rank; `copies` is the backend for the device kind. Errors: arg.
  static Result<std::unique_ptr<RankEngine>> create(const RankOptions& options,
                                                    std::unique_ptr<CopyEngine> copies,
                                                    HostServices& host);
  ~RankEngine();
  RankEngine(const RankEngine&) = delete;
  RankEngine& operator=(const RankEngine&) = delete;

  // Once. The spans of the result live as long as the rank; usable_slots is 0 in it (set_ranks of
  // the scheduler role decides). The inventory is the first piece of that of the disk tier, the
  // others come with later reports (docs/formats/disk.md). Errors: those of RankLayout::make,
  // CopyEngine::attach and pin, and DiskTier::open; full: no host memory; state: called before.
  // After an error nothing is registered.
  Result<RankInfo> register_regions(std::span<const RankRegion> regions);

  // Each once per plan, steps ascending, in either order for one plan. Nothing was taken on error:
  // arg (malformed plan, job id 0 or open already, bad counter), state (no regions, foreign epoch,
  // step out of order or repeated), unsupported (fence kind), full (memory). A job that names what
  // must not be touched ends failed without moving a byte; the rest runs.
  Status submit_loads(std::span<const std::uint8_t> plan, const Fence& fence);
  Status submit_stores(std::span<const std::uint8_t> plan, const Fence& fence);

  // What ended since the last call, and what is past its deadline. Spans live until the next call.
  RankProgress progress();

  // Waits until the parts of `jobs` on this rank have ended (empty: all open ones; unknown ids
  // count as ended), for at most timeout_ns of the host's clock. ok, or later: they have not, or
  // nothing can end them before another call (a chained load whose stores were not submitted; a
  // copy engine without threads that can do nothing). Results come from progress.
  Code wait(std::span<const JobId> jobs, std::uint64_t timeout_ns);

  // What to wait for before `layer` (RankRegion::layer) of the loads in step of plan `step` is read
  // or written: kinds none (they are there, or there are none), counter and cuda_event, which are
  // reached when their copies have ended, well or not (kvc_layerwise.h). Code::later: some of them
  // are not with the device yet. Errors: state: no regions, or the loads of that plan were not
  // submitted.
  Status layer_fence(std::uint64_t step, std::uint32_t layer, Fence& out);

  // Does at most `budget` pieces of copy work in the calling thread, if the copy engine has no
  // threads of its own. later: the budget was used up.
  Code pump(std::uint32_t budget);

  [[nodiscard]] const RankCounters& counters() const { return counters_; }
  // Jobs whose end has not been reported by progress yet.
  [[nodiscard]] std::size_t open_jobs() const { return open_.size(); }
  // Host memory mapped for slots.
  [[nodiscard]] Bytes host_mapped() const;

  // Null without one, and before register_regions.
  [[nodiscard]] const disk::DiskTier* disk() const {
    return disk_ == nullptr ? nullptr : &disk_->tier();
  }

  // Slow check for tests; empty text: all invariants hold.
  [[nodiscard]] std::string verify() const;

 private:
  // Copies [first, end) of a job, of one layer or of all: what the copy engine gets at a time.
  struct Part {
    std::uint32_t first = 0;
    std::uint32_t end = 0;
    std::uint32_t layer = all_layers;  // index into RankLayout::layers()
  };
  static constexpr std::uint32_t all_layers = UINT32_MAX;
  static constexpr std::uint32_t none = UINT32_MAX;

  // The loads in step of one plan, which go layer by layer (rank_layers.cc). Records are reused,
  // and stay where they are.
  struct StepLoads {
    struct Layer {
      CopyMark mark;
      std::uint64_t parts = 0;  // that ever carried the mark
    };
    std::uint64_t step = 0;
    std::vector<Layer> layers;
    std::vector<std::uint32_t> jobs;  // as long as parts of one are not at the copy engine
    std::size_t next_layer = 0;       // the first that is not wholly at the copy engine
    std::uint32_t jobs_open = 0;      // that have not ended
  };

  // One job of a plan. Records are reused, their vectors keep their room.
  struct Job {
    JobId id = 0;
    RequestId request = 0;
    JobKind kind = JobKind::load;
    Fence fence;
    std::vector<PlanCopy> copies;
    std::vector<Part> parts;
    std::vector<std::uint64_t> after;    // operations that its parts come after, of loads in step
    std::uint32_t step_loads = none;     // index into step_loads_, of a load in step
    std::uint64_t awaits_stores_of = 0;  // step; 0: none (design 2.4: chained loads)
    std::uint64_t deadline_ns = UINT64_MAX;
    std::uint32_t next_part = 0;   // first part that the copy engine has not got
    std::uint32_t parts_open = 0;  // parts that the copy engine has
    std::uint32_t marked = 0;      // copies whose slots are marked as read or written by this job
    std::uint64_t moved_bytes = 0;
    Code status = Code::ok;
    std::vector<FailedBlock> failed;
    bool in_step = false;
    bool in_backlog = false;  // and `fence` is counted in captures_, if it is a captured one
    bool ended = false;
    bool late = false;
    bool free = true;
  };
  struct Due {
    std::uint32_t job = 0;
    JobId id = 0;
  };
  enum class Fed { done, blocked, full };
  static constexpr std::size_t chain_max = 16;  // operations that a chained load may name

  RankEngine(const RankOptions& options, std::unique_ptr<CopyEngine> copies, HostServices& host);

  // Accepting plans (rank_submit.cc).
  Status submit(JobKind kind, std::span<const std::uint8_t> plan, const Fence& fence);
  Status check_plan(JobKind kind, const PlanView& plan) const;
  Status check_fence(const Fence& fence) const;
  Status check_disk_jobs(JobKind kind, const PlanView& plan) const;
  Status take_jobs(PlanReader jobs);
  void give_back(std::uint32_t at);
  std::uint32_t take_record();
  void start(std::uint32_t at, const Fence& fence, std::uint64_t step, std::uint64_t now);
  void check_copies(Job& job);
  [[nodiscard]] bool chained(const Job& job, std::uint64_t step) const;
  [[nodiscard]] SlotState& state(const PlanCopy& copy) const;
  void mark_load(Job& job);
  void mark_store(std::uint32_t at);
  void unmark(std::uint32_t at);
  void announce(const PlanView& plan, bool on);
  void release_chained(std::uint64_t step);
  void note_step(JobKind kind, std::uint64_t step);
  void enter_backlog(std::uint32_t at);
  void leave_backlog(Job& job);
  void drop_capture(const Fence& fence);
  Status take_plan(JobKind kind, const PlanView& plan, const Fence& fence);
  void split(Job& job) const;
  // Parts of the copies in one layer, or in all.
  void split_layer(Job& job, std::uint32_t layer) const;
  void fail(Job& job, const PlanCopy& copy, Code status, FailedSide side) const;
  void refuse(const Job& job);

  // Loads in step (rank_layers.cc).
  void join_step(std::uint32_t at, std::uint64_t step);
  void leave_step(const Job& job);
  bool feed_steps();
  Fed feed_step(StepLoads& loads);
  [[nodiscard]] bool resolve_step(const StepLoads& loads);
  [[nodiscard]] std::string verify_steps() const;

  // Moving bytes (rank_engine.cc).
  std::uint64_t pump_some(std::uint64_t budget);
  Status open_disk(RankLayout& layout, RankPages& pages, std::unique_ptr<RankDisk>& disk);
  void advance();
  void collect();
  void feed();
  Fed feed_job(std::uint32_t at);
  [[nodiscard]] bool resolve_sources(Job& job);
  // Hands the job's next part over; false: there is no room. What cannot be handed over at all
  // fails the job.
  [[nodiscard]] bool feed_part(std::uint32_t at, std::span<const std::uint64_t> after);
  Status submit_part(std::uint32_t at, const Part& part, std::span<const std::uint64_t> after);
  // Parts that the copy engine has not got are not worth it any more.
  void drop_parts(Job& job);
  [[nodiscard]] std::span<const RankLayout::Piece> pieces(const Part& part,
                                                          std::uint32_t group) const {
    return part.layer == all_layers ? layout_->pieces(group) : layout_->pieces(group, part.layer);
  }
  void part_ended(const CopyCompletion& completion);
  void part_failed(Job& job, const Part& part, const CopyCompletion& completion);
  void end_if_done(std::uint32_t at);
  void end_job(std::uint32_t at);
  [[nodiscard]] bool any_open(std::span<const JobId> jobs) const;
  void ops_of(std::span<const JobId> jobs, std::vector<std::uint64_t>& out) const;

  // Saying what happened.
  bool tell_late(JobKind kind, std::uint64_t now);
  bool tell(const Job& job, ReportPhase phase);
  bool tell_disk();
  bool disk_news();

  RankOptions options_;
  HostServices& host_;
  std::unique_ptr<RankLayout> layout_;
  std::unique_ptr<RankPages> pages_;
  std::unique_ptr<RankDisk> disk_;       // null: there is none
  std::vector<std::uint8_t> inventory_;  // the piece that register_regions or progress hands over
  // Destroyed before the memory above: its destructor stops all copies.
  std::unique_ptr<CopyEngine> copies_;

  bool epoch_known_ = false;
  std::uint64_t epoch_ = 0;
  std::array<std::uint64_t, 2> last_step_{};  // by direction
  std::uint64_t unbroken_from_ = 0;           // loads of the steps from here to the last one came
  std::deque<Job> jobs_;
  std::vector<std::uint32_t> free_jobs_;
  boost::unordered_flat_map<JobId, std::uint32_t> open_;  // until progress told its end
  std::array<std::vector<std::uint32_t>, 2> backlog_;     // not wholly at the copy engine
  std::array<std::deque<Due>, 2> due_;                    // by deadline, ascending
  std::deque<std::uint32_t> ended_;                       // not told yet
  std::vector<std::uint32_t> told_;                       // spans of the last progress read them
  std::uint64_t parts_at_engine_ = 0;
  std::deque<StepLoads> step_loads_;
  std::vector<std::uint32_t> open_steps_;  // records with open jobs, steps ascending
  std::vector<std::uint32_t> free_steps_;
  // Captured fences, and how many jobs of the backlog still need each.
  struct Captured {
    Fence fence;
    std::uint32_t jobs = 0;
  };
  std::vector<Captured> captures_;

  std::vector<LoadDone> items_;
  std::vector<std::uint8_t> report_buffer_;
  ReportEncoder report_;
  DiskState disk_told_ = DiskState::on;
  std::uint64_t report_sequence_ = 0;
  RankCounters counters_;
  // Reused between calls.
  std::vector<CopyDescriptor> descriptors_;
  std::vector<std::uint64_t> after_;
  std::vector<std::uint32_t> writers_;
  std::vector<std::uint32_t> taken_;
};

}  // namespace kvc
