#include "conformance/sim/watch.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <kvc/kvc_util.h>

namespace kvc::sim {
namespace {

template <class T>
T element(const kvc_list& list, std::uint64_t i) {
  T value{};
  const std::size_t n = std::min<std::size_t>(list.stride, sizeof value);
  __builtin_memcpy(&value, static_cast<const std::uint8_t*>(list.data) + i * list.stride, n);
  return value;
}

std::uint64_t wide(std::int64_t value) { return static_cast<std::uint64_t>(value); }

}  // namespace

Watch* Watch::current = nullptr;

// Each slot goes to the real one and tells the watch what went in and came out.
struct Watch::Slots {
  static Watch& me() { return *current; }

  static kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open,
                                   kvc_sched** out) noexcept {
    const kvc_status s = me().real_.open_scheduler(host, open, out);
    me().sched_ = *out;
    return s;
  }
  static void close_scheduler(kvc_sched* s) noexcept {
    me().sched_ = nullptr;
    me().real_.close_scheduler(s);
  }
  static kvc_status register_regions(kvc_rank* r, const kvc_list* regions,
                                     kvc_rank_info* out) noexcept {
    std::vector<kvc_region> mine;
    for (std::uint64_t i = 0; i < regions->count; ++i) {
      mine.push_back(element<kvc_region>(*regions, i));
      if (me().sabotage_ == Sabotage::skip_load_copies) me().redirect(mine.back());
    }
    const kvc_list list = kvc_list_of(mine.data(), mine.size(), sizeof(kvc_region));
    return me().real_.register_regions(r, &list, out);
  }
  static kvc_status request_begin(kvc_sched* s, const kvc_request* in) noexcept {
    const kvc_status status = me().real_.request_begin(s, in);
    me().note("request_begin", {in->request, in->prompt_tokens, in->n_keys, wide(status)});
    me().after_sched("request_begin", status);
    if (status == KVC_E_FULL) me().tally_.add("begins refused", 1);
    return status;
  }
  static kvc_status request_extend(kvc_sched* s, const kvc_extend* in) noexcept {
    const kvc_status status = me().real_.request_extend(s, in);
    me().note("request_extend", {in->request, in->first_key, in->n_keys, wide(status)});
    me().after_sched("request_extend", status);
    return status;
  }
  static kvc_status lookup(kvc_sched*, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    return me().lookup(*in, *out);
  }
  static kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in,
                                 kvc_alloc_out* out) noexcept {
    Watch& w = me();
    if (!w.calm_ && in->accepted_tokens > 0 &&
        w.draw_.chance(w.world_.trouble.cancel_lookup, 1000)) {
      const kvc_status status = w.real_.lookup_cancel(s, in->request);
      w.note("lookup_cancel", {in->request, wide(status)});
      w.after_sched("lookup_cancel", status);
      if (status == KVC_E_INTERNAL) return status;  // and no call after it (KVC-H-005)
    }
    const kvc_status status = w.real_.alloc_update(s, in, out);
    w.note("alloc_update", {in->request, in->accepted_tokens, out->job, wide(status)});
    if (status == KVC_OK && out->job != 0) {
      Job& job = w.hand_out(out->job, KVC_JOB_LOAD, in->request);
      job.holds_known = true;
      w.hold(job, out->held);
    }
    w.after_sched("alloc_update", status);
    return status;
  }
  static kvc_status build_store_jobs(kvc_sched* s, const kvc_step* in, kvc_plan* out) noexcept {
    Watch& w = me();
    kvc_step step = *in;
    step.handoffs = w.disturbed_handoffs(*in);
    const kvc_status status = w.real_.build_store_jobs(s, &step, out);
    w.note("build_store_jobs", {in->step, in->scheduled.count, in->n_preempted, step.handoffs.count,
                                out->jobs.count, wide(status)});
    if (status == KVC_OK) w.saw_plan(*out);
    w.after_sched("build_store_jobs", status);
    w.verify("build_store_jobs");
    return status;
  }
  static kvc_status complete(kvc_sched* s, const kvc_bytes* reports, std::uint64_t count,
                             kvc_complete_out* out) noexcept {
    Watch& w = me();
    const kvc_status status = w.real_.complete(s, reports, count, out);
    w.note("complete",
           {count, out->jobs.count, out->verdicts.count, out->rejected.count, wide(status)});
    if (status == KVC_OK) w.saw_complete(*out);
    w.after_sched("complete", status);
    w.verify("complete");
    return status;
  }
  static kvc_status request_end(kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
    Watch& w = me();
    const kvc_status status = w.real_.request_end(s, in, out);
    w.note("request_end", {in->request, wide(in->reason), in->confirmed_tokens, out->job,
                           out->held.count, wide(status)});
    if (status == KVC_OK && out->job != 0) {
      w.hold(w.hand_out(out->job, KVC_JOB_STORE, in->request), out->held);
    }
    w.over_.push_back(in->request);
    w.after_sched("request_end", status);
    return status;
  }
  static kvc_status reset(kvc_sched* s, std::uint64_t flags) noexcept {
    Watch& w = me();
    const kvc_status status = w.real_.reset(s, flags);
    w.note("reset", {flags, wide(status)});
    if (status >= 0) {
      ++w.resets_;
      w.stored_since_reset_ = 0;
      w.tally_.add(flags == 0 ? "resets" : "resets with INVALIDATE", 1);
    }
    w.after_sched("reset", status);
    w.verify("reset");
    return status;
  }
  static kvc_status boundary_stats(const kvc_sched* s, kvc_boundary_stats* out) noexcept {
    return me().real_.boundary_stats(s, out);
  }
  static kvc_status submit_loads(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
    const kvc_status status = me().real_.submit_loads(r, plan, fence);
    me().note("submit_loads", {plan.size, fence->value, wide(status)});
    return status;
  }
  static kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
    const kvc_status status = me().real_.submit_stores(r, plan, fence);
    me().note("submit_stores", {plan.size, fence->value, wide(status)});
    return status;
  }
  static kvc_status progress(kvc_rank* r, kvc_progress* out) noexcept {
    const kvc_status status = me().real_.progress(r, out);
    me().note("progress", {out->loads.count, out->report.size, wide(status)});
    for (std::uint64_t i = 0; i < out->loads.count; ++i) {
      const auto done = element<kvc_load_done>(out->loads, i);
      me().note("item", {done.job, done.request, wide(done.status), done.failed.count});
      if (done.status == KVC_E_DEADLINE) me().tally_.add("load parts past their deadline", 1);
    }
    return status;
  }
  static kvc_status load_in_step(kvc_sched* s, const kvc_load_in_step* in) noexcept {
    const kvc_status status = me().layers_->load_in_step(s, in);
    me().saw_in_step(*in, status);
    return status;
  }
  static kvc_status layer_fence(kvc_rank* r, std::uint64_t step, std::uint32_t layer,
                                kvc_fence* out) noexcept {
    const kvc_status status = me().layers_->layer_fence(r, step, layer, out);
    me().saw_layer(step, layer, status, *out);
    if (me().sabotage_ != Sabotage::skip_layer_waits || status < 0) return status;
    kvc_fence none{};
    none.struct_size = sizeof none;
    return KVC_WRITE(out, &none);
  }
  static const void* extension(kvc_bytes id) noexcept {
    static constexpr kvc_layerwise_api mine{sizeof mine, 0, load_in_step, layer_fence};
    const void* const table = me().real_.extension(id);
    const std::string_view name(reinterpret_cast<const char*>(id.data), id.size);
    if (table == nullptr || name != KVC_LAYERWISE_EXTENSION) return table;
    me().layers_ = static_cast<const kvc_layerwise_api*>(table);
    return &mine;
  }
  static kvc_status pump_rank(kvc_rank* r, std::uint32_t budget) noexcept {
    const kvc_status status = me().real_.pump_rank(r, budget);
    me().note("pump_rank", {budget, wide(status)});
    return status;
  }
};

