// TierIndex and its twin side by side: every operation goes to both, and everything that can be
// seen is compared.
#pragma once
#include <array>
#include <string>
#include <vector>

#include "plugin/coordinator/test_support.h"
#include "plugin/coordinator/tests/tier_twin.h"
#include "plugin/core/prng.h"

namespace kvc::test {

// What a test wants to have seen at least once.
enum class Seen : std::uint8_t {
  landed_cascade,       // a publication published what had landed behind it
  failed_open,          // a failure doomed a descendant whose copy was open
  failed_landed,        // and ended one that had landed
  adopted,              // an unsupported dependent got its support by a reservation
  met,                  // or when a use met both
  second_by_meeting,    // a dependent with one support met the other
  unsupported_by_fail,  // the last support failed
  dead_in_front,
  unsupported_in_front,
  tail_cascade,  // an eviction took a tail and what hung on it
  kept_by_tail,  // a dependent lost its chain entry and lived on by its tail
  bad_rewritten,
  bad_rewrite_failed,
  bad_evicted,
  writer_fell_back,        // a failure moved a writer pin to an ancestor
  other_writer_fell_back,  // of a request that had only built on the failed entry
  offsets_used,            // a set bit led to a tail while other bits were clear
  loose_offsets_used,      // to one that its base does not know
  no_parent,
  refused_full,    // nothing was evictable
  own_run_spared,  // only the store's own request had evictable entries
  skipped,
  reset_rewriting,  // with a rewrite open
  reset_pinned,
  unpinned_doomed,
  given_up,  // while the copy was open
  hit,       // a lookup found something
  dead_of_no_use,
  stored,
  evicted_for_a_store,
  count
};
std::string name_of(Seen what);
using Coverage = std::array<std::uint64_t, static_cast<std::size_t>(Seen::count)>;

enum class Do : std::uint8_t {
  open,      // a: path
  close,     // a: request
  schedule,  // a: request
  preempt,   // a: request
  hit,       // a: request: its longest chain prefix
  offer,     // a: request, b: group, c: units, d: known units, e: meet before touch
  aside,     // a, b, c, d: supports are held and dropped again
  finish,    // a: slot, b: 0 failed, 1 well, 2 given up while it goes on
  pin,       // a: slot, b: job
  unpin,     // a: slot, b: job
  spoil,     // a: slot
  evict,     // a: slot
  touch,     // a: slot, b: request
  meet,      // a: slot, b: request, d: known units
  reset
};

struct Op {
  Do what = Do::reset;
  std::uint32_t a = 0;
  std::uint32_t b = 0;
  std::uint32_t c = 0;
  std::uint32_t d = 0;
  bool e = false;
};
std::string describe(const Op& op);

struct WorldOptions {
  bool chained = true;
  std::uint64_t slots = 8;
  std::uint64_t open_runs = 4;
  Eviction eviction = Eviction::lru;
};

// Threads: one user. Owns: index and twin; geometry and prefixes belong to the test. Invariants:
// index and twin have seen the same calls. A difference ends the test case with a text that lists
// the last operations.
class TierWorld {
 public:
  struct Request {
    RunId run;
    PrefixId path;
  };

  TierWorld(const Geometry& geometry, const Prefixes& prefixes, const WorldOptions& options,
            Coverage& seen);

  // Does nothing where the operation is not allowed now.
  void apply(const Op& op);
  // Operations that were.
  [[nodiscard]] std::uint64_t done() const { return done_; }
  // Index against twin, and verify().
  void compare();
  // Operations that are allowed now, for exhaustive tests: offers at the given ends only.
  [[nodiscard]] std::vector<Op> options(const std::vector<std::uint32_t>& units) const;

  std::vector<PrefixId> paths;

  [[nodiscard]] const std::vector<Request>& requests() const { return open_; }
  [[nodiscard]] const TierTwin& twin() const { return twin_; }
  [[nodiscard]] const TierIndex& index() const { return index_; }
  // Units of the next chain position of the request that the tier does not have.
  [[nodiscard]] std::uint32_t next_chain(const Request& request) const;
  [[nodiscard]] bool legal(GroupId group, std::uint32_t units) const;

 private:
  class Sink;
  void offer(const Op& op);
  void skip(SlotId slot, const Op& op);
  void store(const Op& op, PrefixId prefix);
  [[nodiscard]] SlotId room(RunId run, const Supports& supports);
  void finish(SlotId slot, std::uint32_t how);
  void pins(SlotId slot, PinKind kind, bool on);
  void evict(SlotId slot);
  void meet(SlotId slot, const TwinPath& path);
  void touch(SlotId slot, RunId run);
  void hit(const Request& request);
  void reset();
  void compare_slot(SlotId slot);
  void compare_keys();
  void compare_tails();
  void compare_dead();
  void compare_victims();
  // Whether the index may name this victim for a store of the run. Of policies but lru only what
  // holds for all of them is looked at here.
  [[nodiscard]] bool may_go(SlotId slot, RunId run) const;
  void end(const Request& request);
  // Hits with the promises of the index, against hits without.
  void compare_lookups();
  void compare_counters();
  void require(bool same, const char* what, std::uint64_t where = 0) const;
  void note(Seen what, std::uint64_t times = 1) { seen_[static_cast<std::size_t>(what)] += times; }
  [[nodiscard]] Tokens tokens(std::uint64_t units) const { return geometry_.hash_unit() * units; }

  const Geometry& geometry_;
  const Prefixes& prefixes_;
  WorldOptions options_;
  Coverage& seen_;
  TierIndex index_;
  TierTwin twin_;
  std::vector<Request> open_;
  std::vector<Op> log_;
  std::uint32_t tag_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t compared_ = 0;
};

}  // namespace kvc::test
