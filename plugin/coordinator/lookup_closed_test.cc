// Lookups in an index that promises closed prefixes: the same answers for fewer probes.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <random>

#include "plugin/coordinator/lookup.h"
#include "plugin/coordinator/test_support.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

// Presence as a rule over key numbers (test::Keys), with slot numbers made up from it: for counting
// probes of long prompts without storing anything.
class RuleIndex final : public KeyIndex {
 public:
  using Rule = bool (*)(GroupId, std::uint64_t end_units, std::uint64_t held_units);
  RuleIndex(Rule rule, std::uint64_t held_units, bool closed)
      : rule_(rule), held_(held_units), closed_(closed) {}
  [[nodiscard]] SlotId find(GroupId group, const std::byte* key) const override {
    std::uint64_t unit = 0;
    std::memcpy(&unit, key, sizeof unit);
    ++asked_;
    return rule_(group, unit + 1, held_) ? static_cast<SlotId>(unit * 4 + group) : no_slot;
  }
  void find_batch(GroupId group, const KeyRun& keys, std::span<SlotId> out) const override {
    for (std::size_t i = 0; i < keys.count; ++i)
      out[i] = find(group, keys.first + static_cast<std::ptrdiff_t>(i) * keys.stride);
  }
  [[nodiscard]] bool prefix_closed(GroupId) const override { return closed_; }
  [[nodiscard]] std::uint64_t asked() const { return asked_; }  // keys

 private:
  mutable std::uint64_t asked_ = 0;
  Rule rule_;
  std::uint64_t held_;
  bool closed_;
};

bool up_to(GroupId, std::uint64_t end, std::uint64_t held) { return end <= held; }

// Whether the cost says how many keys were asked. Sanitizer builds walk beside every bisection, to
// compare, and count no part of that.
bool all_counted(const Hit& hit, const RuleIndex& index) {
#if defined(KVC_SANITIZED)
  return hit.cost.probes <= index.asked();
#else
  return hit.cost.probes == index.asked();
#endif
}

std::uint64_t most_probes(std::uint64_t n) {
  return static_cast<std::uint64_t>(std::ceil(2 * std::log2(static_cast<double>(n)))) + 2;
}

BOOST_AUTO_TEST_SUITE(closed_lookups)

BOOST_AUTO_TEST_CASE(a_run_of_n_positions_costs_at_most_two_log2_n_and_two_probes) {
  const Geometry g = make({{fa(16)}, 16, 16});
#if defined(KVC_SANITIZED)
  constexpr std::uint64_t longest = 120;
#else
  constexpr std::uint64_t longest = 400;
#endif
  const Keys keys(8192);
  const auto check = [&](std::uint64_t n, std::uint64_t held) {
    Hit hit;
    const RuleIndex index(up_to, held, true);
    KVC_CHECK(lookup(g, index, keys.first(n), {0}, {n * 16}, hit) == Code::ok);
    BOOST_REQUIRE_EQUAL(hit.tokens.n, std::min(held, n) * 16);
    BOOST_REQUIRE_MESSAGE(hit.cost.probes <= most_probes(n),
                          hit.cost.probes << " probes for " << held << " of " << n);
    BOOST_REQUIRE(all_counted(hit, index));
    BOOST_REQUIRE_EQUAL(hit.cost.bisections, 1u);
    BOOST_REQUIRE_EQUAL(hit.cost.linear_walks, 0u);
  };
  for (std::uint64_t n = 1; n <= longest; ++n)
    for (std::uint64_t held = 0; held <= n; ++held) check(n, held);
  std::mt19937_64 rng(seed_or(20260917));
  for (int i = 0; i < 2000; ++i) {
    const std::uint64_t n = 1 + rng() % 8192;
    check(n, rng() % (n + 1));
  }
}

