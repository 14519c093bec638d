// The slow twin of TierIndex: the rules of design 3.1 and the contract of tier_index.h over plain
// maps. Everything that can be computed from a definition is computed each time it is asked for.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "plugin/coordinator/tier_index.h"

namespace kvc::test {

// A prefix of some request as a number: equal prefixes, equal numbers, equal keys. 0 is the root.
using PrefixId = std::uint32_t;

// Threads: one user. Owns: the prefixes. Invariants: a prefix never changes.
class Prefixes {
 public:
  explicit Prefixes(std::uint32_t key_bytes) : key_bytes_(key_bytes), all_(1) {}

  // The prefix one hash unit longer, ending with `symbol`.
  PrefixId extend(PrefixId from, std::uint32_t symbol);
  [[nodiscard]] std::uint64_t units(PrefixId p) const { return all_[p].line.size(); }
  // Its first `n` units. Requires n <= units(p).
  [[nodiscard]] PrefixId cut(PrefixId p, std::uint64_t n) const {
    return n == 0 ? 0 : all_[p].line[n - 1];
  }
  // Whether `p` begins with `head`.
  [[nodiscard]] bool begins(PrefixId p, PrefixId head) const {
    return units(head) <= units(p) && cut(p, units(head)) == head;
  }
  // Its first `n` keys.
  [[nodiscard]] KeyView view(PrefixId p, std::uint64_t n) const {
    return {all_[p].keys.data(), key_bytes_, n};
  }
  // Its own key. Requires p != 0.
  [[nodiscard]] const std::byte* key(PrefixId p) const {
    return view(p, units(p)).at(units(p) - 1);
  }
  [[nodiscard]] PrefixId count() const { return static_cast<PrefixId>(all_.size()); }
  [[nodiscard]] std::uint32_t key_bytes() const { return key_bytes_; }

 private:
  struct One {
    std::vector<PrefixId> line;  // of 1, 2, ... units; itself last
    std::vector<std::byte> keys;
    std::map<std::uint32_t, PrefixId> next;
  };
  std::uint32_t key_bytes_;
  std::vector<One> all_;
};

// A request's keys as it hands them in: the first `known` units of `path`.
struct TwinPath {
  PrefixId path = 0;
  std::uint64_t known = 0;
};

struct TwinEntry {
  EntryState state = EntryState::reserved;
  GroupId group = 0;
  PrefixId prefix = 0;
  std::uint32_t tag = 0;
  std::uint32_t leases = 0;
  std::uint32_t jobs = 0;
  bool bad = false;
  bool rewriting = false;
  RunId run = no_run;
  SlotId first = no_slot;  // dependents: what they are linked to
  SlotId second = no_slot;
  RunId held_by = no_run;  // unsupported: whose writer pin holds it
  auto operator<=>(const TwinEntry&) const = default;
};

struct TwinRun {
  std::uint64_t stamp = 0;
  bool open = true;
  bool writing = false;
  SlotId writer = no_slot;
  auto operator<=>(const TwinRun&) const = default;
};

// What a sink was told, order apart.
struct TwinEvent {
  enum class Kind : std::uint8_t { evicted, published, failed_open, failed_landed };
  Kind kind;
  SlotId slot;
  std::uint32_t tag;
  auto operator<=>(const TwinEvent&) const = default;
};
using TwinEvents = std::multiset<TwinEvent>;

// Threads: one user. Owns: entries and runs by slot and id; the prefixes belong to the world.
// Invariants: those of the design; nothing is checked here.
class TierTwin {
 public:
  TierTwin(const Geometry& geometry, bool chained, const Prefixes& prefixes);

