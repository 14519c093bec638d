#include "plugin/offload/plan_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugin/offload/wire.h"

namespace kvc {

using wire::get;
using wire::put;

namespace {

// Offsets of docs/formats/plan.md.
constexpr std::size_t at_epoch = 16;
constexpr std::size_t at_step = 24;
constexpr std::size_t at_loads = 32;
constexpr std::size_t at_stores = 36;
constexpr std::size_t at_load_bytes = 40;
constexpr std::size_t at_checksum = 48;
constexpr std::size_t at_disk_bytes = 56;

constexpr std::size_t job_kind = 0;   // 16 bits
constexpr std::size_t job_flags = 2;  // 16 bits
constexpr std::size_t job_outcome = 4;
constexpr std::size_t job_id = 8;
constexpr std::size_t job_request = 16;
constexpr std::size_t job_copies = 24;

constexpr std::size_t copy_group = 0;
constexpr std::size_t copy_slot = 4;
constexpr std::size_t copy_block = 8;
constexpr std::size_t copy_position = 16;

constexpr std::size_t disk_group = 0;
constexpr std::size_t disk_slot = 4;
constexpr std::size_t disk_end = 8;
constexpr std::size_t disk_flags = 16;
constexpr std::size_t disk_key = 24;
constexpr std::size_t disk_parent = 56;
constexpr std::uint64_t disk_flag_parent = 1;
constexpr std::uint16_t job_flag_in_step = 1;

JobKind kind_of(const std::uint8_t* job) {
  return static_cast<JobKind>(get<std::uint16_t>(job + job_kind));
}

constexpr wire::HeaderRules rules{
    "plan", plan_magic, plan_version, plan_header_bytes, at_checksum, plan_header_bytes, 0};

bool of_disk(JobKind kind) { return kind >= JobKind::spill && kind <= JobKind::disk_reset; }

template <class... Args>
Status bad(fmt::format_string<Args...> text, Args&&... args) {
  return wire::bad(rules.format, text, std::forward<Args>(args)...);
}

// `count` jobs of `kind` must fill `section` exactly.
Status check_section(std::span<const std::uint8_t> section, std::uint32_t count, JobKind kind) {
  std::uint64_t at = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (section.size() - at < plan_job_bytes) {
      return bad("job {} of {} crosses the end of its section of {} bytes", i, count,
                 section.size());
    }
    const std::uint8_t* job = section.data() + at;
    if (kind_of(job) != kind) {
      return bad("job {} of {} has kind {} in the section of kind {}", i, count,
                 static_cast<std::int32_t>(kind_of(job)), static_cast<std::int32_t>(kind));
    }
    const std::uint16_t flags = kind == JobKind::load ? job_flag_in_step : 0;
    if (const auto f = get<std::uint16_t>(job + job_flags); (f & ~flags) != 0) {
      return bad("job {} of {} has flags {:#x}", i, count, f);
    }
    at += plan_job_bytes;
    const auto copies = get<std::uint64_t>(job + job_copies);
    const auto outcome = get<std::int32_t>(job + job_outcome);
    if (outcome > 0 || outcome < static_cast<std::int32_t>(Code::internal)) {
      return bad("the outcome {} of job {} is no error", outcome, i);
    }
    if (outcome != 0 && copies != 0) {
      return bad("job {} ends with {} and has {} copies", i, outcome, copies);
    }
    if (copies > (section.size() - at) / plan_copy_bytes) {
      return bad("{} copies of job {} of {} cross the end of its section of {} bytes", copies, i,
                 count, section.size());
    }
    at += copies * plan_copy_bytes;
  }
  if (at != section.size()) {
    return bad("{} bytes behind the last of {} jobs of kind {}", section.size() - at, count,
               static_cast<std::int32_t>(kind));
  }
  return {};
}

// Whole disk jobs fill `section` exactly; how many.
Result<std::uint32_t> check_disk_section(std::span<const std::uint8_t> section) {
  std::uint32_t jobs = 0;
  for (std::uint64_t at = 0; at < section.size(); ++jobs) {
    if (section.size() - at < plan_job_bytes) {
      return bad("disk job {} crosses the end of its section of {} bytes", jobs, section.size());
    }
    const std::uint8_t* job = section.data() + at;
    at += plan_job_bytes;
    const JobKind kind = kind_of(job);
    const auto blocks = get<std::uint64_t>(job + job_copies);
    const auto job_flag_bits = get<std::uint16_t>(job + job_flags);
    if (!of_disk(kind) || job_flag_bits != 0) {
      return bad("disk job {} has kind {} and flags {:#x}", jobs, static_cast<std::int32_t>(kind),
                 job_flag_bits);
    }
    if (const auto outcome = get<std::int32_t>(job + job_outcome); outcome != 0) {
      return bad("disk job {} has the outcome {}", jobs, outcome);
    }
    if (kind == JobKind::disk_reset && blocks != 0) {
      return bad("disk job {} is a reset and has {} blocks", jobs, blocks);
    }
    if (blocks > (section.size() - at) / plan_disk_block_bytes) {
      return bad("{} blocks of disk job {} cross the end of its section of {} bytes", blocks, jobs,
                 section.size());
    }
    for (std::uint64_t i = 0; i < blocks; ++i, at += plan_disk_block_bytes) {
      const auto flags = get<std::uint64_t>(section.data() + at + disk_flags);
      if (flags > disk_flag_parent) {
        return bad("block {} of disk job {} has flags {:#x}", i, jobs, flags);
      }
    }
  }
  return jobs;
}

}  // namespace

