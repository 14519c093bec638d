#include "plugin/offload/flows/completion_flow.h"

#include <algorithm>
#include <cstring>

namespace kvc {

namespace {

bool is_ok(Code code) { return code == Code::ok; }

}  // namespace

void CompletionFlow::reserve(std::uint64_t jobs, std::uint64_t blocks) {
  ended_.reserve(jobs);
  jobs_.reserve(jobs);
  verdicts_.reserve(jobs);
  rejected_.reserve(jobs);
  drained_.reserve(jobs);
  failed_.reserve(std::min<std::uint64_t>(blocks, 4096));
  released_.reserve(blocks);
}

void CompletionFlow::reject(std::uint32_t rank, std::uint64_t number, JobId job, Code status) {
  rejected_.push_back({rank, number, job, status});
  ++core_.counters.reports_rejected;
}

void CompletionFlow::end_offer(CopyRecord& copy, Outcome outcome) {
  if (!copy.offer_open) return;
  copy.offer_open = false;
  core_.ledger.end(copy.handoff, outcome, core_.offers_of(copy.request));
  core_.touch_explain(copy.request);
}

// Whether the request's prefix of [begin, end) needs this very entry of the group.
bool CompletionFlow::needs(const Request& r, Tokens begin, Tokens end, const SlotKey& key) const {
  const Geometry& geometry = core_.tier_geometry;
  const Tokens h = geometry.hash_unit();
  if (key.end <= begin || key.end.n / h.n > core_.requests.keys(r).count) return false;
  const std::uint64_t position = (key.end.n - 1) / geometry.block_tokens(key.group).n;
  if (position < geometry.first_needed_position(key.group, end) ||
      position >= geometry.end_position(key.group, end)) {
    return false;
  }
  return std::memcmp(block_key(core_.requests.keys(r), key.end, h), key.key,
                     core_.limits.key_bytes) == 0;
}

// A source failure: the entry is bad. Leases that contain it end, loads that read it fail (3.1 d);
// pins that would keep it from being written again end, too.
void CompletionFlow::condemn(SlotId entry) {
  if (!core_.tier.published(entry)) return;
  const SlotKey key = core_.tier.key_of(entry);
  for (std::uint32_t at = 0; at < core_.leases.capacity(); ++at) {
    const Lease& lease = core_.leases[at];
    if (lease.request == no_request) continue;
    Request& r = core_.requests[lease.request];
    if (needs(r, lease.hit.start, lease.hit.tokens, key)) core_.end_lease(r);
  }
  core_.pins.give_up(entry);
  for (std::size_t i = 0; i < core_.jobs.open_loads(); ++i) {
    KVC_OP(job, 1);
    Job& job = core_.jobs.open_load_at(i);
    const bool decided = job.verdict_given || job.forced != Code::ok;
    core_.jobs.for_each_copy(job, [&](CopyRecord& copy) {
      if (copy.entry != entry) return;
      if (!decided) job.forced = Code::io;
      pin_alone(copy);
    });
  }
  core_.tier.condemn(entry);
}

// As an ancestor of what the load pins the entry is safe from eviction, not from a reset, nor from
// being written again once it is bad.
void CompletionFlow::pin_alone(CopyRecord& copy) {
  // What a fill writes is kept by that.
  if (copy.pinned || !core_.tier.published(copy.entry) || core_.tier.rewriting(copy.entry)) return;
  core_.tier.pin(copy.entry, PinKind::job);
  copy.pinned = true;
}

void CompletionFlow::take_failures(Job& job, const ReportEntry& entry) {
  for (std::uint32_t i = 0; i < entry.failed_count(); ++i) {
    const FailedBlock failed = entry.failed(i);
    bool named = false;
    SlotId source = no_slot;
    core_.jobs.for_each_copy(job, [&](CopyRecord& copy) {
      if (copy.group != failed.group || copy.position != failed.position ||
          copy.block != failed.block) {
        return;
      }
      named = true;
      copy.failed = true;
      source = copy.entry;
    });
    if (!named) continue;
    job.failed.push_back(failed);
    if (job.kind == JobKind::load && failed.side == FailedSide::source) condemn(source);
  }
}

// A store past its deadline is not stored, whatever its copies do later (design 2.4).
void CompletionFlow::overdue(Job& job) {
  core_.quarantined += job.copies;
  if (job.kind != JobKind::store) return;
  core_.jobs.for_each_copy(job, [&](CopyRecord& copy) {
    end_offer(copy, Outcome::dropped_copy_failed);
    core_.tier.give_up(copy.entry);
  });
}

// False: it is none of a disk job.
bool CompletionFlow::take_disk_entry(std::uint64_t number, std::uint32_t rank,
                                     const ReportEntry& entry) {
  const ReportJob& said = entry.job();
  if (said.kind == JobKind::load || said.kind == JobKind::store) return false;
  switch (core_.disk.take_entry(rank, entry)) {
    case DiskFlow::Heard::ok:
      return true;
    case DiskFlow::Heard::unknown:
      core_.faults.report("KVC-H-051, unknown-job",
                          "rank {} reports disk job {}, which is not open", rank, said.job);
      break;
    case DiskFlow::Heard::repeated:
      core_.faults.report("KVC-H-051, repeated-report", "rank {} reports disk job {} again", rank,
                          said.job);
      break;
  }
  reject(rank, number, said.job, Code::arg);
  return true;
}

void CompletionFlow::take_entry(std::uint64_t number, std::uint32_t rank,
                                const ReportEntry& entry) {
  const ReportJob& said = entry.job();
  if (take_disk_entry(number, rank, entry)) return;
  Job* job = core_.jobs.find(said.job);
  // Reports come in any order: the deadline of a part may be told after its end.
  const bool known_end = job == nullptr ? core_.jobs.used(said.job) : job->has_ended(rank);
  if (said.phase == ReportPhase::deadline && known_end) return;
  if (job == nullptr || !job->planned || job->kind != said.kind) {
    core_.faults.report("KVC-H-051, unknown-job", "rank {} reports job {}, which is not open", rank,
                        said.job);
    return reject(rank, number, said.job, Code::arg);
  }
  const bool was_overdue = job->overdue;
  const bool ended = said.phase == ReportPhase::ended;
  const JobTable::Heard heard =
      ended ? core_.jobs.mark_ended(*job, rank) : core_.jobs.mark_overdue(*job, rank);
  if (heard == JobTable::Heard::repeated) {
    core_.faults.report("KVC-H-051, repeated-report", "rank {} reports job {} again", rank,
                        said.job);
    return reject(rank, number, said.job, Code::arg);
  }
  const Code status = ended ? said.status : Code::deadline;
  if (is_ok(job->status) && !is_ok(status)) job->status = status;
  take_failures(*job, entry);
  if (job->overdue && !was_overdue) overdue(*job);
  if (job->kind == JobKind::load && !job->verdict_given && job->ranks_heard == core_.jobs.ranks()) {
    give_verdict(*job);
  }
  if (job->ranks_ended == core_.jobs.ranks()) end_job(*job);
}

void CompletionFlow::take_report(std::uint64_t number, std::span<const std::uint8_t> bytes) {
  if (bytes.empty()) return;  // the rank had nothing to say (kvc_progress)
  const Result<ReportView> read = ReportView::read(bytes);
  if (!read.ok()) {
    core_.faults.report("KVC-H-051, report-bytes", "report {}: {}", number, read.error().text);
    return reject(0, number, 0, read.error().code);
  }
  const ReportView& report = read.value();
  if (report.epoch() != core_.epoch || report.rank() >= core_.jobs.ranks()) {
    core_.faults.report("KVC-H-051, foreign-report",
                        "report {} is of rank {} and epoch {:#x}, this is {:#x}", number,
                        report.rank(), report.epoch(), core_.epoch);
    return reject(report.rank(), number, 0,
                  report.epoch() != core_.epoch ? Code::state : Code::arg);
  }
  ReportReader entries = report.entries();
  for (ReportEntry entry; entries.next(entry);) take_entry(number, report.rank(), entry);
  if (const Status s = core_.disk.take_report(report.rank(), report); !s.ok()) {
    core_.faults.report("KVC-H-051, inventory", "report {} of rank {}: {}", number, report.rank(),
                        s.text);
    reject(report.rank(), number, 0, s.code);
  }
}

void CompletionFlow::give_verdict(Job& job) {
  job.verdict_given = true;
  const Code status = is_ok(job.forced) ? job.status : job.forced;
  verdicts_.push_back({job.request, job.id, status});
  RoleCounters& counters = core_.counters;
  ++(is_ok(status)               ? counters.loads_ok
     : status == Code::cancelled ? counters.loads_cancelled
                                 : counters.loads_failed);
  if (is_ok(status)) tell_gate(job);
  Request& r = core_.requests[job.request_index];
  if (r.id != job.request || r.load != job.id) return;
  r.load = 0;
  r.in_step = false;
  // A hit that could not be served any more is no failed load: the next lookup may hit.
  const bool not_served = job.without_copies && job.copies == 0;
  if (!is_ok(status) && !not_served) r.load_failed = true;
  if (is_ok(status)) {
    ++r.explain.loads_ok;
    r.explain.loaded += job.end - job.begin;
    if (r.admitted) r.explain.phase = RequestPhase::running;
  } else {
    ++r.explain.loads_failed;
  }
  core_.touch_explain(job.request_index);
}

// What the request waited for its load, from its plan on. One that a forward reads layer by layer
// is as long as that.
void CompletionFlow::tell_gate(const Job& job) {
  if (!core_.gate.watches() || job.copies == 0 || job.in_step) return;
  // Blocks in front of the hit were read, too, and nothing of it: it says nothing.
  if (job.from_disk == Tokens{} && core_.disk.fill_bytes(job.id) != 0) return;
  core_.gate.loaded(core_.cost_of(job.begin, job.end, job.from_disk),
                    core_.host.now_ns() - job.started_ns, job.gate_beats_ns);
}

void CompletionFlow::stored_event(RequestIndex index, SlotId entry) {
  if (!core_.events.enabled()) return;
  const SlotKey key = core_.tier.key_of(entry);
  const Tokens block = core_.tier_geometry.block_tokens(key.group);
  CacheEvent event;
  event.kind = EventKind::stored;
  event.group = key.group;
  event.begin = round_down(Tokens{key.end.n - 1}, block);
  event.end = key.end;
  const std::uint32_t bytes = core_.limits.key_bytes;
  std::memcpy(event.key.data(), key.key, bytes);
  if (index != no_request) {  // a candidate's parent is known to nobody
    const Request& r = core_.requests[index];
    event.request = r.id;
    event.has_parent = event.begin > Tokens{};
    if (event.has_parent) {
      const std::byte* parent =
          block_key(core_.requests.keys(r), event.begin, core_.geometry.hash_unit());
      std::memcpy(event.parent_key.data(), parent, bytes);
    }
  }
  core_.events.push(event);
}

namespace {

// What the tier hands back for a published entry: its request, and the offer that it ends.
constexpr std::uint32_t handoff_tag = 1U << 30U;
constexpr std::uint32_t offer_tag = 1U << 31U;
constexpr std::uint32_t request_mask = handoff_tag - 1;  // all of it: no_request
// The end of a fill is no hand-off, and it ends no offer.
static_assert(DiskFlow::fill_tag == handoff_tag);
bool is_fill(std::uint32_t tag) { return (tag & (offer_tag | handoff_tag)) == handoff_tag; }

RequestIndex request_of(std::uint32_t tag) {
  const RequestIndex index = tag & request_mask;
  return index == request_mask ? no_request : index;
}

std::uint32_t tag_of(const CopyRecord& copy) {
  KVC_CHECK(copy.request < request_mask || copy.request == no_request);
  return (copy.request & request_mask) | (copy.handoff ? handoff_tag : 0) |
         (copy.offer_open ? offer_tag : 0);
}

}  // namespace

void CompletionFlow::end_tagged(std::uint32_t tag, Outcome outcome) {
  if ((tag & offer_tag) == 0) return;
  const RequestIndex index = request_of(tag);
  core_.ledger.end((tag & handoff_tag) != 0, outcome, core_.offers_of(index));
  core_.touch_explain(index);
}

void CompletionFlow::published(SlotId entry, std::uint32_t tag) {
  stored_event(request_of(tag), entry);
  end_tagged(tag, Outcome::stored);
  if (!is_fill(tag)) {
    core_.counters.store_blocks +=
        core_.options.blocks_per_chunk == 1 ? 1 : core_.blocks_of(core_.tier.key_of(entry));
    core_.disk.note_stored(entry, request_of(tag));
  }
  if (publishing_ != entry && core_.disk.publishing() != entry) leave_landed(tag);
}

void CompletionFlow::landed_ended(std::uint32_t tag, bool by_reset) {
  end_tagged(tag, by_reset ? Outcome::dropped_reset : Outcome::dropped_parent_failed);
  leave_landed(tag);
}

void CompletionFlow::evicted(const SlotKey& key) {
  core_.disk.evicted_from_host(key.group, key.key);
}

// An entry that had landed has left that state.
void CompletionFlow::leave_landed(std::uint32_t tag) {
  const RequestIndex index = request_of(tag);
  KVC_CHECK(index != no_request);
  Request& r = core_.requests[index];
  KVC_CHECK(r.landed > 0);
  --r.landed;
  if ((tag & offer_tag) != 0) --core_.landed_offers;
  if (!r.live && r.landed == 0 && r.open_copies == 0) drained_.push_back(index);
}

void CompletionFlow::end_store_copy(const Job& job, CopyRecord& copy) {
  const bool ok = is_ok(job.status);
  if (ok) core_.counters.stored_bytes += core_.block_bytes[copy.group];
  if (!copy.closes) return;
  if (!ok || core_.tier.doomed(copy.entry)) {
    core_.tier.abandon(copy.entry);
    end_offer(copy, ok ? Outcome::dropped_parent_failed : Outcome::dropped_copy_failed);
  } else {
    publishing_ = copy.entry;
    const bool now = core_.tier.publish(copy.entry, tag_of(copy));
    publishing_ = no_slot;
    if (!now) {
      ++core_.requests[copy.request].landed;
      core_.landed_offers += copy.offer_open ? 1 : 0;
    }
    copy.offer_open = false;
  }
  if (copy.owned) {
    core_.holds.table_remove(copy.group, copy.block);
    --core_.requests[copy.request].owned_handoffs;
  }
}

void CompletionFlow::end_copy(CopyRecord& copy) {
  core_.holds.release(copy.group, copy.block);
  released_.push_back({copy.group, copy.block, copy.position});
  if (copy.request == no_request) return;
  Request& r = core_.requests[copy.request];
  KVC_CHECK(r.open_copies > 0);
  --r.open_copies;
  if (!r.live && r.open_copies == 0 && r.landed == 0) drained_.push_back(copy.request);
}

void CompletionFlow::end_job(Job& job) {
  Ended out;
  out.failed_first = failed_.size();
  out.released_first = released_.size();
  const Code status = is_ok(job.forced) ? job.status : job.forced;
  if (job.overdue) {
    KVC_CHECK(core_.quarantined >= job.copies);
    core_.quarantined -= job.copies;
  }
  if (job.kind == JobKind::load && is_ok(status)) core_.counters.load_blocks += job.copies;
  const auto soon = [&](const CopyRecord& copy) {
    core_.holds.prefetch(copy.group, copy.block);
    if (copy.request != job.request_index) core_.requests.prefetch(copy.request);
    if (job.kind == JobKind::store) core_.tier.expect_publish(copy.entry);
  };
  core_.jobs.for_each_copy(job, soon, [&](CopyRecord& copy) {
    if (job.kind == JobKind::load) {
      if (is_ok(status)) core_.counters.loaded_bytes += core_.block_bytes[copy.group];
      if (copy.pinned) core_.tier.unpin(copy.entry, PinKind::job);
    } else {
      end_store_copy(job, copy);
    }
    end_copy(copy);
  });
  sort_deepest_first(core_.geometry, std::span(released_).subspan(out.released_first));
  failed_.insert(failed_.end(), job.failed.begin(), job.failed.end());
  out.job.kind = job.kind;
  out.job.job = job.id;
  out.job.request = job.request;
  out.job.status = status;
  ended_.push_back(out);
  if (job.kind == JobKind::store) ++core_.copies_ended;
  if (job.kind == JobKind::load) core_.disk.load_ended(job.id);
  core_.jobs.remove(job, [&](RequestIndex index) -> OpenParts& { return core_.parts_of(index); });
}

void CompletionFlow::reset_jobs(bool invalidate) {
  for (std::size_t i = 0; i < core_.jobs.open(); ++i) {
    Job& job = core_.jobs.open_at(i);
    if (job.kind == JobKind::store) {
      core_.jobs.for_each_copy(job,
                               [&](CopyRecord& copy) { end_offer(copy, Outcome::dropped_reset); });
      continue;
    }
    core_.jobs.for_each_copy(job, [&](CopyRecord& copy) { pin_alone(copy); });
    if (!job.planned && job.forced == Code::ok && core_.disk.fill_bytes(job.id) != 0) {
      // What it was to read from disk goes with the reset.
      job.forced = Code::io;
      job.without_copies = true;
    }
    if (invalidate && !job.verdict_given && job.forced == Code::ok) {
      job.forced = job.planned ? Code::io : Code::cancelled;
      job.without_copies = job.without_copies || !job.planned;
    }
  }
}

void CompletionFlow::release_drained() {
  for (const RequestIndex index : drained_) core_.release_if_drained(index);
  drained_.clear();
}

CompleteResult CompletionFlow::complete(std::span<const std::span<const std::uint8_t>> reports) {
  ended_.clear();
  jobs_.clear();
  verdicts_.clear();
  rejected_.clear();
  failed_.clear();
  released_.clear();
  for (std::size_t i = 0; i < reports.size(); ++i) take_report(i, reports[i]);
  core_.disk.settle_notes();
  core_.disk.drain([&](RequestIndex index) { drained_.push_back(index); });
  release_drained();
  for (std::size_t i = 0; i < ended_.size(); ++i) {
    const bool last = i + 1 == ended_.size();
    const Ended& e = ended_[i];
    const std::size_t failed_end = last ? failed_.size() : ended_[i + 1].failed_first;
    const std::size_t released_end = last ? released_.size() : ended_[i + 1].released_first;
    EndedJob job = e.job;
    job.failed = {failed_.data() + e.failed_first, failed_end - e.failed_first};
    job.released = {released_.data() + e.released_first, released_end - e.released_first};
    jobs_.push_back(job);
  }
  return {jobs_, verdicts_, rejected_};
}

}  // namespace kvc
