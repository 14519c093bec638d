// A small engine for tests of the scheduler role: it makes keys, calls the role as an engine does,
// reads plans and writes reports as ranks do. It moves no bytes; byte_world.h does.
#pragma once
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugin/core/prng.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/report_format.h"
#include "plugin/simple_cpu/scheduler.h"

namespace kvc::test {

using TokenIds = std::vector<std::uint32_t>;

inline constexpr std::uint32_t key_bytes = 16;
inline constexpr BlockId null_block = 0;

// The key of every complete hash unit: two chained 64-bit hashes.
inline std::vector<std::uint8_t> keys_of(const TokenIds& tokens, std::uint64_t h) {
  std::vector<std::uint8_t> out;
  std::uint64_t chain = 0x6b7663;
  for (std::uint64_t i = 0; i < tokens.size(); ++i) {
    chain = Prng(chain ^ (tokens[i] + 1)).next();
    if ((i + 1) % h != 0) continue;
    const std::uint64_t pair[2] = {chain, Prng(~chain).next()};
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(pair);
    out.insert(out.end(), bytes, bytes + key_bytes);
  }
  return out;
}

// `count` tokens of their own: other seeds share nothing.
inline TokenIds tokens_of(std::uint32_t seed, std::uint64_t count) {
  TokenIds out(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    out[i] = seed * 100'003 + static_cast<std::uint32_t>(i);
  }
  return out;
}

template <class T>
std::string error_of(const Result<T>& result) {
  return result.ok() ? std::string() : result.error().text;
}

class TestHost final : public HostServices {
 public:
  void log(LogLevel level, std::string_view text) override {
    lines.emplace_back(level, std::string(text));
  }
  std::uint64_t now_ns() override { return now; }
  [[nodiscard]] bool can_query_blocks() const override { return queries; }
  bool has_key(std::uint32_t group, BlockId block, const std::uint8_t* key, Tokens& end) override {
    const auto it = keyed.find({group, std::string(key, key + key_bytes)});
    end = Tokens{said_end};
    return it != keyed.end() && it->second == block;
  }
  bool block_of(std::uint32_t group, const std::uint8_t* key, BlockId& block) override {
    const auto it = keyed.find({group, std::string(key, key + key_bytes)});
    if (it == keyed.end()) return false;
    block = it->second;
    return true;
  }
  [[nodiscard]] std::size_t faults() const {
    std::size_t n = 0;
    for (const auto& line : lines) n += line.first == LogLevel::peer_fault;
    return n;
  }