BOOST_AUTO_TEST_CASE(probes_grow_as_log2_of_the_prompt) {
  // Blocks of 16 tokens; full: all held, half, none; then with three state groups whose states lie
  // every 512 tokens.
  const Geometry plain = make({{fa(16)}, 16, 16});
  const Geometry hybrid = make({{fa(16), mb(16), mb(16), mb(16)}, 16, 16});
  const auto states = [](GroupId group, std::uint64_t end, std::uint64_t held) {
    return end <= held && (group == 0 || end % 32 == 0);
  };
  const Keys keys(8192);
  std::uint64_t before = 0;
  BOOST_TEST_MESSAGE("tokens: probes full, half, none; half with states; walked half");
  for (const std::uint64_t tokens : {1024u, 8192u, 32768u, 131072u}) {
    const std::uint64_t n = tokens / 16;
    const auto probes = [&](const Geometry& g, RuleIndex::Rule rule, std::uint64_t held,
                            bool closed) {
      Hit hit;
      const RuleIndex index(rule, held, closed);
      KVC_CHECK(lookup(g, index, keys.first(n), {0}, {tokens}, hit) == Code::ok);
      BOOST_TEST(hit.tokens.n == held * 16);
      BOOST_TEST(all_counted(hit, index));
      return hit.cost.probes;
    };
    const std::uint64_t full = probes(plain, up_to, n, true);
    const std::uint64_t half = probes(plain, up_to, n / 2, true);
    const std::uint64_t none = probes(plain, up_to, 0, true);
    const std::uint64_t with_states = probes(hybrid, states, n / 2, true);
    const std::uint64_t walked = probes(plain, up_to, n / 2, false);
    BOOST_TEST_MESSAGE(
        fmt::format("{:>6}: {}, {}, {}; {}; {}", tokens, full, half, none, with_states, walked));
    BOOST_TEST(full <= 2u);
    BOOST_TEST(none <= 2u);
    BOOST_TEST(half <= most_probes(n));
    BOOST_TEST(with_states <= most_probes(n) + 16);
    BOOST_TEST(walked >= n / 2);
    // Eight or four times the tokens: at most 6 or 4 probes more.
    const std::uint64_t factor = before == 0 ? 1 : n / before;
    static std::uint64_t last = 0;
    if (before != 0) BOOST_TEST(half <= last + 2 * static_cast<std::uint64_t>(std::log2(factor)));
    last = half;
    before = n;
  }
}

BOOST_AUTO_TEST_CASE(a_state_at_the_top_costs_few_probes) {
  const Geometry g = make({{fa(16), mb(16)}, 16, 16});
  const Keys keys(8192);
  Hit hit;
  const RuleIndex index(up_to, 8192, true);
  KVC_CHECK(lookup(g, index, keys.view(), {0}, {131072}, hit) == Code::ok);
  BOOST_TEST(hit.tokens.n == 131072u);
  BOOST_TEST(hit.cost.probes <= 2u + 4 + 1);  // attention, the first batch of states, its slot
}

BOOST_AUTO_TEST_CASE(batches_of_a_downward_search_double) {
  const Geometry g = make({{mb(16)}, 16, 16});
  const Keys keys(400);
  // A state d blocks below the top: batches of 4, 8, 16, 32, 32, ... up to the one with it; a
  // second pass of one batch from there, if it lies lower; and the slot.
  for (const auto& [d, probes] : {std::pair(0U, 4U),
                                  {3U, 4U},
                                  {4U, 12U},
                                  {11U, 12U},
                                  {12U, 28U},
                                  {27U, 28U},
                                  {28U, 60U},
                                  {60U, 92U},
                                  {124U, 156U}}) {
    Hit hit;
    const RuleIndex index([](GroupId, std::uint64_t end, std::uint64_t at) { return end == at; },
                          400 - d, true);
    KVC_CHECK(lookup(g, index, keys.view(), {0}, {6400}, hit) == Code::ok);
    BOOST_TEST(hit.tokens.n == (400 - d) * 16);
    BOOST_TEST(index.asked() == probes + (d == 0 ? 0 : 4) + 1,
               "state " << d << " below the top: " << index.asked());
    BOOST_TEST(all_counted(hit, index));
  }
}

// Both forms of one answer.
struct Both {
  Hit flat;
  Hit brief;
  Hit listed;  // brief, with its lists
};

Both look(const Geometry& g, const Held& held, std::uint64_t start, std::uint64_t most,
          std::uint64_t closed, std::uint64_t noise = 0) {
  Both out;
  out.flat = held.find(start, most);
  const ClosedIndex index(g, held.index(), held.keys(), closed, noise);
  KVC_CHECK(lookup(g, index, held.keys(), {start}, {most}, out.brief) == Code::ok);
  out.listed = out.brief;
  list_slots(g, index, held.keys(), out.listed);
  return out;
}

std::vector<SlotId> pinned(const Hit& hit) {
  std::vector<SlotId> out;
  hit.for_each_pinned([&](SlotId s) { out.push_back(s); });
  return out;
}

