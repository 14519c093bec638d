// What a hit needs from disk, and the fills that bring it.
#include <algorithm>
#include <cstring>

#include "plugin/offload/flows/disk_flow.h"

namespace kvc {

bool DiskFlow::counts_disk(const Hit& hit) {
  return std::any_of(hit.groups.begin(), hit.groups.end(), [](const GroupHit& g) {
    return on_disk(g.deepest) || on_disk(g.inside) ||
           std::any_of(g.slots.begin(), g.slots.end(), on_disk);
  });
}

template <class Visit>
void DiskFlow::for_each_part(const Hit& hit, const KeyView& keys, Visit visit) const {
  const Tokens h = geometry_.hash_unit();
  for (const GroupId g : geometry_.cacheable()) {
    const GroupHit& found = hit.groups[g];
    if (found.count() == 0) continue;
    const Tokens block = geometry_.block_tokens(g);
    if (host_.index().chained() && geometry_.chain() == g) {
      std::uint64_t first = found.first_position;
      for (; first > 0; --first) {
        SlotId entry = no_slot;
        const std::byte* const key = block_key(keys, block * first, h);
        if (host_.find(g, key, entry) != Presence::absent || entry != no_slot) break;
      }
      for (std::uint64_t p = first; p < found.first_position; ++p) {
        const Tokens end = block * (p + 1);
        visit(Part{g, block_key(keys, end, h), end}, false);
      }
    }
    for (std::uint64_t i = 0; i < found.count(); ++i) {
      KVC_OP(entry, 1);
      Tokens end;
      if (!found.brief) {
        end = both_.key_of(found.slots[i]).end;
      } else {
        end = i < found.whole ? block * (found.first_position + i + 1) : found.inside_end;
      }
      visit(Part{g, block_key(keys, end, h), end}, true);
    }
  }
}

DiskNeed DiskFlow::need_of(const Hit& hit, const KeyView& keys) const {
  DiskNeed need;
  GroupId group = groups_max;
  Tokens tokens;  // of the group
  for_each_part(hit, keys, [&](const Part& part, bool wanted) {
    if (group != part.group) tokens = Tokens{};
    group = part.group;
    SlotId entry = no_slot;
    const Presence presence = host_.find(part.group, part.key, entry);
    if (presence == Presence::published) return;
    need.pending = need.pending || (presence == Presence::reserved && wanted);
    ++need.entries;
    if (!wanted) return;
    const Tokens begin =
        std::max(round_down(Tokens{part.end.n - 1}, geometry_.block_tokens(part.group)), hit.start);
    const Tokens end = std::min(part.end, hit.tokens);
    if (end > begin) tokens += end - begin;
    need.tokens = std::max(need.tokens, tokens);
  });
  return need;
}

std::uint64_t DiskFlow::read_room() const {
  const std::uint64_t total = host_.slots_total();
  if (total == UINT64_MAX) return jobs_.copies_left();
  const std::uint64_t used = host_.slots_used();
  const std::uint64_t free = total > used ? total - used : 0;
  // Some are kept for what is stored meanwhile.
  const std::uint64_t host = free + host_.evictable();
  return std::min<std::uint64_t>(host - host / 8, jobs_.copies_left());
}

std::uint64_t DiskFlow::free_room() const {
  const std::uint64_t total = host_.slots_total();
  const std::uint64_t used = host_.slots_used();
  const std::uint64_t free = total > used ? total - used : 0;
  return std::min<std::uint64_t>(free - free / 8, jobs_.copies_left());
}

// The host entry of the part: published and pinned already, or reserved for the fill.
bool DiskFlow::take_part(const Part& part, RequestIndex request, DiskJob& job, SlotId& entry,
                         bool may_evict) {
  const Request& r = requests_[request];
  const Presence presence = host_.find(part.group, part.key, entry);
  if (presence == Presence::published) return true;
  SlotId below = no_slot;
  if (presence != Presence::absent || jobs_.copies_left() == 0 ||
      index_.find(part.group, part.key, below) != Presence::published) {
    return false;
  }
  index_.pin(below, PinKind::job);
  Refusal refusal = Refusal::none;
  entry = host_.reserve(part.group, part.key, requests_.keys(r), part.end, r.run, entry, refusal,
                        may_evict);
  if (entry == no_slot) {
    index_.unpin(below, PinKind::job);
    return false;
  }
  jobs_.add(job, entry, below);
  return true;
}

bool DiskFlow::open_fill(RequestIndex request, const Hit& hit, JobId load,
                         PagedVector<SlotId>& entries, DiskNeed& need) {
  if (!readable()) return false;
  Request& r = requests_[request];
  const KeyView keys = requests_.keys(r);
  need = need_of(hit, keys);
  if (need.pending) return false;
  DiskJob* const job = jobs_.create(JobKind::fill);
  if (job == nullptr) return false;
  job->load = load;
  job->request = request;
  pinned_.clear();
  for_each_part(hit, keys, [&](const Part& part, bool wanted) {
    SlotId entry = no_slot;
    if (!wanted || host_.find(part.group, part.key, entry) != Presence::published) return;
    host_.pin(entry, PinKind::job);
    pinned_.push_back(entry);
  });
  entries.clear();
  bool whole = true;
  for_each_part(hit, keys, [&](const Part& part, bool wanted) {
    SlotId entry = no_slot;
    whole = whole && take_part(part, request, *job, entry, true);
    if (whole && wanted) entries.push_back(entry);
  });
  if (!whole) {
    undo_fill(*job);
    return false;
  }
  for (const SlotId entry : pinned_) host_.use(entry, r.run, keys);
  if (job->copies == 0) {  // all of it has come since the lookup
    jobs_.remove(*job);
    return true;
  }
  use_below(*job, r);
  ++r.fills;
  return true;
}

void DiskFlow::use_below(DiskJob& job, Request& r) {
  const RunId run = run_of(r);
  if (run == no_run) return;
  const KeyView keys = requests_.keys(r);
  jobs_.for_each(job, [&](const DiskCopy& copy) { index_.use(copy.disk, run, keys); });
}

// What is reserved keeps what it hangs on, so that nothing has to be pinned.
bool DiskFlow::prefetch(RequestIndex request, const Hit& hit) {
  if (!readable() || prefetching_ == prefetches_max) return false;
  DiskJob* const job = jobs_.create(JobKind::fill);
  if (job == nullptr) return false;
  job->request = request;
  job->load_ended = true;  // none waits
  pinned_.clear();
  bool whole = true;
  for_each_part(hit, requests_.keys(requests_[request]), [&](const Part& part, bool /*wanted*/) {
    SlotId entry = no_slot;
    whole = whole && take_part(part, request, *job, entry, false);
  });
  if (!whole) {
    undo_fill(*job);
    return false;
  }
  if (job->copies == 0) {
    jobs_.remove(*job);
    return true;
  }
  use_below(*job, requests_[request]);
  ++requests_[request].fills;
  ++prefetching_;
  counters_.prefetched += job->copies;
  prefetches_.push_back(job);
  return true;
}

void DiskFlow::plan_prefetches(std::uint64_t room) {
  std::size_t n = 0;
  for (; n < prefetches_.size(); ++n) {
    DiskJob& job = *prefetches_[n];
    const std::uint64_t bytes = plan_job_bytes + job.copies * std::uint64_t{plan_disk_block_bytes};
    if (bytes > room) break;
    room -= bytes;
    job.planned = true;
    fills_now_.push_back(&job);
  }
  prefetches_.erase(prefetches_.begin(), prefetches_.begin() + static_cast<std::ptrdiff_t>(n));
}

// Those that no plan has yet.
void DiskFlow::drop_prefetches() {
  pinned_.clear();
  for (DiskJob* const job : prefetches_) {
    fill_over(*job);
    undo_fill(*job);
  }
  prefetches_.clear();
}

void DiskFlow::undo_fill(DiskJob& job) {
  jobs_.for_each(job, [&](const DiskCopy& copy) {
    host_.abandon(copy.host);
    index_.unpin(copy.disk, PinKind::job);
  });
  for (const SlotId entry : pinned_) host_.unpin(entry, PinKind::job);
  pinned_.clear();
  jobs_.remove(job);
}

std::uint64_t DiskFlow::fill_bytes(JobId load) {
  if (filling() == 0) return 0;
  const DiskJob* const job = jobs_.find_fill(load);
  return job == nullptr ? 0 : plan_job_bytes + job->copies * std::uint64_t{plan_disk_block_bytes};
}

void DiskFlow::plan_fill(JobId load) {
  if (filling() == 0) return;
  DiskJob* const job = jobs_.find_fill(load);
  if (job == nullptr) return;
  job->planned = true;
  fills_now_.push_back(job);
}

void DiskFlow::fill_over(const DiskJob& job) {
  Request& r = requests_[job.request];
  KVC_CHECK(r.fills > 0);
  prefetching_ -= job.load == 0 ? 1 : 0;
  if (--r.fills == 0 && !r.live) drained_.push_back(job.request);
}

void DiskFlow::cancel_fill(JobId load) {
  if (filling() == 0) return;
  DiskJob* const job = jobs_.find_fill(load);
  if (job == nullptr) return;
  KVC_CHECK(!job->planned);
  fill_over(*job);
  pinned_.clear();
  undo_fill(*job);
}

void DiskFlow::load_ended(JobId load) {
  if (filling() == 0) return;
  DiskJob* const job = jobs_.find_fill(load);
  if (job == nullptr) return;
  job->load_ended = true;
  if (job->ended) settle_fill(*job);
}

// Both the fill and the load that reads it have ended.
void DiskFlow::settle_fill(DiskJob& job) {
  jobs_.for_each(job, [&](const DiskCopy& copy) {
    const bool bad = copy.failed || job.all_failed;
    ++(bad ? counters_.fills_failed : counters_.fills_ok);
    if (bad || host_.doomed(copy.host)) {
      host_.abandon(copy.host);
    } else {
      publishing_ = copy.host;
      if (!host_.publish(copy.host, job.request | fill_tag)) ++requests_[job.request].landed;
      publishing_ = no_slot;
    }
    if (copy.lost || job.all_failed) index_.condemn(copy.disk);
    index_.unpin(copy.disk, PinKind::job);
  });
  fill_over(job);
  jobs_.remove(job);
}

}  // namespace kvc
