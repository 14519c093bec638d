// One world of the oracle, given to the coordinator in the coordinator's own terms, and both
// answers compared.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "conformance/oracle/oracle.h"
#include "plugin/coordinator/geometry.h"
#include "plugin/coordinator/key_index.h"
#include "plugin/coordinator/lookup.h"

namespace kvc::oracle_tests {

// Sanitized builds are ten times slower: samples are divided by this.
#if defined(KVC_SANITIZED)
inline constexpr int sample_divisor = 8;
#else
inline constexpr int sample_divisor = 1;
#endif

// `count` random worlds of a test, or as many times more as KVC_WORLDS says; fewer when sanitized.
inline int worlds_of(int count) {
  const char* times = std::getenv("KVC_WORLDS");
  return count * (times == nullptr ? 1 : std::max(1, std::atoi(times))) / sample_divisor;
}

// The coordinator's options for the layout of a world; drafts drop iff a group is flagged.
// `chunk`: what oracle::set_chunks was asked for.
GeometryOptions options_of(const oracle::World& world, std::uint32_t chunk = 1);

// All of a world in one line, to be pasted into a failing case.
std::string describe(const oracle::World& world, std::uint64_t cap);

// Compares lookups over many contents of one layout.
//
// Threads: one. Owns: the layout and scratch memory. Invariants: the keys of the prefix of i hash
// units are the number i in 8 bytes, so keys of different prefixes differ and those of different
// groups are equal.
class Mirror {
 public:
  explicit Mirror(Geometry geometry);
  // Nothing if the coordinator refuses the layout; `why` says why.
  static std::optional<Mirror> make(const oracle::World& layout, std::string& why,
                                    std::uint32_t chunk = 1);

  [[nodiscard]] const Geometry& geometry() const { return geometry_; }

  // Looks the world up with a cap and compares with the oracle: the hit (the best one without draft
  // groups, that of the rules with them), that every group really serves it, the positions of every
  // group against the needed set, and that every slot holds bytes that its position needs. The text
  // says what differs.
  // Where full attention is held without holes, the same lookup of an index that promises so must
  // answer the same.
  std::optional<std::string> compare(const oracle::World& world, std::uint64_t cap);
  // Layouts with draft groups and chunks: the hit is one that every group serves, and not beyond
  // the best one.
  std::optional<std::string> compare_served(const oracle::World& world, std::uint64_t cap);
  // Comparisons with such an index so far.
  [[nodiscard]] std::uint64_t closed_compared() const { return closed_compared_; }
  // The same for lookup_per_group, of layouts without draft groups.
  std::optional<std::string> compare_per_group(const oracle::World& world, std::uint64_t cap);

 private:
  struct Held {
    std::size_t group;
    std::uint64_t end;
  };

  void load(const oracle::World& world);
  [[nodiscard]] std::uint64_t closed_groups(const oracle::World& world) const;
  std::optional<std::string> compare_closed(const oracle::World& world, std::uint64_t cap);
  [[nodiscard]] KeyView keys_of(const oracle::World& world);
  [[nodiscard]] std::optional<std::string> compare_group(const oracle::World& world,
                                                         std::size_t group,
                                                         std::uint64_t end) const;
  [[nodiscard]] bool slot_fits(const oracle::World& world, std::size_t group,
                               std::uint64_t position, std::uint64_t end, SlotId slot) const;

  Geometry geometry_;
  FlatIndex index_;
  std::vector<std::uint64_t> keys_;
  std::vector<Held> slots_;
  Hit hit_;
  Hit closed_hit_;
  std::uint64_t closed_compared_ = 0;
};

}  // namespace kvc::oracle_tests
