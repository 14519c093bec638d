// What docs/policies.md says of ages, samples and learning, literally: doubles and plain vectors.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace kvc::test {

class SurvivalTwin {
 public:
  static constexpr int buckets = 32;
  using Row = std::array<float, buckets>;
  using Sums = std::array<double, buckets>;

  struct Features {
    int kind = 0;
    int out = 3;
    int touches = 0;
    int fresh = 0;
    int part = 0;
    auto operator<=>(const Features&) const = default;
  };
  struct Class {
    Features features;
    Sums hit{};
    Sums risk{};
    Row worth{};
  };

  // Of `all` entries and ghosts one in step() is sampled.
  void make(std::uint64_t all) {
    for (; all > 24576; all /= 2) step_ *= 2;
    kappa_ = std::max(0.5F, 8.0F / static_cast<float>(step_));
    pool();
  }
  [[nodiscard]] bool samples(std::uint64_t key) const { return tag(key) % step_ == 0; }

  // In multiples of 1/256 of a request, so that sums are exact in any order.
  static double edge(int i) {
    return i == 0 ? 0.0 : std::round(std::pow(2.0, (i - 1) / 2.0) * 256) / 256;
  }
  static int bucket(std::uint64_t age) {
    if (age == 0) return 0;
    return std::min(31, 1 + static_cast<int>(std::floor(2 * std::log2(static_cast<double>(age)))));
  }

  int id_of(const Features& f) {
    for (std::size_t i = 0; i < classes_.size(); ++i)
      if (classes_[i].features == f) return static_cast<int>(i);
    Class c;
    c.features = f;
    c.worth = worth_of({}, {});
    classes_.push_back(c);
    return static_cast<int>(classes_.size()) - 1;
  }
  [[nodiscard]] const Features& features(int cls) const { return at(cls).features; }
  [[nodiscard]] float worth(int cls, std::uint64_t age) const {
    return at(cls).worth[static_cast<std::size_t>(bucket(age))];
  }
  void hit(int cls, std::uint64_t age) { at(cls).hit[static_cast<std::size_t>(bucket(age))] += 1; }
  void expose(int cls, std::uint64_t from_age, std::uint64_t to_age) {
    auto from = static_cast<double>(from_age);
    const auto to = static_cast<double>(to_age);
    for (int b = bucket(from_age); b < buckets; ++b) {
      const double stop = b == buckets - 1 ? to : std::min(to, edge(b + 1));
      if (stop <= from) continue;
      at(cls).risk[static_cast<std::size_t>(b)] += stop - from;
      from = stop;
    }
  }
  void refresh() {
    pool();
    for (Class& c : classes_) {
      Sums hit = c.hit;
      Sums risk = c.risk;
      for (int out = 0; out < 3 && c.features.out == 3; ++out) {
        Features sibling = c.features;
        sibling.out = out;
        for (const Class& s : classes_) {
          if (s.features != sibling) continue;
          for (std::size_t b = 0; b < buckets; ++b) {
            hit[b] += s.hit[b];
            risk[b] += s.risk[b];
          }
        }
      }
      c.worth = worth_of(hit, risk);
    }
  }

 private:
  Class& at(int cls) { return classes_[static_cast<std::size_t>(cls)]; }
  [[nodiscard]] const Class& at(int cls) const { return classes_[static_cast<std::size_t>(cls)]; }
  static std::uint64_t tag(std::uint64_t key) {
    std::uint64_t h = 8;
    for (const std::uint64_t word : {key, std::uint64_t{0}}) {
      h = (h ^ word) * 0x9e3779b97f4a7c15U;
      h ^= h / 4294967296U;
    }
    return h;
  }
  void pool() {
    Sums hits{};
    Sums risks{};
    for (const Class& c : classes_)
      for (std::size_t b = 0; b < buckets; ++b) {
        hits[b] += c.hit[b];
        risks[b] += c.risk[b];
      }
    double all_hits = 0;
    double all_risks = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      all_hits += hits[b];
      all_risks += risks[b];
    }
    float expected = (static_cast<float>(all_hits) + 1) / (static_cast<float>(all_risks) + 100);
    for (std::size_t b = 0; b < buckets; ++b) {
      pooled_[b] = (static_cast<float>(hits[b]) + kappa_) /
                   (static_cast<float>(risks[b]) + kappa_ / expected);
      expected = pooled_[b] / std::sqrt(2.0F);
    }
  }
  [[nodiscard]] Row worth_of(const Sums& hits, const Sums& risks) const {
    Row hit{};
    Row risk{};
    for (std::size_t b = 0; b < buckets; ++b) {
      hit[b] = static_cast<float>(hits[b]);
      risk[b] = static_cast<float>(risks[b]);
    }
    float h = 0;
    float r = 0;
    for (std::size_t b = 0; b < buckets; ++b) {
      h += hit[b];
      r += risk[b] * pooled_[b];
    }
    const float ratio = (h + kappa_) / (r + kappa_);
    Row best{};
    for (std::size_t from = 0; from < buckets; ++from) {
      float alive = 1;
      float waited = 0;
      for (std::size_t b = from; b < buckets; ++b) {
        const float base = pooled_[b] * ratio;
        const float rate = base * (hit[b] + kappa_) / (risk[b] * base + kappa_);
        const auto width =
            static_cast<float>(edge(static_cast<int>(b) + 1) - edge(static_cast<int>(b)));
        const float dies = -std::expm1(-rate * width);
        waited += alive * (dies / rate);
        alive *= 1 - dies;
        best[from] = std::max(best[from], (1 - alive) / waited);
      }
    }
    return best;
  }

  std::uint64_t step_ = 1;
  float kappa_ = 0;
  Row pooled_{};
  std::vector<Class> classes_;
};

}  // namespace kvc::test
