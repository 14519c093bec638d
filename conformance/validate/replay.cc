#include "conformance/validate/replay.h"

#include <sys/mman.h>
#include <algorithm>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "conformance/validate/form.h"
#include "conformance/validate/replay_read.h"

namespace kvc::validate {
namespace {

constexpr std::uint64_t page = 4096;
constexpr std::uint64_t memory_max = std::uint64_t{1} << 40U;
constexpr std::uint32_t ranks_max = 4096;
constexpr std::uint64_t wait_slice_ns = 50'000'000;

}  // namespace

// The host's table of a replay: time and block queries answer as they did.
struct Replay::HostSide {
  static Replay& me(kvc_host* h) { return *reinterpret_cast<Replay*>(h); }
  static void log(kvc_host* h, std::int32_t level, kvc_bytes text) noexcept {
    if (level == KVC_LOG_ERROR && text.size != 0) {
      me(h).last_log_.assign(reinterpret_cast<const char*>(text.data), text.size);
    }
  }
  static std::uint64_t now_ns(kvc_host* h) noexcept { return me(h).now_ns_; }
  static void wake(kvc_host*) noexcept {}
  static kvc_status has_key(kvc_host* h, std::uint32_t group, std::int64_t block,
                            const std::uint8_t* key, std::uint64_t* end) noexcept {
    const std::string_view name(reinterpret_cast<const char*>(key), me(h).key_bytes_);
    for (const QueryAnswer& q : me(h).answers_) {
      if (q.block_of || q.group != group || q.block != block || q.key != name) continue;
      *end = q.end;
      return q.status;
    }
    *end = 0;
    me(h).not_recorded("has_key", group);
    return 0;
  }
  static kvc_status block_of(kvc_host* h, std::uint32_t group, const std::uint8_t* key,
                             std::int64_t* block) noexcept {
    const std::string_view name(reinterpret_cast<const char*>(key), me(h).key_bytes_);
    for (const QueryAnswer& q : me(h).answers_) {
      if (!q.block_of || q.group != group || q.key != name) continue;
      *block = q.block;
      return q.status;
    }
    me(h).not_recorded("block_of", group);
    return 0;
  }
};

Replay::Replay(const Recording& recording, const kvc_plugin_api& api, ReplayOptions options)
    : recording_(recording), api_(api), options_(std::move(options)) {
  host_.struct_size = sizeof host_;
  host_.abi_minor = KVC_MINOR;
  host_.self = reinterpret_cast<kvc_host*>(this);
  host_.log = HostSide::log;
  host_.now_ns = HostSide::now_ns;
  host_.wake = HostSide::wake;
}

void Replay::not_recorded(const char* query, std::uint32_t group) {
  if (++new_queries_ == 1)
    first_new_query_ = fmt::format("call {}: {} of group {}", call_, query, group);
}

Replay::~Replay() {
  for (auto& [number, rank] : ranks_) {
    if (rank.handle != nullptr) api_.close_rank(rank.handle);
  }
  if (sched_ != nullptr) api_.close_scheduler(sched_);
  for (const Memory& m : memory_) ::munmap(m.place, m.bytes + page);
}

Result<std::optional<Difference>> Replay::run() {
  const auto& calls = recording_.calls();
  const bool has_sched = std::any_of(calls.begin(), calls.end(), [](const RecordedCall& c) {
    return c.slot == Slot::open_scheduler;
  });
  if (!has_sched) {
    return Status{Code::arg,
                  "the recording has no scheduler: plans of another process cannot be replayed"};
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const RecordedCall& call = calls[i];
    now_ns_ = std::max(now_ns_, call.head.time_ns);
    next_ns_ = std::max(now_ns_, calls[std::min(i + 1, calls.size() - 1)].head.time_ns);
    arena_.clear();
    one(call);
    if (over()) break;
    ++replayed_;
  }
  if (!problem_.ok()) return problem_;
  return difference_;
}

void Replay::one(const RecordedCall& call) {
  call_ = call.head.call;
  switch (call.slot) {
    case Slot::open_scheduler:
      return open(call, true);
    case Slot::open_rank:
      return open(call, false);
    case Slot::set_ranks:
      return set_ranks(call);
    case Slot::request_begin:
      return begin(call);
    case Slot::request_extend:
      return extend(call);
    case Slot::lookup:
      return lookup(call);
    case Slot::lookup_cancel:
    case Slot::reset:
      return number(call);
    case Slot::alloc_update:
      return alloc(call);
    case Slot::build_store_jobs:
      return build(call);
    case Slot::complete:
      return complete(call);
    case Slot::request_end:
      return end(call);
    case Slot::boundary_stats:
      return query(call);
    case Slot::register_regions:
      return register_regions(call);
    case Slot::submit_loads:
      return submit(call, true);
    case Slot::submit_stores:
      return submit(call, false);
    case Slot::progress:
      return progress(call);
    case Slot::boundaries:
      return boundaries(call);
    case Slot::load_in_step:
      return load_in_step(call);
    case Slot::layer_fence:
      return layer_fence(call);
    case Slot::close_scheduler:
      if (sched_ != nullptr) api_.close_scheduler(sched_);
      sched_ = nullptr;
      return;
    case Slot::close_rank:
      if (Rank* const rank = rank_of(call); rank != nullptr) {
        api_.close_rank(rank->handle);
        ranks_.erase(call.head.who - 1);
      }
      return;
    default:
      return;  // texts, rows, events and pumps: not compared (docs/conformance.md)
  }
}

void Replay::wrong(const RecordedCall& call, const std::string& why) {
  if (over()) return;
  problem_ = {Code::arg,
              fmt::format("call {} ({}): {}", call.head.call, info(call.slot).name, why)};
}

void Replay::differ(const RecordedCall& call, std::string field, std::string recorded,
                    std::string present) {
  if (over()) return;
  difference_ = Difference{call.head.call, info(call.slot).name, std::move(field),
                           std::move(recorded), std::move(present)};
}

bool Replay::same_blocks(const RecordedCall& call, const std::string& field,
                         const std::vector<Block>& recorded, const std::vector<Block>& present) {
  const auto sorted = [](std::vector<Block> blocks) {
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
      return std::tie(a.group, a.position, a.block) < std::tie(b.group, b.position, b.block);
    });
    return blocks;
  };
  const std::vector<Block> a = sorted(recorded);
  const std::vector<Block> b = sorted(present);
  if (a == b) return true;
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  const auto text = [](const std::vector<Block>& all, auto at) {
    return at == all.end() ? fmt::format("{} blocks", all.size())
                           : fmt::format("{} blocks, with block {} of group {} position {}",
                                         all.size(), at->block, at->group, at->position);
  };
  differ(call, field, text(a, x), text(b, y));
  return false;
}

