// Order of copies against compute under the fake device (field reports, kind K1), and for each
// single wait of the backend a control: with that wait taken away the fake must report a race. A
// control that found nothing would mean that the case proves nothing.
#include <boost/test/unit_test.hpp>

#include "cuda/tests/fake_world.h"

namespace kvc {
namespace {

using copy_test::Compute;
using copy_test::FakeWorld;
using copy_test::pattern;
using copy_test::Plan;
using copy_test::seeded;
using copy_test::submit;
constexpr std::size_t unit = 4096;
constexpr std::uint64_t seeds = 20;

Plan store(FakeWorld& w, std::uint64_t id, std::size_t device, std::size_t host,
           std::vector<std::uint64_t> after = {}) {
  return {id, CopyDirection::store, {{w.host.at(host), w.device(device), unit}}, std::move(after)};
}

Plan load(FakeWorld& w, std::uint64_t id, std::size_t host, std::size_t device,
          std::vector<std::uint64_t> after = {}) {
  return {id, CopyDirection::load, {{w.device(device), w.host.at(host), unit}}, std::move(after)};
}

void ok(const Status& s) { BOOST_REQUIRE_MESSAGE(s.ok(), s.text); }

bool holds(const std::byte* p, const std::vector<std::byte>& bytes) {
  return std::memcmp(p, bytes.data(), bytes.size()) == 0;
}

// K1.1: the host runs three steps ahead; block 5 is stored in the step that computes it.
void store_in_the_step_that_computes(FakeWorld& w, bool by_stream) {
  Compute step[4];
  std::memcpy(w.device(5 * unit), pattern(unit, 90).data(), unit);
  w.control.hold(w.compute, 1);
  w.computes(step[0], 5 * unit, pattern(unit, 65));
  ok(submit(*w.engine, {store(w, 1, 5 * unit, 0)}, by_stream ? w.stream_now() : w.event_now()));
  for (int i = 1; i < 4; ++i) {
    w.computes(step[i], 6 * unit, pattern(unit, 1));
    static_cast<void>(w.event_now());  // the caller records its event anew in every step
    BOOST_TEST(w.engine->pump(8) <= 8u);
  }
  w.control.hold(w.compute, 0);
  BOOST_TEST(w.drain().size() == 1u);
  if (w.control.faults() == 0) BOOST_TEST(holds(w.host.at(0), pattern(unit, 65)));
}

// K1.4: the destination is zeroed on the device in the step that loads into it.
void load_into_a_block_zeroed_in_the_same_step(FakeWorld& w) {
  Compute zero;
  const auto bytes = pattern(unit, 2);
  std::memcpy(w.host.at(2 * unit), bytes.data(), unit);
  w.computes(zero, 9 * unit, std::vector<std::byte>(unit));
  ok(submit(*w.engine, {load(w, 1, 2 * unit, 9 * unit)}, w.stream_now()));
  BOOST_TEST(w.drain().size() == 1u);
  if (w.control.faults() == 0) BOOST_TEST(holds(w.device(9 * unit), bytes));
}

// K1.1 with a counter: the host's own threads are the device.
void store_behind_a_counter(FakeWorld& w) {
  Compute step;
  std::uint64_t counter = 0;
  w.computes(step, 0, pattern(unit, 7));
  static_cast<void>(w.event_now());
  ok(submit(*w.engine, {store(w, 1, 0, 0)}, {FenceKind::counter, &counter, 1, nullptr}));
  w.engine->pump(4);
  FakeWorld::check(w.driver->event_synchronize(w.event));
  __atomic_store_n(&counter, 1, __ATOMIC_RELEASE);
  BOOST_TEST(w.drain().size() == 1u);
  if (w.control.faults() == 0) BOOST_TEST(holds(w.host.at(0), pattern(unit, 7)));
}

// A slot is stored and loaded again in one plan.
void load_chained_behind_the_store_of_its_slot(FakeWorld& w) {
  Compute step;
  w.control.hold(w.compute, 1);
  w.computes(step, 0, pattern(unit, 11));
  ok(submit(*w.engine, {store(w, 1, 0, 0), load(w, 2, 0, 8 * unit, {1})}, w.stream_now()));
  w.control.hold(w.compute, 0);
  BOOST_TEST(w.drain().size() == 2u);
  if (w.control.faults() == 0) BOOST_TEST(holds(w.device(8 * unit), pattern(unit, 11)));
}

// ... and a second load names only the first one, which it may not overtake with its reads either.
void load_behind_a_load_behind_a_store(FakeWorld& w) {
  Compute step;
  w.control.hold(w.compute, 1);
  w.computes(step, 0, pattern(unit, 11));
  const Fence fence = w.engine->capture(w.stream_now()).value();
  ok(submit(*w.engine, {store(w, 1, 0, 0)}, fence));
  ok(submit(*w.engine, {load(w, 2, unit, 7 * unit, {1})}));
  ok(submit(*w.engine, {load(w, 3, 0, 8 * unit, {2})}));
  w.engine->release(fence);
  w.control.hold(w.compute, 0);
  BOOST_TEST(w.drain().size() == 3u);
  if (w.control.faults() == 0) BOOST_TEST(holds(w.device(8 * unit), pattern(unit, 11)));
}

// A slot that is being read is stored anew.
void store_behind_the_load_of_its_slot(FakeWorld& w) {
  std::memcpy(w.host.at(0), pattern(unit, 3).data(), unit);
  w.host_writes(w.host.at(0), unit);
  ok(submit(*w.engine, {load(w, 1, 0, 8 * unit), store(w, 2, 0, 0, {1})}));
  BOOST_TEST(w.drain().size() == 2u);
  if (w.control.faults() == 0) BOOST_TEST(holds(w.device(8 * unit), pattern(unit, 3)));
}

// A slot is stored twice in one plan, and the second time counts: by copies, or by the kernel.
void store_behind_a_store_of_its_slot(FakeWorld& w) {
  constexpr std::size_t fragments = 32;
  constexpr std::size_t small = 64;
  Plan first{1, CopyDirection::store, {}, {}};
  Plan second{2, CopyDirection::store, {}, {1}};
  std::memcpy(w.device(unit), pattern(unit, 6).data(), unit);
  for (std::size_t i = 0; i < fragments; ++i) {
    first.copies.push_back({w.host.at(2 * i * small), w.device(2 * i * small), small});
    second.copies.push_back({w.host.at(2 * i * small), w.device(unit + 2 * i * small), small});
  }
  ok(submit(*w.engine, {first, second}));
  BOOST_TEST(w.drain().size() == 2u);
  for (std::size_t i = 0; i < fragments && w.control.faults() == 0; ++i) {
    BOOST_TEST(std::memcmp(w.host.at(2 * i * small), w.device(unit + 2 * i * small), small) == 0);
  }
}

// The block is computed anew as soon as its store was reported.
void block_is_written_again_after_the_report(FakeWorld& w) {
  Compute first;
  Compute second;
  w.computes(first, 0, pattern(unit, 4));
  ok(submit(*w.engine, {store(w, 1, 0, 0)}, w.stream_now()));
  std::vector<CopyCompletion> done;
  for (int i = 0; i < 1000 && done.empty(); ++i) done = copy_test::poll_all(*w.engine);
  BOOST_REQUIRE(done.size() == 1u);
  w.host_reads(w.host.at(0), unit);
  w.computes(second, 0, pattern(unit, 5));
  w.drain();
  if (w.control.faults() == 0) BOOST_TEST(holds(w.host.at(0), pattern(unit, 4)));
}

// More launches of the kernel than there are tables, with the stream held up.
void many_launches(FakeWorld& w) {
  constexpr std::size_t fragments = 32;
  constexpr std::size_t small = 64;
  Compute step;
  w.control.hold(w.compute, 1);
  w.computes(step, 0, pattern(unit, 4));
  const Fence fence = w.engine->capture(w.stream_now()).value();
  for (std::uint64_t op = 0; op < 8; ++op) {
    Plan p{op, CopyDirection::store, {}, {}};
    for (std::size_t i = 0; i < fragments; ++i) {
      const std::size_t at = (op * fragments + i) * small * 2;
      p.copies.push_back({w.host.at(at), w.device(at), small});
    }
    ok(submit(*w.engine, {p}, fence));
  }
  w.engine->release(fence);
  w.control.hold(w.compute, 0);
  BOOST_TEST(w.drain().size() == 8u);
  BOOST_TEST(w.engine->counters().launches >= 4u);
}

// The engine goes while copies are under way; their memory goes after it.
void closed_under_way(FakeWorld& w) {
  ok(submit(*w.engine, {load(w, 1, 0, 0), store(w, 2, unit, unit)}));
  w.engine.reset();
  w.control.run(100);
}

using Scene = void (*)(FakeWorld&);

void by_event(FakeWorld& w) { store_in_the_step_that_computes(w, false); }
void by_stream(FakeWorld& w) { store_in_the_step_that_computes(w, true); }

// In every seed nothing is wrong.
void right(Scene scene, CudaCopyOptions options = {}) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    FakeWorld w(seeded(seed), options);
    scene(w);
    BOOST_TEST_CONTEXT("seed " << seed) { BOOST_TEST(w.faults() == ""); }
    BOOST_TEST(w.counts().blocked_calls == 0u);
  }
}

