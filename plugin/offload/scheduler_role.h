// The scheduler role of a connector in C++ types: what plugin/edge calls and every connector
// implements.
//
// It mirrors the scheduler slots of kvc.h one to one (kvc.h has the contract of each call; nothing
// is repeated here), so that no ABI type enters the connectors. The edge has checked struct sizes,
// flags, reserved fields and pointers, and has turned strided lists into spans; everything about
// *meaning* (ids, geometry, order) is checked behind this interface.
//
// Threads:  all non-const calls: one caller at a time. snapshot(), pending(), counts() and
// explain(): any thread. Owns:     spans in results belong to the role and live until the next call
// of the same function. Failure:  a Status that is not ok means nothing changed, unless kvc.h says
// otherwise for the slot. A broken invariant
//           throws BrokenInvariant, out of memory std::bad_alloc; the edge turns both into codes.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "plugin/core/hint.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

using RequestId = std::uint64_t;
using JobId = std::uint64_t;
using BlockId = std::int64_t;  // a device block of the engine

enum class LogLevel : std::int32_t { debug = 0, info = 1, warn = 2, error = 3, peer_fault = 4 };

// What the host lends: the edge adapts kvc_host_api to it, tests implement it.
class HostServices {
 public:
  virtual ~HostServices() = default;
  // [any] Must not block.
  virtual void log(LogLevel level, std::string_view text) = 0;
  // [any] Monotonic.
  [[nodiscard]] virtual std::uint64_t now_ns() = 0;
  [[nodiscard]] virtual bool can_query_blocks() const = 0;
  // Only from inside scheduler calls, only if can_query_blocks(). True and the end of the key's
  // prefix.
  [[nodiscard]] virtual bool has_key(std::uint32_t group, BlockId block, const std::uint8_t* key,
                                     Tokens& end) = 0;
  [[nodiscard]] virtual bool block_of(std::uint32_t group, const std::uint8_t* key,
                                      BlockId& block) = 0;
};

// What kvc_open says beside the groups (those are in Geometry).
struct OpenLimits {
  std::uint32_t ranks = 1;
  std::uint64_t device_blocks = 0;  // UINT64_MAX: grows
  BlockId null_block = 0;
  std::uint32_t key_bytes = 16;
  Tokens max_prompt_tokens;
  Tokens max_total_tokens;
  Tokens max_batch_tokens;
  std::uint64_t max_live_requests = 0;
  std::uint64_t max_running = 0;
  Bytes max_request_bytes;
  std::uint64_t max_steps_in_flight = 1;
  bool random_root = false;
  bool stepped = false;
  bool rank_verdicts = false;
  bool no_device_cache = false;
  std::span<const std::uint8_t> namespace_id;  // copied by the role
};

struct HeldBlock {
  std::uint32_t group = 0;
  BlockId block = 0;
  std::uint64_t position = 0;
};

// blocks[p] at position p, for every p in [first, behind).
struct HeldRange {
  std::uint32_t group = 0;
  const BlockId* blocks = nullptr;
  std::uint64_t first = 0;
  std::uint64_t behind = 0;
};

struct TableView {  // of one group; its index in the span is the group. count 0: unchanged or not
                    // passed
  const BlockId* blocks = nullptr;
  std::uint64_t count = 0;
  std::uint64_t first_changed = 0;
};

struct Handoff {
  std::uint32_t group = 0;
  RequestId request = 0;
  BlockId block = 0;
  Tokens boundary;
};

struct Candidate {
  std::uint32_t group = 0;
  BlockId block = 0;
  const std::uint8_t* key = nullptr;
  Tokens end;
};

struct SlotClass {
  std::uint32_t class_id = 0;
  std::uint64_t group_mask = 0;
  std::uint64_t slots_per_page = 0;
  Bytes bytes_per_block;
  std::uint64_t usable_slots = 0;
};

struct RankInfo {
  std::uint32_t rank = 0;
  std::uint64_t pages = 0;  // UINT64_MAX: grows
  std::span<const SlotClass> classes;
  std::span<const std::uint8_t> inventory;
};

struct RequestBegin {
  RequestId request = 0;
  bool no_read = false;
  bool no_write = false;
  Tokens prompt;
  const std::uint8_t* keys = nullptr;
  std::uint64_t key_count = 0;
  Tokens load_limit = no_token_limit;
  Tokens store_limit = no_token_limit;
};

enum class Why : std::int32_t {
  none = 0,
  miss = 1,
  local_unaligned = 2,
  no_ranks = 3,
  no_read = 4,
  load_failed = 5,
  reset = 6,
  cost_gate = 7,
  attached = 8,
  not_tracked = 9,
};