PlanEncoder::PlanEncoder(std::span<std::uint8_t> buffer) : buffer_(buffer) {
  KVC_CHECK(buffer.size() >= plan_header_bytes);
}

void PlanEncoder::set_aside(std::uint64_t bytes) {
  KVC_CHECK(bytes <= buffer_.size() - plan_header_bytes);
  aside_ = bytes;
}

void PlanEncoder::begin(std::uint64_t epoch, std::uint64_t step) {
  used_ = plan_header_bytes;
  epoch_ = epoch;
  step_ = step;
  loads_ = stores_ = disk_jobs_ = 0;
  load_bytes_ = disk_bytes_ = 0;
  open_at_ = 0;
  open_copies_ = 0;
}

std::uint64_t PlanEncoder::copies_that_fit() const {
  std::uint64_t room = left();
  if (open_at_ == 0) {
    if (room < plan_job_bytes) return no_job;
    room -= plan_job_bytes;
  }
  return room / plan_copy_bytes;
}

bool PlanEncoder::begin_job(JobKind kind, JobId job, RequestId request, Code outcome,
                            bool in_step) {
  KVC_CHECK(used_ != 0 && open_at_ == 0);
  KVC_CHECK(static_cast<std::int32_t>(outcome) <= 0);
  KVC_CHECK(kind == JobKind::store || (kind == JobKind::load && stores_ == 0));
  KVC_CHECK(disk_jobs_ == 0 && (!in_step || kind == JobKind::load));
  if (left() < plan_job_bytes || jobs() == UINT32_MAX) return false;
  std::uint8_t* at = buffer_.data() + used_;
  put(at + job_kind, static_cast<std::uint16_t>(kind));
  put(at + job_flags, in_step ? job_flag_in_step : std::uint16_t{0});
  put(at + job_outcome, static_cast<std::int32_t>(outcome));
  put(at + job_id, job);
  put(at + job_request, request);
  open_at_ = used_;
  open_copies_ = 0;
  open_kind_ = kind;
  open_outcome_ = outcome;
  used_ += plan_job_bytes;
  return true;
}

bool PlanEncoder::add_copy(const PlanCopy& copy) {
  KVC_CHECK(open_at_ != 0 && open_outcome_ == Code::ok);
  if (left() < plan_copy_bytes) return false;
  std::uint8_t* at = buffer_.data() + used_;
  put(at + copy_group, copy.group);
  put(at + copy_slot, copy.slot);
  put(at + copy_block, copy.block);
  put(at + copy_position, copy.position);
  used_ += plan_copy_bytes;
  ++open_copies_;
  return true;
}

void PlanEncoder::drop_last_copy() {
  KVC_CHECK(open_at_ != 0 && open_copies_ != 0);
  used_ -= plan_copy_bytes;
  --open_copies_;
}

void PlanEncoder::end_job() {
  KVC_CHECK(open_at_ != 0);
  put(buffer_.data() + open_at_ + job_copies, open_copies_);
  if (open_kind_ == JobKind::load) {
    ++loads_;
    load_bytes_ = used_ - plan_header_bytes;
  } else {
    ++stores_;
  }
  open_at_ = 0;
}

void PlanEncoder::abandon_job() {
  KVC_CHECK(open_at_ != 0);
  used_ = open_at_;
  open_at_ = 0;
  open_copies_ = 0;
}

bool PlanEncoder::add_job(JobKind kind, JobId job, RequestId request,
                          std::span<const PlanCopy> copies) {
  const std::uint64_t fit = copies_that_fit();
  if (fit == no_job || copies.size() > fit || !begin_job(kind, job, request)) return false;
  for (const PlanCopy& copy : copies) KVC_CHECK(add_copy(copy));
  end_job();
  return true;
}

bool PlanEncoder::add_disk_job(JobKind kind, JobId job, RequestId request,
                               std::span<const PlanDiskBlock> blocks) {
  KVC_CHECK(used_ != 0 && open_at_ == 0 && of_disk(kind));
  KVC_CHECK(kind != JobKind::disk_reset || blocks.empty());
  const std::uint64_t room = buffer_.size() - used_;
  if (room < plan_job_bytes || jobs() >= UINT32_MAX ||
      blocks.size() > (room - plan_job_bytes) / plan_disk_block_bytes) {
    return false;
  }
  std::uint8_t* at = buffer_.data() + used_;
  put(at + job_kind, static_cast<std::uint16_t>(kind));
  put(at + job_flags, std::uint16_t{0});
  put(at + job_outcome, std::int32_t{0});
  put(at + job_id, job);
  put(at + job_request, request);
  put(at + job_copies, std::uint64_t{blocks.size()});
  at += plan_job_bytes;
  for (const PlanDiskBlock& block : blocks) {
    put(at + disk_group, block.group);
    put(at + disk_slot, block.slot);
    put(at + disk_end, block.end_tokens);
    put(at + disk_flags, block.has_parent ? disk_flag_parent : 0);
    std::copy(block.key.begin(), block.key.end(), at + disk_key);
    std::copy(block.parent.begin(), block.parent.end(), at + disk_parent);
    at += plan_disk_block_bytes;
  }
  const auto now = static_cast<std::uint64_t>(at - buffer_.data());
  disk_bytes_ += now - used_;
  used_ = now;
  ++disk_jobs_;
  return true;
}

