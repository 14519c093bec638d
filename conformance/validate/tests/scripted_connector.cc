// The connector: it offers what the script says, and moves no byte.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "conformance/validate/tests/scripted.h"

namespace kvc::validate::testing {
namespace {

struct OpenJob {
  std::int32_t kind = 0;
  std::uint64_t job = 0;
  std::uint64_t request = 0;
  std::vector<kvc_block> held;
  bool planned = false;
  bool carried = false;  // its report came to complete
  std::uint64_t plan = 0;
};

// The state of both handles.
struct State {
  std::map<std::uint64_t, std::uint64_t> device;  // live requests, with the last device tokens
  std::map<std::uint64_t, std::uint32_t> flags;
  std::deque<OpenJob> jobs;
  std::uint64_t next_job = 1;
  std::uint64_t step = 0;
  std::uint64_t submitted = 0;
  std::uint64_t reported = 0;
  bool ranks = false;
  bool registered = false;
  bool sched_failed = false;
  bool rank_failed = false;
  kvc_host_api host{};
  // Outputs.
  std::vector<kvc_block> alloc_held, end_held;
  kvc_medium_tokens medium{};
  std::vector<kvc_plan_job> plan_jobs;
  std::vector<std::vector<kvc_block>> plan_held, released;
  std::vector<kvc_ended_job> ended;
  std::vector<kvc_verdict> verdicts;
  std::vector<kvc_load_done> loads;
  std::string plan_bytes, report_bytes;
  kvc_class klass{sizeof klass, 0, 3, 1, 1024, 0};
  kvc_class usable{};
};

State state;
Script current;
char sched_place, rank_place;

kvc_sched* sched_handle() { return reinterpret_cast<kvc_sched*>(&sched_place); }
kvc_rank* rank_handle() { return reinterpret_cast<kvc_rank*>(&rank_place); }

kvc_status bad() {
  state.sched_failed = true;
  return KVC_E_ARG;
}

kvc_status describe(kvc_description* out) noexcept {
  const kvc_description mine{sizeof mine, 0, kvc_text_of("scripted"), kvc_text_of("1"),
                             kvc_text_of("")};
  return KVC_WRITE(out, &mine);
}
kvc_status open_scheduler(const kvc_host_api* host, const kvc_open*, kvc_sched** out) noexcept {
  state = State{};
  state.host = *host;
  *out = sched_handle();
  return KVC_OK;
}
kvc_status open_rank(const kvc_host_api*, const kvc_open*, kvc_rank** out) noexcept {
  *out = rank_handle();
  return KVC_OK;
}
void close_scheduler(kvc_sched*) noexcept {}
void close_rank(kvc_rank*) noexcept {}

kvc_status text_of(bool failed, char* buf, std::uint64_t cap, std::uint64_t* needed) {
  return kvc_put(buf, cap, needed, kvc_text_of(failed ? "refused" : ""));
}
kvc_status last_error_scheduler(const kvc_sched*, char* buf, std::uint64_t cap,
                                std::uint64_t* needed) noexcept {
  return text_of(state.sched_failed, buf, cap, needed);
}
kvc_status last_error_rank(const kvc_rank*, char* buf, std::uint64_t cap,
                           std::uint64_t* needed) noexcept {
  return text_of(state.rank_failed, buf, cap, needed);
}

kvc_status set_ranks(kvc_sched*, const kvc_list* ranks, kvc_list* usable) noexcept {
  if (state.ranks) {
    state.sched_failed = true;
    return KVC_E_STATE;
  }
  if (ranks->count != 1) return bad();
  state.ranks = true;
  state.usable = state.klass;
  state.usable.usable_slots = 100;
  *usable = kvc_list_of(&state.usable, 1, sizeof state.usable);
  return KVC_OK;
}

kvc_status request_begin(kvc_sched*, const kvc_request* in) noexcept {
  kvc_request r{};
  const kvc_status form = KVC_READ(kvc_request, &r, in);
  if (form != KVC_OK || (r.flags & ~KVC_REQUEST_FLAGS_ALL) != 0) {
    state.sched_failed = true;
    return form != KVC_OK ? form : KVC_E_UNSUPPORTED;
  }
  if (r.request == 0 || state.device.contains(r.request) || r.n_keys > r.prompt_tokens / 16) {
    return bad();
  }
  if (r.keys == nullptr && r.n_keys != 0) return bad();
  state.device[r.request] = 0;
  state.flags[r.request] = r.flags;
  return KVC_OK;
}
kvc_status request_extend(kvc_sched*, const kvc_extend* in) noexcept {
  return state.device.contains(in->request) && in->first_key < 100 ? KVC_OK : bad();
}

kvc_status lookup(kvc_sched*, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
  if (!state.device.contains(in->request)) return bad();
  const bool loading = std::any_of(state.jobs.begin(), state.jobs.end(), [&](const OpenJob& j) {
    return j.kind == KVC_JOB_LOAD && j.request == in->request;
  });
  if (loading) {
    state.sched_failed = true;
    return KVC_E_STATE;
  }
  state.device[in->request] = in->device_tokens;
  kvc_lookup_out mine{sizeof mine, 0, std::min(current.offer, in->external_cap_tokens), 0, 0};
  const bool no_read = (state.flags[in->request] & KVC_REQUEST_NO_READ) != 0;
  if (!state.ranks || no_read || in->device_tokens % 16 != 0) {
    mine.external_tokens = 0;
    mine.why = !state.ranks ? KVC_WHY_NO_RANKS
               : no_read    ? KVC_WHY_NO_READ
                            : KVC_WHY_LOCAL_UNALIGNED;
  } else if (mine.external_tokens == 0) {
    mine.why = KVC_WHY_MISS;
  }
  return KVC_WRITE(out, &mine);
}
kvc_status lookup_cancel(kvc_sched*, std::uint64_t request) noexcept {
  return state.device.contains(request) ? KVC_OK : bad();
}

kvc_status alloc_update(kvc_sched*, const kvc_alloc_in* in, kvc_alloc_out* out) noexcept {
  if (!state.device.contains(in->request)) return bad();
  kvc_alloc_out mine{};
  mine.struct_size = sizeof mine;
  if (in->accepted_tokens != 0) {
    if (in->accepted_tokens > current.offer || in->accepted_tokens % 16 != 0) return bad();
    kvc_table t{};
    if (KVC_READ_AT(kvc_table, &t, &in->tables, 0) != KVC_OK) return bad();
    state.alloc_held.clear();
    const std::uint64_t device = state.device[in->request];
    for (std::uint64_t p = device / 16; p < (device + in->accepted_tokens) / 16; ++p) {
      if (p >= t.count || t.blocks[p] <= 0 || t.blocks[p] >= 64) return bad();
      state.alloc_held.push_back({sizeof(kvc_block), 0, t.blocks[p], p});
    }
    mine.job = state.next_job++;
    state.jobs.push_back({KVC_JOB_LOAD, mine.job, in->request, state.alloc_held});
    state.medium = {sizeof state.medium, KVC_MEDIUM_HOST, in->accepted_tokens};
    mine.held = kvc_list_of(state.alloc_held.data(), state.alloc_held.size(), sizeof(kvc_block));
    mine.media = kvc_list_of(&state.medium, 1, sizeof state.medium);
  }
  return KVC_WRITE(out, &mine);
}

kvc_status build_store_jobs(kvc_sched*, const kvc_step* in, kvc_plan* out) noexcept {
  if (in->step != state.step + 1) return bad();
  state.step = in->step;
  if (!current.store.empty()) {
    state.jobs.push_back({KVC_JOB_STORE, state.next_job++, 1, current.store});
    current.store.clear();
  }
  state.plan_jobs.clear();
  state.plan_held.clear();
  for (OpenJob& j : state.jobs) {
    if (j.planned) continue;
    j.planned = true;
    j.plan = state.step;
    const bool lists = j.kind == KVC_JOB_STORE && j.job != current.end_job;
    state.plan_held.push_back(lists ? j.held : std::vector<kvc_block>());
    kvc_plan_job job{sizeof job, j.kind, j.job, j.request, {}};
    state.plan_jobs.push_back(job);
  }
  for (std::size_t i = 0; i < state.plan_jobs.size(); ++i) {
    const auto& held = state.plan_held[i];
    state.plan_jobs[i].held = kvc_list_of(held.data(), held.size(), sizeof(kvc_block));
  }
  state.plan_bytes = "plan " + std::to_string(state.step);
  const kvc_plan mine{
      sizeof mine, 0, state.step,
      kvc_list_of(state.plan_jobs.data(), state.plan_jobs.size(), sizeof(kvc_plan_job)),
      kvc_bytes_of(state.plan_bytes.data(), state.plan_bytes.size())};
  return KVC_WRITE(out, &mine);
}

kvc_status complete(kvc_sched*, const kvc_bytes* reports, std::uint64_t count,
                    kvc_complete_out* out) noexcept {
  std::uint64_t plans = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string text(reinterpret_cast<const char*>(reports[i].data), reports[i].size);
    if (text.starts_with("report "))
      plans = std::max<std::uint64_t>(plans, std::stoull(text.substr(7)));
  }
  state.ended.clear();
  state.verdicts.clear();
  state.released.clear();
  for (const OpenJob& j : state.jobs) {
    if (!j.planned || j.plan > plans) continue;
    std::vector<kvc_block> back = j.held;
    if (j.kind == KVC_JOB_LOAD) std::reverse(back.begin(), back.end());
    state.released.push_back(back);
    state.ended.push_back(
        {sizeof(kvc_ended_job), j.kind, j.job, j.request, current.end_status, 0, {}, {}});
    if (j.kind == KVC_JOB_LOAD) {
      state.verdicts.push_back({sizeof(kvc_verdict), current.end_status, j.request, j.job});
    }
  }
  for (std::size_t i = 0; i < state.ended.size(); ++i) {
    const auto& back = state.released[i];
    state.ended[i].released = kvc_list_of(back.data(), back.size(), sizeof(kvc_block));
  }
  std::erase_if(state.jobs, [&](const OpenJob& j) { return j.planned && j.plan <= plans; });
  const kvc_complete_out mine{
      sizeof mine,
      0,
      kvc_list_of(state.ended.data(), state.ended.size(), sizeof(kvc_ended_job)),
      kvc_list_of(state.verdicts.data(), state.verdicts.size(), sizeof(kvc_verdict)),
      {}};
  return KVC_WRITE(out, &mine);
}

kvc_status request_end(kvc_sched*, const kvc_end_in* in, kvc_end_out* out) noexcept {
  if (state.device.erase(in->request) == 0) return bad();
  kvc_end_out mine{};
  mine.struct_size = sizeof mine;
  state.end_held.clear();
  for (const OpenJob& j : state.jobs) {
    if (j.request != in->request) continue;
    state.end_held.insert(state.end_held.end(), j.held.begin(), j.held.end());
  }
  mine.held = kvc_list_of(state.end_held.data(), state.end_held.size(), sizeof(kvc_block));
  return KVC_WRITE(out, &mine);
}

kvc_status boundary_stats(const kvc_sched*, kvc_boundary_stats* out) noexcept {
  kvc_boundary_stats mine{};
  mine.struct_size = sizeof mine;
  mine.all_offers.stored = current.miscounted;
  return KVC_WRITE(out, &mine);
}
kvc_status stats(const kvc_sched*, void* out, std::uint32_t stride, std::uint64_t cap,
                 std::uint64_t* needed) noexcept {
  *needed = 1;
  if (cap < 1) return KVC_E_ROOM;
  const kvc_stat row{sizeof row, 0, kvc_text_of("calls"), {}, 1};
  return kvc_write_at(out, stride, 0, &row, sizeof row, kvc_stat_least);
}
kvc_status has_pending(const kvc_sched*, kvc_pending* out) noexcept {
  kvc_pending mine{};
  mine.struct_size = sizeof mine;
  for (const OpenJob& j : state.jobs) {
    (j.kind == KVC_JOB_LOAD ? mine.load_jobs : mine.store_jobs) += 1;
    mine.held_blocks += j.held.size();
  }
  return KVC_WRITE(out, &mine);
}
kvc_status explain(const kvc_sched*, std::uint64_t request, char* buf, std::uint64_t cap,
                   std::uint64_t* needed) noexcept {
  if (request != 0 && !state.device.contains(request)) return KVC_E_ARG;
  return kvc_put(buf, cap, needed, kvc_text_of("{}"));
}
kvc_status take_events(kvc_sched*, void*, std::uint32_t, std::uint64_t,
                       std::uint64_t* count) noexcept {
  *count = 0;
  return KVC_OK;
}
kvc_status take_log_scheduler(kvc_sched*, char*, std::uint64_t, std::uint64_t* count) noexcept {
  *count = 0;
  return KVC_OK;
}
kvc_status take_log_rank(kvc_rank*, char*, std::uint64_t, std::uint64_t* count) noexcept {
  *count = 0;
  return KVC_OK;
}
kvc_status reset(kvc_sched*, std::uint64_t flags) noexcept {
  if ((flags & ~KVC_RESET_INVALIDATE) == 0) return KVC_OK;
  state.sched_failed = true;
  return KVC_E_UNSUPPORTED;
}
kvc_status pump_scheduler(kvc_sched*, std::uint32_t) noexcept { return KVC_OK; }
kvc_status pump_rank(kvc_rank*, std::uint32_t) noexcept { return KVC_OK; }

kvc_status register_regions(kvc_rank*, const kvc_list* regions, kvc_rank_info* out) noexcept {
  if (state.registered) {
    state.rank_failed = true;
    return KVC_E_STATE;
  }
  kvc_region r{};
  if (regions->count != 1 || KVC_READ_AT(kvc_region, &r, regions, 0) != KVC_OK ||
      r.block_stride_bytes < r.block_bytes || r.size_bytes < 64 * r.block_stride_bytes ||
      r.group_mask != 3) {
    state.rank_failed = true;
    return KVC_E_ARG;
  }
  state.registered = true;
  const kvc_rank_info mine{
      sizeof mine, 0, 100, kvc_list_of(&state.klass, 1, sizeof state.klass), {}};
  return KVC_WRITE(out, &mine);
}

kvc_status submit_loads(kvc_rank*, kvc_bytes plan, const kvc_fence*) noexcept {
  const std::string want = "plan " + std::to_string(state.submitted + 1);
  if (want == std::string_view(reinterpret_cast<const char*>(plan.data), plan.size)) return KVC_OK;
  state.rank_failed = true;
  return KVC_E_STATE;
}
kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  const kvc_status s = submit_loads(r, plan, fence);
  if (s == KVC_OK) ++state.submitted;
  return s;
}
kvc_status progress(kvc_rank*, kvc_progress* out) noexcept {
  kvc_progress mine{};
  mine.struct_size = sizeof mine;
  state.loads.clear();
  for (const OpenJob& j : state.jobs) {
    if (j.kind != KVC_JOB_LOAD || !j.planned || j.plan > state.submitted ||
        j.plan <= state.reported) {
      continue;
    }
    state.loads.push_back({sizeof(kvc_load_done), current.end_status, j.request, j.job, {}});
  }
  mine.loads = kvc_list_of(state.loads.data(), state.loads.size(), sizeof(kvc_load_done));
  if (state.submitted > state.reported) {
    state.report_bytes = "report " + std::to_string(state.submitted);
    state.reported = state.submitted;
    mine.report = kvc_bytes_of(state.report_bytes.data(), state.report_bytes.size());
  }
  return KVC_WRITE(out, &mine);
}
kvc_status wait(kvc_rank*, const kvc_job*, std::uint64_t, std::uint64_t) noexcept { return KVC_OK; }
const void* extension(kvc_bytes) noexcept { return nullptr; }

