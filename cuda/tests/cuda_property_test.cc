// Random operations under random fences on the CUDA backend over the fake device, beside the same
// operations on the host backend: the same bytes at both ends, and no access without its order.
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "cuda/tests/fake_world.h"
#include "plugin/core/prng.h"

namespace kvc {
namespace {

using copy_test::Compute;
using copy_test::FakeWorld;
using copy_test::make_stepped;
using copy_test::Plan;
using copy_test::poll_all;
using copy_test::submit;

constexpr std::size_t blocks = 48;
constexpr std::size_t slots = 32;
constexpr std::size_t unit = 1040;  // odd against pages: runs and pieces meet everywhere

std::uint64_t number_from(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Both backends, the same memory twice, and who still uses which place.
class Pair {
 public:
  Pair(std::uint64_t seed, CopyPath path) : rng_(seed), world_(fake(seed), options(path, rng_)) {
    twin_device_.resize(blocks * unit);
    twin_host_.resize(slots * unit);
    for (std::size_t i = 0; i < slots * unit; ++i) {
      twin_host_[i] = *world_.host.at(i) = static_cast<std::byte>(i * 7 + seed);
    }
  }

  void step() {
    switch (rng_.below(8)) {
      case 0:
      case 1:
        return compute();
      case 2:
        return take_ended();
      case 3:
        world_.control.run(rng_.below(6));
        return;
      default:
        return copy();
    }
  }

  void finish() {
    for (const CopyCompletion& c : world_.drain()) ended(c);
    BOOST_TEST(open_.size() == 0u);
    settle_twin();
    BOOST_TEST(world_.faults() == "");
    BOOST_TEST(world_.counts().blocked_calls == 0u);
    BOOST_TEST(std::memcmp(world_.device(0), twin_device_.data(), twin_device_.size()) == 0);
    BOOST_TEST(std::memcmp(world_.host.at(0), twin_host_.data(), twin_host_.size()) == 0);
  }

 private:
  struct Place {
    std::set<std::uint64_t> readers;
    std::set<std::uint64_t> writers;
  };
  struct Open {
    std::vector<Place*> places;
  };

  static kvc_fake_options fake(std::uint64_t seed) {
    kvc_fake_options o{};
    o.seed = seed;
    return o;
  }
  static CudaCopyOptions options(CopyPath path, Prng& rng) {
    CudaCopyOptions o;
    o.path = path;
    o.kernel_fragments_min = 2;
    o.kernel_below_load = {rng.between(0, 2) * unit};
    o.kernel_below_store = {rng.between(0, 2) * unit};
    // Small limits meet their edges.
    o.copies_per_piece_max = static_cast<std::uint32_t>(rng.between(2, 40));
    o.pieces_max = static_cast<std::uint32_t>(rng.between(1, 6));
    o.stream_entries_max = static_cast<std::uint32_t>(rng.between(8, 60));
    return o;
  }

  // Block b is written by the compute stream; only where no copy is open.
  void compute() {
    const std::size_t b = rng_.below(blocks);
    if (!on_device_[b].readers.empty() || !on_device_[b].writers.empty()) return;
    std::vector<std::byte> bytes(unit);
    for (std::byte& x : bytes) x = static_cast<std::byte>(rng_.next());
    settle_twin();
    std::memcpy(&twin_device_[b * unit], bytes.data(), unit);
    computes_.push_back(std::make_unique<Compute>());
    world_.computes(*computes_.back(), b * unit, std::move(bytes));
  }

  void copy() {
    const std::uint64_t id = ++next_id_;
    const bool load = rng_.chance(1, 2);
    Plan real{id, load ? CopyDirection::load : CopyDirection::store, {}, {}};
    Plan twin = real;
    std::set<std::uint64_t> after;
    Open open;
    std::set<std::size_t> written;
    const std::uint64_t count = rng_.below(9);
    std::size_t block = rng_.below(blocks);
    std::size_t slot = rng_.below(slots);
    for (std::uint64_t i = 0; i < count; ++i) {
      // Neighbours often: they are merged.
      block = rng_.chance(1, 2) ? (block + 1) % blocks : rng_.below(blocks);
      slot = rng_.chance(1, 2) ? (slot + 1) % slots : rng_.below(slots);
      if (!written.insert(load ? block : slot).second) continue;
      Place& source = load ? in_host_[slot] : on_device_[block];
      Place& target = load ? on_device_[block] : in_host_[slot];
      after.insert(source.writers.begin(), source.writers.end());
      after.insert(target.writers.begin(), target.writers.end());
      after.insert(target.readers.begin(), target.readers.end());
      open.places.push_back(&source);
      open.places.push_back(&target);
      std::byte* device = world_.device(block * unit);
      std::byte* host = world_.host.at(slot * unit);
      std::byte* device2 = &twin_device_[block * unit];
      std::byte* host2 = &twin_host_[slot * unit];
      real.copies.push_back(load ? CopyDescriptor{device, host, unit}
                                 : CopyDescriptor{host, device, unit});
      twin.copies.push_back(load ? CopyDescriptor{device2, host2, unit}
                                 : CopyDescriptor{host2, device2, unit});
    }
    for (std::size_t i = 0; i + 1 < open.places.size(); i += 2) {
      open.places[i]->readers.insert(id);
      open.places[i + 1]->writers.insert(id);
    }
    real.after.assign(after.begin(), after.end());
    twin.after = real.after;
    const Fence fence = rng_.chance(1, 2) ? world_.event_now() : world_.stream_now();
    BOOST_REQUIRE(submit(*world_.engine, {real}, fence).ok());
    while (!submit(*twin_, {twin}).ok()) settle_twin();
    open_.emplace(id, std::move(open));
  }

  void ended(const CopyCompletion& c) {
    BOOST_TEST((c.status == Code::ok));
    const auto it = open_.find(c.id);
    BOOST_REQUIRE((it != open_.end()));
    for (Place* p : it->second.places) {
      p->readers.erase(c.id);
      p->writers.erase(c.id);
    }
    open_.erase(it);
  }
  void take_ended() {
    settle_twin();  // what ended here is no longer named by what comes after it
    for (const CopyCompletion& c : poll_all(*world_.engine)) ended(c);
  }
  void settle_twin() {
    while (twin_->pump(100) != 0) {
    }
    static_cast<void>(poll_all(*twin_));
  }

  Prng rng_;
  FakeWorld world_;
  std::unique_ptr<HostCopyEngine> twin_ = make_stepped();
  std::vector<std::byte> twin_device_;
  std::vector<std::byte> twin_host_;
  std::map<std::size_t, Place> on_device_;
  std::map<std::size_t, Place> in_host_;
  std::map<std::uint64_t, Open> open_;
  std::vector<std::unique_ptr<Compute>> computes_;
  std::uint64_t next_id_ = 0;
};

BOOST_AUTO_TEST_SUITE(cuda_property)

BOOST_AUTO_TEST_CASE(random_operations_give_the_bytes_of_the_host_backend_without_a_race) {
  const std::uint64_t first = number_from("KVC_SEED", 1);
  const std::uint64_t count = number_from("KVC_SEEDS", 60);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    for (const CopyPath path :
         {CopyPath::automatic, CopyPath::batch, CopyPath::loop, CopyPath::kernel}) {
      BOOST_TEST_CONTEXT("seed " << seed << "; to repeat: KVC_SEED=" << seed
                                 << " KVC_SEEDS=1 kvc_cuda_property_test") {
        Pair pair(seed, path);
        for (int i = 0; i < 150; ++i) pair.step();
        pair.finish();
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
