// Random worlds larger than the exhaustive ones, and laws that hold for every lookup.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

#include "conformance/tests/mirror.h"
#include "plugin/tests/seed.h"

namespace {

using namespace kvc::oracle;
using kvc::oracle_tests::describe;
using kvc::oracle_tests::Mirror;
using kvc::test::repeat_command;
using kvc::test::seed_or;

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : rng_(seed) {}

  std::uint64_t below(std::uint64_t n) { return rng_() % n; }

  Group group(std::uint64_t h, bool chunks) {
    Group g;
    const std::uint64_t kind = below(chunks ? 6 : 5);
    g.kind = kind < 2    ? Kind::full
             : kind < 4  ? Kind::state
             : kind == 4 ? Kind::sliding
                         : Kind::chunked;
    g.rank_block = h * std::array<std::uint64_t, 6>{1, 2, 3, 4, 6, 8}[below(6)];
    g.sharded = g.kind == Kind::full && below(4) != 0;
    g.align = g.kind == Kind::state && below(3) != 0;
    if (g.kind == Kind::sliding) {
      g.window = 1 + below(4 * g.rank_block);
      if (below(4) == 0) g.extra_retained = below(g.rank_block + 2);
    }
    if (g.kind == Kind::chunked) g.window = g.rank_block * (1 + below(4));
    return g;
  }

  // A layout of up to four groups, one of them perhaps scratch, and a request with something in the
  // cache.
  World world() {
    World w;
    w.hash_unit = std::array<std::uint64_t, 5>{1, 2, 3, 8, 16}[below(5)];
    w.context_parallel = below(3) == 0 ? 2 + below(3) : 1;
    const std::uint64_t groups = 2 + below(3);
    for (std::uint64_t i = 0; i < groups; ++i)
      w.groups.push_back(group(w.hash_unit, w.context_parallel == 1));
    if (below(5) == 0) {
      w.groups[1].kind = Kind::other;
      w.groups[1].cacheable = false;
      w.groups[1].sharded = w.groups[1].align = false;
      w.groups[1].window = w.groups[1].extra_retained = 0;
    }
    w.fine_hits_allowed = below(5) != 0;
    for (std::size_t g = 0; g < w.groups.size(); ++g) {
      w.scheduler_block = std::lcm(w.scheduler_block, w.span(g));
    }
    w.tokens = 1 + below(3 * w.scheduler_block + 40 * w.hash_unit);
    w.start = below(2) == 0 ? 0 : below(w.tokens) / w.scheduler_block * w.scheduler_block;
    fill(w);
    return w;
  }

  // Contents as caches have them: a stored prefix with a few holes and a few strangers.
  void fill(World& w, bool chunks = false) {
    for (std::size_t g = 0; g < w.groups.size(); ++g) {
      auto& held = w.groups[g].held;
      held.clear();
      if (!w.groups[g].cacheable) continue;
      const Kind kind = w.groups[g].kind;
      const bool fine = (kind == Kind::full && (!chunks || keeps_tails(w))) || kind == Kind::state;
      // Tails in chunks end where hits do.
      const std::uint64_t unit = chunks && kind == Kind::full ? alignment(w) : w.hash_unit;
      const std::uint64_t step = fine && below(2) == 0 ? unit : w.kept_span(g);
      const std::uint64_t holes = 2 + below(30);
      const std::uint64_t last = w.tokens + 2 * w.kept_span(g);
      for (std::uint64_t e = step; e <= last; e += step) {
        if (below(holes) != 0) held.insert(e);
      }
      if (fine) held.insert(unit * (1 + below(std::max<std::uint64_t>(last / unit, 1))));
      // A run without a hole, as a tier keeps attention, and what hangs on it.
      if (kind == Kind::full && chunks && below(2) == 0) {
        const std::uint64_t run = w.kept_span(g) * below(last / w.kept_span(g) + 1);
        for (std::uint64_t e = w.kept_span(g); e <= run; e += w.kept_span(g)) held.insert(e);
        std::erase_if(held, [&](std::uint64_t e) { return e > run && e % w.kept_span(g) == 0; });
      }
    }
  }

 private:
  std::mt19937_64 rng_;
};

