// A DiskStore against a map, in random orders, with trouble and restarts.
#include <boost/test/unit_test.hpp>
#include <set>
#include <utility>

#include "plugin/offload/disk/tests/store_world.h"
#include "plugin/tests/seed.h"

namespace kvc::disk {
namespace {

using disk_test::FaultyFiles;
using disk_test::key_number;
using disk_test::StoreWorld;

using Block = std::pair<std::uint32_t, std::uint64_t>;  // group, number

// What the rules say is in the store; nothing of how it does that.
struct Twin {
  std::set<Block> there;  // written, told so, not gone since
  std::set<Block> maybe;  // failed on the way in or out: a restart may find it
  std::map<std::uint64_t, Block> writes;
  std::map<std::uint64_t, Block> reads;
  std::set<std::uint64_t> resets;
  bool reset_failed = false;
};

class Play {
 public:
  Play(std::uint64_t seed, bool trouble) : rng_(seed), trouble_(trouble) {
    w_.options.stepped_seed = seed;
    w_.options.direct = false;
    w_.options.budget = {300'000};
    w_.options.read_deadline_ns = 50'000;
    w_.options.write_deadline_ns = 50'000;
    w_.options.health.probe_after_ns = 20'000;
    w_.options.health.probe_at_most_ns = 40'000;
    w_.options.bad_places_max = 3;
    w_.options.io.tasks_max = 32;
    w_.options.io.hung_max = 4;
    w_.open();
  }

  void step() {
    w_.now += rng_.below(2000);
    switch (rng_.below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return write();
      case 4:
      case 5:
      case 6:
        return read();
      case 7:
        return erase();
      case 8:
        if (rng_.chance(1, 12)) reset();
        return;
      case 9:
        if (rng_.chance(1, 8)) restart();
        return;
      case 10:
        if (trouble_) make_trouble();
        return;
      default:
        w_.store->pump(rng_.below(4));
        return collect();
    }
  }

  void end() {
    w_.files.heal();
    w_.files.release();
    w_.settle();
    collect();
    BOOST_REQUIRE(w_.store->open_operations() == 0u);
    BOOST_REQUIRE(w_.store->hung_operations() == 0u);
    compare();
    restart();
    for (const Block& b : twin_.there) {
      BOOST_REQUIRE((w_.read_now(b.first, b.second) == Code::ok));
    }
  }

  [[nodiscard]] std::uint64_t reads_ok() const { return reads_ok_; }

 private:
  Block any() { return {rng_.chance(1, 2) ? 0U : 3U, rng_.below(24)}; }

  void write() {
    const Block b = any();
    const std::uint64_t id = ++id_;
    const Code code = w_.write(b.first, b.second, id);
    if (code == Code::ok) {
      BOOST_REQUIRE(twin_.there.count(b) == 0u);
      twin_.writes[id] = b;
    } else {
      BOOST_REQUIRE(
          (code == Code::state || code == Code::full || code == Code::later || code == Code::io));
      if (code == Code::full && rng_.chance(1, 2)) erase_oldest();
    }
  }

  void read() {
    const Block b = any();
    const std::uint64_t id = ++id_;
    const Code code = w_.read(b.first, b.second, id);
    if (code == Code::ok) {
      BOOST_REQUIRE(twin_.there.count(b) == 1u);
      twin_.reads[id] = b;
    } else if (code == Code::arg) {
      BOOST_REQUIRE(twin_.there.count(b) == 0u);
    }
  }

  void erase() {
    const Block b = any();
    const bool was = twin_.there.erase(b) != 0;
    if (was) twin_.maybe.insert(b);
    BOOST_REQUIRE(w_.store->erase(b.first, key_number(b.second)) == was);
  }

  void erase_oldest() {
    const auto oldest = w_.store->oldest();
    if (!oldest) return;
    for (std::uint64_t n = 0; n < 24; ++n) {
      if (key_number(n) != oldest->key) continue;
      BOOST_REQUIRE(twin_.there.erase({oldest->group, n}) == 1u);
      twin_.maybe.insert({oldest->group, n});
    }
    BOOST_REQUIRE(w_.store->erase(oldest->group, oldest->key));
  }

  void reset() {
    const std::uint64_t id = ++id_;
    if (w_.store->reset(id, w_.now) != Code::ok) return;
    twin_.resets.insert(id);
    twin_.maybe.insert(twin_.there.begin(), twin_.there.end());
    for (const auto& [w, b] : twin_.writes) twin_.maybe.insert(b);
    twin_.there.clear();
  }

  void make_trouble() {
    static constexpr IoResult troubles[] = {-EIO, -ENOSPC, FaultyFiles::half, 0};
    switch (rng_.below(6)) {
      case 0:
        return w_.files.hold(rng_.chance(1, 2) ? IoKind::read : IoKind::write, true);
      case 1:
        return w_.files.release();
      case 2:
        return w_.files.heal();
      default:
        return w_.files.fail(rng_.chance(1, 2) ? IoKind::read : IoKind::write, rng_.below(6),
                             troubles[rng_.below(4)], 1 + rng_.below(3));
    }
  }

  void collect() {
    w_.poll();
    for (const auto& [id, done] : w_.done) {
      if (twin_.resets.erase(id) != 0) {
        // Saved: what was before is gone for good.
        if (done.status == Code::ok && twin_.resets.empty()) twin_.maybe.clear();
        continue;
      }
      if (const auto it = twin_.writes.find(id); it != twin_.writes.end()) {
        if (done.status == Code::ok) {
          BOOST_REQUIRE(twin_.there.insert(it->second).second);
        } else {
          twin_.maybe.insert(it->second);
        }
        twin_.writes.erase(it);
        continue;
      }
      const auto it = twin_.reads.find(id);
      BOOST_REQUIRE(it != twin_.reads.end());
      if (done.status == Code::ok) {
        ++reads_ok_;
        BOOST_REQUIRE(w_.holds(id, it->second.first, it->second.second));
      }
      if (done.gone) {
        // Only trouble makes a block bad.
        BOOST_REQUIRE(trouble_);
        if (twin_.there.count(it->second) != 0 &&
            !w_.store->contains(it->second.first, key_number(it->second.second))) {
          twin_.there.erase(it->second);
          twin_.maybe.insert(it->second);
        }
      }
      twin_.reads.erase(it);
    }
    w_.done.clear();
    compare();
  }

  void compare() {
    const std::string broken = w_.store->verify();
    BOOST_REQUIRE_MESSAGE(broken.empty(), broken);
    BOOST_REQUIRE(w_.store->blocks() == twin_.there.size());
    for (const Block& b : twin_.there) {
      BOOST_REQUIRE(w_.store->contains(b.first, key_number(b.second)));
    }
  }

  // What was told is there again; what failed may be.
  void restart() {
    w_.files.heal();
    w_.files.release();
    w_.poll();
    for (const auto& [id, done] : w_.done) {
      const auto it = twin_.writes.find(id);
      if (it != twin_.writes.end() && done.status == Code::ok) twin_.there.insert(it->second);
    }
    // Blocks that a read found bad in this very moment.
    std::erase_if(twin_.there, [&](const Block& b) {
      if (w_.store->contains(b.first, key_number(b.second))) return false;
      twin_.maybe.insert(b);
      return true;
    });
    for (const auto& [id, b] : twin_.writes) twin_.maybe.insert(b);
    const bool unsaved = !twin_.resets.empty() || !w_.store->on();
    twin_.writes.clear();
    twin_.reads.clear();
    twin_.resets.clear();
    w_.done.clear();
    w_.open();
    std::set<Block> found;
    for (const std::uint32_t group : {0U, 3U}) {
      for (std::uint64_t n = 0; n < 24; ++n) {
        if (w_.store->contains(group, key_number(n))) found.insert({group, n});
      }
    }
    BOOST_REQUIRE(found.size() == w_.store->blocks());
    for (const Block& b : found) {
      BOOST_REQUIRE(twin_.there.count(b) + twin_.maybe.count(b) != 0u);
    }
    // A reset that was not saved may have been half of one: then all of it counts, or nothing.
    if (!unsaved) {
      for (const Block& b : twin_.there) BOOST_REQUIRE(found.count(b) == 1u);
    }
    twin_.there = found;
    if (!trouble_ && !unsaved) twin_.maybe.clear();
  }

  Prng rng_;
  const bool trouble_;
  StoreWorld w_;
  Twin twin_;
  std::uint64_t id_ = 0;
  std::uint64_t reads_ok_ = 0;
};

void run(std::uint64_t seed, bool trouble, int steps) {
  BOOST_TEST_CONTEXT("seed " << seed << "; " << test::repeat_command(seed)) {
    Play play(seed, trouble);
    for (int i = 0; i < steps; ++i) play.step();
    play.end();
    BOOST_TEST(play.reads_ok() > 0u);
  }
}

void run_seeds(bool trouble) {
  const auto only = test::only_seed();
  const std::uint64_t first = only.value_or(1);
  for (std::uint64_t seed = first; seed < first + (only ? 1 : 30); ++seed) {
    run(seed, trouble, 1500);
  }
  if (only) return;
  // Writes behind a reset that was not on disk; a reader of a place whose record was lost.
  for (const std::uint64_t seed :
       {7700197975UL, 7700293003UL, 7700285084UL, 7700300922UL, 7700031676UL}) {
    run(seed, trouble, 1500);
  }
}

BOOST_AUTO_TEST_SUITE(disk_property)

BOOST_AUTO_TEST_CASE(a_store_is_a_map_that_restarts) { run_seeds(false); }

BOOST_AUTO_TEST_CASE(a_store_on_a_sick_device_loses_blocks_and_never_bytes) { run_seeds(true); }

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::disk
