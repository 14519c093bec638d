// Marks of operations (kvc.layerwise/1): what waits for one layer waits for no other, is ordered
// behind the copies of its own, and costs the same however much is open.
#include <boost/test/unit_test.hpp>

#include "cuda/tests/fake_world.h"

namespace kvc {
namespace {

using copy_test::Compute;
using copy_test::FakeWorld;
using copy_test::pattern;
using copy_test::seeded;
constexpr std::size_t unit = 4096;
constexpr std::size_t layers = 4;

// Loads of `layers` marks, `each` operations per mark, one block per operation.
struct Marked {
  explicit Marked(std::size_t each) : each_operations(each) {}

  Status submit(FakeWorld& w, Fence fence = {}) {
    std::vector<CopyDescriptor> copies(layers * each_operations);
    std::vector<CopyOperation> ops;
    for (std::size_t i = 0; i < copies.size(); ++i) {
      copies[i] = {w.device((64 + i) * unit), w.host.at(i * unit), unit};
      ops.push_back(
          {i + 1, CopyDirection::load, std::span(&copies[i], 1), {}, &marks[i / each_operations]});
    }
    return w.engine->submit({fence, ops});
  }
  Code fence(CopyEngine& engine, std::size_t layer, Fence& out) const {
    return engine.fence_of(marks[layer], each_operations, out);
  }

  std::size_t each_operations;
  CopyMark marks[layers];
};

BOOST_AUTO_TEST_SUITE(cuda_layers)

BOOST_AUTO_TEST_CASE(a_layer_is_there_before_the_next_one_is_copied) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    kvc_fake_options idle = seeded(seed);
    idle.idle_calls = 1;
    FakeWorld w(idle);
    Marked m(3);
    BOOST_REQUIRE(m.submit(w).ok());
    // One piece for each mark, not one for all.
    BOOST_TEST(w.engine->counters().pieces == layers);
    Fence fences[layers];
    for (std::size_t i = 0; i < layers; ++i) {
      BOOST_TEST((m.fence(*w.engine, i, fences[i]) == Code::ok));
      BOOST_REQUIRE((fences[i].kind == FenceKind::cuda_event));
    }
    // A layer is a copy call and the event behind it: what is reached says nothing of the next.
    for (std::size_t i = 0; i < layers; ++i) {
      const auto event = static_cast<cuda::Event>(fences[i].handle);
      while (w.driver->event_query(event) != cuda::driver_success) {
      }
      BOOST_TEST(w.counts().commands_run == 2 * (i + 1));
    }
    BOOST_TEST(w.drain().size() == layers * 3);
    for (std::size_t i = 0; i < layers; ++i) {
      BOOST_TEST((m.fence(*w.engine, i, fences[i]) == Code::ok));
      BOOST_TEST((fences[i].kind == FenceKind::none));
      BOOST_TEST(m.marks[i].ended_now() == 3u);
    }
    BOOST_TEST(w.faults() == "");
  }
}

// A forward of `layers` layers, each behind the fence of its own, unless one is left out.
void forward(FakeWorld& w, std::size_t left_out) {
  w.control.hold(w.compute, 1);
  Marked m(2);
  BOOST_REQUIRE(m.submit(w).ok());
  Compute step[layers];
  for (std::size_t i = 0; i < layers; ++i) {
    Fence f;
    BOOST_REQUIRE((m.fence(*w.engine, i, f) == Code::ok));
    BOOST_REQUIRE((f.kind == FenceKind::cuda_event));
    if (i != left_out) {
      FakeWorld::check(
          w.driver->stream_wait_event(w.compute, static_cast<cuda::Event>(f.handle), 0));
    }
    w.reads(step[i], (64 + 2 * i) * unit, 2 * unit);
  }
  w.control.hold(w.compute, 0);
  BOOST_TEST(w.drain().size() == layers * 2);
  w.control.run(100);
}

BOOST_AUTO_TEST_CASE(a_forward_reads_each_layer_behind_its_fence) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    FakeWorld w(seeded(seed));
    forward(w, layers);
    BOOST_TEST(w.faults() == "");
  }
}

// The first layer is the only one whose copies no other fence comes after.
BOOST_AUTO_TEST_CASE(control_without_the_wait_for_the_last_layer) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    FakeWorld w(seeded(seed));
    forward(w, layers - 1);
    BOOST_TEST(w.control.faults() != 0u);
  }
}

BOOST_AUTO_TEST_CASE(control_without_the_wait_for_the_first_layer) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    FakeWorld w(seeded(seed));
    forward(w, 0);
    BOOST_TEST(w.control.faults() != 0u);
  }
}

