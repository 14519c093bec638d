// The fake must find what is wrong, in every order, and nothing where nothing is.
#include <boost/test/unit_test.hpp>
#include <set>

#include "cuda/tests/fake_world.h"

namespace kvc::cuda {
namespace {

using copy_test::Compute;
using copy_test::FakeWorld;
using copy_test::pattern;
using copy_test::seeded;

constexpr std::uint64_t seeds = 30;

// A second stream of the world.
struct SecondStream {
  explicit SecondStream(FakeWorld& w) : world(w) {
    FakeWorld::check(w.driver->stream_create(&stream, stream_non_blocking, 0));
  }
  SecondStream(const SecondStream&) = delete;
  SecondStream& operator=(const SecondStream&) = delete;
  ~SecondStream() { static_cast<void>(world.driver->stream_destroy(stream)); }
  void store(std::size_t from, std::size_t to, std::size_t bytes) const {
    FakeWorld::check(
        world.driver->copy_to_host(world.host.at(to), world.memory + from, bytes, stream));
  }
  FakeWorld& world;
  Stream stream = nullptr;
};

BOOST_AUTO_TEST_SUITE(fake_device)

BOOST_AUTO_TEST_CASE(a_copy_that_does_not_wait_for_its_writer_is_a_race_in_every_order) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    FakeWorld w(seeded(seed));
    SecondStream s(w);
    Compute c;
    w.computes(c, 0, pattern(64, 1));
    s.store(0, 0, 64);
    w.drain();
    BOOST_TEST(w.control.faults() == 1u);
    BOOST_TEST(w.faults().find("race") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_copy_that_waits_for_an_event_behind_its_writer_is_none) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    FakeWorld w(seeded(seed));
    SecondStream s(w);
    Compute c;
    w.computes(c, 0, pattern(64, 1));
    static_cast<void>(w.event_now());
    FakeWorld::check(w.driver->stream_wait_event(s.stream, w.event, 0));
    s.store(0, 0, 64);
    w.drain();
    BOOST_TEST(w.faults() == "");
    BOOST_TEST(std::memcmp(w.host.at(0), c.bytes.data(), 64) == 0);
  }
}

BOOST_AUTO_TEST_CASE(an_event_recorded_before_the_writer_orders_nothing) {
  FakeWorld w;
  SecondStream s(w);
  Compute c;
  static_cast<void>(w.event_now());
  w.computes(c, 0, pattern(64, 1));
  FakeWorld::check(w.driver->stream_wait_event(s.stream, w.event, 0));
  s.store(0, 0, 64);
  w.drain();
  BOOST_TEST(w.control.faults() == 1u);
}

BOOST_AUTO_TEST_CASE(two_readers_do_not_race_and_a_writer_after_one_of_them_does) {
  FakeWorld w;
  SecondStream s(w);
  Compute first;
  Compute second;
  w.reads(first, 0, 64);
  s.store(0, 0, 64);
  w.drain();
  BOOST_TEST(w.faults() == "");
  w.computes(second, 32, pattern(8, 1));
  w.drain();
  BOOST_TEST(w.control.faults() == 1u);
}

BOOST_AUTO_TEST_CASE(ranges_that_only_touch_do_not_race) {
  FakeWorld w;
  SecondStream s(w);
  Compute c;
  w.computes(c, 64, pattern(64, 1));
  s.store(0, 0, 64);
  s.store(128, 64, 64);
  w.drain();
  BOOST_TEST(w.faults() == "");
}

BOOST_AUTO_TEST_CASE(host_code_that_did_not_wait_races_and_one_that_saw_the_event_does_not) {
  for (const bool looks : {false, true}) {
    FakeWorld w;
    Compute c;
    w.computes(c, 0, pattern(64, 1));
    static_cast<void>(w.event_now());
    w.control.run(100);
    if (looks) BOOST_TEST(w.driver->event_query(w.event) == driver_success);
    w.host_reads(w.device(0), 64);
    BOOST_TEST((w.control.faults() == 0) == looks);
  }
}

BOOST_AUTO_TEST_CASE(a_source_in_any_order_is_read_before_what_the_stream_waits_for) {
  std::set<bool> stale;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    FakeWorld w(seeded(seed));
    SecondStream s(w);
    Compute c;
    const auto old = pattern(64, 9);
    std::memcpy(w.device(0), old.data(), 64);
    w.computes(c, 0, pattern(64, 1));
    static_cast<void>(w.event_now());
    FakeWorld::check(w.driver->stream_wait_event(s.stream, w.event, 0));
    DevicePointer to = w.memory + 4096;
    DevicePointer from = w.memory;
    std::size_t bytes = 64;
    std::size_t at = 0;
    std::size_t failed = 0;
    BatchAttributes any;
    any.source_order = SourceOrder::any;
    FakeWorld::check(w.driver->copy_batch(&to, &from, &bytes, 1, &any, &at, 1, &failed, s.stream));
    w.drain();
    BOOST_TEST(w.control.faults() == 1u);
    stale.insert(std::memcmp(w.device(4096), old.data(), 64) == 0);
  }
  BOOST_TEST(stale.size() == 2u);  // it really happens, and not always
}