bool Replay::need_sched(const RecordedCall& call) {
  if (sched_ == nullptr) wrong(call, "no scheduler is open");
  return sched_ != nullptr && !over();
}

Replay::Rank* Replay::rank_of(const RecordedCall& call) {
  const auto it = ranks_.find(call.head.who - 1);
  if (call.head.who == 0 || it == ranks_.end() || it->second.handle == nullptr) {
    wrong(call, "this rank is not open");
    return nullptr;
  }
  return &it->second;
}

bool Replay::keys_fit(const RecordedCall& call, std::uint64_t n, const ByteString& keys) {
  std::uint64_t bytes = 0;
  if (kvc_mul(n, key_bytes_, &bytes) != 0 && bytes == keys.size()) return true;
  wrong(call, fmt::format("{} keys of {} bytes lie in {} bytes", n, key_bytes_, keys.size()));
  return false;
}

bool Replay::tables_fit(const RecordedCall& call, const std::vector<Table>& tables) {
  if (tables.empty() || tables.size() == groups_) return true;
  wrong(call, fmt::format("{} tables for {} groups", tables.size(), groups_));
  return false;
}

std::uint64_t Replay::mine(std::uint64_t recorded_job) const {
  const auto it = jobs_.find(recorded_job);
  return it == jobs_.end() ? 0 : it->second.mine;
}

