// Every decision of the eviction policies against their slow twins, through TierIndex: requests
// that overlap, copies that fail, pins, bad entries and resets; and the vectors of O-251.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <set>

#include "plugin/coordinator/tests/policy_twin.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

constexpr Tokens block{512};
constexpr std::uint32_t key_bytes = 8;

Geometry one_group() {
  GeometryOptions o;
  o.groups = {group_spec(GroupKind::full, block)};
  o.hash_unit = o.scheduler_block = block;
  return std::move(Geometry::make(std::move(o))).value();
}

struct Seen {
  std::uint64_t evicted = 0;
  std::uint64_t declined = 0;
  std::uint64_t nobody = 0;
  std::uint64_t returned = 0;  // stored again after an eviction
  std::uint64_t failed = 0;
  std::uint64_t landed = 0;
  std::uint64_t bad = 0;
  std::uint64_t resets = 0;
  std::uint64_t classes = 0;
  std::uint64_t refreshes = 0;
};

// Threads: one user. Owns: index, twin and requests.
class World final : private TierSink {
 public:
  World(std::uint64_t seed, Eviction eviction, Seen& seen)
      : rng_(seed),
        seen_(seen),
        slots_(rng_.between(4, 60)),
        more_(rng_.below(3) * 20),
        geometry_(one_group()),
        index_(std::move(TierIndex::make(geometry_, {.key_bytes = key_bytes,
                                                     .slots = slots_,
                                                     .open_runs = 4,
                                                     .eviction = eviction,
                                                     .path_max = Tokens{1U << 20U},
                                                     .ghosts_more = more_}))
                   .value()),
        twin_(make_policy_twin(
            eviction, {slots_, more_, block.n},
            {[this](SlotId s) { return index_.evictable(s) && !index_.in_front(s); },
             [this](SlotId s) { return index_.in_front(s); },
             [this](SlotId s) { return index_.run_of(s); }})) {
    for (SlotId s = 0; s < slots_; ++s) free_.push_back(s);
  }

  void step() {
    const std::uint64_t dice = rng_.below(1000);
    if (open_.empty() || (dice < 100 && open_.size() < 4)) {
      begin();
    } else if (dice < 850) {
      advance(open_[rng_.below(open_.size())]);
    } else if (dice < 900) {
      finish(rng_.below(open_.size()));
    } else if (dice < 985) {
      pin();
    } else if (dice < 999) {
      spoil();
    } else if (rng_.chance(1, 20)) {
      reset();
    }
    twin_->settle();
    if (++steps_ % 16 == 0) verify();
  }
  void verify() {
    const Status s = index_.verify();
    BOOST_REQUIRE_MESSAGE(s.ok(), s.text);
  }
  void note_numbers() {
    seen_.classes += index_.policy().classes;
    seen_.refreshes += index_.policy().refreshes;
  }

 private:
  struct Request {
    RunId run = no_run;
    std::vector<TwinKey> path;  // keys of its blocks
    std::uint64_t prompt = 0;   // tokens
    std::uint64_t next = 0;     // block to be offered
    std::vector<SlotId> copies;
  };

  // A path out of few: heads are shared, prompts continue earlier ones.
  std::vector<TwinKey> draw_path() {
    std::vector<TwinKey> path;
    if (!history_.empty() && rng_.chance(4, 5)) {
      path = history_[rng_.below(history_.size())];
      if (rng_.chance(1, 3)) path.resize(rng_.below(path.size() + 1));
    }
    for (std::uint64_t more = rng_.below(4); more > 0 || path.empty(); more -= more > 0 ? 1 : 0)
      path.push_back(extend(path));
    if (path.size() > 24) path.resize(24);
    return path;
  }
  TwinKey extend(const std::vector<TwinKey>& path) {
    Prng mix((path.empty() ? 17 : path.back()) * 31 + rng_.below(5));
    return mix.next();
  }
  KeyView view(const Request& r) const {
    return {reinterpret_cast<const std::byte*>(r.path.data()), key_bytes, r.path.size()};
  }
  static const std::byte* bytes(const TwinKey& key) {
    return reinterpret_cast<const std::byte*>(&key);
  }