BOOST_AUTO_TEST_CASE(copies_of_one_batch_are_not_ordered_among_themselves) {
  FakeWorld w;
  DevicePointer to[2] = {w.memory + 4096, w.memory + 8192};
  DevicePointer from[2] = {w.memory, w.memory + 4096};
  std::size_t bytes[2] = {64, 64};
  std::size_t at = 0;
  BatchAttributes in_order;
  FakeWorld::check(w.driver->copy_batch(to, from, bytes, 2, &in_order, &at, 1, nullptr, w.compute));
  w.drain();
  BOOST_TEST(w.control.faults() == 1u);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_registered_or_was_given_back_is_found) {
  FakeWorld w;
  SecondStream s(w);
  std::vector<std::byte> outside(64);
  FakeWorld::check(w.driver->copy_to_host(outside.data(), w.memory, 64, s.stream));
  w.drain();
  BOOST_TEST(w.control.faults() == 1u);
  DevicePointer other = 0;
  FakeWorld::check(w.driver->device_alloc(&other, 4096));
  w.control.hold(s.stream, 1);
  FakeWorld::check(w.driver->copy_to_host(w.host.at(0), other, 64, s.stream));
  FakeWorld::check(w.driver->device_free(other));
  w.control.hold(s.stream, 0);
  w.drain();
  BOOST_TEST(w.control.faults() == 2u);
}

BOOST_AUTO_TEST_CASE(memory_given_back_while_a_stream_may_use_it_is_found) {
  FakeWorld w;
  DevicePointer other = 0;
  FakeWorld::check(w.driver->device_alloc(&other, 4096));
  FakeWorld::check(w.driver->copy_to_host(w.host.at(0), other, 64, w.compute));
  w.control.run(100);  // it ran, but nobody knows
  FakeWorld::check(w.driver->device_free(other));
  BOOST_TEST(w.control.faults() == 1u);
}

BOOST_AUTO_TEST_CASE(a_copy_across_two_registrations_is_found) {
  FakeWorld w;
  copy_test::HostPages two(8192);
  FakeWorld::check(w.driver->host_register(two.at(0), 4096, 0));
  FakeWorld::check(w.driver->host_register(two.at(4096), 4096, 0));
  BOOST_TEST(w.driver->host_register(two.at(4096), 4096, 0) == driver_already_registered);
  FakeWorld::check(w.driver->copy_to_host(two.at(4000), w.memory, 200, w.compute));
  w.drain();
  BOOST_TEST(w.control.faults() == 1u);
  FakeWorld::check(w.driver->host_unregister(two.at(0)));
  FakeWorld::check(w.driver->host_unregister(two.at(4096)));
}

BOOST_AUTO_TEST_CASE(streams_of_another_context_are_refused) {
  kvc_fake_options o{};
  o.devices = 2;
  FakeWorld w(o);
  Context second = nullptr;
  FakeWorld::check(w.driver->context_retain(&second, 1));
  {
    const ContextScope scope(*w.driver, second);
    BOOST_TEST(w.driver->event_record(w.event, w.compute) == driver_invalid_context);
  }
  BOOST_TEST(w.control.faults() == 1u);
  FakeWorld::check(w.driver->context_release(1));
}

BOOST_AUTO_TEST_CASE(a_call_on_a_full_queue_is_counted_as_one_that_would_block) {
  kvc_fake_options o{};
  o.queue_entries = 4;
  o.idle_calls = 1;
  FakeWorld w(o);
  for (int i = 0; i < 4; ++i) static_cast<void>(w.event_now());
  BOOST_TEST(w.counts().blocked_calls == 0u);
  static_cast<void>(w.event_now());
  BOOST_TEST(w.counts().blocked_calls == 1u);
  w.control.hold(w.compute, 1);
  BOOST_TEST(w.driver->event_record(w.event, w.compute) == driver_launch_failed);
  BOOST_TEST(w.faults().find("for ever") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(the_seed_decides_which_stream_gets_on_and_repeats) {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    std::vector<std::uint64_t> first;
    for (int again = 0; again < 2; ++again) {
      kvc_fake_options o = seeded(seed);
      o.record_accesses = 1;
      o.idle_calls = 1;
      FakeWorld w(o);
      SecondStream s(w);
      for (std::size_t i = 0; i < 6; ++i) {
        s.store(i * 64, i * 64, 64);
        FakeWorld::check(w.driver->device_memset(w.memory + 4096 + i, 1, 1, w.compute));
      }
      w.control.run(100);
      std::vector<kvc_fake_access_record> log(64);
      log.resize(w.control.accesses(log.data(), log.size()));
      BOOST_TEST(log.size() == 18u);  // a store reads and writes, a fill writes
      std::vector<std::uint64_t> order;
      for (const auto& a : log) order.push_back(a.stream);
      if (again == 0) {
        first = order;
      } else {
        BOOST_TEST((order == first));
      }
      orders.insert(order);
    }
  }
  BOOST_TEST(orders.size() > 10u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::cuda
