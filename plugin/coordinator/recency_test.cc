#include "plugin/coordinator/recency.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <list>
#include <map>

#include "plugin/coordinator/test_support.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

Recency make_recency(std::uint64_t slots, std::uint64_t open_runs = 8) {
  return std::move(Recency::make({slots, open_runs})).value();
}

// Evicts the victim for a store of `run`; no_slot if there is none.
SlotId evict(Recency& r, RunId run) {
  const SlotId s = r.victim(run);
  if (s != no_slot) r.remove(s);
  return s;
}

// One request's path of `n` blocks of 16 tokens in slots first, first + 1, ...
RunId path(Recency& r, SlotId first, std::uint32_t n) {
  const RunId run = r.open_run();
  for (std::uint32_t i = 0; i < n; ++i) r.add(run, first + i, 0, {16 * (i + 1)});
  return run;
}

BOOST_AUTO_TEST_SUITE(recency)

BOOST_AUTO_TEST_CASE(one_later_store_takes_the_tail_of_a_prefix_not_its_head) {
  Recency r = make_recency(4);  // T-3, CW-2: after a plain finish
  r.close_run(path(r, 0, 4));
  const RunId b = r.open_run();
  BOOST_TEST(evict(r, b) == 3u);
  r.add(b, 3, 0, {16});
  BOOST_TEST(evict(r, b) == 2u);
  BOOST_TEST(r.verify().ok());
}

BOOST_AUTO_TEST_CASE(a_prefix_released_in_any_order_loses_its_tail_first) {
  std::vector<SlotId> order{0, 1, 2, 3};
  do {  // CW-2: pin release and load cleanup, whatever the order of the holds
    Recency r = make_recency(4);
    const RunId a = path(r, 0, 4);
    for (SlotId s = 0; s < 4; ++s) r.pin(s);
    r.close_run(a);
    const RunId b = r.open_run();
    BOOST_TEST(r.victim(b) == no_slot);
    BOOST_TEST(r.evictable() == 0u);
    for (const SlotId s : order) r.unpin(s);
    BOOST_TEST(r.verify().ok());
    for (const SlotId want : {3u, 2u, 1u, 0u}) BOOST_TEST(evict(r, b) == want);
    BOOST_TEST(r.runs() == 1u);
  } while (std::next_permutation(order.begin(), order.end()));
}

BOOST_AUTO_TEST_CASE(a_hit_moves_the_entries_it_used_to_the_newest_run) {
  Recency r = make_recency(8);
  r.close_run(path(r, 0, 4));
  r.close_run(path(r, 4, 2));
  const RunId c = r.open_run();
  for (const SlotId s : {0u, 1u}) r.touch(c, s);
  const RunId d = r.open_run();
  // First what is left of the oldest run, deepest first, then the second, then what the hit used.
  for (const SlotId want : {3u, 2u, 5u, 4u, 1u, 0u}) BOOST_TEST(evict(r, d) == want);
  BOOST_TEST(evict(r, d) == no_slot);
}

BOOST_AUTO_TEST_CASE(scheduling_makes_a_run_the_newest) {
  Recency r = make_recency(8);
  const RunId a = path(r, 0, 2);
  path(r, 2, 2);
  r.schedule(a);
  const RunId c = r.open_run();
  BOOST_TEST(evict(r, c) == 3u);
  BOOST_TEST(evict(r, c) == 2u);
  BOOST_TEST(evict(r, c) == 1u);
}

BOOST_AUTO_TEST_CASE(a_store_never_evicts_its_own_ancestors) {
  Recency r = make_recency(4);
  const RunId a = path(r, 0, 4);
  BOOST_TEST(r.victim(a) == no_slot);
  BOOST_TEST(r.victim(no_run) == 3u);
  const RunId b = r.open_run();
  r.touch(b, 3);
  BOOST_TEST(r.victim(a) == no_slot);  // a is the oldest: nothing for it, although b is newer
  BOOST_TEST(r.victim(b) == 2u);
}

BOOST_AUTO_TEST_CASE(deeper_goes_first_over_all_groups_and_ties_go_to_the_higher_group) {
  Recency r = make_recency(8);
  const RunId a = r.open_run();
  r.add(a, 0, 0, {16});
  r.add(a, 1, 0, {32});
  r.add(a, 2, 1, {32});
  r.add(a, 3, 2, {24});
  r.close_run(a);
  for (const SlotId want : {2u, 1u, 3u, 0u}) BOOST_TEST(evict(r, no_run) == want);
}

