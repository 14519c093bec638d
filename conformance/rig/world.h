// A small engine for protocol tests: it drives a connector, owns real device memory of every rank,
// and lets a test say what an engine does in few words. It keeps the engine's side of the contract
// (kvc.h) strictly and checks the connector's: after every scheduler call the counts balance, every
// job ends once, holds end in order, and no held block is handed out. What is wrong goes to a
// Judge.
//
// Bytes: every token writes 8 bytes per layer that depend on the whole prefix, its group, rank and
// layer; a state block holds 64 bytes that depend on the whole prefix. So a byte under a wrong key,
// place, rank or layer is seen.
#pragma once
#include <kvc/kvc.h>
#include <kvc/kvc_fault.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/rig/device_memory.h"
#include "conformance/rig/host_memory.h"
#include "conformance/rig/judge.h"

namespace kvc::rig {

// The table of a connector, complete: optional slots that are not there answer KVC_E_UNSUPPORTED.
class Library {
 public:
  explicit Library(const kvc_plugin_api& api);
  [[nodiscard]] const kvc_plugin_api& api() const { return api_; }
  [[nodiscard]] bool can(std::uint64_t capability) const { return (api_.caps & capability) != 0; }
  // NULL in builds without fault points.
  [[nodiscard]] const kvc_test_api* test() const { return test_; }

 private:
  kvc_plugin_api api_{};
  const kvc_test_api* test_ = nullptr;
};

struct Group {
  std::int32_t kind = KVC_GROUP_FULL;
  std::uint64_t tokens = 16;  // per block and rank
  std::uint64_t window = 0;
  std::uint64_t caps = 0;  // added to CACHEABLE (not for OTHER)
  std::uint64_t not_caps = 0;
};
Group full(std::uint64_t tokens, std::uint64_t caps = 0);
Group sliding(std::uint64_t tokens, std::uint64_t window);
Group chunked(std::uint64_t tokens, std::uint64_t chunk);
Group state_align(std::uint64_t tokens);
Group state_all(std::uint64_t tokens);
Group scratch(std::uint64_t tokens);

// How the layers of a block lie in device memory. What a layer's bytes mean is never said.
enum class MemoryOrder {
  apart,        // every layer of a group in a region of its own
  interleaved,  // the layers of a block side by side: one stride for all, a region per layer
  shared,  // groups with equal blocks lie in the same regions; a block is one group's at a time
};

struct Setup {
  std::vector<Group> groups = {full(16)};
  std::uint64_t h = 0;  // 0: the smallest cacheable block
  std::uint64_t s = 0;  // 0: the largest cacheable block
  std::uint32_t cp = 1;
  std::uint32_t ranks = 0;  // 0: cp
  std::uint64_t device_blocks = 64;
  std::uint64_t host_blocks = 64;  // of the largest group; 0: no [host] table in the TOML
  std::int64_t null_block = 0;
  std::uint32_t key_bytes = 16;
  std::uint64_t flags = 0;
  std::int64_t retention = -1;
  std::uint32_t lookahead = 0;
  std::uint64_t max_prompt = 1 << 16;
  std::uint64_t max_total = 1 << 17;
  std::uint64_t max_batch = 4096;
  std::uint64_t max_live = 256;
  std::uint64_t max_running = 64;
  std::uint64_t max_request_bytes = 64 << 20;
  std::uint64_t steps_in_flight = 4;
  std::uint64_t host_caps = KVC_HOST_STEPPED;
  std::string connector_toml;       // lines of [connector]
  std::string host_toml;            // further lines of [host]
  std::optional<std::string> toml;  // replaces all TOML
  std::string name_space = "model-a";
  std::uint32_t layers = 2;
  std::uint64_t token_bytes = 8;  // per layer, a multiple of 8
  MemoryOrder memory = MemoryOrder::apart;
  // What the host table offers beside caps.
  bool host_log = true;
  bool host_clock = true;
  bool host_wake = true;
  bool host_alloc = false;
  // A layout that the connector may decline: refused with KVC_E_ARG or KVC_E_UNSUPPORTED it ends
  // the case as Declined.
  bool may_decline = false;
  bool join = true;                // whether set_ranks is called
  std::uint64_t stride_extra = 0;  // bytes between the elements of every list that goes in
};

using Tokens = std::vector<std::uint64_t>;
// n tokens that no other `seed` has.
Tokens tokens_of(std::uint64_t seed, std::uint64_t n);
// a with b behind it.
Tokens operator+(Tokens a, const Tokens& b);

struct Request {
  std::uint64_t id = 0;
  Tokens tokens;
  std::uint64_t prompt = 0;
  std::uint64_t salt = 0;  // goes into keys and bytes
  std::uint64_t computed = 0;
  std::uint64_t keyed = 0;           // keys that were told
  std::vector<std::uint64_t> chain;  // per token: a number for the prefix that ends behind it
  std::vector<std::vector<std::int64_t>> tables;
};

// What a request_begin breaks that refuses what is right: KVC_E_FULL is for what exceeds limits.
constexpr RuleId begin_rule(kvc_status refusal) {
  return refusal == KVC_E_FULL ? RuleId("KVC-P-051") : RuleId("KVC-P-050");
}

struct Found {
  kvc_status status = KVC_OK;
  std::uint64_t tokens = 0;
  std::int32_t why = 0;
};

struct Planned {
  std::uint64_t step = 0;
  std::vector<std::uint8_t> bytes;
  std::vector<kvc_job> loads, stores;
};

struct Ended {
  kvc_job job = 0;
  std::int32_t kind = 0;
  std::uint64_t request = 0;
  kvc_status status = KVC_OK;
  std::vector<kvc_failed_block> failed;
  std::vector<kvc_block> released;
};

struct Completed {
  kvc_status status = KVC_OK;
  std::vector<Ended> jobs;
  std::vector<kvc_verdict> verdicts;
  std::vector<kvc_rejected> rejected;
};

// Device memory of one rank: per group and layer a region of all device blocks, in the order of the
// setup, with a gap behind every block's bytes of a layer.
class RankMemory {
 public:
  RankMemory(const Setup& setup, std::uint32_t rank);
  [[nodiscard]] const std::vector<kvc_region>& regions() const { return regions_; }
  [[nodiscard]] std::uint8_t* block(std::uint32_t group, std::uint32_t layer, std::int64_t block);
  [[nodiscard]] std::uint64_t block_bytes(std::uint32_t group) const;
  // A copy of every region, to compare later.
  [[nodiscard]] std::vector<std::vector<std::uint8_t>> snapshot() const;

