#include "cuda/cuda_copy_engine.h"

#include <boost/test/unit_test.hpp>
#include <condition_variable>
#include <mutex>

#include "cuda/calibrate.h"
#include "cuda/cuda_pins.h"
#include "cuda/tests/fake_world.h"

namespace kvc {
namespace {

using copy_test::Compute;
using copy_test::fake_path;
using copy_test::FakeWorld;
using copy_test::ids;
using copy_test::pattern;
using copy_test::Plan;
using copy_test::poll_all;
using copy_test::submit;
using Ids = std::vector<std::uint64_t>;

CudaCopyOptions by(CopyPath path) {
  CudaCopyOptions o;
  o.path = path;
  return o;
}

// `count` fragments of `bytes`, none adjacent to the next at both ends.
Plan scattered(FakeWorld& w, std::uint64_t id, CopyDirection d, std::size_t count,
               std::size_t bytes) {
  Plan p{id, d, {}, {}};
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* device = w.device(i * bytes * 2);
    std::byte* host = w.host.at((count - 1 - i) * bytes);
    p.copies.push_back(d == CopyDirection::load ? CopyDescriptor{device, host, bytes}
                                                : CopyDescriptor{host, device, bytes});
  }
  return p;
}

BOOST_AUTO_TEST_SUITE(cuda_copy_engine)

BOOST_AUTO_TEST_CASE(bytes_arrive_by_every_path_in_both_directions) {
  for (const CopyPath path : {CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
    for (const std::size_t bytes : {1U, 3U, 4U, 8U, 16U, 100U, 512U, 4096U}) {
      FakeWorld w({}, by(path));
      const auto all = pattern(w.host.bytes(), 3);
      std::memcpy(w.host.at(0), all.data(), all.size());
      Plan in = scattered(w, 1, CopyDirection::load, 50, bytes);
      BOOST_TEST(submit(*w.engine, {in}).ok());
      BOOST_TEST((ids(w.drain()) == Ids{1}));
      for (const CopyDescriptor& c : in.copies) BOOST_TEST(std::memcmp(c.dst, c.src, bytes) == 0);
      std::memset(w.host.at(0), 0, w.host.bytes());
      Plan out = scattered(w, 2, CopyDirection::store, 50, bytes);
      BOOST_TEST(submit(*w.engine, {out}).ok());
      BOOST_TEST((ids(w.drain()) == Ids{2}));
      BOOST_TEST(std::memcmp(w.host.at(0), all.data(), 50 * bytes) == 0);
      BOOST_TEST(w.faults() == "");
      const auto c = w.engine->counters();
      BOOST_TEST(((path == CopyPath::batch) == (c.batch_calls != 0)));
      BOOST_TEST(((path == CopyPath::loop) == (c.single_calls != 0)));
      BOOST_TEST(((path == CopyPath::kernel) == (c.launches != 0)));
    }
  }
}

BOOST_AUTO_TEST_CASE(the_path_is_chosen_by_the_size_of_a_fragment) {
  FakeWorld w;
  Plan p = scattered(w, 1, CopyDirection::load, 40, 1024);
  p.copies.push_back({w.device(200 * 1024), w.host.at(200 * 1024), 64 * 1024});
  BOOST_TEST(submit(*w.engine, {p}).ok());
  BOOST_TEST(w.drain().size() == 1u);
  const auto c = w.engine->counters();
  BOOST_TEST(c.kernel_fragments == 40u);
  BOOST_TEST(c.launches == 1u);
  BOOST_TEST(c.batch_calls == 1u);
  BOOST_TEST(c.pieces == 1u);
  // A launch for a handful is not worth it.
  BOOST_TEST(submit(*w.engine, {scattered(w, 2, CopyDirection::load, 15, 1024)}).ok());
  BOOST_TEST(w.drain().size() == 1u);
  BOOST_TEST(w.engine->counters().launches == 1u);
  BOOST_TEST(w.faults() == "");
}

BOOST_AUTO_TEST_CASE(the_kernel_touches_page_locked_memory_only) {
  FakeWorld w;
  copy_test::HostPages outside(64 * 4096);
  Plan p{1, CopyDirection::load, {}, {}};
  for (std::size_t i = 0; i < 32; ++i) {
    p.copies.push_back({w.device(i * 2048), outside.at(i * 2048), 1024});
  }
  BOOST_TEST(submit(*w.engine, {p}).ok());
  w.drain();
  BOOST_TEST(w.engine->counters().launches == 0u);
}

BOOST_AUTO_TEST_CASE(a_device_with_other_host_addresses_has_no_kernel_and_says_so) {
  kvc_fake_options o{};
  o.other_host_pointer = 1;
  FakeWorld w(o);
  BOOST_TEST(submit(*w.engine, {scattered(w, 1, CopyDirection::load, 64, 512)}).ok());
  BOOST_TEST(w.drain().size() == 1u);
  BOOST_TEST(w.engine->counters().launches == 0u);
  BOOST_TEST(w.engine->describe().find("no kernel: the device does not see") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_log_line_names_device_driver_and_path) {
  FakeWorld w;
  BOOST_TEST(w.engine->describe() ==
             "copies by CUDA device 0 (kvc fake device), driver 13000 of " + fake_path() +
                 ": batched copies, the kernel below 28672 bytes a fragment (loads) and 28672 "
                 "(stores)");
}

BOOST_AUTO_TEST_CASE(an_old_driver_is_served_by_one_call_per_copy) {
  kvc_fake_options o{};
  o.without_batch = 1;
  FakeWorld w(o);
  CudaCopyOptions options;
  options.driver = fake_path();
  options.stepped = true;
  options.kernel_below_load = {0};
  auto made = CudaCopyEngine::create(options);
  BOOST_REQUIRE(made.ok());
  BOOST_TEST(submit(*made.value(), {scattered(w, 1, CopyDirection::load, 64, 512)}).ok());
  while (made.value()->pump(10) != 0) {
  }
  BOOST_TEST(poll_all(*made.value()).size() == 1u);
  BOOST_TEST(made.value()->counters().single_calls == 64u);
  BOOST_TEST(made.value()->describe().find("one call per copy") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_driver_that_does_not_serve_batches_is_asked_once) {
  FakeWorld w({}, by(CopyPath::batch));
  w.control.fail("cuMemcpyBatchAsync", 0, 801);
  for (std::uint64_t op = 1; op <= 2; ++op) {
    Plan p = scattered(w, op, CopyDirection::load, 10, 512);
    BOOST_TEST(submit(*w.engine, {p}).ok());
    BOOST_TEST((w.drain().at(0).status == Code::ok));
  }
  BOOST_TEST(w.engine->counters().batch_calls == 1u);
  BOOST_TEST(w.engine->counters().single_calls == 20u);
}

// Field report 128.
BOOST_AUTO_TEST_CASE(sixty_four_regions_of_128_blocks_are_one_submission) {
  constexpr std::size_t bytes = 64;
  for (const CopyPath path : {CopyPath::batch, CopyPath::kernel, CopyPath::automatic}) {
    FakeWorld w({}, by(path));
    Plan p{1, CopyDirection::store, {}, {}};
    for (std::size_t region = 0; region < 64; ++region) {
      for (std::size_t block = 0; block < 128; ++block) {
        p.copies.push_back({w.host.at((block * 64 + region) * bytes),
                            w.device((region * 128 + block) * bytes), bytes});
      }
    }
    BOOST_TEST(submit(*w.engine, {p}).ok());
    BOOST_TEST(w.drain().size() == 1u);
    BOOST_TEST(w.engine->counters().runs == 8192u);
    BOOST_TEST(w.engine->counters().pieces == 1u);
    BOOST_TEST(w.counts().submissions == 1u);
  }
  // The fallback makes a call for each, a few hundred at a time, and the same bytes.
  FakeWorld w({}, by(CopyPath::loop));
  const auto bytes_in = pattern(64 * 128 * bytes, 5);
  std::memcpy(w.device(0), bytes_in.data(), bytes_in.size());
  Plan p{1, CopyDirection::store, {}, {}};
  for (std::size_t i = 0; i < 8192; ++i) {
    p.copies.push_back({w.host.at((8191 - i) * bytes), w.device(i * bytes), bytes});
  }
  BOOST_TEST(submit(*w.engine, {p}).ok());
  BOOST_TEST(w.drain().size() == 1u);
  BOOST_TEST(w.counts().single_copies == 8192u);
  BOOST_TEST(w.counts().blocked_calls == 0u);
  for (std::size_t i = 0; i < 8192; ++i) {
    BOOST_REQUIRE(std::memcmp(w.host.at((8191 - i) * bytes), &bytes_in[i * bytes], bytes) == 0);
  }
}

// Field report 129.
BOOST_AUTO_TEST_CASE(consecutive_blocks_are_merged_before_they_are_handed_over) {
  constexpr std::size_t bytes = 1024;
  const std::size_t device[] = {4, 5, 6, 9};
  for (const std::size_t stride : {bytes, 2 * bytes}) {
    FakeWorld w({}, by(CopyPath::batch));
    Plan p{1, CopyDirection::load, {}, {}};
    for (std::size_t i = 0; i < 4; ++i) {
      p.copies.push_back({w.device(device[i] * stride), w.host.at(i * bytes), bytes});
    }
    BOOST_TEST(submit(*w.engine, {p}).ok());
    w.drain();
    BOOST_TEST(w.counts().batch_copies == (stride == bytes ? 2u : 4u));
  }
}

// Pending work in each of the ways in which it can be pending.
std::uint64_t looks_of_100_polls(std::uint64_t pending, FenceKind kind) {
  kvc_fake_options fake{};
  fake.idle_calls = 1;
  CudaCopyOptions o;
  o.operations_max = 50'000;
  FakeWorld w(fake, o);
  w.control.hold(w.compute, 1);
  std::uint64_t counter = 0;
  Fence fence{FenceKind::counter, &counter, 1, nullptr};
  Compute never;
  if (kind == FenceKind::cuda_stream) {
    w.computes(never, 0, pattern(8, 1));
    fence = w.engine->capture(w.stream_now()).value();
  }
  for (std::uint64_t id = 0; id < pending; ++id) {
    BOOST_REQUIRE(
        submit(*w.engine,
               {{id, CopyDirection::store, {{w.host.at(id % 64 * 8), w.device(8192), 8}}, {}}},
               fence)
            .ok());
  }
  w.engine->release(fence);
  CopyCompletion out[64];
  const std::uint64_t before = w.engine->counters().looks;
  for (int i = 0; i < 100; ++i) BOOST_TEST(w.engine->poll(out) == 0u);
  const std::uint64_t looks = w.engine->counters().looks - before;
  // And all of it ends, with work that grows as the operations do.
  counter = 1;
  w.control.hold(w.compute, 0);
  std::uint64_t ended = 0;
  const std::uint64_t from = w.engine->counters().looks;
  for (std::uint64_t idle = 0; ended < pending && idle < 100'000; ++idle) {
    w.control.run(1000);
    while (const std::size_t n = w.engine->poll(out)) ended += n;
  }
  BOOST_TEST(ended == pending);
  BOOST_TEST(w.engine->counters().looks - from < 40 * pending + 1000);
  return looks;
}

// Field report 127.
BOOST_AUTO_TEST_CASE(polling_costs_the_same_for_50000_pending_operations_as_for_10) {
  for (const FenceKind kind : {FenceKind::counter, FenceKind::cuda_stream}) {
    const std::uint64_t few = looks_of_100_polls(10, kind);
    const std::uint64_t many = looks_of_100_polls(50'000, kind);
    BOOST_TEST(few >= 100u);
    BOOST_TEST(many <= few + 100);
  }
}

// Field report 132.
BOOST_AUTO_TEST_CASE(loads_do_not_wait_behind_queued_stores) {
  FakeWorld w;
  w.control.hold(w.compute, 1);
  Compute never;
  w.computes(never, 0, pattern(8, 1));
  const Fence fence = w.engine->capture(w.stream_now()).value();
  for (std::uint64_t id = 0; id < 100; ++id) {
    BOOST_TEST(submit(*w.engine,
                      {{id, CopyDirection::store, {{w.host.at(0), w.device(0), 64}}, {}}}, fence)
                   .ok());
  }
  w.engine->release(fence);
  BOOST_TEST(
      submit(*w.engine, {{1000, CopyDirection::load, {{w.device(4096), w.host.at(4096), 64}}, {}}})
          .ok());
  BOOST_TEST((ids(w.drain()) == Ids{1000}));
}

BOOST_AUTO_TEST_CASE(no_call_blocks_when_the_queues_of_the_device_are_full) {
  for (const CopyPath path : {CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
    kvc_fake_options fake{};
    fake.idle_calls = 1;
    fake.queue_entries = 500;
    CudaCopyOptions o = by(path);
    o.operations_max = 3000;
    FakeWorld w(fake, o);
    w.control.hold(w.compute, 1);
    Compute never;
    w.computes(never, 900'000, pattern(8, 1));
    // A fence of its own for each, up to what may be open; then none.
    static_cast<void>(w.event_now());
    std::uint64_t refused = 0;
    for (std::uint64_t id = 0; id < 2000; ++id) {
      const bool is_load = id % 2 == 0;
      std::byte* host = w.host.at(id % 64 * 64);
      std::byte* device = w.device(id * 64);
      Plan p{id,
             is_load ? CopyDirection::load : CopyDirection::store,
             {is_load ? CopyDescriptor{device, host, 64} : CopyDescriptor{host, device, 64}},
             {}};
      const Fence fence = id < 300 ? Fence{FenceKind::cuda_event, nullptr, 0, w.event} : Fence{};
      refused += submit(*w.engine, {p}, fence).ok() ? 0 : 1;
    }
    BOOST_TEST(refused == 300u - o.captures_max);
    BOOST_TEST(w.counts().blocked_calls == 0u);
    w.control.hold(w.compute, 0);
    BOOST_TEST(w.drain().size() + refused == 2000u);
  }
}

BOOST_AUTO_TEST_CASE(fences_beyond_what_may_be_open_are_refused_and_come_back) {
  CudaCopyOptions o;
  o.captures_max = 3;
  FakeWorld w({}, o);
  w.control.hold(w.compute, 1);
  Compute c;
  w.computes(c, 0, pattern(8, 1));
  std::vector<Fence> open;
  for (int i = 0; i < 3; ++i) {
    auto f = w.engine->capture(i == 0 ? w.stream_now() : w.event_now());
    BOOST_REQUIRE(f.ok());
    open.push_back(f.value());
  }
  BOOST_TEST((w.engine->capture(w.event_now()).error().code == Code::full));
  for (const Fence& f : open) w.engine->release(f);
  // Given back, but the device has not come to them: their events may not be used again.
  BOOST_TEST((w.engine->capture(w.event_now()).error().code == Code::full));
  w.control.hold(w.compute, 0);
  w.control.run(100);
  for (int i = 0; i < 10; ++i) {
    auto f = w.engine->capture(w.event_now());
    w.control.run(100);
    BOOST_REQUIRE(f.ok());
    w.engine->release(f.value());
  }
}

BOOST_AUTO_TEST_CASE(bad_batches_are_refused_whole) {
  FakeWorld w;
  const Plan good{1, CopyDirection::load, {{w.device(0), w.host.at(0), 64}}, {}};
  const auto code = [&](const Plan& bad) { return submit(*w.engine, {good, bad}).code; };
  BOOST_TEST((code({2, CopyDirection::load, {{nullptr, w.host.at(0), 1}}, {}}) == Code::arg));
  BOOST_TEST((code({1, CopyDirection::load, {}, {}}) == Code::arg));
  BOOST_TEST((code({2, CopyDirection::load, {}, {2}}) == Code::arg));
  BOOST_TEST(
      (submit(*w.engine, {good}, {FenceKind::counter, nullptr, 1, nullptr}).code == Code::arg));
  BOOST_TEST(
      (submit(*w.engine, {good}, {FenceKind::cuda_event, nullptr, 0, nullptr}).code == Code::arg));
  BOOST_TEST((submit(*w.engine, {good}, {FenceKind::captured, nullptr, 0, w.device(0)}).code ==
              Code::arg));
  BOOST_TEST(w.drain().empty());
  BOOST_TEST(submit(*w.engine, {good}).ok());
  BOOST_TEST(w.drain().size() == 1u);
}

BOOST_AUTO_TEST_CASE(a_refused_call_fails_what_was_in_it_and_nothing_else) {
  for (const CopyPath path : {CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
    FakeWorld w({}, by(path));
    w.control.fail(path == CopyPath::batch  ? "cuMemcpyBatchAsync"
                   : path == CopyPath::loop ? "cuMemcpyDtoHAsync"
                                            : "cuLaunchKernel",
                   path == CopyPath::loop ? 3 : 0, cuda::driver_invalid_value);
    const Plan first = scattered(w, 1, CopyDirection::store, 20, 64);
    Plan chained = scattered(w, 2, CopyDirection::load, 20, 64);
    chained.after = {1};
    BOOST_TEST(submit(*w.engine, {first, chained}).ok());
    BOOST_TEST(submit(*w.engine, {scattered(w, 3, CopyDirection::store, 20, 64)}).ok());
    for (const CopyCompletion& c : w.drain()) {
      BOOST_TEST((c.status == (c.id == 3 ? Code::ok : Code::io)));
      if (c.id == 1 && path == CopyPath::loop) BOOST_TEST(c.first_failed == 3u);
      if (c.id == 2) BOOST_TEST((c.side == CopySide::source));
    }
    BOOST_TEST(w.engine->take_trouble().find("CUDA_ERROR_INVALID_VALUE (1)") != std::string::npos);
    BOOST_TEST(w.engine->take_trouble() == "");
  }
}

BOOST_AUTO_TEST_CASE(a_lost_device_ends_everything_with_a_status) {
  FakeWorld w;
  w.control.hold(w.compute, 1);
  Compute never;
  w.computes(never, 0, pattern(8, 1));
  std::uint64_t counter = 0;
  const Plan a = scattered(w, 1, CopyDirection::store, 20, 64);
  Plan b = scattered(w, 2, CopyDirection::load, 20, 64);
  b.after = {1};
  BOOST_TEST(submit(*w.engine, {a, b}, w.stream_now()).ok());
  BOOST_TEST(submit(*w.engine, {scattered(w, 3, CopyDirection::load, 1, 64)},
                    {FenceKind::counter, &counter, 1, nullptr})
                 .ok());
  w.control.kill();
  const auto done = w.drain();
  BOOST_TEST(done.size() == 3u);
  for (const CopyCompletion& c : done) BOOST_TEST((c.status == Code::io));
  BOOST_TEST(w.engine->take_trouble().find("lost") != std::string::npos);
  BOOST_TEST(submit(*w.engine, {scattered(w, 4, CopyDirection::load, 1, 64)}).ok());
  BOOST_TEST((poll_all(*w.engine).at(0).status == Code::io));
}

// Field report 125.
BOOST_AUTO_TEST_CASE(arenas_are_registered_in_pieces_that_end_on_rows_and_pages) {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30U;
  using Ends = std::vector<std::uint64_t>;
  BOOST_TEST((cuda::pin_pieces({200 * gib}, {1u << 20U}, {64 * gib}) ==
              Ends{64 * gib, 128 * gib, 192 * gib, 200 * gib}));
  BOOST_TEST((cuda::pin_pieces({gib}, {3}, {64 * gib}) == Ends{gib}));
  const std::uint64_t row = 3 * 1024;
  for (const std::uint64_t end : cuda::pin_pieces({100 * row * 4}, {row}, {row * 13})) {
    BOOST_TEST((end == 100 * row * 4 || (end % row == 0 && end % 4096 == 0)));
  }
  BOOST_TEST(cuda::pin_pieces({100 * gib}, {4097 * 1024 * 17}, {64 * gib}).size() > 1u);
  BOOST_TEST(cuda::pin_pieces({1000 * gib}, {65 * gib}, {64 * gib}).empty());
  BOOST_TEST(cuda::pin_pieces({0}, {4096}, {64 * gib}).empty());
}

BOOST_AUTO_TEST_CASE(an_arena_of_200_gib_is_registered_in_four_pieces) {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30U;
  FakeWorld w;  // refuses more than 64 GiB in one call, as drivers do
  copy_test::HostPages arena(200 * gib);
  const auto before = w.counts().registered_pieces;
  BOOST_TEST(w.engine->pin(arena.at(0), {200 * gib}, {1u << 20U}).ok());
  BOOST_TEST(w.counts().registered_pieces == before + 4);
  // Merged copies are cut where one registration ends.
  Plan p{1, CopyDirection::load, {{w.device(0), arena.at(64 * gib - 1024), 2048}}, {}};
  BOOST_TEST(submit(*w.engine, {p}).ok());
  BOOST_TEST((w.drain().at(0).status == Code::ok));
  BOOST_TEST(w.counts().batch_copies == 2u);
  BOOST_TEST(w.faults() == "");
}

BOOST_AUTO_TEST_CASE(a_refused_piece_undoes_the_others_and_leaves_no_error_behind) {
  CudaCopyOptions o;
  o.register_bytes_max = {1u << 20U};
  FakeWorld w({}, o);
  copy_test::HostPages arena(8u << 20U);
  const auto before = w.counts();
  w.control.fail("cuMemHostRegister", 5, cuda::driver_out_of_memory);
  const Status s = w.engine->pin(arena.at(0), {arena.bytes()}, {4096});
  BOOST_TEST((s.code == Code::full));
  BOOST_TEST(
      s.text.starts_with("cannot page-lock 8388608 bytes of host memory: piece 6 of 8, "
                         "1048576 bytes at offset 5242880, is refused"));
  BOOST_TEST(w.counts().registered_pieces == before.registered_pieces);
  BOOST_TEST(w.engine->pin(arena.at(0), {arena.bytes()}, {4096}).ok());
  BOOST_TEST(submit(*w.engine, {scattered(w, 1, CopyDirection::load, 20, 64)}).ok());
  BOOST_TEST((w.drain().at(0).status == Code::ok));
  BOOST_TEST(w.faults() == "");
}

BOOST_AUTO_TEST_CASE(a_numa_node_that_is_not_there_is_refused_by_name) {
  CudaCopyOptions o;
  o.numa_node = 700;
  std::string text;
  try {
    FakeWorld w({}, o);
  } catch (const std::runtime_error& e) {
    text = e.what();
  }
  BOOST_TEST(text.find("NUMA node 700") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(thresholds_are_measured_where_that_is_asked_for_and_a_clock_is_there) {
  FakeWorld w;
  CudaCopyOptions o;
  o.driver = fake_path();
  o.kernel_below_load = kernel_below_measured;
  o.kernel_below_store = {77};
  BOOST_TEST(calibrate(o).ok());
  const std::uint64_t found = o.kernel_below_load.n;
  BOOST_TEST((found >= 4096 && found <= 131'072 && (found & (found - 1)) == 0));
  BOOST_TEST(o.kernel_below_store.n == 77u);
  BOOST_TEST(w.faults() == "");
  const auto launches = w.counts().launches;
  BOOST_TEST(launches != 0u);
  o.kernel_below_store = kernel_below_measured;
  o.stepped = true;
  BOOST_TEST(calibrate(o).ok());
  BOOST_TEST((o.kernel_below_store == kernel_below_default));
  BOOST_TEST(w.counts().launches == launches);
  o.stepped = false;
  o.kernel_below_store = kernel_below_measured;
  o.device = 3;
  BOOST_TEST((calibrate(o).code == Code::unsupported));
}

BOOST_AUTO_TEST_CASE(options_and_devices_that_cannot_be_are_refused) {
  FakeWorld w;
  CudaCopyOptions o;
  o.driver = fake_path();
  o.operations_max = 0;
  BOOST_TEST((CudaCopyEngine::create(o).error().code == Code::arg));
  o = {};
  o.driver = fake_path();
  o.device = 3;
  BOOST_TEST(CudaCopyEngine::create(o).error().text == "no device 3: " + fake_path() + " has 1");
  BOOST_TEST((w.engine->attach(CopyDevice::cuda, 1).code == Code::unsupported));
  BOOST_TEST((w.engine->attach(CopyDevice::host, 0).code == Code::unsupported));
  BOOST_TEST(w.engine->attach(CopyDevice::cuda, 0).ok());
}

BOOST_AUTO_TEST_CASE(with_its_own_thread_everything_ends_and_the_host_is_told) {
  FakeWorld w;
  struct Told {
    std::mutex mutex;
    std::condition_variable news;
    std::uint64_t times = 0;
  } told;
  CudaCopyOptions o;
  o.driver = fake_path();
  o.on_ended = [](void* p) {
    auto& t = *static_cast<Told*>(p);
    const std::lock_guard<std::mutex> lock(t.mutex);
    ++t.times;
    t.news.notify_all();
  };
  o.on_ended_arg = &told;
  auto made = CudaCopyEngine::create(o);
  BOOST_REQUIRE(made.ok());
  CudaCopyEngine& engine = *made.value();
  BOOST_TEST(!engine.stepped());
  for (std::uint64_t id = 0; id < 20; ++id) {
    BOOST_TEST(
        submit(engine, {{id, CopyDirection::load, {{w.device(id * 64), w.host.at(0), 64}}, {}}})
            .ok());
    const Ids one{id};
    if (id % 2 == 0) BOOST_TEST((engine.wait(one, std::chrono::seconds(60)) == Code::ok));
  }
  std::size_t got = 0;
  while (got < 20) {
    got += poll_all(engine).size();
    std::unique_lock<std::mutex> lock(told.mutex);
    told.news.wait_for(lock, std::chrono::milliseconds(1));
  }
  std::unique_lock<std::mutex> lock(told.mutex);
  BOOST_TEST(told.news.wait_for(lock, std::chrono::seconds(60), [&] { return told.times != 0; }));
  lock.unlock();
  std::uint64_t counter = 0;
  BOOST_TEST(submit(engine, {{99, CopyDirection::load, {}, {}}},
                    {FenceKind::counter, &counter, 1, nullptr})
                 .ok());
  const Ids never{99};
  BOOST_TEST((engine.wait(never, std::chrono::milliseconds(1)) == Code::deadline));
  BOOST_TEST(w.faults() == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