BOOST_AUTO_TEST_CASE(pins_add_and_the_last_unpin_brings_the_entry_back) {
  Recency r = make_recency(4);
  path(r, 0, 2);
  r.pin(1);
  r.pin(1);
  BOOST_TEST(r.victim(no_run) == 0u);
  r.unpin(1);
  BOOST_TEST(r.pins(1) == 1u);
  BOOST_TEST(r.victim(no_run) == 0u);
  r.unpin(1);
  BOOST_TEST(r.victim(no_run) == 1u);
}

BOOST_AUTO_TEST_CASE(a_pinned_entry_keeps_its_place_in_the_run_it_was_used_by_last) {
  Recency r = make_recency(8);
  r.close_run(path(r, 0, 2));
  r.pin(0);
  r.pin(1);
  r.close_run(path(r, 2, 1));
  const RunId c = r.open_run();
  r.touch(c, 1);  // pinned, used by c now
  r.close_run(c);
  r.unpin(1);
  r.unpin(0);
  const RunId d = r.open_run();
  for (const SlotId want : {0u, 2u, 1u}) BOOST_TEST(evict(r, d) == want);
}

BOOST_AUTO_TEST_CASE(open_runs_are_limited_and_closed_empty_runs_are_gone) {
  Recency r = make_recency(4, 2);
  const RunId a = r.open_run();
  const RunId b = r.open_run();
  BOOST_TEST(r.open_run() == no_run);
  r.add(a, 0, 0, {16});
  r.close_run(a);
  r.close_run(b);
  BOOST_TEST(r.runs() == 1u);
  r.remove(0);
  BOOST_TEST(r.runs() == 0u);
  BOOST_TEST(r.open_run() != no_run);
  BOOST_TEST(r.verify().ok());
}

BOOST_AUTO_TEST_CASE(clearing_forgets_entries_but_not_open_runs) {
  Recency r = make_recency(4);
  const RunId a = path(r, 0, 3);
  r.pin(1);
  r.clear();
  BOOST_TEST(r.entries() == 0u);
  BOOST_TEST(r.evictable() == 0u);
  BOOST_TEST(!r.contains(1));
  r.add(a, 1, 0, {16});
  BOOST_TEST(r.verify().ok());
  BOOST_TEST(r.victim(no_run) == 1u);
}

BOOST_AUTO_TEST_CASE(wrong_calls_are_broken_invariants_of_the_caller) {
#if !defined(KVC_ABORT_ON_CHECK)
  Recency r = make_recency(4);
  const RunId a = path(r, 0, 1);
  BOOST_CHECK_THROW(r.add(a, 0, 0, {16}), BrokenInvariant);
  BOOST_CHECK_THROW(r.add(a, 4, 0, {16}), BrokenInvariant);
  BOOST_CHECK_THROW(r.unpin(0), BrokenInvariant);
  BOOST_CHECK_THROW(r.touch(a, 2), BrokenInvariant);
  r.pin(0);
  BOOST_CHECK_THROW(r.remove(0), BrokenInvariant);
  r.unpin(0);
  r.close_run(a);
  BOOST_CHECK_THROW(r.touch(a, 0), BrokenInvariant);
  BOOST_CHECK_THROW(r.schedule(a), BrokenInvariant);
  BOOST_TEST(!Recency::make({std::uint64_t{1} << 31, 1}).ok());
#endif
}

// The slow twin: runs as a list of stamps, entries as a map; the victim by looking at everything.
struct Twin {
  struct One {
    RunId run;
    GroupId group;
    std::uint64_t end;
    std::uint32_t pins = 0;
  };
  std::map<RunId, std::uint64_t> stamp;
  std::map<SlotId, One> all;
  std::uint64_t now = 0;

  [[nodiscard]] SlotId victim(RunId store_run) const {
    RunId oldest = no_run;
    for (const auto& [slot, one] : all)
      if (one.pins == 0 && (oldest == no_run || stamp.at(one.run) < stamp.at(oldest)))
        oldest = one.run;
    if (oldest == no_run || oldest == store_run) return no_slot;
    SlotId best = no_slot;
    for (const auto& [slot, one] : all) {
      if (one.run != oldest || one.pins != 0) continue;
      if (best == no_slot ||
          std::pair(one.end, one.group) > std::pair(all.at(best).end, all.at(best).group))
        best = slot;
    }
    return best;
  }
};

