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

// Model and connector options with all defaults, as TOML (--print-config). Options of a connector
// that this program does not know are printed as they are handed over.
[[nodiscard]] std::string effective_config(const RunOptions& options,
                                           const config::ModelConfig& model,
                                           const std::string& connector_text);

// Only what --print-config needs: no library and no trace is read.
Result<std::string> print_config(const RunOptions& options);

}  // namespace kvc::host