void Replay::pump_scheduler() {
  if (stepped_) static_cast<void>(api_.pump_scheduler(sched_, 1U << 20U));
}

void Replay::open_gate(std::uint64_t recorded_job) {
  const auto it = jobs_.find(recorded_job);
  if (it == jobs_.end() || it->second.plan == 0) return;
  Plan& plan = plans_[it->second.plan - 1];
  Gate& gate = it->second.kind == KVC_JOB_LOAD ? plan.loads : plan.stores;
  std::atomic_ref<std::uint64_t>(gate.counter).store(1, std::memory_order_release);
}

// A copy may wait for one of another plan.
bool Replay::open_oldest_gate() {
  for (Plan& plan : plans_) {
    for (Gate* const gate : {&plan.stores, &plan.loads}) {
      if (gate->counter != 0) continue;
      std::atomic_ref<std::uint64_t>(gate->counter).store(1, std::memory_order_release);
      return true;
    }
  }
  return false;
}

bool Replay::move_rank(Rank& rank) {
  bool moved = false;
  if (stepped_) {
    moved = api_.pump_rank(rank.handle, 1) == KVC_LATER;
  } else {
    static_cast<void>(api_.wait(rank.handle, nullptr, 0, wait_slice_ns));
  }
  kvc_progress out{};
  out.struct_size = sizeof out;
  if (api_.progress(rank.handle, &out) < 0) return moved;
  Form form;
  ProgressOut mine = read_progress_out(form, out);
  for (const LoadDone& done : mine.loads) rank.loads.emplace(done.job, done.status);
  moved = moved || !mine.loads.empty() || !mine.report.empty();
  if (!mine.report.empty()) rank.reports.push_back(std::move(mine.report));
  return moved;
}

void Replay::take_complete(const kvc_complete_out& out) {
  Form form;
  CompleteOut mine = read_complete_out(form, out);
  for (EndedJob& job : mine.jobs) ended_[job.job] = {job.status, std::move(job.released)};
  for (const Verdict& v : mine.verdicts) verdicts_[v.job] = v.status;
}

bool Replay::carry_one(Rank& rank) {
  if (rank.reports.empty()) return false;
  const ByteString report = std::move(rank.reports.front());
  rank.reports.pop_front();
  const kvc_bytes bytes = kvc_bytes_of(report.data(), report.size());
  kvc_complete_out out{};
  out.struct_size = sizeof out;
  if (api_.complete(sched_, &bytes, 1, &out) >= 0) take_complete(out);
  return true;
}

template <class Done>
bool Replay::advance(bool carry, const Done& done) {
  constexpr int quiet_max = 100;  // slices of waiting for a connector with threads
  for (int quiet = 0; quiet < quiet_max;) {
    if (done()) return true;
    bool moved = false;
    for (auto& [number, rank] : ranks_) {
      if (rank.handle == nullptr) continue;
      if (rank.reports.empty() || !carry) moved = move_rank(rank) || moved;
    }
    for (auto& [number, rank] : ranks_) {
      if (carry && rank.handle != nullptr) moved = carry_one(rank) || moved;
    }
    if (moved) {
      quiet = 0;
    } else if (stepped_ || ++quiet % 4 == 0) {
      if (!open_oldest_gate() && stepped_) return done();
    }
  }
  return done();
}

