// Whose an entry is, in which eviction class it stands and who goes, under every policy, against a
// slow twin that knows of hints and recency and nothing else. What may go at all is the matter of
// tier_index_property_test.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <utility>
#include <vector>

#include "plugin/coordinator/tests/tier_fixture.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

struct Seen {
  std::uint64_t expired = 0;       // entries
  std::uint64_t went_expired = 0;  // of them, evicted
  std::uint64_t went_low = 0;
  std::uint64_t went_high = 0;
  std::uint64_t outranked = 0;
  std::uint64_t stayed = 0;  // a use left its entry with a better owner
  std::uint64_t revived = 0;
  std::uint64_t inherited = 0;
  std::uint64_t resets = 0;
};

// What docs/hints.md says of requests and entries.
class Twin {
 public:
  struct Run {
    std::uint32_t priority = 0;  // as a class
    std::uint64_t ttl = 0;
    std::uint64_t deadline = 0;
    std::uint64_t used = 0;  // when, in events
    bool expired = false;
  };

  explicit Twin(Seen& seen) : seen_(seen) {}

  void open(RunId id, const Hint& hint) {
    runs_[id] = {static_cast<std::uint32_t>(1 + hint.priority - priority_least), hint.ttl_ns, 0, 0,
                 false};
    use(id);
  }
  void use(RunId id) {
    Run& run = runs_[id];
    run.used = ++events_;
    if (run.ttl == 0) return;
    seen_.revived += run.expired ? 1 : 0;
    run.deadline = clock_ + run.ttl;
    run.expired = false;
  }
  void tick(std::uint64_t now) {
    clock_ = now;
    for (auto& [id, run] : runs_) {
      if (run.ttl == 0 || run.expired || run.deadline > now) continue;
      run.expired = true;
      for (const auto& [slot, owner] : owners_) expired_ += owner == id ? 1 : 0;
    }
  }
  void own(SlotId slot, RunId id) { owners_[slot] = id; }
  void touch(SlotId slot, RunId user, bool unsupported) {
    if (class_of(owner(slot)) > class_of(user) && !unsupported) {
      ++seen_.stayed;
      return use(owner(slot));
    }
    own(slot, user);
  }
  // `child` goes; `parent` is published.
  void inherit(SlotId parent, SlotId child) {
    const RunId a = owner(child);
    const RunId b = owner(parent);
    if (a == b || !later(a, b)) return;
    own(parent, a);
    ++seen_.inherited;
  }
  void gone(SlotId slot) { owners_.erase(slot); }

  [[nodiscard]] RunId owner(SlotId slot) const { return owners_.at(slot); }
  [[nodiscard]] std::uint32_t class_of(RunId id) const {
    const Run& run = runs_.at(id);
    return run.expired ? 0 : run.priority;
  }
  // a goes later than b.
  [[nodiscard]] bool later(RunId a, RunId b) const {
    if (class_of(a) != class_of(b)) return class_of(a) > class_of(b);
    return runs_.at(a).used > runs_.at(b).used;
  }
  [[nodiscard]] const std::map<SlotId, RunId>& owners() const { return owners_; }
  [[nodiscard]] std::uint64_t expired() const { return expired_; }

 private:
  Seen& seen_;
  std::map<RunId, Run> runs_;  // of ids that were ever open
  std::map<SlotId, RunId> owners_;
  std::uint64_t clock_ = 0;
  std::uint64_t events_ = 0;
  std::uint64_t expired_ = 0;
};

constexpr std::uint32_t normal = 1 - priority_least;

// Threads: one user. Owns: index, twin, requests.
class World {
 public:
  World(std::uint64_t seed, Eviction eviction, bool states, Seen& seen)
      : rng_(seed),
        seen_(seen),
        eviction_(eviction),
        states_(states),
        tier_(states ? coarse_state : only_full, slots, 3, true, eviction),
        twin_(seen) {}

  void step() {
    const std::uint64_t dice = rng_.below(100);
    if (open_.empty() || (dice < 12 && open_.size() < 6)) {
      open();
    } else if (dice < 55) {
      store(draw(open_));
    } else if (dice < 68) {
      touch();
    } else if (dice < 76) {
      tier_.index.schedule(pick_run());
      twin_.use(picked_);
    } else if (dice < 84) {
      finish();
    } else if (dice < 90) {
      pin();
    } else if (dice < 95) {
      tick();
    } else if (dice < 99) {
      close();
    } else if (rng_.chance(1, 10)) {
      reset();
    }
    compare();
  }

 private:
  static constexpr std::uint64_t slots = 14;
  struct Request {
    RunId run;
    int path;
  };

  template <class T>
  T& draw(std::vector<T>& all) {
    return all[rng_.below(all.size())];
  }
  RunId pick_run() { return picked_ = draw(open_).run; }

