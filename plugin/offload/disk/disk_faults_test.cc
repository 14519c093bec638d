// Sick, slow and lying devices.
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "plugin/offload/disk/tests/store_world.h"
#include "plugin/tests/seed.h"

namespace kvc::disk {
namespace {

using disk_test::FaultyFiles;
using disk_test::key_number;
using disk_test::StoreWorld;

// Lets the store work until it waits for the system alone.
void step(StoreWorld& w) {
  while (w.poll() + w.store->pump(1) != 0) {
  }
}

BOOST_AUTO_TEST_SUITE(disk_faults)

// K10-97: one bad block of five.
BOOST_AUTO_TEST_CASE(an_error_fails_its_own_operation_only) {
  for (const EngineChoice engine : {EngineChoice::stepped, EngineChoice::threads}) {
    StoreWorld w(engine);
    w.options.io.read_depth = 1;
    w.open();
    for (std::uint64_t n = 0; n < 5; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
    w.files.fail(IoKind::read, 2, -EIO);
    for (std::uint64_t n = 0; n < 5; ++n) BOOST_REQUIRE((w.read(0, n, n) == Code::ok));
    for (std::uint64_t n = 0; n < 5; ++n) {
      BOOST_TEST((w.finished(n) == (n == 2 ? Code::io : Code::ok)));
      if (n != 2) BOOST_TEST(w.holds(n, 0, n));
    }
    // K5-38: a transient error costs no block.
    BOOST_TEST((w.read_now(0, 2) == Code::ok));
    BOOST_TEST(w.store->on());
    BOOST_TEST(w.store->verify() == "");
  }
}

BOOST_AUTO_TEST_CASE(short_transfers_are_completed) {
  StoreWorld w;
  w.open();
  w.files.fail(IoKind::write, 0, FaultyFiles::half);
  BOOST_TEST((w.write_now(1, 1) == Code::ok));
  w.files.fail(IoKind::read, 0, FaultyFiles::half);
  BOOST_TEST((w.read_now(1, 1) == Code::ok));
  // Less than a page moves: no progress is an error, not a loop.
  w.files.fail(IoKind::write, 0, 100);
  BOOST_TEST((w.write_now(1, 2) == Code::io));
  BOOST_TEST(!w.store->contains(1, key_number(2)));
  BOOST_TEST((w.write_now(1, 2) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_full_file_system_refuses_writes_and_is_no_sickness) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 0) == Code::ok));
  w.files.fail(IoKind::write, 0, -ENOSPC, 30);
  for (std::uint64_t n = 1; n < 30; ++n) BOOST_TEST((w.write_now(0, n) == Code::full));
  BOOST_TEST(w.store->counters().no_space == 29u);
  BOOST_TEST(w.store->on());
  BOOST_TEST((w.read_now(0, 0) == Code::ok));
  w.files.heal();
  BOOST_TEST((w.write_now(0, 1) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_device_that_fails_again_and_again_is_switched_off_and_on_by_a_probe) {
  StoreWorld w;
  w.open();
  for (std::uint64_t n = 0; n < 3; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  w.files.fail(IoKind::read, 0, -EIO, 1000);
  for (int i = 0; i < 4; ++i) BOOST_TEST((w.read_now(0, 1) == Code::io));
  BOOST_TEST(!w.store->on());
  BOOST_TEST(
      w.store->off_reason().find("4 operations failed or hung in a row") != std::string::npos,
      w.store->off_reason());
  BOOST_TEST(w.store->off_reason().find("(5)") != std::string::npos);
  BOOST_TEST((w.read_now(0, 1) == Code::io));  // not asked
  BOOST_TEST((w.write_now(0, 9) == Code::io));
  BOOST_TEST(w.store->counters().reads_failed == 4u);
  w.now += 4'999'999'999;
  w.settle();
  BOOST_TEST(w.store->counters().probes == 0u);
  w.now += 1;
  w.settle();
  BOOST_TEST(w.store->counters().probes == 1u);
  BOOST_TEST(!w.store->on());  // its read failed
  w.files.heal();
  w.now += 9'999'999'999;
  w.settle();
  BOOST_TEST(!w.store->on());
  w.now += 1;
  w.settle();
  BOOST_TEST(w.store->on());
  BOOST_TEST((w.read_now(0, 1) == Code::ok));
  BOOST_TEST((w.write_now(0, 9) == Code::ok));
  BOOST_TEST(w.store->take_notes().size() == 2u);
}

BOOST_AUTO_TEST_CASE(a_rate_of_errors_switches_off_too) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 0) == Code::ok));
  int reads = 0;
  while (w.store->on() && reads < 200) {
    if (reads % 3 == 0) w.files.fail(IoKind::read, 0, -EIO);
    w.read_now(0, 0);
    ++reads;
  }
  BOOST_TEST(reads == 46);  // the 16th error of the last 64
}

