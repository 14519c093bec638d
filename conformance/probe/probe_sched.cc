// The scheduler role of the probe: calls go on to the next connector, answers are changed by the
// script.
#include <algorithm>
#include <cstring>

#include <kvc/kvc_util.h>

#include "conformance/probe/handle.h"

namespace kvc::probe {
namespace {

constexpr std::uint64_t later_answers = 20;  // script "later": so many per request
constexpr std::int64_t far_block = INT64_MAX / 2;

SchedHandle& sched(kvc_sched* s) { return *reinterpret_cast<SchedHandle*>(s); }

std::vector<HeldBlock> held_of(const std::vector<kvc_block>& blocks) {
  std::vector<HeldBlock> out;
  for (const kvc_block& b : blocks) out.push_back({b.group, b.block, b.position});
  return out;
}

kvc_status set_ranks(kvc_sched* s, const kvc_list* ranks, kvc_list* usable) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  if (usable == nullptr) return KVC_E_ARG;
  kvc_list mine{};
  const kvc_status status = p.next.api.set_ranks(p.inner, ranks, &mine);
  if (status < 0) return status;
  std::vector<kvc_class> classes = elements_of<kvc_class>(mine);
  if (p.script.has("lying_capacity") && !classes.empty()) {
    p.judge.acted();
    for (kvc_class& c : classes) c.usable_slots = UINT64_MAX;
    classes.push_back(classes.front());
    classes.back().usable_slots = 0;
    classes.back().group_mask = UINT64_MAX;
  }
  p.out.usable.clear();
  *usable = p.out.usable.put(classes);
  return status;
}

kvc_status request_begin(kvc_sched* s, const kvc_request* in) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_request mine{};
  if (const kvc_status bad = KVC_READ(kvc_request, &mine, in); bad != KVC_OK) return bad;
  kvc_status status = KVC_OK;
  const bool answered = p.answers("request_begin", status);
  if (answered && is_fatal(status)) return status;
  if (!answered && p.script.has("full") && p.script.meets(++p.begins)) {
    p.judge.acted();
    status = KVC_E_FULL;
  } else if (!answered) {
    status = p.next.api.request_begin(p.inner, in);
    p.judge.begin(mine, status >= 0);
    return status;
  }
  p.judge.begin(mine, status >= 0 || status == KVC_E_FULL);
  if (status >= 0 || status == KVC_E_FULL) p.untracked.insert(mine.request);
  return status;
}

kvc_status request_extend(kvc_sched* s, const kvc_extend* in) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_extend mine{};
  if (const kvc_status bad = KVC_READ(kvc_extend, &mine, in); bad != KVC_OK) return bad;
  kvc_status status = KVC_OK;
  if (p.answers("request_extend", status)) {
    if (status > 0 || status == KVC_E_FULL) p.cut.insert(mine.request);
    return status;
  }
  if (p.untracked.count(mine.request) != 0 || p.cut.count(mine.request) != 0) return KVC_OK;
  return p.next.api.request_extend(p.inner, in);
}

// What the scripts make of a right answer.
kvc_status spoil_hit(SchedHandle& p, const kvc_lookup_in& in, kvc_lookup_out& hit) {
  const bool met = p.script.meets(in.request);
  const auto wait = [&] {
    p.judge.acted();
    hit.external_tokens = 0;
    hit.why = KVC_WHY_ATTACHED;
    return KVC_LATER;
  };
  if (met && p.script.has("later_forever")) return wait();
  if (met && p.script.has("later")) {
    std::uint64_t& left = p.later_left.try_emplace(in.request, later_answers).first->second;
    if (left > 0) return --left, wait();
  }
  if (hit.external_tokens == 0 && !p.script.has("greedy_hit")) return KVC_OK;
  if (!p.script.meets(++p.hits)) return KVC_OK;
  if (p.script.has("greedy_hit")) {
    p.judge.contradicted();
    hit.external_tokens = in.total_tokens + 1'000'000;
  } else if (p.script.has("unaligned_hit")) {
    p.judge.contradicted();
    hit.external_tokens -= 1;
  }
  return KVC_OK;
}