// A slot of the table: the script's function if it has one, else the right one.
template <auto member, auto right, class F>
struct Slot;
template <auto member, auto right, class R, class... A>
struct Slot<member, right, R (*)(A...) noexcept> {
  static R call(A... args) noexcept {
    const auto& mine = current.*member;
    if (mine) return mine(args...);
    return right(args...);
  }
};

}  // namespace

Script& script() { return current; }
void reset_script() {
  current = Script{};
  state = State{};
}
const kvc_host_api& given_host() { return state.host; }

const kvc_plugin_api& right_api() {
  static const kvc_plugin_api api = [] {
    kvc_plugin_api a{};
    a.struct_size = sizeof a;
    a.abi_minor = KVC_MINOR;
    a.caps = KVC_CAP_STEPPED | KVC_CAP_EVENTS;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) a.slot = slot;
#include <kvc/kvc_calls.def>
    return a;
  }();
  return api;
}

const kvc_plugin_api& scripted_api() {
  static const kvc_plugin_api api = [] {
    kvc_plugin_api a = right_api();
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  a.slot = Slot<&Script::slot, testing::slot, decltype(kvc_plugin_api::slot)>::call;
#include <kvc/kvc_calls.def>
    return a;
  }();
  return api;
}

}  // namespace kvc::validate::testing
