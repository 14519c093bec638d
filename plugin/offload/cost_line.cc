#include "plugin/offload/cost_line.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "plugin/core/check.h"

namespace kvc {

namespace {

double ratio(const CostSample& s) {
  return static_cast<double>(s.ns) / static_cast<double>(s.size);
}

// The lower one of an even number. `value(sample)` is a double.
template <class Value>
double median(std::span<const CostSample> samples, Value value) {
  std::array<double, cost_samples_max> all{};
  const std::size_t n = samples.size();
  std::transform(samples.begin(), samples.end(), all.begin(), value);
  const std::size_t middle = (n - 1) / 2;
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(middle);
  std::nth_element(all.begin(), at, all.begin() + static_cast<std::ptrdiff_t>(n));
  return *at;
}

double size_of(const CostSample& s) { return static_cast<double>(s.size); }
double ns_of(const CostSample& s) { return static_cast<double>(s.ns); }

}  // namespace

CostLine fit_line(std::span<CostSample> samples) {
  KVC_CHECK(samples.size() >= 3 && samples.size() <= cost_samples_max);
  std::sort(samples.begin(), samples.end(), [](const CostSample& a, const CostSample& b) {
    return std::tie(a.size, a.ns) < std::tie(b.size, b.ns);
  });
  KVC_CHECK(samples.front().size > 0);
  const std::size_t third = samples.size() / 3;
  const std::span<const CostSample> low = samples.first(third);
  const std::span<const CostSample> high = samples.last(third);
  const double run = median(high, size_of) - median(low, size_of);
  const double rise = median(high, ns_of) - median(low, ns_of);
  if (2 * run >= median(low, size_of) && rise > 0) {
    const double slope = rise / run;
    const double fixed =
        median(samples, [&](const CostSample& s) { return ns_of(s) - slope * size_of(s); });
    if (fixed > 0) return {fixed, slope};
  }
  return {0, median(samples, ratio)};
}

double middle_pace(std::span<CostSample> samples) {
  KVC_CHECK(samples.size() >= 4 && samples.size() <= cost_samples_max);
  std::sort(samples.begin(), samples.end(), [](const CostSample& a, const CostSample& b) {
    return std::tuple(ratio(a), a.size) < std::tuple(ratio(b), b.size);
  });
  const std::size_t quarter = samples.size() / 4;
  double ns = 0;
  double size = 0;
  for (const CostSample& s : samples.subspan(quarter, samples.size() - 2 * quarter)) {
    ns += ns_of(s);
    size += size_of(s);
  }
  return ns / size;
}

}  // namespace kvc
