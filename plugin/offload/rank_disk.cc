#include "plugin/offload/rank_disk.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvc {

namespace {

constexpr std::size_t failed_max = 64;  // named per job: docs/formats/report.md
constexpr std::uint64_t blocks_in_id = std::uint64_t{1} << 32U;

std::uint64_t op_id(std::uint64_t number, std::uint32_t block) {
  return number * blocks_in_id + block;
}

}  // namespace

Status RankDisk::check(PlanReader jobs) const {
  std::vector<JobId> seen;
  for (PlanJob job; jobs.next(job);) {
    if (job.job() == 0 || open(job.job()) ||
        std::find(seen.begin(), seen.end(), job.job()) != seen.end()) {
      return {Code::arg,
              fmt::format("rank {}: disk job id {} is 0 or open already", rank_, job.job())};
    }
    seen.push_back(job.job());
  }
  return {};
}

bool RankDisk::open(JobId job) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.id == job; });
}

void RankDisk::take(PlanReader jobs) {
  for (PlanJob from; jobs.next(from);) {
    Job& job = jobs_.emplace_back();
    job.number = next_number_++;
    job.id = from.job();
    job.kind = from.kind();
    job.result.job = from.job();
    job.result.kind = from.kind();
    job.blocks.reserve(from.size());
    for (std::uint64_t i = 0; i < from.size(); ++i) {
      job.blocks.push_back({from.disk_block(i), BlockState::waiting, 0, false});
      if (job.kind == JobKind::fill) mark_fill(job.blocks.back());
    }
    job.left = job.blocks.size() + (job.kind == JobKind::disk_reset ? 1 : 0);
  }
}

// Loads of the slot wait from now on. One that may not be written now fails when it is started.
void RankDisk::mark_fill(Block& block) {
  const std::uint32_t cls = class_of(block.what);
  if (cls == RankLayout::no_class || pages_.claim(cls, block.what.slot) != Code::ok) return;
  SlotState& s = state(block.what);
  if (s.writer != 0 || s.readers != 0) return;
  block.marked = true;
  s.writer = SlotState::filling;
  s.written = 1;  // as of a store that is open; what is there in truth is known at its end
}

void RankDisk::unmark_fill(Block& block, std::uint8_t written) {
  if (!block.marked) return;
  block.marked = false;
  SlotState& s = state(block.what);
  KVC_CHECK(s.writer == SlotState::filling);
  s.writer = 0;
  s.written = written;
}

void RankDisk::advance() {
  disk::DiskDone done[64];
  const std::uint64_t now = host_.now_ns();
  while (const std::size_t n = tier_->poll(done, now)) {
    for (std::size_t i = 0; i < n; ++i) finish(done[i]);
  }
  for (std::string& line : tier_->take_notes()) {
    host_.log(LogLevel::warn, fmt::format("rank {}: {}", rank_, line));
  }
  for (Job& job : jobs_) {
    if (job.kind == JobKind::disk_reset) {
      start_reset(job);
      // Nothing behind it may be done before it: it would be gone, or not.
      if (job.left != 0) break;
      continue;
    }
    for (std::uint32_t i = 0; i < job.blocks.size(); ++i) {
      if (job.blocks[i].state == BlockState::waiting) static_cast<void>(start(job, i));
    }
  }
  std::erase_if(jobs_, [&](Job& job) {
    if (job.left != 0) return false;
    ended_.push_back(std::move(job.result));
    return true;
  });
}

std::uint32_t RankDisk::class_of(const PlanDiskBlock& block) const {
  return block.group < layout_.groups() ? layout_.class_of(block.group) : RankLayout::no_class;
}

SlotState& RankDisk::state(const PlanDiskBlock& block) const {
  return pages_.state(class_of(block), block.slot);
}

RankDisk::Start RankDisk::start(Job& job, std::uint32_t i) {
  const PlanDiskBlock& what = job.blocks[i].what;
  if (class_of(what) == RankLayout::no_class) {
    fail(job, i, Code::arg, FailedSide::source);
    return Start::started;
  }
  if (job.kind == JobKind::spill) return start_spill(job, i);
  if (job.kind == JobKind::fill) return start_fill(job, i);
  // What is not there need not go.
  static_cast<void>(tier_->erase(what.group, what.key));
  block_done(job, i);
  return Start::started;
}

