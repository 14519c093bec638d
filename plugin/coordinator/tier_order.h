// Exact LRU over runs, tails before heads (CW-2, ADR 0002), and in front of it what is of no use.
//
// An entry in the order stands in the strand of its run and group, ascending ends, or in the front
// list. Runs with entries in strands are in a heap by the time of their last scheduling. Where
// another policy ranks, it has lists of its own, and only runs with a hint (kvc.hints/1) have
// strands.
//
// A run has an *eviction class*: 0 when its time to live has ended, else by its priority. There is
// a heap for each. Lower classes go first, whatever the policy says of entries of normal class.
#pragma once
#include <array>
#include <memory>

#include "plugin/coordinator/tier_heap.h"
#include "plugin/coordinator/tier_policy.h"
#include "plugin/coordinator/tier_records.h"
#include "plugin/core/prefetch.h"

namespace kvc::tier {

// Entries of one group in one run. Exists only while it has entries.
struct Strand {
  GroupId group;
  SlotId head;
  SlotId tail;
  std::uint32_t next;  // of the same run; or next free strand
};

struct Run {
  std::uint64_t stamp;  // when it was last scheduled
  std::uint32_t first_strand;
  std::uint32_t members;      // entries whose last user it is, in the order or not
  std::uint32_t linked;       // of them in strands
  SlotId writer;              // the entry that its writer pin holds
  std::uint32_t unsupported;  // slot + 1: first unsupported dependent that its writer pin holds
  std::uint32_t next;         // next free run
  bool open;
  bool used;
  bool writing;
  std::uint8_t in_heaps;  // a bit per class; those of earlier runs of this id stay until met
  std::uint8_t priority;  // its class, while its time has not ended
  bool hinted;            // not of normal priority, or timed
  bool timed;             // it has a time to live
  bool expired;           // which has ended
};
static_assert(sizeof(Run) == 40);

// Eviction classes.
inline constexpr std::uint32_t class_expired = 0;
inline constexpr std::uint32_t class_normal = 1 - priority_least;
inline constexpr std::uint32_t eviction_classes = class_normal + priority_most + 1;

// A slab array that hands out ids and takes them back.
template <class T>
class IdArena {
 public:
  [[nodiscard]] bool size_for(std::uint64_t count) { return all_.size_for(count); }
  std::uint32_t take() {
    if (free_ != none) {
      const std::uint32_t id = free_;
      free_ = all_[id].next;
      return id;
    }
    if (used_ >= ids_end || !all_.ensure(std::uint64_t{used_} + 1)) throw std::bad_alloc();
    return used_++;
  }
  void give(std::uint32_t id) {
    all_[id].next = free_;
    free_ = id;
  }
  // Ids ever handed out lie below it.
  [[nodiscard]] std::uint32_t used() const { return used_; }
  T& operator[](std::uint32_t id) { return all_[id]; }
  const T& operator[](std::uint32_t id) const { return all_[id]; }

 private:
  SlabArray<T> all_;
  std::uint32_t used_ = 0;
  std::uint32_t free_ = none;
};

// Threads: one user. Owns: runs, strands, heap, policy; the records belong to TierIndex.
class Order {
 public:
  explicit Order(Records& records) : records_(records) {}
  // `policy`: null for lru.
  [[nodiscard]] bool make(std::uint64_t slots, std::uint64_t open_runs,
                          std::unique_ptr<Policy> policy);
  // Null: lru.
  [[nodiscard]] Policy* policy() { return policy_.get(); }
  [[nodiscard]] const Policy* policy() const { return policy_.get(); }

  [[nodiscard]] RunId open_run();
  void close_run(RunId run);
  void schedule(RunId run) {
    runs_[run].stamp = ++now_;
    if (runs_[run].timed) renew_time(run);
  }
  void expect_schedule(RunId run) const {
    if (run < runs_.used()) prefetch_write(&runs_[run]);
  }
  [[nodiscard]] bool is_open(RunId run) const {
    return run < runs_.used() && runs_[run].used && runs_[run].open;
  }
  [[nodiscard]] Run& run(RunId id) { return runs_[id]; }
  [[nodiscard]] const Run& run(RunId id) const { return runs_[id]; }

  // The record is `run`'s from now on, in the order or not.
  void set_run(SlotId slot, RunId run);
  // It is nobody's. Requires: not in the order.
  void leave_run(SlotId slot);
  // Goes later: of a higher class, or of the same and scheduled later.
  [[nodiscard]] bool newer(RunId a, RunId b) const {
    const std::uint32_t of_a = class_of(a);
    const std::uint32_t of_b = class_of(b);
    return of_a != of_b ? of_a > of_b : runs_[a].stamp > runs_[b].stamp;
  }

