// The host copy engine with worker threads. Meant for TSan as well.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <random>
#include <thread>

#include "cuda/tests/copy_helpers.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using copy_test::make_engine;
using copy_test::pattern;
using copy_test::Plan;
using copy_test::submit;
using std::chrono::hours;

constexpr auto long_enough = std::chrono::seconds(60);

BOOST_AUTO_TEST_SUITE(copy_threads)

BOOST_AUTO_TEST_CASE(a_worker_sees_the_fence_without_anybody_polling) {
  HostCopyOptions o;
  o.workers = 2;
  auto engine = make_engine(o);
  std::uint64_t step = 0;
  std::vector<std::byte> device(4096);
  std::vector<std::byte> tier(4096);
  BOOST_TEST(submit(*engine, {{1, CopyDirection::store, {{tier.data(), device.data(), 4096}}, {}}},
                    {FenceKind::counter, &step, 1, nullptr})
                 .ok());
  const std::vector<std::uint64_t> one{1};
  BOOST_TEST((engine->wait(one, std::chrono::milliseconds(1)) == Code::deadline));
  const auto computed = pattern(4096, 1);
  std::thread compute([&] {
    std::memcpy(device.data(), computed.data(), 4096);  // TSan: ordered by the counter only
    __atomic_store_n(&step, 1, __ATOMIC_RELEASE);
  });
  BOOST_TEST((engine->wait(one, long_enough) == Code::ok));
  compute.join();
  BOOST_TEST((tier == computed));
  CopyCompletion c[2];
  BOOST_TEST(engine->poll(c) == 1u);
}

BOOST_AUTO_TEST_CASE(a_large_copy_is_shared_by_the_workers) {
  HostCopyOptions o;
  o.workers = 3;
  o.piece_bytes = {1 << 16};
  auto engine = make_engine(o);
  const auto src = pattern(std::size_t{8} << 20, 2);
  std::vector<std::byte> dst(src.size());
  BOOST_TEST(
      submit(*engine, {{1, CopyDirection::load, {{dst.data(), src.data(), src.size()}}, {}}}).ok());
  BOOST_TEST((engine->wait(std::vector<std::uint64_t>{1}, long_enough) == Code::ok));
  BOOST_TEST((dst == src));
  BOOST_TEST(engine->counters().memcpy_calls == 128u);
}

BOOST_AUTO_TEST_CASE(random_chains_of_stores_and_loads_keep_their_order_under_threads) {
  const std::uint64_t seed = kvc::test::seed_or(20261129);
  BOOST_TEST_CONTEXT(kvc::test::repeat_command(seed)) {
    std::mt19937_64 rng(seed);
    HostCopyOptions o;
    o.workers = 3;
    o.operations_max = 64;
    o.piece_bytes = {512};
    auto engine = make_engine(o);
    constexpr std::size_t unit = 1024;
    std::vector<std::byte> slots(8 * unit);
    std::uint64_t step = 0;
    for (std::uint64_t round = 1; round <= 300; ++round) {
      const auto source = pattern(8 * unit, static_cast<unsigned>(rng() % 200));
      std::vector<std::byte> back(8 * unit);
      std::vector<Plan> plans;
      for (std::size_t s = 0; s < 8; ++s) {
        const std::uint64_t id = round * 100 + s;
        plans.push_back(
            {id, CopyDirection::store, {{&slots[s * unit], &source[s * unit], unit}}, {}});
        plans.push_back(
            {id + 50, CopyDirection::load, {{&back[s * unit], &slots[s * unit], unit}}, {id}});
      }
      const bool fenced = rng() % 2 == 0;
      BOOST_REQUIRE(submit(*engine, plans,
                           {fenced ? FenceKind::counter : FenceKind::none, &step, round, nullptr})
                        .ok());
      __atomic_store_n(&step, round, __ATOMIC_RELEASE);
      std::size_t done = 0;
      while (done < plans.size()) {
        CopyCompletion some[5];
        const std::size_t n = engine->poll(some);
        for (std::size_t i = 0; i < n; ++i) BOOST_REQUIRE((some[i].status == Code::ok));
        done += n;
        if (n == 0) std::this_thread::yield();
      }
      BOOST_REQUIRE((back == source));
    }
  }
}