RankDisk::Start RankDisk::start_spill(Job& job, std::uint32_t i) {
  const PlanDiskBlock& what = job.blocks[i].what;
  const std::uint32_t cls = class_of(what);
  if (!pages_.owned(cls, what.slot)) {
    fail(job, i, pages_.in_range(cls, what.slot) ? Code::io : Code::arg, FailedSide::source);
    return Start::started;
  }
  SlotState& s = state(what);
  if (s.writer != 0) return Start::wait;  // the store, or the fill, that comes before
  if (s.written == 0 || s.readers == UINT16_MAX) {
    fail(job, i, s.written == 0 ? Code::io : Code::full, FailedSide::source);
    return Start::started;
  }
  disk::DiskWrite write;
  write.id = op_id(job.number, i);
  write.what = {what.group, what.has_parent, what.end_tokens, what.key, what.parent};
  write.memory = pages_.bytes(cls, what.slot);
  // Of a chunk that is not full its first blocks.
  write.valid_bytes = s.written * layout_.block_bytes(what.group).n;
  job.blocks[i].bytes = write.valid_bytes;
  const Code code = tier_->write(write, host_.now_ns());
  if (code == Code::later) return Start::wait;
  if (code == Code::ok) {
    ++s.readers;
    job.blocks[i].state = BlockState::at_disk;
  } else if (code == Code::state) {
    block_done(job, i);  // it is there
  } else {
    fail(job, i, code, FailedSide::destination);
  }
  return Start::started;
}

RankDisk::Start RankDisk::start_fill(Job& job, std::uint32_t i) {
  const PlanDiskBlock& what = job.blocks[i].what;
  const std::uint32_t cls = class_of(what);
  if (const Code code = pages_.claim(cls, what.slot); code != Code::ok) {
    fail(job, i, code, FailedSide::destination);
    return Start::started;
  }
  if (!job.blocks[i].marked) {
    fail(job, i, Code::state, FailedSide::destination);
    return Start::started;
  }
  disk::DiskRead read;
  read.id = op_id(job.number, i);
  read.group = what.group;
  read.end_tokens = what.end_tokens;
  read.key = what.key;
  read.memory = pages_.bytes(cls, what.slot);
  const Code code = tier_->read(read, host_.now_ns());
  if (code == Code::later) return Start::wait;
  if (code == Code::ok) {
    job.blocks[i].state = BlockState::at_disk;
  } else {
    // arg: no such block (any more).
    fail(job, i, code == Code::arg ? Code::io : code, FailedSide::source);
  }
  return Start::started;
}

void RankDisk::start_reset(Job& job) {
  if (job.asked) return;
  const Code code = tier_->reset(op_id(job.number, 0), host_.now_ns());
  if (code == Code::later) return;
  job.asked = true;
  if (code != Code::ok) {
    job.result.status = code;
    job.left = 0;
  }
}

void RankDisk::finish(const disk::DiskDone& done) {
  const std::uint64_t number = done.id / blocks_in_id;
  const auto it =
      std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.number == number; });
  KVC_CHECK(it != jobs_.end());
  Job& job = *it;
  if (job.kind == JobKind::disk_reset) {
    job.result.status = done.status;
    job.left = 0;
    return;
  }
  const auto i = static_cast<std::uint32_t>(done.id % blocks_in_id);
  Block& block = job.blocks[i];
  KVC_CHECK(block.state == BlockState::at_disk);
  SlotState& s = state(block.what);
  const bool ok = done.status == Code::ok;
  if (job.kind == JobKind::spill) {
    KVC_CHECK(s.readers != 0);
    --s.readers;
  } else {
    unmark_fill(block, static_cast<std::uint8_t>(done.valid_bytes /
                                                 layout_.block_bytes(block.what.group).n));
    block.bytes = done.valid_bytes;
  }
  if (ok) {
    job.result.moved_bytes += block.bytes;
    block_done(job, i);
  } else {
    fail(job, i, done.status,
         job.kind == JobKind::spill ? FailedSide::destination : FailedSide::source);
  }
}

void RankDisk::fail(Job& job, std::uint32_t i, Code status, FailedSide side) {
  unmark_fill(job.blocks[i], 0);
  Ended& result = job.result;
  if (result.status == Code::ok) result.status = status;
  if (result.failed.size() < failed_max) {
    FailedBlock f;
    f.group = job.blocks[i].what.group;
    f.block = -1;
    f.position = i;
    f.rank = rank_;
    f.status = status;
    f.side = side;
    result.failed.push_back(f);
  }
  block_done(job, i);
}

void RankDisk::block_done(Job& job, std::uint32_t i) {
  KVC_CHECK(job.blocks[i].state != BlockState::done && job.left != 0);
  job.blocks[i].state = BlockState::done;
  --job.left;
}

}  // namespace kvc
