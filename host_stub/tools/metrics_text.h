// Counters as Prometheus text.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "host_stub/engine/options.h"

namespace kvc::host {

// What a scrape sees. Times of the engine's thread: the end of a step.
struct MetricsSnapshot {
  std::vector<StatValue> connector;  // stats of the connector, labels as "name=value,..."
  PassCounters pass;                 // of the pass that runs
  std::uint64_t passes = 0;          // that are over
  DeviceUse device;
  std::string explain;  // JSON of the connector's explain(0); empty: no connector
};

// The exposition format 0.0.4 of Prometheus. Names of vLLM where it has them, as its adapter uses
// them (docs/vllm.md), else "kvc:" and the name of the statistic. Types and HELP texts are those of
// statistics.def; of what is not there, what ends in _now is a gauge. A gauge loses the endings
// _now and _total, everything else counts up and ends in _total.
[[nodiscard]] std::string metrics_text(const MetricsSnapshot& snapshot);

}  // namespace kvc::host