  void open() {
    const RunId run = tier_.index.open_run();
    Hint hint;
    if (rng_.chance(2, 3)) {
      hint.priority = static_cast<std::int32_t>(rng_.below(5)) + priority_least;
      if (rng_.chance(1, 2)) hint.ttl_ns = rng_.between(1, 40);
      tier_.index.hint(run, hint);
    }
    twin_.open(run, hint);
    open_.push_back({run, static_cast<int>(rng_.below(3))});
  }
  void close() {
    const std::size_t i = rng_.below(open_.size());
    for (const SlotId slot : reserved_)
      if (twin_.owner(slot) == open_[i].run) return;  // its copies are open
    tier_.index.close_run(open_[i].run);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void tick() {
    clock_ += rng_.between(1, 25);
    tier_.index.tick(clock_);
    twin_.tick(clock_);
  }

  // The next block that the path lacks, or a state beside its last one.
  void store(const Request& r) {
    std::uint64_t end = 4;
    SlotId last = no_slot;
    SlotId found = no_slot;
    while (tier_.index.find_any(0, tier_.key(r.path, end), found) == Presence::published) {
      last = found;
      end += 4;
    }
    if (found != no_slot || end > 40) return;  // a copy of it is open
    GroupId group = 0;
    if (states_ && last != no_slot && rng_.chance(1, 2)) {
      if (tier_.index.find_any(1, tier_.key(r.path, end - 4), found) != Presence::absent) return;
      group = 1;
      end -= 4;
    }
    const Supports supports =
        tier_.index.hold_supports(group, tier_.path(r.path), Tokens{end}, r.run);
    const SlotId slot = room(r.run, group, tier_.key(r.path, end), end);
    if (slot == no_slot) return tier_.index.drop_supports(supports);
    tier_.index.reserve(slot, group, tier_.key(r.path, end), tier_.path(r.path), Tokens{end}, r.run,
                        supports);
    twin_.own(slot, r.run);
    if (group == 0 && rng_.chance(1, 6)) {
      reserved_.push_back(slot);
    } else {
      static_cast<void>(tier_.index.publish(slot, 0, tier_.told));
    }
  }
  SlotId room(RunId run, GroupId group, const std::byte* key, std::uint64_t end) {
    for (SlotId slot = 0; slot < slots; ++slot)
      if (tier_.index.state(slot) == EntryState::free) return slot;
    bool declined = false;
    const SlotId victim = tier_.index.victim(run, group, key, Tokens{end}, declined);
    check_victim(victim, run, declined);
    if (victim != no_slot) evict(victim);
    return victim;
  }
  void evict(SlotId slot) {
    if (!tier_.index.in_front(slot)) {
      const std::uint32_t cls = twin_.class_of(twin_.owner(slot));
      seen_.went_expired += cls == 0 ? 1 : 0;
      seen_.went_low += cls != 0 && cls < normal ? 1 : 0;
      seen_.went_high += cls > normal ? 1 : 0;
    }
    const SlotId parent = parent_of(slot);
    tier_.told.gone.clear();
    tier_.index.evict(slot, tier_.told);
    if (parent != no_slot) {
      twin_.inherit(parent, slot);
      BOOST_REQUIRE(tier_.index.eviction_class(parent) >= twin_.class_of(twin_.owner(slot)));
    }
    for (const SlotId gone : tier_.told.gone) twin_.gone(gone);
  }
  // Of an entry of the chain.
  SlotId parent_of(SlotId slot) const {
    if (tier_.index.key_of(slot).group != 0) return no_slot;
    return tier_.index.supports_of(slot).first;
  }

  void finish() {
    if (reserved_.empty()) return;
    const std::size_t i = rng_.below(reserved_.size());
    const SlotId slot = reserved_[i];
    reserved_.erase(reserved_.begin() + static_cast<std::ptrdiff_t>(i));
    if (rng_.chance(2, 3)) {
      static_cast<void>(tier_.index.publish(slot, 0, tier_.told));
    } else {
      const SlotId parent = parent_of(slot);
      tier_.index.fail(slot, tier_.told);
      if (parent != no_slot) twin_.inherit(parent, slot);
      twin_.gone(slot);
    }
  }

  void touch() {
    const SlotId slot = static_cast<SlotId>(rng_.below(slots));
    if (tier_.index.state(slot) != EntryState::published) return;
    const RunId run = pick_run();
    const bool unsupported = tier_.index.unsupported(slot);
    if (unsupported) return;  // who holds it is another twin's matter
    tier_.index.touch(slot, run);
    twin_.touch(slot, run, unsupported);
  }
  void pin() {
    const SlotId slot = static_cast<SlotId>(rng_.below(slots));
    if (!pinned_.empty() && rng_.chance(1, 2)) {
      tier_.index.unpin(pinned_.back(), PinKind::lease);
      pinned_.pop_back();
    } else if (tier_.index.state(slot) == EntryState::published && pinned_.size() < 3) {
      tier_.index.pin(slot, PinKind::lease);
      pinned_.push_back(slot);
    }
  }
  void reset() {
    for (; !pinned_.empty(); pinned_.pop_back()) tier_.index.unpin(pinned_.back(), PinKind::lease);
    tier_.index.reset(tier_.told);
    const std::map<SlotId, RunId> before = twin_.owners();
    for (const auto& [slot, owner] : before) twin_.gone(slot);
    for (const SlotId slot : reserved_) BOOST_REQUIRE(tier_.index.release(slot));
    reserved_.clear();
    ++seen_.resets;
  }

  // The entries that may go and stand nowhere else: the lowest class, and of it the run used
  // longest ago and its entry with the most tokens.
  struct Next {
    bool any = false;
    bool front = false;
    std::uint32_t cls = UINT32_MAX;
    RunId run = no_run;
    SlotId slot = no_slot;
  };
  [[nodiscard]] std::pair<Tokens, GroupId> rank(SlotId slot) const {
    const SlotKey key = tier_.index.key_of(slot);
    return {key.end, key.group};
  }
  [[nodiscard]] Next next() const {
    Next n;
    for (const auto& [slot, owner] : twin_.owners()) {
      if (tier_.index.state(slot) != EntryState::published || !tier_.index.evictable(slot))
        continue;
      if (tier_.index.in_front(slot)) {
        n.front = true;
        continue;
      }
      const bool first =
          !n.any || twin_.later(n.run, owner) || (n.run == owner && rank(slot) > rank(n.slot));
      n.any = true;
      if (!first) continue;
      n.cls = twin_.class_of(owner);
      n.run = owner;
      n.slot = slot;
    }
    return n;
  }
  void check_victim(SlotId victim, RunId run, bool declined) {
    const Next n = next();
    if (n.front) {
      BOOST_REQUIRE(victim != no_slot);
      BOOST_REQUIRE(tier_.index.in_front(victim));
      return;
    }
    if (!n.any) {
      BOOST_REQUIRE(victim == no_slot && !declined);
      return;
    }
    const bool ranked = eviction_ != Eviction::lru && n.cls == normal;  // by the policy
    const bool own = !ranked && run == n.run;
    const bool below = run != no_run && !own && twin_.class_of(run) < n.cls;
    if (below) {
      seen_.outranked += 1;
      BOOST_REQUIRE(victim == no_slot && declined);
    } else if (own) {
      BOOST_REQUIRE(victim == no_slot && !declined);
    } else if (!ranked) {
      BOOST_REQUIRE(victim != no_slot && !declined);
      // A run may have used blocks of two paths.
      BOOST_REQUIRE(twin_.owner(victim) == n.run);
      BOOST_REQUIRE(rank(victim) == rank(n.slot));
    } else if (victim == no_slot) {
      BOOST_REQUIRE(run != no_run);  // its own, or declined
    } else {
      BOOST_REQUIRE(twin_.class_of(twin_.owner(victim)) == normal);
    }
  }

  void compare() {
    bool same = true;
    for (const auto& [slot, owner] : twin_.owners()) {
      same = same && tier_.index.run_of(slot) == owner &&
             tier_.index.eviction_class(slot) == twin_.class_of(owner);
    }
    BOOST_REQUIRE(same);
    BOOST_REQUIRE(tier_.index.counters().expired == twin_.expired());
    check_victim(tier_.index.victim(no_run), no_run, false);
    if (++compared_ % 8 == 0) tier_.require_sound();
    seen_.expired = std::max(seen_.expired, twin_.expired());
  }

  Prng rng_;
  Seen& seen_;
  Eviction eviction_;
  bool states_;
  Tier tier_;
  Twin twin_;
  std::vector<Request> open_;
  std::vector<SlotId> reserved_;
  std::vector<SlotId> pinned_;
  std::uint64_t clock_ = 0;
  std::uint64_t compared_ = 0;
  RunId picked_ = no_run;
};

BOOST_AUTO_TEST_SUITE(tier_hints_property)

BOOST_AUTO_TEST_CASE(owners_classes_and_victims_are_those_of_the_twin) {
  for (const Eviction eviction : {Eviction::lru, Eviction::arc, Eviction::gdsf, Eviction::hazard}) {
    for (const bool states : {false, true}) {
      Seen seen;
      for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        if (only_seed().value_or(seed) != seed) continue;
        BOOST_TEST_CONTEXT(name_of(eviction)
                           << (states ? ", states; " : "; ") << repeat_command(seed)) {
          World world(seed, eviction, states, seen);
          for (int i = 0; i < 600; ++i) world.step();
        }
      }
      if (only_seed()) continue;
      BOOST_TEST_CONTEXT(name_of(eviction) << (states ? ", states" : "")) {
        for (const std::uint64_t count :
             {seen.expired, seen.went_expired, seen.went_low, seen.went_high, seen.outranked,
              seen.stayed, seen.revived, seen.inherited, seen.resets}) {
          BOOST_TEST(count > 0U);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
