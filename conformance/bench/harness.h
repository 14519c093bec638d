// How a row is measured: ours and the limit in turn, in one run, and the median of their ratios
// (docs/performance.md).
#pragma once
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kvc::bench {

// What a row must reach. at_least: limit / ours, a share of the limit's speed. at_most: ours /
// limit, how many times the limit's time (or bytes).
enum class Sense : std::uint8_t { at_least, at_most };
struct Goal {
  double value = 0;
  Sense sense = Sense::at_most;
};

struct Comparison {
  double ours = 0;  // medians, in the unit of the row
  double limit = 0;
  double ratio = 0;  // median over the pairs, in the sense of the goal
};

// Processor time of this thread in nanoseconds: what others get of the core meanwhile does not
// count. Reading it costs some hundred nanoseconds, which time_ns takes off.
double thread_ns();
double clock_cost_ns();

// Nanoseconds that one call takes; calls of some microseconds at least.
template <class Call>
double time_ns(Call&& call) {
  const double begin = thread_ns();
  call();
  const double end = thread_ns();
  return std::max(end - begin - clock_cost_ns(), 1.0);
}

double median(std::vector<double> values);

// The values of pairs that were measured one directly after the other.
Comparison compare(std::span<const double> ours, std::span<const double> limit, Sense sense);

// Measures `pairs` times ours() and limit(), which return what they measured, whoever was second
// goes first in the next pair.
template <class Ours, class Limit>
Comparison alternate(std::size_t pairs, Sense sense, Ours&& ours, Limit&& limit) {
  std::vector<double> a(pairs);
  std::vector<double> b(pairs);
  for (std::size_t i = 0; i < pairs; ++i) {
    if (i % 2 == 0) {
      a[i] = ours();
      b[i] = limit();
    } else {
      b[i] = limit();
      a[i] = ours();
    }
  }
  return compare(a, b, sense);
}

// Puts a comparison into the counters of a row: ours, limit, ratio, goal, at_least, met. `unit`
// is what ours and limit are, such as "ns per key".
void report(benchmark::State& state, Goal goal, const std::string& unit, const Comparison& c);

// Takes everything out of the core's own caches by walking a buffer several times their size, so
// that what is measured next begins as after a step of an engine.
void cool();

// A dependent random read of each address: the next one is read when the last one's value is
// there. Returns the nanoseconds of all.
double chase_ns(std::span<const std::byte* const> addresses);

// The addresses in random order, `count` of them.
std::vector<const std::byte*> shuffled(std::span<const std::byte* const> addresses,
                                       std::size_t count, std::uint64_t seed);

// Resident bytes of this process.
std::uint64_t resident_bytes();

// Keeps this thread on one core. False: not possible here.
bool pin_to_one_core();

// Runs what the flags select and prints the table. The exit status: 1 if a row missed its goal.
int run(int argc, char** argv);

}  // namespace kvc::bench
