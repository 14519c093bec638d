// Order of copies against compute (field reports, kind K1) and among themselves, each with a
// control: a backend that ignores the order must give the wrong bytes, or the test proves nothing.
#include <boost/test/unit_test.hpp>

#include "cuda/tests/copy_helpers.h"

namespace kvc {
namespace {

using copy_test::make_stepped;
using copy_test::pattern;
using copy_test::poll_all;
using copy_test::submit;
using Bytes64 = std::vector<std::byte>;
constexpr std::size_t unit = 64;

// A backend with the fault that K1 is about: it drops fences or predecessors and copies at once.
class BlindEngine final : public CopyEngine {
 public:
  BlindEngine(std::unique_ptr<CopyEngine> inner, bool drop_fence, bool drop_after)
      : inner_(std::move(inner)), drop_fence_(drop_fence), drop_after_(drop_after) {}
  [[nodiscard]] bool supports(FenceKind kind) const override { return inner_->supports(kind); }
  [[nodiscard]] bool stepped() const override { return inner_->stepped(); }
  Status submit(const CopyBatch& batch) override {
    std::vector<CopyOperation> ops(batch.operations.begin(), batch.operations.end());
    for (CopyOperation& o : ops) {
      if (drop_after_) o.after = {};
    }
    return inner_->submit({drop_fence_ ? Fence{} : batch.fence, ops});
  }
  std::size_t poll(std::span<CopyCompletion> out) override { return inner_->poll(out); }
  Code wait(std::span<const std::uint64_t> ops, std::chrono::nanoseconds t) override {
    return inner_->wait(ops, t);
  }
  std::uint64_t pump(std::uint64_t budget) override { return inner_->pump(budget); }

 private:
  std::unique_ptr<CopyEngine> inner_;
  bool drop_fence_;
  bool drop_after_;
};

Fence at_step(const std::uint64_t& counter, std::uint64_t step) {
  return {FenceKind::counter, &counter, step, nullptr};
}

// K1 case 1: the host runs three steps ahead of the device; block 5 is stored in the step that
// computes it.
Bytes64 store_in_the_step_that_computes(CopyEngine& engine) {
  std::uint64_t device_step = 0;
  Bytes64 device = pattern(8 * unit, 90);  // old pattern Z
  Bytes64 tier(64);
  if (!submit(engine, {{1, CopyDirection::store, {{tier.data(), &device[5 * unit], 64}}, {}}},
              at_step(device_step, 1))
           .ok()) {
    return {};
  }
  for (int step = 0; step < 3; ++step) {
    engine.pump(8);
    BOOST_TEST(
        (engine.wait(std::vector<std::uint64_t>{99}, std::chrono::nanoseconds{0}) == Code::ok));
  }
  const Bytes64 computed = pattern(64, 65);
  std::memcpy(&device[5 * unit], computed.data(), 64);
  __atomic_store_n(&device_step, 1, __ATOMIC_RELEASE);
  engine.pump(8);
  BOOST_TEST(poll_all(engine).size() == 1u);
  return tier;
}

// K1 case 4: the destination is zeroed on the device in the same step; the load must come after
// that.
Bytes64 load_into_a_block_zeroed_in_the_same_step(CopyEngine& engine) {
  std::uint64_t device_step = 3;
  Bytes64 device(10 * unit, std::byte{0xee});
  const Bytes64 tier = pattern(64, 2);
  if (!submit(engine, {{1, CopyDirection::load, {{&device[9 * unit], tier.data(), 64}}, {}}},
              at_step(device_step, 4))
           .ok()) {
    return {};
  }
  engine.pump(8);
  std::memset(&device[9 * unit], 0, 64);
  __atomic_store_n(&device_step, 4, __ATOMIC_RELEASE);
  engine.pump(8);
  BOOST_TEST(poll_all(engine).size() == 1u);
  return {&device[9 * unit], device.data() + device.size()};
}

// A slot is stored and loaded again in one plan: the load is allowed to overtake stores, but not
// this one.
Bytes64 load_chained_behind_the_store_of_its_slot(CopyEngine& engine) {
  const Bytes64 device = pattern(64, 11);
  Bytes64 slot(64);
  Bytes64 other(64);
  if (!submit(engine, {{1, CopyDirection::store, {{slot.data(), device.data(), 64}}, {}},
                       {2, CopyDirection::load, {{other.data(), slot.data(), 64}}, {1}}})
           .ok()) {
    return {};
  }
  engine.pump(8);
  BOOST_TEST(poll_all(engine).size() == 2u);
  return other;
}

BOOST_AUTO_TEST_SUITE(copy_order)

BOOST_AUTO_TEST_CASE(a_store_waits_for_the_step_that_computes_its_block) {
  auto engine = make_stepped();
  BOOST_TEST((store_in_the_step_that_computes(*engine) == pattern(64, 65)));
}

BOOST_AUTO_TEST_CASE(control_a_backend_without_fences_stores_the_old_bytes) {
  BlindEngine engine(make_stepped(), true, false);
  BOOST_TEST((store_in_the_step_that_computes(engine) != pattern(64, 65)));
}

BOOST_AUTO_TEST_CASE(a_load_waits_for_the_zeroing_of_its_destination) {
  auto engine = make_stepped();
  BOOST_TEST((load_into_a_block_zeroed_in_the_same_step(*engine) == pattern(64, 2)));
}

BOOST_AUTO_TEST_CASE(control_a_backend_without_fences_leaves_the_block_blank) {
  BlindEngine engine(make_stepped(), true, false);
  BOOST_TEST((load_into_a_block_zeroed_in_the_same_step(engine) == Bytes64(64)));
}

BOOST_AUTO_TEST_CASE(a_load_does_not_overtake_the_store_of_its_slot) {
  auto engine = make_stepped();
  BOOST_TEST((load_chained_behind_the_store_of_its_slot(*engine) == pattern(64, 11)));
}

BOOST_AUTO_TEST_CASE(control_a_backend_without_predecessors_loads_an_empty_slot) {
  BlindEngine engine(make_stepped(), false, true);
  BOOST_TEST((load_chained_behind_the_store_of_its_slot(engine) == Bytes64(64)));
}

BOOST_AUTO_TEST_CASE(a_fence_value_that_was_passed_is_reached) {
  auto engine = make_stepped();
  const std::uint64_t counter = 9;
  BOOST_TEST(submit(*engine, {{1, CopyDirection::load, {}, {}}}, at_step(counter, 4)).ok());
  BOOST_TEST(engine->pump(1) == 1u);
}

BOOST_AUTO_TEST_CASE(batches_with_different_fences_open_one_by_one) {
  auto engine = make_stepped();
  std::uint64_t counter = 0;
  for (std::uint64_t step = 1; step <= 3; ++step) {
    BOOST_TEST(
        submit(*engine,
               {{step, CopyDirection::store, {}, {}}, {step + 10, CopyDirection::store, {}, {}}},
               at_step(counter, step))
            .ok());
  }
  for (std::uint64_t step = 1; step <= 3; ++step) {
    counter = step;
    engine->pump(100);
    const auto done = copy_test::ids(poll_all(*engine));
    BOOST_TEST((done == std::vector<std::uint64_t>{step, step + 10}));
  }
}

class FailOne final : public CopyFault {
 public:
  explicit FailOne(std::uint64_t op) : op_(op) {}
  Verdict on_copy(std::uint64_t op, CopyDirection, std::uint64_t) override {
    return op == op_ ? Verdict{Code::io, CopySide::destination} : Verdict{};
  }
  bool may_end(std::uint64_t op) override { return op != op_ || let_end; }
  bool let_end = true;

