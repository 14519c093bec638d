// Accepting plans: every check before the first byte, and which job touches which slot.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "plugin/offload/rank_engine.h"

namespace kvc {

namespace {

std::size_t index_of(JobKind kind) { return kind == JobKind::load ? 0 : 1; }

const char* name_of(JobKind kind) { return kind == JobKind::load ? "load" : "store"; }

constexpr std::size_t failed_max = 64;  // named per job: docs/formats/report.md

}  // namespace

Status RankEngine::submit_loads(std::span<const std::uint8_t> plan, const Fence& fence) {
  return submit(JobKind::load, plan, fence);
}

Status RankEngine::submit_stores(std::span<const std::uint8_t> plan, const Fence& fence) {
  return submit(JobKind::store, plan, fence);
}

Status RankEngine::submit(JobKind kind, std::span<const std::uint8_t> bytes, const Fence& fence) {
  if (layout_ == nullptr) {
    return {Code::state, fmt::format("rank {}: no regions are registered", options_.rank)};
  }
  if (Status s = check_fence(fence); !s.ok()) return s;
  const auto read = PlanView::read(bytes);
  if (!read.ok()) return read.error();
  const PlanView& plan = read.value();
  if (Status s = check_plan(kind, plan); !s.ok()) return s;
  if (Status s = check_disk_jobs(kind, plan); !s.ok()) return s;
  // What the fence means is settled now, however much later its copies are handed over.
  const Result<Fence> meant = copies_->capture(fence);
  if (!meant.ok()) {
    return {meant.error().code, fmt::format("rank {}: {}", options_.rank, meant.error().text)};
  }
  const bool captured = meant.value().kind == FenceKind::captured;
  if (captured) captures_.push_back({meant.value(), 1});
  const Status s = take_plan(kind, plan, meant.value());
  if (captured) drop_capture(meant.value());
  if (s.ok()) advance();
  return s;
}

Status RankEngine::take_plan(JobKind kind, const PlanView& plan, const Fence& fence) {
  if (Status s = take_jobs(kind == JobKind::load ? plan.loads() : plan.stores()); !s.ok()) return s;
  epoch_known_ = true;
  epoch_ = plan.epoch();
  note_step(kind, plan.step());
  // Loads of this plan may read what its stores will write, whichever is submitted first.
  if (kind == JobKind::store) {
    announce(plan, false);
  } else if (plan.step() > last_step_[1] && plan.load_jobs() != 0) {
    announce(plan, true);
  }
  const std::uint64_t now = host_.now_ns();
  for (const std::uint32_t at : taken_) start(at, fence, plan.step(), now);
  if (kind == JobKind::store) {
    // Loads that wait for this see what the disk fills as being written.
    if (disk_ != nullptr) disk_->take(plan.disk());
    release_chained(plan.step());
  }
  return {};
}

// Nobody here knows the jobs of a plan that did not come, so nobody can end them.
void RankEngine::note_step(JobKind kind, std::uint64_t step) {
  std::uint64_t& last = last_step_[index_of(kind)];
  const bool gap = last != 0 && step != last + 1;
  if (gap) {
    host_.log(LogLevel::peer_fault,
              fmt::format("KVC-H-050: rank {}: {} jobs of step {} after those of step {}: what is "
                          "between did not come, and its jobs do not end",
                          options_.rank, name_of(kind), step, last));
  }
  if (kind == JobKind::load && (gap || last == 0)) unbroken_from_ = step;
  last = step;
}

Status RankEngine::check_fence(const Fence& fence) const {
  if (!copies_->supports(fence.kind)) {
    return {Code::unsupported, fmt::format("rank {}: fences of kind {} are not supported",
                                           options_.rank, static_cast<unsigned>(fence.kind))};
  }
  if (fence.kind == FenceKind::counter &&
      (fence.counter == nullptr || reinterpret_cast<std::uintptr_t>(fence.counter) % 8 != 0)) {
    return {Code::arg, fmt::format("rank {}: fence counter {} is null or not aligned to 8 bytes",
                                   options_.rank, static_cast<const void*>(fence.counter))};
  }
  return {};
}

Status RankEngine::check_plan(JobKind kind, const PlanView& plan) const {
  if (epoch_known_ && plan.epoch() != epoch_) {
    return {Code::state, fmt::format("rank {}: plan of epoch {:#x}, the plans before were of {:#x}",
                                     options_.rank, plan.epoch(), epoch_)};
  }
  if (const std::uint64_t last = last_step_[index_of(kind)]; plan.step() <= last) {
    return {Code::state, fmt::format("rank {}: {} jobs of step {} after those of step {}",
                                     options_.rank, name_of(kind), plan.step(), last)};
  }
  return {};
}

// Disk jobs come with the stores of their plan: they follow them.
Status RankEngine::check_disk_jobs(JobKind kind, const PlanView& plan) const {
  if (kind == JobKind::load || plan.disk_jobs() == 0) return {};
  if (disk_ == nullptr) {
    return {Code::unsupported,
            fmt::format("rank {}: {} disk jobs and no disk tier", options_.rank, plan.disk_jobs())};
  }
  return disk_->check(plan.disk());
}

// Fills taken_ with records of all jobs of the section, or takes none.
Status RankEngine::take_jobs(PlanReader jobs) {
  taken_.clear();
  Status error;
  try {
    PlanJob from;
    while (jobs.next(from)) {
      const std::uint32_t at = take_record();
      taken_.push_back(at);
      Job& job = jobs_[at];
      if (from.job() == 0 || !open_.try_emplace(from.job(), at).second) {
        error = {Code::arg,
                 fmt::format("rank {}: job id {} is 0 or open already", options_.rank, from.job())};
        break;
      }
      job.id = from.job();
      job.request = from.request();
      job.kind = from.kind();
      job.status = from.outcome();
      job.in_step = from.in_step();
      job.copies.reserve(from.size());
      for (std::uint64_t i = 0; i < from.size(); ++i) job.copies.push_back(from.copy(i));
    }
  } catch (const std::bad_alloc&) {
    error = {Code::full, fmt::format("rank {}: no memory for the jobs of a plan", options_.rank)};
  }
  if (!error.ok()) {
    for (const std::uint32_t at : taken_) {
      if (jobs_[at].id != 0) open_.erase(jobs_[at].id);
      give_back(at);
    }
    taken_.clear();
  }
  return error;
}

std::uint32_t RankEngine::take_record() {
  if (free_jobs_.empty()) {
    jobs_.emplace_back();
    // Room for all records, so that give_back never allocates.
    free_jobs_.reserve(jobs_.size());
    free_jobs_.push_back(static_cast<std::uint32_t>(jobs_.size() - 1));
  }
  const std::uint32_t at = free_jobs_.back();
  free_jobs_.pop_back();
  jobs_[at].free = false;
  return at;
}

void RankEngine::give_back(std::uint32_t at) {
  Job& job = jobs_[at];
  KVC_CHECK(!job.free && job.parts_open == 0 && job.marked == 0);
  Job empty;
  empty.copies = std::move(job.copies);
  empty.parts = std::move(job.parts);
  empty.after = std::move(job.after);
  empty.failed = std::move(job.failed);
  empty.copies.clear();
  empty.parts.clear();
  empty.after.clear();
  empty.failed.clear();
  job = std::move(empty);
  free_jobs_.push_back(at);
}

void RankEngine::start(std::uint32_t at, const Fence& fence, std::uint64_t step,
                       std::uint64_t now) {
  Job& job = jobs_[at];
  job.fence = fence;
  const std::uint64_t ms =
      job.kind == JobKind::load ? options_.load_deadline_ms : options_.store_deadline_ms;
  if (ms != no_deadline_ms) {
    job.deadline_ns = ms > (UINT64_MAX - now) / 1'000'000 ? UINT64_MAX : now + ms * 1'000'000;
    due_[index_of(job.kind)].push_back({at, job.id});
  }
  // Decided by the scheduler role: nothing moves, and items and reports say so (design 2.3).
  if (job.status != Code::ok) return end_job(at);
  check_copies(job);
  if (job.status == Code::ok) {
    if (job.kind == JobKind::store) {
      mark_store(at);
    } else if (chained(job, step)) {
      // The forward that its sources are stored behind waits for it.
      if (job.in_step) fail(job, job.copies.front(), Code::state, FailedSide::destination);
      job.awaits_stores_of = step;
    } else {
      mark_load(job);
    }
  }
  if (job.status != Code::ok) refuse(job);
  if (job.status != Code::ok || job.copies.empty()) {
    end_job(at);
    return;
  }
  split(job);
  if (job.in_step) return join_step(at, step);
  backlog_[index_of(job.kind)].push_back(at);
  enter_backlog(at);
}

void RankEngine::enter_backlog(std::uint32_t at) {
  Job& job = jobs_[at];
  job.in_backlog = true;
  for (Captured& c : captures_) {
    if (job.fence.kind == FenceKind::captured && c.fence.handle == job.fence.handle) ++c.jobs;
  }
}

void RankEngine::leave_backlog(Job& job) {
  job.in_backlog = false;
  if (job.fence.kind == FenceKind::captured) drop_capture(job.fence);
}

void RankEngine::drop_capture(const Fence& fence) {
  const auto it = std::find_if(captures_.begin(), captures_.end(),
                               [&](const Captured& c) { return c.fence.handle == fence.handle; });
  KVC_CHECK(it != captures_.end());
  if (--it->jobs != 0) return;
  copies_->release(it->fence);
  captures_.erase(it);
}

// A job that names what does not exist ends failed before it touches anything (CW-7).
void RankEngine::check_copies(Job& job) {
  const bool load = job.kind == JobKind::load;
  const FailedSide slot_side = load ? FailedSide::source : FailedSide::destination;
  const FailedSide block_side = load ? FailedSide::destination : FailedSide::source;
  for (const PlanCopy& copy : job.copies) {
    if (copy.group >= layout_->groups() || layout_->class_of(copy.group) == RankLayout::no_class) {
      fail(job, copy, Code::arg, FailedSide::source);
    } else if (!layout_->in_range(copy.group, copy.block)) {
      fail(job, copy, Code::arg, block_side);
    } else if (const std::uint32_t cls = layout_->class_of(copy.group); !load) {
      const Code code = pages_->claim(cls, copy.slot);
      if (code != Code::ok) fail(job, copy, code, slot_side);
    } else if (!pages_->owned(cls, copy.slot)) {
      // Nothing was ever stored there, or by another class since.
      fail(job, copy, pages_->in_range(cls, copy.slot) ? Code::io : Code::arg, slot_side);
    }
  }
}

bool RankEngine::chained(const Job& job, std::uint64_t step) const {
  if (step <= last_step_[1]) return false;
  return std::any_of(job.copies.begin(), job.copies.end(),
                     [&](const PlanCopy& copy) { return state(copy).awaited != 0; });
}

void RankEngine::mark_load(Job& job) {
  for (const PlanCopy& copy : job.copies) {
    // A chained load may have waited while its page changed hands.
    if (!pages_->owned(layout_->class_of(copy.group), copy.slot)) {
      fail(job, copy, Code::io, FailedSide::source);
      return;
    }
    SlotState& s = state(copy);
    if (s.readers == UINT16_MAX) {
      fail(job, copy, Code::full, FailedSide::destination);
      return;
    }
    ++s.readers;
    ++job.marked;
  }
}

// A slot that an open job still reads or writes is not free, whatever the plan says.
void RankEngine::mark_store(std::uint32_t at) {
  Job& job = jobs_[at];
  for (const PlanCopy& copy : job.copies) {
    // Two classes on one page in one plan: the later one has it.
    if (!pages_->owned(layout_->class_of(copy.group), copy.slot)) {
      fail(job, copy, Code::state, FailedSide::destination);
      return;
    }
    SlotState& s = state(copy);
    const bool own = s.writer == at + 1;
    if (!own && (s.writer != 0 || s.readers != 0)) {
      fail(job, copy, Code::state, FailedSide::destination);
      return;
    }
    // The places of a slot are written once each and without a hole (OW-28).
    if (layout_->place_of(copy.group, copy.position) != (own ? s.written : 0U)) {
      fail(job, copy, Code::state, FailedSide::destination);
      return;
    }
    s.writer = at + 1;
    s.written = static_cast<std::uint8_t>(own ? s.written + 1 : 1);
    ++job.marked;
  }
}

// Ends what mark_load or mark_store began: a slot that was stored is good iff the job is.
void RankEngine::unmark(std::uint32_t at) {
  Job& job = jobs_[at];
  for (std::uint32_t i = 0; i < job.marked; ++i) {
    SlotState& s = state(job.copies[i]);
    if (job.kind == JobKind::load) {
      KVC_CHECK(s.readers != 0);
      --s.readers;
    } else {
      // With the first place of a slot the whole of it.
      if (layout_->place_of(job.copies[i].group, job.copies[i].position) != 0) continue;
      KVC_CHECK(s.writer == at + 1);
      s.writer = 0;
      if (job.status != Code::ok) s.written = 0;
    }
  }
  job.marked = 0;
}

// Marks, or unmarks, the slots that the stores and fills of `plan` are going to write.
void RankEngine::announce(const PlanView& plan, bool on) {
  const auto mark = [&](std::uint32_t group, std::uint32_t slot) {
    if (group >= layout_->groups()) return;
    const std::uint32_t cls = layout_->class_of(group);
    if (cls == RankLayout::no_class || pages_->claim(cls, slot) != Code::ok) return;
    pages_->state(cls, slot).awaited = on ? 1 : 0;
  };
  PlanReader stores = plan.stores();
  PlanJob job;
  while (stores.next(job)) {
    for (std::uint64_t i = 0; i < job.size(); ++i) {
      const PlanCopy copy = job.copy(i);
      mark(copy.group, copy.slot);
    }
  }
  if (disk_ == nullptr) return;
  PlanReader disk = plan.disk();
  while (disk.next(job)) {
    if (job.kind() != JobKind::fill) continue;
    for (std::uint64_t i = 0; i < job.size(); ++i) {
      const PlanDiskBlock block = job.disk_block(i);
      mark(block.group, block.slot);
    }
  }
}

// The stores of `step` are in: loads that waited for them know their sources now.
void RankEngine::release_chained(std::uint64_t step) {
  auto& loads = backlog_[0];
  for (std::size_t i = 0; i < loads.size();) {
    const std::uint32_t at = loads[i];
    Job& job = jobs_[at];
    if (job.awaits_stores_of != 0 && job.awaits_stores_of <= step) {
      job.awaits_stores_of = 0;
      mark_load(job);
      if (job.status != Code::ok) {
        loads.erase(loads.begin() + static_cast<std::ptrdiff_t>(i));
        leave_backlog(job);
        end_job(at);
        continue;
      }
    }
    ++i;
  }
}

void RankEngine::split(Job& job) const {
  if (!job.in_step) return split_layer(job, all_layers);
  for (std::uint32_t i = 0; i < layout_->layers().size(); ++i) split_layer(job, i);
}

void RankEngine::split_layer(Job& job, std::uint32_t layer) const {
  Part part{0, 0, layer};
  std::uint64_t descriptors = 0;
  for (std::uint32_t i = 0; i < job.copies.size(); ++i) {
    const std::size_t more = pieces(part, job.copies[i].group).size();
    if (descriptors != 0 && descriptors + more > options_.part_descriptors) {
      job.parts.push_back(part);
      part.first = i;
      descriptors = 0;
    }
    part.end = i + 1;
    descriptors += more;
  }
  if (descriptors != 0) job.parts.push_back(part);
}

void RankEngine::fail(Job& job, const PlanCopy& copy, Code status, FailedSide side) const {
  if (job.status == Code::ok) job.status = status;
  if (job.failed.size() == failed_max) return;
  FailedBlock f;
  f.group = copy.group;
  f.block = copy.block;
  f.position = copy.position;
  f.rank = options_.rank;
  f.status = status;
  f.side = side;
  job.failed.push_back(f);
}

void RankEngine::refuse(const Job& job) {
  ++counters_.jobs_refused;
  const FailedBlock& f = job.failed.front();
  host_.log(
      LogLevel::peer_fault,
      fmt::format(
          "KVC-H-050: rank {}: {} job {} is refused: group {} block {} position {}: code {}, {} "
          "side; {} copies in all",
          options_.rank, name_of(job.kind), job.id, f.group, f.block, f.position,
          static_cast<std::int32_t>(f.status),
          f.side == FailedSide::source ? "source" : "destination", job.copies.size()));
}

}  // namespace kvc
