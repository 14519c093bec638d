#include "plugin/coordinator/tier_survival.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace kvc::tier {

ClassCode ClassCode::unpack(std::uint32_t code) {
  ClassCode c;
  c.part = code % parts;
  code /= parts;
  c.fresh = code % new_levels;
  code /= new_levels;
  c.touched = code % touch_levels;
  code /= touch_levels;
  c.out = code % outs;
  c.kind = code / outs;
  return c;
}

std::uint32_t new_level(std::uint64_t tokens) {
  if (tokens == 0) return 0;
  if (tokens < 2048) return 1;
  return tokens < 8192 ? 2 : 3;
}

std::uint32_t out_level(std::uint64_t tokens) {
  if (tokens < 8) return 0;
  return tokens < 128 ? 1 : 2;
}

void Survival::Counts::add(const Counts& other) {
  for (std::uint32_t b = 0; b < age_buckets; ++b) {
    hits[b] += other.hits[b];
    risk[b] += other.risk[b];
  }
}

void Survival::make(float kappa) {
  kappa_ = kappa;
  classes_.reserve(ClassCode::count);
  for (std::uint32_t i = 1; i <= age_buckets; ++i)
    edges_[i] = static_cast<std::uint64_t>(std::lround(std::exp2((i - 1) / 2.0) * fractions));
  for (std::uint32_t b = 1; b < age_buckets; ++b) {
    ages_[b] = ages_[b - 1];
    while (bucket_of_age(ages_[b]) < b) ++ages_[b];
  }
  pool();
}

ClassId Survival::add(std::uint32_t code) {
  const auto id = static_cast<ClassId>(classes_.size());
  classes_.push_back({{}, worth_of({}), code});
  ids_[code] = static_cast<std::uint16_t>(id + 1);
  return id;
}

// Only its first and last bucket, which differ, are waited in part.
void Survival::expose_buckets(Counts& counts, std::uint32_t from, std::uint32_t to,
                              std::uint32_t last) const {
  const std::uint32_t first = bucket_of_age(from);
  counts.risk[first] += edges_[first + 1] - std::uint64_t{from} * fractions;
  counts.risk[last] += std::uint64_t{to} * fractions - edges_[last];
  ++counts.covered[first + 1];
  --counts.covered[last];
}

void Survival::account(Counts& counts) const {
  std::int64_t times = 0;
  for (std::uint32_t b = 0; b < age_buckets; ++b) {
    times += counts.covered[b];
    counts.risk[b] += static_cast<std::uint64_t>(times) * (edges_[b + 1] - edges_[b]);
  }
  counts.covered = {};
}

namespace {

float requests(std::uint64_t in_fractions) {
  return static_cast<float>(in_fractions) / static_cast<float>(Survival::fractions);
}

}  // namespace

// Unseen ages: the hazard falls like 1 / age.
void Survival::pool() {
  Counts all;
  for (const Class& c : classes_) all.add(c.counts);
  const std::uint64_t hits = std::accumulate(all.hits.begin(), all.hits.end(), std::uint64_t{0});
  const std::uint64_t risk = std::accumulate(all.risk.begin(), all.risk.end(), std::uint64_t{0});
  float expected = (static_cast<float>(hits) + 1) / (requests(risk) + 100);
  for (std::uint32_t b = 0; b < age_buckets; ++b) {
    pooled_[b] =
        (static_cast<float>(all.hits[b]) + kappa_) / (requests(all.risk[b]) + kappa_ / expected);
    expected = pooled_[b] / std::sqrt(2.0F);
  }
}

Survival::Counts Survival::counts_of(const Class& c) const {
  Counts counts = c.counts;
  ClassCode code = ClassCode::unpack(c.code);
  if (code.out != ClassCode::running) return counts;
  for (code.out = 0; code.out < ClassCode::running; ++code.out) {
    const std::uint16_t id = ids_[code.packed()];
    if (id != 0) counts.add(classes_[id - 1U].counts);
  }
  return counts;
}

// For each age the best attainable rate: over all ages at which one may give up.
Survival::Row Survival::worth_of(const Counts& counts) const {
  float seen = 0;
  float foreseen = 0;
  for (std::uint32_t b = 0; b < age_buckets; ++b) {
    seen += static_cast<float>(counts.hits[b]);
    foreseen += requests(counts.risk[b]) * pooled_[b];
  }
  const float ratio = (seen + kappa_) / (foreseen + kappa_);
  Row dies{};   // probability of a use inside the bucket
  Row waits{};  // expected time waited inside it
  for (std::uint32_t b = 0; b < age_buckets; ++b) {
    const float base = pooled_[b] * ratio;
    const float rate = base * (static_cast<float>(counts.hits[b]) + kappa_) /
                       (requests(counts.risk[b]) * base + kappa_);
    dies[b] = -std::expm1(-rate * requests(edges_[b + 1] - edges_[b]));
    waits[b] = dies[b] / rate;
  }
  // All ages side by side.
  Row worth{};
  Row waited{};
  Row alive;
  alive.fill(1);
  for (std::uint32_t b = 0; b < age_buckets; ++b) {
    for (std::uint32_t from = 0; from <= b; ++from) {
      waited[from] += alive[from] * waits[b];
      alive[from] *= 1 - dies[b];
      worth[from] = std::max(worth[from], (1 - alive[from]) / waited[from]);
    }
  }
  return worth;
}

void Survival::refresh() {
  ++refreshes_;
  for (Class& c : classes_) account(c.counts);
  pool();
  for (Class& c : classes_) c.worth = worth_of(counts_of(c));
}

std::uint64_t Survival::hits_of(ClassId id) const {
  const auto& hits = classes_[id].counts.hits;
  return std::accumulate(hits.begin(), hits.end(), std::uint64_t{0});
}

}  // namespace kvc::tier