kvc_status lookup(kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_lookup_in mine{};
  if (const kvc_status bad = KVC_READ(kvc_lookup_in, &mine, in); bad != KVC_OK) return bad;
  kvc_status status = KVC_OK;
  if (p.answers("lookup", status)) {
    if (!is_fatal(status)) p.judge.looked_up(mine, status == KVC_LATER, 0);
    return status;
  }
  kvc_lookup_out hit{};
  hit.struct_size = sizeof hit;
  if (p.untracked.count(mine.request) != 0) {
    hit.why = KVC_WHY_NOT_TRACKED;
    return KVC_WRITE(out, &hit);
  }
  status = p.next.api.lookup(p.inner, in, &hit);
  if (status < 0) return status;
  const std::uint64_t honest = hit.external_tokens;
  hit.struct_size = sizeof hit;
  if (status == KVC_OK) status = spoil_hit(p, mine, hit);
  p.judge.looked_up(mine, status == KVC_LATER, honest);
  const kvc_status written = KVC_WRITE(out, &hit);
  return written < 0 ? written : status;
}

kvc_status lookup_cancel(kvc_sched* s, std::uint64_t request) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_status status = KVC_OK;
  if (p.answers("lookup_cancel", status)) return status;
  return p.untracked.count(request) != 0 ? KVC_OK : p.next.api.lookup_cancel(p.inner, request);
}

// The answer of a load, with longer elements and, by script, wrong ones.
void spoil_load(SchedHandle& p, std::uint64_t request, kvc_alloc_out& answer) {
  std::vector<kvc_block> held = elements_of<kvc_block>(answer.held);
  if (p.script.meets_job("foreign_dest", answer.job) && !held.empty()) {
    p.judge.contradicted();
    held.back().block = far_block;
  }
  p.held[answer.job] = held_of(held);
  p.judge.opened_load(request, answer.job, p.held[answer.job]);
  answer.held = p.out.alloc_held.put(held);
  answer.media = p.out.media.put(elements_of<kvc_medium_tokens>(answer.media));
}

kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_alloc_in mine{};
  if (const kvc_status bad = KVC_READ(kvc_alloc_in, &mine, in); bad != KVC_OK) return bad;
  kvc_alloc_out answer{};
  answer.struct_size = sizeof answer;
  kvc_status status = KVC_OK;
  bool nothing = p.answers("alloc_update", status);
  if (nothing && status < 0) {
    if (!is_fatal(status)) p.judge.refused_allocation(mine.request);
    return status;
  }
  if (p.script.has("no_job") && mine.accepted_tokens != 0) {
    p.judge.contradicted();
    nothing = true;
  }
  p.judge.allocated(mine);
  if (p.untracked.count(mine.request) != 0) return KVC_WRITE(out, &answer);
  if (nothing) mine.accepted_tokens = 0;
  const kvc_status forwarded = p.next.api.alloc_update(p.inner, &mine, &answer);
  if (forwarded < 0) return forwarded;
  p.out.alloc_held.clear();
  p.out.media.clear();
  answer.struct_size = sizeof answer;
  if (answer.job != 0) spoil_load(p, mine.request, answer);
  const kvc_status written = KVC_WRITE(out, &answer);
  return written < 0 ? written : status;
}

// A step without the requests that the next connector does not know.
struct Filtered {
  explicit Filtered(const SchedHandle& p, const kvc_step& in) : step(in) {
    const auto unknown = [&p](std::uint64_t id) { return p.untracked.count(id) != 0; };
    scheduled = elements_of<kvc_step_request>(in.scheduled);
    handoffs = elements_of<kvc_handoff>(in.handoffs);
    if (in.n_preempted != 0) preempted.assign(in.preempted, in.preempted + in.n_preempted);
    std::erase_if(scheduled, [&](const kvc_step_request& r) { return unknown(r.request); });
    std::erase_if(handoffs, [&](const kvc_handoff& h) { return unknown(h.request); });
    std::erase_if(preempted, unknown);
    step.scheduled = kvc_list_of(scheduled.data(), scheduled.size(), sizeof(kvc_step_request));
    step.handoffs = kvc_list_of(handoffs.data(), handoffs.size(), sizeof(kvc_handoff));
    step.preempted = preempted.data();
    step.n_preempted = preempted.size();
  }
  std::vector<kvc_step_request> scheduled;
  std::vector<kvc_handoff> handoffs;
  std::vector<std::uint64_t> preempted;
  kvc_step step;
};