// K10-91: neither for readers nor for the next process.
BOOST_AUTO_TEST_CASE(a_block_that_is_half_written_is_not_there) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  const std::uint64_t before = w.files.calls(IoKind::write);
  w.files.fail(IoKind::write, 0, FaultyFiles::half);
  BOOST_REQUIRE((w.write(0, 2, 7) == Code::ok));
  while (w.files.calls(IoKind::write) == before) {
    w.poll();
    w.store->pump(1);
  }
  w.files.hold(IoKind::write, true);
  step(w);
  BOOST_TEST(w.done.empty());
  BOOST_TEST(!w.store->contains(0, key_number(2)));
  BOOST_TEST((w.read(0, 2, 8) == Code::arg));
  BOOST_TEST(w.store->blocks() == 1u);
  // A copy of the folder as it is now, as a killed process would leave it.
  const disk_test::Folder copy;
  std::filesystem::copy(w.folder.path(), copy.path(), std::filesystem::copy_options::recursive);
  DiskStoreOptions there = w.options;
  there.folder = copy.path();
  FaultyFiles files;
  const auto next = DiskStore::open(there, files);
  BOOST_REQUIRE_MESSAGE(next.ok(), (next.ok() ? "" : next.error().text));
  BOOST_TEST(next.value()->blocks() == 1u);
  BOOST_TEST(!next.value()->contains(0, key_number(2)));
  w.files.release();
  BOOST_TEST((w.finished(7) == Code::ok));
  BOOST_TEST((w.read_now(0, 2) == Code::ok));
}

// K10-94: it is gone while the store has it open.
BOOST_AUTO_TEST_CASE(a_file_that_is_gone_is_erased_like_any_other) {
  StoreWorld w;
  w.open();
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  std::filesystem::remove(w.path("blocks-5000.data"));
  BOOST_TEST(w.store->erase(0, key_number(1)));
  BOOST_TEST(w.store->erase(0, w.store->oldest()->key));
  w.settle();
  BOOST_TEST(w.store->blocks() == 2u);
  BOOST_TEST(!w.store->contains(0, key_number(1)));
  BOOST_TEST((w.write_now(0, 9) == Code::ok));
  BOOST_TEST(w.store->on());
  BOOST_TEST(w.store->verify() == "");
}

