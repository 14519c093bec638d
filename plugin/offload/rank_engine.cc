#include "plugin/offload/rank_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

namespace kvc {

namespace {

constexpr std::uint64_t report_bytes_min = 4096;  // one entry with all its failed blocks
// Between two looks at the host's clock while waiting for worker threads.
constexpr std::uint64_t wait_slice_ns = 10'000'000;

std::uint64_t op_id(std::uint32_t job, std::uint32_t part) {
  return std::uint64_t{job} << 32 | part;
}

CopyDirection direction_of(JobKind kind) {
  return kind == JobKind::load ? CopyDirection::load : CopyDirection::store;
}

}  // namespace

Result<std::unique_ptr<RankEngine>> RankEngine::create(const RankOptions& options,
                                                       std::unique_ptr<CopyEngine> copies,
                                                       HostServices& host) {
  KVC_CHECK(copies != nullptr);
  if (options.report_bytes_max < report_bytes_min || options.part_descriptors == 0 ||
      options.slab_bytes.n == 0) {
    return {Code::arg,
            fmt::format("rank {}: reports of {} bytes (at least {}), parts of {} copies, slabs "
                        "of {} bytes (both above 0)",
                        options.rank, options.report_bytes_max, report_bytes_min,
                        options.part_descriptors, options.slab_bytes.n)};
  }
  return std::unique_ptr<RankEngine>(new RankEngine(options, std::move(copies), host));
}

RankEngine::RankEngine(const RankOptions& options, std::unique_ptr<CopyEngine> copies,
                       HostServices& host)
    : options_(options),
      host_(host),
      copies_(std::move(copies)),
      report_buffer_(options.report_bytes_max),
      report_(report_buffer_) {}

RankEngine::~RankEngine() = default;

Result<RankInfo> RankEngine::register_regions(std::span<const RankRegion> regions) {
  if (layout_ != nullptr) {
    return {Code::state, fmt::format("rank {}: regions are registered already", options_.rank)};
  }
  auto layout = RankLayout::make(regions, options_.layout);
  if (!layout.ok()) {
    return {layout.error().code, fmt::format("rank {}: {}", options_.rank, layout.error().text)};
  }
  const RankLayout& l = layout.value();
  if (Status s = copies_->attach(static_cast<CopyDevice>(l.device()), l.ordinal()); !s.ok()) {
    return {s.code, fmt::format("rank {}: {}", options_.rank, s.text)};
  }
  auto pages =
      RankPages::create(l.classes(), l.page_bytes(), l.pages(), options_.slab_bytes, *copies_);
  if (!pages.ok()) {
    return {pages.error().code, fmt::format("rank {}: {}", options_.rank, pages.error().text)};
  }
  auto mine = std::make_unique<RankLayout>(std::move(layout.value()));
  std::unique_ptr<RankDisk> disk;
  if (Status s = open_disk(*mine, *pages.value(), disk); !s.ok()) {
    copies_->unpin();
    return s;
  }
  if (mine->device() != DeviceKind::host) {
    host_.log(LogLevel::info, fmt::format("rank {}: {}", options_.rank, copies_->describe()));
  }
  if (copies_->part_copies() != 0) options_.part_descriptors = copies_->part_copies();
  layout_ = std::move(mine);
  pages_ = std::move(pages.value());
  disk_ = std::move(disk);
  RankInfo info;
  info.inventory = inventory_;
  info.rank = options_.rank;
  info.pages = layout_->pages();
  info.classes = layout_->classes();
  return info;
}

Status RankEngine::open_disk(RankLayout& layout, RankPages& pages,
                             std::unique_ptr<RankDisk>& disk) {
  if (!options_.disk) return {};
  disk::DiskTierOptions o = *options_.disk;
  o.store.rank = options_.rank;
  o.store.payload_of_group.assign(layout.groups(), 0);
  for (std::uint32_t g = 0; g < layout.groups(); ++g) {
    if (layout.class_of(g) != RankLayout::no_class) {
      o.store.payload_of_group[g] = layout.slot_bytes(g);
    }
  }
  auto tier = disk::DiskTier::open(o, disk::system_files());
  if (!tier.ok()) {
    return {tier.error().code, fmt::format("rank {}: {}", options_.rank, tier.error().text)};
  }
  inventory_ = tier.value()->next_inventory(options_.first_inventory_bytes);
  if (inventory_.empty()) {
    // Says that there is a disk tier, with nothing in it.
    inventory_.resize(disk::inventory_bytes(0));
    disk::seal_inventory({tier.value()->store(0).generation(), 0, 0, options_.rank, 0}, inventory_);
  }
  disk = std::make_unique<RankDisk>(std::move(tier.value()), layout, pages, host_, options_.rank);
  return {};
}

SlotState& RankEngine::state(const PlanCopy& copy) const {
  return pages_->state(layout_->class_of(copy.group), copy.slot);
}

void RankEngine::advance() {
  collect();
  feed();
  if (disk_ == nullptr) return;
  disk_->advance();
  feed();  // loads of slots that the disk has filled
}

void RankEngine::collect() {
  CopyCompletion some[64];
  while (const std::size_t n = copies_->poll(some)) {
    for (std::size_t i = 0; i < n; ++i) part_ended(some[i]);
  }
}

void RankEngine::part_ended(const CopyCompletion& completion) {
  const auto at = static_cast<std::uint32_t>(completion.id >> 32);
  const auto part = static_cast<std::uint32_t>(completion.id);
  Job& job = jobs_[at];
  KVC_CHECK(!job.free && job.parts_open != 0 && part < job.parts.size());
  --job.parts_open;
  --parts_at_engine_;
  if (completion.status != Code::ok) {
    if (const std::string why = copies_->take_trouble(); !why.empty()) {
      host_.log(LogLevel::error, fmt::format("rank {}: {}", options_.rank, why));
    }
    part_failed(job, job.parts[part], completion);
  } else {
    const Part& p = job.parts[part];
    for (std::size_t i = p.first; i < p.end; ++i) {
      if (p.layer == all_layers) {
        job.moved_bytes += layout_->block_bytes(job.copies[i].group).n;
        continue;
      }
      for (const RankLayout::Piece& piece : pieces(p, job.copies[i].group)) {
        job.moved_bytes += piece.bytes;
      }
    }
  }
  end_if_done(at);
}

void RankEngine::part_failed(Job& job, const Part& part, const CopyCompletion& completion) {
  if (job.status == Code::ok) job.status = completion.status;
  if (completion.first_failed != no_failed_copy) {
    std::size_t i = part.first;
    std::uint64_t left = completion.first_failed;
    while (left >= pieces(part, job.copies[i].group).size()) {
      left -= pieces(part, job.copies[i].group).size();
      ++i;
    }
    // A backend that does not know the side must not cost an entry of the tier.
    fail(job, job.copies[i], completion.status,
         completion.side == CopySide::source ? FailedSide::source : FailedSide::destination);
  }
  drop_parts(job);
}

void RankEngine::drop_parts(Job& job) {
  for (std::size_t i = job.next_part; i < job.parts.size() && job.step_loads != none; ++i) {
    step_loads_[job.step_loads].layers[job.parts[i].layer].mark.skip(1);
  }
  job.next_part = static_cast<std::uint32_t>(job.parts.size());
}

void RankEngine::feed() {
  bool full = !feed_steps();
  for (auto& backlog : backlog_) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < backlog.size(); ++i) {
      const std::uint32_t at = backlog[i];
      Fed fed = Fed::full;
      if (!full) fed = feed_job(at);
      full = full || fed == Fed::full;
      if (fed != Fed::done) {
        backlog[kept++] = at;
        continue;
      }
      leave_backlog(jobs_[at]);
      end_if_done(at);
    }
    backlog.resize(kept);
  }
}