  std::vector<std::pair<LogLevel, std::string>> lines;
  std::uint64_t now = 1;
  bool queries = false;
  std::uint64_t said_end = 0;  // of keys; 0: has_key does not say
  std::map<std::pair<std::uint32_t, std::string>, BlockId> keyed;
};

struct Layout {
  std::vector<GroupSpec> groups;
  std::uint64_t h = 16;
  std::uint64_t s = 16;
  std::uint32_t cp = 1;
};

inline GroupSpec full(std::uint64_t block) { return group_spec(GroupKind::full, Tokens{block}); }
inline GroupSpec sharded(std::uint64_t block) {
  GroupSpec g = full(block);
  g.sharded = true;
  return g;
}
inline GroupSpec sliding(std::uint64_t block, std::uint64_t window) {
  return group_spec(GroupKind::sliding, Tokens{block}, Tokens{window});
}
inline GroupSpec state(std::uint64_t block) { return group_spec(GroupKind::state, Tokens{block}); }
inline GroupSpec state_all(std::uint64_t block) {
  return group_spec(GroupKind::state, Tokens{block}, {}, true);
}

inline Geometry geometry_of(const Layout& layout, bool fine_hits = true) {
  GeometryOptions options;
  options.groups = layout.groups;
  options.hash_unit = Tokens{layout.h};
  options.scheduler_block = Tokens{layout.s};
  options.context_parallel = layout.cp;
  options.fine_hits_allowed = fine_hits;
  Result<Geometry> made = Geometry::make(std::move(options));
  if (!made.ok()) throw std::runtime_error(made.error().text);
  return std::move(made).value();
}

inline OpenLimits limits_of(std::uint64_t device_blocks = 1000) {
  OpenLimits limits;
  limits.device_blocks = device_blocks;
  limits.null_block = null_block;
  limits.key_bytes = key_bytes;
  limits.max_prompt_tokens = Tokens{100'000};
  limits.max_total_tokens = Tokens{100'000};
  limits.max_batch_tokens = Tokens{8192};
  limits.max_live_requests = 64;
  limits.max_running = 16;
  limits.max_request_bytes = Bytes{1 << 20};
  return limits;
}

using Table = std::vector<BlockId>;
using Tables = std::vector<Table>;

inline std::vector<TableView> views(const Tables& tables) {
  std::vector<TableView> out;
  for (const Table& t : tables) out.push_back({t.data(), t.size(), 0});
  return out;
}

// A copy of what the role answered: the spans live no longer than the next call.
struct PlanCopyOf {
  JobKind kind = JobKind::store;
  JobId job = 0;
  RequestId request = 0;
  std::vector<HeldBlock> held;
  std::vector<PlanCopy> copies;
  Code outcome = Code::ok;
};
struct EndedCopy {
  JobId job = 0;
  Code status = Code::ok;
  std::vector<FailedBlock> failed;
  std::vector<HeldBlock> released;
};
struct Completed {
  std::vector<EndedCopy> jobs;
  std::vector<Verdict> verdicts;
  std::vector<RejectedEntry> rejected;
};

// One element of a step record.
struct Sched {
  RequestId request = 0;
  std::uint64_t confirmed = 0;
  Tables tables;
  bool resumed = false;
};

// Makes the role under test; other connectors give their own.
using MakeRole = Result<std::unique_ptr<SchedulerRole>> (*)(Geometry, const OpenLimits&,
                                                            const SimpleCpuSchedulerOptions&,
                                                            HostServices&);

class Rig {
 public:
  explicit Rig(Layout layout_in, std::uint64_t slots = 16, SimpleCpuSchedulerOptions options = {},
               OpenLimits limits_in = limits_of(), MakeRole make = make_simple_cpu_scheduler)
      : layout(std::move(layout_in)), limits(limits_in) {
    Result<std::unique_ptr<SchedulerRole>> made = make(geometry_of(layout), limits, options, host);
    if (!made.ok()) throw std::runtime_error(made.error().text);
    role = std::move(made).value();
    if (slots != 0) set_ranks(slots);
  }

  void set_ranks(std::uint64_t slots) {
    SlotClass cls{0, (std::uint64_t{1} << layout.groups.size()) - 1, 1, Bytes{1024}, 0};
    std::vector<RankInfo> infos;
    for (std::uint32_t r = 0; r < limits.ranks; ++r) infos.push_back({r, slots, {&cls, 1}, {}});
    const auto usable = role->set_ranks(infos);
    BOOST_REQUIRE_EQUAL(error_of(usable), "");
  }

  Code begin(RequestId id, const TokenIds& prompt, bool no_read = false, bool no_write = false) {
    const std::vector<std::uint8_t> keys = keys_of(prompt, layout.h);
    RequestBegin in;
    in.request = id;
    in.prompt = Tokens{prompt.size()};
    in.keys = keys.data();
    in.key_count = keys.size() / key_bytes;
    in.no_read = no_read;
    in.no_write = no_write;
    tokens[id] = prompt;
    const Code code = role->request_begin(in).code;
    check();
    return code;
  }

  // Appends output tokens and the keys that they complete.
  void extend(RequestId id, const TokenIds& more) {
    TokenIds& all = tokens[id];
    const std::uint64_t had = all.size() / layout.h;
    all.insert(all.end(), more.begin(), more.end());
    const std::vector<std::uint8_t> keys = keys_of(all, layout.h);
    const std::uint64_t now = keys.size() / key_bytes;
    BOOST_REQUIRE(role->request_extend(id, had, keys.data() + had * key_bytes, now - had).ok());
    check();
  }

  LookupAnswer lookup(RequestId id, std::uint64_t device = 0, std::uint64_t total = 0) {
    LookupQuery q;
    q.request = id;
    q.total = Tokens{total != 0 ? total : tokens[id].size()};
    q.device = Tokens{device};
    const Result<LookupAnswer> answer = role->lookup(q);
    BOOST_REQUIRE_EQUAL(error_of(answer), "");
    check();
    return answer.value();
  }
  std::uint64_t hit(RequestId id, std::uint64_t device = 0) {
    return lookup(id, device).external.n;
  }
  Code lookup_code(RequestId id) {
    LookupQuery q;
    q.request = id;
    q.total = Tokens{tokens[id].size()};
    const Result<LookupAnswer> answer = role->lookup(q);
    check();
    return answer.ok() ? answer.value().code : answer.error().code;
  }

  JobId alloc(RequestId id, std::uint64_t accepted, const Tables& tables) {
    const Result<AllocResult> out = role->alloc_update(id, Tokens{accepted}, views(tables));
    BOOST_REQUIRE_EQUAL(error_of(out), "");
    last_held.clear();
    for (const HeldRange& range : out.value().held) {
      for (std::uint64_t p = range.first; p < range.behind; ++p) {
        last_held.push_back({range.group, range.blocks[p], p});
      }
    }
    check();
    return out.value().job;
  }
  Code alloc_code(RequestId id, std::uint64_t accepted, const Tables& tables) {
    const Result<AllocResult> out = role->alloc_update(id, Tokens{accepted}, views(tables));
    check();
    return out.ok() ? Code::ok : out.error().code;
  }

  // Builds the next plan; its jobs also stand in `open` until they are reported.
  std::vector<PlanCopyOf> step(const std::vector<Sched>& scheduled = {},
                               const std::vector<RequestId>& preempted = {},
                               const std::vector<Handoff>& handoffs = {}) {
    std::vector<std::vector<TableView>> held_views;
    for (const Sched& s : scheduled) held_views.push_back(views(s.tables));
    std::vector<ScheduledRequest> elements;
    for (std::size_t i = 0; i < scheduled.size(); ++i) {
      elements.push_back({scheduled[i].request, scheduled[i].resumed,
                          Tokens{scheduled[i].confirmed}, held_views[i]});
    }
    StepRecord record;
    record.step = ++steps;
    record.scheduled = elements;
    record.preempted = preempted;
    record.handoffs = handoffs;
    record.candidates = candidates;
    const Result<PlanResult> plan = role->build_store_jobs(record);
    candidates.clear();
    BOOST_REQUIRE_EQUAL(error_of(plan), "");
    std::vector<PlanCopyOf> jobs = read_plan(plan.value());
    check();
    return jobs;
  }

  Completed report(JobId job, std::uint32_t rank, Code status = Code::ok,
                   std::vector<FailedBlock> failed = {}, ReportPhase phase = ReportPhase::ended,
                   std::uint64_t use_epoch = 0) {
    std::vector<std::uint8_t> buffer(report_bytes(1, failed.size()));
    ReportEncoder encoder(buffer);
    encoder.begin(use_epoch != 0 ? use_epoch : epoch, rank, ++reports);
    ReportJob entry;
    entry.job = job;
    entry.kind = kinds[job];
    entry.phase = phase;
    entry.status = status;
    BOOST_REQUIRE(encoder.add(entry, failed));
    return complete({encoder.finish()});
  }

  Completed complete(const std::vector<std::span<const std::uint8_t>>& bytes) {
    const Result<CompleteResult> out = role->complete(bytes);
    BOOST_REQUIRE(out.ok());
    Completed copy;
    for (const EndedJob& j : out.value().jobs) {
      copy.jobs.push_back({j.job,
                           j.status,
                           {j.failed.begin(), j.failed.end()},
                           {j.released.begin(), j.released.end()}});
      open.erase(j.job);
    }
    copy.verdicts.assign(out.value().verdicts.begin(), out.value().verdicts.end());
    copy.rejected.assign(out.value().rejected.begin(), out.value().rejected.end());
    check();
    return copy;
  }

  // The next record names the block under the key of the first `end` tokens; rounded down to a hash
  // unit for the key, told as it is.
  void name(GroupId group, BlockId block, const TokenIds& all, std::uint64_t end) {
    const std::vector<std::uint8_t> keys = keys_of(all, layout.h);
    const std::uint64_t unit = std::max<std::uint64_t>(end / layout.h, 1);
    named_keys.push_back({});
    std::copy_n(keys.data() + (unit - 1) * key_bytes, key_bytes, named_keys.back().data());
    candidates.push_back({group, block, named_keys.back().data(), Tokens{end}});
  }

  // Every rank reports the job.
  Completed finish(JobId job, Code status = Code::ok) {
    Completed out;
    for (std::uint32_t r = 0; r < limits.ranks; ++r) out = report(job, r, status);
    std::erase(disk_open, job);
    return out;
  }
  void finish_all() {
    while (!open.empty()) finish(open.begin()->first);
  }
  // Plans what waits and reports everything.
  void drain() {
    step();
    finish_all();
  }

  Result<EndResult> end_result(RequestId id, std::uint64_t confirmed, const Tables& tables,
                               const std::vector<Handoff>& handoffs = {},
                               EndReason reason = EndReason::stop) {
    const std::vector<TableView> v = views(tables);
    RequestEnd in;
    in.request = id;
    in.reason = reason;
    in.confirmed = Tokens{confirmed};
    in.tables = v;
    in.handoffs = handoffs;
    Result<EndResult> out = role->request_end(in);
    if (out.ok()) {
      last_held.assign(out.value().held.begin(), out.value().held.end());
      if (out.value().job != 0) kinds[out.value().job] = JobKind::store;
    }
    check();
    return out;
  }
  JobId end(RequestId id, std::uint64_t confirmed = 0, const Tables& tables = {},
            const std::vector<Handoff>& handoffs = {}) {
    const Result<EndResult> out = end_result(id, confirmed, tables, handoffs);
    BOOST_REQUIRE_EQUAL(error_of(out), "");
    return out.value().job;
  }

  // A request runs from nothing to its end in one step; its stores end. Blocks are first,
  // first+1,.. per group.
  void serve(RequestId id, const TokenIds& prompt, BlockId first) {
    begin(id, prompt);
    const Tables tables = fresh_tables(prompt.size(), first);
    alloc(id, 0, tables);
    step({{id, prompt.size(), tables}});
    end(id, prompt.size(), tables);
    drain();
  }
  // Tables of distinct blocks for so many tokens.
  Tables fresh_tables(std::uint64_t count, BlockId first) const {
    Tables out;
    BlockId next = first;
    for (const GroupSpec& g : layout.groups) {
      const std::uint64_t b = g.tokens_per_block.n * (g.sharded ? layout.cp : 1);
      Table t;
      for (std::uint64_t i = 0; i < ceil_div(count, b); ++i) t.push_back(next++);
      out.push_back(t);
    }
    return out;
  }

  [[nodiscard]] OfferCounts offers() const { return role->counts().all_offers; }
  [[nodiscard]] OfferCounts handoffs() const { return role->counts().handoffs; }
  [[nodiscard]] std::uint64_t stat(std::string_view name) const {
    std::vector<Stat> all(role->stat_count());
    role->stats(all);
    for (const Stat& s : all) {
      if (s.name == name) return s.value;
    }
    BOOST_FAIL("no statistic is called " << name);
    return 0;
  }
  // With nothing open everything is free or evictable (design 2.5.4).
  void check_quiet() {
    BOOST_TEST(role->pending().load_jobs == 0u);
    BOOST_TEST(role->pending().store_jobs == 0u);
    BOOST_TEST(role->pending().held_blocks == 0u);
    BOOST_TEST(offers().pending == 0u);
    BOOST_TEST(stat("leases_open_now") == 0u);
    BOOST_TEST(stat("host_slots_leaked_now") == 0u);
    BOOST_TEST(stat("host_slots_used_now") == stat("host_slots_evictable_now"));
    BOOST_TEST(stat("requests_draining_now") == 0u);
  }
  void check() {
    if (!checks) return;
    const BoundaryStats counts = role->counts();
    BOOST_REQUIRE(counts.all_offers.balanced());
    BOOST_REQUIRE(counts.handoffs.balanced());
    const std::string broken = role->verify();
    BOOST_REQUIRE_MESSAGE(broken.empty(), broken);
  }

  Layout layout;
  OpenLimits limits;
  TestHost host;
  std::unique_ptr<SchedulerRole> role;
  std::map<RequestId, TokenIds> tokens;
  std::map<JobId, PlanCopyOf> open;  // planned and not ended
  std::map<JobId, JobKind> kinds;
  std::vector<std::uint8_t> last_plan;
  std::vector<JobId> disk_open;  // disk jobs that were planned and not finished
  std::vector<HeldBlock> last_held;
  std::vector<Candidate> candidates;  // of the next record
  std::deque<std::array<std::uint8_t, key_bytes>> named_keys;
  bool checks = true;  // false: large pools, where verify() after every call is too slow
  std::uint64_t steps = 0;
  std::uint64_t reports = 0;
  std::uint64_t epoch = 0;

 private:
  std::vector<PlanCopyOf> read_plan(const PlanResult& plan) {
    const Result<PlanView> view = PlanView::read(plan.bytes);
    BOOST_REQUIRE(view.ok());
    BOOST_REQUIRE_EQUAL(view.value().step(), steps);
    epoch = view.value().epoch();
    last_plan.assign(plan.bytes.begin(), plan.bytes.end());
    std::vector<PlanCopyOf> jobs;
    const auto take = [&](PlanReader reader) {
      for (PlanJob job; reader.next(job);) {
        PlanCopyOf copy{job.kind(), job.job(), job.request(), {}, {}, job.outcome()};
        for (std::uint64_t i = 0; i < job.size(); ++i) copy.copies.push_back(job.copy(i));
        jobs.push_back(copy);
      }
    };
    take(view.value().loads());
    take(view.value().stores());
    PlanReader disk = view.value().disk();
    for (PlanJob job; disk.next(job);) {
      kinds[job.job()] = job.kind();
      disk_open.push_back(job.job());
    }
    BOOST_REQUIRE_EQUAL(jobs.size(), plan.jobs.size());
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      BOOST_REQUIRE_EQUAL(jobs[i].job, plan.jobs[i].job);
      jobs[i].held.assign(plan.jobs[i].held.begin(), plan.jobs[i].held.end());
      BOOST_REQUIRE(!planned_once[jobs[i].job]);
      planned_once[jobs[i].job] = true;
      kinds[jobs[i].job] = jobs[i].kind;
      open[jobs[i].job] = jobs[i];
    }
    return jobs;
  }

  std::map<JobId, bool> planned_once;
};

}  // namespace kvc::test
