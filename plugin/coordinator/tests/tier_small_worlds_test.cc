// Every sequence of operations in small worlds, TierIndex against its twin after each.
#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <iostream>
#include <memory>
#include <unordered_set>

#include "plugin/coordinator/tests/tier_world.h"

namespace kvc {
namespace {

using namespace test;

// Two requests whose paths part in the middle: `shared` units in common, `units` and `other_units`
// in all. Offers are made at the ends in `ends`, in units.
struct SmallWorld {
  const char* name;
  Layout layout;
  std::uint64_t slots;
  std::uint64_t units;
  std::uint64_t other_units;
  std::uint64_t shared;
  std::vector<std::uint32_t> ends;
  // From nothing stored, and from everything that the first request can have: all sequences up to
  // the first length; up to the second, of those that led to the same state only one is continued.
  struct Depth {
    std::size_t every;
    std::size_t distinct;
  };
  Depth empty;
  Depth full;
  bool chained = true;
};

std::vector<SmallWorld> small_worlds() {
  return {
      {"full", {{fa(4)}, 4, 4}, 4, 3, 2, 1, {1, 2, 3}, {4, 7}, {3, 6}},
      {"full and state", {{fa(4), mb(4)}, 2, 4}, 5, 3, 3, 2, {1, 2, 3}, {3, 5}, {2, 4}},
      {"full and full of double blocks",
       {{fa(4), fa(8)}, 4, 8},
       4,
       3,
       2,
       1,
       {1, 2, 3},
       {3, 6},
       {3, 5}},
      {"full and sliding", {{fa(4), sw(4, 9)}, 4, 4}, 4, 3, 2, 1, {1, 2, 3}, {3, 5}, {2, 5}},
      {"full and two states", {{fa(4), mb(4), mb(8)}, 2, 8}, 6, 3, 3, 2, {2, 3}, {3, 5}, {2, 4}},
      {"full and state, flat", {{fa(4), mb(4)}, 2, 4}, 3, 3, 2, 2, {2, 3}, {3, 6}, {2, 5}, false},
  };
}

class Explorer {
 public:
  explicit Explorer(const SmallWorld& small)
      : small_(small), geometry_(make(small.layout)), prefixes_(16) {
    PrefixId shared = 0;
    for (std::uint64_t i = 0; i < small.shared; ++i) shared = prefixes_.extend(shared, 0);
    paths_ = {shared, shared};
    for (std::uint64_t i = small.shared; i < small.units; ++i)
      paths_[0] = prefixes_.extend(paths_[0], 0);
    for (std::uint64_t i = small.shared; i < small.other_units; ++i)
      paths_[1] = prefixes_.extend(paths_[1], 1);
  }

  // What the first request can store, all published.
  [[nodiscard]] std::vector<Op> stored() {
    std::vector<Op> line = opened();
    for (GroupId g = 0; g < geometry_.groups(); ++g)
      for (const std::uint32_t units : small_.ends)
        line.push_back({Do::offer, 0, g, units, static_cast<std::uint32_t>(small_.units), true});
    for (std::uint32_t slot = 0; slot < small_.slots; ++slot) line.push_back({Do::finish, slot, 1});
    return line;
  }
  [[nodiscard]] static std::vector<Op> opened() { return {{Do::open, 0}, {Do::open, 1}}; }

  // Level by level.
  void run(const char* from, const std::vector<Op>& start, const SmallWorld::Depth& most) {
    std::unordered_set<std::string> known;
    std::uint64_t sequences = 0;
    std::vector<std::vector<Op>> level{start};
    for (std::size_t depth = 1; depth <= most.distinct; ++depth) {
      std::vector<std::vector<Op>> next;
      for (const std::vector<Op>& before : level) {
        for (const Op& op : replay(before)->options(small_.ends)) {
          std::vector<Op> line = before;
          line.push_back(op);
          const std::unique_ptr<TierWorld> world = replay(line);
          world->compare();
          ++sequences;
          if (depth == most.distinct) continue;
          const bool fresh = known.insert(world->twin().fingerprint()).second;
          if (fresh || depth < most.every) next.push_back(std::move(line));
        }
      }
      level = std::move(next);
    }
    std::cout << fmt::format("{}, {}: {} sequences, all of {} operations, distinct of {}\n",
                             small_.name, from, sequences, most.every, most.distinct);
  }

 private:
  [[nodiscard]] std::unique_ptr<TierWorld> replay(const std::vector<Op>& line) {
    auto world = std::make_unique<TierWorld>(geometry_, prefixes_,
                                             WorldOptions{small_.chained, small_.slots, 2}, seen_);
    world->paths = paths_;
    for (const Op& op : line) world->apply(op);
    return world;
  }

  const SmallWorld& small_;
  Geometry geometry_;
  Prefixes prefixes_;
  std::vector<PrefixId> paths_;
  Coverage seen_{};
};

BOOST_AUTO_TEST_SUITE(tier_small_worlds)

BOOST_AUTO_TEST_CASE(the_index_agrees_with_its_twin_in_every_state_of_small_worlds) {
  for (const SmallWorld& small : small_worlds()) {
    BOOST_TEST_CONTEXT(small.name) {
      Explorer explorer(small);
      explorer.run("empty", Explorer::opened(), small.empty);
      explorer.run("full", explorer.stored(), small.full);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
