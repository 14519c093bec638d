#include "conformance/bad/hosts/host.h"

#include <kvc/kvc_layerwise.h>

#include <algorithm>
#include <cstring>

#include "host_stub/loader/loader.h"

namespace kvc::bad {
namespace {

constexpr int patience = 20;  // steps without news
constexpr std::size_t candidates_max = 2;

// The table's self is the host.
const Host& host_of(kvc_host* h) { return *reinterpret_cast<Host*>(h); }

std::uint64_t on_now(kvc_host* h) noexcept { return host_of(h).steps * 1'000'000; }
kvc_status on_has_key(kvc_host* h, std::uint32_t group, std::int64_t block, const std::uint8_t* key,
                      std::uint64_t* end) noexcept {
  *end = host_of(h).end_of(group, block, key);
  return *end != 0 ? 1 : 0;
}
// The engine has no cache of its own that a key could be found in.
kvc_status on_block_of(kvc_host*, std::uint32_t, const std::uint8_t*, std::int64_t*) noexcept {
  return 0;
}

template <class T>
T cleared() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

template <class T>
kvc_list list_of(const std::vector<T>& elements) {
  return kvc_list_of(elements.data(), elements.size(), sizeof(T));
}

}  // namespace

std::vector<std::uint8_t> keys_of(std::uint64_t path, std::uint64_t first, std::uint64_t n) {
  std::vector<std::uint8_t> keys(n * key_bytes);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t key[] = {path, first + i + 1};
    std::memcpy(&keys[i * key_bytes], key, key_bytes);
  }
  return keys;
}

Host::Host(const std::string& layer) {
  const auto loaded = host::load_connector(layer);
  if (!loaded.ok()) throw Refused{loaded.error().text, KVC_E_ARG};
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  call.slot = loaded.value().api.slot;
#include <kvc/kvc_calls.def>
  table = {sizeof table,
           KVC_MINOR,
           KVC_HOST_STEPPED | KVC_HOST_BLOCK_QUERY,
           reinterpret_cast<kvc_host*>(this),
           nullptr,
           on_now,
           nullptr,
           nullptr,
           nullptr,
           on_has_key,
           on_block_of};
  groups_ = {
      {sizeof(kvc_group), KVC_GROUP_FULL, KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE,
       KVC_GROUP_CAPS_ALL, unit, 0, 0},
      {sizeof(kvc_group), KVC_GROUP_STATE, KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_STATE,
       KVC_GROUP_CAPS_ALL, unit, 0, 0}};
  layout = cleared<kvc_open>();
  layout.groups = list_of(groups_);
  layout.hash_unit_tokens = layout.scheduler_block_tokens = unit;
  layout.context_parallel = 1;
  layout.ranks = ranks;
  layout.cp_interleave_tokens = 1;
  layout.device_blocks = blocks;
  layout.key_bytes = key_bytes;
  layout.max_prompt_tokens = layout.max_total_tokens = layout.max_batch_tokens = 16 * unit;
  layout.max_live_requests = layout.max_running = 3;
  layout.max_request_bytes = 1 << 20;
  layout.max_steps_in_flight = 2;
  layout.retention_tokens = -1;
  layout.namespace_id = kvc_text_of("bad hosts, model 1");
  take_block = [this](const Request&) {
    for (std::int64_t b = 1; b < blocks; ++b) {
      if (references_[b] == 0) return b;
    }
    throw Refused{"no free device block", KVC_E_FULL};
  };
  wait_for_load = [this](Request& r) {
    for (int tries = 0; r.load != 0; collect()) {
      if (++tries == patience) throw Refused{"no verdict", KVC_LATER};
      step({});
    }
  };
}

kvc_status Host::ok(kvc_status status, const char* slot) const {
  if (status < 0) throw Refused{slot, status};
  return status;
}

std::uint64_t Host::end_of(std::uint32_t group, std::int64_t block, const std::uint8_t* key) const {
  const auto it = contents_.find(block);
  const bool same = it != contents_.end() && it->second.group == group &&
                    std::memcmp(it->second.key.data(), key, key_bytes) == 0;
  return same ? it->second.end : 0;
}

bool Host::in_use(std::int64_t block) const {
  return std::any_of(requests.begin(), requests.end(), [&](const auto& r) {
    return r.second.state == block ||
           std::find(r.second.table.begin(), r.second.table.end(), block) != r.second.table.end();
  });
}