struct LookupQuery {
  RequestId request = 0;
  Tokens total;
  Tokens device;
  Tokens external_cap = no_token_limit;
};

struct LookupAnswer {
  Code code = Code::ok;  // ok or later
  Tokens external;
  Why why = Why::none;
};

enum class Medium : std::int32_t { host = 1, disk = 2, remote = 3 };

struct MediumTokens {
  Medium medium = Medium::host;
  Tokens tokens;
};

struct AllocResult {
  JobId job = 0;
  std::span<const HeldRange> held;  // of the tables that were passed; by group
  std::span<const MediumTokens> media;
};

struct ScheduledRequest {
  RequestId request = 0;
  bool resumed = false;
  Tokens confirmed;
  std::span<const TableView> tables;  // one per group, or empty
};

struct StepRecord {
  std::uint64_t step = 0;
  std::span<const ScheduledRequest> scheduled;
  std::span<const RequestId> preempted;
  std::span<const Handoff> handoffs;
  std::span<const Candidate> candidates;
};

// load, store: between the host tier and the device. The others are between the host tier and the
// disk tier of a rank (plugin/offload/disk): the line does not know them.
enum class JobKind : std::int32_t {
  load = 1,
  store = 2,
  spill = 3,       // host slots to disk
  fill = 4,        // disk to host slots
  drop = 5,        // blocks go from disk
  disk_reset = 6,  // all blocks go from disk, for good
};

struct PlannedJob {
  JobKind kind = JobKind::store;
  JobId job = 0;
  RequestId request = 0;
  std::span<const HeldBlock> held;  // of new stores only
};

struct PlanResult {
  std::uint64_t step = 0;
  std::span<const PlannedJob> jobs;
  std::span<const std::uint8_t> bytes;
};

enum class FailedSide : std::int32_t { source = 1, destination = 2 };

struct FailedBlock {
  std::uint32_t group = 0;
  BlockId block = 0;
  std::uint64_t position = 0;
  std::uint32_t rank = 0;
  Code status = Code::io;
  FailedSide side = FailedSide::source;
};

struct EndedJob {
  JobKind kind = JobKind::store;
  JobId job = 0;
  RequestId request = 0;
  Code status = Code::ok;
  std::span<const FailedBlock> failed;
  std::span<const HeldBlock> released;
};

struct Verdict {
  RequestId request = 0;
  JobId job = 0;
  Code status = Code::ok;
};

struct RejectedEntry {
  std::uint32_t rank = 0;
  std::uint64_t report = 0;
  JobId job = 0;
  Code status = Code::arg;
};

struct CompleteResult {
  std::span<const EndedJob> jobs;
  std::span<const Verdict> verdicts;
  std::span<const RejectedEntry> rejected;
};

enum class EndReason : std::int32_t { stop = 0, length = 1, abort = 2, error = 3 };

struct RequestEnd {
  RequestId request = 0;
  EndReason reason = EndReason::stop;
  Tokens confirmed;
  std::span<const TableView> tables;
  std::span<const Handoff> handoffs;
};

struct EndResult {
  JobId job = 0;
  std::span<const HeldBlock> held;
};

// kvc.retention/1: not listed: the engine hands off what it does without it.
struct RetentionAnswer {
  bool listed = false;
  std::span<const Tokens> boundaries;
};

// kvc.hints/1. pin 0: nothing was there to be pinned.
struct PinAnswer {
  std::uint64_t pin = 0;
  Tokens tokens;
  std::uint64_t blocks = 0;
};

// One outcome per offer (design 2.5.2). balanced(): published is the sum of the rest.
struct OfferCounts {
  std::uint64_t published = 0;
  std::uint64_t stored = 0;
  std::uint64_t pending = 0;
  std::uint64_t skipped_already_cached = 0;
  std::uint64_t skipped_in_flight = 0;
  std::uint64_t skipped_not_hashed = 0;
  std::uint64_t dropped_pool_full = 0;
  std::uint64_t dropped_request_gone = 0;
  std::uint64_t dropped_null_block = 0;
  std::uint64_t dropped_bad_offer = 0;
  std::uint64_t dropped_no_parent = 0;
  std::uint64_t dropped_parent_failed = 0;
  std::uint64_t dropped_copy_failed = 0;
  std::uint64_t dropped_leased = 0;
  std::uint64_t dropped_hold_budget = 0;
  std::uint64_t dropped_reset = 0;
  std::uint64_t dropped_plan_full = 0;

