// Everything that kvc-run reads, checked before anything runs.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "config/model_config.h"
#include "host_stub/loader/loader.h"
#include "host_stub/tools/run_options.h"
#include "host_stub/traces/trace.h"
#include "plugin/core/result.h"

namespace kvc::host {

struct RunInputs {
  config::ModelConfig model;
  std::optional<LoadedConnector> connector;  // absent: --connector none
  std::string connector_text;                // TOML as the connector gets it
  std::string connector_text_name;           // for messages: the file
  Trace trace;
  std::uint64_t ranks = 1;
};

// Reads model, connector options, library and trace, in this order. Errors (Code::arg) are one line
// that names the file and, where it has lines, line, key and what is allowed; also --ranks that is
// no multiple of the model's context parallel size. Without a connector its options are not read.
Result<RunInputs> read_inputs(const RunOptions& options);

// The model with all defaults and the connector's options, as TOML (--print-config): simple_cpu's
// with all defaults, those of any other connector as they are handed over. `connector_name` is
// empty without a connector.
[[nodiscard]] std::string effective_config(const RunOptions& options,
                                           const config::ModelConfig& model,
                                           const std::string& connector_name,
                                           const std::string& connector_text);

// Only what --print-config needs. The library is asked for its name; no trace is read.
Result<std::string> print_config(const RunOptions& options);

}  // namespace kvc::host