bool Host::is_held(std::int64_t block) const {
  return std::any_of(holds_.begin(), holds_.end(),
                     [&](const auto& h) { return h.second == block; });
}

void Host::open() {
  options_ = "[layer]\nnext = \"" + next + "\"\n" + toml;
  layout.config_toml = kvc_bytes_of(options_.data(), options_.size());
  ok(call.open_scheduler(&table, &layout, &sched), "open_scheduler");
  std::vector<kvc_rank_info> infos(ranks, cleared<kvc_rank_info>());
  for (std::uint32_t r = 0; r < ranks; ++r) {
    memory_[r].resize(blocks * block_bytes);
    layout.rank = r;
    ok(call.open_rank(&table, &layout, &rank[r]), "open_rank");
    auto region = cleared<kvc_region>();
    region.base = memory_[r].data();
    region.size_bytes = memory_[r].size();
    region.block_stride_bytes = region.block_bytes = block_bytes;
    region.group_mask = 3;
    const kvc_list regions = kvc_list_of(&region, 1, sizeof region);
    ok(call.register_regions(rank[r], &regions, &infos[r]), "register_regions");
  }
  const kvc_list all = list_of(infos);
  kvc_list usable{};
  ok(call.set_ranks(sched, &all, &usable), "set_ranks");
}

void Host::close() {
  for (kvc_rank*& r : rank) {
    if (r != nullptr) call.close_rank(std::exchange(r, nullptr));
  }
  if (sched != nullptr) call.close_scheduler(std::exchange(sched, nullptr));
}

Request& Host::begin(std::uint64_t id, std::uint64_t path, std::uint64_t prompt) {
  Request& r = requests[id];
  r.id = id;
  r.path = path;
  r.prompt = prompt;
  r.keys = prompt / unit;
  const auto keys = keys_of(path, 0, r.keys);
  auto in = cleared<kvc_request>();
  in.request = id;
  in.prompt_tokens = prompt;
  in.keys = keys.data();
  in.n_keys = r.keys;
  in.load_limit_tokens = in.store_limit_tokens = KVC_NO_LIMIT;
  const kvc_status status = call.request_begin(sched, &in);
  r.tracked = status != KVC_E_FULL;  // else it runs without the connector
  if (r.tracked) ok(status, "request_begin");
  return r;
}

void Host::extend(Request& r, std::uint64_t tokens) {
  if (!r.tracked || tokens / unit <= r.keys) return;
  const auto keys = keys_of(r.path, r.keys, tokens / unit - r.keys);
  auto in = cleared<kvc_extend>();
  in.request = r.id;
  in.first_key = r.keys;
  in.keys = keys.data();
  in.n_keys = tokens / unit - r.keys;
  ok(call.request_extend(sched, &in), "request_extend");
  r.keys = tokens / unit;
}

// The blocks of a job stay until it ends.
void Host::hold(kvc_job job, const kvc_list& held) {
  for (std::uint64_t i = 0; i < held.count; ++i) {
    const std::int64_t block = static_cast<const kvc_block*>(kvc_list_at(&held, i))->block;
    ++references_[block];
    holds_.emplace(job, block);
  }
}

void Host::drop(std::int64_t block) {
  if (references_[block] == 0 || --references_[block] != 0) return;
  if (contents_.count(block) != 0) freed_.push_back(block);
}

void Host::grow(Request& r, std::uint64_t tokens) {
  while (r.table.size() * unit < tokens) {
    const std::int64_t block = take_block(r);
    ++references_[block];
    contents_.erase(block);
    freed_.erase(std::remove(freed_.begin(), freed_.end(), block), freed_.end());
    r.table.push_back(block);
  }
}

void Host::give_back(Request& r) {
  for (const std::int64_t block : r.table) drop(block);
  if (r.state != 0) drop(r.state);
  r.table.clear();
  r.state = 0;
}