RankEngine::Fed RankEngine::feed_job(std::uint32_t at) {
  Job& job = jobs_[at];
  if (job.awaits_stores_of != 0) return Fed::blocked;
  after_.clear();
  if (job.kind == JobKind::load && job.next_part < job.parts.size() && !resolve_sources(job)) {
    return Fed::blocked;
  }
  while (job.status == Code::ok && job.next_part < job.parts.size()) {
    if (!feed_part(at, after_)) return Fed::full;
  }
  if (job.status != Code::ok) drop_parts(job);
  return Fed::done;
}

bool RankEngine::feed_part(std::uint32_t at, std::span<const std::uint64_t> after) {
  Job& job = jobs_[at];
  const Status s = submit_part(at, job.parts[job.next_part], after);
  if (s.code == Code::full && parts_at_engine_ != 0) return false;
  if (!s.ok()) {
    // Nothing is in its way and it still does not fit, or the copies themselves are refused.
    job.status = s.code;
    host_.log(LogLevel::error, fmt::format("rank {}: job {}: {}", options_.rank, job.id, s.text));
    return true;
  }
  ++job.next_part;
  ++job.parts_open;
  ++parts_at_engine_;
  return true;
}

// Whether the load can go to the copy engine now: after_ names the stores it comes after. A source
// that no store has filled, or whose store failed, makes the job fail (then true).
bool RankEngine::resolve_sources(Job& job) {
  writers_.clear();
  for (const PlanCopy& copy : job.copies) {
    const SlotState& s = state(copy);
    if (s.writer == SlotState::filling) return false;
    if (layout_->place_of(copy.group, copy.position) >= s.written) {
      fail(job, copy, Code::io, FailedSide::source);
      continue;
    }
    if (s.writer == 0) continue;
    const std::uint32_t writer = s.writer - 1;
    if (jobs_[writer].status != Code::ok) {
      fail(job, copy, Code::io, FailedSide::source);
    } else if (std::find(writers_.begin(), writers_.end(), writer) == writers_.end()) {
      writers_.push_back(writer);
    }
  }
  if (job.status != Code::ok) return true;
  for (const std::uint32_t writer : writers_) {
    const Job& store = jobs_[writer];
    const auto parts = static_cast<std::uint32_t>(store.parts.size());
    if (store.next_part < parts || after_.size() + parts > chain_max) return false;
    // Parts that ended are unknown to the copy engine, which counts them as ended.
    for (std::uint32_t p = 0; p < parts; ++p) after_.push_back(op_id(writer, p));
  }
  return true;
}