 private:
  std::uint64_t op_;
};

BOOST_AUTO_TEST_CASE(a_load_behind_a_failed_store_fails_without_reading_the_slot) {
  for (const bool submitted_late : {false, true}) {
    FailOne fault(1);
    auto engine = make_stepped(&fault);
    const Bytes64 device = pattern(64, 11);
    Bytes64 slot(64, std::byte{0x55});
    Bytes64 other(64);
    const copy_test::Plan store{1, CopyDirection::store, {{slot.data(), device.data(), 64}}, {}};
    const copy_test::Plan load{2, CopyDirection::load, {{other.data(), slot.data(), 64}}, {1}};
    const copy_test::Plan next_store{
        3, CopyDirection::store, {{slot.data(), device.data(), 64}}, {1}};
    if (submitted_late) {
      BOOST_TEST(submit(*engine, {store}).ok());
      engine->pump(8);  // ended, not polled
      BOOST_TEST(submit(*engine, {load, next_store}).ok());
    } else {
      BOOST_TEST(submit(*engine, {store, load, next_store}).ok());
    }
    engine->pump(8);
    const auto done = poll_all(*engine);
    BOOST_REQUIRE(done.size() == 3u);
    BOOST_TEST((done[1].status == Code::io));
    BOOST_TEST(done[1].first_failed == no_failed_copy);
    BOOST_TEST((done[1].side == CopySide::source));
    BOOST_TEST((done[2].status == Code::ok));  // a store only needs the order
    BOOST_TEST((other == Bytes64(64)));
    BOOST_TEST((slot == device));
  }
}

BOOST_AUTO_TEST_CASE(what_comes_after_a_held_operation_is_not_begun) {
  FailOne fault(1);
  fault.let_end = false;
  auto engine = make_stepped(&fault);
  BOOST_TEST(
      submit(*engine, {{1, CopyDirection::store, {}, {}}, {2, CopyDirection::load, {}, {1}}}).ok());
  BOOST_TEST(engine->pump(8) == 1u);
  BOOST_TEST(poll_all(*engine).empty());
  fault.let_end = true;
  BOOST_TEST(engine->pump(8) == 1u);
  BOOST_TEST(poll_all(*engine).size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_fence_that_is_never_reached_is_abandoned_at_the_end) {
  const Bytes64 device = pattern(64, 3);
  Bytes64 tier(64);
  std::uint64_t counter = 0;
  {
    auto engine = make_stepped();
    BOOST_TEST(submit(*engine, {{1, CopyDirection::store, {{tier.data(), device.data(), 64}}, {}}},
                      at_step(counter, 1))
                   .ok());
    engine->pump(8);
    BOOST_TEST(
        (engine->wait(std::vector<std::uint64_t>{1}, std::chrono::hours(1)) == Code::deadline));
  }
  BOOST_TEST((tier == Bytes64(64)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
