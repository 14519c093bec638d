// What one run of kvc-run found out, as plain data. The engine fills it; the writers of JSON, SVG
// and text read it (docs/formats/run.md).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvc::host {

// The counters of one pass over the trace. Hit and computed tokens are those of the first admission
// of each request, so prompt_tokens == local + external + computed; work done again after a
// preemption or a failed load stands in recomputed_tokens alone.
struct PassReport {
  std::string name;
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t local_hit_tokens = 0;
  std::uint64_t external_hit_tokens = 0;
  std::uint64_t computed_tokens = 0;
  std::uint64_t recomputed_tokens = 0;
  std::uint64_t loaded_blocks = 0;
  std::uint64_t stored_blocks = 0;
  std::uint64_t loaded_bytes = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t verified_blocks = 0;
  std::uint64_t mismatched_blocks = 0;
  std::uint64_t failed_loads = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t output_digest = 0;
  double wall_s = 0;
};

// One row of boundary_stats: every outcome that an offer can have, in the order of
// kvc_offer_counts. published is the sum of all others (design 2.5.2).
struct OfferRow {
  static constexpr std::size_t outcomes = 17;
  static constexpr std::array<std::string_view, outcomes> names{"published",
                                                                "stored",
                                                                "pending",
                                                                "skipped_already_cached",
                                                                "skipped_in_flight",
                                                                "skipped_not_hashed",
                                                                "dropped_pool_full",
                                                                "dropped_request_gone",
                                                                "dropped_null_block",
                                                                "dropped_bad_offer",
                                                                "dropped_no_parent",
                                                                "dropped_parent_failed",
                                                                "dropped_copy_failed",
                                                                "dropped_leased",
                                                                "dropped_hold_budget",
                                                                "dropped_reset",
                                                                "dropped_plan_full"};
  std::array<std::uint64_t, outcomes> counts{};

  [[nodiscard]] bool balanced() const;
};

struct StatRow {
  std::string name;
  std::string labels;  // key=value,key=value; may be empty
  std::uint64_t value = 0;
};

struct GroupReport {
  std::string name;
  std::string kind;
  std::uint64_t tokens_per_block = 0;   // per rank
  std::uint64_t block_span_tokens = 0;  // over all ranks
  std::uint64_t window_tokens = 0;      // 0: no window
  std::string origin;
};

struct ModelReport {
  std::string file;
  std::string name;
  std::string origin;
  std::uint64_t hash_unit_tokens = 0;
  std::uint64_t scheduler_block_tokens = 0;
  std::uint64_t context_parallel = 1;
  std::uint64_t cp_interleave_tokens = 1;
  std::uint64_t ranks = 1;
  std::uint64_t sim_bytes_per_token = 0;
  std::uint64_t device_blocks = 0;  // 0: unlimited
  std::vector<GroupReport> groups;
};

// What is still taken after the last request ended, all pending work was drained and the
// connector has nothing open. All zero in a correct run.
struct LeakReport {
  std::uint64_t slots = 0;
  std::uint64_t holds = 0;
  std::uint64_t leases = 0;
  std::uint64_t device_blocks = 0;

  [[nodiscard]] std::uint64_t total() const { return slots + holds + leases + device_blocks; }
};

// Where the prompt tokens of one finished request came from, and how full the pools were then.
struct RequestSample {
  std::uint32_t pass = 0;  // index in RunReport::passes
  std::uint64_t local_tokens = 0;
  std::uint64_t external_tokens = 0;
  std::uint64_t computed_tokens = 0;
  std::uint64_t device_used_blocks = 0;    // named by a live request or held by a job
  std::uint64_t device_cached_blocks = 0;  // not in use, but a prefix hit would find them
  std::uint64_t host_used_slots = 0;       // 0 without a connector
};

struct RunReport {
  std::string connector_name;  // "none" without one
  std::string connector_version;
  std::string connector_path;
  ModelReport model;
  std::vector<PassReport> passes;
  OfferRow handoffs;
  OfferRow all_offers;
  std::vector<StatRow> stats;
  LeakReport leaks;
  std::uint64_t host_slots = 0;  // capacity of the connector's pool; 0: unlimited or none
  std::vector<RequestSample> samples;
  std::string connector_failure;  // why the engine gave the connector up; empty if it did not
  std::string first_mismatch;     // which loaded block was wrong first; empty: none

  // True iff every loaded block had the bytes of its tokens, nothing leaked, both rows of
  // boundary_stats balance and the token sums of every pass hold.
  [[nodiscard]] bool right() const { return faults().empty(); }
  // One sentence per reason why the run is not right.
  [[nodiscard]] std::vector<std::string> faults() const;
};

}  // namespace kvc::host