  // --- changes; as the calls of TierIndex with the same names
  void open_run(RunId run);
  void close_run(RunId run);
  void schedule(RunId run) { runs_.at(run).stamp = ++now_; }
  void hold_path(RunId run, SlotId entry);
  void release_path(RunId run);
  [[nodiscard]] Supports find_supports(GroupId group, const TwinPath& path,
                                       std::uint64_t end) const;
  void hold(const Supports& supports);
  void drop(const Supports& supports);
  // Without the hold.
  void reserve(SlotId slot, GroupId group, const TwinPath& path, std::uint64_t end, RunId run);
  void rewrite(SlotId slot) { all_.at(slot).rewriting = true; }
  bool publish(SlotId slot, std::uint32_t tag, TwinEvents& events);
  void fail(SlotId slot, bool copy_open, TwinEvents& events);
  bool release(SlotId slot);
  void touch(SlotId slot, RunId run);
  void meet(SlotId slot, const TwinPath& path);
  void pin(SlotId slot, PinKind kind);
  bool unpin(SlotId slot, PinKind kind);
  void mark_bad(SlotId slot);
  void evict(SlotId slot, TwinEvents& events);
  void reset(TwinEvents& events);

  // --- definitions
  [[nodiscard]] const std::map<SlotId, TwinEntry>& all() const { return all_; }
  [[nodiscard]] const std::map<RunId, TwinRun>& runs() const { return runs_; }
  [[nodiscard]] const TwinEntry* entry(SlotId slot) const;
  [[nodiscard]] EntryState state(SlotId slot) const;
  [[nodiscard]] std::uint64_t end(const TwinEntry& e) const {
    return prefixes_.units(e.prefix) * h_;
  }
  [[nodiscard]] bool chained() const { return chain_ != groups_max; }
  [[nodiscard]] GroupId chain() const { return chain_; }
  [[nodiscard]] bool is_chain(const TwinEntry& e) const;
  [[nodiscard]] bool is_tail(const TwinEntry& e) const;
  // The keyed entry of the prefix; no_slot if none.
  [[nodiscard]] SlotId at(GroupId group, PrefixId prefix) const;
  [[nodiscard]] SlotId parent(SlotId chain_entry) const;
  [[nodiscard]] bool kept(SlotId slot) const;  // not evictable
  [[nodiscard]] bool unsupported(const TwinEntry& e) const;
  [[nodiscard]] bool dead(SlotId chain_entry) const;
  [[nodiscard]] bool in_front(SlotId slot) const;
  [[nodiscard]] Supports supports_of(SlotId slot) const;
  // Whether some entry that a lookup could reach the dependent through is not its support: of
  // another branch, or not met yet.
  [[nodiscard]] bool could_hang_elsewhere(SlotId slot) const;
  // Every slot that may be next for a store of `run`; none: nobody.
  [[nodiscard]] std::set<SlotId> victims(RunId run) const;
  [[nodiscard]] TierIndexCounters counters() const;  // bytes apart
  // Everything that makes a difference later, as text; equal texts, equal futures.
  [[nodiscard]] std::string fingerprint() const;

 private:
  [[nodiscard]] static bool keyed(const TwinEntry& e);
  [[nodiscard]] bool is_dependent(const TwinEntry& e) const { return chained() && !is_chain(e); }
  [[nodiscard]] bool rooted(const TwinEntry& e) const;
  [[nodiscard]] bool keyed_at(SlotId slot) const;
  [[nodiscard]] bool serves(GroupId group, std::uint64_t end, SlotId entry, SlotId tail) const;
  [[nodiscard]] bool servable(std::uint64_t end, SlotId entry, SlotId tail) const;
  void link(SlotId slot, SlotId first, SlotId second);
  void lose(SlotId slot, bool to_failure, TwinEvents& events);
  void forget(SlotId slot);
  void inherit(SlotId parent, RunId run);
  void fail_chain(SlotId slot, TwinEvents& events);

  const Geometry& geometry_;
  const Prefixes& prefixes_;
  std::uint64_t h_;
  GroupId chain_ = groups_max;
  std::uint64_t block_ = 0;
  std::map<SlotId, TwinEntry> all_;  // every slot that is not free
  std::map<RunId, TwinRun> runs_;    // open, or with entries
  std::multiset<SlotId> held_;       // by offers in the making
  std::uint64_t now_ = 0;
};

}  // namespace kvc::test
