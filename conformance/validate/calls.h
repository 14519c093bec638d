// The calls of the line as values: what went in and what came out, read from the structs of kvc.h
// once and then checked, recorded, replayed. Names and units are those of kvc.h; pointers are gone.
//
// Each struct lists its fields in `fields`, in the order of docs/formats/calls.md.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kvc::validate {

using ByteString = std::string;  // bytes, not text

#define KVC_FIELDS(...)           \
  template <class Archive>        \
  void fields(Archive& a) {       \
    a(__VA_ARGS__);               \
  }                               \
  template <class Archive>        \
  void fields(Archive& a) const { \
    a(__VA_ARGS__);               \
  }

struct Table {
  std::uint32_t group = 0;
  std::uint64_t first_changed = 0;
  std::vector<std::int64_t> blocks;
  KVC_FIELDS(group, first_changed, blocks)
  bool operator==(const Table&) const = default;
};

struct Block {
  std::uint32_t group = 0;
  std::int64_t block = 0;
  std::uint64_t position = 0;
  KVC_FIELDS(group, block, position)
  bool operator==(const Block&) const = default;
};

struct Handoff {
  std::uint32_t group = 0;
  std::uint64_t request = 0;
  std::int64_t block = 0;
  std::uint64_t boundary = 0;
  KVC_FIELDS(group, request, block, boundary)
};

struct Candidate {
  std::uint32_t group = 0;
  std::int64_t block = 0;
  ByteString key;
  std::uint64_t end = 0;
  KVC_FIELDS(group, block, key, end)
};

struct ClassInfo {
  std::uint32_t class_id = 0;
  std::uint64_t group_mask = 0;
  std::uint64_t slots_per_page = 0;
  std::uint64_t bytes_per_block = 0;
  std::uint64_t usable_slots = 0;
  KVC_FIELDS(class_id, group_mask, slots_per_page, bytes_per_block, usable_slots)
  bool operator==(const ClassInfo&) const = default;
};

struct RankInfo {
  std::uint32_t rank = 0;
  std::uint64_t pages = 0;
  std::vector<ClassInfo> classes;
  ByteString inventory;
  KVC_FIELDS(rank, pages, classes, inventory)
  bool operator==(const RankInfo&) const = default;
};

struct GroupInfo {
  std::int32_t kind = 0;
  std::uint64_t caps = 0;
  std::uint64_t caps_known = 0;
  std::uint64_t tokens_per_block = 0;
  std::uint64_t window = 0;
  std::uint64_t extra_retained = 0;
  KVC_FIELDS(kind, caps, caps_known, tokens_per_block, window, extra_retained)
  bool operator==(const GroupInfo&) const = default;
};

struct OpenIn {
  std::uint64_t host_caps = 0;
  std::uint64_t host_slots = 0;  // bit i: slot i of the host's table is there, in slot order
  std::uint32_t rank = 0;
  std::vector<GroupInfo> groups;
  std::uint64_t flags = 0;
  std::uint64_t hash_unit = 0;
  std::uint64_t scheduler_block = 0;
  std::uint32_t context_parallel = 0;
  std::uint32_t ranks = 0;
  std::uint64_t cp_interleave = 0;
  std::uint64_t device_blocks = 0;
  std::int64_t null_block = 0;
  std::uint32_t key_bytes = 0;
  std::uint32_t lookahead = 0;
  std::uint64_t max_prompt = 0;
  std::uint64_t max_total = 0;
  std::uint64_t max_batch = 0;
  std::uint64_t max_live = 0;
  std::uint64_t max_running = 0;
  std::uint64_t max_request_bytes = 0;
  std::uint64_t max_steps_in_flight = 0;
  std::int64_t retention = 0;
  ByteString name_space;
  ByteString toml;  // as the connector got it
  KVC_FIELDS(host_caps, host_slots, rank, groups, flags, hash_unit, scheduler_block,
             context_parallel, ranks, cp_interleave, device_blocks, null_block, key_bytes,
             lookahead, max_prompt, max_total, max_batch, max_live, max_running, max_request_bytes,
             max_steps_in_flight, retention, name_space, toml)
  bool operator==(const OpenIn&) const = default;
};

struct Nothing {
  template <class Archive>
  void fields(Archive&) const {}
};

struct SetRanksIn {
  std::vector<RankInfo> ranks;
  KVC_FIELDS(ranks)
};
struct SetRanksOut {
  std::vector<ClassInfo> usable;
  KVC_FIELDS(usable)
};

