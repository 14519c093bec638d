// A bad host is the right one with one thing changed. The right one is a small complete engine: a
// group of full attention and one of states, two ranks, no forward. It opens, joins the ranks,
// serves requests that store, hit, load, wait for another's load, are one too many, are preempted,
// run in the step of their load, are given up and end, resets, and closes. Each function of
// opening.cc, requests.cc, steps.cc and transport.cc breaks one rule, which hosts.def names.
#pragma once
#include <kvc/kvc.h>
#include <kvc/kvc_util.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace kvc::bad {

inline constexpr std::uint64_t unit = 16;  // tokens per block, per key and per state
inline constexpr std::uint32_t ranks = 2;
inline constexpr std::int64_t blocks = 64;  // of the device; 0 is the null block
inline constexpr std::uint64_t block_bytes = 128;
inline constexpr std::uint32_t key_bytes = 16;

template <class F>
struct Plain;
template <class R, class... A>
struct Plain<R (*)(A...) noexcept> {
  using type = R(A...);
};

// The connector's table as the host calls it.
struct Calls {
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  std::function<Plain<decltype(kvc_plugin_api::slot)>::type> slot;
#include <kvc/kvc_calls.def>
};

// From now on f(right, arguments..) is called in place of the function.
template <class R, class... A, class F>
void instead(std::function<R(A...)>& function, F f) {
  function = [right = function, f](A... a) mutable { return f(right, a...); };
}

struct Request {
  std::uint64_t id = 0;
  std::uint64_t path = 0;  // equal paths have the same tokens
  std::uint64_t prompt = 0;
  std::uint64_t confirmed = 0;
  std::uint64_t keys = 0;           // that the connector has
  std::vector<std::int64_t> table;  // of the full group
  std::int64_t state = 0;           // the block of the state after the confirmed tokens; 0: none
  std::uint64_t changed_from = 0;   // first_changed of the next record
  kvc_job load = 0;                 // without verdict
  bool resumes = false;             // the next record is the first after its preemption
  bool tracked = true;              // request_begin did not answer KVC_E_FULL
};

// Thrown where the connector refuses a call: the host closes and ends.
struct Refused {
  std::string slot;
  kvc_status status;
};

// Threads:    one.
// Owns:       requests, blocks and device memory.
// Invariants: a block is counted once per table, state and hold that has it.
class Host {
 public:
  explicit Host(const std::string& layer);

  // The whole life, from open to close; throws Refused.
  void live();
  // What is still open.
  void close();

  // What a bad host changes before live().
  Calls call;
  std::string next;  // path of the connector behind the layer
  std::string toml;  // its options
  kvc_open layout{};
  kvc_host_api table{};
  std::function<std::int64_t(const Request&)> take_block;  // out of the free ones
  std::function<void(Request&)> wait_for_load;

  // What it may look at meanwhile.
  [[nodiscard]] bool in_use(std::int64_t block) const;  // by the table or state of a request
  [[nodiscard]] bool is_held(std::int64_t block) const;
  // Where the prefix ends whose key the block has; 0: it has another one.
  [[nodiscard]] std::uint64_t end_of(std::uint32_t group, std::int64_t block,
                                     const std::uint8_t* key) const;
  std::map<std::uint64_t, Request> requests;  // that live
  std::uint64_t steps = 0;                    // planned so far
  std::vector<kvc_step_request> records;      // of the step that is built
  std::vector<kvc_handoff> handoffs;
  std::vector<kvc_candidate> candidates;
  std::vector<std::uint64_t> preempted;
  kvc_sched* sched = nullptr;
  kvc_rank* rank[ranks] = {};

  Request& begin(std::uint64_t id, std::uint64_t path, std::uint64_t prompt);
  void extend(Request& r, std::uint64_t tokens);
  // Asks, allocates and takes the whole hit.
  void admit(Request& r);
  // One step in which these requests run, each one unit more.
  void step(const std::vector<Request*>& running);
  void collect();
  void end(Request& r);
  void settle();  // until no job is open

 private:
  void open();
  kvc_status ok(kvc_status status, const char* slot) const;
  void hold(kvc_job job, const kvc_list& held);
  void drop(std::int64_t block);
  void grow(Request& r, std::uint64_t tokens);
  void record(Request& r);
  // Its table, and how much of it is confirmed, in the record of the step.
  void put_record(Request& r, std::uint64_t confirmed);
  // Runs it in the step of its load: what comes of that is confirmed behind the verdict.
  void run_in_step(Request& r);
  void preempt(Request& r);
  void abandon(std::uint64_t id, std::uint64_t path);
  void give_back(Request& r);
  void pass_on(const kvc_complete_out& out);

  std::vector<std::uint8_t> memory_[ranks];
  unsigned references_[blocks] = {};
  // What the blocks contain, for has_key and for candidates: the key and its end.
  struct Content {
    std::uint32_t group = 0;
    std::vector<std::uint8_t> key;
    std::uint64_t end = 0;
  };
  std::map<std::int64_t, Content> contents_;
  std::deque<std::int64_t> freed_;  // keyed blocks that no request has any more, oldest first
  std::multimap<kvc_job, std::int64_t> holds_;
  std::deque<std::vector<kvc_table>> tables_;  // of the records
  std::vector<kvc_group> groups_;
  std::string options_;
};

// Keys of `n` units of a path from unit `first` on. A key stands for its whole prefix.
std::vector<std::uint8_t> keys_of(std::uint64_t path, std::uint64_t first, std::uint64_t n);

#define KVC_BAD_HOST(name, rule, consequences) void name(Host& h);
#include "conformance/bad/hosts/hosts.def"
#undef KVC_BAD_HOST

}  // namespace kvc::bad