void Host::admit(Request& r) {
  if (!r.tracked) return;
  auto ask = cleared<kvc_lookup_in>();
  ask.request = r.id;
  ask.total_tokens = r.prompt;
  ask.external_cap_tokens = KVC_NO_LIMIT;
  auto hit = cleared<kvc_lookup_out>();
  for (int tries = 0; ok(call.lookup(sched, &ask, &hit), "lookup") == KVC_LATER;) {
    if (++tries == patience) throw Refused{"lookup", KVC_LATER};
    step({});
    collect();
    hit = cleared<kvc_lookup_out>();
  }
  grow(r, hit.external_tokens);
  std::vector<std::int64_t> states(r.table.size());
  if (!states.empty()) {
    Request state;
    grow(state, unit);
    states.back() = r.state = state.table.front();
  }
  const kvc_table tables[] = {{sizeof(kvc_table), 0, r.table.data(), r.table.size(), 0},
                              {sizeof(kvc_table), 1, states.data(), states.size(), 0}};
  auto in = cleared<kvc_alloc_in>();
  in.request = r.id;
  in.accepted_tokens = hit.external_tokens;
  in.tables = kvc_list_of(tables, 2, sizeof(kvc_table));
  auto out = cleared<kvc_alloc_out>();
  ok(call.alloc_update(sched, &in, &out), "alloc_update");
  r.load = out.job;
  r.changed_from = r.table.size();
  if (out.job == 0) return;
  hold(out.job, out.held);
  r.confirmed = hit.external_tokens;
}

// The next unit of the request's tokens, in the record of the step.
void Host::record(Request& r) {
  r.confirmed += unit;
  extend(r, r.confirmed);
  grow(r, r.confirmed);
  if (r.state != 0) drop(r.state);
  Request state;
  grow(state, unit);
  r.state = state.table.front();
  contents_[r.table.back()] = {0, keys_of(r.path, r.confirmed / unit - 1, 1), r.confirmed};
  contents_[r.state] = {1, keys_of(r.path, r.confirmed / unit - 1, 1), r.confirmed};
  if (!r.tracked) return;
  put_record(r, r.confirmed);
  handoffs.push_back({sizeof(kvc_handoff), 1, r.id, r.state, r.confirmed});
}

void Host::put_record(Request& r, std::uint64_t confirmed) {
  const std::uint64_t first_changed = r.resumes ? 0 : r.changed_from;
  tables_.push_back({{sizeof(kvc_table), 0, r.table.data(), r.table.size(), first_changed},
                     {sizeof(kvc_table), 1, nullptr, 0, 0}});
  records.push_back({sizeof(kvc_step_request), r.resumes ? KVC_STEP_RESUMED : 0U, r.id, confirmed,
                     list_of(tables_.back())});
  r.changed_from = r.table.size();
  r.resumes = false;
}

void Host::run_in_step(Request& r) {
  const auto* const layers =
      static_cast<const kvc_layerwise_api*>(call.extension(kvc_text_of(KVC_LAYERWISE_EXTENSION)));
  auto in = cleared<kvc_load_in_step>();
  in.request = r.id;
  in.job = r.load;
  if (layers != nullptr && r.load != 0 &&
      ok(layers->load_in_step(sched, &in), "load_in_step") == KVC_OK) {
    put_record(r, 0);
    step({});
    for (kvc_rank* const one : rank) {
      auto fence = cleared<kvc_fence>();
      ok(layers->layer_fence(one, steps, 0, &fence), "layer_fence");
    }
  }
  wait_for_load(r);
}

void Host::step(const std::vector<Request*>& running) {
  for (Request* const r : running) record(*r);
  for (const std::int64_t block : freed_) {
    const Content& c = contents_[block];
    if (candidates.size() == candidates_max) break;
    candidates.push_back({sizeof(kvc_candidate), c.group, block, c.key.data(), c.end});
  }
  auto in = cleared<kvc_step>();
  in.step = ++steps;
  in.scheduled = list_of(records);
  in.preempted = preempted.data();
  in.n_preempted = preempted.size();
  in.handoffs = list_of(handoffs);
  in.candidates = list_of(candidates);
  auto plan = cleared<kvc_plan>();
  ok(call.build_store_jobs(sched, &in, &plan), "build_store_jobs");
  for (std::uint64_t i = 0; i < plan.jobs.count; ++i) {
    const auto* const job = static_cast<const kvc_plan_job*>(kvc_list_at(&plan.jobs, i));
    hold(job->job, job->held);
  }
  auto fence = cleared<kvc_fence>();
  for (kvc_rank* const r : rank) {
    ok(call.submit_loads(r, plan.bytes, &fence), "submit_loads");
    ok(call.submit_stores(r, plan.bytes, &fence), "submit_stores");
  }
  records.clear();
  tables_.clear();
  preempted.clear();
  handoffs.clear();
  candidates.clear();
}

