// What the layer knows of one engine: requests, tables, jobs, holds, plans and reports. The
// checkers (checks.h) read and write it.
#pragma once
#include <atomic>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/validate/calls.h"
#include "conformance/validate/layout.h"

namespace kvc::validate {

// A key by its hash of 128 bits; {0, 0} is none.
using KeyId = std::pair<std::uint64_t, std::uint64_t>;
inline constexpr KeyId no_key{0, 0};

template <class K, class V>
using FlatMap = boost::unordered_flat_map<K, V>;
template <class K>
using FlatSet = boost::unordered_flat_set<K>;

// An entry of a table; as a doubt, one that another table contradicts: judged when its own request
// is named again.
struct Doubt {
  std::uint32_t group = 0;
  std::uint64_t position = 0;
  std::int64_t block = 0;
  std::uint64_t other = 0;  // request; 0: a candidate
};

struct Request {
  std::uint32_t flags = 0;
  std::uint64_t prompt = 0;
  std::uint64_t load_limit = KVC_NO_LIMIT;
  std::uint64_t store_limit = KVC_NO_LIMIT;
  bool tracked = true;        // request_begin did not answer KVC_E_FULL
  bool keys_stopped = false;  // request_extend answered KVC_E_FULL
  std::vector<KeyId> keys;

  // Of this admission.
  bool running = false;  // scheduled since it was admitted
  bool noticed = false;  // its preemption was told by a lookup
  bool must_resume = false;
  std::uint64_t last_named = 0;  // step of its last lookup, allocation or record
  std::uint64_t confirmed = 0;
  std::vector<std::vector<std::int64_t>> tables;  // per group, as they were told last
  std::vector<Doubt> fresh;                       // entries that are new and not in Model::uses yet
  std::vector<Doubt> doubts;

  // Hits and loads.
  bool asked = false;
  std::uint64_t offered = 0;         // by the last lookup
  std::uint64_t device = 0;          // of the last lookup
  std::uint64_t offer_max = 0;       // what the last lookup may have answered at most
  std::uint64_t lease_failures = 0;  // jobs that had failed when the newest lease began
  std::uint64_t open_load = 0;       // job without verdict; 0: none
  bool in_step = false;              // it is one of kvc.layerwise/1
  bool lost_step = false;            // that failed, and its preemption was not told yet
  bool load_failed = false;          // until it is admitted once

  // kvc.retention/1: the last answer of this admission is a list, and this is it.
  bool states_listed = false;
  std::vector<std::uint64_t> states;
};

// Who names a block in its table.
struct Use {
  std::uint64_t request = 0;
  std::uint32_t group = 0;
  std::uint64_t position = 0;
};

struct Hold {
  std::uint64_t job = 0;
  std::uint64_t request = 0;  // 0: not known
  std::uint32_t group = 0;
  std::uint64_t position = 0;
  KeyId key = no_key;  // of the prefix that ends where the block begins
};

struct Job {
  std::int32_t kind = 0;
  std::uint64_t request = 0;
  std::uint64_t accepted = 0;  // of loads
  std::uint64_t plan = 0;      // number of the plan that brought it; 0: none yet
  bool at_end = false;         // of request_end: `held` also names blocks of other jobs
  bool judged = false;
  bool must_fail = false;   // open at a reset with INVALIDATE
  bool firm_lease = false;  // accepted as offered, under the lease
  std::uint64_t resets = 0;
  std::uint64_t failures = 0;  // jobs that had failed when it was handed out
  std::vector<Block> held;
};

// The part of one rank that the layer sees.
struct RankView {
  bool here = false;  // opened in this process
  bool registered = false;
  RankInfo info;            // what register_regions answered
  std::uint64_t loads = 0;  // plans submitted
  std::uint64_t stores = 0;
  std::uint64_t tried_loads = 0;  // plans that the host passed, whatever the answer
  std::uint64_t tried_stores = 0;
  bool poisoned = false;    // a call answered KVC_E_INTERNAL: the host may leave it alone
  bool late_loads = false;  // found: it lags; until it gets a plan again
  bool late_stores = false;
  bool late_reports = false;
  KeyId last_loads = no_key;  // hash of the last plan
  KeyId last_stores = no_key;
  FlatMap<std::uint64_t, std::uint64_t> loads_reported;  // job -> times, until the job ended
  std::vector<std::uint64_t> awaited;                    // loads that wait() said have ended
  struct Report {
    std::uint64_t sequence = 0;
    std::uint64_t loads = 0;  // plans submitted before it was made
    std::uint64_t stores = 0;
    std::uint64_t built = 0;  // plans that the scheduler had made by then
  };
  FlatMap<KeyId, Report> reports_out;        // put out, not carried yet
  FlatMap<KeyId, std::uint64_t> reports_in;  // carried -> sequence
  std::uint64_t reports = 0;
  std::uint64_t carried_loads = 0;  // the newest carried report was made after so many plans
  std::uint64_t carried_stores = 0;
};

struct Model {
  Layout layout;
  bool have_sched = false;

