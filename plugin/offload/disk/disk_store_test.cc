#include "plugin/offload/disk/disk_store.h"

#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <set>

#include "plugin/offload/disk/tests/store_world.h"

namespace kvc::disk {
namespace {

using disk_test::FaultyFiles;
using disk_test::key_number;
using disk_test::StoreWorld;

const std::vector<EngineChoice> engines = {EngineChoice::stepped, EngineChoice::threads,
                                           EngineChoice::best};

BOOST_AUTO_TEST_SUITE(disk_store)

BOOST_AUTO_TEST_CASE(blocks_come_back_as_they_were_written_and_over_a_restart) {
  for (const EngineChoice engine : engines) {
    StoreWorld w(engine);
    w.options.direct = true;
    w.open();
    BOOST_TEST_CONTEXT(w.store->engine_name()) {
      for (std::uint64_t n = 0; n < 20; ++n) {
        BOOST_REQUIRE((w.write_now(n % 2 == 0 ? 0 : 1, n) == Code::ok));
      }
      BOOST_TEST((w.write_now(0, 4) == Code::state));  // it is there
      for (int restart = 0; restart < 3; ++restart) {
        BOOST_TEST(w.store->blocks() == 20u);
        for (std::uint64_t n = 0; n < 20; ++n) {
          BOOST_TEST((w.read_now(n % 2 == 0 ? 0 : 1, n) == Code::ok));
        }
        BOOST_TEST((w.read_now(0, 1) == Code::arg));  // its group is another one
        BOOST_TEST((w.read_now(0, 99) == Code::arg));
        BOOST_TEST(w.store->verify() == "");
        w.open();
        BOOST_TEST(w.store->counters().found == 20u);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(bad_options_are_refused_with_the_numbers) {
  StoreWorld w;
  const auto says = [&](const char* word) {
    const std::string text = w.open_error();
    BOOST_TEST(text.find(word) != std::string::npos, text);
    w.options = disk_test::small_options(w.folder.path());
  };
  w.options.folder = "";
  says("no folder");
  w.options.key_bytes = 7;
  says("keys of 7 bytes");
  w.options.budget = {40000};
  says("a budget of 40000 bytes, one block needs 45184");
  w.options.payload_of_group = {0, 0};
  says("no group");
  w.options.payload_of_group.assign(65, 100);
  says("65 groups");
  w.options.payload_of_group = {std::uint64_t{1} << 41U};
  says("2199023255552 bytes");
  w.options.io.read_depth = 0;
  says("depths 0");
  w.options.folder = "/proc/none";
  says("make folder");
  BOOST_TEST(w.open_error() == "");
}

BOOST_AUTO_TEST_CASE(bad_operations_are_refused) {
  StoreWorld w;
  w.open();
  std::byte m[20000]{};
  BOOST_TEST((w.store->write({1, w.identity(2, 1), m, 1}, 0) == Code::arg));  // not stored
  BOOST_TEST((w.store->write({1, w.identity(9, 1), m, 1}, 0) == Code::arg));  // unknown
  BOOST_TEST((w.store->write({1, w.identity(0, 1), m, 5001}, 0) == Code::arg));
  BOOST_TEST((w.store->write({1, w.identity(0, 1), nullptr, 1}, 0) == Code::arg));
  BOOST_TEST((w.write(0, 1, 1) == Code::ok));
  BOOST_TEST((w.write(0, 1, 2) == Code::state));  // on its way
  BOOST_TEST((w.read(0, 1, 3) == Code::arg));     // K10-91: not before it is whole
  BOOST_TEST((w.finished(1) == Code::ok));
  BOOST_TEST(!w.store->erase(0, key_number(2)));
  BOOST_TEST(!w.store->erase(2, key_number(1)));
}

BOOST_AUTO_TEST_CASE(a_read_says_how_much_of_the_block_means_something) {
  for (const bool checksum : {true, false}) {
    StoreWorld w;
    w.options.checksum = checksum;
    w.open();
    std::byte m[5000]{};
    BOOST_REQUIRE((w.store->write({1, w.identity(0, 1), m, 1234}, w.now) == Code::ok));
    BOOST_REQUIRE((w.finished(1) == Code::ok));
    w.open();
    BOOST_REQUIRE((w.read(0, 1, 2) == Code::ok));
    w.settle();
    BOOST_TEST_CONTEXT("checksum " << checksum) { BOOST_TEST(w.done[2].valid_bytes == 1234u); }
  }
}

// Who does not compare checksums takes what either wrote; who does, only what has one.
BOOST_AUTO_TEST_CASE(blocks_without_a_checksum_are_served_only_where_none_is_wanted) {
  for (const bool written : {true, false}) {
    for (const bool read : {true, false}) {
      StoreWorld w;
      w.options.checksum = written;
      w.open();
      BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
      w.options.checksum = read;
      w.open();
      const bool served = written || !read;
      BOOST_TEST_CONTEXT("written " << written << " read " << read) {
        BOOST_TEST((w.read_now(0, 1) == (served ? Code::ok : Code::io)));
        BOOST_TEST(w.store->counters().corrupt == (served ? 0u : 1u));
      }
    }
  }
}

// The block of another key is not served for want of a checksum.
BOOST_AUTO_TEST_CASE(without_checksums_blocks_are_known_by_their_headers) {
  StoreWorld w;
  w.options.checksum = false;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  constexpr std::uint64_t key_at = 96;
  disk_test::flip(w.path("blocks-5000.data"), key_at, 1);
  BOOST_TEST((w.read_now(0, 1) == Code::io));
  BOOST_TEST(w.store->counters().corrupt == 1u);
}

BOOST_AUTO_TEST_CASE(a_second_opener_is_told_who_has_the_folder) {
  StoreWorld w;
  w.open();
  const auto second = DiskStore::open(w.options, w.files);
  BOOST_REQUIRE(!second.ok());
  BOOST_TEST((second.error().code == Code::state));
  BOOST_TEST(second.error().text.find("pid " + std::to_string(::getpid())) != std::string::npos,
             second.error().text);
  BOOST_TEST(second.error().text.find("boot ") != std::string::npos);
  // Another rank has a folder of its own.
  DiskStoreOptions other = w.options;
  other.rank = 2;
  BOOST_TEST(DiskStore::open(other, w.files).ok());
  w.store.reset();
  BOOST_TEST(w.open_error() == "");
}

BOOST_AUTO_TEST_CASE(an_open_waits_for_writes_that_a_killed_process_left_behind) {
  StoreWorld w;
  w.files.locks_refused = 3;
  w.open();
  BOOST_TEST(w.files.locks_refused == 0u);
  FaultyFiles files;
  files.locks_refused = UINT64_MAX;
  w.options.folder = w.folder.path() + "/other";
  w.options.close_patience_ns = 2'000'000;
  const auto made = DiskStore::open(w.options, files);
  BOOST_REQUIRE(!made.ok());
  BOOST_TEST((made.error().code == Code::state));
  BOOST_TEST(made.error().text.find("still at work after 2 ms") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_full_store_refuses_until_something_is_erased) {
  StoreWorld w;
  w.open();
  std::uint64_t n = 0;
  while (w.write_now(0, n) == Code::ok) ++n;
  BOOST_TEST(n == ((1u << 20) - 6 * 4096) / (8192 + 128));
  BOOST_TEST((w.write_now(0, n) == Code::full));
  BOOST_TEST(w.store->verify() == "");
  BOOST_TEST(disk_test::allocated_in(w.folder.path() + "/rank-1") <= w.options.budget.n);
  BOOST_TEST((w.store->oldest()->key == key_number(0)));
  BOOST_TEST(w.store->erase(0, w.store->oldest()->key));
  // Its room comes with its record: the write waits for that.
  BOOST_TEST((w.write_now(0, n) == Code::ok));
  BOOST_TEST((w.read_now(0, n) == Code::ok));
  BOOST_TEST((w.read_now(0, 0) == Code::arg));
}

// K10-92: a cap of 10 blocks survives any number of puts and removals.
BOOST_AUTO_TEST_CASE(the_room_of_what_is_erased_is_used_again_for_ever) {
  StoreWorld w;
  w.options.budget = {5 * 4096 + 10 * (8192 + 128)};
  w.options.payload_of_group = {5000};
  w.open();
  std::uint64_t n = 0;
  for (int round = 0; round < 1000; ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) BOOST_REQUIRE((w.write_now(0, n + i) == Code::ok));
    for (std::uint64_t i = 0; i < 4; ++i) BOOST_REQUIRE(w.store->erase(0, key_number(n + i)));
    n += 4;
  }
  w.settle();
  BOOST_TEST((w.write_now(0, n) == Code::ok));
  BOOST_TEST(w.store->blocks() == 1u);
  BOOST_TEST(w.store->verify() == "");
  BOOST_TEST(disk_test::allocated_in(w.folder.path() + "/rank-1") <= w.options.budget.n);
}

BOOST_AUTO_TEST_CASE(room_of_one_class_goes_to_another) {
  StoreWorld w;
  w.open();
  std::uint64_t n = 0;
  while (w.write_now(0, n) == Code::ok) ++n;
  BOOST_TEST((w.write_now(1, 1000) == Code::full));
  for (std::uint64_t i = 0; i < 12; ++i) BOOST_REQUIRE(w.store->erase(0, key_number(i)));
  w.settle();
  BOOST_TEST((w.write_now(1, 1000) == Code::ok));
  BOOST_TEST((w.write_now(3, 1001) == Code::ok));
  BOOST_TEST((w.read_now(1, 1000) == Code::ok));
  BOOST_TEST((w.read_now(0, 12) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
  BOOST_TEST(disk_test::allocated_in(w.folder.path() + "/rank-1") <= w.options.budget.n);
  const std::uint64_t blocks = w.store->blocks();
  w.open();
  BOOST_TEST(w.store->blocks() == blocks);
  BOOST_TEST((w.read_now(3, 1001) == Code::ok));
}

BOOST_AUTO_TEST_CASE(where_holes_cannot_be_punched_a_class_keeps_its_room_and_it_is_said) {
  StoreWorld w;
  w.files.punch_refused = true;
  w.open();
  std::uint64_t n = 0;
  while (w.write_now(0, n) == Code::ok) ++n;
  for (std::uint64_t i = 0; i < 12; ++i) BOOST_REQUIRE(w.store->erase(0, key_number(i)));
  w.settle();
  BOOST_TEST((w.write_now(1, 1000) == Code::full));
  BOOST_TEST((w.write_now(0, n) == Code::ok));
  const auto notes = w.store->take_notes();
  BOOST_REQUIRE(notes.size() == 1u);
  BOOST_TEST(notes[0].find("cannot be given to another") != std::string::npos, notes[0]);
}

// Of the chain (four blocks here) that is the oldest the end first, so that all that stays can be
// reached.
BOOST_AUTO_TEST_CASE(a_smaller_budget_drops_the_ends_of_the_oldest_chains_at_the_next_open) {
  StoreWorld w;
  w.open();
  for (std::uint64_t n = 0; n < 30; ++n) {
    BOOST_REQUIRE((w.write_now(n % 3 == 0 ? 1 : 0, n) == Code::ok));
  }
  w.options.budget = {150'000};
  w.open();
  BOOST_TEST(w.store->used().n <= 150'000u);
  BOOST_TEST(disk_test::allocated_in(w.folder.path() + "/rank-1") <= 150'000u);
  BOOST_TEST(w.store->verify() == "");
  const std::uint64_t left = w.store->blocks();
  BOOST_TEST(left + w.store->counters().dropped_budget == 30u);
  BOOST_TEST(left > 8u);
  for (std::uint64_t n = 0; n < 30; ++n) {
    const std::uint64_t chain = n / 4 * 4;
    const std::uint64_t goes = chain + (std::min<std::uint64_t>(chain + 4, 30) - 1 - n);
    const Code expected = goes < 30 - left ? Code::arg : Code::ok;
    BOOST_TEST((w.read_now(n % 3 == 0 ? 1 : 0, n) == expected), "block " << n);
  }
  w.open();
  BOOST_TEST(w.store->blocks() == left);
}

BOOST_AUTO_TEST_CASE(a_reset_holds_for_the_next_open_too) {
  StoreWorld w;
  w.open();
  for (std::uint64_t n = 0; n < 5; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  BOOST_REQUIRE((w.write(0, 7, 7) == Code::ok));
  BOOST_REQUIRE((w.read(0, 1, 8) == Code::ok));
  BOOST_TEST((w.store->reset(1, w.now) == Code::ok));
  BOOST_TEST((w.store->reset(2, w.now) == Code::later));
  BOOST_TEST(w.store->blocks() == 0u);
  BOOST_TEST((w.finished(1) == Code::ok));
  BOOST_TEST((w.finished(7) == Code::cancelled));
  BOOST_TEST((w.finished(8) == Code::cancelled));
  BOOST_TEST(w.store->generation() == 3u);
  BOOST_TEST((w.write_now(0, 3) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
  w.open();
  BOOST_TEST(w.store->blocks() == 1u);
  BOOST_TEST(w.store->counters().dropped_foreign >= 4u);
  BOOST_TEST((w.read_now(0, 3) == Code::ok));
  BOOST_TEST(w.store->generation() == 3u);
}

BOOST_AUTO_TEST_CASE(a_reset_that_cannot_be_saved_switches_the_tier_off_until_it_is) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  w.files.fail(IoKind::sync, 0, -EIO, 2);
  BOOST_REQUIRE((w.store->reset(1, w.now) == Code::ok));
  BOOST_TEST((w.finished(1) == Code::io));
  BOOST_TEST(!w.store->on());
  BOOST_TEST(w.store->off_reason().find("generation 3") != std::string::npos);
  BOOST_TEST((w.write_now(0, 2) == Code::io));
  w.now += 6'000'000'000;  // a probe, whose sync fails too
  w.settle();
  BOOST_TEST(!w.store->on());
  w.now += 11'000'000'000;
  w.settle();
  w.now += 21'000'000'000;
  w.settle();
  BOOST_TEST(w.store->on());
  BOOST_TEST((w.write_now(0, 2) == Code::ok));
  w.open();
  BOOST_TEST(w.store->blocks() == 1u);
}

// Keys of different namespaces never meet (design 2.2, OW-10, OW-25); K10-106.
BOOST_AUTO_TEST_CASE(another_namespace_hash_or_key_length_finds_nothing) {
  StoreWorld w;
  const auto change = [&](auto how) {
    w.options = disk_test::small_options(w.folder.path());
    w.open();
    w.settle();
    for (std::uint64_t n = 0; n < 10; ++n) {
      if (!w.store->contains(0, key_number(n))) {
        BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
      }
    }
    how();
    w.open();
    BOOST_TEST(w.store->blocks() == 0u);
    BOOST_TEST(w.store->counters().dropped_foreign == 10u);
    const auto notes = w.store->take_notes();
    BOOST_REQUIRE(notes.size() == 1u);
    BOOST_TEST(notes[0].find("another namespace") != std::string::npos);
    BOOST_TEST((w.read_now(0, 1) == Code::arg));
  };
  change([&] { w.options.namespace_id.back() = 'x'; });
  change([&] { w.options.hash_id = 9; });
  change([&] { w.options.key_bytes = 32; });
}

BOOST_AUTO_TEST_CASE(files_of_classes_that_nobody_stores_any_more_are_removed) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(1, 1) == Code::ok));
  w.options.payload_of_group = {5000};
  w.open();
  BOOST_TEST(!std::filesystem::exists(w.path("blocks-20000.data")));
  BOOST_TEST(std::filesystem::exists(w.path("blocks-5000.data")));
}

BOOST_AUTO_TEST_CASE(without_a_readable_superblock_nothing_is_believed) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  disk_test::flip(w.path("store"), 20, 1);
  disk_test::flip(w.path("store"), 4096 + 20, 1);
  w.open();
  BOOST_TEST(w.store->blocks() == 0u);
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  BOOST_REQUIRE((w.store->reset(1, w.now) == Code::ok));
  BOOST_TEST((w.finished(1) == Code::ok));
  BOOST_REQUIRE((w.write_now(0, 2) == Code::ok));
  // It may be torn, of a reset that was never finished, or lost: nothing is believed either.
  disk_test::flip(w.path("store"), 20, 1);
  w.open();
  BOOST_TEST(w.store->generation() == 7u);
  BOOST_TEST(w.store->blocks() == 0u);
  w.store.reset();
  disk_test::flip(w.path("store"), 4096 + 4, 3);  // version 2
  const std::string text = w.open_error();
  BOOST_TEST(text.find("version 2") != std::string::npos, text);
  BOOST_TEST(std::filesystem::exists(w.path("blocks-5000.data")));
}

BOOST_AUTO_TEST_CASE(the_inventory_tells_every_block_in_pieces_the_oldest_first) {
  StoreWorld w;
  w.open();
  BOOST_TEST(w.store->next_inventory(1000).empty());
  for (std::uint64_t n = 0; n < 25; ++n) BOOST_REQUIRE((w.write_now(n % 2, n) == Code::ok));
  w.open();
  std::uint64_t number = 0;
  std::size_t pieces = 0;
  while (w.store->inventory_left()) {
    const auto bytes = w.store->next_inventory(inventory_bytes(10) + 50);
    ++pieces;
    const auto view = InventoryView::read(bytes);
    BOOST_REQUIRE(view.ok());
    BOOST_TEST(view.value().piece().rank == 1u);
    BOOST_TEST(view.value().piece().entries_all == 25u);
    BOOST_TEST(view.value().piece().first == number);
    for (std::uint32_t i = 0; i < view.value().piece().entries; ++i, ++number) {
      const InventoryEntry entry = view.value().entry(i);
      BOOST_TEST((entry.what == w.identity(number % 2, number)));
    }
  }
  BOOST_TEST(number == 25u);
  BOOST_TEST(pieces == 3u);
  BOOST_TEST(w.store->next_inventory(1000).empty());
}

// K10-95.
BOOST_AUTO_TEST_CASE(a_file_system_without_direct_access_is_used_through_the_page_cache) {
  StoreWorld w;
  w.files.direct_refused = true;
  w.options.direct = true;
  w.open();
  BOOST_TEST(!w.store->direct());
  const auto notes = w.store->take_notes();
  BOOST_REQUIRE(notes.size() == 1u);
  BOOST_TEST(notes[0].find("O_DIRECT does not work here") != std::string::npos, notes[0]);
  BOOST_TEST((w.write_now(0, 1) == Code::ok));
  w.open();
  BOOST_TEST((w.read_now(0, 1) == Code::ok));
}

// What is written at an open for what was found bad has its deadline from the first poll on,
// however long the clock runs already.
BOOST_AUTO_TEST_CASE(many_bad_places_at_an_open_do_not_switch_the_tier_off) {
  StoreWorld w;
  w.now = 1'000'000'000'000'000;
  w.open();
  for (std::uint64_t n = 0; n < 12; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  w.store.reset();
  std::filesystem::resize_file(w.path("blocks-5000.data"), 8192);
  w.open();
  BOOST_TEST(w.store->blocks() == 1u);
  w.settle();
  BOOST_TEST(w.store->counters().switched_off == 0u);
  BOOST_TEST((w.write_now(0, 20) == Code::ok));
  BOOST_TEST((w.read_now(0, 20) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
}

// K10-94.
BOOST_AUTO_TEST_CASE(files_that_somebody_removed_or_cut_cost_blocks_and_nothing_else) {
  StoreWorld w;
  w.open();
  for (std::uint64_t n = 0; n < 6; ++n) BOOST_REQUIRE((w.write_now(0, n) == Code::ok));
  w.store.reset();
  std::filesystem::resize_file(w.path("blocks-5000.data"), 3 * 8192 + 5);
  w.open();
  BOOST_TEST(w.store->blocks() == 3u);
  BOOST_TEST(w.store->counters().dropped_short == 3u);
  BOOST_TEST((w.read_now(0, 2) == Code::ok));
  // Cut while it is open: the read is short.
  std::filesystem::resize_file(w.path("blocks-5000.data"), 2 * 8192 + 4096);
  const Code code = w.read_now(0, 2);
  BOOST_TEST((code == Code::io));
  BOOST_TEST(w.store->counters().corrupt == 1u);
  BOOST_TEST(!w.store->contains(0, key_number(2)));
  BOOST_TEST((w.read_now(0, 1) == Code::ok));
  BOOST_TEST(w.store->erase(0, key_number(1)));
  w.settle();
  std::filesystem::remove(w.path("blocks-5000.data"));
  w.open();
  BOOST_TEST(w.store->blocks() == 0u);
  BOOST_TEST((w.write_now(0, 1) == Code::ok));
  BOOST_TEST(w.store->verify() == "");
}

BOOST_AUTO_TEST_CASE(writes_wait_for_the_device_only_when_told_to) {
  StoreWorld w;
  w.open();
  const std::uint64_t before = w.files.calls(IoKind::sync);
  BOOST_REQUIRE((w.write_now(0, 1) == Code::ok));
  BOOST_TEST(w.files.calls(IoKind::sync) == before);
  w.options.sync = true;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 2) == Code::ok));
  BOOST_TEST(w.files.calls(IoKind::sync) == before + 2);  // the block, then its record
  BOOST_TEST((w.read_now(0, 2) == Code::ok));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
