// Lookups over host and disk tier as one: the same answers as of one flat index that has what
// either of them has, whatever came and went in each.
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>
#include <vector>

#include "plugin/coordinator/test_support.h"
#include "plugin/core/prng.h"
#include "plugin/offload/both_tiers.h"

using namespace kvc;
using namespace kvc::test;

namespace {

constexpr std::uint64_t units = 40;
constexpr std::uint64_t paths_count = 4;
constexpr std::uint32_t kb = 16;

// Paths 0 and 1 share their first 12 units, and so do 2 and 3.
std::vector<std::byte> path_keys(std::uint64_t path) {
  std::vector<std::byte> out(units * kb);
  for (std::uint64_t i = 0; i < units; ++i) {
    const std::uint64_t stem = i < 12 ? path / 2 : path + 10;
    const std::uint64_t name = (stem << 32U) + i + 1;
    std::memcpy(&out[i * kb], &name, sizeof name);
  }
  return out;
}

class Tiers {
 public:
  Tiers(const Layout& layout, std::uint64_t seed)
      : random_(seed),
        geometry_(make(layout)),
        events_(0),
        host_(geometry_, kb, {.chained = true}, events_),
        disk_(geometry_, kb, true, events_),
        both_(host_, disk_) {
    TierSizes sizes;
    sizes.pages = 24;
    sizes.slots_per_page = {1};
    sizes.class_of_group.fill(0);
    BOOST_REQUIRE(host_.resize(sizes, 64).ok());
    DiskSizes disk;
    disk.cost_of_group.fill(100);
    disk.budget_bytes = 40 * 100;
    disk.open_runs = 64;
    BOOST_REQUIRE(disk_.resize(disk).ok());
    for (std::uint64_t p = 0; p < paths_count; ++p) keys_.push_back(path_keys(p));
  }

  void act() {
    const std::uint64_t path = random_.below(paths_count);
    const std::vector<GroupId>& groups = geometry_.cacheable();
    const GroupId g = groups[random_.below(groups.size())];
    const Tokens h = geometry_.hash_unit();
    const bool state = geometry_.group(g).kind == GroupKind::state;
    const bool tail = geometry_.keeps_tails() && random_.chance(1, 4);
    const Tokens step = tail || state ? h : geometry_.block_tokens(g);
    const Tokens end = step * random_.between(1, h.n * units / step.n);
    const std::byte* const key = block_key(view(path), end, h);
    if (random_.chance(1, 12)) {
      if (const SlotId victim = host_.next_victim(); victim != no_slot) host_.evict(victim);
    } else if (random_.chance(1, 2)) {
      SlotId there = no_slot;
      if (host_.find(g, key, there) != Presence::absent) return;
      const RunId run = host_.open_run();
      host_.schedule(run);
      Refusal why = Refusal::none;
      const SlotId e = host_.reserve(g, key, view(path), end, run, there, why);
      if (e != no_slot) static_cast<void>(host_.publish(e, 0));
      host_.close_run(run);
    } else {
      SlotId there = no_slot;
      if (disk_.find(g, key, there) != Presence::absent) return;
      const RunId run = disk_.open_run();
      const SlotId e = disk_.reserve(g, key, view(path), end, run, there);
      if (e != no_slot) disk_.publish(e);
      disk_.close_run(run);
      if (random_.chance(1, 20) && e != no_slot) disk_.condemn(e);
    }
  }

  void compare() {
    BOOST_REQUIRE_EQUAL(host_.verify(), "");
    BOOST_REQUIRE_EQUAL(disk_.verify(), "");
    const std::uint64_t path = random_.below(paths_count);
    auto flat = FlatIndex::make({kb, 4096, 0, false});
    BOOST_REQUIRE(flat.ok());
    const Tokens h = geometry_.hash_unit();
    SlotId next = 0;
    for (const GroupId g : geometry_.cacheable()) {
      for (std::uint64_t u = 1; u <= units; ++u) {
        const std::byte* const key = block_key(view(path), h * u, h);
        if (both_.find(g, key) == no_slot) continue;
        BOOST_REQUIRE(flat.value().insert(g, key, next++, h * u) == Code::ok);
      }
    }
    const Tokens most = h * random_.between(1, units);
    const Tokens s = geometry_.scheduler_block();
    const Tokens start = s * random_.below(most.n / s.n + 1);
    Hit of_both;
    Hit of_flat;
    BOOST_REQUIRE(lookup(geometry_, both_, view(path), start, most, of_both) == Code::ok);
    BOOST_REQUIRE(lookup(geometry_, flat.value(), view(path), start, most, of_flat) == Code::ok);
    BOOST_TEST(of_both.tokens.n == of_flat.tokens.n);
    deep_ += of_both.tokens > start;
    for (const GroupHit& g : of_both.groups) on_disk_ += on_disk(g.last());
  }
  [[nodiscard]] std::uint64_t deep() const { return deep_; }
  [[nodiscard]] std::uint64_t on_disk_hits() const { return on_disk_; }

 private:
  [[nodiscard]] KeyView view(std::uint64_t path) const { return {keys_[path].data(), kb, units}; }

  Prng random_;
  Geometry geometry_;
  EventRing events_;
  HostTier host_;
  DiskIndex disk_;
  BothTiers both_;
  std::vector<std::vector<std::byte>> keys_;
  std::uint64_t deep_ = 0;
  std::uint64_t on_disk_ = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(both_tiers)

BOOST_AUTO_TEST_CASE(a_lookup_over_both_finds_what_either_has) {
  const std::vector<Layout> layouts = {
      {.groups = {fa(16)}, .h = 16, .s = 16},
      {.groups = {fa(16), fa(32)}, .h = 16, .s = 32},
      {.groups = {fa(64), mb(64)}, .h = 16, .s = 64},
      {.groups = {fa(16), sw(16, 40)}, .h = 16, .s = 16},
      {.groups = {fa(32), fa(64), mb(64)}, .h = 16, .s = 64},
  };
  for (std::size_t i = 0; i < layouts.size(); ++i) {
    std::uint64_t deep = 0;
    std::uint64_t on_disk_hits = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      BOOST_TEST_CONTEXT("layout " << i << " seed " << seed) {
        Tiers tiers(layouts[i], seed * 100 + i);
        for (int n = 0; n < 600; ++n) {
          tiers.act();
          if (n % 3 == 0) tiers.compare();
        }
        deep += tiers.deep();
        on_disk_hits += tiers.on_disk_hits();
      }
    }
    BOOST_TEST(deep > 0u, "layout " << i << " never hits");
    BOOST_TEST(on_disk_hits > 0u, "layout " << i << " never hits on disk");
  }
}

BOOST_AUTO_TEST_SUITE_END()
