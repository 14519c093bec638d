// Every decision of "auto" over whole boundaries against its slow twin, through TierIndex: requests
// that overlap, boundaries inside blocks and at their ends, copies that fail, pins, bad entries,
// resets.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "plugin/coordinator/tests/boundary_twin.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

constexpr std::uint64_t unit = 16;
constexpr std::uint64_t block = 64;
constexpr std::uint64_t per = block / unit;
constexpr std::uint32_t key_bytes = 8;

Geometry layout(std::uint64_t states) {
  GeometryOptions o;
  o.groups = {group_spec(GroupKind::full, Tokens{block})};
  for (std::uint64_t i = 0; i < states; ++i)
    o.groups.push_back(group_spec(GroupKind::state, Tokens{block}));
  o.hash_unit = Tokens{unit};
  o.scheduler_block = Tokens{block};
  return std::move(Geometry::make(std::move(o))).value();
}

struct Seen {
  std::uint64_t evicted = 0;
  std::uint64_t declined = 0;
  std::uint64_t nobody = 0;
  std::uint64_t failed = 0;
  std::uint64_t bad = 0;
  std::uint64_t resets = 0;
  std::uint64_t whole = 0;    // boundaries stored
  std::uint64_t refused = 0;  // boundaries of which not all could be
  std::uint64_t classes = 0;
  std::uint64_t refreshes = 0;
};

// Threads: one user. Owns: index, twin and requests.
class World final : private TierSink {
 public:
  World(std::uint64_t seed, Seen& seen)
      : rng_(seed),
        seen_(seen),
        states_(rng_.between(1, 3)),
        slots_(rng_.between(8, 80)),
        more_(rng_.below(3) * 20),
        geometry_(layout(states_)),
        index_(std::move(TierIndex::make(geometry_, {.key_bytes = key_bytes,
                                                     .slots = slots_,
                                                     .open_runs = 4,
                                                     .eviction = Eviction::hazard,
                                                     .path_max = Tokens{1U << 20U},
                                                     .ghosts_more = more_}))
                   .value()),
        twin_({slots_, more_, block, unit, states_},
              {[this](SlotId s) { return index_.evictable(s) && !index_.in_front(s); },
               [this](SlotId s) { return index_.in_front(s); },
               [this](SlotId s) { return index_.run_of(s); }}) {
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
    twin_.settle();
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
    std::vector<TwinKey> path;  // keys of its hash units
    std::uint64_t prompt = 0;   // tokens
    std::uint64_t next = 0;     // block to be offered
    std::vector<SlotId> copies;
  };

  std::vector<TwinKey> draw_path() {
    std::vector<TwinKey> path;
    if (!history_.empty() && rng_.chance(4, 5)) {
      path = history_[rng_.below(history_.size())];
      if (rng_.chance(1, 3)) path.resize(rng_.below(path.size() + 1));
    }
    for (std::uint64_t more = rng_.below(14); more > 0 || path.empty(); more -= more > 0 ? 1 : 0)
      path.push_back(extend(path));
    if (path.size() > 60) path.resize(60);
    return path;
  }
  TwinKey extend(const std::vector<TwinKey>& path) {
    Prng mix((path.empty() ? 17 : path.back()) * 31 + rng_.below(3));
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
    r.prompt = r.path.size() * unit + rng_.below(2) * rng_.below(unit);
    static_cast<void>(index_.maintain());
    twin_.maintain();
    r.run = index_.open_run();
    index_.begin_request(r.run, view(r), Tokens{r.prompt});
    twin_.begin(r.run, r.path, r.prompt, geometry_.prompt_tail_boundary(1, Tokens{r.prompt}).n);
    index_.schedule(r.run);
    history_.push_back(r.path);
    if (history_.size() > 30) history_.erase(history_.begin());
    open_.push_back(std::move(r));
  }