// K10-98; OW-19.
BOOST_AUTO_TEST_CASE(what_hangs_is_reported_at_its_deadline_and_its_memory_let_go) {
  StoreWorld w;
  w.options.read_deadline_ns = 1000;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  w.files.hold(IoKind::read, true);
  BOOST_REQUIRE((w.read(0, 1, 7) == Code::ok));
  step(w);
  w.now += 999;
  step(w);
  BOOST_TEST(w.done.empty());
  w.now += 1;
  step(w);
  BOOST_REQUIRE(w.done.count(7) == 1u);
  BOOST_TEST((w.done[7].status == Code::deadline));
  BOOST_TEST(w.store->hung_operations() == 1u);
  BOOST_TEST(w.store->open_operations() == 0u);
  // Its buffer and its place stay until the system lets go; the place is not written meanwhile.
  BOOST_TEST(w.store->erase(0, key_number(1)));
  step(w);
  BOOST_TEST(w.store->verify() == "");
  BOOST_REQUIRE((w.write_now(0, 2) == Code::ok));
  w.files.release();
  step(w);
  BOOST_TEST(w.store->hung_operations() == 0u);
  BOOST_TEST((w.memories[7] == std::vector<std::byte>(5000, std::byte{0xcc})));  // untouched
  BOOST_TEST(w.done.size() == 1u);                                               // told once
  BOOST_TEST((w.read_now(0, 2) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_write_that_was_given_up_does_not_appear_later) {
  StoreWorld w;
  w.options.write_deadline_ns = 1000;
  w.open();
  w.files.hold(IoKind::write, true);
  BOOST_REQUIRE((w.write(0, 1, 7) == Code::ok));
  step(w);
  w.now += 1000;
  step(w);
  BOOST_TEST((w.done[7].status == Code::deadline));
  w.files.release();
  step(w);
  BOOST_TEST(!w.store->contains(0, key_number(1)));
  BOOST_TEST(w.store->verify() == "");
  w.open();
  BOOST_TEST(w.store->blocks() == 0u);
  BOOST_TEST((w.write_now(0, 1) == Code::ok));
}

BOOST_AUTO_TEST_CASE(hanging_operations_switch_the_tier_off_and_nobody_waits) {
  StoreWorld w;
  w.options.read_deadline_ns = 1000;
  w.options.io.read_depth = 2;
  w.options.io.hung_max = 3;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  w.files.hold(IoKind::read, true);
  for (std::uint64_t i = 0; i < 10; ++i) BOOST_REQUIRE((w.read(0, 1, i) == Code::ok));
  step(w);
  w.now += 1000;
  step(w);
  BOOST_TEST(w.done.size() == 10u);
  BOOST_TEST(!w.store->on());
  for (const auto& [id, done] : w.done) {
    BOOST_TEST((done.status == Code::deadline || done.status == Code::io));
  }
  BOOST_TEST((w.read_now(0, 1) == Code::io));
  w.files.release();
  step(w);
  w.now += 6'000'000'000;
  step(w);
  BOOST_TEST(w.store->on());
  BOOST_TEST((w.read_now(0, 1) == Code::ok));
}

BOOST_AUTO_TEST_CASE(reads_are_served_while_all_writes_hang) {
  for (const EngineChoice engine : {EngineChoice::threads, EngineChoice::best}) {
    StoreWorld w(engine);
    w.options.direct = true;
    w.open();
    BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
    w.files.hold(IoKind::write, false);
    for (std::uint64_t i = 0; i < 40; ++i) {
      BOOST_REQUIRE((w.write(1, 100 + i, 100 + i) == Code::ok));
    }
    BOOST_REQUIRE((w.read(0, 1, 1) == Code::ok));
    while (w.done.count(1) == 0) {
      w.poll();
      w.store->wait(1'000'000'000);
    }
    BOOST_TEST((w.done[1].status == Code::ok));
    BOOST_TEST(w.holds(1, 0, 1));
    w.files.release();
    w.settle();
    BOOST_TEST(w.store->verify() == "");
  }
}

// The n-th call to the system fails, for every n and three kinds of failure: every operation gets
// a status, nothing leaks, no wrong byte, and the folder opens again.
BOOST_AUTO_TEST_CASE(whatever_call_fails_everything_ends_and_the_folder_opens_again) {
  for (const IoResult trouble : {IoResult{-EIO}, IoResult{-ENOSPC}, FaultyFiles::half}) {
    std::uint64_t n = 0;
    for (bool tripped = true; tripped; ++n) {
      BOOST_TEST_CONTEXT("call " << n << " answers " << trouble) {
        StoreWorld w;
        w.options.sync = n % 2 == 1;
        w.files.fail_any(n, trouble);
        auto made = DiskStore::open(w.options, w.files);
        if (made.ok()) {
          w.store = std::move(made.value());
          for (std::uint64_t b = 0; b < 4; ++b) w.write_now(b % 2, b);
          for (std::uint64_t b = 0; b < 4; ++b) w.read_now(b % 2, b);
          w.store->erase(0, key_number(0));
          w.write_now(0, 8);
          if (w.store->reset(1, w.now) == Code::ok) w.finished(1);
          w.write_now(1, 9);
          BOOST_TEST(w.store->verify() == "");
          BOOST_TEST(w.store->open_operations() == 0u);
          w.store.reset();
        }
        tripped = w.files.tripped();
        w.files.heal();
        w.open();
        BOOST_TEST(w.store->verify() == "");
        for (std::uint64_t b = 0; b < 10; ++b) {
          const Code code = w.read_now(b % 2, b);
          BOOST_TEST((code == Code::ok || code == Code::arg));
        }
        BOOST_TEST((w.write_now(0, 50) == Code::ok));
        BOOST_TEST((w.read_now(0, 50) == Code::ok));
      }
    }
    BOOST_TEST(n > 25u);
  }
}

// Where the index says that the block of a key is.
std::uint64_t place_of(const std::string& index, const Key& key) {
  std::ifstream in(index, std::ios::binary);
  std::vector<std::uint8_t> bytes(record_bytes);
  for (std::uint64_t place = 0; in.read(reinterpret_cast<char*>(bytes.data()), record_bytes);
       ++place) {
    const auto read = read_record(bytes, place);
    if (read.ok() && read.value().state == PlaceState::live && read.value().what.key == key) {
      return place;
    }
  }
  BOOST_FAIL("no record has the key");
  return 0;
}

BOOST_AUTO_TEST_CASE(each_of_10000_flipped_bits_of_blocks_is_caught_by_the_read_that_meets_it) {
  const std::uint64_t seed = test::seed_or(4711);
  Prng rng(seed);
  StoreWorld w;
  w.open();
  constexpr std::uint64_t blocks = 8;
  for (std::uint64_t n = 0; n < blocks; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  for (int flips = 0; flips < 10'000; ++flips) {
    BOOST_TEST_CONTEXT("flip " << flips << "; " << test::repeat_command(seed)) {
      const std::uint64_t n = rng.below(blocks);
      const std::uint64_t place = place_of(w.path("blocks-5000.index"), key_number(n));
      // Half of them in the header, which is a small part of a place.
      const std::uint64_t at = place * 8192 + rng.below(flips % 2 == 0 ? 256 : 8192);
      disk_test::flip(w.path("blocks-5000.data"), at,
                      static_cast<std::uint8_t>(1U << rng.below(8)));
      BOOST_REQUIRE((w.read_now(0, n) == Code::io));
      BOOST_REQUIRE(!w.store->contains(0, key_number(n)));
      BOOST_REQUIRE((w.read_now(0, (n + 1) % blocks) == Code::ok));
      BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
      w.settle();
    }
  }
  BOOST_TEST(w.store->counters().corrupt == 10'000u);
  BOOST_TEST(w.store->on());
  BOOST_TEST(w.store->verify() == "");
}

BOOST_AUTO_TEST_CASE(every_flipped_bit_of_records_and_superblocks_is_caught_by_the_open) {
  const std::uint64_t seed = test::seed_or(4712);
  Prng rng(seed);
  StoreWorld w;
  w.open();
  for (std::uint64_t n = 0; n < 8; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  w.store.reset();
  for (int flips = 0; flips < 1000; ++flips) {
    BOOST_TEST_CONTEXT("flip " << flips << "; " << test::repeat_command(seed)) {
      const bool index = flips % 10 != 0;
      const std::string file = w.path(index ? "blocks-5000.index" : "store");
      // The second copy, whether it is the newer one or not.
      const std::uint64_t at =
          index ? rng.below(8 * record_bytes) : superblock_bytes + rng.below(superblock_bytes);
      const auto bit = static_cast<std::uint8_t>(1U << rng.below(8));
      if (index) {
        disk_test::flip(file, at, bit);
        w.open();
        BOOST_REQUIRE(w.store->blocks() == 7u);
        BOOST_REQUIRE(w.store->counters().dropped_torn == 1u);
        for (std::uint64_t n = 0; n < 8; ++n) {
          if (w.read_now(0, n) != Code::ok) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
        }
      } else {
        disk_test::flip(file, at, bit);
        const std::string error = w.open_error();  // a newer version
        if (!error.empty()) disk_test::flip(file, at, bit);
        w.open();
        if (error.empty()) BOOST_REQUIRE(w.store->blocks() == 0u);
        for (std::uint64_t n = 0; n < 8; ++n) {
          if (error.empty()) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
        }
      }
      BOOST_REQUIRE(w.store->verify() == "");
      w.store.reset();
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