BOOST_AUTO_TEST_CASE(what_is_not_with_the_device_has_no_fence_yet) {
  FakeWorld w;
  std::uint64_t counter = 0;
  Marked m(1);
  BOOST_REQUIRE(m.submit(w, {FenceKind::counter, &counter, 1, nullptr}).ok());
  Fence f;
  BOOST_TEST((m.fence(*w.engine, 0, f) == Code::later));
  counter = 1;
  CopyCompletion none[1];
  w.engine->poll(std::span(none, 0));
  BOOST_TEST((m.fence(*w.engine, 0, f) == Code::ok));
  BOOST_TEST((f.kind == FenceKind::cuda_event));
  BOOST_TEST(w.drain().size() == layers);
}

BOOST_AUTO_TEST_CASE(what_is_never_submitted_counts_as_ended) {
  FakeWorld w;
  Marked m(1);
  BOOST_REQUIRE(m.submit(w).ok());
  m.marks[1].skip(2);
  Fence f;
  BOOST_TEST((w.engine->fence_of(m.marks[1], 3, f) == Code::ok));
  BOOST_TEST((f.kind == FenceKind::cuda_event));
  BOOST_TEST((w.engine->fence_of(m.marks[1], 4, f) == Code::later));
  BOOST_TEST(w.drain().size() == layers);
  BOOST_TEST((w.engine->fence_of(m.marks[1], 3, f) == Code::ok));
  BOOST_TEST((f.kind == FenceKind::none));
}

BOOST_AUTO_TEST_CASE(a_fence_costs_no_look_however_much_is_open) {
  for (const std::uint64_t pending : {10U, 5000U}) {
    kvc_fake_options idle{};
    idle.idle_calls = 1;
    CudaCopyOptions o;
    o.operations_max = 6000;
    FakeWorld w(idle, o);
    w.control.hold(w.compute, 1);
    Compute never;
    w.computes(never, 0, pattern(8, 1));
    const Fence fence = w.engine->capture(w.stream_now()).value();
    for (std::uint64_t i = 0; i < pending; ++i) {
      BOOST_REQUIRE(copy_test::submit(
                        *w.engine,
                        {{100 + i, CopyDirection::store, {{w.host.at(0), w.device(8192), 8}}, {}}},
                        fence)
                        .ok());
    }
    w.engine->release(fence);
    Marked m(2);
    BOOST_REQUIRE(m.submit(w).ok());
    const std::uint64_t before = w.engine->counters().looks;
    Fence f;
    for (int i = 0; i < 100; ++i) BOOST_TEST((m.fence(*w.engine, 1, f) == Code::ok));
    BOOST_TEST(w.engine->counters().looks == before);
    w.control.hold(w.compute, 0);
    BOOST_TEST(w.drain().size() == pending + layers * 2);
  }
}

BOOST_AUTO_TEST_CASE(host_threads_tell_a_layer_by_its_counter) {
  HostCopyOptions o;
  o.workers = 2;
  const auto engine = copy_test::make_engine(o);
  const std::vector<std::byte> from = pattern(layers * unit, 3);
  std::vector<std::byte> to(layers * unit);
  CopyMark marks[layers];
  std::uint64_t counter = 0;
  std::vector<CopyDescriptor> copies;
  std::vector<CopyOperation> ops;
  copies.reserve(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    copies.push_back({to.data() + i * unit, from.data() + i * unit, unit});
    ops.push_back({i, CopyDirection::load, std::span(&copies[i], 1), {}, &marks[i]});
  }
  BOOST_REQUIRE(engine->submit({{FenceKind::counter, &counter, 1, nullptr}, ops}).ok());
  Fence f[layers];
  for (std::size_t i = 0; i < layers; ++i) {
    BOOST_TEST((engine->fence_of(marks[i], 1, f[i]) == Code::ok));
    BOOST_REQUIRE((f[i].kind == FenceKind::counter));
    BOOST_TEST(f[i].value == 1u);
    BOOST_TEST(__atomic_load_n(f[i].counter, __ATOMIC_ACQUIRE) == 0u);
  }
  __atomic_store_n(&counter, 1, __ATOMIC_RELEASE);
  for (std::size_t i = 0; i < layers; ++i) {
    while (__atomic_load_n(f[i].counter, __ATOMIC_ACQUIRE) < f[i].value) {
      static_cast<void>(copy_test::poll_all(*engine));
    }
    BOOST_TEST(std::memcmp(to.data() + i * unit, from.data() + i * unit, unit) == 0);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