  // Requests.
  FlatMap<std::uint64_t, Request> live;
  FlatSet<std::uint64_t> used_ids;
  struct Place {
    std::uint64_t index = 0;
    KeyId before = no_key;
  };
  FlatMap<KeyId, Place> keys;
  std::uint64_t tracked = 0;

  // Tables and holds.
  FlatMap<std::int64_t, std::vector<Use>> uses;
  FlatMap<std::int64_t, std::vector<Hold>> holds;
  std::vector<std::uint64_t> fresh_tables;  // requests whose tables alloc_update told

  // Jobs.
  FlatMap<std::uint64_t, Job> jobs;  // handed out, not ended
  FlatSet<std::uint64_t> ended_jobs;
  std::vector<std::uint64_t> unplanned_stores;
  std::vector<std::uint64_t> promised_loads;  // requests: taken in step since the last plan
  std::uint64_t open_loads = 0;
  std::uint64_t open_stores = 0;
  std::uint64_t open_ends = 0;  // of request_end: what they hold alone is not known
  std::uint64_t failures = 0;
  std::uint64_t resets = 0;
  bool stored_since_reset = false;
  bool ever_reset = false;

  // Steps and transport.
  bool ranks_set = false;
  bool ranks_tried = false;   // set_ranks was called, whatever it answered
  std::uint64_t lookups = 0;  // of live requests
  std::atomic<bool> pool_grows{false};
  std::uint64_t step = 0;  // of the last plan
  std::vector<KeyId> plans;
  std::vector<RankView> ranks;
  FlatSet<std::uint64_t> leases;  // requests

  // The call before, for repeated lookups.
  bool last_was_lookup = false;
  LookupIn last_lookup;
  LookupOut last_answer;
  kvc_status last_status = 0;
  // And for repeated questions of kvc.retention/1.
  bool last_was_retention = false;
  RetentionIn last_retention;
  RetentionOut last_retained;

  // Of the call in work.
  struct Allowed {  // a block that a store of this step may name
    std::uint64_t request = 0;
    std::uint32_t group = 0;
    std::uint64_t position = 0;
    std::uint64_t confirmed = 0;
    std::uint32_t flags = 0;
    std::uint64_t store_limit = KVC_NO_LIMIT;
  };
  FlatMap<std::int64_t, std::vector<Allowed>> given_up;  // tables of requests preempted now
  FlatSet<std::int64_t> step_blocks;                     // hand-offs, candidates, block_of
  enum class ReportIs : std::uint8_t { right, repeated, unknown };
  std::vector<ReportIs> reports_seen_as;  // of the complete in work

  [[nodiscard]] Request* find(std::uint64_t id) {
    const auto it = live.find(id);
    return it == live.end() ? nullptr : &it->second;
  }
  [[nodiscard]] bool all_ranks_here() const;
};

[[nodiscard]] KeyId hash_of(const void* data, std::uint64_t bytes);
[[nodiscard]] inline KeyId hash_of(const ByteString& bytes) {
  return hash_of(bytes.data(), bytes.size());
}
// The key of the request's prefix of `tokens` tokens; no_key: 0 tokens, no multiple of h, or it has
// none there.
[[nodiscard]] KeyId key_at(const Model& model, const Request& request, std::uint64_t tokens);

}  // namespace kvc::validate