Status RankEngine::submit_part(std::uint32_t at, const Part& part,
                               std::span<const std::uint64_t> after) {
  Job& job = jobs_[at];
  descriptors_.clear();
  for (std::size_t i = part.first; i < part.end; ++i) {
    const PlanCopy& copy = job.copies[i];
    std::byte* slot =
        pages_->bytes(layout_->class_of(copy.group), copy.slot) +
        layout_->place_of(copy.group, copy.position) * layout_->block_bytes(copy.group).n;
    for (const RankLayout::Piece& piece : pieces(part, copy.group)) {
      std::byte* host = slot + piece.slot_offset;
      std::uint8_t* device = layout_->address(piece, copy.block);
      if (job.kind == JobKind::load) {
        descriptors_.push_back({device, host, piece.bytes});
      } else {
        descriptors_.push_back({host, device, piece.bytes});
      }
    }
  }
  CopyMark* const mark =
      job.step_loads == none ? nullptr : &step_loads_[job.step_loads].layers[part.layer].mark;
  const CopyOperation op{op_id(at, job.next_part), direction_of(job.kind), descriptors_, after,
                         mark};
  return copies_->submit({job.fence, std::span(&op, 1)});
}

// The record of a job stays in use as long as the backlog names it.
void RankEngine::end_if_done(std::uint32_t at) {
  const Job& job = jobs_[at];
  if (!job.in_backlog && job.parts_open == 0 && job.next_part == job.parts.size()) end_job(at);
}

void RankEngine::end_job(std::uint32_t at) {
  Job& job = jobs_[at];
  KVC_CHECK(!job.ended && job.parts_open == 0);
  job.ended = true;
  unmark(at);
  leave_step(job);
  const bool ok = job.status == Code::ok && !job.late;
  if (job.kind == JobKind::load) {
    ++(ok ? counters_.loads_ok : counters_.loads_failed);
    counters_.loaded_bytes += job.moved_bytes;
  } else {
    ++(ok ? counters_.stores_ok : counters_.stores_failed);
    counters_.stored_bytes += job.moved_bytes;
  }
  ended_.push_back(at);
}