  // --- hints
  [[nodiscard]] std::uint32_t class_of(RunId run) const {
    return runs_[run].expired ? class_expired : runs_[run].priority;
  }
  // The run's own, from now on. Requires: open, without entries.
  void hint(RunId run, const Hint& hint);
  // It is so late now: times that ended by then have ended. Never goes back.
  void tick(std::uint64_t now_ns);
  // Times have to be told: some end, or some that were over may begin again.
  [[nodiscard]] bool timed() const { return timed_runs_ != 0; }
  // An entry of `owner` that `user` uses stays with its owner, whose class is higher.
  [[nodiscard]] bool stays(RunId owner, RunId user) const {
    return hinted_runs_ != 0 && class_of(owner) > class_of(user);
  }
  [[nodiscard]] std::uint64_t expired() const { return expired_; }      // entries, in all
  [[nodiscard]] std::uint64_t outranked() const { return outranked_; }  // searches, in all

  // It may go now.
  void link(SlotId slot) {
    if (by_itself(records_[slot].run())) return link_strand(slot);
    records_[slot].set_place(Place::strand);
    ++linked_;
    policy_->evictable(slot);
  }
  void link_front(SlotId slot, bool first);
  // Takes it out of wherever it stands.
  void unlink(SlotId slot);

  // As TierIndex::victim.
  [[nodiscard]] SlotId victim(RunId store_run, const Newcomer& newcomer, bool& declined);

  [[nodiscard]] std::uint64_t linked() const { return linked_; }  // in strands and in front
  [[nodiscard]] std::uint64_t in_front() const { return in_front_; }
  [[nodiscard]] std::uint64_t run_count() const { return run_count_; }
  [[nodiscard]] RunId runs_used() const { return runs_.used(); }
  [[nodiscard]] std::uint64_t bytes() const {
    return strands_.used() * sizeof(Strand) + runs_.used() * (sizeof(Run) + sizeof(RunHeap::Item)) +
           deadlines_.bytes();
  }
  [[nodiscard]] Status verify() const;

 private:
  // Its entries stand in strands.
  [[nodiscard]] bool by_itself(RunId run) const {
    return policy_ == nullptr || (hinted_runs_ != 0 && runs_[run].hinted);
  }
  [[nodiscard]] bool in_strand(const Record& r) const {
    return r.place() == (policy_ == nullptr ? Place::strand : Place::kept);
  }
  void forget_hint(Run& run, RunId id);
  void renew_time(RunId run);
  void expire(RunId run);
  void link_strand(SlotId slot);
  void unlink_front(Record& r);
  void unlink_strand(Record& r);
  void drop_run(RunId run);
  [[nodiscard]] std::uint32_t strand_of(RunId run, GroupId group) const;
  [[nodiscard]] SlotId place(const Strand& strand, std::uint32_t end) const;
  void heap_push(RunId run);
  [[nodiscard]] RunId oldest();
  [[nodiscard]] RunId oldest_in(std::uint32_t cls);
  // The entry of the run that goes first. Requires one.
  [[nodiscard]] SlotId deepest_of(RunId run) const;
  // What the run's class gives up is worth more than what the store's run has; counts it.
  [[nodiscard]] bool outranks(std::uint32_t cls, RunId store_run, bool& declined);
  [[nodiscard]] SlotId victim_of(RunId run, RunId store_run, bool& declined);
  [[nodiscard]] SlotId victim_by_policy(RunId run, RunId store_run, const Newcomer& newcomer,
                                        bool& declined);
  [[nodiscard]] Status verify_run(RunId id) const;
  [[nodiscard]] Status verify_hint(RunId id) const;
  [[nodiscard]] Status verify_heaps() const;

  Records& records_;
  std::unique_ptr<Policy> policy_;
  IdArena<Strand> strands_;
  IdArena<Run> runs_;
  std::array<RunHeap, eviction_classes> heaps_;
  Deadlines deadlines_;
  std::uint64_t now_ = 0;
  std::uint64_t clock_ = 0;  // ns, as told last
  std::uint64_t expired_ = 0;
  std::uint64_t outranked_ = 0;
  std::uint64_t hinted_runs_ = 0;
  std::uint64_t timed_runs_ = 0;  // of them, with a time to live, over or not
  std::uint64_t in_strands_ = 0;
  std::uint64_t open_limit_ = 0;
  std::uint64_t open_ = 0;
  std::uint64_t run_count_ = 0;
  std::uint64_t linked_ = 0;
  std::uint64_t in_front_ = 0;
  SlotId front_head_ = no_slot;
  SlotId front_tail_ = no_slot;
};

}  // namespace kvc::tier