 private:
  void add_regions(std::uint32_t group, std::uint32_t rank);

  const Setup& setup_;
  std::vector<std::size_t> first_region_;  // by group
  struct Release {
    DeviceMemory* from;
    void operator()(std::uint8_t* p) const { from->release(p); }
  };
  std::vector<std::unique_ptr<std::uint8_t, Release>> memory_;
  std::vector<kvc_region> regions_;
};

class World {
 public:
  // Opens everything; a refused open is a finding and a Stop (or Declined, if the setup says so).
  // KVC_HOST_STEPPED is taken out of the setup for a connector that cannot be stepped.
  World(Setup setup, const Library& library, Judge& judge);
  virtual ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // -- requests
  Request& begin(std::uint64_t id, Tokens tokens, std::uint32_t flags = 0, std::uint64_t salt = 0);
  kvc_status try_begin(std::uint64_t id, Tokens tokens, std::uint32_t flags = 0,
                       std::uint64_t salt = 0, std::uint64_t load_limit = KVC_NO_LIMIT,
                       std::uint64_t store_limit = KVC_NO_LIMIT);
  // Appends output tokens, and their keys unless told not to.
  kvc_status extend(std::uint64_t id, const Tokens& more, bool keys = true);
  Request& request(std::uint64_t id) { return requests_.at(id); }

