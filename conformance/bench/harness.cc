#include "conformance/bench/harness.h"

#include <fmt/format.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "plugin/core/check.h"
#include "plugin/core/prng.h"

namespace kvc::bench {

namespace {

// Several times the largest second-level cache of one core.
constexpr std::size_t cooling_bytes = std::size_t{16} << 20U;
constexpr std::size_t line_bytes = 64;

// One line a row; JSON is the library's own.
class Table final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context& /*context*/) override {
    fmt::print("{:<36} {:>12} {:>12} {:>8} {:>9}  {:<4} {}\n", "row", "ours", "limit", "ratio",
               "goal", "met", "unit");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) {
        fmt::print("{:<36} {}\n", run.benchmark_name(), run.error_message);
        missed_ = true;
        continue;
      }
      const auto value = [&run](const char* name) {
        const auto it = run.counters.find(name);
        return it == run.counters.end() ? 0.0 : it->second.value;
      };
      const bool met = value("met") != 0;
      missed_ = missed_ || !met;
      fmt::print("{:<36} {:>12.2f} {:>12.2f} {:>8.3f} {:>2} {:>6.2f}  {:<4} {}\n",
                 trimmed(run.benchmark_name()), value("ours"), value("limit"), value("ratio"),
                 value("at_least") != 0 ? ">=" : "<=", value("goal"), met ? "yes" : "NO",
                 run.report_label);
      for (const auto& [name, counter] : run.counters) {
        if (std::find(std::begin(columns), std::end(columns), name) != std::end(columns)) continue;
        fmt::print("{:<36} {:>12.2f}   {}\n", "", counter.value, name);
      }
    }
    std::fflush(stdout);
  }
  [[nodiscard]] bool missed() const { return missed_; }

 private:
  static constexpr std::string_view columns[] = {"ours", "limit",    "ratio",
                                                 "goal", "at_least", "met"};
  static std::string trimmed(const std::string& name) { return name.substr(0, name.find("/iter")); }
  bool missed_ = false;
};

}  // namespace

double thread_ns() {
  timespec now{};
  KVC_CHECK(::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double clock_cost_ns() {
  static const double cost = [] {
    std::vector<double> costs(1001);
    for (double& c : costs) {
      const double begin = thread_ns();
      c = thread_ns() - begin;
    }
    return median(std::move(costs));
  }();
  return cost;
}

double median(std::vector<double> values) {
  KVC_CHECK(!values.empty());
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Comparison compare(std::span<const double> ours, std::span<const double> limit, Sense sense) {
  KVC_CHECK(ours.size() == limit.size());
  std::vector<double> ratios(ours.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ratios[i] = sense == Sense::at_least ? limit[i] / ours[i] : ours[i] / limit[i];
  }
  return {median({ours.begin(), ours.end()}), median({limit.begin(), limit.end()}),
          median(std::move(ratios))};
}

void report(benchmark::State& state, Goal goal, const std::string& unit, const Comparison& c) {
  const bool at_least = goal.sense == Sense::at_least;
  const bool met = at_least ? c.ratio >= goal.value : c.ratio <= goal.value;
  state.counters["ours"] = c.ours;
  state.counters["limit"] = c.limit;
  state.counters["ratio"] = c.ratio;
  state.counters["goal"] = goal.value;
  state.counters["at_least"] = at_least ? 1 : 0;
  state.counters["met"] = met ? 1 : 0;
  state.SetLabel(unit);
}

void cool() {
  static std::vector<unsigned char> buffer(cooling_bytes);
  for (std::size_t i = 0; i < buffer.size(); i += line_bytes) {
    buffer[i] = static_cast<unsigned char>(buffer[i] + 1);
  }
  benchmark::ClobberMemory();
}

double chase_ns(std::span<const std::byte* const> addresses) {
  // Zero, but the compiler cannot know: every address depends on the value read before.
  static volatile std::uint64_t unknown_zero = 0;
  const std::uint64_t zero = unknown_zero;
  std::uint64_t value = 0;
  const double ns = time_ns([&] {
    for (std::size_t i = 0; i < addresses.size(); ++i) {
      std::uint64_t next = 0;
      std::memcpy(&next, addresses[i + (value & zero)], sizeof next);
      value = next;
    }
    benchmark::DoNotOptimize(value);
  });
  return ns;
}

std::vector<const std::byte*> shuffled(std::span<const std::byte* const> addresses,
                                       std::size_t count, std::uint64_t seed) {
  KVC_CHECK(!addresses.empty());
  Prng random(seed);
  std::vector<const std::byte*> out(count);
  for (auto& a : out) a = addresses[random.below(addresses.size())];
  return out;
}

std::uint64_t resident_bytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t size = 0;
  std::uint64_t resident = 0;
  in >> size >> resident;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

bool pin_to_one_core() {
  const int core = ::sched_getcpu();
  if (core < 0) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (!pin_to_one_core()) fmt::print(stderr, "kvc-bench: not pinned to a core\n");
  Table table;
  if (benchmark::RunSpecifiedBenchmarks(&table) == 0) return 2;
  return table.missed() ? 1 : 0;
}

}  // namespace kvc::bench