struct BeginIn {
  std::uint32_t flags = 0;
  std::uint64_t request = 0;
  std::uint64_t prompt = 0;
  std::uint64_t n_keys = 0;
  ByteString keys;
  std::uint64_t load_limit = 0;
  std::uint64_t store_limit = 0;
  KVC_FIELDS(flags, request, prompt, n_keys, keys, load_limit, store_limit)
};

struct ExtendIn {
  std::uint64_t request = 0;
  std::uint64_t first_key = 0;
  std::uint64_t n_keys = 0;
  ByteString keys;
  KVC_FIELDS(request, first_key, n_keys, keys)
};

struct LookupIn {
  std::uint32_t flags = 0;
  std::uint64_t request = 0;
  std::uint64_t total = 0;
  std::uint64_t device = 0;
  std::uint64_t cap = 0;
  KVC_FIELDS(flags, request, total, device, cap)
  bool operator==(const LookupIn&) const = default;
};
struct LookupOut {
  std::uint64_t external = 0;
  std::int32_t why = 0;
  KVC_FIELDS(external, why)
};

struct NumberIn {  // lookup_cancel: the request; reset: the flags; pump: the budget
  std::uint64_t value = 0;
  KVC_FIELDS(value)
};

struct RetentionIn {  // of kvc.retention/1
  std::uint32_t flags = 0;
  std::uint64_t request = 0;
  std::uint64_t begin = 0;
  KVC_FIELDS(flags, request, begin)
  bool operator==(const RetentionIn&) const = default;
};
struct RetentionOut {
  std::int32_t mode = 0;
  std::vector<std::uint64_t> boundaries;
  KVC_FIELDS(mode, boundaries)
  bool operator==(const RetentionOut&) const = default;
};

struct InStepIn {  // load_in_step of kvc.layerwise/1
  std::uint32_t flags = 0;
  std::uint64_t request = 0;
  std::uint64_t job = 0;
  KVC_FIELDS(flags, request, job)
};
struct LayerIn {  // layer_fence
  std::uint64_t step = 0;
  std::uint32_t layer = 0;
  KVC_FIELDS(step, layer)
};
struct LayerOut {
  std::int32_t fence_kind = 0;
  std::uint64_t fence_value = 0;
  KVC_FIELDS(fence_kind, fence_value)
};

struct AllocIn {
  std::uint32_t flags = 0;
  std::uint64_t request = 0;
  std::uint64_t accepted = 0;
  std::vector<Table> tables;
  KVC_FIELDS(flags, request, accepted, tables)
};
struct MediumTokens {
  std::int32_t medium = 0;
  std::uint64_t tokens = 0;
  KVC_FIELDS(medium, tokens)
};
struct AllocOut {
  std::uint64_t job = 0;
  std::vector<Block> held;
  std::vector<MediumTokens> media;
  KVC_FIELDS(job, held, media)
};

struct Scheduled {
  std::uint32_t flags = 0;
  std::uint64_t request = 0;
  std::uint64_t confirmed = 0;
  std::vector<Table> tables;
  KVC_FIELDS(flags, request, confirmed, tables)
};
struct StepIn {
  std::uint64_t step = 0;
  std::vector<Scheduled> scheduled;
  std::vector<std::uint64_t> preempted;
  std::vector<Handoff> handoffs;
  std::vector<Candidate> candidates;
  KVC_FIELDS(step, scheduled, preempted, handoffs, candidates)
};
struct PlannedJob {
  std::int32_t kind = 0;
  std::uint64_t job = 0;
  std::uint64_t request = 0;
  std::vector<Block> held;
  KVC_FIELDS(kind, job, request, held)
};
struct PlanOut {
  std::uint64_t step = 0;
  std::vector<PlannedJob> jobs;
  ByteString bytes;
  KVC_FIELDS(step, jobs, bytes)
};

