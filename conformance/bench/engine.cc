#include "conformance/bench/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "plugin/core/prng.h"
#include "plugin/offload/plan_format.h"
#include "plugin/offload/report_format.h"

namespace kvc::bench {

namespace {

template <class T>
T must(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.error().text);
  return std::move(result).value();
}
void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.text);
}

Geometry geometry_of(const EngineOptions& o) {
  GeometryOptions g;
  g.groups = o.groups;
  g.hash_unit = o.hash_unit;
  g.scheduler_block = o.scheduler_block;
  return must(Geometry::make(std::move(g)));
}

OpenLimits limits_of(const EngineOptions& o) {
  OpenLimits l;
  l.device_blocks = o.device_blocks;
  l.key_bytes = key_bytes;
  l.max_prompt_tokens = o.max_tokens;
  l.max_total_tokens = o.max_tokens;
  l.max_batch_tokens = o.chunk * o.lanes;
  l.max_live_requests = o.live_max;
  l.max_running = 256;
  l.max_request_bytes = Bytes{UINT64_MAX};
  return l;
}

}  // namespace

void make_key(std::uint64_t stream, std::uint64_t unit, std::byte* out) {
  Prng random(stream * 0x9e3779b97f4a7c15U ^ (unit + 1) * 0xd1342543de82ef95U);
  for (std::size_t i = 0; i < key_bytes; i += 8) {
    const std::uint64_t word = random.next();
    std::memcpy(out + i, &word, sizeof word);
  }
}

std::vector<std::byte> all_keys(const Content& content, Tokens hash_unit) {
  const std::uint64_t units = content.prompt.n / hash_unit.n;
  std::vector<std::byte> keys(units * key_bytes);
  for (std::uint64_t u = 0; u < units; ++u) {
    const bool shared = u < content.shared_units;
    make_key(shared ? content.shared_stream : content.stream, u, keys.data() + u * key_bytes);
  }
  return keys;
}

void Engine::Host::log(LogLevel level, std::string_view text) {
  if (level == LogLevel::peer_fault) throw std::runtime_error(std::string(text));
}

Engine::Engine(const EngineOptions& options) : options_(options) {
  const OpenLimits limits = limits_of(options);
  FlowOptions flows;
  flows.event_ring_entries = 0;
  Geometry geometry = geometry_of(options);
  const std::uint64_t room = must(plan_room_bytes(geometry, limits, flows));
  role_ = std::make_unique<TierScheduler>(geometry, geometry, limits, flows,
                                          make_simple_cpu_policy(false), host_, room);
  SlotClass cls{0, (std::uint64_t{1} << options.groups.size()) - 1, 1, Bytes{1024}, 0};
  const RankInfo rank{0, options.slots, {&cls, 1}, {}};
  static_cast<void>(must(role_->set_ranks({&rank, 1})));
  for (const GroupId g : core().geometry.cacheable()) {
    lane_blocks_ = std::max(lane_blocks_, core().geometry.end_position(g, options.max_tokens));
  }
  blocks_.resize(options.device_blocks - 1);  // block 0 is the null block
  std::iota(blocks_.begin(), blocks_.end(), BlockId{1});
  Prng random(1);
  for (std::size_t i = blocks_.size(); i > 1; --i)
    std::swap(blocks_[i - 1], blocks_[random.below(i)]);
}

// Only the keys that the role reads while it stores: block ends and the tail.
std::vector<std::byte> Engine::used_keys(const Content& content) const {
  const Geometry& geometry = core().geometry;
  const Tokens unit = geometry.hash_unit();
  const std::uint64_t per_block = geometry.block_tokens(*geometry.chain()).n / unit.n;
  const std::uint64_t tail = (content.prompt.n - 1) / unit.n;
  std::vector<std::byte> keys(content.prompt.n / unit.n * key_bytes);
  const auto make = [&](std::uint64_t u) {
    const bool shared = u < content.shared_units;
    make_key(shared ? content.shared_stream : content.stream, u, keys.data() + u * key_bytes);
  };
  for (std::uint64_t u = per_block - 1; (u + 1) * key_bytes <= keys.size(); u += per_block) make(u);
  if (tail > 0) make(tail - 1);
  return keys;
}

RequestId Engine::begin(const Content& content, std::span<const std::byte> keys) {
  RequestBegin in;
  in.request = ++last_id_;
  in.prompt = content.prompt;
  in.keys = reinterpret_cast<const std::uint8_t*>(keys.data());
  in.key_count = keys.size() / key_bytes;
  must(role_->request_begin(in));
  return last_id_;
}

