// The engine's inside, shared by its source files: engine.cc (life, queries), schedule.cc (who
// runs), admission.cc (hits, loads, tables), growth.cc (blocks of running requests, hand-offs),
// forward.cc (the model, outputs), exchange.cc (records, holds, verdicts), in_step.cc (requests
// that run in the step of their load).
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "host_stub/engine/connector_link.h"
#include "host_stub/engine/device_pool.h"
#include "host_stub/engine/engine.h"
#include "host_stub/engine/model.h"
#include "host_stub/engine/request.h"
#include "plugin/coordinator/lookup.h"
#include "plugin/coordinator/sched_rules.h"

namespace kvc::host {

using RequestPtr = std::shared_ptr<Request>;

// What admission decided for one waiting request.
enum class Admission : std::uint8_t {
  admitted,  // runs in this step, or waits for its load
  aside,     // ask again next step; the next one may be tried
  stop,      // nothing behind it is tried in this step
};

// What a request would get: the device hit, the load and its first chunk.
struct AdmissionPlan {
  std::uint64_t local = 0;     // tokens from the device cache
  std::uint64_t external = 0;  // tokens to load behind them; then `chunk` is 0
  std::uint64_t chunk = 0;
  Hit* hit = nullptr;  // of `local` tokens
};

struct Engine::Body {
  explicit Body(EngineOptions o, Geometry g) : options(std::move(o)), geometry(std::move(g)) {}

  // engine.cc
  Status init(std::optional<LoadedConnector> connector);
  StepResult step();
  void begin_pass();
  Result<RequestId> submit(const RequestSpec& spec, std::vector<TokenId> prompt);
  bool abort(RequestId id);
  [[nodiscard]] bool idle() const;
  void wait_for_connector();
  std::unique_ptr<Step> new_step();
  Result<PassCounters> run(const RequestSource& source, const RunCallbacks& callbacks);
  Status feed(const RequestSource& source, std::size_t& next);
  [[nodiscard]] std::string waits_for() const;
  // ns, in stepped mode steps; and how long something that should come is waited for.
  [[nodiscard]] std::uint64_t now() const;
  [[nodiscard]] std::uint64_t patience() const;
  [[nodiscard]] Leaks leaks() const;
  [[nodiscard]] Status verify() const;
  void log(std::int32_t level, const std::string& text) const;

  // schedule.cc
  void schedule(Step& step);
  void schedule_running(Step& step, std::uint64_t& budget);
  void schedule_waiting(Step& step, std::uint64_t& budget);
  // Blocks for `end` tokens, by preempting later arrivals if need be. False: not in this step.
  bool make_room(const RequestPtr& request, std::uint64_t end, Step& step);
  void preempt(const RequestPtr& request);
  void add_work(Step& step, const RequestPtr& request, std::uint64_t end);
  void count_computed(Request& request, std::uint64_t begin, std::uint64_t end);
  [[nodiscard]] std::uint64_t clip(const Request& request, std::uint64_t start,
                                   std::uint64_t want) const;
  void insert_by_arrival(std::vector<RequestPtr>& list, const RequestPtr& request);
  void remove_from(std::vector<RequestPtr>& list, const Request& request);
  [[nodiscard]] bool must_settle(const Request& request);

  // admission.cc
  Admission admit(const RequestPtr& request, Step& step, std::uint64_t& budget);
  void device_lookup(const Request& request);
  [[nodiscard]] bool hit_is_of_this_step() const;
  [[nodiscard]] bool copies_what_is_not_written(const Step& step) const;
  // False: the connector says later.
  void ask_retention(Request& request, std::uint64_t begin);
  bool connector_lookup(Request& request, AdmissionPlan& plan);
  // The connector says later, for longer than it is believed.
  bool is_tired_of(Request& request);
  // Jobs are open that can be expected to end: those of which none ended for too long cannot.
  bool copies_coming();
  bool allocate(Request& request, const AdmissionPlan& plan, Step& step);
  [[nodiscard]] std::uint64_t blocks_wanted(const AdmissionPlan& plan) const;
  [[nodiscard]] std::uint64_t blocks_ahead(const Request& request, std::uint64_t have) const;
  [[nodiscard]] std::uint64_t blocks_reserved(const Request& newcomer, std::uint64_t have);
  void fill_table(Request& request, GroupId group, const AdmissionPlan& plan, Step& step,
                  std::size_t& next_new);
  void offer_hit_states(const Request& request, const AdmissionPlan& plan);
  bool tell_allocation(const RequestPtr& request, const AdmissionPlan& plan);
  void count_hits(Request& request, std::uint64_t local_end, std::uint64_t external_end);

  // growth.cc
  bool grow(Request& request, std::uint64_t end, Step& step);
  [[nodiscard]] std::uint64_t passed_positions(const Request& request, GroupId group) const;
  [[nodiscard]] bool is_offered_now(const Request& request, GroupId group, std::uint64_t p) const;
  [[nodiscard]] std::uint64_t blocks_passed(const Request& request) const;
  bool forgo_offers(Request& request, std::uint64_t wanted);
  void release_passed(Request& request);
  void move_producer_tail(Request& request, GroupId group, BlockId to, Step& step);
  // Keys and hand-offs of what the launched chunk ending at `end` makes.
  void register_chunk(Request& request, std::uint64_t end);
  void register_keys(Request& request, std::uint64_t tokens);
  void offer_boundaries(Request& request, GroupId group);
  void free_tables(Request& request);
  // The request gives up its block at the position; its engine's cache may keep it.
  void give_up(const Request& request, GroupId group, std::uint64_t position, BlockId block);
  void hand_off(const Request& request, GroupId group, BlockId block, std::uint64_t boundary);