  // Offers the next block, or a boundary, or ends a copy.
  void advance(Request& r) {
    if (!r.copies.empty() && rng_.chance(1, 2)) return end_copy(r);
    if (rng_.chance(1, 3)) return offer_boundary(r);
    if (r.next == r.path.size() / per) {
      if (r.path.size() < 70 && rng_.chance(1, 3)) r.path.push_back(extend(r.path));  // an answer
      return;
    }
    switch (offer(r, 0, block * (r.next + 1))) {
      case Offer::here:
        ++r.next;
        return;
      case Offer::stored:
        r.copies.push_back(offered_);
        ++r.next;
        return;
      case Offer::no_parent:
        r.next -= r.next > 0 ? 1 : 0;
        return;
      case Offer::refused:
        return;
    }
  }
  // All or none.
  void offer_boundary(Request& r) {
    std::uint64_t units = rng_.between(1, r.path.size());
    const std::uint64_t tail = geometry_.prompt_tail_boundary(1, Tokens{r.prompt}).n / unit;
    if (rng_.chance(1, 2) && tail != 0) units = tail;
    if (rng_.chance(1, 3)) units = std::max(per, units / per * per);
    if (units > r.path.size()) return;
    // Mostly of what is stored already.
    if (units > (r.next + 1) * per && !rng_.chance(1, 10)) return;
    const std::uint64_t end = units * unit;
    std::vector<SlotId> made;
    bool all = true;
    for (GroupId g = end % block != 0 ? 0 : 1; g <= states_ && all; ++g) {
      const Offer answer = offer(r, g, end);
      if (answer == Offer::stored) made.push_back(offered_);
      all = answer == Offer::stored || answer == Offer::here;
      twin_.settle();
    }
    seen_.whole += all && !made.empty();
    seen_.refused += !all && !made.empty();
    for (const SlotId slot : made) {
      if (all) {
        r.copies.push_back(slot);
        continue;
      }
      index_.fail(slot, *this);
      twin_.gone(slot);
      free_.push_back(slot);
      twin_.settle();
    }
  }
  enum class Offer { here, stored, no_parent, refused };
  Offer offer(Request& r, GroupId group, std::uint64_t end) {
    const TwinKey key = r.path[end / unit - 1];
    SlotId there = no_slot;
    switch (index_.find_any(group, bytes(key), there)) {
      case Presence::published:
        index_.meet(there, view(r));
        index_.touch(there, r.run);
        index_.hold_path(r.run, there);
        return Offer::here;
      case Presence::reserved:
        return Offer::here;
      case Presence::absent:
        break;
    }
    if (there != no_slot) return Offer::refused;  // bad
    const Supports supports = index_.hold_supports(group, view(r), Tokens{end}, r.run);
    if (supports.no_parent) return Offer::no_parent;
    twin_.settle();
    const SlotId slot = room(r.run, group, key, end);
    if (slot == no_slot) {
      index_.drop_supports(supports);
      return Offer::refused;
    }
    index_.reserve(slot, group, bytes(key), view(r), Tokens{end}, r.run, supports);
    twin_.reserved(slot, group, key, end, r.run);
    offered_ = slot;
    return Offer::stored;
  }
  SlotId room(RunId run, GroupId group, TwinKey key, std::uint64_t end) {
    if (free_.empty()) {
      if (index_.counters().in_front == 0) compare_victim(run, group, key, end);
      bool declined = false;
      const SlotId victim = index_.victim(run, group, bytes(key), Tokens{end}, declined);
      if (victim == no_slot) return no_slot;
      index_.evict(victim, *this);
      twin_.settle();
      ++seen_.evicted;
    }
    const SlotId slot = free_.back();
    free_.pop_back();
    return slot;
  }
  [[nodiscard]] std::pair<std::uint64_t, TwinKey> name(SlotId slot) const {
    if (slot == no_slot) return {0, 0};
    const SlotKey k = index_.key_of(slot);
    TwinKey key = 0;
    std::memcpy(&key, k.key, sizeof key);
    return {k.end.n, key};
  }
  // Which of a boundary's entries goes first makes no difference.
  void compare_victim(RunId run, GroupId group, TwinKey key, std::uint64_t end) {
    const TwinChoice want = twin_.victim(run, group, key, end);
    bool declined = false;
    const SlotId victim = index_.victim(run, group, bytes(key), Tokens{end}, declined);
    BOOST_REQUIRE_MESSAGE(name(victim) == name(want.slot) && declined == want.declined,
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
      twin_.gone(slot);
      free_.push_back(slot);
      r.next = 0;
      ++seen_.failed;
    } else {
      static_cast<void>(index_.publish(slot, 0, *this));
    }
    twin_.settle();
  }
  void finish(std::size_t at) {
    Request& r = open_[at];
    while (!r.copies.empty()) end_copy(r);
    const std::uint64_t answer = rng_.below(200);
    index_.end_request(r.run, view(r), Tokens{answer});
    twin_.end(r.run, r.path, answer);
    index_.release_path(r.run);
    twin_.settle();
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
    twin_.reset();
    resetting_ = true;
    index_.reset(*this);
    resetting_ = false;
    for (Request& r : open_) r.next = 0;
    ++seen_.resets;
  }

  void evicted(SlotId slot, const SlotKey& /*key*/, bool /*bad*/) override {
    free_.push_back(slot);
    if (!resetting_) twin_.gone(slot);
  }
  void published(SlotId slot, std::uint32_t /*tag*/) override { twin_.published(slot); }
  void failed(SlotId slot, std::uint32_t /*tag*/, bool copy_open) override {
    if (!resetting_) twin_.gone(slot);
    if (!copy_open) free_.push_back(slot);
  }

  Prng rng_;
  Seen& seen_;
  std::uint64_t states_;
  std::uint64_t slots_;
  std::uint64_t more_;
  Geometry geometry_;
  TierIndex index_;
  BoundaryTwin twin_;
  std::vector<SlotId> free_;
  std::vector<Request> open_;
  std::vector<std::vector<TwinKey>> history_;
  std::vector<SlotId> pinned_;
  SlotId offered_ = no_slot;
  bool resetting_ = false;
  std::uint64_t steps_ = 0;
};

BOOST_AUTO_TEST_SUITE(boundaries)

BOOST_AUTO_TEST_CASE(whole_boundaries_go_as_their_twin_says) {
  Seen seen;
  const std::uint64_t first = seed_or(20261130);
  const std::uint64_t count = only_seed() ? 1 : 60;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    BOOST_TEST_CONTEXT(repeat_command(seed)) {
      World world(seed, seen);
      for (std::uint64_t i = 0; i < 6000; ++i) world.step();
      world.verify();
      world.note_numbers();
    }
  }
  if (only_seed()) return;
  BOOST_TEST(seen.evicted > 0U);
  BOOST_TEST(seen.declined > 0U);
  BOOST_TEST(seen.nobody > 0U);
  BOOST_TEST(seen.failed > 0U);
  BOOST_TEST(seen.bad > 0U);
  BOOST_TEST(seen.resets > 0U);
  BOOST_TEST(seen.whole > 0U);
  BOOST_TEST(seen.refused > 0U);
  BOOST_TEST(seen.classes > 60U * 5U);
  BOOST_TEST(seen.refreshes > 60U * 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
