#include "plugin/offload/flows/plan_flow.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

// Room for jobs without copies and for many requests in one plan, where nothing says how many.
constexpr std::uint64_t jobs_per_plan = 256;
// Copies of a plan when the lengths have no bound (measuring only).
constexpr std::uint64_t copies_unbounded = std::uint64_t{1} << 18U;
// Rows of a step that need no memory after open; beyond it they take some once.
constexpr std::uint64_t rows_reserved = 4096;

std::uint64_t copies_of_load(const Geometry& geometry, Tokens total) {
  std::uint64_t copies = 0;
  for (const GroupId g : geometry.cacheable()) {
    // The widest needed set: whole prefixes of full attention, windows, one state.
    const std::uint64_t last = geometry.end_position(g, total);
    copies += last - std::min(last, geometry.first_needed_position(g, total)) + 1;
  }
  return copies;
}

}  // namespace

Result<std::uint64_t> plan_room_bytes(const Geometry& geometry, const OpenLimits& limits,
                                      const FlowOptions& options) {
  const bool bounded = limits.max_total_tokens != no_token_limit;
  const std::uint64_t load =
      bounded ? copies_of_load(geometry, limits.max_total_tokens) : copies_unbounded;
  const std::uint64_t least = plan_bytes(1, load);
  if (options.plan_bytes_max != 0) {
    if (bounded && options.plan_bytes_max < least) {
      return {Code::arg,
              fmt::format("plan_bytes_max {} has no room for one load of {} tokens: {} blocks need "
                          "{} bytes",
                          options.plan_bytes_max, limits.max_total_tokens.n, load, least)};
    }
    return options.plan_bytes_max;
  }
  // Four of the longest loads, and the blocks, tails and states of one full step.
  std::uint64_t copies = 4 * load;
  const Tokens batch = std::min(limits.max_batch_tokens, Tokens{std::uint64_t{1} << 20U});
  const std::uint64_t running = std::min<std::uint64_t>(limits.max_running, 4096);
  for (const GroupId g : geometry.cacheable()) {
    // As candidates twice as many leave the device's queue.
    copies +=
        (options.store_when_filled ? 1 : 2) * blocks_touched(batch, geometry.block_tokens(g)).n +
        2 * running;
  }
  return plan_bytes(jobs_per_plan + running, copies);
}

PlanFlow::PlanFlow(SchedulerCore& core, Admissions& admissions, StorePlanner& planner,
                   HandoffPlanner& handoffs, StorePolicy& policy, LookupFlow& lookups,
                   std::uint64_t plan_bytes_max)
    : core_(core),
      admissions_(admissions),
      planner_(planner),
      handoffs_(handoffs),
      policy_(policy),
      lookups_(lookups),
      buffer_(plan_bytes_max + core.disk.plan_bytes()),
      encoder_(std::span(buffer_.data(), buffer_.size())),
      disk_room_(core.disk.plan_bytes()) {
  encoder_.set_aside(disk_room_);
  copies_max_ = (plan_bytes_max - plan_bytes(1, 0)) / plan_copy_bytes;
  const Tokens longest = core.limits.max_total_tokens;
  load_copies_ = longest == no_token_limit
                     ? std::min(copies_unbounded, copies_max_ / 2)
                     : std::min(copies_of_load(core.geometry, longest), copies_max_);
  jobs_.reserve(plan_bytes_max / plan_job_bytes);
  held_.reserve(copies_max_);
  rows_.resize(std::min(core.limits.max_running, rows_reserved), no_request);
}

void PlanFlow::preempt(std::span<const RequestId> ids) {
  for (const RequestId id : ids) {
    const RequestIndex index =
        core_.find_listed(id, no_request, "KVC-H-049, unknown-request", "preempted");
    if (index == no_request) continue;
    Request& r = core_.requests[index];
    if (r.preemption_known) continue;  // a lookup told of it; it may be admitted again by now
    const bool loading = r.load != 0 && !core_.limits.rank_verdicts;
    if (!r.admitted || loading) {
      core_.faults.report("KVC-H-049, preempted-not-running", "request {} is preempted and {}", id,
                          loading ? "waits for its load" : "not admitted");
      continue;
    }
    admissions_.preempt(index);
  }
}

// As encode_waiting_loads goes about it. Each load that waits is looked at once: what stands before
// it in the line does not change until the plan is made.
bool PlanFlow::next_plan_has(const Job& wanted) {
  while (counted_ == nullptr || counted_->id < wanted.id) {
    KVC_OP(job, 1);
    Job* const job = counted_ == nullptr ? core_.jobs.waiting(JobKind::load)
                                         : core_.jobs.next_waiting(*counted_);
    KVC_CHECK(job != nullptr);
    const std::uint64_t before = counted_ == nullptr ? 0 : counted_->copies_in_line;
    job->copies_in_line = before + job->copies + job_copies;
    // How much of the disk the plan reads is known when it is made.
    job->fills_in_line =
        (counted_ != nullptr && counted_->fills_in_line) || core_.disk.fill_bytes(job->id) != 0;
    counted_ = job;
  }
  if (wanted.fills_in_line || wanted.copies_in_line + waiting_stores_ > copies_max_) return false;
  promised_ = std::max(promised_, wanted.copies_in_line);
  return true;
}

