// What the unit tests of TierIndex share.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <vector>

#include "plugin/coordinator/test_support.h"
#include "plugin/coordinator/tier_index.h"

namespace kvc::test {

// What the index told, in order.
struct Told final : TierSink {
  std::vector<SlotId> gone;
  std::vector<SlotId> seen;
  std::vector<std::uint32_t> tags;
  std::vector<SlotId> failed_open;
  std::vector<SlotId> failed_landed;
  std::vector<SlotId> bad;
  void evicted(SlotId entry, const SlotKey&, bool was_bad) override {
    gone.push_back(entry);
    if (was_bad) bad.push_back(entry);
  }
  void published(SlotId entry, std::uint32_t tag) override {
    seen.push_back(entry);
    tags.push_back(tag);
  }
  void failed(SlotId entry, std::uint32_t tag, bool copy_open) override {
    (copy_open ? failed_open : failed_landed).push_back(entry);
    if (!copy_open) tags.push_back(tag);
  }
};
using Slots = std::vector<SlotId>;

// An index with the keys of three requests: paths 0 and 1 share their first `shared` units, path 2
// stands alone.
class Tier {
 public:
  static constexpr std::uint64_t units = 40;

  explicit Tier(const Layout& layout, std::uint64_t slots = 16, std::uint64_t shared = 4,
                bool chained = true, Eviction eviction = Eviction::lru)
      : geometry_(make(layout)),
        keys_{Keys(units), Keys(units, 16, 1), Keys(units, 16, 2)},
        index(std::move(TierIndex::make(geometry_, {16, slots, 8, chained, eviction})).value()) {
    mixed_.resize(units * 16);
    std::memcpy(mixed_.data(), keys_[1].view().data, mixed_.size());
    std::memcpy(mixed_.data(), keys_[0].view().data, shared * 16);
  }

  [[nodiscard]] KeyView path(int which, std::uint64_t known = units) const {
    return which == 1 ? KeyView{mixed_.data(), 16, known} : keys_[which == 0 ? 0 : 2].first(known);
  }
  [[nodiscard]] const std::byte* key(int which, std::uint64_t end) const {
    return block_key(path(which), {end}, geometry_.hash_unit());
  }
  // A reservation of the run; false: it has no parent.
  bool reserve(SlotId slot, GroupId group, std::uint64_t end, RunId run, int which = 0,
               std::uint64_t known = units) {
    const Supports s = index.hold_supports(group, path(which, known), {end}, run);
    if (s.no_parent) {
      index.drop_supports(s);
      return false;
    }
    index.reserve(slot, group, key(which, end), path(which, known), {end}, run, s);
    return true;
  }
  void store(SlotId slot, GroupId group, std::uint64_t end, RunId run, int which = 0,
             std::uint64_t known = units) {
    BOOST_REQUIRE(reserve(slot, group, end, run, which, known));
    BOOST_REQUIRE(index.publish(slot, 100 + slot, told));
  }
  // `n` blocks of the chain group in slots from `first`.
  void store_chain(SlotId first, std::uint64_t n, RunId run, int which = 0, GroupId group = 0) {
    for (std::uint64_t i = 0; i < n; ++i)
      store(first + static_cast<SlotId>(i), group, geometry_.block_tokens(group).n * (i + 1), run,
            which);
  }
  // The request is over: its run and its writer pin.
  RunId next_run(RunId old) {
    index.close_run(old);
    return index.open_run();
  }
  // Evicts victims for nobody in particular until there is none; in order.
  Slots drain() {
    Slots out;
    for (SlotId s = index.victim(no_run); s != no_slot; s = index.victim(no_run)) {
      told.gone.clear();
      index.evict(s, told);
      out.insert(out.end(), told.gone.begin(), told.gone.end());
      require_sound();
    }
    return out;
  }
  void require_sound() const {
    const Status s = index.verify();
    BOOST_TEST_INFO(s.text);
    BOOST_REQUIRE(s.ok());
  }
  [[nodiscard]] SlotId find(GroupId group, std::uint64_t end, int which = 0) const {
    return index.find(group, key(which, end));
  }

 private:
  Geometry geometry_;
  std::vector<Keys> keys_;
  std::vector<std::byte> mixed_;

 public:
  TierIndex index;
  Told told;
};

inline const Layout only_full{{fa(4)}, 4, 4};
inline const Layout with_state{{fa(4), mb(4)}, 1, 4};    // fine hits at every token
inline const Layout coarse_state{{fa(4), mb(4)}, 4, 4};  // no tails
inline const Layout with_wide{{fa(4), fa(8)}, 4, 8};

}  // namespace kvc::test
