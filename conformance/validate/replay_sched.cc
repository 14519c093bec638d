// The scheduler role of a replay.
#include <algorithm>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "conformance/validate/form.h"
#include "conformance/validate/replay_read.h"

namespace kvc::validate {
namespace {

constexpr std::size_t counts = sizeof(kvc_offer_counts) / sizeof(std::uint64_t);

}  // namespace

void Replay::set_ranks(const RecordedCall& call) {
  SetRanksIn in;
  SetRanksOut out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  for (RankInfo& info : in.ranks) {
    const auto rank = ranks_.find(info.rank);
    if (rank != ranks_.end()) info = rank->second.info;
  }
  kvc_list usable{};
  const kvc_status status = api_.set_ranks(sched_, c_ranks(arena_, in), &usable);
  same(call, "status", call.head.status, status);
}

void Replay::begin(const RecordedCall& call) {
  BeginIn in;
  Nothing out;
  read(call, in, out);
  if (over() || !need_sched(call) || !keys_fit(call, in.n_keys, in.keys)) return;
  same(call, "status", call.head.status, api_.request_begin(sched_, c_begin(arena_, in)));
}

void Replay::extend(const RecordedCall& call) {
  ExtendIn in;
  Nothing out;
  read(call, in, out);
  if (over() || !need_sched(call) || !keys_fit(call, in.n_keys, in.keys)) return;
  same(call, "status", call.head.status, api_.request_extend(sched_, c_extend(arena_, in)));
}

void Replay::lookup(const RecordedCall& call) {
  LookupIn in;
  LookupOut out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  pump_scheduler();
  kvc_lookup_out mine{};
  mine.struct_size = sizeof mine;
  const kvc_status status = api_.lookup(sched_, c_lookup(arena_, in), &mine);
  if (!same(call, "status", call.head.status, status) || status < 0) return;
  if (!same(call, "external_tokens", out.external, mine.external_tokens)) return;
  same(call, "why", out.why, mine.why);
}

void Replay::number(const RecordedCall& call) {
  NumberIn in;
  Nothing out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  const bool reset = call.slot == Slot::reset;
  same(call, "status", call.head.status,
       reset ? api_.reset(sched_, in.value) : api_.lookup_cancel(sched_, in.value));
}

void Replay::alloc(const RecordedCall& call) {
  AllocIn in;
  AllocOut out;
  read(call, in, out);
  if (over() || !need_sched(call) || !tables_fit(call, in.tables)) return;
  kvc_alloc_out answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = api_.alloc_update(sched_, c_alloc(arena_, in), &answer);
  if (!same(call, "status", call.head.status, status) || status < 0) return;
  if ((out.job != 0) != (answer.job != 0)) {
    return differ(call, "job", out.job != 0 ? "a load" : "none",
                  answer.job != 0 ? "a load" : "none");
  }
  Form form;
  if (!same_blocks(call, "held", out.held, read_alloc_out(form, answer).held)) return;
  if (out.job != 0) jobs_[out.job] = {answer.job, 0, KVC_JOB_LOAD};
}

void Replay::build(const RecordedCall& call) {
  StepIn in;
  PlanOut out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  for (const Scheduled& s : in.scheduled) {
    if (!tables_fit(call, s.tables)) return;
  }
  for (const Candidate& c : in.candidates) {
    if (!keys_fit(call, 1, c.key)) return;
  }
  pump_scheduler();
  kvc_plan answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = api_.build_store_jobs(sched_, c_step(arena_, in), &answer);
  if (!same(call, "status", call.head.status, status) || status < 0) return;
  Form form;
  const PlanOut plan = read_plan_out(form, answer);
  if (!same(call, "step", out.step, plan.step)) return;
  if (!same(call, "jobs.count", out.jobs.size(), plan.jobs.size())) return;
  plans_.emplace_back();
  plans_.back().bytes = plan.bytes;
  plans_.back().recorded = hash_of(out.bytes);
  // Jobs that a call handed out are known; new stores are taken in their order.
  std::vector<bool> taken(plan.jobs.size(), false);
  for (const PlannedJob& job : out.jobs) {
    const std::uint64_t known = mine(job.job);
    std::size_t at = 0;
    for (; at < plan.jobs.size(); ++at) {
      const bool new_store = plan.jobs[at].kind == KVC_JOB_STORE && job.kind == KVC_JOB_STORE &&
                             !plan.jobs[at].held.empty() == !job.held.empty();
      if (!taken[at] && (known != 0 ? plan.jobs[at].job == known : new_store)) break;
    }
    const std::string name = fmt::format("jobs[job {}]", job.job);
    if (at == plan.jobs.size()) {
      return differ(call, name, fmt::format("kind {}, {} blocks", job.kind, job.held.size()),
                    "not in the plan");
    }
    taken[at] = true;
    if (!same_blocks(call, name + ".held", job.held, plan.jobs[at].held)) return;
    jobs_[job.job] = {plan.jobs[at].job, plans_.size(), job.kind};
  }
}

void Replay::end(const RecordedCall& call) {
  EndIn in;
  EndOut out;
  read(call, in, out);
  if (over() || !need_sched(call) || !tables_fit(call, in.tables)) return;
  kvc_end_out answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = api_.request_end(sched_, c_end(arena_, in), &answer);
  if (!same(call, "status", call.head.status, status) || status < 0) return;
  if ((out.job != 0) != (answer.job != 0)) {
    return differ(call, "job", out.job != 0 ? "a store" : "none",
                  answer.job != 0 ? "a store" : "none");
  }
  Form form;
  if (!same_blocks(call, "held", out.held, read_end_out(form, answer).held)) return;
  if (out.job != 0) jobs_[out.job] = {answer.job, 0, KVC_JOB_STORE};
}

void Replay::query(const RecordedCall& call) {
  Nothing in;
  CountsOut out;
  read(call, in, out);
  if (over() || !need_sched(call) || call.head.status < 0) return;
  kvc_boundary_stats answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = api_.boundary_stats(sched_, &answer);
  if (!same(call, "status", call.head.status, status)) return;
  const auto compare = [&](const char* row, const std::vector<std::uint64_t>& recorded,
                           const kvc_offer_counts& present) {
    std::uint64_t mine[counts];
    __builtin_memcpy(mine, &present, sizeof mine);
    for (std::size_t i = 0; i < std::min(counts, recorded.size()); ++i) {
      const std::string field = fmt::format("{}[{}]", row, i);
      if (!same(call, field.c_str(), recorded[i], mine[i])) return;
    }
  };
  compare("handoffs", out.handoffs, answer.handoffs);
  compare("all_offers", out.all_offers, answer.all_offers);
}

}  // namespace kvc::validate