Watch::Watch(const host::LoadedConnector& real, const World& world, Sabotage sabotage)
    : real_(real.api),
      shown_(real),
      world_(world),
      sabotage_(sabotage),
      draw_(world.seed ^ 0x57A7C4U),
      printing_(std::getenv("KVC_SIM_TRACE") != nullptr) {
  KVC_CHECK(current == nullptr);
  current = this;
  kvc_plugin_api& api = shown_.api;
  api.open_scheduler = Slots::open_scheduler;
  api.close_scheduler = Slots::close_scheduler;
  api.register_regions = Slots::register_regions;
  api.request_begin = Slots::request_begin;
  api.request_extend = Slots::request_extend;
  api.lookup = Slots::lookup;
  api.alloc_update = Slots::alloc_update;
  api.build_store_jobs = Slots::build_store_jobs;
  api.complete = Slots::complete;
  api.request_end = Slots::request_end;
  api.reset = Slots::reset;
  api.submit_loads = Slots::submit_loads;
  api.submit_stores = Slots::submit_stores;
  api.progress = Slots::progress;
  api.pump_rank = Slots::pump_rank;
  api.extension = Slots::extension;
  constexpr std::string_view id = KVC_TEST_EXTENSION;
  faults_ = static_cast<const kvc_test_api*>(real_.extension(kvc_bytes_of(id.data(), id.size())));
}