RequestId Engine::begin(const Content& content) {
  return begin(content, all_keys(content, core().geometry.hash_unit()));
}

std::uint64_t Engine::lookup(RequestId id, Tokens total) {
  LookupQuery query;
  query.request = id;
  query.total = total;
  return must(role_->lookup(query)).external.n;
}

std::span<const TableView> Engine::tables(std::uint64_t lane, Tokens tokens) {
  const Geometry& geometry = core().geometry;
  if ((lane + 1) * lane_blocks_ > blocks_.size()) throw std::runtime_error("no such lane");
  views_.assign(geometry.groups(), TableView{});
  for (const GroupId g : geometry.cacheable()) {
    if (!geometry.group(g).position_stable) continue;
    views_[g] = {blocks_.data() + lane * lane_blocks_, geometry.end_position(g, tokens), 0};
  }
  return views_;
}

void Engine::stepped(const PlanResult& plan) {
  ++steps_;
  if (plan.jobs.empty()) return;
  const std::uint64_t epoch = core().epoch;
  report_.resize(report_bytes(plan.jobs.size(), 0));
  ReportEncoder encoder(report_);
  encoder.begin(epoch, 0, ++reports_);
  for (const PlannedJob& job : plan.jobs) {
    ReportJob entry;
    entry.job = job.job;
    entry.kind = job.kind;
    if (!encoder.add(entry, {})) throw std::runtime_error("a report is too long");
  }
  const std::span<const std::uint8_t> bytes = encoder.finish();
  const CompleteResult ended = must(role_->complete({&bytes, 1}));
  if (ended.jobs.size() != plan.jobs.size()) throw std::runtime_error("a job did not end");
}

void Engine::step(std::span<const ScheduledRequest> scheduled, std::span<const Handoff> handoffs) {
  StepRecord record;
  record.step = next_step();
  record.scheduled = scheduled;
  record.handoffs = handoffs;
  stepped(must(role_->build_store_jobs(record)));
}

void Engine::end(RequestId id, Tokens confirmed) {
  const std::vector<TableView> unchanged(core().geometry.groups());
  RequestEnd in;
  in.request = id;
  in.confirmed = confirmed;
  in.tables = unchanged;
  const EndResult out = must(role_->request_end(in));
  if (out.job != 0) step({});
}

// The states at the end of what a lane has computed, or at its tail.
void Engine::hand_off(const Lane& lane) {
  const Geometry& geometry = core().geometry;
  const bool last = lane.done == lane.prompt;
  for (const GroupId g : geometry.cacheable()) {
    if (!geometry.is_state_align(g)) continue;
    const Tokens boundary = last ? geometry.prompt_tail_boundary(g, lane.prompt) : lane.done;
    const std::uint64_t used = handoffs_.size();
    handoffs_.push_back({g, lane.id, blocks_[used % blocks_.size()], boundary});
  }
}

void Engine::advance(std::span<Lane> lanes) {
  scheduled_.clear();
  handoffs_.clear();
  for (Lane& lane : lanes) {
    if (lane.id == 0) continue;
    const bool first = lane.done == Tokens{};
    lane.done = std::min(lane.prompt, lane.done + options_.chunk);
    scheduled_.push_back(
        {lane.id, false, lane.done,
         first ? std::span<const TableView>(lane.tables) : std::span<const TableView>()});
    hand_off(lane);
  }
  step(scheduled_, handoffs_);
}

void Engine::serve(std::span<const Content> contents) {
  for (std::size_t first = 0; first < contents.size(); first += options_.lanes) {
    const std::size_t count = std::min<std::size_t>(options_.lanes, contents.size() - first);
    std::vector<Lane> lanes(count);
    for (std::size_t i = 0; i < count; ++i) {
      const Content& c = contents[first + i];
      const std::span<const TableView> views = tables(i, c.prompt);
      lanes[i] = {begin(c, used_keys(c)), c.prompt, {}, {views.begin(), views.end()}};
    }
    for (std::size_t left = count; left != 0;) {
      advance(lanes);
      for (Lane& lane : lanes) {
        if (lane.id == 0 || lane.done != lane.prompt) continue;
        end(lane.id, lane.done);
        lane.id = 0;
        --left;
      }
    }
  }
}

}  // namespace kvc::bench