kvc_list spoil_plan(SchedHandle& p, const kvc_list& list) {
  std::vector<kvc_plan_job> jobs = elements_of<kvc_plan_job>(list);
  for (kvc_plan_job& job : jobs) {
    std::vector<kvc_block> held = elements_of<kvc_block>(job.held);
    if (job.kind == KVC_JOB_STORE && !held.empty()) {
      const bool foreign = p.script.meets_job("foreign_hold", job.job);
      const bool null = p.script.meets_job("null_hold", job.job);
      if (foreign || null) {
        p.judge.contradicted();
        held.push_back(held.back());
        held.back().block = foreign ? far_block : 0;
      }
      p.held[job.job] = held_of(held);
      p.judge.opened_store(job.job, p.held[job.job]);
    }
    job.held = p.out.job_held.put(held);
  }
  return p.out.jobs.put(jobs);
}

kvc_status build_store_jobs(kvc_sched* s, const kvc_step* in, kvc_plan* out) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_step mine{};
  if (const kvc_status bad = KVC_READ(kvc_step, &mine, in); bad != KVC_OK) return bad;
  kvc_status status = KVC_OK;
  if (p.answers("build_store_jobs", status)) return status;
  p.judge.step(mine);
  const Filtered filtered(p, mine);
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  status = p.next.api.build_store_jobs(p.inner, &filtered.step, &plan);
  if (status < 0) return status;
  p.out.jobs.clear();
  p.out.job_held.clear();
  plan.struct_size = sizeof plan;
  plan.jobs = spoil_plan(p, plan.jobs);
  const kvc_status written = KVC_WRITE(out, &plan);
  return written < 0 ? written : status;
}

// What `complete` tells, before it becomes lists.
struct News {
  std::vector<kvc_ended_job> jobs;
  std::vector<kvc_verdict> verdicts;
  std::vector<kvc_rejected> rejected;
};

// The engine is never told that these jobs ended.
void keep_back(SchedHandle& p, News& news) {
  const auto kept = [&p](std::int32_t kind, kvc_job job) {
    return p.script.meets_job(kind == KVC_JOB_LOAD ? "missing_load" : "missing_store", job);
  };
  std::erase_if(news.jobs, [&](const kvc_ended_job& job) {
    if (!kept(job.kind, job.job)) return false;
    p.judge.acted();
    p.judge.never_ends(job.job);
    (job.kind == KVC_JOB_LOAD ? p.kept_back.load_jobs : p.kept_back.store_jobs) += 1;
    p.kept_back.held_blocks += job.released.count;
    return true;
  });
  std::erase_if(news.verdicts, [&](const kvc_verdict& v) { return kept(KVC_JOB_LOAD, v.job); });
}

void spoil_job(SchedHandle& p, kvc_ended_job& job) {
  std::vector<kvc_block> released = elements_of<kvc_block>(job.released);
  std::vector<kvc_failed_block> failed = elements_of<kvc_failed_block>(job.failed);
  if (job.kind == KVC_JOB_LOAD && job.status == KVC_OK && p.script.meets_job("failed", job.job)) {
    p.judge.acted();
    job.status = KVC_E_IO;
    for (const kvc_block& b : released) {
      failed.push_back({sizeof(kvc_failed_block), b.group, b.block, b.position, 0, KVC_E_IO,
                        KVC_SIDE_SOURCE, 0});
    }
  }
  if (p.script.has("reordered")) {
    p.judge.acted();
    std::reverse(released.begin(), released.end());
  }
  if (p.script.meets_job("foreign_release", job.job)) {
    p.judge.contradicted();
    released.push_back({sizeof(kvc_block), 0, far_block, 0});
  }
  job.released = p.out.released.put(released);
  job.failed = p.out.failed.put(failed);
}

void spoil_news(SchedHandle& p, News& news) {
  keep_back(p, news);
  for (kvc_ended_job& job : news.jobs) spoil_job(p, job);
  for (kvc_verdict& v : news.verdicts) {
    if (v.status == KVC_OK && p.script.meets_job("failed", v.job)) v.status = KVC_E_IO;
  }
  if (p.script.has("reordered")) {
    std::reverse(news.jobs.begin(), news.jobs.end());
    std::reverse(news.verdicts.begin(), news.verdicts.end());
  }
  if (p.script.has("duplicate") && !news.jobs.empty()) {
    p.judge.contradicted();
    const auto jobs = news.jobs;
    const auto verdicts = news.verdicts;
    news.jobs.insert(news.jobs.end(), jobs.begin(), jobs.end());
    news.verdicts.insert(news.verdicts.end(), verdicts.begin(), verdicts.end());
  }
  if (p.script.has("unknown_job")) {
    p.judge.contradicted();
    kvc_ended_job job{};
    job.kind = KVC_JOB_LOAD;
    job.job = UINT64_MAX - 1;
    job.request = UINT64_MAX - 1;
    news.jobs.push_back(job);
    news.verdicts.push_back({0, KVC_OK, UINT64_MAX - 1, UINT64_MAX - 1});
  }
  if (p.script.has("rejects")) {
    p.judge.acted();
    news.rejected.push_back({0, UINT32_MAX, UINT64_MAX, 0, KVC_E_STATE, 0});
    news.rejected.push_back({0, 0, 0, UINT64_MAX, KVC_E_ARG, 0});
  }
}