void Replay::progress(const RecordedCall& call) {
  Nothing in;
  ProgressOut out;
  read(call, in, out);
  Rank* const rank = over() ? nullptr : rank_of(call);
  if (rank == nullptr) return;
  if (!out.report.empty()) known_reports_.insert(hash_of(out.report));
  for (const LoadDone& done : out.loads) {
    if (done.status != KVC_E_DEADLINE) {
      open_gate(done.job);
    } else {
      now_ns_ = next_ns_;  // it passed while the recorded call ran, and copies end later
    }
  }
  advance(false, [&] {
    return std::all_of(out.loads.begin(), out.loads.end(),
                       [&](const LoadDone& done) { return rank->loads.contains(mine(done.job)); });
  });
  for (const LoadDone& done : out.loads) {
    const auto it = rank->loads.find(mine(done.job));
    if (it == rank->loads.end()) {
      return differ(call, fmt::format("loads[job {}]", done.job), "ended", "open");
    }
    same(call, "loads.status", done.status, it->second);
  }
}

void Replay::complete(const RecordedCall& call) {
  CompleteIn in;
  CompleteOut out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  pump_scheduler();
  std::vector<ByteString> foreign;
  for (const ByteString& report : in.reports) {
    if (!known_reports_.contains(hash_of(report))) foreign.push_back(report);
  }
  if (!foreign.empty()) {
    kvc_complete_out mine_out{};
    mine_out.struct_size = sizeof mine_out;
    const kvc_bytes* const reports = c_reports(arena_, foreign);
    const kvc_status status = api_.complete(sched_, reports, foreign.size(), &mine_out);
    if (status >= 0) take_complete(mine_out);
    if (!same(call, "status", call.head.status, status)) return;
  }
  for (const EndedJob& job : out.jobs) open_gate(job.job);
  for (const Verdict& v : out.verdicts) open_gate(v.job);
  advance(true, [&] {
    const auto has_ended = [&](const EndedJob& j) { return ended_.contains(mine(j.job)); };
    const auto is_judged = [&](const Verdict& v) { return verdicts_.contains(mine(v.job)); };
    return std::all_of(out.jobs.begin(), out.jobs.end(), has_ended) &&
           std::all_of(out.verdicts.begin(), out.verdicts.end(), is_judged);
  });
  for (const EndedJob& job : out.jobs) {
    const auto it = ended_.find(mine(job.job));
    const std::string name = fmt::format("jobs[job {}]", job.job);
    if (it == ended_.end()) return differ(call, name, "ended", "open");
    if (!same(call, (name + ".status").c_str(), job.status, it->second.status)) return;
    if (!same_blocks(call, name + ".released", job.released, it->second.released)) return;
    ended_.erase(it);
  }
  for (const Verdict& v : out.verdicts) {
    const auto it = verdicts_.find(mine(v.job));
    const std::string name = fmt::format("verdicts[job {}]", v.job);
    if (it == verdicts_.end()) return differ(call, name, "given", "none");
    if (!same(call, (name + ".status").c_str(), v.status, it->second)) return;
    verdicts_.erase(it);
  }
}

bool Replay::map_memory(const RecordedCall& call, const std::vector<Region>& regions) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (const Region& r : regions) {
    if (r.size == 0 || r.size > memory_max || r.base > UINT64_MAX - r.size) {
      wrong(call, fmt::format("a region of {} bytes at {:#x}", r.size, r.base));
      return false;
    }
    spans.emplace_back(r.base, r.base + r.size);
  }
  std::sort(spans.begin(), spans.end());
  for (std::size_t i = 0; i < spans.size();) {
    auto [begin, behind] = spans[i];
    for (++i; i < spans.size() && spans[i].first < behind; ++i) {
      behind = std::max(behind, spans[i].second);
    }
    void* const place = ::mmap(nullptr, behind - begin + page, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED) {
      wrong(call, fmt::format("no memory for {} bytes of regions", behind - begin));
      return false;
    }
    memory_.push_back({begin, behind - begin, place});
  }
  return true;
}

void* Replay::memory_at(std::uint64_t base) {
  for (auto m = memory_.rbegin(); m != memory_.rend(); ++m) {
    if (base >= m->begin && base < m->begin + m->bytes) {
      // The same place within a page, so that alignment stays as it was.
      return static_cast<std::uint8_t*>(m->place) + m->begin % page + (base - m->begin);
    }
  }
  return nullptr;
}

