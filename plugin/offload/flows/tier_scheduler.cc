#include "plugin/offload/flows/tier_scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "plugin/offload/rank_sizes.h"

namespace kvc {

namespace {

// Bounds of memory that is set aside, not of what is possible: beyond them vectors grow.
constexpr std::uint64_t reserved_jobs_max = 4096;
constexpr std::uint64_t reserved_copies_max = std::uint64_t{1} << 24U;

std::uint64_t random_epoch() {
  std::random_device source;
  const std::uint64_t high = source();
  return (high << 32U | source()) | 1U;
}

std::uint64_t handoffs_expected(const Geometry& geometry, const OpenLimits& limits) {
  std::uint64_t states = 0;
  for (const GroupId g : geometry.cacheable()) states += geometry.group(g).state;
  return 2 * states * std::min<std::uint64_t>(limits.max_running, 4096) + 16;
}

}  // namespace

Result<Geometry> tier_geometry_of(const Geometry& geometry, std::uint32_t blocks_per_chunk) {
  GeometryOptions options = geometry.options();
  options.blocks_per_chunk = blocks_per_chunk;
  return Geometry::make(std::move(options));
}

Result<std::unique_ptr<SchedulerRole>> make_tier_scheduler(Geometry geometry,
                                                           const OpenLimits& limits,
                                                           const FlowOptions& options,
                                                           std::unique_ptr<StorePolicy> policy,
                                                           HostServices& host) {
  if (limits.key_bytes < key_bytes_min || limits.key_bytes > key_bytes_max) {
    return {Code::arg, fmt::format("keys of {} bytes; {} to {} are possible", limits.key_bytes,
                                   key_bytes_min, key_bytes_max)};
  }
  if (limits.ranks == 0) return {Code::arg, "0 ranks"};
  if (options.lease_steps < 1 || options.lease_steps > 8) {
    return {Code::arg, fmt::format("lease_steps {}; 1 to 8 are possible", options.lease_steps)};
  }
  if (options.max_leases < 1) return {Code::arg, "max_leases 0; at least 1 is needed"};
  if (options.max_pins > PinBook::most || options.max_pinned_percent > 100) {
    return {Code::arg, fmt::format("max_pins {} and max_pinned_percent {}; at most {} and 100 are "
                                   "possible",
                                   options.max_pins, options.max_pinned_percent, PinBook::most)};
  }
  Result<Geometry> tier = tier_geometry_of(geometry, options.blocks_per_chunk);
  if (!tier.ok()) return tier.error();
  const Result<std::uint64_t> room = plan_room_bytes(geometry, limits, options);
  if (!room.ok()) return room.error();
  return std::unique_ptr<SchedulerRole>(
      std::make_unique<TierScheduler>(std::move(geometry), std::move(tier).value(), limits, options,
                                      std::move(policy), host, room.value()));
}

TierScheduler::TierScheduler(Geometry geometry, Geometry tier_geometry, const OpenLimits& limits,
                             const FlowOptions& options, std::unique_ptr<StorePolicy> policy,
                             HostServices& host, std::uint64_t plan_bytes_max)
    : policy_(std::move(policy)),
      core_(std::move(geometry), std::move(tier_geometry), limits, options, host),
      planner_(core_),
      admissions_(core_, planner_),
      lookups_(core_, admissions_),
      hints_(core_, lookups_),
      retention_(core_),
      loads_(core_, admissions_, lookups_),
      handoffs_(core_, planner_, handoffs_expected(core_.geometry, limits)),
      plans_(core_, admissions_, planner_, handoffs_, *policy_, lookups_, plan_bytes_max),
      finishes_(core_, admissions_, planner_, handoffs_, loads_, plans_),
      completions_(core_) {
  core_.epoch = random_epoch();
  note_gates();
  note_policy();
  publish();
}

void TierScheduler::note_gates() {
  gates_ = core_.tier_geometry.gates();  // those of the engine's, and of chunks
  const Tokens unit = core_.geometry.hit_alignment();
  if (unit >= core_.limits.max_total_tokens) {
    gates_.push_back(
        {"hits", fmt::format("hits are multiples of {} tokens and no request is longer "
                             "than {}: nothing can ever hit (K6-50)",
                             unit.n, core_.limits.max_total_tokens.n)});
  }
  for (Gate& gate : policy_->gates()) gates_.push_back(std::move(gate));
  if (core_.tier.eviction() != core_.options.eviction) {
    gates_.push_back(
        {"eviction", fmt::format("eviction = \"{}\" ranks the blocks of one chain, and "
                                 "this layout or index has none: lru is used",
                                 kvc::name_of(core_.options.eviction))});
  }
  if (core_.options.states != StateRule::dense && !retention_.lists()) {
    gates_.push_back(
        {"states", fmt::format("states = \"{}\" chooses among states that are handed off, and {}",
                               kvc::name_of(core_.options.states),
                               core_.options.store_when_filled ? "this layout has none"
                                                               : "lazy mode takes none")});
  }
  for (const Gate& gate : gates_) {
    core_.host.log(LogLevel::warn, fmt::format("{} is off: {}", gate.feature, gate.why));
    std::string why = gate.why;
    std::replace(why.begin(), why.end(), ',', ';');  // labels are separated by commas
    gate_labels_.push_back(fmt::format("feature={},why={}", gate.feature, why));
  }
}

void TierScheduler::note_policy() {
  if (core_.tier.eviction() != Eviction::hazard) return;
  const PolicyReport report;
  for (std::size_t i = 0; i < report.hazard.size(); ++i)
    bucket_labels_.push_back(fmt::format("bucket={}", i));
  for (std::size_t i = 0; i < report.top.size(); ++i)
    rank_labels_.push_back(fmt::format("rank={}", i));
}

void TierScheduler::expect_publish() const {
  prefetch_write_all(&core_.ledger, sizeof core_.ledger);
  prefetch_write_all(&core_.counters, sizeof core_.counters);
  numbers_.expect_publish();
}

void TierScheduler::publish() {
  core_.ledger.check_balanced();
  for (const RequestIndex index : core_.dirty) {
    KVC_OP(record, 1);
    Request& r = core_.requests[index];
    r.dirty = false;
    r.explain.confirmed = r.confirmed;
    core_.explain.put(r.explain_ticket, r.explain);
  }
  core_.dirty.clear();
  numbers_.publish(numbers_of(core_));
  if (gate_measured_ != core_.gate.measured()) {
    gate_measured_ = core_.gate.measured();
    gate_report_.publish(core_.gate.report());
  }
  if (rank_labels_.empty()) return;
  const std::uint64_t learned = core_.tier.policy().refreshes;
  if (learned != learned_) report_.publish(core_.tier.policy_report());
  learned_ = learned;
}

// Every live request has an open run, and so has one that is over while its copies drain; of those
// there are few, and they cannot be more than slots.
std::uint64_t TierScheduler::runs_expected(std::uint64_t pages) const {
  const std::uint64_t live = core_.limits.max_live_requests;
  if (live > reserved_copies_max || pages == UINT64_MAX) return 0;
  return 2 * live + std::min(pages, reserved_jobs_max) + (core_.options.store_when_filled ? 0 : 1);
}

// Everything that is sized by the tier: no heap in the calls after it while the bounds hold.
void TierScheduler::reserve() {
  const std::uint64_t entries = std::min(core_.tier.entries_max(), reserved_copies_max);
  const std::uint64_t blocks =
      std::min(core_.limits.device_blocks, reserved_copies_max) * core_.geometry.cacheable().size();
  const std::uint64_t copies =
      std::min(entries * core_.options.blocks_per_chunk + blocks, reserved_copies_max);
  const std::uint64_t jobs =
      std::min<std::uint64_t>(core_.limits.max_live_requests, reserved_jobs_max / 2) * 2 + 64;
  core_.jobs.reserve(jobs, copies);
  core_.dirty.reserve(jobs);
  completions_.reserve(jobs, copies);
}

Result<std::span<const SlotClass>> TierScheduler::set_ranks(std::span<const RankInfo> ranks) {
  if (core_.tier.sized()) return {Code::state, "set_ranks was called before"};
  Result<RankSizes> settled = settle_ranks(core_.tier_geometry, core_.limits.ranks, ranks);
  if (!settled.ok()) return settled.error();
  const std::uint64_t runs = runs_expected(settled.value().sizes.pages);
  if (Status s = core_.tier.resize(settled.value().sizes, runs); !s.ok()) return s;
  if (Status s = core_.disk.set_ranks(ranks, runs); !s.ok()) return s;
  usable_ = std::move(settled.value().usable);
  core_.block_bytes.assign(core_.geometry.groups(), 0);
  for (const RankInfo& rank : ranks) {
    for (const SlotClass& c : rank.classes) {
      for (GroupId g = 0; g < core_.geometry.groups(); ++g) {
        if ((c.group_mask >> g & 1U) == 0) continue;
        core_.block_bytes[g] += c.bytes_per_block.n / core_.tier_geometry.blocks_per_chunk(g);
      }
    }
  }
  if (!core_.options.store_when_filled) core_.candidate_run = core_.tier.open_run();
  for (RequestIndex i = 0; i < core_.requests.capacity(); ++i) {
    Request& r = core_.requests[i];
    if (!r.live) continue;
    r.run = core_.tier.open_run();
    core_.tier.hint(r.run, r.hint);
  }
  reserve();
  return done(Result<std::span<const SlotClass>>(std::span<const SlotClass>(usable_)));
}

Status TierScheduler::check_begin(const RequestBegin& in) const {
  if (in.request == 0 || core_.requests.used(in.request)) {
    return {Code::arg, fmt::format("request id {} {}", in.request,
                                   in.request == 0 ? "is no id" : "was used before")};
  }
  if (in.prompt > core_.limits.max_prompt_tokens) {
    return {Code::arg, fmt::format("request {}: a prompt of {} tokens, at most {} are allowed",
                                   in.request, in.prompt.n, core_.limits.max_prompt_tokens.n)};
  }
  const std::uint64_t complete = in.prompt.n / core_.geometry.hash_unit().n;
  if (in.key_count > complete) {
    return {
        Code::arg,
        fmt::format("request {}: {} keys for {} tokens, which hold {} hash units of {}", in.request,
                    in.key_count, in.prompt.n, complete, core_.geometry.hash_unit().n)};
  }
  if (in.key_count != 0 && in.keys == nullptr) {
    return {Code::arg, fmt::format("request {}: {} keys at no address", in.request, in.key_count)};
  }
  return {};
}

bool TierScheduler::indexable(std::uint64_t keys) const {
  return keys <= indexed_end_max.n / core_.geometry.hash_unit().n;
}

std::string TierScheduler::unindexable(RequestId request, std::uint64_t keys) const {
  return fmt::format("request {}: {} keys of {} tokens each, the index takes ends up to {} tokens",
                     request, keys, core_.geometry.hash_unit().n, indexed_end_max.n);
}

Status TierScheduler::request_begin(const RequestBegin& in) {
  if (Status s = check_begin(in); !s.ok()) return s;
  if (!indexable(in.key_count)) {
    core_.requests.refuse(in.request);
    ++core_.counters.requests_refused;
    return done(Status{Code::full, unindexable(in.request, in.key_count)});
  }
  const RunId run = core_.tier.open_run();
  RequestIndex index = no_request;
  if (core_.tier.sized() && run == no_run) {
    core_.requests.refuse(in.request);
  } else {
    index = core_.requests.begin(in);
  }
  if (index == no_request) {
    core_.tier.close_run(run);
    ++core_.counters.requests_refused;
    return done(Status{
        Code::full,
        fmt::format("request {}: {} requests with {} key bytes are tracked; at most {} and {}",
                    in.request, core_.requests.live(), core_.requests.key_bytes_used(),
                    core_.limits.max_live_requests, core_.limits.max_request_bytes.n)});
  }
  Request& r = core_.requests[index];
  r.run = run;
  r.explain.id = in.request;
  r.explain.prompt = in.prompt;
  r.explain_ticket = core_.explain.enter(r.explain);
  ++core_.counters.requests_begun;
  return done(Status{});
}

Status TierScheduler::request_extend(RequestId request, std::uint64_t first_key,
                                     const std::uint8_t* keys, std::uint64_t key_count) {
  const FoundRequest found = core_.find(request);
  if (!found.live()) return found.status;
  const RequestIndex index = found.index;
  Request& r = core_.requests[index];
  if (r.keys_frozen) return {};
  const std::uint64_t have = core_.requests.keys(r).count;
  if (first_key != have || (key_count != 0 && keys == nullptr)) {
    return {Code::arg, fmt::format("request {} has {} keys, the new ones begin at {}", request,
                                   have, first_key)};
  }
  const std::uint64_t possible = core_.limits.max_total_tokens.n / core_.geometry.hash_unit().n;
  if (key_count > possible - std::min(possible, have)) {
    return {Code::arg, fmt::format("request {}: {} keys after {}, at most {} tokens are possible",
                                   request, key_count, have, core_.limits.max_total_tokens.n)};
  }
  if (!indexable(have + key_count)) {
    r.keys_frozen = true;
    return done(Status{Code::full, unindexable(request, have + key_count)});
  }
  if (!core_.requests.extend(index, keys, key_count)) {
    r.keys_frozen = true;
    return done(Status{
        Code::full,
        fmt::format("request {}: no room for {} more keys beside {} bytes of {}", request,
                    key_count, core_.requests.key_bytes_used(), core_.limits.max_request_bytes.n)});
  }
  r.next_due = Tokens{};
  return done(Status{});
}

Result<LookupAnswer> TierScheduler::lookup(const LookupQuery& query) {
  expect_publish();
  return done(lookups_.lookup(query));
}

Status TierScheduler::lookup_cancel(RequestId request) { return done(lookups_.cancel(request)); }

Result<AllocResult> TierScheduler::alloc_update(RequestId request, Tokens accepted,
                                                std::span<const TableView> tables) {
  expect_publish();
  core_.tick();
  return done(loads_.alloc_update(request, accepted, tables));
}

Result<PlanResult> TierScheduler::build_store_jobs(const StepRecord& step) {
  expect_publish();
  return done(plans_.build(step));
}

Result<CompleteResult> TierScheduler::complete(
    std::span<const std::span<const std::uint8_t>> reports) {
  expect_publish();
  return done(Result<CompleteResult>(completions_.complete(reports)));
}

Result<EndResult> TierScheduler::request_end(const RequestEnd& end) {
  expect_publish();
  return done(finishes_.request_end(end));
}

Result<RetentionAnswer> TierScheduler::retained(RequestId request, Tokens begin) {
  return done(retention_.ask(request, begin));
}

Status TierScheduler::load_in_step(RequestId request, JobId job) {
  return done(plans_.load_in_step(request, job));
}

Status TierScheduler::hint(RequestId request, const Hint& hint) {
  return done(hints_.hint(request, hint));
}

Result<PinAnswer> TierScheduler::pin(RequestId request, Tokens most) {
  return done(hints_.pin(request, most));
}

Status TierScheduler::unpin(PinId pin) { return done(hints_.unpin(pin)); }

bool TierScheduler::take_events(std::span<CacheEvent> out, std::size_t& count) {
  return done(core_.events.take(out, count));
}

Status TierScheduler::reset(bool invalidate) {
  if (invalidate && core_.limits.rank_verdicts) {
    for (std::size_t i = 0; i < core_.jobs.open(); ++i) {
      const Job& job = core_.jobs.open_at(i);
      if (job.kind != JobKind::load || job.verdict_given) continue;
      return {Code::state, fmt::format("load job {} has no verdict: drain first", job.id)};
    }
  }
  ++core_.counters.resets;
  for (std::uint32_t at = core_.leases.oldest(); at != no_lease; at = core_.leases.oldest()) {
    Request& r = core_.requests[core_.leases[at].request];
    r.reset_noted = true;
    core_.end_lease(r);
  }
  core_.pins.end_all();
  for (RequestIndex i = 0; i < core_.requests.capacity(); ++i) {
    Request& r = core_.requests[i];
    if (!r.live) continue;
    r.reset_noted = r.reset_noted || r.attach_answers != 0;
    planner_.settle(i, Settle::reset);
    for (GroupProgress& g : r.groups) {
      g.cursor = 0;
      g.keys_offered = 0;
      g.cut = false;
      g.tail_done = false;
    }
    r.next_due = Tokens{};
    Admissions::forget_gate(r);
    r.stale = r.stale || invalidate;
  }
  completions_.reset_jobs(invalidate);
  core_.tier.reset();
  core_.disk.reset();
  completions_.release_drained();
  ++core_.copies_ended;
  const bool open =
      core_.tier.doomed_reserved() + core_.tier.doomed_pinned() != 0 || core_.disk.reset_open();
  return done(open ? Status{Code::later, {}} : Status{});
}

Status TierScheduler::pump(std::uint32_t /*budget*/) {
  static_cast<void>(core_.tier.maintain());
  return done(Status{});
}

BoundaryStats TierScheduler::counts() const { return numbers_.read().offers; }

PendingWork TierScheduler::pending() const { return numbers_.read().pending; }

std::size_t TierScheduler::stat_count() const {
  return stat_names.size() + gate_labels_.size() + bucket_labels_.size() + 2 * rank_labels_.size();
}

void TierScheduler::stats(std::span<Stat> out) const {
  const RoleNumbers numbers = numbers_.read();
  const PolicyReport report = report_.read();
  std::size_t n = 0;
  const auto put = [&](std::string_view name, std::string_view labels, std::uint64_t value) {
    if (n < out.size()) out[n++] = {name, labels, value};
  };
  for (std::size_t i = 0; i < stat_names.size(); ++i) put(stat_names[i], {}, numbers.stats[i]);
  for (const std::string& labels : gate_labels_) put("gate_off_now", labels, 1);
  for (std::size_t i = 0; i < bucket_labels_.size(); ++i)
    put("policy_hazard_ppb_now", bucket_labels_[i], report.hazard[i]);
  for (std::size_t i = 0; i < rank_labels_.size(); ++i) {
    put("policy_top_class_now", rank_labels_[i], report.top[i].code);
    put("policy_top_class_hits", rank_labels_[i], report.top[i].hits);
  }
}

std::string TierScheduler::explain_all() const {
  const FlowOptions& o = core_.options;
  std::string out = fmt::format(
      "{{\"connector\":\"{}\",\"options\":{{{}\"index\":\"{}\",\"eviction\":\"{}\",\"states\":\"{}"
      "\",\"lease_steps\":"
      "{},"
      "\"max_leases\":{},\"max_pins\":{},\"max_pinned_percent\":{},\"attach_steps\":{},\"held_"
      "device_blocks_max\":{},"
      "\"load_deadline_ms\":{},\"store_decode_blocks\":{},\"single_flight\":{},"
      "\"event_ring\":{}}},\"cost_gate\":{},\"disk\":{},\"gates\":[",
      policy_->name(), policy_->explain_options(),
      o.chained_index && core_.geometry.chain() ? "chained" : "flat",
      kvc::name_of(core_.tier.eviction()), kvc::name_of(o.states), o.lease_steps, o.max_leases,
      o.max_pins, o.max_pinned_percent,
      o.attach_steps == UINT64_MAX ? "\"unlimited\"" : std::to_string(o.attach_steps),
      core_.hold_budget, o.load_deadline_ms, o.store_decode_blocks, o.single_flight,
      o.event_ring_entries, kvc::explain(o.cost_gate, gate_report_.read()), core_.disk.explain());
  for (std::size_t i = 0; i < gates_.size(); ++i) {
    out += i == 0 ? "{\"feature\":" : ",{\"feature\":";
    append_json_string(out, gates_[i].feature);
    out += ",\"why\":";
    append_json_string(out, gates_[i].why);
    out += '}';
  }
  out += "],\"requests\":[";
  std::array<ExplainRecord, ExplainRing::records> records;
  const std::size_t count = core_.explain.copy(records);
  for (std::size_t i = 0; i < count; ++i) {
    if (i != 0) out += ',';
    append_json(out, records[i]);
  }
  out += "]}";
  return out;
}

Result<std::string> TierScheduler::explain(RequestId request) const {
  if (request == 0) return explain_all();
  ExplainRecord record;
  if (!core_.explain.find(request, record)) {
    return {Code::arg,
            fmt::format("request {} is not among the last {}", request, ExplainRing::records)};
  }
  std::string out;
  append_json(out, record);
  return out;
}

std::string TierScheduler::verify() const {
  if (std::string text = core_.tier.verify(); !text.empty()) return text;
  if (std::string text = core_.requests.verify(); !text.empty()) return text;
  if (std::string text = core_.jobs.verify(); !text.empty()) return text;
  if (std::string text = core_.pins.verify(); !text.empty()) return text;
  if (const std::uint64_t leaked = leaked_slots(core_); leaked != 0) {
    return fmt::format("{} slots leaked", leaked);
  }
  if (std::string text = core_.disk.verify(); !text.empty()) return text;
  const std::uint64_t written = core_.jobs.entries_written() + core_.disk.filling();
  if (core_.tier.reserved() != written) {
    return fmt::format("{} entries are reserved, {} are written", core_.tier.reserved(), written);
  }
  const OfferCounts& all = core_.ledger.counts().all_offers;
  const std::uint64_t pending = core_.pending_offers();
  if (all.pending != pending) {
    return fmt::format("{} offers are counted as pending, {} are", all.pending, pending);
  }
  return {};
}

}  // namespace kvc