void tell(SchedHandle& p, const News& news, kvc_complete_out& out) {
  for (const kvc_ended_job& job : news.jobs) {
    p.judge.ended(job.job);
    p.held.erase(job.job);
  }
  for (const kvc_verdict& v : news.verdicts) p.judge.verdict(v.request, v.status == KVC_OK);
  out.jobs = p.out.ended.put(news.jobs);
  out.verdicts = p.out.verdicts.put(news.verdicts);
  out.rejected = p.out.rejected.put(news.rejected);
}

kvc_status complete(kvc_sched* s, const kvc_bytes* reports, std::uint64_t n,
                    kvc_complete_out* out) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  if (n != 0 && reports == nullptr) return KVC_E_ARG;
  kvc_status status = KVC_OK;
  if (p.answers("complete", status)) return status;
  kvc_complete_out answer{};
  answer.struct_size = sizeof answer;
  status = p.next.api.complete(p.inner, reports, n, &answer);
  if (status < 0) return status;
  News news{elements_of<kvc_ended_job>(answer.jobs), elements_of<kvc_verdict>(answer.verdicts),
            elements_of<kvc_rejected>(answer.rejected)};
  p.out.ended.clear();
  p.out.released.clear();
  p.out.failed.clear();
  p.out.verdicts.clear();
  p.out.rejected.clear();
  spoil_news(p, news);
  answer.struct_size = sizeof answer;
  tell(p, news, answer);
  const kvc_status written = KVC_WRITE(out, &answer);
  return written < 0 ? written : status;
}

kvc_status request_end(kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_end_in mine{};
  if (const kvc_status bad = KVC_READ(kvc_end_in, &mine, in); bad != KVC_OK) return bad;
  kvc_status status = KVC_OK;
  if (p.answers("request_end", status)) return status;
  p.judge.end(mine);
  p.cut.erase(mine.request);
  kvc_end_out answer{};
  answer.struct_size = sizeof answer;
  if (p.untracked.erase(mine.request) != 0) return KVC_WRITE(out, &answer);
  status = p.next.api.request_end(p.inner, in, &answer);
  if (status < 0) return status;
  const std::vector<kvc_block> held = elements_of<kvc_block>(answer.held);
  if (answer.job != 0) p.judge.opened_last_store(answer.job, held_of(held));
  p.out.end_held.clear();
  answer.struct_size = sizeof answer;
  answer.held = p.out.end_held.put(held);
  const kvc_status written = KVC_WRITE(out, &answer);
  return written < 0 ? written : status;
}

kvc_status reset(kvc_sched* s, std::uint64_t flags) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_status status = KVC_OK;
  const bool answered = p.answers("reset", status);
  if (answered && status < 0) return status;
  const kvc_status forwarded = p.next.api.reset(p.inner, flags);
  if (forwarded < 0 || answered) return forwarded < 0 ? forwarded : status;
  if (!p.script.has("reset_later")) return forwarded;
  p.judge.acted();
  return KVC_LATER;
}

kvc_status pump_scheduler(kvc_sched* s, std::uint32_t budget) noexcept {
  SchedHandle& p = sched(s);
  const std::lock_guard lock(p.mutex);
  kvc_status status = KVC_OK;
  return p.answers("pump_scheduler", status) ? status : p.next.api.pump_scheduler(p.inner, budget);
}

}  // namespace

void fill_scheduler(kvc_plugin_api& t) {
  t.set_ranks = set_ranks;
  t.request_begin = request_begin;
  t.request_extend = request_extend;
  t.lookup = lookup;
  t.lookup_cancel = lookup_cancel;
  t.alloc_update = alloc_update;
  t.build_store_jobs = build_store_jobs;
  t.complete = complete;
  t.request_end = request_end;
  t.reset = reset;
  t.pump_scheduler = pump_scheduler;
}

}  // namespace kvc::probe