BOOST_AUTO_TEST_CASE(a_brief_hit_knows_its_ends_and_pins_only_them) {
  const Geometry g = make({{fa(64), mb(64)}, 16, 64});
  const Held held(g, {{64, 128, 192, 224}, {64, 192, 224}}, 300);
  const Both tail = look(g, held, 0, 299, 1);
  BOOST_TEST(tail.brief.tokens.n == 224u);
  BOOST_TEST(tail.brief.groups[0].brief);
  BOOST_TEST(tail.brief.groups[0].whole == 3u);
  BOOST_TEST(tail.brief.groups[0].slots.empty());
  BOOST_TEST(tail.brief.groups[0].inside_end.n == 224u);
  BOOST_TEST(tail.brief.groups[0].list_length() == 4u);
  const std::vector<SlotId> all = tail.flat.groups[0].slots;
  const SlotId state = tail.flat.groups[1].slots[0];
  BOOST_TEST((pinned(tail.brief) == std::vector<SlotId>{all[2], all[3], state}));
  BOOST_TEST((pinned(tail.listed) == pinned(tail.brief)));
  BOOST_TEST(pinned(tail.flat).size() == 5u);
  std::vector<SlotId> backwards;
  tail.brief.for_each_pinned_backwards([&](SlotId s) { backwards.push_back(s); });
  BOOST_TEST((backwards == std::vector<SlotId>{all[3], all[2], state}));
  // A hit that ends inside a whole block, and one at a block's end that the search went beyond.
  const Both inside = look(g, Held(g, {{64, 128, 192}, {176}}, 300), 0, 299, 1);
  BOOST_TEST(inside.brief.tokens.n == 176u);
  BOOST_TEST(inside.brief.groups[0].whole == 2u);
  BOOST_TEST(inside.brief.groups[0].inside_end.n == 192u);
  BOOST_TEST(difference(inside.flat, inside.listed) == "");
  const Both cut = look(g, Held(g, {{64, 128, 192}, {128}}, 300), 0, 299, 1);
  BOOST_TEST(cut.brief.groups[0].whole == 2u);
  BOOST_TEST(cut.brief.groups[0].last() == cut.flat.groups[0].slots[1]);
}

BOOST_AUTO_TEST_CASE(
    a_brief_hit_is_visited_and_listed_without_growing_and_truncated_like_a_listed_one) {
  const Geometry g = make({{fa(16), sw(16, 64)}, 16, 16});
  const Held held(g, {ends(16, 1600), ends(16, 1600)}, 1700);
  const ClosedIndex index(g, held.index(), held.keys(), 1);
  Hit hit;
  hit.reserve(g, {1700});
  const std::size_t room = hit.groups[0].slots.capacity();
  KVC_CHECK(lookup(g, index, held.keys(), {160}, {1699}, hit) == Code::ok);
  const Hit flat = held.find(160, 1699);
  std::vector<SlotId> visited;
  std::uint64_t next = 10;
  for_each_slot(g, index, held.keys(), 0, hit.groups[0], [&](std::uint64_t p, SlotId slot) {
    BOOST_TEST(p == next++);
    visited.push_back(slot);
  });
  BOOST_TEST((visited == flat.groups[0].slots));
  for (const std::uint64_t tokens : {160u, 640u, 1600u}) {
    Hit from_brief;
    Hit from_flat;
    BOOST_TEST(truncate(g, hit, {tokens}, from_brief).ok());
    BOOST_TEST(truncate(g, flat, {tokens}, from_flat).ok());
    list_slots(g, index, held.keys(), from_brief);
    BOOST_TEST((from_brief.groups[0].slots == from_flat.groups[0].slots));
    BOOST_TEST(from_brief.groups[0].list_length() == from_flat.groups[0].list_length());
  }
  list_slots(g, index, held.keys(), hit);
  BOOST_TEST((hit.groups[0].slots == flat.groups[0].slots));
  BOOST_TEST(hit.groups[0].slots.capacity() == room);
  BOOST_TEST(hit.groups[0].brief);
}

// Boundaries that tail_offsets rules out are not asked for.
BOOST_AUTO_TEST_CASE(tails_that_cannot_exist_are_not_probed) {
  const Geometry g = make({{fa(784), mb(784)}, 8, 784});
  const Held lowest(g, {{784, 1568, 1576}, {1576}}, 2400);
  const Hit some = look(g, lowest, 0, 2399, 1).brief;
  BOOST_TEST(some.tokens.n == 1576u);
  BOOST_TEST(some.cost.probes <= 12u);
  const Held none(g, {{784, 1568}, {1568}}, 2400);
  BOOST_TEST(look(g, none, 0, 2399, 1).brief.cost.probes <= 10u);
  // A full directory promises nothing: B/h probes and a few.
  const Hit full = look(g, lowest, 0, 2399, 1, ~std::uint64_t{0}).brief;
  BOOST_TEST(full.tokens.n == 1576u);
  BOOST_TEST(full.cost.probes <= 98u + 12);
  BOOST_TEST(full.cost.probes > 90u);
}

