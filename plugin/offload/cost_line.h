// What something takes for its size, from the last measurements (docs/cost_gate.md).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace kvc {

struct CostSample {
  std::uint64_t size = 0;
  std::uint64_t ns = 0;
};

// ns = fixed_ns + ns_per_unit * size, both >= 0.
struct CostLine {
  double fixed_ns = 0;
  double ns_per_unit = 0;

  [[nodiscard]] double at(std::uint64_t size) const {
    return fixed_ns + ns_per_unit * static_cast<double>(size);
  }
};

// Samples that count: the last so many; and how few say nothing.
inline constexpr std::size_t cost_samples_max = 32;
inline constexpr std::size_t cost_samples_least = 8;

// The resistant line: through the medians of the third of the smallest and of the third of the
// largest samples, as high as the median of what is left: a few samples may be anything. Where
// sizes differ too little (the medians by less than a half), or the larger ones took no longer, or
// nothing is fixed: ns in proportion to the size, by the median of ns / size. The median of an even
// number is the lower one. Sorts the samples. No heap.
// Requires 3 to cost_samples_max samples with sizes above 0.
[[nodiscard]] CostLine fit_line(std::span<CostSample> samples);

// ns per unit of the middle half by ns / size: their sums, as small ones say less. Sorts the
// samples. Requires 4 to cost_samples_max samples with sizes above 0.
[[nodiscard]] double middle_pace(std::span<CostSample> samples);

}  // namespace kvc
