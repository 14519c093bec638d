// Classes of entries and what is learned of each: how likely the next use is at each age, and what
// a slot is worth that is kept for it (docs/policies.md).
#pragma once
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugin/coordinator/tier_index.h"
#include "plugin/core/check.h"

namespace kvc::tier {

inline constexpr std::uint32_t age_buckets = 32;

// Half octaves of request counts.
constexpr std::uint32_t bucket_of_any_age(std::uint32_t age) {
  if (age == 0) return 0;
  const auto octave = static_cast<std::uint32_t>(std::bit_width(age)) - 1;
  // Whether age >= 2^(octave + 1/2): age^2 >= 2^(2 octave + 1).
  const bool upper = std::uint64_t{age} * age >> (2 * octave + 1U) != 0;
  const std::uint32_t bucket = 1 + 2 * octave + (upper ? 1 : 0);
  return bucket < age_buckets ? bucket : age_buckets - 1;
}

// f(0), f(1), ... for small numbers, which are looked up.
template <std::size_t count, class F>
constexpr std::array<std::uint8_t, count> table_of(F f) {
  std::array<std::uint8_t, count> table{};
  for (std::uint32_t i = 0; i < count; ++i) table[i] = static_cast<std::uint8_t>(f(i));
  return table;
}

inline std::uint32_t bucket_of_age(std::uint32_t age) {
  static constexpr auto small = table_of<4096>(bucket_of_any_age);
  return age < small.size() ? small[age] : bucket_of_any_age(age);
}

// The features of an entry, packed: what policies.md calls its class.
struct ClassCode {
  static constexpr std::uint32_t kinds = 4;
  static constexpr std::uint32_t outs = 4;
  static constexpr std::uint32_t touch_levels = 6;
  static constexpr std::uint32_t new_levels = 4;
  static constexpr std::uint32_t parts = 3;
  static constexpr std::uint32_t count = kinds * outs * touch_levels * new_levels * parts;
  static constexpr std::uint32_t running = 3;  // of out: the answer is not over

  std::uint32_t kind = 0;
  std::uint32_t out = running;
  std::uint32_t touched = 0;
  std::uint32_t fresh = 0;
  std::uint32_t part = 0;

  [[nodiscard]] std::uint32_t packed() const {
    return (((kind * outs + out) * touch_levels + touched) * new_levels + fresh) * parts + part;
  }
  [[nodiscard]] static ClassCode unpack(std::uint32_t code);
};

// Of touches as marks count them.
inline std::uint32_t touch_level(std::uint8_t touches) {
  static constexpr auto levels = table_of<256>(
      [](std::uint32_t n) { return (n > 1) + (n > 2) + (n > 5) + (n > 15) + (n > 63); });
  return levels[touches];
}
std::uint32_t new_level(std::uint64_t tokens);
std::uint32_t out_level(std::uint64_t tokens);

using ClassId = std::uint16_t;

// Threads:    one user.
// Owns:       counts and worths of classes. Classes get ids 0, 1, ... on first use.
// Invariants: the same calls give the same numbers. No heap after make().
class Survival {
 public:
  using Row = std::array<float, age_buckets>;
  // Whole numbers, so that no order of counting makes a difference: hits, and waiting times in
  // fractions of a request.
  struct Counts {
    std::array<std::uint64_t, age_buckets> hits{};
    std::array<std::uint64_t, age_buckets> risk{};
    // Changes, from bucket to bucket, of how many times all of it was waited, which risk lacks.
    std::array<std::int32_t, age_buckets> covered{};
    void add(const Counts& other);
  };
  static constexpr std::uint64_t fractions = 256;

  // `kappa`: how many hits a class must show against the pooled curve.
  void make(float kappa);

  // The id of the packed code; a new class has the worth of the pooled curve.
  ClassId id_of(std::uint32_t code) {
    const std::uint16_t id = ids_[code];
    return id != 0 ? static_cast<ClassId>(id - 1) : add(code);
  }
  [[nodiscard]] std::uint32_t used() const { return static_cast<std::uint32_t>(classes_.size()); }
  [[nodiscard]] std::uint32_t code(ClassId id) const { return classes_[id].code; }

  // An entry of the class was there while its age went from `from` to `to`.
  void expose(ClassId id, std::uint32_t from, std::uint32_t to) {
    if (from < to) expose(classes_[id].counts, from, to, bucket_of_age(to));
  }
  // And was used then.
  void hit(ClassId id, std::uint32_t from, std::uint32_t to) {
    Counts& counts = classes_[id].counts;
    const std::uint32_t last = bucket_of_age(to);
    ++counts.hits[last];
    if (from < to) expose(counts, from, to, last);
  }
  // Learns: pooled curve, and the worths of all classes.
  void refresh();

  // Expected hits per slot and request of keeping an entry of the class that is `age` old, at best.
  [[nodiscard]] float worth(ClassId id, std::uint32_t age) const {
    return classes_[id].worth[bucket_of_age(age)];
  }
  [[nodiscard]] const Row& pooled() const { return pooled_; }
  [[nodiscard]] std::uint64_t hits_of(ClassId id) const;
  [[nodiscard]] std::uint64_t refreshes() const { return refreshes_; }
  [[nodiscard]] std::uint64_t bytes() const { return classes_.capacity() * sizeof(Class); }

 private:
  struct Class {
    Counts counts;
    Row worth;
    std::uint32_t code;
  };
  ClassId add(std::uint32_t code);
  // `last`: the bucket of `to`. Most wait inside one bucket.
  void expose(Counts& counts, std::uint32_t from, std::uint32_t to, std::uint32_t last) const {
    if (from >= ages_[last]) {
      counts.risk[last] += std::uint64_t{to - from} * fractions;
    } else {
      expose_buckets(counts, from, to, last);
    }
  }
  void expose_buckets(Counts& counts, std::uint32_t from, std::uint32_t to,
                      std::uint32_t last) const;
  void account(Counts& counts) const;  // covered into risk
  void pool();
  // Counts of the class, for one whose answers still run with those of its siblings.
  [[nodiscard]] Counts counts_of(const Class& c) const;
  [[nodiscard]] Row worth_of(const Counts& counts) const;

  std::vector<Class> classes_;
  std::array<std::uint16_t, ClassCode::count> ids_{};  // id + 1
  // Where the buckets begin, in fractions.
  std::array<std::uint64_t, age_buckets + 1> edges_{};
  std::array<std::uint32_t, age_buckets> ages_{};  // the least one in each, or behind it if none is
  Row pooled_{};
  float kappa_ = 1;
  std::uint64_t refreshes_ = 0;
};

// What was learned, for operators.
PolicyReport report_of(const Survival& survival);

}  // namespace kvc::tier
