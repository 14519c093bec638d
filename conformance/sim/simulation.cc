#include "conformance/sim/simulation.h"

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include "host_stub/engine/engine.h"
#include "plugin/core/check.h"

namespace kvc::sim {
namespace {

using host::CarriedReport;
using host::Engine;
using host::EngineOptions;
using host::FinishedRequest;
using host::RequestId;
using host::TokenId;

// Own tokens of request i, and tokens of the system prompt `base`.
TokenId token(std::uint64_t origin, std::uint64_t at) {
  return static_cast<TokenId>((origin * 1'000'003 + at * 7919 + at * at) % 1'000'000'007);
}

std::vector<TokenId> prompt_of(const World& world, const Script& script, std::size_t index) {
  const RequestPlan& plan = world.requests[index];
  std::vector<TokenId> tokens;
  if (plan.parent == RequestPlan::no_parent) {
    for (std::uint64_t t = 0; t < plan.shared; ++t) tokens.push_back(token(plan.base, t));
  } else {
    tokens = script.prompts[plan.parent];
    tokens.insert(tokens.end(), script.outputs[plan.parent].begin(),
                  script.outputs[plan.parent].end());
  }
  for (std::uint64_t t = 0; t < plan.own; ++t) tokens.push_back(token(100 + plan.origin, t));
  return tokens;
}

constexpr std::uint64_t troubled_steps_max = 2'000;
constexpr std::uint64_t calm_steps_max = 4'000;

// Threads: one user. Owns: the engine and all that is late. Invariants: as Engine.
class Run {
 public:
  Run(const host::LoadedConnector& connector, const World& world, const Script& script,
      const Knobs& knobs)
      : world_(world),
        script_(script),
        knobs_(knobs),
        watch_(connector, world, knobs.sabotage),
        draw_(world.seed ^ 0x51A7E5U),
        over_(world.requests.size(), false) {}

  Outcome run() {
    arm_knobs();
    open();
    if (engine_ != nullptr) {
      drive();
      close();
    }
    if (allocated_ != 0) fail(fmt::format("{} host bytes were not released", allocated_));
    outcome_.tripped = watch_.faults() != nullptr && watch_.faults()->tripped() != 0;
    if (knobs_.fail_alloc < allocations_) outcome_.tripped = true;
    if (watch_.faults() != nullptr) watch_.faults()->clear_faults();
    outcome_.hash = watch_.hash();
    outcome_.error = watch_.error();
    outcome_.tally = watch_.tally();
    return outcome_;
  }

 private:
  void fail(std::string text) { watch_.fail(std::move(text)); }
  Tally& tally() { return watch_.tally(); }

  void arm(std::string_view point, std::uint64_t nth) {
    KVC_CHECK(watch_.faults() != nullptr);
    KVC_CHECK(watch_.faults()->set_fault(kvc_bytes_of(point.data(), point.size()), nth) == KVC_OK);
  }

  void arm_knobs() {
    if (watch_.faults() != nullptr) {
      watch_.faults()->clear_faults();
      watch_.faults()->set_copy_order(world_.trouble.shuffle_copies ? world_.seed + 1 : 0);
    }
    if (!knobs_.point.empty()) arm(knobs_.point, knobs_.nth);
    if (knobs_.point.starts_with("edge.")) {
      watch_.expect_poison();
      may_give_up_ = true;
    }
  }

  void open() {
    EngineOptions o = world_.options;
    o.hooks.now_ns = [this] { return now_ns_; };
    o.hooks.alloc = [this](std::uint64_t size, std::uint64_t align) -> void* {
      if (allocations_++ == knobs_.fail_alloc) return nullptr;
      allocated_ += size;
      return ::operator new(size, std::align_val_t(align));
    };
    o.hooks.release = [this](void* p, std::uint64_t size, std::uint64_t align) {
      allocated_ -= size;
      ::operator delete(p, std::align_val_t(align));
    };
    o.hooks.log = [this](std::int32_t level, std::string_view text) { log(level, text); };
    o.hooks.pump_budget = [this](std::uint32_t) { return budget(); };
    o.hooks.on_reports = [this](std::vector<CarriedReport>& reports) { carry(reports); };
    o.hooks.accept = [this](RequestId, std::uint64_t offered) { return accept(offered); };
    auto made = Engine::make(std::move(o), watch_.connector());
    if (!made.ok()) {
      outcome_.refused = true;
      if (knobs_.point.empty() && knobs_.fail_alloc == UINT64_MAX) {
        fail("the engine was refused: " + made.error().text);
      }
      return;
    }
    engine_ = std::move(made).value();
    engine_->on_finished([this](const FinishedRequest& r) { finished(r); });
  }

  void log(std::int32_t level, std::string_view text) {
    if (level == KVC_LOG_PEER_FAULT && first_peer_fault_.empty()) first_peer_fault_ = text;
    if (std::getenv("KVC_SIM_TRACE") != nullptr) {
      std::fprintf(stderr, "log %d %.*s\n", level, static_cast<int>(text.size()), text.data());
    }
  }

  // ---- hooks
  std::uint32_t budget() {
    if (calm_) return 1U << 20U;
    if (stalled_steps_ > 0) return 0;
    return world_.trouble.small_budgets ? static_cast<std::uint32_t>(draw_.below(4)) : 1U << 20U;
  }

  void carry(std::vector<CarriedReport>& reports) {
    std::vector<CarriedReport> now;
    const Trouble& t = world_.trouble;
    for (CarriedReport& r : kept_) reports.push_back(std::move(r));
    kept_.clear();
    for (CarriedReport& r : reports) {
      if (knobs_.sabotage == Sabotage::lose_a_report && !lost_ && draw_.chance(1, 4)) {
        lost_ = true;
        continue;
      }
      if (!calm_ && draw_.chance(t.repeat_report, 1000)) {
        (draw_.chance(1, 2) ? now : kept_).push_back(r);
        tally().add("reports repeated", 1);
        repeats_ = true;
      }
      if (!calm_ && draw_.chance(t.delay_report, 1000)) {
        kept_.push_back(std::move(r));
        tally().add("reports delayed", 1);
      } else {
        now.push_back(std::move(r));
      }
    }
    if (t.shuffle_reports) {
      for (std::size_t i = now.size(); i > 1; --i) std::swap(now[i - 1], now[draw_.below(i)]);
    }
    reports = std::move(now);
  }

  std::uint64_t accept(std::uint64_t offered) {
    if (calm_ || !draw_.chance(world_.trouble.accept_less, 1000)) return offered;
    const std::uint64_t h = world_.options.model.hash_unit_tokens;
    const std::uint64_t taken = draw_.below(offered / h) * h;
    tally().add(taken == 0 ? "hits declined" : "hits taken in part", 1);
    return taken;
  }

  void finished(const FinishedRequest& r) {
    over_[r.index] = true;
    if (r.reason != KVC_END_LENGTH) return;
    tally().add("requests finished", 1);
    const std::vector<TokenId>& right = script_.outputs[r.index];
    if (std::equal(r.outputs.begin(), r.outputs.end(), right.begin(), right.end())) return;
    fail(fmt::format("request {} has wrong outputs; first wrong block: {}", r.id,
                     engine_->first_mismatch()));
  }

  // ---- the course of the world
  void drive() {
    std::uint64_t steps = 0;
    for (; steps < troubled_steps_max && watch_.error().empty(); ++steps) {
      if (world_.trouble.close_step != 0 && steps == world_.trouble.close_step) {
        tally().add("worlds closed as they were", 1);
        closed_early_ = true;
        return;
      }
      submit();
      disturb(steps);
      step();
      if (submitted_ == world_.requests.size() && engine_->live_requests() == 0) break;
    }
    watch_.calm();
    calm_ = true;
    stalled_steps_ = 0;
    bool idle = false;
    for (std::uint64_t quiet = 0; quiet < calm_steps_max && watch_.error().empty(); ++quiet) {
      submit();
      idle = step() && submitted_ == world_.requests.size() && kept_.empty();
      if (idle) break;
    }
    tally().add("steps", engine_->step_number());
    if (!idle && watch_.error().empty()) {
      const kvc_pending pending = engine_->pending();
      fail(fmt::format(
          "no end after {} calm steps: {} of {} requests came, {} are live; {} loads, "
          "{} stores, {} held blocks, {} tier jobs open",
          calm_steps_max, submitted_, world_.requests.size(), engine_->live_requests(),
          pending.load_jobs, pending.store_jobs, pending.held_blocks, pending.tier_jobs));
    }
  }

  // True: the engine is idle.
  bool step() {
    now_ns_ += draw_.below(world_.step_ns_max) + 1;
    if (stalled_steps_ > 0) --stalled_steps_;
    const bool idle = engine_->step().idle;
    if (!engine_->connector_alive() && !gave_up_) {
      gave_up_ = true;
      kept_.clear();
      if (!may_give_up_) fail("the engine gave the connector up: " + engine_->connector_failure());
    }
    see_index();
    if (engine_->step_number() % 16 == 0) {
      const Status s = engine_->verify();
      if (!s.ok()) fail("the engine: " + s.text);
    }
    return idle;
  }

  // What only the chained index has.
  void see_index() {
    for (const host::StatValue& s : engine_->stats()) {
      if (s.name != "index_unsupported_entries_now" && s.name != "writer_pins_now") continue;
      if (s.value == 0) continue;
      tally().add("steps with " + s.name, 1);
      if (world_.flat_index) fail(fmt::format("a flat index has {} of {}", s.value, s.name));
    }
  }

  void submit() {
    const std::uint64_t most = calm_ ? 1 : draw_.below(world_.burst + 1);
    for (std::uint64_t i = 0; i < most && submitted_ < world_.requests.size(); ++i) {
      const RequestPlan& plan = world_.requests[submitted_];
      if (plan.parent != RequestPlan::no_parent && !over_[plan.parent]) return;
      const auto id = engine_->submit(plan.spec, script_.prompts[submitted_]);
      if (!id.ok()) return;  // as many live as may be
      ids_.push_back(id.value());
      ++submitted_;
    }
  }

  void disturb(std::uint64_t steps) {
    const Trouble& t = world_.trouble;
    const auto happens = [&](std::uint64_t chance) { return draw_.chance(chance, 1000); };
    if (happens(t.copy_fault)) {
      static constexpr const char* points[] = {"copy.load", "copy.store", "copy.load_destination",
                                               "copy.store_source"};
      arm(points[draw_.below(4)], draw_.below(6));
      tally().add("copy faults armed", 1);
    }
    if (t.disk_fault != 0 && happens(t.disk_fault)) {
      static constexpr const char* points[] = {"disk.read", "disk.write", "disk.full", "disk.hang"};
      arm(points[draw_.below(4)], draw_.below(6));
      tally().add("disk faults armed", 1);
    }
    if (happens(t.stall)) {
      stalled_steps_ = draw_.between(1, t.stall_steps_max);
      tally().add("stalls", 1);
    }
    if (happens(t.abort) && !ids_.empty()) {
      const RequestId id = ids_[draw_.below(ids_.size())];
      if (engine_->abort(id)) tally().add("aborts", 1);
    }
    if (t.abort_waiting != 0) {
      for (const RequestId id : watch_.waiting_loads()) {
        if (happens(t.abort_waiting) && engine_->abort(id))
          tally().add("aborts before the plan", 1);
      }
    }
    if (happens(t.preempt) && !ids_.empty()) {
      const RequestId id = ids_[draw_.below(ids_.size())];
      if (engine_->preempt(id)) tally().add("preemptions asked for", 1);
    }
    if (happens(t.reset)) {
      engine_->reset_connector(happens(t.invalidate) ? KVC_RESET_INVALIDATE : 0);
    }
    if (happens(t.empty_device_cache) && engine_->empty_device_cache()) {
      tally().add("device caches emptied", 1);
    }
    if (t.poison_step != 0 && steps == t.poison_step) {
      may_give_up_ = true;
      watch_.expect_poison();
      arm(t.poison_after ? "edge.broken_after_call" : "edge.broken_invariant", draw_.below(40));
    }
    if (knobs_.sabotage == Sabotage::flip_a_byte && steps > 10 && steps % 4 == 0) flip_a_byte();
  }

  void flip_a_byte() {
    for (const RequestId id : ids_) {
      for (std::uint32_t g = 0; g < engine_->geometry().groups(); ++g) {
        if (engine_->corrupt_device_byte(id, g, 0, 0, 0)) return;
      }
    }
  }

  // ---- the end
  void close() {
    tally().add("worlds", 1);
    if (world_.flat_index) tally().add("worlds with a flat index", 1);
    if (world_.options.loads_in_step) tally().add("worlds with loads in step", 1);
    if (gave_up_) tally().add("connectors given up", 1);
    outcome_.gave_up = gave_up_;
    sum_up();
    if (!closed_early_ && watch_.error().empty()) judge();
    engine_.reset();
  }

  void sum_up() {
    const host::PassCounters c = engine_->counters();
    tally().add("preemptions", c.preemptions);
    tally().add("failed loads seen by the engine", c.failed_loads);
    tally().add("blocks verified", c.verified_blocks);
    tally().add("tokens hit in the connector", c.external_hit_tokens);
    tally().add("tokens hit on the device", c.local_hit_tokens);
    if (c.mismatched_blocks != 0) {
      fail(fmt::format("{} wrong blocks, the first: {}", c.mismatched_blocks,
                       engine_->first_mismatch()));
    }
    for (const host::StatValue& s : engine_->stats()) {
      if (!s.name.ends_with("_now")) tally().add("stat " + s.name, s.value);
    }
    const kvc_boundary_stats b = engine_->boundary_stats();
    sum_offers("offers", b.all_offers);
    sum_offers("hand-offs", b.handoffs);
    sum_chained(b.all_offers);
    if (!world_.lazy) return;
    tally().add("lazy worlds", 1);
    sum_offers("candidates", b.all_offers);
    tally().add("tokens hit in the connector, lazy", c.external_hit_tokens);
    if (b.handoffs.published != 0) fail("a hand-off was offered in lazy mode");
  }

  void sum_offers(const std::string& row, const kvc_offer_counts& c) {
    tally().add(row + " published", c.published);
    tally().add(row + " stored", c.stored);
    tally().add(row + " skipped_already_cached", c.skipped_already_cached);
    tally().add(row + " skipped_in_flight", c.skipped_in_flight);
    tally().add(row + " skipped_not_hashed", c.skipped_not_hashed);
    tally().add(row + " dropped_pool_full", c.dropped_pool_full);
    tally().add(row + " dropped_request_gone", c.dropped_request_gone);
    tally().add(row + " dropped_null_block", c.dropped_null_block);
    tally().add(row + " dropped_bad_offer", c.dropped_bad_offer);
    tally().add(row + " dropped_no_parent", c.dropped_no_parent);
    tally().add(row + " dropped_parent_failed", c.dropped_parent_failed);
    tally().add(row + " dropped_copy_failed", c.dropped_copy_failed);
    tally().add(row + " dropped_leased", c.dropped_leased);
    tally().add(row + " dropped_hold_budget", c.dropped_hold_budget);
    tally().add(row + " dropped_reset", c.dropped_reset);
    tally().add(row + " dropped_plan_full", c.dropped_plan_full);
  }

  void sum_chained(const kvc_offer_counts& c) {
    const auto& groups = world_.options.model.groups;
    const bool chain = std::any_of(groups.begin(), groups.end(), [](const config::GroupConfig& g) {
      return g.kind == config::GroupKind::full && g.cacheable;
    });
    if (world_.flat_index || !chain) {
      // A flat index knows no parent: nothing fails or waits for one.
      if (c.dropped_parent_failed != 0) fail("a parent failed in a flat index");
      return;
    }
    tally().add("chained worlds", 1);
    tally().add("chained: offers dropped_parent_failed", c.dropped_parent_failed);
    tally().add("chained: offers dropped_no_parent", c.dropped_no_parent);
    for (const host::StatValue& s : engine_->stats()) {
      if (s.name == "index_bad_entries" || s.name == "index_rewritten_entries") {
        tally().add("chained: " + s.name, s.value);
      }
    }
  }

  // Quiescence: nothing is open, nothing is taken, nothing is owed.
  void judge() {
    if (const Status s = engine_->verify(); !s.ok()) fail("the engine: " + s.text);
    const host::Leaks leaks = engine_->leaks();
    if (leaks.device_blocks != 0 || leaks.holds != 0) {
      fail(fmt::format("{} device blocks and {} holds leaked", leaks.device_blocks, leaks.holds));
    }
    for (std::size_t i = 0; i < over_.size(); ++i) {
      if (!over_[i]) fail(fmt::format("request {} is not over", i));
    }
    if (gave_up_) return;
    watch_.check_quiet();
    if (leaks.slots != 0 || leaks.leases != 0) {
      fail(fmt::format("{} slots and {} leases leaked", leaks.slots, leaks.leases));
    }
    const kvc_boundary_stats b = engine_->boundary_stats();
    if (b.all_offers.pending != 0 || b.handoffs.pending != 0) {
      fail(fmt::format("{} offers and {} hand-offs are pending at the end", b.all_offers.pending,
                       b.handoffs.pending));
    }
    const kvc_pending p = engine_->pending();
    if (p.load_jobs + p.store_jobs + p.held_blocks + p.quarantined_blocks + p.tier_jobs != 0) {
      fail(
          fmt::format("pending at the end: {} loads, {} stores, {} held, {} quarantined, {} "
                      "tier jobs",
                      p.load_jobs, p.store_jobs, p.held_blocks, p.quarantined_blocks, p.tier_jobs));
    }
    // The engine keeps the rules; only repeated reports and what the watch adds are foreign.
    if (!repeats_ && engine_->peer_faults() > watch_.rules_broken()) {
      fail(fmt::format("{} peer faults, the first: {}", engine_->peer_faults(), first_peer_fault_));
    }
  }

  const World& world_;
  const Script& script_;
  const Knobs& knobs_;
  Watch watch_;
  Prng draw_;
  std::vector<bool> over_;
  std::uint64_t now_ns_ = 1;
  std::uint64_t allocations_ = 0;
  std::uint64_t allocated_ = 0;
  std::vector<CarriedReport> kept_;
  std::vector<RequestId> ids_;
  std::size_t submitted_ = 0;
  std::uint64_t stalled_steps_ = 0;
  bool calm_ = false;
  bool lost_ = false;
  bool repeats_ = false;
  bool gave_up_ = false;
  bool may_give_up_ = false;
  bool closed_early_ = false;
  std::string first_peer_fault_;
  Outcome outcome_;
  std::unique_ptr<Engine> engine_;  // goes first: its hooks use the rest
};

}  // namespace

Script reference(const World& world) {
  EngineOptions o;
  o.model = world.options.model;
  o.ranks = world.options.model.context_parallel;
  o.seed = world.options.seed;
  o.draft_drop = world.options.draft_drop;
  o.layers = world.options.layers;
  o.max_running = 1;
  o.max_prompt_tokens = world.options.max_prompt_tokens;
  o.max_total_tokens = world.options.max_total_tokens;
  o.device_cache = false;
  o.verify = false;
  auto made = Engine::make(std::move(o), {});
  KVC_CHECK(made.ok());
  Engine& engine = *made.value();
  Script script;
  engine.on_finished([&](const FinishedRequest& r) {
    script.outputs.emplace_back(r.outputs.begin(), r.outputs.end());
  });
  for (std::size_t i = 0; i < world.requests.size(); ++i) {
    script.prompts.push_back(prompt_of(world, script, i));
    const auto id = engine.submit(world.requests[i].spec, script.prompts[i]);
    KVC_CHECK(id.ok());
    for (std::uint64_t steps = 0; engine.live_requests() > 0; ++steps) {
      KVC_CHECK(steps < troubled_steps_max);
      engine.step();
    }
  }
  return script;
}

Outcome run_world(const host::LoadedConnector& connector, const World& world, const Script& script,
                  const Knobs& knobs) {
  return Run(connector, world, script, knobs).run();
}

}  // namespace kvc::sim
