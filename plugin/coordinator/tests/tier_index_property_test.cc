// TierIndex against its linear twin: every sequence of operations in small worlds, and long random
// ones with failures in larger worlds.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <iostream>

#include "plugin/coordinator/tests/tier_world.h"
#include "plugin/tests/seed.h"

namespace kvc {
namespace {

using namespace test;

struct NamedLayout {
  const char* name;
  Layout layout;
  bool chained = true;
};

std::vector<NamedLayout> layouts() {
  return {
      {"full", {{fa(4)}, 4, 4}},
      {"full and state", {{fa(4), mb(4)}, 1, 4}},
      {"full and two states", {{fa(4), mb(4), mb(8)}, 2, 8}},
      {"full, full of double blocks and state", {{fa(8), fa(4), mb(8)}, 2, 8}},
      {"two of full and state", {{fa(4), fa(4), mb(4)}, 1, 4}},
      {"full and full of double blocks", {{fa(4), fa(8)}, 4, 8}},
      {"full, full of half as much again and state", {{fa(4), fa(6), mb(12)}, 2, 12}},
      {"full and sliding", {{fa(4), sw(4, 9)}, 4, 4}},
      {"full, state and sliding", {{fa(4), mb(4), sw(2, 5)}, 2, 4}},
      {"full and a window of one token", {{fa(4), sw(4, 1)}, 4, 4}},
      {"full and scratch", {{fa(4), scratch(8)}, 4, 8}},
      {"full and draft", {{fa(4), fa(4, true), mb(8)}, 2, 8}},
      {"long blocks of full and state", {{fa(128), mb(128)}, 1, 128}},
      {"no full", {{mb(4), sw(4, 9)}, 4, 4}},
      {"full and state, flat", {{fa(4), mb(4)}, 1, 4}, false},
  };
}

void print(const Coverage& seen) {
  for (std::size_t i = 0; i < seen.size(); ++i)
    std::cout << "  " << name_of(static_cast<Seen>(i)) << " " << seen[i] << "\n";
}

// Paths that share heads, and the random choice of what happens next.
class RandomWorld {
 public:
  RandomWorld(std::uint64_t used, const NamedLayout& named, Eviction eviction, Coverage& seen)
      : rng_(used),
        geometry_(make(named.layout)),
        prefixes_(std::array<std::uint32_t, 4>{8, 16, 20, 32}[rng_.below(4)]),
        slots_(draw_slots()),
        world_(geometry_, prefixes_,
               {named.chained, slots_, rng_.between(1, 5),
                geometry_.chain() && named.chained ? eviction : Eviction::lru},
               seen) {
    unit_of_block_ = geometry_.chain()
                         ? geometry_.block_tokens(*geometry_.chain()).n / geometry_.hash_unit().n
                         : 1;
    world_.paths.resize(4);
    for (PrefixId& path : world_.paths) path = fresh_path();
  }

  void step() {
    world_.apply(draw());
    if (slots_ <= 12 || ++count_ % (slots_ / 4) == 0) world_.compare();
  }

  [[nodiscard]] std::uint64_t done() const { return world_.done(); }

 private:
  std::uint64_t draw_slots() {
    const std::uint64_t dice = rng_.below(6);
    return dice < 2 ? rng_.between(1, 6) : dice < 5 ? rng_.between(7, 16) : rng_.between(17, 64);
  }
  PrefixId fresh_path() {
    const std::uint64_t most = std::min<std::uint64_t>(5 * unit_of_block_, 250);
    const PrefixId from = world_.paths[rng_.below(world_.paths.size())];
    PrefixId p = prefixes_.cut(from, rng_.below(prefixes_.units(from) + 1));
    if (rng_.chance(1, 2))
      p = prefixes_.cut(p, prefixes_.units(p) / unit_of_block_ * unit_of_block_);
    for (std::uint64_t n = rng_.between(1, most); prefixes_.units(p) < n;)
      p = prefixes_.extend(p, static_cast<std::uint32_t>(rng_.below(2)));
    return p == 0 ? prefixes_.extend(0, 0) : p;
  }
  std::uint32_t any(std::uint64_t n) { return static_cast<std::uint32_t>(rng_.below(n)); }