struct World {
  static constexpr SlotId slots = 24;
  Recency r = make_recency(slots, 5);
  Twin twin;
  std::vector<RunId> open;
  Prng rng;
  std::uint64_t serial = 0;  // ends are distinct, so that the victim is

  explicit World(std::uint64_t s) : rng(s) {}
  RunId any_open() { return open[rng.below(open.size())]; }
  void add(SlotId slot) {
    if (open.empty() || twin.all.count(slot) != 0) return;
    const RunId run = any_open();
    const auto g = static_cast<GroupId>(rng.below(3));
    const std::uint64_t end = rng.below(50) * 1000 + serial++ % 1000;
    r.add(run, slot, g, {end});
    twin.all[slot] = {run, g, end};
  }
  void use(SlotId slot) {
    const auto it = twin.all.find(slot);
    if (it == twin.all.end()) return;
    Twin::One& one = it->second;
    switch (rng.below(4)) {
      case 0:
        if (open.empty()) return;
        one.run = any_open();
        return r.touch(one.run, slot);
      case 1:
        ++one.pins;
        return r.pin(slot);
      case 2:
        if (one.pins == 0) return;
        --one.pins;
        return r.unpin(slot);
      default:
        if (one.pins != 0 || rng.chance(2, 3)) return;
        twin.all.erase(it);
        return r.remove(slot);
    }
  }
  void step() {
    const auto slot = static_cast<SlotId>(rng.below(slots));
    switch (rng.below(8)) {
      case 0: {
        const RunId run = r.open_run();
        BOOST_REQUIRE((run == no_run) == (open.size() == 5));
        if (run == no_run) return;
        open.push_back(run);
        twin.stamp[run] = ++twin.now;
        return;
      }
      case 1: {
        if (open.empty() || rng.chance(1, 2)) return;
        const std::size_t i = rng.below(open.size());
        r.close_run(open[i]);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
        return;
      }
      case 2: {
        if (open.empty()) return;
        const RunId run = any_open();
        r.schedule(run);
        twin.stamp[run] = ++twin.now;
        return;
      }
      case 3:
      case 4:
        return add(slot);
      case 5: {
        const SlotId v = evict(r, open.empty() ? no_run : any_open());
        if (v != no_slot) twin.all.erase(v);
        return;
      }
      default:
        return use(slot);
    }
  }
  void compare() {
    BOOST_TEST_INFO_SCOPE(r.verify().text);
    BOOST_REQUIRE(r.verify().ok());
    BOOST_REQUIRE(r.entries() == twin.all.size());
    BOOST_REQUIRE(r.victim(no_run) == twin.victim(no_run));
    for (const RunId run : open) BOOST_REQUIRE(r.victim(run) == twin.victim(run));
    for (const auto& [slot, one] : twin.all) {
      BOOST_REQUIRE(r.run_of(slot) == one.run);
      BOOST_REQUIRE(r.pins(slot) == one.pins);
    }
  }
};

BOOST_AUTO_TEST_CASE(the_order_agrees_with_a_full_scan_after_every_random_step) {
  for (std::uint64_t round = 0; round < 30; ++round) {
    const std::uint64_t used = seed_or(20260917) + round;
    BOOST_TEST_CONTEXT(repeat_command(used)) {
      World w(used);
      for (int i = 0; i < 600; ++i) {
        w.step();
        w.compare();
      }
    }
  }
}

// A trace row as the tool reads it: shared block ids of the prompt, complete or not, and token
// counts.
struct Row {
  std::vector<std::uint64_t> ids;
  std::uint64_t input = 0;
  std::uint64_t output = 0;
};

// Requests of a few conversations whose prompts grow, and prompts that share a head.
std::vector<Row> make_trace(std::uint64_t s, std::size_t n) {
  Prng rng(s);
  std::vector<Row> rows;
  std::vector<std::vector<std::uint64_t>> chats(12);
  std::uint64_t fresh = 1000;
  for (std::size_t i = 0; i < n; ++i) {
    std::vector<std::uint64_t>& chat = chats[rng.below(chats.size())];
    if (chat.empty() || chat.size() > 20 || rng.chance(1, 6))
      chat.assign(1, rng.below(3));  // new one on a shared head
    for (std::uint64_t more = rng.below(4); more > 0; --more) chat.push_back(fresh++);
    const std::uint64_t cut = rng.below(512);
    rows.push_back({chat, chat.size() * 512 - cut, rng.below(1200)});
  }
  return rows;
}

