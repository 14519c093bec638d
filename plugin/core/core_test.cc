// The small parts of core: units, results, checks, clock, PRNG, fault points, snapshots.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <thread>

#include "plugin/core/check.h"
#include "plugin/core/clock.h"
#include "plugin/core/counters.h"
#include "plugin/core/fault.h"
#include "plugin/core/prng.h"
#include "plugin/core/result.h"
#include "plugin/core/units.h"

namespace kvc {
namespace {

static_assert(blocks_full({17}, {16}) == Blocks{1} && blocks_touched({17}, {16}) == Blocks{2});
static_assert(round_down({31}, {16}) == Tokens{16} && ceil_div(32, 16) == 2 &&
              ceil_div(33, 16) == 3);
static_assert(Blocks{3} * Tokens{16} == Tokens{48} && Tokens{48} - Tokens{16} == Tokens{32});

BOOST_AUTO_TEST_SUITE(core)

BOOST_AUTO_TEST_CASE(rounding_up_does_not_overflow) {
  BOOST_TEST(ceil_div(UINT64_MAX, 16) == UINT64_MAX / 16 + 1);
  BOOST_TEST(blocks_touched(no_token_limit, {1}).n == UINT64_MAX);
}

BOOST_AUTO_TEST_CASE(a_result_is_a_value_or_an_error_with_a_text) {
  const Result<int> good(7);
  BOOST_TEST(good.ok());
  BOOST_TEST(good.value() == 7);
  const Result<int> bad(Code::arg, "7 is not 8");
  BOOST_TEST(!bad.ok());
  BOOST_TEST(bad.error().text == "7 is not 8");
  BOOST_TEST(Status(Code::later, "").ok());
  BOOST_TEST(!Status(Code::full, "").ok());
#if !defined(KVC_ABORT_ON_CHECK)
  BOOST_CHECK_THROW(static_cast<void>(bad.value()), BrokenInvariant);
  BOOST_CHECK_THROW(static_cast<void>(good.error()), BrokenInvariant);
#endif
}

#if !defined(KVC_ABORT_ON_CHECK)
BOOST_AUTO_TEST_CASE(a_broken_invariant_names_the_place_and_the_condition) {
  try {
    KVC_CHECK(1 + 1 == 3);
    BOOST_TEST(false);
  } catch (const BrokenInvariant& e) {
    const std::string text = e.what();
    BOOST_TEST(text.find("core_test.cc") != std::string::npos);
    BOOST_TEST(text.find("1 + 1 == 3") != std::string::npos);
  }
}
#endif

BOOST_AUTO_TEST_CASE(the_same_seed_gives_the_same_numbers_everywhere) {
  Prng a(0);
  // First outputs of SplitMix64 for seed 0, as its author publishes them.
  BOOST_TEST(a.next() == 0xe220a8397b1dcdafu);
  BOOST_TEST(a.next() == 0x6e789e6aa1b965f4u);
  Prng b(5);
  Prng c(5);
  for (int i = 0; i < 100; ++i) BOOST_TEST(b.below(10) == c.below(10));
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t v = b.between(3, 5);
    BOOST_TEST((v >= 3 && v <= 5));
  }
  BOOST_TEST(b.chance(1, 1));
  BOOST_TEST(!b.chance(0, 5));
}

BOOST_AUTO_TEST_CASE(a_manual_clock_moves_only_when_told) {
  ManualClock clock;
  const std::uint64_t before = clock.now_ns();
  BOOST_TEST(clock.now_ns() == before);
  clock.advance_ns(5);
  BOOST_TEST(clock.now_ns() == before + 5);
  const SteadyClock steady;
  const std::uint64_t first = steady.now_ns();
  BOOST_TEST(steady.now_ns() >= first);
}

BOOST_AUTO_TEST_CASE(the_nth_visit_of_a_fault_point_fails_once) {
  Faults f;
  f.arm("copy", 1);
  BOOST_TEST(!f.visit("copy"));
  BOOST_TEST(!f.visit("other"));
  BOOST_TEST(!f.tripped());
  BOOST_TEST(f.visit("copy"));
  BOOST_TEST(f.tripped());
  BOOST_TEST(!f.visit("copy"));
  BOOST_TEST(f.visits("copy") == 3u);
  BOOST_TEST(f.visits("never") == 0u);
  f.clear();
  BOOST_TEST(!f.tripped());
  BOOST_TEST(f.visits("copy") == 0u);
}

BOOST_AUTO_TEST_CASE(failing_the_nth_step_of_anything_visits_each_step_once) {
  Faults f;
  std::uint64_t runs = 0;
  std::uint64_t failures = 0;
  for (std::uint64_t n = 0;; ++n, ++runs) {
    f.arm_any(n);
    for (const char* step : {"a", "b", "a", "c"})
      if (f.visit(step)) {
        ++failures;
        break;
      }
    if (!f.tripped()) break;
  }
  BOOST_TEST(runs == 4u);
  BOOST_TEST(failures == 4u);
}

struct Pair {
  std::uint64_t a = 0;
  std::uint64_t b = 0;
};

BOOST_AUTO_TEST_CASE(a_snapshot_is_read_whole_while_it_is_published) {
  Snapshot<Pair> s;
  BOOST_TEST(s.read().a == 0u);
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> torn{0};
  std::atomic<std::uint64_t> reads{0};
  std::thread reader([&] {
    std::uint64_t last = 0;
    while (!stop.load()) {
      const Pair p = s.read();
      if (p.b != p.a * 3 || p.a < last) torn.fetch_add(1);
      last = p.a;
      reads.fetch_add(1);
    }
  });
  for (std::uint64_t i = 1; i <= 20000 || reads.load() < 100; ++i) s.publish({i, i * 3});
  stop.store(true);
  reader.join();
  BOOST_TEST(torn.load() == 0u);
  BOOST_TEST(s.read().b == s.read().a * 3);
}

BOOST_AUTO_TEST_CASE(a_replaced_word_of_a_snapshot_is_read_with_the_others) {
  Snapshot<Pair> s;
  s.publish({1, 1});
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> reads{0};
  std::thread reader([&] {
    std::uint64_t last = 1;
    while (!stop.load()) {
      const Pair p = s.read();
      if (p.a != 1 || p.b < last) wrong.fetch_add(1);
      last = p.b;
      reads.fetch_add(1);
    }
  });
  for (std::uint64_t i = 1; i <= 20000 || reads.load() < 100; ++i) {
    s.replace_word(offsetof(Pair, b), i);
    if (s.read().b != i) wrong.fetch_add(1);
  }
  stop.store(true);
  reader.join();
  BOOST_TEST(wrong.load() == 0u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