  // Mostly the next block of the chain, or an end near it.
  Op draw_offer(Do what) {
    const std::uint32_t i = any(world_.requests().size());
    const TierWorld::Request& r = world_.requests()[i];
    const auto units = static_cast<std::uint32_t>(prefixes_.units(r.path));
    Op op{what, i};
    const std::uint32_t next = world_.next_chain(r);
    if (next != 0 && rng_.chance(1, 2)) {
      op.b = *geometry_.chain();
      op.c = next;
    } else {
      op.b = any(geometry_.groups());
      const std::uint32_t deepest = next == 0 ? units : std::min<std::uint32_t>(units, next);
      op.c = 1 + any(rng_.chance(1, 4) ? units : deepest);
      if (rng_.chance(1, 2)) op.c = std::min<std::uint32_t>(units, favourite(op.c));
      for (int tries = 0; tries < 4 && !world_.legal(op.b, op.c); ++tries) op.c = 1 + any(units);
    }
    op.d = static_cast<std::uint32_t>(rng_.chance(1, 3) ? rng_.between(op.c, std::max(op.c, units))
                                                        : units);
    op.d = std::min(op.d, units);
    if (rng_.chance(1, 40)) op.d = 0;
    op.e = rng_.chance(1, 2);
    return op;
  }
  // Few ends, so that groups meet: a block's end or its second unit.
  std::uint32_t favourite(std::uint32_t units) const {
    const std::uint64_t begin = units / unit_of_block_ * unit_of_block_;
    return static_cast<std::uint32_t>(units % 2 == 0
                                          ? begin + unit_of_block_
                                          : begin + std::min<std::uint64_t>(2, unit_of_block_));
  }

  Op draw() {
    const std::uint64_t n = world_.requests().size();
    const std::uint64_t dice = rng_.below(1000);
    if (n == 0 || dice < 50) {
      if (rng_.chance(1, 4)) world_.paths[rng_.below(4)] = fresh_path();
      return {Do::open, any(4)};
    }
    if (dice < 90) return {Do::close, any(n)};
    if (dice < 120) return {Do::schedule, any(n)};
    if (dice < 160) return {Do::preempt, any(n)};
    if (dice < 190) return {Do::hit, any(n)};
    if (dice < 205) return draw_offer(Do::aside);
    if (dice < 570) return draw_offer(Do::offer);
    if (dice == 999 && rng_.chance(1, 3)) return {Do::reset};
    const std::uint32_t slot = any(std::min(slots_, world_.twin().all().size() + 1));
    if (dice < 800) return {Do::finish, slot, rng_.chance(6, 7) ? 1U : 2 * any(2)};
    if (dice < 825) return {Do::pin, slot, any(2)};
    if (dice < 900) return {Do::unpin, slot, any(2)};
    if (dice < 915) return {Do::spoil, slot};
    if (dice < 935) return {Do::evict, slot};
    const std::uint32_t who = any(n);
    const std::uint64_t units = prefixes_.units(world_.requests()[who].path);
    const std::uint32_t known = any(units + 1);
    return {dice < 965 ? Do::touch : Do::meet, slot, who, 0, known};
  }

  Prng rng_;
  Geometry geometry_;
  Prefixes prefixes_;
  std::uint64_t slots_;
  TierWorld world_;
  std::uint64_t unit_of_block_ = 1;
  std::uint64_t count_ = 0;
};

BOOST_AUTO_TEST_SUITE(tier_index_property)

BOOST_AUTO_TEST_CASE(the_index_agrees_with_its_twin_through_a_million_random_operations) {
  const std::vector<NamedLayout> all = layouts();
  constexpr std::uint64_t steps = 3000;
  Coverage seen{};
  const bool given = only_seed().has_value();
  std::uint64_t done = 0;
  const std::uint64_t first = seed_or(20260917);
  std::uint64_t used = first;
  for (; done < (given ? 1 : 1000000); ++used) {
    const NamedLayout& named = all[used % all.size()];
    BOOST_TEST_CONTEXT(named.name << ", " << repeat_command(used)) {
      const auto eviction = static_cast<Eviction>(used / all.size() % 4);
      RandomWorld world(used, named, eviction, seen);
      for (std::uint64_t i = 0; i < steps; ++i) world.step();
      done += world.done();
    }
  }
  if (given) return;
  for (std::size_t i = 0; i < seen.size(); ++i)
    BOOST_TEST(seen[i] > 0u, "never seen: " << name_of(static_cast<Seen>(i)));
  std::cout << done << " operations in " << used - first << " worlds\n";
  print(seen);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
