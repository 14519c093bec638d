#include "plugin/offload/disk/disk_tier.h"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <set>

#include "plugin/offload/disk/tests/store_world.h"

namespace kvc::disk {
namespace {

using disk_test::bytes_of;
using disk_test::FaultyFiles;
using disk_test::Folder;
using disk_test::key_number;

struct TierWorld {
  TierWorld() {
    options.store = disk_test::small_options("");
    options.store.budget = {200'000};
    options.store.direct = false;
    options.paths = {a.path(), b.path()};
    open();
  }
  ~TierWorld() { files.release(); }

  void open() {
    tier.reset();
    auto made = DiskTier::open(options, files);
    if (!made.ok()) BOOST_FAIL(made.error().text);
    tier = std::move(made.value());
  }
  // All that ended until nothing moves.
  std::vector<DiskDone> settle() {
    std::vector<DiskDone> all;
    for (;;) {
      DiskDone some[3];
      const std::size_t n = tier->poll(some, now);
      all.insert(all.end(), some, some + n);
      if (n + tier->pump(1) == 0) return all;
    }
  }
  Code write(std::uint64_t number) {
    bytes = bytes_of(0, number, 5000);
    Identity what;
    what.end_tokens = 16;
    what.key = key_number(number);
    const Code code = tier->write({number, what, bytes.data(), 5000}, now);
    return code == Code::ok ? settle().front().status : code;
  }
  Code read(std::uint64_t number) {
    bytes.assign(5000, std::byte{0});
    const Code code = tier->read({number, 0, 16, key_number(number), bytes.data()}, now);
    if (code != Code::ok) return code;
    const Code status = settle().front().status;
    if (status == Code::ok) BOOST_TEST((bytes == bytes_of(0, number, 5000)));
    return status;
  }

  Folder a;
  Folder b;
  FaultyFiles files;
  DiskTierOptions options;
  std::unique_ptr<DiskTier> tier;
  std::vector<std::byte> bytes;
  std::uint64_t now = 1;
};

BOOST_AUTO_TEST_SUITE(disk_tier)

BOOST_AUTO_TEST_CASE(blocks_are_spread_over_all_paths_and_found_again) {
  TierWorld w;
  std::uint64_t n = 0;
  while (w.write(n) == Code::ok) ++n;
  BOOST_TEST((w.write(n) == Code::full));
  BOOST_TEST(w.tier->store(0).blocks() == n / 2);
  BOOST_TEST(w.tier->store(1).blocks() == n / 2);
  BOOST_TEST((w.write(3) == Code::state));
  w.open();
  for (std::uint64_t i = 0; i < n; ++i) BOOST_TEST((w.read(i) == Code::ok));
  BOOST_TEST((w.read(n) == Code::arg));
  const auto oldest = w.tier->oldest_like(0);
  BOOST_REQUIRE(oldest);
  BOOST_TEST(w.tier->erase(0, oldest->key));
  BOOST_TEST(!w.tier->erase(0, oldest->key));
  BOOST_TEST((w.write(n) == Code::ok));
  BOOST_TEST(w.tier->verify() == "");
  BOOST_TEST(w.tier->counters().found == n);
  BOOST_TEST(w.tier->used().n <= 400'000u);
}

BOOST_AUTO_TEST_CASE(paths_that_are_missing_twice_or_taken_are_refused) {
  TierWorld w;
  const auto says = [&](std::vector<std::string> paths, const char* word) {
    DiskTierOptions o = w.options;
    o.paths = std::move(paths);
    const auto made = DiskTier::open(o, w.files);
    BOOST_REQUIRE(!made.ok());
    BOOST_TEST(made.error().text.find(word) != std::string::npos, made.error().text);
  };
  says({}, "no path");
  says({"/x", "/x"}, "/x is given twice");
  says({w.a.path()}, "belongs to another");
}

BOOST_AUTO_TEST_CASE(a_path_that_is_off_costs_its_own_blocks_only) {
  TierWorld w;
  for (std::uint64_t n = 0; n < 8; ++n) BOOST_REQUIRE((w.write(n) == Code::ok));
  std::set<std::uint64_t> on_a;
  for (std::uint64_t n = 0; n < 8; ++n) {
    if (w.tier->store(0).contains(0, key_number(n))) on_a.insert(n);
  }
  BOOST_TEST(on_a.size() == 4u);
  w.files.fail(IoKind::read, 0, -EIO, 4);
  for (int i = 0; i < 4; ++i) w.read(*on_a.begin());
  BOOST_TEST(!w.tier->store(0).on());
  BOOST_TEST(w.tier->on());
  BOOST_TEST(w.tier->off_reason().find("in a row") != std::string::npos);
  for (std::uint64_t n = 0; n < 8; ++n) {
    BOOST_TEST((w.read(n) == (on_a.count(n) != 0 ? Code::io : Code::ok)));
  }
  BOOST_TEST((w.write(20) == Code::ok));
  BOOST_TEST(w.tier->store(1).contains(0, key_number(20)));
  w.now += 6'000'000'000;
  w.settle();
  BOOST_TEST(w.tier->off_reason() == "");
  for (std::uint64_t n = 0; n < 8; ++n) BOOST_TEST((w.read(n) == Code::ok));
}

BOOST_AUTO_TEST_CASE(a_reset_is_done_when_all_paths_are) {
  TierWorld w;
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_REQUIRE((w.write(n) == Code::ok));
  BOOST_TEST((w.tier->reset(77, w.now) == Code::ok));
  BOOST_TEST((w.tier->reset(78, w.now) == Code::later));
  auto done = w.settle();
  BOOST_REQUIRE(done.size() == 1u);
  BOOST_TEST(done[0].id == 77u);
  BOOST_TEST((done[0].status == Code::ok));
  BOOST_TEST(w.tier->blocks() == 0u);
  // One that fails on one path fails.
  w.files.fail(IoKind::sync, 1, -EIO);
  BOOST_TEST((w.tier->reset(79, w.now) == Code::ok));
  done = w.settle();
  BOOST_REQUIRE(done.size() == 1u);
  BOOST_TEST((done[0].status == Code::io));
  w.open();
  BOOST_TEST(w.tier->blocks() == 0u);
}

BOOST_AUTO_TEST_CASE(the_inventories_of_all_paths_are_one) {
  TierWorld w;
  for (std::uint64_t n = 0; n < 9; ++n) BOOST_REQUIRE((w.write(n) == Code::ok));
  w.open();
  std::set<Key> keys;
  std::uint64_t told = 0;
  while (w.tier->inventory_left()) {
    const auto bytes = w.tier->next_inventory(inventory_bytes(2));
    const auto view = InventoryView::read(bytes);
    BOOST_REQUIRE(view.ok());
    BOOST_TEST(view.value().piece().first == told);
    BOOST_TEST(view.value().piece().entries_all == 9u);
    for (std::uint32_t i = 0; i < view.value().piece().entries; ++i, ++told) {
      keys.insert(view.value().entry(i).what.key);
    }
  }
  BOOST_TEST(told == 9u);
  BOOST_TEST(keys.size() == 9u);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_on_two_paths_stays_on_one) {
  TierWorld w;
  for (std::uint64_t n = 0; n < 4; ++n) BOOST_REQUIRE((w.write(n) == Code::ok));
  w.tier.reset();
  // What a folder holds does not name its path.
  std::filesystem::remove_all(w.b.path() + "/rank-1");
  std::filesystem::copy(w.a.path() + "/rank-1", w.b.path() + "/rank-1");
  w.open();
  BOOST_TEST(w.tier->blocks() == 2u);
  BOOST_TEST(w.tier->counters().dropped_twice == 2u);
  BOOST_TEST(w.tier->verify() == "");
  w.settle();
  w.open();
  BOOST_TEST(w.tier->counters().dropped_twice == 0u);
  BOOST_TEST(w.tier->blocks() == 2u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
