#include "cuda/host_copy_engine.h"

#include <sys/mman.h>

#include <boost/test/unit_test.hpp>
#include <set>

#include "cuda/tests/copy_helpers.h"

namespace kvc {
namespace {

using copy_test::ids;
using copy_test::make_engine;
using copy_test::make_stepped;
using copy_test::pattern;
using copy_test::Plan;
using copy_test::poll_all;
using copy_test::submit;
using Ids = std::vector<std::uint64_t>;

// Fails chosen copies; holds chosen operations.
class Trouble final : public CopyFault {
 public:
  Verdict on_copy(std::uint64_t op, CopyDirection, std::uint64_t index) override {
    asked.push_back({op, index});
    return op == fail_op && index == fail_index ? Verdict{Code::io, side} : Verdict{};
  }
  bool may_begin(std::uint64_t op) override { return !not_begun.contains(op); }
  bool may_end(std::uint64_t op) override { return !not_ended.contains(op); }

  std::uint64_t fail_op = UINT64_MAX;
  std::uint64_t fail_index = 0;
  CopySide side = CopySide::source;
  std::set<std::uint64_t> not_begun;
  std::set<std::uint64_t> not_ended;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> asked;
};

BOOST_AUTO_TEST_SUITE(host_copy_engine)

BOOST_AUTO_TEST_CASE(bytes_arrive_and_each_operation_is_reported_once) {
  auto engine = make_stepped();
  const auto src = pattern(1000, 1);
  std::vector<std::byte> dst(1000);
  BOOST_TEST(
      submit(*engine, {{7, CopyDirection::store, {{dst.data(), src.data(), 1000}}, {}}}).ok());
  BOOST_TEST(poll_all(*engine).empty());
  BOOST_TEST(engine->pump(10) == 1u);
  BOOST_TEST((dst == src));
  const auto done = poll_all(*engine);
  BOOST_REQUIRE(done.size() == 1u);
  BOOST_TEST(done[0].id == 7u);
  BOOST_TEST((done[0].status == Code::ok));
  BOOST_TEST(done[0].first_failed == no_failed_copy);
  BOOST_TEST(poll_all(*engine).empty());
  BOOST_TEST(engine->pump(10) == 0u);
}

BOOST_AUTO_TEST_CASE(adjacent_copies_become_one_and_others_do_not) {
  auto engine = make_stepped();
  const auto src = pattern(4096, 2);
  std::vector<std::byte> dst(4096);
  Plan p{1, CopyDirection::load, {}, {}};
  for (std::size_t i = 0; i < 16; ++i) p.copies.push_back({&dst[i * 64], &src[i * 64], 64});
  p.copies.push_back({&dst[2048], &src[1024], 64});  // source continues, destination jumps
  p.copies.push_back({&dst[2112], &src[2048], 64});  // destination continues, source jumps
  BOOST_TEST(submit(*engine, {p}).ok());
  engine->pump(10);
  const auto c = engine->counters();
  BOOST_TEST(c.descriptors == 18u);
  BOOST_TEST(c.runs == 3u);
  BOOST_TEST(c.memcpy_calls == 3u);
  BOOST_TEST(c.bytes_loaded == 18u * 64);
  BOOST_TEST(c.bytes_stored == 0u);
  BOOST_TEST(std::memcmp(dst.data(), src.data(), 1024) == 0);
  BOOST_TEST(std::memcmp(&dst[2048], &src[1024], 64) == 0);
  BOOST_TEST(std::memcmp(&dst[2112], &src[2048], 64) == 0);
}

BOOST_AUTO_TEST_CASE(copies_whose_merged_ranges_would_overlap_stay_apart) {
  auto engine = make_stepped();
  // The caller breaks the rule that copies of one operation are independent; it still must not
  // reach memcpy as one.
  std::vector<std::byte> buffer = pattern(64, 3);
  Plan p{
      1, CopyDirection::load, {{&buffer[16], &buffer[0], 16}, {&buffer[32], &buffer[16], 16}}, {}};
  BOOST_TEST(submit(*engine, {p}).ok());
  BOOST_TEST(engine->counters().runs == 2u);
}

BOOST_AUTO_TEST_CASE(a_long_run_is_split_into_pieces) {
  HostCopyOptions o;
  o.workers = 0;
  o.piece_bytes = {1000};
  auto engine = make_engine(o);
  const auto src = pattern(10500, 4);
  std::vector<std::byte> dst(10500);
  Plan p{1, CopyDirection::store, {}, {}};
  p.copies.push_back({&dst[0], &src[0], 10000});
  for (std::size_t i = 0; i < 5; ++i)
    p.copies.push_back({&dst[10400 - i * 100], &src[10400 - i * 100], 100});
  BOOST_TEST(submit(*engine, {p}).ok());
  BOOST_TEST(engine->pump(10) == 10u);
  BOOST_TEST(poll_all(*engine).empty());
  BOOST_TEST(engine->pump(10) == 1u);  // five small ones are one piece
  BOOST_TEST((dst == src));
  BOOST_TEST(poll_all(*engine).size() == 1u);
}

BOOST_AUTO_TEST_CASE(large_operations_are_written_past_the_caches_with_the_same_bytes) {
  HostCopyOptions o;
  o.workers = 0;
  o.streaming_bytes = {5000};
  auto engine = make_engine(o);
  const auto src = pattern(20000, 9);
  std::uint64_t id = 0;
  std::uint64_t streamed = 0;
  for (const std::size_t bytes : {1U, 63U, 64U, 65U, 4999U, 5000U, 5001U, 9000U}) {
    for (const std::size_t from : {0U, 1U, 17U, 64U}) {
      for (const std::size_t to : {0U, 3U, 16U, 63U}) {
        std::vector<std::byte> dst(10000, std::byte{0xee});
        BOOST_TEST(
            submit(*engine, {{++id, CopyDirection::load, {{&dst[to], &src[from], bytes}}, {}}})
                .ok());
        engine->pump(10);
        BOOST_TEST(poll_all(*engine).size() == 1u);
        BOOST_TEST(std::memcmp(&dst[to], &src[from], bytes) == 0);
        BOOST_TEST((dst[to + bytes] == std::byte{0xee}));
        if (to != 0) BOOST_TEST((dst[to - 1] == std::byte{0xee}));
        if (bytes >= 5000) streamed += bytes;
      }
    }
  }
  BOOST_TEST(engine->counters().bytes_streamed == streamed);
}

BOOST_AUTO_TEST_CASE(zero_lengths_and_empty_operations_complete_without_memory) {
  auto engine = make_stepped();
  std::uint64_t counter = 0;
  BOOST_TEST(submit(*engine,
                    {{1, CopyDirection::load, {}, {}},
                     {2, CopyDirection::store, {{nullptr, nullptr, 0}, {nullptr, nullptr, 0}}, {}}},
                    {FenceKind::counter, &counter, 1, nullptr})
                 .ok());
  BOOST_TEST(engine->pump(10) == 0u);  // the fence holds for them too
  BOOST_TEST(poll_all(*engine).empty());
  counter = 1;
  engine->pump(10);
  BOOST_TEST((ids(poll_all(*engine)) == Ids{1, 2}));
  BOOST_TEST(engine->counters().memcpy_calls == 0u);
}

BOOST_AUTO_TEST_CASE(bad_batches_are_refused_whole) {
  auto engine = make_stepped();
  std::vector<std::byte> b(256);
  const Plan good{1, CopyDirection::load, {{&b[0], &b[128], 64}}, {}};
  const auto code = [&](const Plan& bad) { return submit(*engine, {good, bad}).code; };
  BOOST_TEST((code({2, CopyDirection::load, {{&b[0], &b[63], 64}}, {}}) == Code::arg));
  BOOST_TEST((code({2, CopyDirection::load, {{&b[63], &b[0], 64}}, {}}) == Code::arg));
  BOOST_TEST((code({2, CopyDirection::load, {{&b[0], &b[0], 1}}, {}}) == Code::arg));
  BOOST_TEST((code({2, CopyDirection::load, {{nullptr, &b[0], 1}}, {}}) == Code::arg));
  BOOST_TEST((code({2, CopyDirection::load, {{&b[0], nullptr, 1}}, {}}) == Code::arg));
  BOOST_TEST((code({2, CopyDirection::load, {{&b[0], &b[128], UINT64_MAX}}, {}}) == Code::arg));
  BOOST_TEST((code({1, CopyDirection::load, {}, {}}) == Code::arg));   // id twice
  BOOST_TEST((code({2, CopyDirection::load, {}, {2}}) == Code::arg));  // after itself
  BOOST_TEST((submit(*engine, {{2, CopyDirection::load, {}, {1}}, good}).code ==
              Code::arg));  // after a later one
  std::uint64_t two[2] = {};
  auto* crooked = reinterpret_cast<std::uint64_t*>(reinterpret_cast<char*>(two) + 4);
  BOOST_TEST(
      (submit(*engine, {good}, {FenceKind::counter, crooked, 1, nullptr}).code == Code::arg));
  BOOST_TEST(
      (submit(*engine, {good}, {FenceKind::counter, nullptr, 1, nullptr}).code == Code::arg));
  BOOST_TEST((submit(*engine, {good}, {FenceKind::cuda_event, nullptr, 0, two}).code ==
              Code::unsupported));
  BOOST_TEST((submit(*engine, {good}, {FenceKind::cuda_stream, nullptr, 0, two}).code ==
              Code::unsupported));
  BOOST_TEST(engine->pump(10) == 0u);
  BOOST_TEST(poll_all(*engine).empty());
  BOOST_TEST(submit(*engine, {good}).ok());  // its id is free again after every refusal
  BOOST_TEST((submit(*engine, {good}).code == Code::arg));
  engine->pump(10);
  BOOST_TEST((submit(*engine, {good}).code == Code::arg));  // ended but not polled
  BOOST_TEST(poll_all(*engine).size() == 1u);
  BOOST_TEST(submit(*engine, {good}).ok());
}

BOOST_AUTO_TEST_CASE(overlap_refusal_names_the_copy) {
  auto engine = make_stepped();
  std::vector<std::byte> b(256);
  const Status s =
      submit(*engine, {{9, CopyDirection::load, {{&b[0], &b[64], 8}, {&b[0], &b[4], 8}}, {}}});
  BOOST_TEST(s.text.find("copy 1 of operation 9") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(reservations_bound_the_queues_and_come_back) {
  HostCopyOptions o;
  o.workers = 0;
  o.operations_max = 4;
  o.runs_max = 64;
  o.predecessors_max = 2;
  auto engine = make_engine(o);
  std::vector<std::byte> b(1 << 16);
  const auto spread = [&](std::uint64_t id, std::size_t copies, std::size_t from) {
    Plan p{id, CopyDirection::load, {}, {}};
    for (std::size_t i = 0; i < copies; ++i)
      p.copies.push_back({&b[from + i * 16], &b[32768 + from + i * 16], 8});
    return p;
  };
  for (int round = 0; round < 5; ++round) {
    // 64 runs and a partly filled chunk for each of the 4 operations fit always.
    BOOST_TEST(submit(*engine, {spread(1, 61, 0), spread(2, 1, 1024), spread(3, 1, 2048),
                                spread(4, 1, 3072)})
                   .ok());
    BOOST_TEST((submit(*engine, {spread(5, 1, 0)}).code == Code::full));
    engine->pump(UINT64_MAX);
    BOOST_TEST((submit(*engine, {spread(5, 1, 0)}).code == Code::full));  // not polled yet
    BOOST_TEST(poll_all(*engine).size() == 4u);
  }
  BOOST_TEST((submit(*engine, {spread(1, 300, 0)}).code == Code::full));
  Plan chained = spread(4, 1, 3072);
  chained.after = {1, 2, 3};
  BOOST_TEST(
      (submit(*engine, {spread(1, 1, 0), spread(2, 1, 64), spread(3, 1, 128), chained}).code ==
       Code::full));
  chained.after = {1, 2, 99};  // 99 is unknown and counts as ended
  BOOST_TEST(submit(*engine, {spread(1, 1, 0), spread(2, 1, 64), spread(3, 1, 128), chained}).ok());
  engine->pump(UINT64_MAX);
  BOOST_TEST(poll_all(*engine).size() == 4u);
}

BOOST_AUTO_TEST_CASE(ranges_above_four_gibibytes_are_copied_in_full) {
  constexpr std::uint64_t span = (std::uint64_t{5} << 30);
  void* m = ::mmap(nullptr, span, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BOOST_REQUIRE(m != MAP_FAILED);
  auto* base = static_cast<std::byte*>(m);
  auto engine = make_stepped();
  // Offsets whose low 32 bits are equal: cutting any of them to 32 bits reads or writes the wrong
  // place.
  base[8192] = std::byte{0x11};
  base[(std::uint64_t{1} << 32) + 8192] = std::byte{0x22};
  std::vector<std::byte> out(4096);
  BOOST_TEST(submit(*engine, {{1,
                               CopyDirection::store,
                               {{out.data(), base + (std::uint64_t{1} << 32) + 8192, 4096}},
                               {}}})
                 .ok());
  engine->pump(UINT64_MAX);
  BOOST_TEST((out[0] == std::byte{0x22}));
  out.assign(4096, std::byte{0x33});
  BOOST_TEST(poll_all(*engine).size() == 1u);
  BOOST_TEST(submit(*engine, {{1,
                               CopyDirection::load,
                               {{base + (std::uint64_t{1} << 32) + 16384, out.data(), 4096}},
                               {}}})
                 .ok());
  engine->pump(UINT64_MAX);
  BOOST_TEST((base[16384] == std::byte{0}));
  BOOST_TEST((base[(std::uint64_t{1} << 32) + 16384] == std::byte{0x33}));
  // The length is 64 bits too: a merged run of more than 4 GiB fails at its first copy before
  // anything moves.
  Trouble trouble;
  trouble.fail_op = 5;
  auto failing = make_stepped(&trouble);
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that must not be touched
  auto* elsewhere = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 46);
  Plan p{5, CopyDirection::store, {}, {}};
  for (std::uint64_t i = 0; i < 5; ++i) {
    p.copies.push_back({elsewhere + (i << 30), base + (i << 30), std::uint64_t{1} << 30});
  }
  BOOST_TEST(submit(*failing, {p}).ok());
  BOOST_TEST(failing->counters().runs == 1u);
  failing->pump(1);
  BOOST_TEST(poll_all(*failing).at(0).first_failed == 0u);
  ::munmap(m, span);
}

BOOST_AUTO_TEST_CASE(a_failed_copy_is_a_status_with_its_index_and_side) {
  Trouble trouble;
  trouble.fail_op = 3;
  trouble.fail_index = 2;
  trouble.side = CopySide::destination;
  auto engine = make_stepped(&trouble);
  const auto src = pattern(512, 5);
  std::vector<std::byte> dst(512);
  Plan p{3, CopyDirection::load, {}, {}};
  for (std::size_t i = 0; i < 4; ++i)
    p.copies.push_back({&dst[i * 64], &src[i * 64], 64});  // one run
  Plan fine{4, CopyDirection::load, {{&dst[256], &src[256], 64}}, {}};
  BOOST_TEST(submit(*engine, {p, fine}).ok());
  engine->pump(UINT64_MAX);
  const auto done = poll_all(*engine);
  BOOST_REQUIRE(done.size() == 2u);
  BOOST_TEST((done[0].status == Code::io));
  BOOST_TEST(done[0].first_failed == 2u);
  BOOST_TEST((done[0].side == CopySide::destination));
  BOOST_TEST((done[1].status == Code::ok));
  BOOST_TEST(engine->counters().operations_failed == 1u);
  BOOST_TEST((dst[0] == std::byte{0}));
}

BOOST_AUTO_TEST_CASE(every_copy_can_fail_in_turn_and_nothing_else_changes) {
  for (std::uint64_t n = 0; n < 6; ++n) {
    Trouble trouble;
    trouble.fail_op = n / 3;
    trouble.fail_index = n % 3;
    auto engine = make_stepped(&trouble);
    const auto src = pattern(512, 6);
    std::vector<std::byte> dst(512);
    std::vector<Plan> plans;
    for (std::uint64_t op = 0; op < 2; ++op) {
      Plan p{op, CopyDirection::store, {}, {}};
      for (std::size_t i = 0; i < 3; ++i)
        p.copies.push_back({&dst[op * 256 + i * 70], &src[op * 256 + i * 70], 64});
      plans.push_back(p);
    }
    BOOST_TEST(submit(*engine, plans).ok());
    engine->pump(UINT64_MAX);
    for (const CopyCompletion& c : poll_all(*engine)) {
      BOOST_TEST((c.status == (c.id == n / 3 ? Code::io : Code::ok)));
      if (c.id == n / 3) BOOST_TEST(c.first_failed == n % 3);
      if (c.id != n / 3) BOOST_TEST(std::memcmp(&dst[c.id * 256], &src[c.id * 256], 64) == 0);
    }
    BOOST_TEST(trouble.asked.size() ==
               3 + n % 3 + 1);  // the failing operation stops at its failure
  }
}

BOOST_AUTO_TEST_CASE(completions_can_be_held_back_and_beginnings_refused) {
  Trouble trouble;
  auto engine = make_stepped(&trouble);
  const auto src = pattern(64, 7);
  std::vector<std::byte> a(64);
  std::vector<std::byte> b(64);
  trouble.not_ended = {1};
  trouble.not_begun = {2};
  BOOST_TEST(submit(*engine, {{1, CopyDirection::load, {{a.data(), src.data(), 64}}, {}},
                              {2, CopyDirection::load, {{b.data(), src.data(), 64}}, {}}})
                 .ok());
  BOOST_TEST(engine->pump(10) == 1u);
  BOOST_TEST((a == src));
  BOOST_TEST((b[5] == std::byte{0}));
  BOOST_TEST(poll_all(*engine).empty());
  const Ids both{1, 2};
  BOOST_TEST((engine->wait(both, std::chrono::nanoseconds::max()) == Code::deadline));
  trouble.not_begun.clear();
  BOOST_TEST(engine->pump(10) == 1u);
  BOOST_TEST((ids(poll_all(*engine)) == Ids{2}));
  trouble.not_ended.clear();
  BOOST_TEST((engine->wait(both, std::chrono::nanoseconds{0}) == Code::ok));
  BOOST_TEST((ids(poll_all(*engine)) == Ids{1}));
}

BOOST_AUTO_TEST_CASE(loads_go_before_queued_stores_but_do_not_starve_them) {
  HostCopyOptions o;
  o.workers = 0;
  o.loads_in_a_row_max = 3;
  auto engine = make_engine(o);
  std::vector<Plan> plans{{100, CopyDirection::store, {}, {}}, {101, CopyDirection::store, {}, {}}};
  for (std::uint64_t i = 0; i < 8; ++i) plans.push_back({i, CopyDirection::load, {}, {}});
  BOOST_TEST(submit(*engine, plans).ok());
  engine->pump(UINT64_MAX);
  BOOST_TEST((ids(poll_all(*engine)) == Ids{0, 1, 2, 100, 3, 4, 5, 101, 6, 7}));
}

Ids order_for_seed(std::uint64_t seed) {
  HostCopyOptions o;
  o.workers = 0;
  o.order = StepOrder::seeded;
  o.seed = seed;
  o.piece_bytes = {16};
  auto engine = make_engine(o);
  const auto src = pattern(64, 8);
  std::vector<std::byte> dst(640);
  std::vector<Plan> plans;
  for (std::uint64_t i = 0; i < 10; ++i) {
    plans.push_back({i,
                     i % 2 ? CopyDirection::load : CopyDirection::store,
                     {{&dst[i * 64], src.data(), 64}},
                     {}});
  }
  if (!submit(*engine, plans).ok()) return {};
  while (engine->pump(1) == 1) {
  }
  for (std::uint64_t i = 0; i < 10; ++i) BOOST_TEST(std::memcmp(&dst[i * 64], src.data(), 64) == 0);
  return ids(poll_all(*engine));
}

BOOST_AUTO_TEST_CASE(stepped_order_is_drawn_from_the_seed_and_repeats) {
  std::set<Ids> orders;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const Ids once = order_for_seed(seed);
    BOOST_TEST(once.size() == 10u);
    BOOST_TEST((order_for_seed(seed) == once));
    orders.insert(once);
  }
  BOOST_TEST(orders.size() > 15u);
}

BOOST_AUTO_TEST_CASE(impossible_options_are_errors) {
  HostCopyOptions o;
  o.workers = 0;
  o.operations_max = 0;
  BOOST_TEST((HostCopyEngine::create(o).error().code == Code::arg));
  o = HostCopyOptions{};
  o.piece_bytes = {0};
  BOOST_TEST((HostCopyEngine::create(o).error().code == Code::arg));
  o = HostCopyOptions{};
  o.runs_max = std::uint64_t{1} << 60;
  BOOST_TEST((HostCopyEngine::create(o).error().code == Code::arg));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