  Found lookup(std::uint64_t id, std::uint64_t device = 0, std::uint64_t cap = KVC_NO_LIMIT);
  kvc_status lookup_cancel(std::uint64_t id);
  // Allocates what a load up to `device + accepted` needs and tells the connector. The job, 0 for
  // none.
  kvc_job take(std::uint64_t id, std::uint64_t accepted, std::uint64_t device = 0);
  kvc_status try_take(std::uint64_t id, std::uint64_t accepted, kvc_alloc_out& out);
  // lookup, take all of it, a step and a drain; the tokens that were loaded. Checks their bytes.
  std::uint64_t load(std::uint64_t id, std::uint64_t device = 0);

  // -- compute
  // Gives the request blocks for tokens [0, upto) as an engine would that loads (windows start
  // where they are needed).
  void allocate_for_load(std::uint64_t id, std::uint64_t upto);
  void allocate_for_compute(std::uint64_t id, std::uint64_t upto);
  // The forward of the next step computes up to `upto`; confirmed is the same unless given.
  void compute(std::uint64_t id, std::uint64_t upto, std::optional<std::uint64_t> confirmed = {});
  // Names the id in the next record without new tokens.
  void schedule(std::uint64_t id, std::uint64_t confirmed, bool resumed = false);
  void hand_off(std::uint64_t id, std::uint32_t group, std::int64_t block, std::uint64_t boundary);
  // The block stands in the next record as eviction candidate, under the request's key of `end`
  // tokens.
  void name_candidate(const Request& r, std::uint32_t group, std::int64_t block, std::uint64_t end);
  // The id stands in the next record as preempted; its blocks are dropped.
  void preempt(std::uint64_t id);

  // -- steps
  Planned plan();  // build_store_jobs of what was gathered
  kvc_status try_plan(Planned& out, std::optional<std::uint64_t> step = {});
  void submit(const Planned& plan);  // to every rank, fences reached
  void submit_to(std::uint32_t rank, const Planned& plan, std::uint64_t fence);
  void pump();                                       // every rank until nothing waits
  std::vector<std::vector<std::uint8_t>> reports();  // of every rank that has one
  std::vector<std::uint8_t> report_of(std::uint32_t rank);
  Completed complete(const std::vector<std::vector<std::uint8_t>>& reports);
  // plan, submit, pump, reports, complete.
  Completed step();
  // Steps until no job is open.
  void drain();

  // -- ends
  kvc_job end(std::uint64_t id, std::int32_t reason = KVC_END_STOP,
              std::optional<std::uint64_t> confirmed = {},
              const std::vector<kvc_handoff>& handoffs = {});
  kvc_status try_end(std::uint64_t id, std::int32_t reason, std::uint64_t confirmed,
                     const std::vector<kvc_handoff>& handoffs, kvc_end_out& out);
  kvc_status reset(std::uint64_t flags = 0);

  // -- short forms
  // begin, compute the whole prompt in one step (states are handed off), drain.
  void run(std::uint64_t id, Tokens tokens, std::uint64_t upto = 0, std::uint64_t salt = 0);
  // run, end, drain.
  void store(std::uint64_t id, Tokens tokens, std::uint64_t upto = 0, std::uint64_t salt = 0);
  // What a fresh request with these tokens would be offered; leaves nothing behind.
  std::uint64_t hit(const Tokens& tokens, std::uint64_t salt = 0, std::uint64_t device = 0);

  // -- queries
  kvc_boundary_stats counts();
  kvc_pending pending();
  std::uint64_t stat(std::string_view name);  // summed over labels; a missing name is a Stop
  bool has_stat(std::string_view name);
  std::string explain(std::uint64_t id = 0);
  std::string last_error();
  std::string verify();
  std::vector<kvc_stat> all_stats();
  std::vector<kvc_event> events();
  bool logged(std::int32_t level, std::string_view part) const;
  std::uint64_t logged_times(std::string_view part) const;

  // -- bytes
  void write(Request& r, std::uint64_t from, std::uint64_t to);
  void write_state(const Request& r, std::uint32_t group, std::int64_t block,
                   std::uint64_t boundary);
  // Whether the blocks of the request hold tokens [0, to) where each group needs them; names the
  // first wrong byte.
  std::string wrong_bytes(const Request& r, std::uint64_t from, std::uint64_t to);
  std::vector<std::vector<std::vector<std::uint8_t>>> snapshot() const;
  // Names the first block outside `but` that differs from the snapshot.
  std::string touched(const std::vector<std::vector<std::vector<std::uint8_t>>>& before,
                      const std::set<std::int64_t>& but);

