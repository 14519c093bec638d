// Generations: what was written before a reset is never found again, whenever the process ended and
// whatever became of the superblock.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <vector>

#include "plugin/offload/disk/tests/store_world.h"

namespace kvc::disk {
namespace {

using disk_test::flip;
using disk_test::key_number;
using disk_test::StoreWorld;

bool has(const StoreWorld& w, std::uint64_t number) {
  return w.store->contains(0, key_number(number));
}

void save_reset(StoreWorld& w, std::uint64_t id) {
  BOOST_REQUIRE((w.store->reset(id, w.now) == Code::ok));
  BOOST_REQUIRE((w.finished(id) == Code::ok));
}

BOOST_AUTO_TEST_SUITE(disk_reset)

// The order in which the device does things is any: a hundred of them.
BOOST_AUTO_TEST_CASE(nothing_is_written_before_the_superblock_of_a_reset) {
  int ended_between = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    BOOST_TEST_CONTEXT("order " << seed) {
      StoreWorld w;
      w.options.stepped_seed = seed;
      w.open();
      BOOST_REQUIRE((w.write_now(0, 3) == Code::ok));
      BOOST_REQUIRE((w.store->reset(1, w.now) == Code::ok));
      BOOST_REQUIRE((w.write(0, 7, 2) == Code::ok));
      const std::uint64_t generation = w.store->generation();
      for (std::uint64_t steps = 0; steps < seed % 6; ++steps) {
        w.store->pump(1);
        w.poll();
      }
      const bool saved = w.done.count(1) != 0;
      BOOST_TEST((w.done.count(2) == 0 || saved));
      // What was begun ends, what was not never does, as when the process is killed.
      w.open();
      if (w.store->generation() != generation) {
        ++ended_between;
        BOOST_TEST(!saved);
        // The reset never happened: all that is found is whole.
        BOOST_TEST(has(w, 3));
        BOOST_TEST((w.read_now(0, 3) == Code::ok));
      } else {
        BOOST_TEST(!has(w, 3));
      }
      BOOST_TEST((!has(w, 7) || w.read_now(0, 7) == Code::ok));
      // No later generation takes up what this life wrote.
      w.done.clear();
      save_reset(w, 3);
      w.open();
      BOOST_TEST(w.store->blocks() == 0U);
    }
  }
  BOOST_TEST(ended_between > 0);
}

BOOST_AUTO_TEST_CASE(a_write_behind_a_reset_is_done_when_the_reset_is_saved) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.store->reset(1, w.now) == Code::ok));
  BOOST_REQUIRE((w.write(0, 7, 2) == Code::ok));
  BOOST_REQUIRE((w.finished(1) == Code::ok));
  BOOST_REQUIRE((w.finished(2) == Code::ok));
  BOOST_TEST((w.read_now(0, 7) == Code::ok));
  w.open();
  BOOST_TEST(has(w, 7));
}

BOOST_AUTO_TEST_CASE(a_write_behind_a_reset_that_fails_ends_with_it) {
  StoreWorld w;
  w.open();
  w.files.fail(IoKind::write, 0, -EIO, 1);
  BOOST_REQUIRE((w.store->reset(1, w.now) == Code::ok));
  BOOST_REQUIRE((w.write(0, 7, 2) == Code::ok));
  BOOST_TEST((w.finished(1) == Code::io));
  BOOST_TEST((w.finished(2) == Code::io));
  BOOST_TEST(!w.store->on());
  BOOST_TEST(w.store->verify() == "");
}

BOOST_AUTO_TEST_CASE(a_lost_copy_of_the_superblock_brings_nothing_back) {
  for (const std::uint64_t resets : {1U, 2U, 3U}) {
    for (const std::uint64_t copy : {0U, 1U}) {
      for (const bool zeroes : {false, true}) {
        BOOST_TEST_CONTEXT(resets << " resets, copy " << copy
                                  << (zeroes ? " zeroes" : " flipped")) {
          StoreWorld w;
          w.open();
          BOOST_REQUIRE((w.write_now(0, 7) == Code::ok));
          for (std::uint64_t i = 0; i < resets; ++i) save_reset(w, 10 + i);
          BOOST_REQUIRE((w.write_now(0, 8) == Code::ok));
          const std::uint64_t generation = w.store->generation();
          w.store.reset();
          if (zeroes) {
            std::fstream file(w.path("store"), std::ios::in | std::ios::out | std::ios::binary);
            file.seekp(static_cast<std::streamoff>(copy * superblock_bytes));
            file << std::string(superblock_bytes, '\0');
          } else {
            flip(w.path("store"), copy * superblock_bytes + 20, 1);
          }
          w.open();
          BOOST_TEST(!has(w, 7));
          BOOST_TEST(!has(w, 8));
          BOOST_TEST(w.store->generation() > generation);
          BOOST_TEST(!w.store->take_notes().empty());
          // And the folder is well again.
          BOOST_REQUIRE((w.write_now(0, 9) == Code::ok));
          w.open();
          BOOST_TEST(has(w, 9));
          BOOST_TEST(w.store->blocks() == 1U);
        }
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(a_superblock_older_than_a_record_is_not_believed) {
  StoreWorld w;
  w.open();
  BOOST_REQUIRE((w.write_now(0, 7) == Code::ok));
  w.store.reset();
  std::ifstream in(w.path("store"), std::ios::binary);
  const std::string old((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  w.open();
  save_reset(w, 1);
  BOOST_REQUIRE((w.write_now(0, 8) == Code::ok));
  const std::uint64_t generation = w.store->generation();
  w.store.reset();
  std::ofstream(w.path("store"), std::ios::binary | std::ios::trunc) << old;
  w.open();
  BOOST_TEST(w.store->blocks() == 0U);
  BOOST_TEST(w.store->generation() > generation);
  BOOST_TEST(w.store->verify() == "");
  w.open();
  BOOST_TEST(w.store->blocks() == 0U);
}

BOOST_AUTO_TEST_CASE(records_of_places_that_cannot_be_are_cut_off) {
  for (const std::uint64_t bytes :
       {std::uint64_t{1} << 30U, std::uint64_t{1} << 33U, (std::uint64_t{1} << 38U) + 128}) {
    BOOST_TEST_CONTEXT("an index of " << bytes << " bytes") {
      StoreWorld w;
      w.open();
      BOOST_REQUIRE((w.write_now(0, 7) == Code::ok));
      w.store.reset();
      if (::truncate(w.path("blocks-5000.index").c_str(), static_cast<off_t>(bytes)) != 0) continue;
      w.open();
      BOOST_TEST(has(w, 7));
      BOOST_TEST((w.read_now(0, 7) == Code::ok));
      BOOST_TEST(disk_test::size_of(w.path("blocks-5000.index")) < std::uint64_t{1} << 20U);
    }
  }
}

BOOST_AUTO_TEST_CASE(an_index_without_end_is_an_error_with_a_text) {
  StoreWorld w;
  w.open();
  w.store.reset();
  BOOST_REQUIRE(::unlink(w.path("blocks-5000.index").c_str()) == 0);
  BOOST_REQUIRE(::symlink("/dev/full", w.path("blocks-5000.index").c_str()) == 0);
  BOOST_TEST(w.open_error().find("blocks-5000.index") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
