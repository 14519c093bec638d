// Whether loading a hit is expected to take less time than computing its tokens
// (docs/cost_gate.md).
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "plugin/core/units.h"
#include "plugin/offload/cost_line.h"

namespace kvc {

// report: counts what `on` would refuse, and refuses nothing.
enum class CostGateMode : std::uint8_t { off, on, report };
[[nodiscard]] std::string_view name_of(CostGateMode mode);

struct CostGateOptions {
  CostGateMode mode = CostGateMode::off;
  std::uint64_t prefill_tokens_per_second = 0;  // 0: measured
};

enum class GateDecision : std::int32_t {
  none,          // nothing was decided: the gate is off, or there was no hit
  unmeasured,    // loaded, as too little is known
  load,          // loading is expected to take less time
  refused,       // it is not
  would_refuse,  // it is not, and report loads all the same
  probe          // it is not; loaded to measure again
};
[[nodiscard]] std::string_view name_of(GateDecision decision);

// A hit as the gate sees it.
struct HitCost {
  Tokens tokens;  // that are not to be computed
  Bytes bytes;    // to the device, of all ranks
  Bytes disk;     // of them, that are read from disk first
};

struct GateAnswer {
  GateDecision decision = GateDecision::none;
  std::uint64_t load_ns = 0;  // expected; 0 while unmeasured
  std::uint64_t recompute_ns = 0;

  [[nodiscard]] bool loads() const { return decision != GateDecision::refused; }
};

enum class DiskChoice : std::int32_t { with_disk, without, probe };

struct DiskAnswer {
  DiskChoice choice = DiskChoice::with_disk;
  std::uint64_t beats_ns = 0;  // probe: a load in less time would have been worth it
};

struct CostGateCounters {
  std::uint64_t decisions = 0;  // hits decided about, each once
  std::uint64_t refused = 0;    // with those that report only counts, as the next two
  Tokens refused_tokens;
  std::uint64_t disk_left = 0;
  std::uint64_t unmeasured = 0;
  std::uint64_t probes = 0;
};

// What was measured; 0 where too little was. Plain numbers for a snapshot.
struct CostGateReport {
  struct Medium {
    std::uint64_t samples = 0;
    std::uint64_t fixed_us = 0;
    std::uint64_t bytes_per_second = 0;
  };
  Medium host;
  Medium disk;
  std::uint64_t steps = 0;  // prefill: samples
  std::uint64_t prefill_tokens_per_second = 0;
};

// Threads:    scheduler role only. Reads no clock: times are arguments.
// Owns:       the last measurements.
// Invariants: decisions are a function of the calls. Off: nothing is measured and nothing refused.
//             No heap.
class CostGate {
 public:
  // Of so many requests one loads its hits in any case, so that what is measured stays true. Which
  // one depends on its id alone: no lookup changes what others are answered.
  static constexpr std::uint64_t probe_every = 32;
  [[nodiscard]] static bool probes(std::uint64_t request) {
    return (request * 0x9e3779b97f4a7c15U) >> 59U == 0;
  }

  explicit CostGate(const CostGateOptions& options) : options_(options) {}

  [[nodiscard]] bool watches() const { return options_.mode != CostGateMode::off; }
  [[nodiscard]] bool measures_prefill() const {
    return watches() && options_.prefill_tokens_per_second == 0;
  }
  [[nodiscard]] const CostGateOptions& options() const { return options_; }

  // --- decisions; each is counted
  [[nodiscard]] GateAnswer decide(const HitCost& hit, std::uint64_t request);
  // Whether a hit is longer for what it finds on disk than it is worth: `without` its part on disk
  // is a hit, too (tokens > 0).
  [[nodiscard]] DiskAnswer choose(const HitCost& without, const HitCost& with_disk,
                                  std::uint64_t request);

  // --- measurements
  // A load with copies ended well after so long. beats_ns: of a probe, else 0.
  void loaded(const HitCost& load, std::uint64_t ns, std::uint64_t beats_ns);
  // One step: begin, then any of the next two, then end.
  void begin_step(std::uint64_t now_ns) { now_ns_ = now_ns; }
  // It computes so many more tokens of a prompt.
  void prefilled(Tokens tokens) { prefilled_ += tokens; }
  // A request of which the step before computed a part of its prompt goes on.
  void went_on() { went_on_ = true; }
  void end_step();

  // --- numbers
  [[nodiscard]] const CostGateCounters& counters() const { return counters_; }
  [[nodiscard]] const CostGateReport& report() const { return report_; }
  // Grows with every measurement: who has published the report of the same number is done.
  [[nodiscard]] std::uint64_t measured() const { return measured_; }

 private:
  struct Load {
    std::uint64_t bytes = 0;
    std::uint64_t disk = 0;
    std::uint64_t ns = 0;
  };
  template <class T>
  struct Ring {
    std::array<T, cost_samples_max> all{};
    std::uint64_t added = 0;
    void add(const T& sample) { all[added++ % cost_samples_max] = sample; }
    [[nodiscard]] std::size_t size() const {
      return added < cost_samples_max ? static_cast<std::size_t>(added) : cost_samples_max;
    }
    [[nodiscard]] bool ready() const { return added >= cost_samples_least; }
  };

  [[nodiscard]] bool knows(const HitCost& hit) const;
  [[nodiscard]] double load_ns(const HitCost& hit) const;
  [[nodiscard]] double recompute_ns(Tokens tokens) const;
  void fit_loads();
  void fit_steps();

  CostGateOptions options_;
  Ring<Load> host_loads_;
  Ring<Load> disk_loads_;
  Ring<CostSample> steps_;
  CostLine host_;  // ready or 0
  CostLine disk_;  // what reading takes beside host_
  double ns_per_token_ = 0;
  std::uint64_t now_ns_ = 0;
  Tokens prefilled_;
  bool went_on_ = false;
  std::uint64_t last_ns_ = 0;
  Tokens last_prefilled_;
  std::uint64_t measured_ = 0;
  CostGateCounters counters_;
  CostGateReport report_;
};

// A JSON object.
[[nodiscard]] std::string explain(const CostGateOptions& options, const CostGateReport& report);

}  // namespace kvc
