#include "plugin/offload/cost_line.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <vector>

#include "plugin/core/prng.h"

using namespace kvc;

namespace {

constexpr double near = 1e-9;  // relative, in percent below

std::vector<CostSample> on_line(std::uint64_t fixed, std::uint64_t slope, std::size_t count) {
  std::vector<CostSample> out;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t size = 100 + 40 * ((i * 7) % count);
    out.push_back({size, fixed + slope * size});
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(cost_line)

BOOST_AUTO_TEST_CASE(what_lies_on_a_line_gives_that_line) {
  for (const std::size_t count : {3U, 4U, 8U, 31U, 32U}) {
    std::vector<CostSample> samples = on_line(5000, 3, count);
    const CostLine line = fit_line(samples);
    BOOST_TEST(line.fixed_ns == 5000.0, boost::test_tools::tolerance(near));
    BOOST_TEST(line.ns_per_unit == 3.0, boost::test_tools::tolerance(near));
    BOOST_TEST(line.at(1000) == 8000.0, boost::test_tools::tolerance(near));
  }
}

BOOST_AUTO_TEST_CASE(four_of_32_samples_may_be_anything_wherever_they_lie) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Prng random(seed);
    std::vector<CostSample> samples = on_line(5000, 3, cost_samples_max);
    for (int i = 0; i < 4; ++i) {
      samples[random.below(samples.size())].ns = random.chance(1, 2) ? 0 : 1'000'000'000'000;
    }
    const CostLine line = fit_line(samples);
    BOOST_TEST_CONTEXT("seed " << seed) {
      BOOST_TEST(line.at(100) == 5300.0, boost::test_tools::tolerance(0.1));
      BOOST_TEST(line.at(1340) == 9020.0, boost::test_tools::tolerance(0.1));
    }
  }
}

BOOST_AUTO_TEST_CASE(sizes_that_hardly_differ_say_nothing_of_what_is_fixed) {
  std::vector<CostSample> same(9, CostSample{100, 700});
  BOOST_TEST(fit_line(same).fixed_ns == 0.0);
  BOOST_TEST(fit_line(same).ns_per_unit == 7.0);
  std::vector<CostSample> close;
  for (std::uint64_t i = 0; i < 9; ++i) close.push_back({100 + i, 500 + 2 * (100 + i)});
  BOOST_TEST(fit_line(close).fixed_ns == 0.0);
}

BOOST_AUTO_TEST_CASE(larger_ones_that_take_no_longer_are_noise) {
  std::vector<CostSample> falling;
  for (std::uint64_t i = 1; i <= 12; ++i) falling.push_back({100 * i, 13'000 - 100 * i});
  const CostLine line = fit_line(falling);
  BOOST_TEST(line.fixed_ns == 0.0);
  BOOST_TEST(line.ns_per_unit > 0.0);
}

BOOST_AUTO_TEST_CASE(nothing_takes_less_than_no_time_beside_its_size) {
  std::vector<CostSample> steep;
  for (std::uint64_t i = 1; i <= 12; ++i) steep.push_back({100 * i, 100 * i * i});
  const CostLine line = fit_line(steep);
  BOOST_TEST(line.fixed_ns == 0.0);
  BOOST_TEST(line.ns_per_unit > 0.0);
}

BOOST_AUTO_TEST_CASE(the_pace_is_that_of_the_middle_half_and_large_samples_count_more) {
  std::vector<CostSample> samples(4, CostSample{100, 1000});
  BOOST_TEST(middle_pace(samples) == 10.0);
  samples[0] = {100, 1'000'000};  // a pause
  samples[3] = {100, 0};
  BOOST_TEST(middle_pace(samples) == 10.0);
  std::vector<CostSample> sizes{{1, 0}, {900, 1800}, {100, 1200}, {1, 1'000'000}};
  BOOST_TEST(middle_pace(sizes) == 3.0);
}

BOOST_AUTO_TEST_SUITE_END()
