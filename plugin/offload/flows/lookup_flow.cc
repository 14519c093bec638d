#include "plugin/offload/flows/lookup_flow.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace kvc {

LookupFlow::LookupFlow(SchedulerCore& core, Admissions& admissions)
    : core_(core), admissions_(admissions) {
  scratch_.groups.resize(core.geometry.groups());
  if (core.limits.max_total_tokens != no_token_limit) {
    scratch_.reserve(core.tier_geometry, core.limits.max_total_tokens);
    if (core.disk.configured()) {
      deep_.reserve(core.tier_geometry, core.limits.max_total_tokens);
    }
  }
  deep_.groups.resize(core.geometry.groups());
  for (const GroupId g : core.geometry.cacheable()) {
    full_only_ = full_only_ && core.geometry.group(g).kind == GroupKind::full;
  }
}

Why LookupFlow::gate(const Request& r, const LookupQuery& query) const {
  if (!core_.tier.sized()) return Why::no_ranks;
  if (r.no_read) return Why::no_read;
  if (r.load_failed) return Why::load_failed;
  if (query.device.n % core_.geometry.scheduler_block().n != 0) return Why::local_unaligned;
  return Why::none;
}

// The longest answer allowed, as a prefix length: one token is always computed.
Tokens LookupFlow::bound(const Request& r, const LookupQuery& query) const {
  Tokens end{query.total.n - 1};
  end = std::min(end, r.load_limit);
  if (query.external_cap < end && query.device + query.external_cap < end) {
    end = query.device + query.external_cap;
  }
  return end;
}

// Whether an open load of another request brings all of [start, end) of this very prefix into the
// device cache (OW-07). States and windows are only right at the end of that load.
bool LookupFlow::attached(RequestIndex index, Tokens start, Tokens end) {
  if (!core_.options.single_flight || core_.limits.no_device_cache) return false;
  const std::uint64_t patience_ns = core_.options.load_deadline_ms * 1'000'000 / 2;
  const Tokens h = core_.geometry.hash_unit();
  const std::byte* key = block_key(core_.requests.keys(core_.requests[index]), end, h);
  std::uint64_t now = 0;
  for (std::size_t i = 0; i < core_.jobs.open_loads(); ++i) {
    KVC_OP(job, 1);
    const Job& job = core_.jobs.open_load_at(i);
    if (job.verdict_given || job.forced != Code::ok) continue;
    if (job.request_index == index || job.begin > start || job.end < end) continue;
    if (!full_only_ && job.end != end) continue;
    const Request& other = core_.requests[job.request_index];
    if (!other.live || other.id != job.request) continue;
    const std::byte* theirs = block_key(core_.requests.keys(other), end, h);
    if (std::memcmp(key, theirs, core_.limits.key_bytes) != 0) continue;
    if (now == 0) now = core_.host.now_ns();
    if (now - job.started_ns > patience_ns) continue;
    return true;
  }
  return false;
}

namespace {

Trust trust(const Request& r) { return r.keys_broken ? Trust::nothing : Trust::promises; }

}  // namespace

bool LookupFlow::search_both(const Request& r, Tokens device, Tokens max_tokens) {
  const Code code = kvc::lookup(core_.tier_geometry, core_.disk.both(), core_.requests.keys(r),
                                device, max_tokens, deep_, trust(r));
  KVC_CHECK(code == Code::ok);
  core_.counters.bisections += deep_.cost.bisections;
  core_.counters.linear_walks += deep_.cost.linear_walks;
  return deep_.tokens > scratch_.tokens;
}

bool LookupFlow::cut_deep(const Request& r, Tokens device, Tokens max_tokens, std::uint64_t room,
                          DiskNeed& need) {
  const std::uint64_t units = room / core_.geometry.cacheable().size();
  const Tokens most = scratch_.tokens + core_.geometry.hit_alignment() * units;
  if (most >= max_tokens || !search_both(r, device, most)) return false;
  need = core_.disk.need_of(deep_, core_.requests.keys(r));
  return need.entries <= room;
}

void LookupFlow::prefetch(RequestIndex index) {
  const Request& r = core_.requests[index];
  DiskFlow& disk = core_.disk;
  if (!core_.tier.sized() || !disk.readable() || r.no_read || r.prompt.n < 2) return;
  const Tokens most = std::min(Tokens{r.prompt.n - 1}, r.load_limit);
  static_cast<void>(stored(r, most));
  if (!search_both(r, Tokens{}, most)) return;
  DiskNeed need = disk.need_of(deep_, core_.requests.keys(r));
  const std::uint64_t room = disk.free_room();
  if (need.entries > room && !cut_deep(r, Tokens{}, most, room, need)) return;
  if (need.pending) return;  // somebody else has asked for it
  static_cast<void>(disk.prefetch(index, deep_));
}