// Calls check(maker, world, mirror) for `count` random worlds that the coordinator takes.
template <class Check>
void for_worlds(int count, bool drafts, Check check) {
  Maker maker(seed_or(20261101));
  count = kvc::oracle_tests::worlds_of(count);
  int wrong = 0;
  int taken = 0;
  for (int i = 0; i < count; ++i) {
    World w = maker.world();
    if (drafts) {
      const bool chunks = std::any_of(w.groups.begin(), w.groups.end(),
                                      [](const Group& g) { return g.kind == Kind::chunked; });
      if (chunks) continue;
      w.groups[0].draft = true;
      w.groups.back().draft = maker.below(2) == 0;
    }
    std::string why;
    auto mirror = Mirror::make(w, why);
    BOOST_REQUIRE_MESSAGE(mirror.has_value(), why << "\n  " << describe(w, 0));
    ++taken;
    const std::optional<std::string> differs = check(maker, w, *mirror);
    if (differs && ++wrong <= 5) {
      BOOST_ERROR("world " << i << ": " << *differs << "\n  " << repeat_command(seed_or(20261101)));
    }
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(taken > count / 3);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_worlds)

BOOST_AUTO_TEST_CASE(a_lookup_finds_the_longest_prefix_that_all_groups_serve) {
  for_worlds(20'000, false,
             [](Maker& maker, World& w, Mirror& mirror) -> std::optional<std::string> {
               for (const std::uint64_t cap : {w.tokens - 1, maker.below(w.tokens)}) {
                 if (auto why = mirror.compare(w, cap)) return *why + "\n  " + describe(w, cap);
               }
               return std::nullopt;
             });
}

// Chunks of every size; `drafts`: some groups drop.
void chunk_worlds(int count, bool drafts) {
  Maker maker(seed_or(20261130));
  count = kvc::oracle_tests::worlds_of(count);
  int wrong = 0;
  int inside = 0;
  for (int i = 0; i < count; ++i) {
    World w = maker.world();
    const bool local = std::any_of(w.groups.begin(), w.groups.end(),
                                   [](const Group& g) { return g.kind == Kind::chunked; });
    if (drafts && local) continue;
    if (drafts) w.groups[0].draft = true;
    const std::uint64_t chunk = 1 + maker.below(7);
    set_chunks(w, chunk);
    w.tokens = 1 + maker.below(std::min(4 * chunk * w.scheduler_block, 400 * w.hash_unit));
    w.start =
        maker.below(2) == 0 ? 0 : maker.below(w.tokens) / w.scheduler_block * w.scheduler_block;
    maker.fill(w, true);
    std::string why;
    auto mirror = Mirror::make(w, why, static_cast<std::uint32_t>(chunk));
    BOOST_REQUIRE_MESSAGE(mirror.has_value(), why << "\n  " << describe(w, 0));
    for (std::size_t g = 0; g < w.groups.size(); ++g) {
      BOOST_REQUIRE(mirror->geometry().blocks_per_chunk(static_cast<kvc::GroupId>(g)) ==
                    w.groups[g].chunk);
    }
    for (const std::uint64_t cap : {w.tokens - 1, maker.below(w.tokens)}) {
      const auto differs = drafts ? mirror->compare_served(w, cap) : mirror->compare(w, cap);
      const std::uint64_t best = best_hit(w, cap);
      for (std::size_t g = 0; g < w.groups.size(); ++g) {
        inside += best > w.start && best % w.kept_span(g) != 0;
      }
      if (!differs || ++wrong > 5) continue;
      BOOST_ERROR("world " << i << ": " << *differs << "\n  " << describe(w, cap) << "\n  "
                           << repeat_command(seed_or(20261130)));
    }
  }
  BOOST_TEST(wrong == 0);
  BOOST_TEST(inside > count / 10);
}

BOOST_AUTO_TEST_CASE(a_lookup_in_chunks_finds_the_longest_prefix_that_all_groups_serve) {
  chunk_worlds(4'000, false);
}

BOOST_AUTO_TEST_CASE(a_lookup_in_chunks_with_draft_groups_is_one_that_all_groups_serve) {
  chunk_worlds(2'000, true);
}

BOOST_AUTO_TEST_CASE(a_lookup_with_draft_groups_follows_the_rules) {
  for_worlds(20'000, true,
             [](Maker& maker, World& w, Mirror& mirror) -> std::optional<std::string> {
               for (const std::uint64_t cap : {w.tokens - 1, maker.below(w.tokens)}) {
                 if (auto why = mirror.compare(w, cap)) return *why + "\n  " + describe(w, cap);
               }
               return std::nullopt;
             });
}

BOOST_AUTO_TEST_CASE(every_group_alone_finds_the_longest_prefix_it_serves) {
  for_worlds(10'000, false, [](Maker&, World& w, Mirror& mirror) -> std::optional<std::string> {
    const auto why = mirror.compare_per_group(w, w.tokens - 1);
    if (why) return *why + "\n  " + describe(w, w.tokens - 1);
    return std::nullopt;
  });
}

// A law of the answer itself: holding more never makes a hit shorter.
BOOST_AUTO_TEST_CASE(a_hit_never_gets_shorter_when_more_is_held) {
  for_worlds(
      2'000, false, [](Maker& maker, World& w, Mirror& mirror) -> std::optional<std::string> {
        const std::uint64_t cap = w.tokens - 1;
        std::uint64_t before = best_hit(w, cap);
        for (int more = 0; more < 6; ++more) {
          const std::size_t g = static_cast<std::size_t>(maker.below(w.groups.size()));
          if (!w.groups[g].cacheable) continue;
          const bool fine = w.groups[g].kind == Kind::full || w.groups[g].kind == Kind::state;
          const std::uint64_t step = fine ? w.hash_unit : w.span(g);
          w.groups[g].held.insert(step * (1 + maker.below(w.tokens / step + 1)));
          if (auto why = mirror.compare(w, cap)) return *why + "\n  " + describe(w, cap);
          const std::uint64_t now = best_hit(w, cap);
          if (now < before) return "the hit fell\n  " + describe(w, cap);
          before = now;
        }
        return std::nullopt;
      });
}

BOOST_AUTO_TEST_SUITE_END()