  // forward.cc
  void run_oldest(StepResult& result);
  void forward(Step& step);
  void run_copies(Step& step);
  void in_stream(const std::function<void()>& work);
  void wait_for_copies_of_opened_blocks(const WorkItem& item, const Step& step);
  void compute(WorkItem& item, std::uint64_t layer);
  void compute_state(WorkItem& item, GroupId group, std::uint64_t layer);
  void read_layer(WorkItem& item, std::uint64_t layer);
  void sample(const WorkItem& item);
  void verify_prefix(const WorkItem& item);
  void process_outputs(Step& step, StepResult& result);
  void give_output(const RequestPtr& request, StepResult& result);
  void finish(const RequestPtr& request, std::int32_t reason, StepResult* result);
  void check(const std::optional<Mismatch>& wrong);
  [[nodiscard]] const std::vector<BlockId>& table_of(const WorkItem& item, GroupId group) const;

  // exchange.cc
  void collect(StepResult& result);
  void end_job(const kvc_ended_job& job, StepResult& result);
  void load_verdict(RequestId id, kvc_job job, bool ok, StepResult& result);
  void load_done(const RequestPtr& request, StepResult& result);
  void load_failed(const RequestPtr& request);
  void verify_load(const Request& request);
  void exchange(Step& step, StepResult& result);
  void fill_record(const Step& step);
  [[nodiscard]] std::uint64_t hold_limit() const;
  [[nodiscard]] std::uint64_t refusals() const;
  kvc_status reset_connector(std::uint64_t flags);
  bool take_holds(kvc_job job, const kvc_list& held, std::uint64_t* blocks, std::uint64_t step = 0);
  void tell_end(Request& request, std::int32_t reason);
  void tell_new_keys(Request& request, std::uint64_t first);
  void fill_tables(Request& request, bool whole, bool all_groups, std::vector<kvc_table>& out);
  void pump();
  // Lets copies end before more blocks are held than the connector's default budget.
  void keep_pace(StepResult& result);
  // After the connector was given up: closes it, ends open loads, takes back held blocks.
  void abandon_connector(StepResult& result);

  // in_step.cc
  void run_in_step(const RequestPtr& request, Step& step, std::uint64_t& budget);
  void launch_layers(Step& step, StepResult& result);
  void wait_for_layer(const Step& step, std::uint64_t layer);
  void let_copies_go_on();
  [[nodiscard]] bool tired(std::uint64_t looks, std::uint64_t since) const;
  void verify_layer(const WorkItem& item, std::uint64_t layer);
  // Compares one layer of what a load of [from, to) brought into the tables.
  template <class Tables, class Check>
  void for_each_loaded(const Request& request, Tables tables, std::uint64_t from, std::uint64_t to,
                       std::uint64_t layer, Check checked) const;
  void landed_in_step(const RequestPtr& request, StepResult& result);
  void failed_in_step(Request& request);
  // Keys and hand-offs of what was computed in the step of a load that has ended well.
  void register_landed(Request& request);

  [[nodiscard]] bool link_alive() const { return link && link->alive(); }
  [[nodiscard]] RequestPtr find(RequestId id) const;

  EngineOptions options;
  Geometry geometry;
  std::uint32_t ranks = 1;
  ChunkRules rules;
  std::unique_ptr<ComputeDevice> compute_device;  // null: the host; outlives the memory
  std::vector<std::unique_ptr<RankMemory>> memory;
  std::unique_ptr<DevicePool> device;
  std::unique_ptr<Model> model;
  std::unique_ptr<ConnectorLink> link;
  bool connector_abandoned = false;
  std::uint64_t lost_jobs = 0;         // open ones that are not waited for any more
  std::uint64_t jobs_quiet_since = 0;  // no job ended since; 0: one did, or none is waited for

  std::unordered_map<RequestId, RequestPtr> live;
  std::vector<RequestPtr> waiting;               // by arrival
  std::vector<RequestPtr> loading;               // by arrival
  std::vector<RequestPtr> running;               // by arrival
  std::vector<std::unique_ptr<Step>> in_flight;  // oldest first
  std::vector<std::unique_ptr<Step>> spare_steps;
  std::uint64_t step_number = 0;
  RequestId next_id = 1;
  std::size_t pass_index = 0;

  // Of the step being planned.
  std::vector<kvc_handoff> handoffs;
  std::vector<RequestId> preempted;
  std::vector<BlockId> states_of_step;  // keyed or moved in this step, not to be hit in it
  bool blocks_are_coming = false;       // a request waits for held blocks or loads
  bool settling = false;                // a new request waits for open copies

  // Reused buffers.
  Hit hit;
  Hit short_hit;
  std::vector<BlockId> new_blocks;
  std::vector<BlockId> freed;
  std::vector<BlockId> touched;
  std::vector<std::vector<kvc_table>> record_tables;
  std::vector<kvc_step_request> record;

  PassCounters counters;
  std::vector<std::uint64_t> digests;  // per request of the pass, 0 for those that did not finish
  std::string first_mismatch;
  std::function<void(const FinishedRequest&)> finished_callback;
  Status broken;  // a request that can never run: the run ends with it
};

}  // namespace kvc::host