Watch::~Watch() { current = nullptr; }

void Watch::fail(std::string text) {
  if (!error_.empty()) return;
  error_ = fmt::format("call {}: {}", calls_, text);
  if (printing_) std::fprintf(stderr, "BROKEN %s\n", error_.c_str());
}

void Watch::note(const char* slot, std::initializer_list<std::uint64_t> values) {
  ++calls_;
  for (const char* c = slot; *c != 0; ++c) {
    hash_ = (hash_ ^ static_cast<unsigned char>(*c)) * 0x100000001B3U;
  }
  for (const std::uint64_t v : values) hash_ = (hash_ ^ v ^ (hash_ >> 29U)) * 0x9E3779B97F4A7C15U;
  if (!printing_) return;
  std::fprintf(stderr, "%llu %s", static_cast<unsigned long long>(calls_), slot);
  for (const std::uint64_t v : values) {
    std::fprintf(stderr, " %lld", static_cast<long long>(v));
  }
  std::fputc('\n', stderr);
}

void Watch::balance(const char* slot, const char* row, const kvc_offer_counts& c) {
  const std::uint64_t sum = c.stored + c.pending + c.skipped_already_cached + c.skipped_in_flight +
                            c.skipped_not_hashed + c.dropped_pool_full + c.dropped_request_gone +
                            c.dropped_null_block + c.dropped_bad_offer + c.dropped_no_parent +
                            c.dropped_parent_failed + c.dropped_copy_failed + c.dropped_leased +
                            c.dropped_hold_budget + c.dropped_reset + c.dropped_plan_full;
  if (sum == c.published) return;
  fail(fmt::format("after {}: boundary_stats.{}: published {}, the outcomes sum to {}", slot, row,
                   c.published, sum));
}

// After every call of the scheduler role.
void Watch::after_sched(const char* slot, kvc_status status) {
  if (status < 0 && status != KVC_E_FULL && status != KVC_E_STATE && !poisoned_) {
    char text[512];
    std::uint64_t needed = 0;
    real_.last_error_scheduler(sched_, text, sizeof text, &needed);
    fail(fmt::format("{} answered {}: {}", slot, status,
                     std::string_view(text, std::min<std::size_t>(needed, sizeof text))));
  }
  kvc_boundary_stats stats{};
  stats.struct_size = sizeof stats;
  if (real_.boundary_stats(sched_, &stats) != KVC_OK) {
    if (!poisoned_) fail(fmt::format("after {}: boundary_stats did not answer", slot));
    return;
  }
  if (sabotage_ == Sabotage::miscount_offers && calls_ > 50) ++stats.all_offers.stored;
  balance(slot, "handoffs", stats.handoffs);
  balance(slot, "all_offers", stats.all_offers);
}

