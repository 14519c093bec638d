// The checkers: what must hold before a call is forwarded and after it came back. Each group has a
// file of its own; the rule ids in it say what it covers.
//
// Threads: the engine's lock is held. Nothing here calls host or connector.
#pragma once
#include "conformance/validate/findings.h"
#include "conformance/validate/form.h"
#include "conformance/validate/model.h"

namespace kvc::validate {

// What a call is told and what it tells.
struct Check {
  Model& model;
  CallFindings& findings;

  void find(rules::RuleId rule, std::string text) const { findings.add(rule, std::move(text)); }
};

// requests.cc: ids, keys, lookups.
void before_begin(const Check& c, const BeginIn& in);
void after_begin(const Check& c, const BeginIn& in, kvc_status status);
void before_extend(const Check& c, const ExtendIn& in);
void after_extend(const Check& c, const ExtendIn& in, kvc_status status);
void after_cancel(const Check& c, std::uint64_t id, kvc_status status);
// lookups.cc
void before_lookup(const Check& c, const LookupIn& in);
void after_lookup(const Check& c, const LookupIn& in, kvc_status status, const LookupOut& out);

// retention.cc: kvc.retention/1.
void before_retention(const Check& c, const RetentionIn& in);
void after_retention(const Check& c, const RetentionIn& in, kvc_status status,
                     const RetentionOut& out);
// A hand-off that a list does not want (KVC-H-070).
void check_wanted(const Check& c, const Request& r, const Handoff& h);

// layerwise.cc: kvc.layerwise/1.
void before_in_step(const Check& c, const InStepIn& in);
void after_in_step(const Check& c, const InStepIn& in, kvc_status status);
// Of a plan that was made: it has the loads that were taken in step.
void check_promised(const Check& c);
void after_layer(const Check& c, std::uint32_t rank, const LayerIn& in, kvc_status status,
                 const kvc_fence& out);

// loads.cc
void before_alloc(const Check& c, const AllocIn& in);
void after_alloc(const Check& c, const AllocIn& in, kvc_status status, const AllocOut& out);

// tables.cc: who names which block.
// The entries of one table: on the device, each once, as before below first_changed.
void check_entries(const Check& c, std::uint64_t id, const Request& r,
                   const std::vector<Table>& tables, rules::RuleId rule);
// Takes the told tables over. Ownership follows with own_tables.
void keep_tables(Model& model, std::uint64_t id, Request& r, const std::vector<Table>& tables);
// The request's entries leave / come into the map of uses; contradictions are found or doubted.
void drop_uses(Model& model, std::uint64_t id, const Request& r);
void own_tables(const Check& c, std::uint64_t id, Request& r, const FlatSet<std::uint64_t>& told);
// The request lost its blocks.
void forget_tables(Model& model, std::uint64_t id, Request& r);
// Doubts of earlier calls about a request that is named again: still so?
void settle_doubts(const Check& c, std::uint64_t id, Request& r);

// steps.cc and plans.cc: build_store_jobs.
void before_build(const Check& c, const StepIn& in);
void after_build(const Check& c, const StepIn& in, kvc_status status, const PlanOut& out);

// jobs.cc
Job& hand_out(const Check& c, std::uint64_t id, std::int32_t kind, std::uint64_t request);
void hold(Model& model, std::uint64_t job, std::uint64_t request, const Block& block);
// Whether positions fall within every group of the list.
void check_order(const Check& c, rules::RuleId rule, std::uint64_t job,
                 const std::vector<Block>& blocks);
void after_complete(const Check& c, const CompleteIn& in, kvc_status status,
                    const CompleteOut& out);

// ends.cc
void before_end(const Check& c, const EndIn& in);
void after_end(const Check& c, const EndIn& in, kvc_status status, const EndOut& out);
void after_reset(const Check& c, std::uint64_t flags, kvc_status status);
void before_close_sched(const Check& c);

// transport.cc
void before_set_ranks(const Check& c, const SetRanksIn& in);
void after_set_ranks(const Check& c, const SetRanksIn& in, kvc_status status,
                     const SetRanksOut& out);
void before_register(const Check& c, std::uint32_t rank, const RegionsIn& in);
void after_register(const Check& c, std::uint32_t rank, const RegionsIn& in, kvc_status status,
                    const RankInfo& out);
void before_submit(const Check& c, std::uint32_t rank, bool loads, const SubmitIn& in,
                   const kvc_fence* fence);
void after_submit(const Check& c, std::uint32_t rank, bool loads, const SubmitIn& in,
                  kvc_status status);
void after_progress(const Check& c, std::uint32_t rank, kvc_status status, const ProgressOut& out);
void after_wait(const Check& c, std::uint32_t rank, const WaitIn& in, kvc_status status);
void before_reports(const Check& c, const CompleteIn& in);
// More than max_steps_in_flight that a host may be ahead of its ranks before it is said while the
// engine works: a rank may be slow for a moment.
inline constexpr std::uint64_t lag_spare_steps = 16;
void check_lag(const Check& c, std::uint64_t spare_steps);

// offers.cc: counters and queries.
struct Counters {  // of one scheduler handle
  kvc_boundary_stats last{};
  bool known = false;
  FlatMap<std::string, std::uint64_t> stats;
};
void check_balance(const Check& c, Counters& counters, const kvc_boundary_stats& now);
void check_stats(const Check& c, Counters& counters, const StatsOut& out);
void check_pending(const Check& c, const PendingOut& out);
void check_explain(const Check& c, const RoomIn& in, kvc_status status, const TextOut& out);
void check_events(const Check& c, std::uint64_t cap, kvc_status status, const EventsOut& out);
void check_log_lines(const Check& c, std::uint64_t cap, kvc_status status, const TextOut& out);
void check_quiet(const Check& c, const kvc_boundary_stats& counts, const kvc_pending& pending);
[[nodiscard]] bool is_utf8(const ByteString& text);

}  // namespace kvc::validate
