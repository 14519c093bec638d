// The recorded trace through the host engine and the built connector in this process, one request
// after the other and without a device cache, with a mirror of the connector's tier.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/acceptance/reach.h"
#include "host_stub/engine/options.h"
#include "host_stub/tools/run_inputs.h"

namespace kvc::acceptance {

struct IndexRun {
  host::PassCounters counters;
  std::string explained;         // the connector's own words, with the kind of its index
  std::uint64_t slots_used = 0;  // in the end
  std::uint64_t events_lost = 0;
  host::Leaks leaks;
  std::vector<Reach> samples;  // before every `sample_requests` requests, and in the end
};

struct IndexRunOptions {
  std::string index = "chained";
  std::uint64_t host_blocks = 0;      // 0: unlimited
  std::uint64_t sample_requests = 0;  // 0: no mirror
};

// Opens model, library and trace as kvc-run does. Throws std::runtime_error with its text.
host::RunInputs index_inputs(const std::string& model, std::size_t limit);

// Stepped, with seed 1, as kvc-run has it. Throws std::runtime_error if engine or connector cannot
// go on, std::logic_error for events that cannot be. One run at a time in a process.
IndexRun run_index(const host::RunInputs& inputs, const IndexRunOptions& options);

}  // namespace kvc::acceptance