std::span<const std::uint8_t> PlanEncoder::finish() {
  KVC_CHECK(used_ != 0 && open_at_ == 0);
  std::uint8_t* p = buffer_.data();
  put(p + at_epoch, epoch_);
  put(p + at_step, step_);
  put(p + at_loads, loads_);
  put(p + at_stores, stores_);
  put(p + at_load_bytes, load_bytes_);
  put(p + at_disk_bytes, disk_bytes_);
  const std::span<std::uint8_t> whole = buffer_.first(used_);
  wire::seal_header(whole, rules);
  return whole;
}

PlanCopy PlanJob::copy(std::uint64_t i) const {
  KVC_CHECK(i < count_ && !of_disk(kind_));
  const std::uint8_t* at = copies_ + i * plan_copy_bytes;
  return {get<std::uint32_t>(at + copy_group), get<std::uint32_t>(at + copy_slot),
          get<std::int64_t>(at + copy_block), get<std::uint64_t>(at + copy_position)};
}

PlanDiskBlock PlanJob::disk_block(std::uint64_t i) const {
  KVC_CHECK(i < count_ && of_disk(kind_));
  const std::uint8_t* at = copies_ + i * plan_disk_block_bytes;
  PlanDiskBlock block;
  block.group = get<std::uint32_t>(at + disk_group);
  block.slot = get<std::uint32_t>(at + disk_slot);
  block.end_tokens = get<std::uint64_t>(at + disk_end);
  block.has_parent = get<std::uint64_t>(at + disk_flags) != 0;
  std::copy_n(at + disk_key, block.key.size(), block.key.begin());
  std::copy_n(at + disk_parent, block.parent.size(), block.parent.begin());
  return block;
}

PlanJob PlanReader::read(const std::uint8_t* at) {
  PlanJob job;
  job.kind_ = kind_of(at);
  job.in_step_ = (get<std::uint16_t>(at + job_flags) & job_flag_in_step) != 0;
  job.outcome_ = static_cast<Code>(get<std::int32_t>(at + job_outcome));
  job.job_ = get<std::uint64_t>(at + job_id);
  job.request_ = get<std::uint64_t>(at + job_request);
  job.count_ = get<std::uint64_t>(at + job_copies);
  job.copies_ = at + plan_job_bytes;
  return job;
}

bool PlanReader::next(PlanJob& job) {
  if (left_ == 0) return false;
  --left_;
  job = read(at_);
  at_ = job.copies_ + job.count_ * (of_disk(job.kind_) ? plan_disk_block_bytes : plan_copy_bytes);
  return true;
}

Result<PlanView> PlanView::read(std::span<const std::uint8_t> bytes) {
  if (Status s = wire::check_header(bytes, rules); !s.ok()) return s;
  const std::uint8_t* p = bytes.data();
  const std::span<const std::uint8_t> body = bytes.subspan(plan_header_bytes);
  const auto load_bytes = get<std::uint64_t>(p + at_load_bytes);
  const auto disk_bytes = get<std::uint64_t>(p + at_disk_bytes);
  if (load_bytes > body.size() || disk_bytes > body.size() - load_bytes) {
    return bad("load section of {} and disk section of {} bytes in a body of {}", load_bytes,
               disk_bytes, body.size());
  }
  const auto loads = get<std::uint32_t>(p + at_loads);
  const auto stores = get<std::uint32_t>(p + at_stores);
  const auto store_bytes = body.size() - load_bytes - disk_bytes;
  if (Status s = check_section(body.first(load_bytes), loads, JobKind::load); !s.ok()) return s;
  if (Status s = check_section(body.subspan(load_bytes, store_bytes), stores, JobKind::store);
      !s.ok()) {
    return s;
  }
  const auto disk = check_disk_section(body.subspan(load_bytes + store_bytes));
  if (!disk.ok()) return disk.error();
  PlanView view;
  view.epoch_ = get<std::uint64_t>(p + at_epoch);
  view.step_ = get<std::uint64_t>(p + at_step);
  view.loads_.at_ = body.data();
  view.loads_.left_ = loads;
  view.stores_.at_ = body.data() + load_bytes;
  view.stores_.left_ = stores;
  view.disk_.at_ = body.data() + load_bytes + store_bytes;
  view.disk_.left_ = disk.value();
  return view;
}

}  // namespace kvc