RankProgress RankEngine::progress() {
  for (const std::uint32_t at : told_) give_back(at);
  told_.clear();
  items_.clear();
  advance();
  report_.begin(epoch_, options_.rank, report_sequence_ + 1);
  const std::uint64_t now = host_.now_ns();
  bool room = tell_late(JobKind::load, now) && tell_late(JobKind::store, now);
  while (room && !ended_.empty()) {
    const std::uint32_t at = ended_.front();
    room = tell(jobs_[at], ReportPhase::ended);
    if (!room) break;
    ended_.pop_front();
    open_.erase(jobs_[at].id);
    told_.push_back(at);
  }
  if (disk_ != nullptr && room) room = tell_disk();
  RankProgress out;
  out.loads = items_;
  const bool disk_changed = disk_news();
  if (report_.entries() != 0 || report_.has_inventory() || disk_changed) {
    ++report_sequence_;
    ++counters_.reports;
    out.report = report_.finish();
  }
  return out;
}

// Whether the disk tier was switched off or on since the last report; that is in every one.
bool RankEngine::disk_news() {
  if (disk_ == nullptr || !epoch_known_) return false;
  const DiskState now = disk_->tier().on() ? DiskState::on : DiskState::off;
  const bool news = now != disk_told_;
  disk_told_ = now;
  report_.set_disk_state(now);
  return news;
}

// Tells of jobs of a kind that are past their deadline, the longest first; false: the report is
// full.
bool RankEngine::tell_late(JobKind kind, std::uint64_t now) {
  auto& due = due_[kind == JobKind::load ? 0 : 1];
  while (!due.empty()) {
    const auto [at, id] = due.front();
    Job& job = jobs_[at];
    const bool over = job.free || job.id != id || job.ended;
    if (!over) {
      if (job.deadline_ns > now) return true;
      if (!tell(job, ReportPhase::deadline)) return false;
      job.late = true;
      ++counters_.jobs_late;
    }
    due.pop_front();
  }
  return true;
}

bool RankEngine::tell(const Job& job, ReportPhase phase) {
  const bool deadline = phase == ReportPhase::deadline || job.late;
  const Code status = deadline ? Code::deadline : job.status;
  const std::span<const FailedBlock> failed =
      phase == ReportPhase::deadline ? std::span<const FailedBlock>() : std::span(job.failed);
  const std::uint64_t moved = phase == ReportPhase::deadline ? 0 : job.moved_bytes;
  if (!report_.add({job.id, job.kind, phase, status, moved}, failed)) return false;
  if (job.kind == JobKind::load && !job.late) {
    items_.push_back({status, job.request, job.id, failed});
  }
  return true;
}

// Ends of disk jobs, then a piece of the inventory. Only after a plan: an epoch is known then.
bool RankEngine::tell_disk() {
  while (const RankDisk::Ended* const e = disk_->ended()) {
    if (!report_.add({e->job, e->kind, ReportPhase::ended, e->status, e->moved_bytes}, e->failed)) {
      return false;
    }
    disk_->drop_ended();
  }
  if (!epoch_known_ || !disk_->tier().inventory_left()) return true;
  const std::uint64_t room = std::min(report_.room(), options_.report_bytes_max / 2);
  if (room < disk::inventory_bytes(1)) return true;
  inventory_ = disk_->tier().next_inventory(room);
  KVC_CHECK(report_.set_inventory(inventory_));
  return true;
}

bool RankEngine::any_open(std::span<const JobId> jobs) const {
  const auto is_open = [this](JobId id) {
    const auto it = open_.find(id);
    return it != open_.end() && !jobs_[it->second].ended;
  };
  if (jobs.empty()) {
    return open_.size() != ended_.size() || (disk_ != nullptr && disk_->open_jobs() != 0);
  }
  return std::any_of(jobs.begin(), jobs.end(), [&](JobId id) {
    return is_open(id) || (disk_ != nullptr && disk_->open(id));
  });
}

// Operations of these jobs (all jobs if empty) that the copy engine has or had.
void RankEngine::ops_of(std::span<const JobId> jobs, std::vector<std::uint64_t>& out) const {
  const auto add = [&](std::uint32_t at) {
    if (jobs_[at].ended) return;
    for (std::uint32_t p = 0; p < jobs_[at].next_part; ++p) out.push_back(op_id(at, p));
  };
  out.clear();
  for (const JobId id : jobs) {
    if (const auto it = open_.find(id); it != open_.end()) add(it->second);
  }
  // With nothing of their own at the engine they wait for others: for room, or for their sources.
  if (out.empty()) {
    for (const auto& [id, at] : open_) add(at);
  }
}