// The connector's own check of its whole structure.
void Watch::verify(const char* slot) {
  if (faults_ == nullptr || poisoned_) return;
  char text[512];
  std::uint64_t needed = 0;
  const kvc_status status = faults_->verify(sched_, text, sizeof text, &needed);
  if (status == KVC_OK && needed == 0) return;
  fail(fmt::format("after {}: verify answered {}: {}", slot, status,
                   std::string_view(text, std::min<std::size_t>(needed, sizeof text))));
}

Watch::Job& Watch::hand_out(kvc_job id, std::int32_t kind, std::uint64_t request) {
  const auto [it, fresh] = jobs_.emplace(id, Job{});
  if (!fresh) fail(fmt::format("job {} was handed out twice", id));
  it->second.kind = kind;
  it->second.request = request;
  it->second.resets = resets_;
  return it->second;
}

void Watch::hold(Job& job, const kvc_list& held) {
  for (std::uint64_t i = 0; i < held.count; ++i) {
    job.held.push_back(element<kvc_block>(held, i).block);
  }
  std::sort(job.held.begin(), job.held.end());
}

void Watch::saw_plan(const kvc_plan& plan) {
  for (std::uint64_t i = 0; i < plan.jobs.count; ++i) {
    const auto planned = element<kvc_plan_job>(plan.jobs, i);
    const auto known = jobs_.find(planned.job);
    const bool fresh = known == jobs_.end();
    if (fresh && planned.kind != KVC_JOB_STORE) {
      fail(fmt::format("plan {} names load job {} that no alloc_update handed out", plan.step,
                       planned.job));
    }
    Job& job = fresh ? hand_out(planned.job, planned.kind, planned.request) : known->second;
    if (fresh) {
      job.holds_known = true;
      hold(job, planned.held);
    } else if (planned.held.count != 0) {
      fail(fmt::format("plan {} lists the holds of job {} again", plan.step, planned.job));
    }
    if (job.planned) fail(fmt::format("job {} is in a second plan, {}", planned.job, plan.step));
    if (job.kind != planned.kind) fail(fmt::format("job {} changed its kind", planned.job));
    job.planned = true;
    note("planned", {planned.job, wide(planned.kind), planned.request, planned.held.count});
  }
  for (const auto& [id, job] : jobs_) {
    if (!job.planned && job.kind == KVC_JOB_STORE) {
      fail(fmt::format("store job {} is not in the plan after it was handed out", id));
    }
    if (!job.planned && job.in_step) {
      fail(fmt::format("load job {} was taken in step and is not in plan {}", id, plan.step));
    }
  }
}

void Watch::saw_complete(const kvc_complete_out& out) {
  for (std::uint64_t i = 0; i < out.jobs.count; ++i) {
    const auto ended = element<kvc_ended_job>(out.jobs, i);
    note("ended", {ended.job, wide(ended.kind), wide(ended.status), ended.failed.count,
                   ended.released.count});
    const auto known = jobs_.find(ended.job);
    if (known == jobs_.end() || known->second.ended || !known->second.planned) {
      fail(fmt::format("job {} ended {}", ended.job,
                       known == jobs_.end()  ? "unknown"
                       : known->second.ended ? "twice"
                                             : "unplanned"));
      continue;
    }
    Job& job = known->second;
    job.ended = true;
    std::vector<std::int64_t> released;
    for (std::uint64_t b = 0; b < ended.released.count; ++b) {
      released.push_back(element<kvc_block>(ended.released, b).block);
    }
    std::sort(released.begin(), released.end());
    const bool right = job.holds_known ? released == job.held
                                       : std::includes(job.held.begin(), job.held.end(),
                                                       released.begin(), released.end());
    if (!right) {
      fail(fmt::format("job {} held blocks {} and released {}", ended.job, fmt::join(job.held, " "),
                       fmt::join(released, " ")));
    }
    if (job.kind == KVC_JOB_STORE && job.resets == resets_) ++stored_since_reset_;
    const char* const how = ended.status == KVC_OK           ? "ok"
                            : ended.status == KVC_E_IO       ? "failed"
                            : ended.status == KVC_E_DEADLINE ? "late"
                                                             : "cancelled";
    tally_.add(fmt::format("{} ended {}", job.kind == KVC_JOB_LOAD ? "loads" : "stores", how), 1);
    if (job.in_step) tally_.add(fmt::format("loads in step ended {}", how), 1);
  }
  for (std::uint64_t i = 0; i < out.verdicts.count; ++i) {
    const auto verdict = element<kvc_verdict>(out.verdicts, i);
    note("verdict", {verdict.job, verdict.request, wide(verdict.status)});
    const auto known = jobs_.find(verdict.job);
    if (known == jobs_.end() || known->second.kind != KVC_JOB_LOAD || known->second.judged) {
      fail(fmt::format("a verdict on job {} that is no load or has one", verdict.job));
      continue;
    }
    known->second.judged = true;
  }
  tally_.add("report entries rejected", out.rejected.count);
}