void Host::pass_on(const kvc_complete_out& out) {
  for (std::uint64_t i = 0; i < out.jobs.count; ++i) {
    const auto* const job = static_cast<const kvc_ended_job*>(kvc_list_at(&out.jobs, i));
    const auto [first, behind] = holds_.equal_range(job->job);
    for (auto it = first; it != behind; ++it) drop(it->second);
    holds_.erase(first, behind);
  }
  for (std::uint64_t i = 0; i < out.verdicts.count; ++i) {
    const auto* const v = static_cast<const kvc_verdict*>(kvc_list_at(&out.verdicts, i));
    const auto it = requests.find(v->request);
    if (it == requests.end() || it->second.load != v->job) continue;
    it->second.load = 0;
    if (v->status < 0) throw Refused{"a load", v->status};
  }
}

void Host::collect() {
  std::vector<std::vector<std::uint8_t>> reports;
  for (kvc_rank* const r : rank) {
    ok(call.wait(r, nullptr, 0, 1'000'000), "wait");
    auto moved = cleared<kvc_progress>();
    ok(call.progress(r, &moved), "progress");
    reports.emplace_back(moved.report.data, moved.report.data + moved.report.size);
  }
  std::vector<kvc_bytes> views;
  for (const auto& r : reports) views.push_back(kvc_bytes_of(r.data(), r.size()));
  auto out = cleared<kvc_complete_out>();
  ok(call.complete(sched, views.data(), views.size(), &out), "complete");
  pass_on(out);
}

void Host::preempt(Request& r) {
  give_back(r);
  r.confirmed = r.changed_from = 0;
  r.resumes = true;
  if (r.tracked) preempted.push_back(r.id);
}

void Host::end(Request& r) {
  const kvc_table tables[] = {{sizeof(kvc_table), 0, r.table.data(), r.table.size(), 0},
                              {sizeof(kvc_table), 1, nullptr, 0, 0}};
  const bool owns = r.tracked && !r.table.empty();
  auto in = cleared<kvc_end_in>();
  in.reason = KVC_END_LENGTH;
  in.request = r.id;
  in.confirmed_tokens = r.confirmed;
  in.tables = kvc_list_of(tables, owns ? 2 : 0, sizeof(kvc_table));
  auto out = cleared<kvc_end_out>();
  ok(call.request_end(sched, &in, &out), "request_end");
  if (out.job != 0) hold(out.job, out.held);
  give_back(r);
  requests.erase(r.id);
}

// Asks, is given up before it has blocks, and ends.
void Host::abandon(std::uint64_t id, std::uint64_t path) {
  Request& r = begin(id, path, 4 * unit);
  auto ask = cleared<kvc_lookup_in>();
  ask.request = id;
  ask.total_tokens = r.prompt;
  ask.external_cap_tokens = KVC_NO_LIMIT;
  auto hit = cleared<kvc_lookup_out>();
  ok(call.lookup(sched, &ask, &hit), "lookup");
  ok(call.lookup_cancel(sched, id), "lookup_cancel");
  end(r);
}

void Host::settle() {
  auto left = cleared<kvc_pending>();
  for (int tries = 0; tries == 0 || left.load_jobs + left.store_jobs != 0;) {
    if (++tries == patience) throw Refused{"a job does not end", KVC_LATER};
    step({});
    collect();
    ok(call.has_pending(sched, &left), "has_pending");
  }
}

void Host::live() {
  open();
  Request& a = begin(1, 1, 4 * unit);
  admit(a);
  for (int i = 0; i < 5; ++i) {
    step({&a});
    collect();
  }
  Request& b = begin(2, 2, 4 * unit);
  admit(b);
  step({&a, &b});
  end(a);  // while its last blocks are being stored
  step({&b});
  collect();
  settle();

  // A load, a request that waits for the same, and one too many.
  Request& c = begin(3, 1, 5 * unit);
  admit(c);
  Request& same = begin(4, 1, 5 * unit);
  Request& untracked = begin(5, 3, 2 * unit);
  admit(same);
  wait_for_load(c);
  wait_for_load(same);
  step({&b, &c, &same, &untracked});
  end(untracked);
  end(same);
  preempt(b);
  step({&c});
  collect();
  admit(b);
  run_in_step(b);
  step({&b, &c});
  collect();
  abandon(6, 1);
  end(b);
  end(c);
  settle();

  ok(call.reset(sched, 0), "reset");
  Request& d = begin(7, 1, 4 * unit);
  admit(d);
  step({&d});
  step({&d});
  collect();
  end(d);
  settle();
  close();
}

}  // namespace kvc::bad
