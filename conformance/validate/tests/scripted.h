// A connector and a host for tests of the layer, both small, both right unless a test says
// otherwise: every slot of the connector can be replaced by a lambda, every call of the host can be
// made wrong.
#pragma once
#include <kvc/kvc.h>
#include <kvc/kvc_util.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace kvc::validate::testing {

template <class F>
struct Plain;
template <class R, class... A>
struct Plain<R (*)(A...) noexcept> {
  using type = R(A...);
};

// What replaces the right answers of the connector.
struct Script {
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  std::function<Plain<decltype(kvc_plugin_api::slot)>::type> slot;
#include <kvc/kvc_calls.def>

  std::uint64_t offer = 0;         // external tokens of every lookup
  std::vector<kvc_block> store;    // the next plan stores these blocks, of request 1
  kvc_status end_status = KVC_OK;  // of the jobs that end
  std::uint64_t end_job = 0;       // request_end hands out a store job
  std::uint64_t miscounted = 0;    // added to a row of boundary_stats
};

// One table for all tests; script() is for the next calls, and is new after reset_script().
Script& script();
void reset_script();
const kvc_plugin_api& scripted_api();
// The right answers, for lambdas that change a part of one.
const kvc_plugin_api& right_api();
// What the host gave at open: for connectors that call it at a wrong moment.
const kvc_host_api& given_host();

// An engine of one rank: groups {full, 16 tokens; state without stable positions, 16 tokens}, hash
// unit 16, 64 device blocks, null block 0, keys of 8 bytes. It calls the layer, whose next
// connector is the scripted one.
class Host {
 public:
  explicit Host(std::uint64_t caps = KVC_HOST_BLOCK_QUERY, const std::string& layer = "");
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // Opens the scheduler and the rank, registers regions, joins them.
  void open();
  void open_handles();
  void close();

  kvc_status begin(std::uint64_t id, std::uint64_t tokens, std::uint32_t flags = 0,
                   std::uint64_t path = 0);
  kvc_status extend(std::uint64_t id, std::uint64_t first, std::uint64_t n);
  kvc_status lookup(std::uint64_t id, std::uint64_t total, std::uint64_t device = 0,
                    std::uint64_t cap = KVC_NO_LIMIT);
  // Tables of the full group; the state group passes none in records.
  kvc_status alloc(std::uint64_t id, std::uint64_t accepted, std::vector<std::int64_t> blocks,
                   std::vector<std::int64_t> states = {});
  void schedule(std::uint64_t id, std::uint64_t confirmed, std::vector<std::int64_t> blocks,
                std::uint64_t first_changed = 0, std::uint32_t flags = 0);
  kvc_status build(std::uint64_t step = 0);  // 0: the next
  kvc_status submit();                       // the last plan, to the rank
  kvc_status progress();
  kvc_status complete();  // of the reports so far
  // build, submit, progress, complete.
  kvc_status step();
  kvc_status end(std::uint64_t id, std::uint64_t confirmed, std::vector<std::int64_t> blocks = {});

  std::vector<std::uint64_t> preempted;  // of the next record
  std::vector<kvc_handoff> handoffs;
  std::vector<kvc_candidate> candidates;
  std::vector<std::vector<std::uint8_t>> reports;  // for the next complete
  std::vector<std::uint8_t> plan;                  // the last one
  kvc_fence fence{};
  kvc_lookup_out found{};
  kvc_alloc_out allocated{};
  kvc_plan planned{};
  kvc_end_out ended{};
  kvc_progress moved{};
  kvc_complete_out completed{};
  std::vector<std::pair<std::int32_t, std::string>> log;
  std::function<void()> on_log;

  kvc_sched* sched = nullptr;
  kvc_rank* rank = nullptr;
  kvc_open layout{};
  kvc_host_api table{};
  std::uint64_t last_step = 0;

 private:
  struct Record {
    kvc_step_request request{};
    std::vector<kvc_table> tables;
    std::vector<std::int64_t> blocks;
  };
  std::vector<kvc_group> groups_;
  std::string toml_;
  std::vector<std::uint8_t> memory_;
  std::deque<Record> records_;
  std::uint64_t counter_ = 1;
};

// Keys of `n` hash units on a path: equal paths share all keys.
std::vector<std::uint8_t> keys(std::uint64_t path, std::uint64_t first, std::uint64_t n);

// The findings so far, oldest first, as "rule: text"; forget_findings() empties the list.
std::vector<std::string> found_rules();
std::string found_texts();
void forget_findings();

}  // namespace kvc::validate::testing