void Watch::saw_in_step(const kvc_load_in_step& in, kvc_status status) {
  note("load_in_step", {in.request, in.job, wide(status)});
  if (status == KVC_OK) {
    const auto known = jobs_.find(in.job);
    if (known == jobs_.end() || known->second.kind != KVC_JOB_LOAD || known->second.planned) {
      fail(fmt::format("job {} is no load that waits for its plan, and was taken in step", in.job));
    } else {
      known->second.in_step = true;
    }
  }
  tally_.add(status == KVC_OK ? "loads taken in step" : "loads not taken in step", 1);
  after_sched("load_in_step", status);
}

void Watch::saw_layer(std::uint64_t step, std::uint64_t layer, kvc_status status,
                      const kvc_fence& out) {
  note("layer_fence", {step, layer, wide(out.kind), out.value, wide(status)});
  const bool waits =
      status == KVC_LATER || (status == KVC_OK && out.kind == KVC_FENCE_COUNTER &&
                              __atomic_load_n(out.counter, __ATOMIC_ACQUIRE) < out.value);
  tally_.add(waits ? "layers that were waited for" : "layers that were there", 1);
}

void Watch::saw_lookup(const kvc_lookup_in& in, kvc_status status, const kvc_lookup_out& out) {
  note("lookup", {in.request, in.total_tokens, in.device_tokens, out.external_tokens, wide(out.why),
                  wide(status)});
  after_sched("lookup", status);
  if (status == KVC_LATER) tally_.add("lookups told to wait", 1);
  if (status != KVC_OK || out.external_tokens == 0) return;
  const std::uint64_t end = in.device_tokens + out.external_tokens;
  const std::uint64_t h = world_.options.model.hash_unit_tokens;
  if (out.external_tokens % h != 0 || end >= in.total_tokens ||
      out.external_tokens > in.external_cap_tokens) {
    fail(fmt::format("lookup of {} answered {} tokens behind {} of {}, cap {}, h {}", in.request,
                     out.external_tokens, in.device_tokens, in.total_tokens, in.external_cap_tokens,
                     h));
  }
  // Before the first reset there may be blocks of an earlier life.
  if (stored_since_reset_ == 0 && (resets_ > 0 || !world_.disk)) {
    fail(fmt::format("lookup of {} hit {} tokens, but nothing was stored since the reset",
                     in.request, out.external_tokens));
  }
}