Layout any_layout(std::mt19937_64& rng) {
  const auto pick = [&](std::initializer_list<std::uint64_t> of) {
    return *(of.begin() + static_cast<std::ptrdiff_t>(rng() % of.size()));
  };
  Layout l;
  l.h = pick({2, 4, 8});
  l.s = l.h * pick({1, 4, 8, 96});
  l.cp = rng() % 6 == 0 ? 2 : 1;
  l.fine_allowed = rng() % 6 != 0;
  const bool drafts = rng() % 4 == 0;
  const auto block = [&] { return rng() % 2 == 0 ? l.s : l.h; };
  const std::uint64_t groups = 1 + rng() % 4;
  for (std::uint64_t i = 0; i < groups; ++i) {
    switch (i == 0 ? 0 : rng() % 5) {
      case 0:
      case 1:
        l.groups.push_back(fa(block(), drafts && rng() % 2 == 0));
        break;
      case 2:
        l.groups.push_back(sw(block(), 1 + rng() % (3 * l.s), drafts && rng() % 4 == 0));
        break;
      case 3:
        l.groups.push_back(cl(block(), l.s * (1 + rng() % 3)));
        break;
      default:
        l.groups.push_back(mb(block(), rng() % 4 == 0));
    }
  }
  return l;
}

// Ends that a group holds: of full attention a closed run of blocks and tails anywhere, of others
// what the dice say.
std::vector<std::uint64_t> any_ends(const Geometry& g, GroupId group, std::uint64_t tokens,
                                    std::mt19937_64& rng) {
  std::vector<std::uint64_t> out;
  const std::uint64_t h = g.hash_unit().n;
  const std::uint64_t block = g.block_tokens(group).n;
  const bool full = g.group(group).kind == GroupKind::full;
  const std::uint64_t run = rng() % 3 == 0 ? tokens : rng() % (tokens + block);
  const std::uint64_t dense = 1 + rng() % 8;
  for (std::uint64_t end = h; end <= tokens; end += h) {
    const bool whole = end % block == 0;
    const bool tail = g.group(group).kind == GroupKind::state || full;
    const bool held = full && whole ? end <= run : (whole || tail) && rng() % 8 < dense;
    if (held && (!full || whole || rng() % 4 == 0)) out.push_back(end);
  }
  return out;
}

BOOST_AUTO_TEST_CASE(answers_do_not_depend_on_the_promises) {
  const std::uint64_t used = seed_or(20260917);
  std::mt19937_64 rng(used);
#if defined(KVC_SANITIZED)
  int left = 3000;
#else
  int left = 30000;
#endif
  std::uint64_t brief_hits = 0;
  while (left > 0) {
    const Result<Geometry> made = try_make(any_layout(rng));
    if (!made.ok()) continue;
    const Geometry& g = made.value();
    for (int i = 0; i < 20; ++i, --left) {
      const std::uint64_t s = g.scheduler_block().n;
      const std::uint64_t tokens = 1 + rng() % (6 * s);
      std::vector<std::vector<std::uint64_t>> held(g.groups());
      std::uint64_t closed = 0;
      for (const GroupId group : g.cacheable()) {
        held[group] = any_ends(g, group, tokens, rng);
        if (g.group(group).kind == GroupKind::full && rng() % 4 != 0)
          closed |= std::uint64_t{1} << group;
      }
      const std::uint64_t start = rng() % 2 == 0 ? 0 : rng() % (tokens / s + 1) * s;
      const std::uint64_t most = rng() % 3 == 0 ? rng() % (tokens + 1) : tokens - 1;
      const std::uint64_t noise = rng() % 2 == 0 ? 0 : rng();
      const Held index(g, held, tokens);
      const Both both = look(g, index, start, most, closed, noise);
      const std::string why = difference(both.flat, both.listed);
      BOOST_REQUIRE_MESSAGE(why.empty(), why << "; " << repeat_command(used));
      for (const GroupHit& group : both.brief.groups) brief_hits += group.brief ? 1 : 0;
      Hit alone;
      const ClosedIndex view(g, index.index(), index.keys(), closed, noise);
      KVC_CHECK(lookup_per_group(g, view, index.keys(), {start}, {most}, alone) == Code::ok);
      list_slots(g, view, index.keys(), alone);
      BOOST_REQUIRE_MESSAGE(difference(index.find_per_group(start, most), alone).empty(),
                            "per group; " << repeat_command(used));
    }
  }
  BOOST_TEST(brief_hits > 500u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