  // -- device blocks
  std::int64_t new_block();
  void drop_blocks(std::uint64_t id);
  void drop_block(std::int64_t block);
  void share_block(std::int64_t block);  // one more table names it
  // The engine releases one entry of a table (a window moved on).
  void null_out(std::uint64_t id, std::uint32_t group, std::uint64_t position);
  std::uint64_t free_blocks() const { return free_.size(); }
  bool held(std::int64_t block) const;
  std::uint64_t held_count() const;
  // Destinations of loads that have not ended.
  std::set<std::int64_t> blocks_of_open_loads() const;
  std::uint64_t block_tokens(std::uint32_t group) const;
  // Everything is over: no hold, no job, no request; counts say pending 0.
  void check_quiet();
  // Closes all handles; judged: the allocator's accounts. Once; the destructor does it otherwise.
  void close();

  // -- raw parts
  Judge& judge() { return judge_; }
  bool stepped() const { return (setup_.host_caps & KVC_HOST_STEPPED) != 0; }
  kvc_sched* sched() { return sched_; }
  kvc_rank* rank(std::uint32_t r) { return ranks_.at(r); }
  const kvc_plugin_api& api() const { return library_.api(); }
  const Library& library() const { return library_; }
  const Setup& setup() const { return setup_; }
  RankMemory& memory(std::uint32_t r) { return *memory_.at(r); }
  const kvc_host_api& host() const { return host_; }
  kvc_open open_struct(std::uint32_t rank = 0) const;
  std::vector<std::uint8_t> keys_of(const Request& r, std::uint64_t n) const;
  void advance_ns(std::uint64_t by) { now_ns_ += by; }
  // Fences with a value up to this are reached.
  void reach(std::uint64_t value) { __atomic_store_n(&counter_, value, __ATOMIC_RELEASE); }
  std::vector<std::pair<std::int32_t, std::string>> log() const;
  HostMemory& host_memory() { return host_memory_; }
  // Calls of any function of the host table.
  std::uint64_t host_calls() const { return host_calls_; }
  const std::map<kvc_job, std::int32_t>& open_jobs() const { return open_jobs_; }
  // What register_regions of each rank returned, and what set_ranks answered.
  const std::vector<kvc_rank_info>& rank_infos() const { return infos_; }
  const std::vector<kvc_class>& classes() const { return classes_; }
  void pump_one(std::uint32_t rank);
  // Waits in a threaded world until nothing is open on any rank.
  void wait_all();
  // Answers of the host's own block queries, if the setup offers them.
  std::map<std::pair<std::uint32_t, std::int64_t>,
           std::pair<std::vector<std::uint8_t>, std::uint64_t>>
      device_keys;
  std::atomic<std::uint64_t> wakes{0};  // by a thread of the connector
  // What progress said of loads, in order of arrival.
  struct Item {
    std::uint32_t rank = 0;
    std::uint64_t request = 0;
    kvc_job job = 0;
    kvc_status status = KVC_OK;
  };
  std::vector<Item> items;
  std::uint64_t next_step = 1;
  // What the next record will say.
  struct Scheduled {
    std::uint64_t id = 0;
    std::uint64_t confirmed = 0;
    bool resumed = false;
  };
  std::vector<Scheduled> scheduled;
  std::vector<std::uint64_t> preempted;
  std::vector<kvc_handoff> handoffs;
  std::vector<kvc_candidate> candidates;
  std::deque<std::vector<std::uint8_t>> candidate_keys;
  // Off for tests that look at a poisoned handle.
  bool check_counts = true;
  // Off for long runs: the slow check of the connector's whole structure after every call.
  bool check_structure = true;

