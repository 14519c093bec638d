// Disk jobs into plans, and what ranks report of them.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "plugin/offload/flows/disk_flow.h"

namespace kvc {

namespace {

// Ranks name at most so many failed blocks of a job (docs/formats/report.md).
constexpr std::uint32_t failed_named_max = 64;
constexpr std::uint64_t drops_per_plan = 1024;
// Jobs beside those of drops, spills and a reset.
constexpr std::uint64_t fills_per_plan = 64;

std::array<std::uint8_t, plan_key_bytes> wide_key(const std::byte* key, std::uint32_t bytes) {
  std::array<std::uint8_t, plan_key_bytes> out{};
  std::memcpy(out.data(), key, bytes);
  return out;
}

}  // namespace

std::uint64_t DiskFlow::plan_bytes() const {
  if (!configured()) return 0;
  // The longest fill twice, what may be on its way to disk, and drops.
  const std::uint64_t blocks = 2 * path_entries_ + options_.open_blocks + drops_per_plan;
  return blocks * plan_disk_block_bytes + (fills_per_plan + 4) * plan_job_bytes;
}

std::uint64_t DiskFlow::fill_room() const {
  return configured() ? 2 * path_entries_ * plan_disk_block_bytes + fills_per_plan * plan_job_bytes
                      : 0;
}

PlanDiskBlock DiskFlow::block_of(SlotId host, SlotId disk) const {
  const SlotKey key = index_.index().key_of(disk);
  PlanDiskBlock block;
  block.group = key.group;
  block.slot = host_.slot_number(host);
  block.end_tokens = key.end.n;
  block.key = wide_key(key.key, key_bytes_);
  const std::byte* const parent = index_.parent_of(disk);
  block.has_parent = parent != nullptr;
  if (block.has_parent) block.parent = wide_key(parent, key_bytes_);
  return block;
}

void DiskFlow::encode_copies(PlanEncoder& encoder, DiskJob& job) {
  blocks_.clear();
  jobs_.for_each(job,
                 [&](const DiskCopy& copy) { blocks_.push_back(block_of(copy.host, copy.disk)); });
  const RequestId request = job.request == no_request ? 0 : requests_[job.request].id;
  KVC_CHECK(encoder.add_disk_job(job.kind, job.id, request, blocks_));
  job.planned = true;
}

void DiskFlow::encode_reset(PlanEncoder& encoder) {
  if (!reset_wanted_ || reset_planned_) return;
  DiskJob* const job = jobs_.create(JobKind::disk_reset);
  if (job == nullptr) return;
  KVC_CHECK(encoder.add_disk_job(job->kind, job->id, 0, {}));
  job->planned = true;
  reset_wanted_ = false;
  reset_planned_ = true;
  wrote_ = false;
}

void DiskFlow::encode_drops(PlanEncoder& encoder) {
  if (index_.drops() == 0) return;
  DiskJob* const job = jobs_.create(JobKind::drop);
  if (job == nullptr) return;
  blocks_.clear();
  for (std::uint64_t i = 0; i < drops_per_plan && index_.drops() != 0; ++i) {
    const DiskDrop drop = index_.take_drop();
    PlanDiskBlock block;
    block.group = drop.group;
    std::copy(drop.key.begin(), drop.key.end(), block.key.begin());
    blocks_.push_back(block);
  }
  counters_.drops += blocks_.size();
  KVC_CHECK(encoder.add_disk_job(job->kind, job->id, 0, blocks_));
  job->planned = true;
}

// Nothing is written while an older drop of its key may still be to come.
void DiskFlow::encode_spills(PlanEncoder& encoder) {
  if (spills_ == nullptr || reset_wanted_ || index_.drops() != 0) return;
  jobs_.erase_if(*spills_, [&](const DiskCopy& copy) {
    if (!index_.doomed(copy.disk)) return false;
    index_.give_back(copy.disk);
    host_.unpin(copy.host, PinKind::job);
    return true;
  });
  if (spills_->copies == 0) {
    jobs_.remove(*spills_);
  } else {
    encode_copies(encoder, *spills_);
    wrote_ = true;
    clean_ = false;
  }
  spills_ = nullptr;
}

void DiskFlow::encode(PlanEncoder& encoder, std::uint64_t room) {
  if (!on()) return;
  make_headroom();
  plan_prefetches(room);
  for (DiskJob* const job : fills_now_) encode_copies(encoder, *job);
  fills_now_.clear();
  encode_reset(encoder);
  encode_drops(encoder);
  encode_spills(encoder);
}

DiskFlow::Heard DiskFlow::take_entry(std::uint32_t rank, const ReportEntry& entry) {
  const ReportJob& said = entry.job();
  DiskJob* const job = jobs_.find(said.job);
  if (job == nullptr) return jobs_.used(said.job) ? Heard::repeated : Heard::unknown;
  if (!job->planned || job->kind != said.kind || said.phase != ReportPhase::ended) {
    return Heard::unknown;
  }
  if (!jobs_.mark_ended(*job, rank)) return Heard::repeated;
  const bool ok = said.status == Code::ok;
  if (job->status == Code::ok) job->status = said.status;
  const std::uint32_t named = entry.failed_count();
  if (!ok && (named == 0 || named >= failed_named_max)) job->all_failed = true;
  for (std::uint32_t i = 0; i < named; ++i) {
    const FailedBlock failed = entry.failed(i);
    if (failed.position >= job->copies) {
      job->all_failed = job->all_failed || job->copies != 0;
      continue;
    }
    DiskCopy& copy = jobs_.copy(*job, failed.position);
    copy.failed = true;
    copy.lost = copy.lost || failed.side == FailedSide::source;
    job->full = job->full || failed.status == Code::full;
  }
  if (job->ended) finish(*job);
  return Heard::ok;
}

void DiskFlow::finish(DiskJob& job) {
  switch (job.kind) {
    case JobKind::spill:
      return finish_spill(job);
    case JobKind::fill:
      if (job.load_ended) settle_fill(job);
      return;
    case JobKind::disk_reset:
      finish_reset(job);
      break;
    case JobKind::load:
    case JobKind::store:
    case JobKind::drop:
      break;
  }
  jobs_.remove(job);
}

void DiskFlow::finish_spill(DiskJob& job) {
  jobs_.for_each(job, [&](const DiskCopy& copy) {
    const bool ok = !copy.failed && !job.all_failed;
    ++(ok ? counters_.spills_ok : counters_.spills_failed);
    if (ok && !index_.doomed(copy.disk)) {
      index_.publish(copy.disk);
    } else {
      index_.abandon(copy.disk);
    }
    host_.unpin(copy.host, PinKind::job);
    if (ok) {
      leave_host(copy);
    } else {
      paused_ = true;
    }
  });
  paused_used_ = host_.slots_used();
  if (job.full) index_.shrink_budget();
  jobs_.remove(job);
}

// On eviction: what was written for want of host slots leaves them now. Were it to wait for its
// turn the disk might have lost it by then, to what was written next.
void DiskFlow::leave_host(const DiskCopy& copy) {
  if (options_.on_eviction && short_of_slots() && host_.evictable(copy.host) &&
      index_.published(copy.disk)) {
    host_.evict(copy.host);
  }
}

void DiskFlow::finish_reset(const DiskJob& job) {
  reset_planned_ = false;
  if (job.status != Code::ok) {
    reset_wanted_ = true;  // not done before every rank has it
    return;
  }
  ++counters_.resets;
  clean_ = !wrote_;
}

void DiskFlow::reset() {
  if (!on()) return;
  drop_prefetches();
  index_.reset();
  notes_.clear();
  merge_.close();
  orphans_.clear();
  index_.close_run(restore_run_);
  restore_run_ = no_run;
  if (spills_ != nullptr) {
    jobs_.for_each(*spills_, [&](const DiskCopy& copy) {
      index_.give_back(copy.disk);
      host_.unpin(copy.host, PinKind::job);
    });
    jobs_.remove(*spills_);
    spills_ = nullptr;
  }
  // One that is on its way does for this one, too, if nothing was written behind it.
  const bool covered = reset_planned_ ? !wrote_ : clean_;
  reset_wanted_ = reset_wanted_ || !covered;
}

void DiskFlow::take_state(std::uint32_t rank, DiskState state, std::uint64_t report) {
  if (state == DiskState::none || report < state_reports_[rank]) return;
  state_reports_[rank] = report;
  if (states_[rank] == state) return;
  states_[rank] = state;
  const bool off = state == DiskState::off;
  ranks_off_ += off ? 1U : UINT32_MAX;
  counters_.switched_off += off ? 1 : 0;
  services_.log(LogLevel::warn,
                fmt::format("the disk tier is {} on rank {}: {} of {} ranks are off, {}",
                            off ? "off" : "on again", rank, ranks_off_, ranks_,
                            ranks_off_ == 0 ? "it is used again"
                                            : "nothing is read from it or written to it"));
}

Status DiskFlow::take_report(std::uint32_t rank, const ReportView& report) {
  if (!on()) return {};
  take_state(rank, report.disk_state(), report.sequence());
  if (report.inventory().empty()) return {};
  return take_inventory(rank, report.inventory());
}

std::uint64_t DiskFlow::pending_jobs() const {
  return jobs_.open() + (on() && index_.drops() != 0 ? 1 : 0) + (reset_wanted_ ? 1 : 0);
}

}  // namespace kvc