// The four answers of a tier (O-200): HIT counts, MISS ends the hit, HIT_PENDING and RETRY defer.
// Costs no slot and starts no I/O (OW-04).
Code LookupFlow::look_deeper(RequestIndex index, Tokens device, Tokens max_tokens) {
  Request& r = core_.requests[index];
  DiskFlow& disk = core_.disk;
  if (!disk.on() || r.host_only || scratch_.tokens >= max_tokens) return Code::ok;
  const bool may_wait = r.attach_answers < core_.options.attach_steps;
  if (!disk.readable() || !search_both(r, device, max_tokens)) {
    // RETRY: nothing at all is there, and what is on disk is not known yet.
    const bool retry =
        scratch_.external() == Tokens{} && may_wait && disk.warming() &&
        core_.host.now_ns() - disk.warming_since() < core_.options.load_deadline_ms * 1'000'000 / 2;
    if (!retry) return Code::ok;
    disk.count_warming();
    return Code::later;
  }
  DiskNeed need = disk.need_of(deep_, core_.requests.keys(r));
  if (need.pending && may_wait) {
    disk.count_pending();
    return Code::later;
  }
  if (const std::uint64_t room = disk.read_room(); need.entries > room) {
    // As much of it as the host tier can take.
    disk.count_cut();
    if (!cut_deep(r, device, max_tokens, room, need)) return Code::ok;
  }
  if (need.pending || !disk_pays(r, need.tokens)) return Code::ok;
  std::swap(scratch_, deep_);
  disk_tokens_ = std::min(need.tokens, scratch_.external());
  return Code::ok;
}

bool LookupFlow::pays(Request& r) {
  if (!core_.gate.watches()) return true;
  if (!r.gate.of(scratch_.start, scratch_.tokens, disk_tokens_)) {
    r.gate = {
        scratch_.start, scratch_.tokens, disk_tokens_,
        core_.gate.decide(core_.cost_of(scratch_.start, scratch_.tokens, disk_tokens_), r.id)};
    r.explain.gate = r.gate.answer.decision;
    r.explain.gate_load_us = r.gate.answer.load_ns / 1000;
    r.explain.gate_recompute_us = r.gate.answer.recompute_ns / 1000;
  }
  return r.gate.answer.loads();
}

bool LookupFlow::disk_pays(Request& r, Tokens disk) {
  // With nothing in the host tier it is the whole hit that pays or does not.
  if (!core_.gate.watches() || scratch_.external() == Tokens{}) return true;
  DiskMemo asked{scratch_.start, scratch_.tokens, deep_.tokens, disk, {}};
  if (!r.gate_disk.of(asked)) {
    asked.answer = core_.gate.choose(
        core_.cost_of(scratch_.start, scratch_.tokens, {}),
        core_.cost_of(deep_.start, deep_.tokens, std::min(disk, deep_.external())), r.id);
    r.gate_disk = asked;
  }
  if (r.gate_disk.answer.choice != DiskChoice::without) return true;
  r.explain.gate_left_on_disk = deep_.tokens - scratch_.tokens;
  return false;
}

LookupAnswer LookupFlow::find(RequestIndex index, const LookupQuery& query) {
  Request& r = core_.requests[index];
  const Tokens max_tokens = bound(r, query);
  if (r.lease != no_lease) {
    Lease& lease = core_.leases[r.lease];
    if (lease.epoch == core_.leases.epoch() && lease.max_tokens == max_tokens &&
        lease.hit.start == query.device && !attached(index, query.device, lease.hit.tokens)) {
      core_.leases.refresh(r.lease, core_.step);
      return {Code::ok, lease.hit.external(), Why::none};
    }
    core_.end_lease(r);
  }
  const Code code = kvc::lookup(core_.tier_geometry, core_.tier.index(), core_.requests.keys(r),
                                query.device, max_tokens, scratch_, trust(r));
  KVC_CHECK(code == Code::ok);
  core_.counters.bisections += scratch_.cost.bisections;
  core_.counters.linear_walks += scratch_.cost.linear_walks;
  r.explain.lost_no_state = Tokens{};
  if (scratch_.attention_tokens > scratch_.tokens) {
    r.explain.lost_no_state = scratch_.attention_tokens - scratch_.tokens;
  }
  r.explain.lost_to_drafts = scratch_.dropped_for_drafts;
  r.explain.gate_left_on_disk = disk_tokens_ = Tokens{};
  core_.counters.tokens_lost_no_state += r.explain.lost_no_state.n;
  core_.counters.draft_dropped_tokens += r.explain.lost_to_drafts.n;
  if (look_deeper(index, query.device, max_tokens) == Code::later) {
    ++r.attach_answers;
    return {Code::later, Tokens{}, Why::attached};
  }
  const Tokens external = scratch_.external();
  if (external == Tokens{}) {
    return {Code::ok, Tokens{}, r.reset_noted ? Why::reset : Why::miss};
  }
  if (r.attach_answers < core_.options.attach_steps &&
      attached(index, query.device, scratch_.tokens)) {
    ++r.attach_answers;
    ++core_.counters.lookups_attached;
    return {Code::later, Tokens{}, Why::attached};
  }
  if (!pays(r)) return {Code::ok, Tokens{}, Why::cost_gate};
  RequestIndex dropped = no_request;
  r.lease = core_.leases.open(index, core_.step, max_tokens, scratch_, dropped);
  if (dropped != no_request) core_.requests[dropped].lease = no_lease;
  r.reset_noted = false;
  return {Code::ok, external, Why::none};
}