 private:
  friend struct HostTable;
  void check_after(std::string_view call);
  std::vector<kvc_table> tables_of(const Request& r, bool whole) const;
  std::uint64_t first_needed(std::uint32_t group, std::uint64_t end) const;
  void add_hold(kvc_job job, std::int64_t block);
  void release_hold(const Ended& job);
  void read_jobs(const kvc_plan& plan, Planned& out);
  void free_if_unused(std::int64_t block);

  void open_all();
  void join_ranks();
  void judge_opened(kvc_status status, const void* handle, std::string_view slot);
  void keep_info(std::uint32_t rank);
  std::string last_error_of(std::uint32_t rank);
  template <class... A>
  void expect(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    judge_.expect(ok, rule, text, std::forward<A>(args)...);
  }
  template <class... A>
  void need(bool ok, RuleId rule, fmt::format_string<A...> text, A&&... args) {
    judge_.need(ok, rule, text, std::forward<A>(args)...);
  }
  void fresh_job(kvc_job job, std::string_view slot);
  // The elements as a list that goes in, with the setup's stride; lives until the next step.
  template <class T>
  kvc_list in_list(const std::vector<T>& elements, std::uint64_t count);
  void judge_destinations(const Request& r, const kvc_alloc_out& out);
  std::vector<kvc_block> blocks_of(const kvc_list& list);
  // "{folder}" in the TOML: a folder of this world alone, gone with it.
  void own_folder();

  const Library& library_;
  Judge& judge_;
  Setup setup_;
  kvc_host_api host_{};
  std::vector<kvc_group> groups_;
  std::string toml_;
  std::string folder_;
  kvc_sched* sched_ = nullptr;
  std::vector<kvc_rank*> ranks_;
  std::vector<std::unique_ptr<RankMemory>> memory_;
  std::vector<kvc_rank_info> infos_;
  std::vector<std::vector<kvc_class>> class_copies_;
  std::vector<std::vector<std::uint8_t>> inventories_;
  std::vector<kvc_class> classes_;
  std::map<std::uint64_t, Request> requests_;
  std::deque<std::int64_t> free_;
  std::map<std::int64_t, std::uint64_t> owners_;  // references of tables
  std::map<kvc_job, std::multiset<std::int64_t>>
      holds_;  // of jobs whose holds are known one by one
  std::map<kvc_job, std::set<std::int64_t>>
      end_holds_;                              // of finish-time jobs: what request_end listed
  std::map<kvc_job, std::int32_t> open_jobs_;  // handed out and not ended; kind
  std::set<kvc_job> ended_jobs_;
  std::set<kvc_job> planned_jobs_;
  std::set<std::pair<std::uint32_t, kvc_job>> load_items_;  // rank, job
  std::set<kvc_job> loads_without_verdict_;
  mutable std::mutex log_mutex_;
  std::vector<std::pair<std::int32_t, std::string>> log_;
  std::atomic<std::uint64_t> host_calls_{0};
  std::atomic<std::uint64_t> now_ns_{1};  // stepped: the clock; else an offset to the real one
  HostMemory host_memory_;
  std::uint64_t counter_ = 0;  // the fence: always behind every step that was submitted
  std::uint64_t fence_max_ = 0;
  mutable std::vector<std::uint8_t> wide_groups_;
  std::deque<std::vector<std::uint8_t>> padded_;  // lists with gaps, of the calls of this step
  bool closed_ = false;
};

std::ostream& operator<<(std::ostream& out, const Found& f);

template <class T>
kvc_list World::in_list(const std::vector<T>& elements, std::uint64_t count) {
  if (setup_.stride_extra == 0 || count == 0) {
    return {elements.data(), count, static_cast<std::uint32_t>(sizeof(T)), 0};
  }
  const std::uint64_t stride = sizeof(T) + setup_.stride_extra;
  padded_.emplace_back(stride * count, std::uint8_t{0xEE});
  for (std::uint64_t i = 0; i < count; ++i) {
    __builtin_memcpy(padded_.back().data() + i * stride, &elements[i], sizeof(T));
  }
  return {padded_.back().data(), count, static_cast<std::uint32_t>(stride), 0};
}

}  // namespace kvc::rig