void Replay::register_regions(const RecordedCall& call) {
  RegionsIn in;
  RankInfo out;
  read(call, in, out);
  Rank* const rank = over() ? nullptr : rank_of(call);
  if (rank == nullptr || !map_memory(call, in.regions)) return;
  for (Region& r : in.regions) {
    r.base = reinterpret_cast<std::uintptr_t>(memory_at(r.base));
    r.device_kind = KVC_DEVICE_HOST;
  }
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  const kvc_status status = api_.register_regions(rank->handle, c_regions(arena_, in), &info);
  if (!same(call, "status", call.head.status, status) || status < 0) return;
  Form form;
  rank->info = read_rank_info(form, info);
}

void Replay::submit(const RecordedCall& call, bool loads) {
  SubmitIn in;
  Nothing out;
  read(call, in, out);
  Rank* const rank = over() ? nullptr : rank_of(call);
  if (rank == nullptr) return;
  const KeyId recorded = hash_of(in.plan);
  const auto plan = std::find_if(plans_.begin(), plans_.end(),
                                 [&](const Plan& p) { return p.recorded == recorded; });
  kvc_fence fence{};
  fence.struct_size = sizeof fence;
  kvc_bytes bytes = kvc_bytes_of(in.plan.data(), in.plan.size());
  if (plan != plans_.end()) {
    bytes = kvc_bytes_of(plan->bytes.data(), plan->bytes.size());
    fence.kind = KVC_FENCE_COUNTER;
    fence.counter = loads ? &plan->loads.counter : &plan->stores.counter;
    fence.value = 1;
  }
  const kvc_status status = loads ? api_.submit_loads(rank->handle, bytes, &fence)
                                  : api_.submit_stores(rank->handle, bytes, &fence);
  same(call, "status", call.head.status, status);
}

void Replay::open(const RecordedCall& call, bool sched) {
  OpenIn in;
  Nothing out;
  read(call, in, out);
  if (over()) return;
  if (in.ranks > ranks_max || (!sched && in.rank >= ranks_max) ||
      in.groups.size() > KVC_GROUPS_MAX || in.key_bytes > KVC_KEY_BYTES_MAX) {
    return wrong(call, fmt::format("{} ranks, rank {}, {} groups, keys of {} bytes", in.ranks,
                                   in.rank, in.groups.size(), in.key_bytes));
  }
  if (sched ? sched_ != nullptr : ranks_.contains(in.rank)) {
    return wrong(call, "it is open already");
  }
  if (options_.config) in.toml = *options_.config;
  if (sched) {  // its calls are those with keys and tables, whatever a rank was opened with
    key_bytes_ = in.key_bytes;
    groups_ = in.groups.size();
  }
  stepped_ = (api_.caps & KVC_CAP_STEPPED) != 0;
  host_.caps = in.host_caps & ~KVC_HOST_STEPPED;
  if (stepped_) host_.caps |= KVC_HOST_STEPPED;
  const bool asks = (in.host_caps & KVC_HOST_BLOCK_QUERY) != 0;
  host_.has_key = asks ? HostSide::has_key : nullptr;
  host_.block_of = asks ? HostSide::block_of : nullptr;
  const kvc_open* const open = c_open(arena_, in);
  kvc_rank* rank = nullptr;
  const kvc_status status =
      sched ? api_.open_scheduler(&host_, open, &sched_) : api_.open_rank(&host_, open, &rank);
  if (!sched && rank != nullptr) ranks_[in.rank].handle = rank;
  if (call.head.status >= 0 && status < 0) {
    return differ(call, "status", std::to_string(call.head.status),
                  fmt::format("{}: {}", status, last_log_));
  }
  same(call, "status", call.head.status, status);
}

}  // namespace kvc::validate