LookupAnswer LookupFlow::note(RequestIndex index, const LookupQuery& query, LookupAnswer answer) {
  Request& r = core_.requests[index];
  r.device = query.device;
  r.offered = answer.external;
  r.computed_from = query.device;
  ++core_.counters.lookups;
  core_.counters.lookup_hit_tokens += answer.external.n;
  ++r.explain.lookups;
  r.explain.attached += answer.code == Code::later;
  r.explain.last_total = query.total;
  r.explain.last_device = query.device;
  r.explain.last_external = answer.external;
  r.explain.last_why = answer.why;
  core_.touch_explain(index);
  return answer;
}

Result<LookupAnswer> LookupFlow::lookup(const LookupQuery& query) {
  const FoundRequest found = core_.find(query.request);
  if (!found.live()) return found.or_answer(LookupAnswer{Code::ok, Tokens{}, Why::not_tracked});
  const RequestIndex index = found.index;
  Request& r = core_.requests[index];
  core_.explain.expect_put(r.explain_ticket);
  if (r.load != 0) {
    return {Code::state, fmt::format("request {}: load job {} has no verdict", r.id, r.load)};
  }
  if (query.total == Tokens{} || query.device > query.total ||
      query.total > core_.limits.max_total_tokens) {
    return {Code::arg,
            fmt::format("request {}: {} tokens, {} of them on the device; at most {} are allowed",
                        r.id, query.total.n, query.device.n, core_.limits.max_total_tokens.n)};
  }
  if (r.admitted) {  // the notice of its preemption
    admissions_.preempt(index);
    core_.requests.note_preemption(index);
  }
  const Why why = gate(r, query);
  if (why != Why::none) {
    core_.end_lease(r);
    return note(index, query, {Code::ok, Tokens{}, why});
  }
  return note(index, query, find(index, query));
}

Status LookupFlow::cancel(RequestId request) {
  const FoundRequest found = core_.find(request);
  if (!found.live()) return found.status;
  const RequestIndex index = found.index;
  core_.end_lease(core_.requests[index]);
  return {};
}

void LookupFlow::end_old_leases() {
  for (std::uint32_t at = core_.leases.oldest(); at != no_lease; at = core_.leases.oldest()) {
    const Lease& lease = core_.leases[at];
    if (core_.step - lease.step < core_.options.lease_steps) return;
    core_.end_lease(core_.requests[lease.request]);
  }
}

Hit& LookupFlow::stored(const Request& r, Tokens most) {
  most = std::min(most, core_.limits.max_total_tokens);
  const Code code = kvc::lookup(core_.tier_geometry, core_.tier.index(), core_.requests.keys(r),
                                Tokens{}, most, scratch_, trust(r));
  KVC_CHECK(code == Code::ok);
  core_.counters.bisections += scratch_.cost.bisections;
  core_.counters.linear_walks += scratch_.cost.linear_walks;
  return scratch_;
}

const Hit* LookupFlow::resolve(const Request& r, Tokens accepted) {
  const Tokens end = r.device + accepted;
  if (r.lease != no_lease) {
    const Hit& hit = core_.leases[r.lease].hit;
    if (hit.start == r.device && hit.tokens == end) return &hit;
  }
  if (!core_.tier.sized()) return nullptr;
  const auto found = [&](Tokens cap) {
    const Code code = kvc::lookup(core_.tier_geometry, core_.tier.index(), core_.requests.keys(r),
                                  r.device, cap, scratch_, trust(r));
    KVC_CHECK(code == Code::ok);
    core_.counters.bisections += scratch_.cost.bisections;
    core_.counters.linear_walks += scratch_.cost.linear_walks;
    return scratch_.tokens == end;
  };
  if (found(end)) return &scratch_;
  if (!r.host_only && core_.disk.readable() && search_both(r, r.device, end) &&
      deep_.tokens == end) {
    return &deep_;
  }
  // With one group the cap takes the draft's unit from what is accepted; the unit that it
  // is to compute again may as well be the one behind it.
  if (!core_.geometry.has_drafts()) return nullptr;
  const Tokens behind = end + core_.geometry.hit_alignment();
  return behind <= core_.limits.max_total_tokens && found(behind) ? &scratch_ : nullptr;
}

}  // namespace kvc
