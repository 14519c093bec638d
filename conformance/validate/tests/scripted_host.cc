#include <cstring>

#include "conformance/validate/engine.h"
#include "conformance/validate/table.h"
#include "conformance/validate/tests/scripted.h"

namespace kvc::validate::testing {
namespace {

constexpr std::uint64_t blocks = 64;
constexpr std::uint64_t block_bytes = 128;

Host& host_of(kvc_host* h) { return *reinterpret_cast<Host*>(h); }

void on_log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
  Host& host = host_of(h);
  host.log.emplace_back(level, std::string(reinterpret_cast<const char*>(text.data), text.size));
  if (host.on_log) host.on_log();
}
void* on_alloc(kvc_host*, std::uint64_t size, std::uint64_t align) noexcept {
  return ::operator new(size, std::align_val_t(align));
}
void on_release(kvc_host*, void* p, std::uint64_t, std::uint64_t align) noexcept {
  ::operator delete(p, std::align_val_t(align));
}
void on_wake(kvc_host*) noexcept {}
kvc_status on_has_key(kvc_host*, std::uint32_t, std::int64_t, const std::uint8_t*,
                      std::uint64_t* end) noexcept {
  *end = 16;
  return 1;
}
kvc_status on_block_of(kvc_host*, std::uint32_t, const std::uint8_t*, std::int64_t*) noexcept {
  return 0;
}

}  // namespace

std::vector<std::uint8_t> keys(std::uint64_t path, std::uint64_t first, std::uint64_t n) {
  std::vector<std::uint8_t> out(n * 8);
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t key = path * 1'000'003 + first + i + 1;
    std::memcpy(&out[i * 8], &key, 8);
  }
  return out;
}

Host::Host(std::uint64_t caps, const std::string& layer)
    : toml_("[layer]\nnext = \"scripted\"\n" + layer), memory_(blocks * block_bytes) {
  reset_script();
  forget_findings();
  Registry::of_process().use("scripted", scripted_api());
  groups_ = {
      {sizeof(kvc_group), KVC_GROUP_FULL, KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE,
       KVC_GROUP_CAPS_ALL, 16, 0, 0},
      {sizeof(kvc_group), KVC_GROUP_STATE, KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_STATE,
       KVC_GROUP_CAPS_ALL, 16, 0, 0}};
  layout.struct_size = sizeof layout;
  layout.groups = kvc_list_of(groups_.data(), groups_.size(), sizeof(kvc_group));
  layout.hash_unit_tokens = layout.scheduler_block_tokens = 16;
  layout.context_parallel = layout.ranks = 1;
  layout.cp_interleave_tokens = 1;
  layout.device_blocks = blocks;
  layout.key_bytes = 8;
  layout.max_prompt_tokens = 1024;
  layout.max_total_tokens = 2048;
  layout.max_batch_tokens = 256;
  layout.max_live_requests = layout.max_running = 8;
  layout.max_request_bytes = 1 << 20;
  layout.max_steps_in_flight = 2;
  layout.retention_tokens = -1;
  layout.config_toml = kvc_bytes_of(toml_.data(), toml_.size());
  table.struct_size = sizeof table;
  table.caps = caps;
  table.self = reinterpret_cast<kvc_host*>(this);
  table.log = testing::on_log;
  table.alloc = on_alloc;
  table.release = on_release;
  table.wake = on_wake;
  table.has_key = on_has_key;
  table.block_of = on_block_of;
  fence.struct_size = sizeof fence;
  fence.kind = KVC_FENCE_COUNTER;
  fence.counter = &counter_;
  fence.value = 1;
}

Host::~Host() {
  script() = Script{};
  close();
}

void Host::open_handles() {
  static_cast<void>(slots::open_scheduler(&table, &layout, &sched));
  static_cast<void>(slots::open_rank(&table, &layout, &rank));
}

void Host::open() {
  open_handles();
  const kvc_region region{sizeof region,  KVC_DEVICE_HOST, 0,           0, memory_.data(),
                          memory_.size(), block_bytes,     block_bytes, 3};
  const kvc_list regions = kvc_list_of(&region, 1, sizeof region);
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  static_cast<void>(slots::register_regions(rank, &regions, &info));
  const kvc_list ranks = kvc_list_of(&info, 1, sizeof info);
  kvc_list usable{};
  static_cast<void>(slots::set_ranks(sched, &ranks, &usable));
}

void Host::close() {
  if (rank != nullptr) slots::close_rank(rank);
  if (sched != nullptr) slots::close_scheduler(sched);
  rank = nullptr;
  sched = nullptr;
}

kvc_status Host::begin(std::uint64_t id, std::uint64_t tokens, std::uint32_t flags,
                       std::uint64_t path) {
  const auto mine = keys(path == 0 ? id : path, 0, tokens / 16);
  const kvc_request r{sizeof r,    flags,       id,           tokens,
                      mine.data(), tokens / 16, KVC_NO_LIMIT, KVC_NO_LIMIT};
  return slots::request_begin(sched, &r);
}

kvc_status Host::extend(std::uint64_t id, std::uint64_t first, std::uint64_t n) {
  const auto mine = keys(id, first, n);
  const kvc_extend x{sizeof x, 0, id, first, mine.data(), n};
  return slots::request_extend(sched, &x);
}