BOOST_AUTO_TEST_CASE(several_threads_may_submit_poll_and_wait_at_once) {
  HostCopyOptions o;
  o.workers = 2;
  o.operations_max = 4096;
  auto engine = make_engine(o);
  constexpr std::uint64_t each = 400;
  const auto src = pattern(256, 4);
  std::atomic<std::uint64_t> reported{0};
  std::atomic<std::uint64_t> refused{0};
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> dst(256 * each);
      std::vector<std::uint64_t> mine;
      for (std::uint64_t i = 0; i < each; ++i) {
        mine.push_back(t << 32 | i);
        if (!submit(*engine,
                    {{mine.back(), CopyDirection::store, {{&dst[i * 256], src.data(), 256}}, {}}})
                 .ok())
          ++refused;
        CopyCompletion some[4];
        reported += engine->poll(some);
      }
      if (engine->wait(mine, hours(1)) != Code::ok) ++refused;
      for (std::uint64_t i = 0; i < each; ++i)
        refused += std::memcmp(&dst[i * 256], src.data(), 256) != 0;
    });
  }
  for (std::thread& t : threads) t.join();
  CopyCompletion some[4];
  while (const std::size_t n = engine->poll(some)) reported += n;
  BOOST_TEST(reported == 3 * each);
  BOOST_TEST(refused == 0u);
}

// Fails one copy and holds one completion until told; called from workers.
class HeldAndFailing final : public CopyFault {
 public:
  Verdict on_copy(std::uint64_t op, CopyDirection, std::uint64_t index) override {
    return op == 2 && index == 1 ? Verdict{Code::io, CopySide::source} : Verdict{};
  }
  bool may_begin(std::uint64_t op) override { return op != 3 || let_begin; }
  bool may_end(std::uint64_t op) override { return op != 1 || let_end; }
  std::atomic<bool> let_begin{false};
  std::atomic<bool> let_end{false};
};

BOOST_AUTO_TEST_CASE(faults_are_honoured_by_workers) {
  HeldAndFailing fault;
  HostCopyOptions o;
  o.workers = 2;
  o.fault = &fault;
  auto engine = make_engine(o);
  const auto src = pattern(300, 5);
  std::vector<std::byte> dst(900);
  BOOST_TEST(
      submit(*engine,
             {{1, CopyDirection::store, {{&dst[0], &src[0], 100}}, {}},
              {2, CopyDirection::store, {{&dst[300], &src[0], 100}, {&dst[500], &src[0], 100}}, {}},
              {3, CopyDirection::load, {{&dst[600], &src[0], 100}}, {}}})
          .ok());
  BOOST_TEST((engine->wait(std::vector<std::uint64_t>{2}, long_enough) == Code::ok));
  CopyCompletion c[3];
  BOOST_TEST(engine->poll(c) == 1u);
  BOOST_TEST(c[0].id == 2u);
  BOOST_TEST((c[0].status == Code::io));
  BOOST_TEST(c[0].first_failed == 1u);
  BOOST_TEST((engine->wait(std::vector<std::uint64_t>{1, 3}, std::chrono::milliseconds(1)) ==
              Code::deadline));
  fault.let_begin = true;
  fault.let_end = true;
  BOOST_TEST((engine->wait(std::vector<std::uint64_t>{1, 3}, long_enough) == Code::ok));
  BOOST_TEST(engine->poll(c) == 2u);
}

BOOST_AUTO_TEST_CASE(destruction_with_operations_in_flight_joins_and_touches_nothing_afterwards) {
  for (int round = 0; round < 20; ++round) {
    const auto src = pattern(1 << 20, 6);
    std::vector<std::byte> dst(1 << 20);
    std::vector<std::byte> never(64, std::byte{0x77});
    std::uint64_t step = 0;
    {
      HostCopyOptions o;
      o.workers = 2;
      o.piece_bytes = {4096};
      auto engine = make_engine(o);
      BOOST_TEST(
          submit(*engine, {{1, CopyDirection::load, {{dst.data(), src.data(), dst.size()}}, {}}})
              .ok());
      BOOST_TEST(submit(*engine, {{2, CopyDirection::load, {{never.data(), src.data(), 64}}, {}}},
                        {FenceKind::counter, &step, 1, nullptr})
                     .ok());
    }
    step = 1;
    const std::vector<std::byte> snapshot = dst;  // ASan and TSan see a late writer
    BOOST_TEST((snapshot == dst));
    BOOST_TEST((never == std::vector<std::byte>(64, std::byte{0x77})));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