Status PlanFlow::load_in_step(RequestId request, JobId id) {
  const RequestIndex index = core_.find(request).index;
  Job* const job = core_.jobs.find(id);
  if (index == no_request || core_.requests[index].load != id || job == nullptr) {
    return {Code::arg, fmt::format("request {}: job {} is not its open load", request, id)};
  }
  if (job->planned) {
    return {Code::state, fmt::format("request {}: load job {} was in a plan already", request, id)};
  }
  if (job->without_copies || job->copies == 0 || !next_plan_has(*job)) return {Code::later, {}};
  core_.counters.loads_in_step += job->in_step ? 0 : 1;
  job->in_step = true;
  core_.requests[index].in_step = true;
  return {};
}

bool PlanFlow::take_confirmed(RequestIndex index, const ScheduledRequest& s) {
  Request& r = core_.requests[index];
  if (r.load != 0 && r.in_step && s.confirmed > r.device && !core_.limits.rank_verdicts) {
    core_.faults.report("KVC-H-071, confirmed-before-loaded",
                        "request {} has {} confirmed tokens, and what is behind {} comes of load "
                        "job {}, which has no verdict",
                        r.id, s.confirmed.n, r.device.n, r.load);
    return false;
  }
  if (r.load != 0 && !r.in_step && !core_.limits.rank_verdicts) {
    core_.faults.report("KVC-H-046, scheduled-while-loading",
                        "request {} is scheduled, load job {} has no "
                        "verdict",
                        r.id, r.load);
    return false;
  }
  if (s.confirmed < r.confirmed || s.confirmed > core_.limits.max_total_tokens) {
    core_.faults.report("KVC-H-041, confirmed-fell",
                        "request {} has {} confirmed tokens after {}; at most {} are possible",
                        r.id, s.confirmed.n, r.confirmed.n, core_.limits.max_total_tokens.n);
    return false;
  }
  r.confirmed = s.confirmed;
  return true;
}

// The request of a row will be looked at soon: the farther ahead, the less of what it points to is
// there yet.
void PlanFlow::expect(const ScheduledRequest& s, RequestIndex guess,
                      std::size_t blocks_ahead) const {
  if (blocks_ahead == 4) return core_.requests.prefetch(guess);
  if (guess >= core_.requests.capacity()) return;
  const Request& r = core_.requests[guess];
  if (!r.live) return;
  if (blocks_ahead == 3) {
    core_.tier.expect_schedule(r.run);
    core_.explain.expect_put_confirmed(r.explain_ticket);
  }
  admissions_.expect_tables(guess, s.tables, blocks_ahead);
  planner_.expect_step(guess, s.confirmed, blocks_ahead);
}

// In blocks of rows: while one is worked on, memory of the next four is fetched, step by step.
void PlanFlow::schedule_all(std::span<const ScheduledRequest> scheduled,
                            StoreSelection& selection) {
  constexpr std::size_t block = 16;
  constexpr std::size_t most_ahead = 4;
  if (rows_.size() < scheduled.size()) rows_.resize(scheduled.size(), no_request);
  const std::size_t blocks = ceil_div(scheduled.size(), block);
  // `at`: the block that is worked on, + 4.
  for (std::size_t at = 0; at < blocks + most_ahead; ++at) {
    for (std::size_t ahead = most_ahead; ahead <= most_ahead; --ahead) {
      if (at + ahead < most_ahead || at + ahead - most_ahead >= blocks) continue;
      const std::size_t first = (at + ahead - most_ahead) * block;
      for (std::size_t i = first; i < std::min(first + block, scheduled.size()); ++i) {
        if (ahead == 0) {
          schedule(scheduled[i], rows_[i], selection);
        } else {
          expect(scheduled[i], rows_[i], ahead);
        }
      }
    }
  }
}

void PlanFlow::schedule(const ScheduledRequest& s, RequestIndex& row, StoreSelection& selection) {
  KVC_OP(request, 1);
  const RequestIndex index =
      core_.find_listed(s.request, row, "KVC-H-023, unknown-request", "scheduled");
  row = index;
  if (index == no_request) return;
  Request& r = core_.requests[index];
  if (r.scheduled_step == core_.step) {
    core_.faults.report("KVC-H-040, scheduled-twice", "request {} stands twice in step {}", r.id,
                        core_.step);
    return;
  }
  if (s.resumed && r.admitted && r.confirmed > Tokens{}) {
    core_.faults.report("KVC-H-045, resumed-while-running",
                        "request {} is resumed and was not preempted", r.id);
    admissions_.preempt(index);
  }
  r.scheduled_step = core_.step;
  if (!r.admitted || r.load_failed) admissions_.admit(index);
  admissions_.set_tables(index, s.tables);
  core_.tier.schedule(r.run);
  const Tokens before = r.confirmed;
  if (!take_confirmed(index, s)) return;
  if (core_.gate.measures_prefill()) note_prefill(r, before);
  if (!r.dirty) core_.explain.put_confirmed(r.explain_ticket, r.confirmed);
  planner_.offer_step(index, selection);
}

