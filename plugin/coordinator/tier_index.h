// The index of a tier: keys, the chain and its dependents, pins, and who goes next (design 3.1).
//
// One record per slot holds everything, so that a stored block costs one record and one place of
// the key table. Two kinds in one structure: *chained*, with the rules (a) to (f) of design 3.1 for
// the entries of the chain group, and *flat*, where every entry stands alone.
//
//   chain entry   a full block of the chain group; its parent is the block before it, or the root
//   dependent     any other entry: windows, states, tails, blocks of further attention groups
//   support       what a dependent can be reached through: the chain entry whose block contains its
//                 end, and the chain group's tail at its end; of a tail: the chain entry it
//                 continues
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/keys.h"
#include "plugin/core/hint.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {

// What one request used last: the unit of recency (ADR 0002).
using RunId = std::uint32_t;
inline constexpr RunId no_run = UINT32_MAX;

// Who goes when the tier is full: docs/policies.md. All but lru need a chained index.
enum class Eviction : std::uint8_t { lru, arc, gdsf, hazard };
// As configured; hazard is "auto".
[[nodiscard]] std::string_view name_of(Eviction eviction);

struct TierIndexOptions {
  std::uint32_t key_bytes = 16;  // 8..32
  std::uint64_t slots = 0;       // ids below it; 0: unlimited, grows in slabs (measuring only)
  std::uint64_t open_runs = 0;   // open at once; 0: unlimited
  bool chained = true;           // false: flat, also for layouts that have a chain
  Eviction eviction = Eviction::lru;
  Tokens path_max{};  // of the longest request, for the policies' scratch memory; 0: it grows
  std::uint64_t ghosts_more = 16'384;  // hazard: ghosts beside one per slot
};

// What a policy counted. 0 where it has no such thing, as all are under lru.
struct PolicyNumbers {
  std::uint64_t classes = 0;    // in use
  std::uint64_t declined = 0;   // blocks that were not worth a slot
  std::uint64_t refreshes = 0;  // of what was learned
  std::uint64_t ghosts = 0;
  std::uint64_t requests = 0;  // begun
  std::uint64_t target = 0;    // arc: of T1; gdsf: age of the tier
  std::uint64_t bytes = 0;     // memory ever used, ghosts included
};

// What the policy of survival statistics learned.
struct PolicyReport {
  struct Class {
    std::uint64_t code = 0;  // as packed in docs/policies.md
    std::uint64_t hits = 0;  // sampled ones
  };
  std::array<std::uint64_t, 32> hazard{};  // pooled, per age bucket, in 1e-9 per request
  std::array<Class, 8> top{};              // by hits
};

// free -> reserved (a copy writes it) -> landed (the copy ended, an ancestor's has not) ->
// published. doomed_reserved: keyless, its copy still writes. doomed_pinned: keyless, pins still
// read it, or an open rewrite writes it.
enum class EntryState : std::uint8_t {
  free,
  reserved,
  landed,
  published,
  doomed_reserved,
  doomed_pinned
};

enum class Presence : std::uint8_t { absent, reserved, published };

enum class PinKind : std::uint8_t { lease, job };

// What an offer hangs on; holds it from hold_supports until reserve or drop_supports. Only victim,
// evict and reading calls may come between.
struct Supports {
  SlotId first = no_slot;   // the parent, or the chain entry
  SlotId second = no_slot;  // the tail
  bool root = false;        // hangs on the root
  bool no_parent = false;   // a chain entry whose parent is absent or not known: not to be reserved
};

// What a change did to other entries than the one it was called for.
class TierSink {
 public:
  virtual ~TierSink() = default;
  // The entry was evicted or dropped: its slot is free. `key` is valid in the call only. `bad`:
  // nobody could find it any more.
  virtual void evicted(SlotId entry, const SlotKey& key, bool bad) = 0;
  // The entry is published now; `tag` is what publish was given for it.
  virtual void published(SlotId entry, std::uint32_t tag) = 0;
  // An ancestor of the unpublished entry failed. copy_open: its copy still writes, the entry is
  // doomed_reserved until release; else it had landed, its slot is free, and `tag` is its own.
  virtual void failed(SlotId entry, std::uint32_t tag, bool copy_open) = 0;
};