kvc_status Host::lookup(std::uint64_t id, std::uint64_t total, std::uint64_t device,
                        std::uint64_t cap) {
  const kvc_lookup_in in{sizeof in, 0, id, total, device, cap};
  found = {};
  found.struct_size = sizeof found;
  return slots::lookup(sched, &in, &found);
}

kvc_status Host::alloc(std::uint64_t id, std::uint64_t accepted, std::vector<std::int64_t> full,
                       std::vector<std::int64_t> states) {
  if (states.empty() && accepted != 0) {  // the last position holds the state
    states.assign(full.size(), 0);
    if (!states.empty()) states.back() = 60;
  }
  const kvc_table tables[] = {{sizeof(kvc_table), 0, full.data(), full.size(), 0},
                              {sizeof(kvc_table), 1, states.data(), states.size(), 0}};
  const kvc_alloc_in in{sizeof in, 0, id, accepted, kvc_list_of(tables, 2, sizeof(kvc_table))};
  allocated = {};
  allocated.struct_size = sizeof allocated;
  return slots::alloc_update(sched, &in, &allocated);
}

void Host::schedule(std::uint64_t id, std::uint64_t confirmed, std::vector<std::int64_t> full,
                    std::uint64_t first_changed, std::uint32_t flags) {
  Record& r = records_.emplace_back();
  r.blocks = std::move(full);
  r.tables = {{sizeof(kvc_table), 0, r.blocks.data(), r.blocks.size(), first_changed},
              {sizeof(kvc_table), 1, nullptr, 0, 0}};
  r.request = {sizeof r.request, flags, id, confirmed,
               kvc_list_of(r.tables.data(), 2, sizeof(kvc_table))};
}

kvc_status Host::build(std::uint64_t step) {
  std::vector<kvc_step_request> scheduled;
  for (const Record& r : records_) scheduled.push_back(r.request);
  kvc_step in{};
  in.struct_size = sizeof in;
  in.step = step == 0 ? last_step + 1 : step;
  in.scheduled = kvc_list_of(scheduled.data(), scheduled.size(), sizeof(kvc_step_request));
  in.preempted = preempted.data();
  in.n_preempted = preempted.size();
  in.handoffs = kvc_list_of(handoffs.data(), handoffs.size(), sizeof(kvc_handoff));
  in.candidates = kvc_list_of(candidates.data(), candidates.size(), sizeof(kvc_candidate));
  planned = {};
  planned.struct_size = sizeof planned;
  const kvc_status s = slots::build_store_jobs(sched, &in, &planned);
  if (s >= 0) {
    last_step = in.step;
    if (planned.bytes.size != 0) {
      plan.assign(planned.bytes.data, planned.bytes.data + planned.bytes.size);
    }
  }
  records_.clear();
  preempted.clear();
  handoffs.clear();
  candidates.clear();
  return s;
}

kvc_status Host::submit() {
  const kvc_bytes bytes = kvc_bytes_of(plan.data(), plan.size());
  const kvc_status s = slots::submit_loads(rank, bytes, &fence);
  return s < 0 ? s : slots::submit_stores(rank, bytes, &fence);
}

kvc_status Host::progress() {
  moved = {};
  moved.struct_size = sizeof moved;
  const kvc_status s = slots::progress(rank, &moved);
  if (s >= 0 && moved.report.size != 0) {
    reports.emplace_back(moved.report.data, moved.report.data + moved.report.size);
  }
  return s;
}

kvc_status Host::complete() {
  std::vector<kvc_bytes> views;
  for (const auto& r : reports) views.push_back(kvc_bytes_of(r.data(), r.size()));
  completed = {};
  completed.struct_size = sizeof completed;
  const kvc_status s = slots::complete(sched, views.data(), views.size(), &completed);
  reports.clear();
  return s;
}

kvc_status Host::step() {
  kvc_status s = build();
  if (s >= 0) s = submit();
  if (s >= 0) s = progress();
  return s < 0 ? s : complete();
}

kvc_status Host::end(std::uint64_t id, std::uint64_t confirmed, std::vector<std::int64_t> full) {
  const kvc_table tables[] = {{sizeof(kvc_table), 0, full.data(), full.size(), 0},
                              {sizeof(kvc_table), 1, nullptr, 0, 0}};
  const bool owns = !full.empty();
  const kvc_end_in in{
      sizeof in, KVC_END_STOP, id, confirmed, kvc_list_of(tables, owns ? 2 : 0, sizeof(kvc_table)),
      {}};
  ended = {};
  ended.struct_size = sizeof ended;
  return slots::request_end(sched, &in, &ended);
}

std::vector<std::string> found_rules() {
  std::vector<std::string> rules;
  const FindingsList& list = FindingsList::of_process();
  for (std::uint64_t i = 0; i < list.count(); ++i) {
    if (const Finding* const f = list.at(i); f != nullptr) rules.emplace_back(f->rule);
  }
  return rules;
}

std::string found_texts() {
  std::string text;
  const FindingsList& list = FindingsList::of_process();
  for (std::uint64_t i = 0; i < list.count(); ++i) {
    const Finding* const f = list.at(i);
    if (f != nullptr)
      text += std::string(f->rule) + " " + std::string(f->slot) + ": " + f->text + "\n";
  }
  return text;
}

void forget_findings() { FindingsList::of_process().forget(); }

}  // namespace kvc::validate::testing