Code RankEngine::wait(std::span<const JobId> jobs, std::uint64_t timeout_ns) {
  const std::uint64_t begin = host_.now_ns();
  for (;;) {
    advance();
    if (!any_open(jobs)) return Code::ok;
    if (copies_->stepped()) {
      if (pump_some(1) != 0) continue;
      advance();
      // Nothing to do, unless that handed something over.
      if (pump_some(1) == 0) return any_open(jobs) ? Code::later : Code::ok;
      continue;
    }
    const std::uint64_t spent = host_.now_ns() - begin;
    const bool disk_busy = disk_ != nullptr && disk_->busy();
    if (spent >= timeout_ns || (parts_at_engine_ == 0 && !disk_busy)) return Code::later;
    const std::uint64_t slice = std::min(timeout_ns - spent, wait_slice_ns);
    if (parts_at_engine_ == 0) {
      disk_->wait(slice);
      continue;
    }
    ops_of(jobs, after_);
    // Ended or not: the loop looks.
    static_cast<void>(
        copies_->wait(after_, std::chrono::nanoseconds(static_cast<std::int64_t>(slice))));
  }
}

std::uint64_t RankEngine::pump_some(std::uint64_t budget) {
  const std::uint64_t did = copies_->pump(budget);
  return disk_ == nullptr || did == budget ? did : did + disk_->pump(budget - did);
}

Code RankEngine::pump(std::uint32_t budget) {
  std::uint64_t left = budget;
  advance();
  while (left != 0) {
    const std::uint64_t did = pump_some(left);
    advance();
    if (did == 0) return Code::ok;
    left -= did;
  }
  return budget == 0 ? Code::ok : Code::later;
}

Bytes RankEngine::host_mapped() const { return pages_ == nullptr ? Bytes{} : pages_->mapped(); }

std::string RankEngine::verify() const {
  using Slot = std::pair<std::uint32_t, std::uint32_t>;  // class, number
  std::map<Slot, std::uint32_t> readers;
  std::map<Slot, std::uint32_t> writers;
  std::uint64_t parts = 0;
  std::size_t used = 0;
  for (std::uint32_t at = 0; at < jobs_.size(); ++at) {
    const Job& job = jobs_[at];
    if (job.free) continue;
    ++used;
    parts += job.parts_open;
    if (job.ended && job.marked != 0)
      return fmt::format("job {} ended and still marks slots", job.id);
    for (std::uint32_t i = 0; i < job.marked; ++i) {
      const Slot slot{layout_->class_of(job.copies[i].group), job.copies[i].slot};
      if (job.kind == JobKind::load) {
        ++readers[slot];
      } else if (!writers.emplace(slot, at + 1).second) {
        return fmt::format("slot {} of class {} has two writers", slot.second, slot.first);
      }
    }
  }
  if (disk_ != nullptr) {
    disk_->for_each_slot([&](std::uint32_t cls, std::uint32_t slot, bool written) {
      if (written) {
        writers[{cls, slot}] = SlotState::filling;
      } else {
        ++readers[{cls, slot}];
      }
    });
  }
  if (parts != parts_at_engine_)
    return fmt::format("{} parts are open, {} counted", parts, parts_at_engine_);
  if (used != open_.size() + told_.size()) {
    return fmt::format("{} job records, {} open and {} told", used, open_.size(), told_.size());
  }
  std::string problem = verify_steps();
  if (pages_ == nullptr || !problem.empty()) return problem;
  pages_->for_each([&](std::uint32_t cls, std::uint32_t slot, const SlotState& s) {
    const auto r = readers.find({cls, slot});
    const auto w = writers.find({cls, slot});
    if (s.readers != (r == readers.end() ? 0 : r->second) ||
        s.writer != (w == writers.end() ? 0 : w->second) || (s.writer != 0 && s.written == 0)) {
      problem =
          fmt::format("slot {} of class {}: {} readers, writer {}, written {}, unlike the jobs",
                      slot, cls, s.readers, s.writer, s.written);
    }
    if (r != readers.end()) readers.erase(r);
    if (w != writers.end()) writers.erase(w);
  });
  if (problem.empty() && readers.size() + writers.size() != 0)
    problem = "a job marks a slot of a foreign page";
  return problem;
}

}  // namespace kvc