// Entries end at most here: records keep ends in 32 bits.
inline constexpr Tokens indexed_end_max{UINT32_MAX};

struct TierIndexCounters {
  std::uint64_t published = 0;
  std::uint64_t reserved = 0;  // with landed ones
  std::uint64_t landed = 0;
  std::uint64_t doomed_reserved = 0;
  std::uint64_t doomed_pinned = 0;
  std::uint64_t pinned = 0;      // entries with a lease's or job's pin, any state
  std::uint64_t lease_only = 0;  // of them by leases alone
  std::uint64_t evictable = 0;
  std::uint64_t in_front = 0;  // of them bad, dead or unsupported: they go first
  std::uint64_t bad = 0;
  std::uint64_t bad_chain = 0;
  std::uint64_t rewriting = 0;  // bad entries whose rewrite is open
  std::uint64_t unsupported = 0;
  std::uint64_t writer_pins = 0;  // runs that hold their path
  std::uint64_t runs = 0;
  std::uint64_t bytes = 0;      // memory ever used, but for the policy's
  std::uint64_t expired = 0;    // whose time to live ended, in all
  std::uint64_t outranked = 0;  // searches that found only entries of higher priority, in all
};

// Threads:    scheduler role only; const calls may run together. A pure state machine.
// Owns:       records, key table, order. Slots and bytes belong to the tier.
// Invariants: (a) a chain entry that is reserved, landed or published has such a parent, or is the
//             first block; (b) the order holds exactly the published entries without child, pin and
//             pinned or unpublished dependent; (c) published child => published parent; (d) bad
//             entries stay until rewritten or evicted, and nothing finds them; (f) lookups see
//             published entries that are not bad. verify() checks all of it. (e) Nobody goes before
//             who hangs on it, and losing a child makes a parent at least as good as that was.
//             No heap after make() when bounded; memory that was never used is not touched.
// Cost:       O(1) per call but: victim pays for runs that were scheduled since it looked; entering
//             a strand elsewhere than at its ends walks; a change of a chain entry visits its own
//             dependents; reserving one probes the tails that may lie inside its block.
// Wrong ids and wrong states are broken invariants (KVC_CHECK).
class TierIndex final : public KeyIndex {
 public:
  // Code::arg: key length outside 8..32, more than 2^31 slots and runs, a policy but lru for an
  // index that is not chained. Code::full: no memory.
  // `geometry` must outlive the index.
  static Result<TierIndex> make(const Geometry& geometry, const TierIndexOptions& options);
  TierIndex(TierIndex&&) noexcept;
  TierIndex& operator=(TierIndex&&) noexcept;
  ~TierIndex() override;