using Name = std::pair<std::uint64_t, std::uint64_t>;  // (0, shared id) or (row + 1, own position)

struct Blocks3 {
  std::vector<Name> use;  // complete prompt blocks
  std::vector<Name> own;  // complete blocks with output in them
  std::uint64_t hit_max;
};
Blocks3 blocks_of(const Row& row, std::uint64_t number) {
  Blocks3 out;
  for (std::uint64_t i = 0; i < row.input / 512; ++i) out.use.emplace_back(0, row.ids[i]);
  const std::uint64_t all = (row.input + std::max<std::uint64_t>(row.output, 1) - 1) / 512;
  for (std::uint64_t i = row.input / 512; i < all; ++i) out.own.emplace_back(number + 1, i);
  out.hit_max = (row.input - 1) / 512;
  return out;
}

// The plain LRU of tools/lru_sim.py, from its rules: touched or inserted last block first.
std::vector<std::uint64_t> plain_lru(const std::vector<Row>& rows, std::size_t cap) {
  std::list<Name> order;  // oldest first
  std::map<Name, std::list<Name>::iterator> at;
  std::vector<std::uint64_t> hits;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Blocks3 b = blocks_of(rows[i], i);
    std::uint64_t k = 0;
    while (k < b.use.size() && at.count(b.use[k]) != 0) ++k;
    hits.push_back(std::min(k, b.hit_max));
    b.use.insert(b.use.end(), b.own.begin(), b.own.end());
    for (auto n = b.use.rbegin(); n != b.use.rend(); ++n) {
      if (const auto it = at.find(*n); it != at.end()) {
        order.splice(order.end(), order, it->second);
        continue;
      }
      if (order.size() >= cap) {
        at.erase(order.front());
        order.pop_front();
      }
      at[*n] = order.insert(order.end(), *n);
    }
  }
  return hits;
}

// The same requests through runs: hits are touched, missing blocks stored in ascending order.
std::vector<std::uint64_t> by_runs(const std::vector<Row>& rows, std::size_t cap) {
  Recency r = make_recency(cap, 1);
  std::map<Name, SlotId> tier;
  std::vector<Name> holder(cap);
  std::vector<SlotId> free;
  for (std::size_t s = cap; s > 0; --s) free.push_back(static_cast<SlotId>(s - 1));
  std::vector<std::uint64_t> hits;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    Blocks3 b = blocks_of(rows[i], i);
    const RunId run = r.open_run();
    std::uint64_t k = 0;
    while (k < b.use.size() && tier.count(b.use[k]) != 0) r.touch(run, tier[b.use[k++]]);
    hits.push_back(std::min(k, b.hit_max));
    b.use.insert(b.use.end(), b.own.begin(), b.own.end());
    for (std::uint64_t p = 0; p < b.use.size(); ++p) {
      if (const auto it = tier.find(b.use[p]); it != tier.end()) {
        r.touch(run, it->second);
        continue;
      }
      if (free.empty()) {
        const SlotId gone = evict(r, run);
        if (gone == no_slot) break;
        tier.erase(holder[gone]);
        free.push_back(gone);
      }
      const SlotId s = free.back();
      free.pop_back();
      tier[b.use[p]] = s;
      holder[s] = b.use[p];
      r.add(run, s, 0, {(p + 1) * 512});
    }
    r.close_run(run);
    if (i % 64 == 0) BOOST_REQUIRE(r.verify().ok());
  }
  return hits;
}

BOOST_AUTO_TEST_CASE(sequential_requests_hit_exactly_as_a_plain_lru) {
  for (std::uint64_t round = 0; round < 8; ++round) {
    const std::uint64_t used = seed_or(20260917) + round;
    BOOST_TEST_CONTEXT(repeat_command(used)) {
      const std::vector<Row> rows = make_trace(used, 700);
      for (const std::size_t cap : {1u, 7u, 25u, 60u, 150u, 5000u}) {
        const std::vector<std::uint64_t> want = plain_lru(rows, cap);
        const std::vector<std::uint64_t> got = by_runs(rows, cap);
        BOOST_TEST(got == want, boost::test_tools::per_element());
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