  void begin() {
    Request r;
    r.path = draw_path();
    r.prompt = r.path.size() * block.n + rng_.below(2) * rng_.below(block.n);
    static_cast<void>(index_.maintain());
    twin_->maintain();
    r.run = index_.open_run();
    index_.begin_request(r.run, view(r), Tokens{r.prompt});
    twin_->begin(r.run, r.path, r.prompt);
    index_.schedule(r.run);
    history_.push_back(r.path);
    if (history_.size() > 30) history_.erase(history_.begin());
    open_.push_back(std::move(r));
  }

  // Offers the next block, or ends a copy.
  void advance(Request& r) {
    if (!r.copies.empty() && rng_.chance(1, 2)) return end_copy(r);
    if (r.next == r.path.size()) {
      if (r.path.size() < 30 && rng_.chance(1, 3)) r.path.push_back(extend(r.path));  // an answer
      return;
    }
    const TwinKey key = r.path[r.next];
    SlotId there = no_slot;
    switch (index_.find_any(0, bytes(key), there)) {
      case Presence::published:
        ++r.next;
        return use(there, r);
      case Presence::reserved:
        ++r.next;
        return;
      case Presence::absent:
        break;
    }
    if (there != no_slot) return rewrite(there, r);
    store(key, r);
  }
  void use(SlotId slot, Request& r) {
    const bool other = index_.run_of(slot) != r.run;
    index_.touch(slot, r.run);
    if (other) twin_->touched(slot, r.run);
    index_.hold_path(r.run, slot);
  }
  void rewrite(SlotId slot, Request& r) {
    if (index_.pins(slot) != 0) return;
    index_.rewrite(slot);
    const bool other = index_.run_of(slot) != r.run;
    index_.touch(slot, r.run);
    if (other) twin_->touched(slot, r.run);
    twin_->settle();
    rewriting_ = slot;
    static_cast<void>(index_.publish(slot, 0, *this));
    rewriting_ = no_slot;
    ++r.next;
  }
  void store(TwinKey key, Request& r) {
    const Tokens end = block * (r.next + 1);
    const Supports supports = index_.hold_supports(0, view(r), end, r.run);
    if (supports.no_parent) {
      r.next -= r.next > 0 ? 1 : 0;
      return;
    }
    twin_->settle();
    const SlotId slot = room(key, end, r.run);
    if (slot == no_slot) return index_.drop_supports(supports);
    seen_.returned += gone_.erase(key);
    index_.reserve(slot, 0, bytes(key), view(r), end, r.run, supports);
    twin_->reserved(slot, key, end.n, r.run);
    r.copies.push_back(slot);
    ++r.next;
  }
  SlotId room(TwinKey key, Tokens end, RunId run) {
    if (free_.empty()) {
      if (index_.counters().in_front == 0) compare_victim(key, end, run);
      bool declined = false;
      const SlotId victim = index_.victim(run, 0, bytes(key), end, declined);
      if (victim == no_slot) return no_slot;
      index_.evict(victim, *this);
      twin_->settle();
      ++seen_.evicted;
    }
    const SlotId slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void compare_victim(TwinKey key, Tokens end, RunId run) {
    const TwinChoice want = twin_->victim(run, key, end.n);
    bool declined = false;
    const SlotId victim = index_.victim(run, 0, bytes(key), end, declined);
    BOOST_REQUIRE_MESSAGE(victim == want.slot && declined == want.declined,
                          fmt::format("step {}: the index names {} (declined: {}), the twin {} "
                                      "(declined: {})",
                                      steps_, victim, declined, want.slot, want.declined));
    seen_.declined += declined;
    seen_.nobody += victim == no_slot && !declined;
  }
  void end_copy(Request& r) {
    const SlotId slot = r.copies.back();
    r.copies.pop_back();
    if (index_.state(slot) != EntryState::reserved) {
      if (index_.state(slot) == EntryState::doomed_reserved && index_.release(slot))
        free_.push_back(slot);
      return;
    }
    if (rng_.chance(1, 20)) {
      index_.fail(slot, *this);  // what hangs on it goes first
      twin_->gone(slot, false);
      free_.push_back(slot);
      r.next = 0;
      ++seen_.failed;
    } else if (!index_.publish(slot, 0, *this)) {
      ++seen_.landed;
    }
  }
  void finish(std::size_t at) {
    Request& r = open_[at];
    while (!r.copies.empty()) {
      end_copy(r);
      twin_->settle();
    }
    const std::uint64_t answer = rng_.below(200);
    index_.end_request(r.run, view(r), Tokens{answer});
    twin_->end(r.run, r.path, answer);
    index_.release_path(r.run);
    index_.close_run(r.run);
    history_.push_back(r.path);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void pin() {
    if (!pinned_.empty() && rng_.chance(1, 2)) {
      const SlotId slot = pinned_.back();
      pinned_.pop_back();
      if (index_.unpin(slot, PinKind::lease)) free_.push_back(slot);
      return;
    }
    const auto slot = static_cast<SlotId>(rng_.below(slots_));
    if (pinned_.size() > 3 || index_.state(slot) != EntryState::published) return;
    index_.pin(slot, PinKind::lease);
    pinned_.push_back(slot);
  }
  void spoil() {
    const auto slot = static_cast<SlotId>(rng_.below(slots_));
    if (index_.state(slot) != EntryState::published || index_.bad(slot)) return;
    index_.mark_bad(slot);
    ++seen_.bad;
  }
  void reset() {
    for (const SlotId slot : pinned_) static_cast<void>(index_.unpin(slot, PinKind::lease));
    pinned_.clear();
    twin_->reset();
    resetting_ = true;
    index_.reset(*this);
    resetting_ = false;
    for (Request& r : open_) r.next = 0;
    ++seen_.resets;
  }

  void evicted(SlotId slot, const SlotKey& key, bool /*bad*/) override {
    free_.push_back(slot);
    TwinKey name = 0;
    std::memcpy(&name, key.key, sizeof name);
    if (gone_.size() < 10'000) gone_.insert(name);
    if (!resetting_) twin_->gone(slot, true);
  }
  void published(SlotId slot, std::uint32_t /*tag*/) override {
    if (slot != rewriting_) twin_->published(slot);
  }
  void failed(SlotId slot, std::uint32_t /*tag*/, bool copy_open) override {
    if (!resetting_) twin_->gone(slot, false);
    if (!copy_open) free_.push_back(slot);
  }

  Prng rng_;
  Seen& seen_;
  std::uint64_t slots_;
  std::uint64_t more_;
  Geometry geometry_;
  TierIndex index_;
  std::unique_ptr<PolicyTwin> twin_;
  std::vector<SlotId> free_;
  std::vector<Request> open_;
  std::vector<std::vector<TwinKey>> history_;
  std::vector<SlotId> pinned_;
  std::set<TwinKey> gone_;
  SlotId rewriting_ = no_slot;  // was published before
  bool resetting_ = false;
  std::uint64_t steps_ = 0;
};

void run_worlds(Eviction eviction, std::uint64_t worlds, std::uint64_t steps, Seen& seen) {
  const std::uint64_t first = seed_or(20261130);
  const std::uint64_t count = only_seed() ? 1 : worlds;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT(repeat_command(seed)) {
      World world(seed, eviction, seen);
      for (std::uint64_t i = 0; i < steps; ++i) world.step();
      world.verify();
      world.note_numbers();
    }
  }
}

void require_all(const Seen& seen) {
  if (only_seed()) return;
  BOOST_TEST(seen.evicted > 0U);
  BOOST_TEST(seen.nobody > 0U);
  BOOST_TEST(seen.returned > 0U);
  BOOST_TEST(seen.failed > 0U);
  BOOST_TEST(seen.landed > 0U);
  BOOST_TEST(seen.bad > 0U);
  BOOST_TEST(seen.resets > 0U);
}

BOOST_AUTO_TEST_SUITE(policies)

BOOST_AUTO_TEST_CASE(arc_decides_as_its_twin_does) {
  Seen seen;
  run_worlds(Eviction::arc, 40, 4000, seen);
  require_all(seen);
  BOOST_TEST(seen.declined == 0U);
}

BOOST_AUTO_TEST_CASE(gdsf_decides_as_its_twin_does) {
  Seen seen;
  run_worlds(Eviction::gdsf, 40, 4000, seen);
  require_all(seen);
  BOOST_TEST(seen.declined == 0U);
}

BOOST_AUTO_TEST_CASE(auto_decides_as_its_twin_does) {
  Seen seen;
  run_worlds(Eviction::hazard, 40, 8000, seen);
  require_all(seen);
  if (only_seed()) return;
  BOOST_TEST(seen.declined > 0U);
  BOOST_TEST(seen.classes > 40U * 10U);
  BOOST_TEST(seen.refreshes > 40U * 2U);
}

// O-251 as far as it goes with one block a request: there keys are not of one path.
class Vector {
 public:
  Vector()
      : geometry_(one_group()),
        index_(std::move(TierIndex::make(geometry_, {.key_bytes = key_bytes,
                                                     .slots = 2,
                                                     .open_runs = 2,
                                                     .eviction = Eviction::arc}))
                   .value()) {}
  void request(TwinKey key) {
    const auto* at = reinterpret_cast<const std::byte*>(&key);
    const KeyView path{at, key_bytes, 1};
    const RunId run = index_.open_run();
    index_.begin_request(run, path, block);
    index_.schedule(run);
    SlotId slot = index_.find(0, at);
    if (slot != no_slot) {
      index_.touch(slot, run);
    } else {
      const Supports supports = index_.hold_supports(0, path, block, run);
      slot = used_ < 2 ? used_++ : no_slot;
      if (slot == no_slot) {
        slot = index_.victim(run);
        index_.evict(slot, sink_);
      }
      index_.reserve(slot, 0, at, path, block, run, supports);
      static_cast<void>(index_.publish(slot, 0, sink_));
    }
    index_.end_request(run, path, Tokens{1});
    index_.close_run(run);
    BOOST_TEST(index_.verify().ok());
  }
  [[nodiscard]] std::set<TwinKey> held() const {
    std::set<TwinKey> out;
    for (TwinKey key = 1; key < 10; ++key)
      if (index_.find(0, reinterpret_cast<const std::byte*>(&key)) != no_slot) out.insert(key);
    return out;
  }
  [[nodiscard]] std::uint64_t target() const { return index_.policy().target; }

 private:
  class Ignore final : public TierSink {
    void evicted(SlotId /*slot*/, const SlotKey& /*key*/, bool /*bad*/) override {}
    void published(SlotId /*slot*/, std::uint32_t /*tag*/) override {}
    void failed(SlotId /*slot*/, std::uint32_t /*tag*/, bool /*open*/) override {}
  };
  Geometry geometry_;
  TierIndex index_;
  Ignore sink_;
  SlotId used_ = 0;
};

BOOST_AUTO_TEST_CASE(arc_gives_the_answers_of_vector_arc_1) {
  using Keys = std::set<TwinKey>;
  Vector v;
  const auto after = [&](std::vector<TwinKey> keys, const Keys& held, std::uint64_t target) {
    for (const TwinKey key : keys) v.request(key);
    BOOST_TEST((v.held() == held));
    BOOST_TEST(v.target() == target);
  };
  after({2, 1}, {1, 2}, 0);
  after({1}, {1, 2}, 0);
  after({3}, {1, 3}, 0);
  after({2}, {1, 2}, 1);
  after({4, 1}, {1, 4}, 1);
  after({3}, {3, 4}, 2);
  after({1}, {1, 3}, 1);
}

BOOST_AUTO_TEST_CASE(a_policy_needs_a_chain) {
  const Geometry geometry = one_group();
  for (const Eviction e : {Eviction::arc, Eviction::gdsf, Eviction::hazard}) {
    const auto made = TierIndex::make(geometry, {.slots = 4, .chained = false, .eviction = e});
    BOOST_TEST(!made.ok());
    BOOST_TEST((made.error().code == Code::arg));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