  // --- what lookups see (f)
  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override;
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override;
  void find_each(GroupId group, std::span<const std::byte* const> keys,
                 std::span<SlotId> out) const override;
  // The rules (a) to (f) hold for the group now: of one path, a published block has all its
  // ancestors published and good, so its positions may be searched by bisection.
  [[nodiscard]] bool prefix_closed(GroupId group) const override;
  // A part of the path for each of some searches, whose ends are looked up; then all walk from
  // child to parent side by side, so that their misses overlap.
  void find_path(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override {
    static_cast<void>(find_path(group, keys, out, nullptr));
  }
  [[nodiscard]] bool keys_follow(GroupId group, const KeyRun& keys) const override;
  // `listener`: null, or told on the way. False: the keys are not those of one path (the engine's
  // fault, or one of them is gone), and `out` says nothing. Of the chain, true means that every
  // slot is the child of the one before it, so that who pins the last one keeps all.
  [[nodiscard]] bool find_path(GroupId group, const KeyRun& keys, std::span<SlotId> out,
                               PathListener* listener) const;
  // Where tails may end in the block behind `base` (no_slot: in the first block): bit
  // floor(i * 64 / (B / h)) for the boundary i + 1 hash units behind base. All ones: not known.
  // Covers every tail that find may answer on a path through base, linked to it or not.
  [[nodiscard]] std::uint64_t tail_offsets(GroupId group, SlotId base) const override;

  [[nodiscard]] bool chained() const;
  // Any keyed state. Of a bad entry: absent, with `entry` set: its next offer rewrites it; reserved
  // while that copy is open.
  [[nodiscard]] Presence find_any(GroupId group, const std::byte* key, SlotId& entry) const;
  // find_any of the key comes soon.
  void expect_find(GroupId group, const std::byte* key) const;

  // --- runs: what one request used last
  [[nodiscard]] RunId open_run();  // no_run: as many as allowed are open
  // The request is over; ends its writer pin. The id must not be used again.
  void close_run(RunId run);
  // The request is scheduled: its run is the newest from now on.
  void schedule(RunId run);
  // It will be soon: fetches what schedule writes. Any number is allowed.
  void expect_schedule(RunId run) const;
  // The writer pin of design 3.1: the deepest chain entry that the live request wrote or hit stays,
  // and so do its unsupported dependents. Moves only deeper, but for a failure: then back to the
  // nearest ancestor that is published or its own. Requires an entry of the run's path, published
  // or reserved by the run. Nothing for other entries than those of the chain.
  void hold_path(RunId run, SlotId entry);
  // Preemption, request_end. What it held unsupported stands in front from then on.
  void release_path(RunId run);
  // What the run uses or stores has this priority and time to live. Requires that it has no entry
  // yet and a priority in range.
  void hint(RunId run, const Hint& hint);
  // It is so late now, on the clock of times to live.
  void tick(std::uint64_t now_ns);
  // tick may change something.
  [[nodiscard]] bool timed() const;

  // --- requests, for the policies: all of it does nothing under lru
  // The run's request is admitted for the first time: it asks for the prompt's blocks, of which
  // `path` names the prefixes. Nothing for a run that began. Visits all of them.
  void begin_request(RunId run, const KeyView& path, Tokens prompt);
  // It is over after an answer of so many tokens. Visits all blocks of `path`, which are those of
  // the answer, too. Nothing for a run that did not begin.
  void end_request(RunId run, const KeyView& path, Tokens answer);
  // Work that is due now and then, some hundred microseconds: not for hot calls. True: some was.
  bool maintain();

  // --- stores
  // Finds and holds what an entry of `group` ending at `end` hangs on. `path`: the request's keys;
  // count 0: not known (flat offers). Flat: nothing.
  [[nodiscard]] Supports hold_supports(GroupId group, const KeyView& path, Tokens end, RunId run);
  void drop_supports(const Supports& supports);
  // A free slot takes the absent key; ends the hold on `supports`. A chain entry moves the writer
  // pin of `run`; it becomes a support of the run's unsupported dependents that end in it, and of
  // what hangs on a tail inside its block; a tail becomes one of what ends with it. Requires
  // !supports.no_parent, a free slot, end <= indexed_end_max, and that `path` is the same for all
  // calls of a run, as far as it goes.
  void reserve(SlotId entry, GroupId group, const std::byte* key, const KeyView& path, Tokens end,
               RunId run, const Supports& supports);
  // A bad published entry is written again in place. Requires bad(entry) and no open rewrite.
  void rewrite(SlotId entry);
  // publish comes soon. Requires what it requires.
  void expect_publish(SlotId entry) const;
  // The copy ended well. True: published (with everything that had landed behind it: sink). False:
  // landed, it will be published or failed with its ancestors. Requires reserved, or a rewrite.
  bool publish(SlotId entry, std::uint32_t tag, TierSink& sink);
  // The copy failed or was given up: a rewrite leaves the entry bad; else the entry is free and
  // every unpublished descendant ends (sink). `copy_open`: it is given up while its copy still
  // writes: doomed_reserved until release; a rewrite goes on. A dependent that loses its last
  // support by a failure is not evicted but unsupported: the support's next offer is to come.
  // Requires reserved, or a rewrite.
  void fail(SlotId entry, TierSink& sink, bool copy_open = false);
  // The copy into a doomed entry ended. True: the slot is free. False: pins still read it, the last
  // unpin frees it. Requires doomed_reserved, or doomed_pinned and rewriting.
  bool release(SlotId entry);

  // --- uses
  // The run uses the published entry: it is as new as the run. One that is unsupported and held by
  // a writer pin stays with that run (meet it first); one that is not held is held by the run's
  // writer pin, if it has one, from now on. One of a run of higher priority stays with that, too,
  // which is as new as if it had been scheduled now.
  void touch(SlotId entry, RunId run);
  // A hit or a skipped offer met the dependent with its supports: links it to those it lacks.
  void meet(SlotId entry, const KeyView& path);
  // Pins add. pin requires published; unpin published or doomed_pinned. unpin frees the slot of the
  // latter with the last pin and says so: true.
  void pin(SlotId entry, PinKind kind);
  void pin_all(std::span<const SlotId> entries, PinKind kind);
  bool unpin(SlotId entry, PinKind kind);
  // A source failure (d). Nothing if the entry is not published or bad already.
  void mark_bad(SlotId entry);

  // --- eviction
  // Who goes for a store of `store_run` (no_run: for nobody in particular): what is bad; else what
  // is dead or unsupported, in the order in which it became so; else what has outlived its time;
  // else of the lowest priority whom the policy names, of another than 0 the oldest as under lru.
  // no_slot: none, or what is next was used by store_run: a store never evicts what its own request
  // just used. Does not change what anyone sees. lru: of the oldest run that has an evictable entry
  // the one with the most end tokens (ties: higher group).
  [[nodiscard]] SlotId victim(RunId store_run);
  // The same for an entry of `group` under the absent key. no_slot and `declined`: somebody would
  // go, but the new entry is worth less to the policy (admission), or its run has less priority.
  [[nodiscard]] SlotId victim(RunId store_run, GroupId group, const std::byte* key, Tokens end,
                              bool& declined);
  [[nodiscard]] bool evictable(SlotId entry) const;
  // With every dependent whose last support goes with it (sink, dependents first, `entry` last).
  // Its parent becomes as new as it is.
  void evict(SlotId entry, TierSink& sink);
  // Nothing is found any more: published entries end (doomed_pinned if pinned or if a rewrite is
  // open, which counts as a job's pin from then on; else sink.evicted), landed ones too
  // (sink.failed), reserved ones are doomed_reserved. Writer pins and runs' entries end.
  void reset(TierSink& sink);

  // --- reading
  [[nodiscard]] EntryState state(SlotId entry) const;
  [[nodiscard]] bool bad(SlotId entry) const;
  // A bad entry whose rewrite is open; or what became of it in a reset.
  [[nodiscard]] bool rewriting(SlotId entry) const;
  // Requires a keyed state.
  [[nodiscard]] SlotKey key_of(SlotId entry) const;
  // The key that the entry has, or had last. Requires that it had one.
  [[nodiscard]] const std::byte* last_key(SlotId entry) const;
  [[nodiscard]] RunId run_of(SlotId entry) const;
  [[nodiscard]] std::uint32_t pins(SlotId entry) const;  // of leases and jobs
  // In front of the order: bad, dead or unsupported and evictable.
  [[nodiscard]] bool in_front(SlotId entry) const;
  // Of what is not in front, lower classes go first: 0 after its time to live, else 1 + priority -
  // priority_least. Requires a keyed entry.
  [[nodiscard]] std::uint32_t eviction_class(SlotId entry) const;
  [[nodiscard]] bool unsupported(SlotId entry) const;
  // A chain entry through which no lookup can reach a boundary (design 3.1 "dead"), whoever keeps
  // it; only childless ones are ever tested. A legal boundary in its block, or at a published, good
  // tail of it, counts if every other group's last entry for it is there, published and good: one
  // that ends there hangs on the entry or tail; one of attention that covers it, on the entry or on
  // any of its tails. Never in layouts of one group, nor with draft groups, whose hits need what is
  // behind them. Requires a published chain entry of a chained index.
  [[nodiscard]] bool dead(SlotId entry) const;
  [[nodiscard]] Supports supports_of(SlotId entry) const;
  // Not beside any other call.
  [[nodiscard]] const TierIndexCounters& counters() const;
  [[nodiscard]] PolicyNumbers policy() const;
  [[nodiscard]] PolicyReport policy_report() const;
  // Checks everything (slow, for tests); the text says what is wrong.
  [[nodiscard]] Status verify() const;

 private:
  struct Body;
  explicit TierIndex(std::unique_ptr<Body> body);
  std::unique_ptr<Body> body_;
};

}  // namespace kvc