void PlanFlow::note_prefill(Request& r, Tokens before) {
  if (r.prefilled_step != 0 && r.prefilled_step + 1 == core_.step) core_.gate.went_on();
  const Tokens from = std::max(before, r.computed_from);
  const Tokens end = std::min(r.confirmed, r.prompt);
  if (end <= from) return;
  r.prefilled_step = core_.step;
  core_.gate.prefilled(end - from);
}

bool PlanFlow::encode(Job& job) {
  const std::uint64_t copies = job.without_copies ? 0 : job.copies;
  const std::uint64_t fit = encoder_.copies_that_fit();
  if (fit == PlanEncoder::no_job || fit < copies) return false;
  const bool fills = job.kind == JobKind::load && core_.disk.filling() != 0;
  const std::uint64_t fill = fills && !job.without_copies ? core_.disk.fill_bytes(job.id) : 0;
  if (fill > fill_room_) return false;
  fill_room_ -= fill;
  // Ranks say the same as the verdict will: an engine may act on their items (design 2.4).
  const Code outcome = job.without_copies ? job.forced : Code::ok;
  KVC_CHECK(encoder_.begin_job(job.kind, job.id, job.request, outcome, job.in_step));
  if (copies != 0) {
    core_.jobs.for_each_copy(job, [&](const CopyRecord& copy) {
      KVC_CHECK(encoder_.add_copy(
          {copy.group, core_.tier.slot_number(copy.entry), copy.block, copy.position}));
    });
  }
  encoder_.end_job();
  if (fill != 0) core_.disk.plan_fill(job.id);
  if (fills && job.without_copies) core_.disk.cancel_fill(job.id);
  jobs_.push_back({job.kind, job.id, job.request, {}});
  return true;
}

// As far as they leave room for the stores that wait.
void PlanFlow::encode_waiting_loads() {
  while (Job* job = core_.jobs.waiting(JobKind::load)) {
    const std::uint64_t fit = encoder_.copies_that_fit();
    if (fit == PlanEncoder::no_job || fit < job->copies + waiting_stores_) break;
    if (!encode(*job)) break;
    if (job->forced == Code::ok) job->started_ns = core_.host.now_ns();
    core_.jobs.pop_waiting(JobKind::load);
  }
  promised_ = 0;
  counted_ = nullptr;
}

void PlanFlow::encode_waiting_stores() {
  while (Job* job = core_.jobs.waiting(JobKind::store)) {
    KVC_CHECK(encode(*job));
    core_.jobs.pop_waiting(JobKind::store);
  }
  waiting_stores_ = 0;
}

std::uint64_t PlanFlow::room_for_new() const {
  const std::uint64_t fit = encoder_.copies_that_fit();
  return fit == PlanEncoder::no_job ? 0 : fit;
}

void PlanFlow::encode_new(Job* job) {
  if (job == nullptr) return;
  KVC_CHECK(core_.jobs.waiting(JobKind::store) == job);
  KVC_CHECK(encode(*job));
  core_.jobs.pop_waiting(JobKind::store);
  job->started_ns = core_.host.now_ns();
  core_.jobs.for_each_copy(*job, [&](const CopyRecord& copy) {
    held_.push_back({copy.group, copy.block, copy.position});
  });
  sort_deepest_first(core_.geometry, held_);
  jobs_.back().held = held_;
}

Result<PlanResult> PlanFlow::build(const StepRecord& step) {
  if (step.step != core_.step + 1) {
    return {Code::arg, fmt::format("step {} follows step {}", step.step, core_.step)};
  }
  core_.step = step.step;
  jobs_.clear();
  held_.clear();
  core_.tick();
  lookups_.end_old_leases();
  encoder_.begin(core_.epoch, step.step);
  fill_room_ = core_.disk.fill_room();
  if (core_.gate.measures_prefill()) core_.gate.begin_step(core_.host.now_ns());
  encode_waiting_loads();
  encode_waiting_stores();
  preempt(step.preempted);
  StoreSelection selection(core_, room_for_new());
  schedule_all(step.scheduled, selection);
  handoffs_.offer(step.handoffs, selection);
  Job* evicted = policy_.offer_candidates(core_, step.candidates, selection.room());
  // Only one of them stores: FlowOptions::store_when_filled.
  KVC_CHECK(evicted == nullptr || selection.job() == nullptr);
  encode_new(evicted != nullptr ? evicted : selection.job());
  core_.requests.forget_notices();
  core_.gate.end_step();
  core_.disk.settle_notes();
  core_.disk.encode(encoder_, fill_room_);
  return PlanResult{step.step, jobs_, encoder_.finish()};
}

}  // namespace kvc