// In every seed the fake reports it: what is not ordered is found in whatever order it ran.
void wrong(Scene scene, CudaWait wait, CudaCopyOptions base = {}) {
#if defined(KVC_FAULT_POINTS)
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    CudaCopyOptions options = base;
    options.skip_waits = 1U << static_cast<unsigned>(wait);
    FakeWorld w(seeded(seed), options);
    scene(w);
    BOOST_TEST_CONTEXT("seed " << seed) { BOOST_TEST(w.control.faults() != 0u); }
  }
#else
  static_cast<void>(scene);
  static_cast<void>(wait);
  static_cast<void>(base);
#endif
}

CudaCopyOptions by(CopyPath path) {
  CudaCopyOptions o;
  o.path = path;
  return o;
}

BOOST_AUTO_TEST_SUITE(cuda_waits)

BOOST_AUTO_TEST_CASE(a_store_waits_for_the_step_that_computes_its_block) {
  for (const CopyPath path :
       {CopyPath::automatic, CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
    right(by_event, by(path));
    right(by_stream, by(path));
  }
}

BOOST_AUTO_TEST_CASE(control_without_the_fence_of_stores) {
  wrong(by_event, CudaWait::store_fence);
  wrong(by_stream, CudaWait::store_fence);
}

BOOST_AUTO_TEST_CASE(control_without_catching_the_callers_event) {
  wrong(by_event, CudaWait::event_fence_caught);
}

BOOST_AUTO_TEST_CASE(control_with_sources_of_stores_in_any_order) {
  wrong(by_event, CudaWait::store_source_order, by(CopyPath::batch));
}

BOOST_AUTO_TEST_CASE(a_load_waits_for_the_zeroing_of_its_destination) {
  right(load_into_a_block_zeroed_in_the_same_step);
}

BOOST_AUTO_TEST_CASE(control_without_the_fence_of_loads) {
  wrong(load_into_a_block_zeroed_in_the_same_step, CudaWait::load_fence);
}

BOOST_AUTO_TEST_CASE(a_store_waits_for_its_counter) { right(store_behind_a_counter); }

BOOST_AUTO_TEST_CASE(control_without_looking_at_the_counter) {
  wrong(store_behind_a_counter, CudaWait::counter_fence);
}

BOOST_AUTO_TEST_CASE(a_load_comes_after_the_store_of_its_slot) {
  for (const CopyPath path :
       {CopyPath::automatic, CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
    right(load_chained_behind_the_store_of_its_slot, by(path));
    right(load_behind_a_load_behind_a_store, by(path));
  }
}

BOOST_AUTO_TEST_CASE(control_without_the_wait_of_a_load_for_a_store) {
  wrong(load_chained_behind_the_store_of_its_slot, CudaWait::load_after_store);
}

BOOST_AUTO_TEST_CASE(control_with_chained_sources_in_any_order) {
  wrong(load_chained_behind_the_store_of_its_slot, CudaWait::chained_source_order,
        by(CopyPath::batch));
  wrong(load_behind_a_load_behind_a_store, CudaWait::chained_source_order, by(CopyPath::batch));
}

BOOST_AUTO_TEST_CASE(a_store_comes_after_the_load_of_its_slot) {
  right(store_behind_the_load_of_its_slot);
}

BOOST_AUTO_TEST_CASE(control_without_the_wait_of_a_store_for_a_load) {
  wrong(store_behind_the_load_of_its_slot, CudaWait::store_after_load);
}

BOOST_AUTO_TEST_CASE(a_store_comes_after_an_earlier_store_of_its_slot) {
  for (const CopyPath path :
       {CopyPath::automatic, CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
    right(store_behind_a_store_of_its_slot, by(path));
  }
}

BOOST_AUTO_TEST_CASE(control_without_order_in_one_direction) {
  wrong(store_behind_a_store_of_its_slot, CudaWait::same_direction, by(CopyPath::batch));
  wrong(store_behind_a_store_of_its_slot, CudaWait::same_direction, by(CopyPath::kernel));
}

BOOST_AUTO_TEST_CASE(what_was_reported_is_over) { right(block_is_written_again_after_the_report); }

BOOST_AUTO_TEST_CASE(control_with_reports_before_the_end) {
  wrong(block_is_written_again_after_the_report, CudaWait::completion);
}

BOOST_AUTO_TEST_CASE(a_table_of_the_kernel_is_written_again_when_its_launch_is_over) {
  right(many_launches, by(CopyPath::kernel));
}

BOOST_AUTO_TEST_CASE(control_with_tables_written_at_once) {
  wrong(many_launches, CudaWait::table_reuse, by(CopyPath::kernel));
}

BOOST_AUTO_TEST_CASE(nothing_is_touched_after_the_engine_is_gone) { right(closed_under_way); }

BOOST_AUTO_TEST_CASE(control_with_an_engine_that_does_not_wait_at_its_end) {
  wrong(closed_under_way, CudaWait::close);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