struct CompleteIn {
  std::vector<ByteString> reports;
  KVC_FIELDS(reports)
};
struct FailedBlock {
  std::uint32_t group = 0;
  std::int64_t block = 0;
  std::uint64_t position = 0;
  std::uint32_t rank = 0;
  std::int32_t status = 0;
  std::int32_t side = 0;
  KVC_FIELDS(group, block, position, rank, status, side)
};
struct EndedJob {
  std::int32_t kind = 0;
  std::uint64_t job = 0;
  std::uint64_t request = 0;
  std::int32_t status = 0;
  std::vector<FailedBlock> failed;
  std::vector<Block> released;
  KVC_FIELDS(kind, job, request, status, failed, released)
};
struct Verdict {
  std::int32_t status = 0;
  std::uint64_t request = 0;
  std::uint64_t job = 0;
  KVC_FIELDS(status, request, job)
};
struct Rejected {
  std::uint32_t rank = 0;
  std::uint64_t report = 0;
  std::uint64_t job = 0;
  std::int32_t status = 0;
  KVC_FIELDS(rank, report, job, status)
};
struct CompleteOut {
  std::vector<EndedJob> jobs;
  std::vector<Verdict> verdicts;
  std::vector<Rejected> rejected;
  KVC_FIELDS(jobs, verdicts, rejected)
};

struct EndIn {
  std::int32_t reason = 0;
  std::uint64_t request = 0;
  std::uint64_t confirmed = 0;
  std::vector<Table> tables;
  std::vector<Handoff> handoffs;
  KVC_FIELDS(reason, request, confirmed, tables, handoffs)
};
struct EndOut {
  std::uint64_t job = 0;
  std::vector<Block> held;
  KVC_FIELDS(job, held)
};

// Queries. Texts and rows are recorded as they came and are not compared by a replay.
struct CountsOut {
  std::vector<std::uint64_t> handoffs;  // of kvc_offer_counts, in order
  std::vector<std::uint64_t> all_offers;
  KVC_FIELDS(handoffs, all_offers)
};
struct PendingOut {
  std::uint64_t load_jobs = 0;
  std::uint64_t store_jobs = 0;
  std::uint64_t held_blocks = 0;
  std::uint64_t quarantined_blocks = 0;
  KVC_FIELDS(load_jobs, store_jobs, held_blocks, quarantined_blocks)
};
struct RoomIn {  // explain: the request; others 0
  std::uint64_t request = 0;
  std::uint64_t cap = 0;
  KVC_FIELDS(request, cap)
};
struct TextOut {
  std::uint64_t needed = 0;  // take_log: the count
  ByteString text;           // empty unless it was written
  KVC_FIELDS(needed, text)
};
struct StatRow {
  ByteString name;
  ByteString labels;
  std::uint64_t value = 0;
  KVC_FIELDS(name, labels, value)
};
struct StatsOut {
  std::uint64_t needed = 0;
  std::vector<StatRow> rows;
  KVC_FIELDS(needed, rows)
};
struct Event {
  std::int32_t kind = 0;
  std::int32_t medium = 0;
  std::uint32_t group = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  std::uint64_t request = 0;
  ByteString key;
  ByteString parent;  // empty: none
  KVC_FIELDS(kind, medium, group, begin, end, request, key, parent)
};
struct EventsOut {
  std::uint64_t count = 0;
  std::vector<Event> events;
  KVC_FIELDS(count, events)
};

struct Region {
  std::int32_t device_kind = 0;
  std::int32_t device_ordinal = 0;
  std::uint32_t layer = 0;
  std::uint64_t base = 0;  // the address: where regions overlay one another
  std::uint64_t size = 0;
  std::uint64_t stride = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t group_mask = 0;
  KVC_FIELDS(device_kind, device_ordinal, layer, base, size, stride, block_bytes, group_mask)
};
struct RegionsIn {
  std::vector<Region> regions;
  KVC_FIELDS(regions)
};

struct SubmitIn {
  ByteString plan;
  std::int32_t fence_kind = 0;
  std::uint64_t fence_value = 0;
  KVC_FIELDS(plan, fence_kind, fence_value)
};

struct LoadDone {
  std::int32_t status = 0;
  std::uint64_t request = 0;
  std::uint64_t job = 0;
  std::vector<FailedBlock> failed;
  KVC_FIELDS(status, request, job, failed)
};
struct ProgressOut {
  std::vector<LoadDone> loads;
  ByteString report;
  KVC_FIELDS(loads, report)
};

struct WaitIn {
  std::vector<std::uint64_t> jobs;
  std::uint64_t timeout_ns = 0;
  KVC_FIELDS(jobs, timeout_ns)
};

// What the host's block queries answered inside a call.
struct QueryAnswer {
  bool block_of = false;  // else has_key
  std::uint32_t group = 0;
  ByteString key;
  std::int64_t block = 0;  // has_key: asked; block_of: answered
  std::uint64_t end = 0;   // has_key: answered
  std::int32_t status = 0;
  KVC_FIELDS(block_of, group, key, block, end, status)
};

#undef KVC_FIELDS

}  // namespace kvc::validate