// The engine's lookup, sometimes with others before it. The newest answer counts.
kvc_status Watch::lookup(const kvc_lookup_in& in, kvc_lookup_out& out) {
  const auto ask = [&](const kvc_lookup_in& query) {
    const kvc_status status = real_.lookup(sched_, &query, &out);
    saw_lookup(query, status, out);
    return status;
  };
  if (!calm_ && draw_.chance(world_.trouble.repeat_lookup, 1000)) {
    kvc_lookup_in other = in;
    other.device_tokens = in.device_tokens / world_.options.model.scheduler_block_tokens / 2 *
                          world_.options.model.scheduler_block_tokens;
    if (draw_.chance(1, 2)) {
      other.external_cap_tokens = world_.options.model.hash_unit_tokens * draw_.below(4);
    }
    if (ask(other) == KVC_E_INTERNAL) return KVC_E_INTERNAL;  // and no call after it (KVC-H-005)
    if (draw_.chance(1, 3)) {
      const kvc_status status = real_.lookup_cancel(sched_, in.request);
      note("lookup_cancel", {in.request, wide(status)});
      after_sched("lookup_cancel", status);
      if (status == KVC_E_INTERNAL) return status;
    }
  }
  return ask(in);
}

std::vector<std::uint64_t> Watch::waiting_loads() const {
  std::vector<std::uint64_t> requests;
  for (const auto& [id, job] : jobs_) {
    if (job.kind == KVC_JOB_LOAD && !job.planned) requests.push_back(job.request);
  }
  return requests;
}

// The engine never does either: it takes back what a preempted request handed off, and keeps the
// rules. Another one may not.
kvc_list Watch::disturbed_handoffs(const kvc_step& step) {
  const Trouble& t = world_.trouble;
  const auto& groups = world_.options.model.groups;
  const auto state = std::find_if(groups.begin(), groups.end(),
                                  [](const auto& g) { return g.kind == config::GroupKind::state; });
  if (calm_ || poisoned_ || state == groups.end() || (t.late_handoff | t.bad_handoff) == 0) {
    return step.handoffs;
  }
  handoffs_.clear();
  for (std::uint64_t i = 0; i < step.handoffs.count; ++i) {
    handoffs_.push_back(element<kvc_handoff>(step.handoffs, i));
  }
  kvc_handoff more{};
  more.struct_size = sizeof more;
  more.group = static_cast<std::uint32_t>(state - groups.begin());
  more.block = 1;
  more.boundary_tokens = state->tokens_per_block;
  if (draw_.chance(t.late_handoff, 1000) && (step.n_preempted != 0 || !over_.empty())) {
    more.request = step.n_preempted != 0 ? step.preempted[draw_.below(step.n_preempted)]
                                         : over_[draw_.below(over_.size())];
    handoffs_.push_back(more);
    tally_.add("hand-offs that come too late", 1);
  }
  if (draw_.chance(t.bad_handoff, 1000) && step.scheduled.count != 0) {
    const auto of = element<kvc_step_request>(step.scheduled, draw_.below(step.scheduled.count));
    more.request = of.request;
    switch (draw_.below(3)) {
      case 0:  // behind what is confirmed
        more.boundary_tokens *= of.confirmed_tokens / state->tokens_per_block + 1;
        break;
      case 1:  // no multiple of the hash unit, or 0
        more.boundary_tokens = draw_.chance(1, 2) ? 0 : world_.options.model.hash_unit_tokens - 1;
        break;
      default:
        more.group = static_cast<std::uint32_t>(groups.size());
        break;
    }
    handoffs_.push_back(more);
    ++rules_broken_;
    tally_.add("hand-offs that break a rule", 1);
  }
  return kvc_list_of(handoffs_.data(), handoffs_.size(), sizeof(kvc_handoff));
}

// Negative control: the rank gets memory of its own in place of the engine's device blocks.
void Watch::redirect(kvc_region& region) {
  std::vector<std::uint8_t>& memory = elsewhere_.emplace_back(region.size_bytes + 4096);
  std::uint8_t* base = memory.data();
  base += (4096 - reinterpret_cast<std::uintptr_t>(base) % 4096) % 4096;
  region.base = base;
}

void Watch::check_quiet() {
  if (poisoned_) return;
  for (const auto& [id, job] : jobs_) {
    if (!job.ended) fail(fmt::format("job {} never ended", id));
    if (job.kind == KVC_JOB_LOAD && !job.judged) fail(fmt::format("load {} has no verdict", id));
  }
}

}  // namespace kvc::sim
