// The command line of kvc-run.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host_stub/traces/trace.h"
#include "plugin/core/result.h"

namespace kvc::host {

// What the command line said; ranges are checked, files are not opened yet.
struct RunOptions {
  std::string connector;         // path of a library, or "none"
  std::string connector_config;  // path; empty: the connector's defaults
  std::string model;             // path
  std::string trace;             // path, or gen:...
  std::optional<std::uint64_t> limit;
  Turns turns = Turns::apart;
  std::vector<std::string> passes;             // cold, replay
  std::optional<std::uint64_t> device_blocks;  // 0: unlimited; absent: from the trace
  std::optional<std::uint64_t> host_blocks;
  bool device_cache = true;
  bool reserve = true;
  bool ask_retention = true;
  std::uint64_t layerwise = 0;  // layers; 0: one, and loads are waited for
  std::int32_t hint_priority = 0;
  std::uint64_t hint_ttl_ms = 0;      // 0: none
  std::uint64_t hint_pin_tokens = 0;  // 0: none
  std::uint64_t hint_every = 1;
  std::uint64_t max_running = 16;
  std::uint64_t token_budget = 8192;
  std::optional<std::uint64_t> ranks;  // absent: the model's context parallel size
  std::uint64_t steps_in_flight = 1;
  std::uint64_t seed = 1;
  std::uint64_t patience_s = 300;
  std::string fake_device;        // library of a fake CUDA device; empty: blocks lie in host memory
  std::uint64_t device_seed = 1;  // of that device
  std::string json;
  std::string plot;
  std::optional<std::uint16_t> metrics_port;  // 0: any free one
  std::uint64_t metrics_linger_s = 0;         // after the run
  bool print_config = false;
};

// What to do after reading the command line.
struct CommandLine {
  RunOptions options;
  std::string print;  // not empty: the text of --help or --version; nothing is run
};

// Errors (Code::arg) are one line that names the option, the value and what is allowed.
Result<CommandLine> parse_command_line(int argc, const char* const* argv);

}  // namespace kvc::host