  [[nodiscard]] constexpr bool balanced() const {
    return published == stored + pending + skipped_already_cached + skipped_in_flight +
                            skipped_not_hashed + dropped_pool_full + dropped_request_gone +
                            dropped_null_block + dropped_bad_offer + dropped_no_parent +
                            dropped_parent_failed + dropped_copy_failed + dropped_leased +
                            dropped_hold_budget + dropped_reset + dropped_plan_full;
  }
};

struct BoundaryStats {
  OfferCounts handoffs;
  OfferCounts all_offers;
};

struct PendingWork {
  std::uint64_t load_jobs = 0;
  std::uint64_t store_jobs = 0;
  std::uint64_t held_blocks = 0;
  std::uint64_t quarantined_blocks = 0;
  std::uint64_t tier_jobs = 0;  // between the tiers of the connector
};

struct Stat {
  std::string_view name;    // static
  std::string_view labels;  // lives as long as the role
  std::uint64_t value = 0;
};

enum class EventKind : std::int32_t { stored = 1, removed = 2, cleared = 3 };

struct CacheEvent {
  EventKind kind = EventKind::stored;
  Medium medium = Medium::host;
  std::uint32_t group = 0;
  Tokens begin;
  Tokens end;
  RequestId request = 0;
  bool has_parent = false;
  std::array<std::uint8_t, 32> key{};
  std::array<std::uint8_t, 32> parent_key{};
};

class SchedulerRole {
 public:
  virtual ~SchedulerRole() = default;

  [[nodiscard]] virtual Result<std::span<const SlotClass>> set_ranks(
      std::span<const RankInfo> ranks) = 0;
  [[nodiscard]] virtual Status request_begin(const RequestBegin& begin) = 0;
  [[nodiscard]] virtual Status request_extend(RequestId request, std::uint64_t first_key,
                                              const std::uint8_t* keys,
                                              std::uint64_t key_count) = 0;
  [[nodiscard]] virtual Result<LookupAnswer> lookup(const LookupQuery& query) = 0;
  [[nodiscard]] virtual Status lookup_cancel(RequestId request) = 0;
  [[nodiscard]] virtual Result<AllocResult> alloc_update(RequestId request, Tokens accepted,
                                                         std::span<const TableView> tables) = 0;
  [[nodiscard]] virtual Result<PlanResult> build_store_jobs(const StepRecord& step) = 0;
  [[nodiscard]] virtual Result<CompleteResult> complete(
      std::span<const std::span<const std::uint8_t>> reports) = 0;
  [[nodiscard]] virtual Result<EndResult> request_end(const RequestEnd& end) = 0;
  // kvc.retention/1 (kvc_retention.h): where states of the request are wanted, which is computed
  // from `begin` on.
  [[nodiscard]] virtual Result<RetentionAnswer> retained(RequestId /*request*/, Tokens /*begin*/) {
    return RetentionAnswer{};
  }
  // kvc.layerwise/1 (kvc_layerwise.h): the open load of the request is wanted layer by layer in the
  // step of the next plan. Ok or Code::later.
  [[nodiscard]] virtual Status load_in_step(RequestId /*request*/, JobId /*job*/) {
    return {Code::later, {}};
  }
  // kvc.hints/1 (kvc_hints.h).
  [[nodiscard]] virtual Status hint(RequestId /*request*/, const Hint& /*hint*/) { return {}; }
  [[nodiscard]] virtual Result<PinAnswer> pin(RequestId /*request*/, Tokens /*most*/) {
    return PinAnswer{};
  }
  [[nodiscard]] virtual Status unpin(std::uint64_t /*pin*/) { return {}; }
  // Fills at most out.size() events; true: more wait.
  [[nodiscard]] virtual bool take_events(std::span<CacheEvent> out, std::size_t& count) = 0;
  // Ok or Code::later.
  [[nodiscard]] virtual Status reset(bool invalidate) = 0;
  // Ok or Code::later.
  [[nodiscard]] virtual Status pump(std::uint32_t budget) = 0;

  // [any] Snapshots published at the end of the last call above.
  [[nodiscard]] virtual BoundaryStats counts() const = 0;
  [[nodiscard]] virtual PendingWork pending() const = 0;
  [[nodiscard]] virtual std::size_t stat_count() const = 0;
  virtual void stats(std::span<Stat> out) const = 0;  // out.size() <= stat_count()
  // Requires: request 0 or one of the last 256. JSON.
  [[nodiscard]] virtual Result<std::string> explain(RequestId request) const = 0;

  // Slow whole-structure check for tests; empty text: all invariants hold.
  [[nodiscard]] virtual std::string verify() const = 0;
};

}  // namespace kvc
