#include "host_stub/tools/run_inputs.h"

#include <fmt/format.h>

#include "config/connectors.h"
#include "config/shared_options.h"

namespace kvc::host {
namespace {

Status arg(const config::ParseError& error) { return {Code::arg, error.text}; }

Result<config::ModelConfig> read_model(const std::string& path) {
  const auto text = config::read_text_file(path);
  if (!text.ok()) return arg(text.error());
  auto model = config::parse_model(text.value(), path);
  if (!model.ok()) return arg(model.error());
  return std::move(model.value());
}

// The text for the connector: the file, with [host] blocks of the command line put in.
Result<std::string> read_connector_text(const RunOptions& options, const std::string& name) {
  std::string text;
  const std::string& path = options.connector_config;
  if (!path.empty()) {
    auto file = config::read_text_file(path);
    if (!file.ok()) return arg(file.error());
    text = std::move(file.value());
  }
  // Checked before values of the command line are put in: what is wrong in the file is named first.
  if (config::knows_connector(name)) {
    const auto checked = config::effective_options(name, text, path);
    if (!checked.ok()) return arg(checked.error());
  }
  if (options.host_blocks) {
    auto merged = config::with_host_blocks(text, path, *options.host_blocks);
    if (!merged.ok()) return arg(merged.error());
    text = std::move(merged.value());
  }
  if (!options.fake_device.empty()) {
    auto merged = config::with_cuda_driver(text, path, options.fake_device);
    if (!merged.ok()) return arg(merged.error());
    text = std::move(merged.value());
  }
  return text;
}

Result<std::uint64_t> ranks_of(const RunOptions& options, const config::ModelConfig& model) {
  const std::uint64_t ranks = options.ranks.value_or(model.context_parallel);
  if (ranks % model.context_parallel != 0) {
    return Status{Code::arg,
                  fmt::format("--ranks: {} is no multiple of {}, the context parallel size of {}",
                              ranks, model.context_parallel, options.model)};
  }
  return ranks;
}

}  // namespace

Result<RunInputs> read_inputs(const RunOptions& options) {
  RunInputs in;
  auto model = read_model(options.model);
  if (!model.ok()) return model.error();
  in.model = std::move(model).value();
  const auto ranks = ranks_of(options, in.model);
  if (!ranks.ok()) return ranks.error();
  in.ranks = ranks.value();
  if (options.connector != "none") {
    auto connector = load_connector(options.connector);
    if (!connector.ok()) return connector.error();
    in.connector = std::move(connector).value();
    auto text = read_connector_text(options, in.connector->name);
    if (!text.ok()) return text.error();
    in.connector_text = std::move(text).value();
    in.connector_text_name = options.connector_config;
  }
  auto trace = Trace::open(options.trace, options.limit.value_or(Trace::no_limit), options.turns);
  if (!trace.ok()) return arg(trace.error());
  in.trace = std::move(trace.value());
  return in;
}

std::string effective_config(const RunOptions& options, const config::ModelConfig& model,
                             const std::string& connector_name, const std::string& connector_text) {
  std::string out = fmt::format("# {}\n{}", options.model, config::effective_toml(model));
  if (connector_name.empty()) return out;
  const std::string& file = options.connector_config;
  out += fmt::format("\n# connector {}, {}\n", connector_name,
                     file.empty() ? "no options given" : file);
  if (config::knows_connector(connector_name)) {
    const auto known = config::effective_options(connector_name, connector_text, file);
    if (known.ok()) return out + known.value();
  }
  out += "# as handed over: defaults and ranges of this connector's options are its own\n";
  return out + connector_text;
}

Result<std::string> print_config(const RunOptions& options) {
  const auto model = read_model(options.model);
  if (!model.ok()) return model.error();
  if (options.connector == "none") return effective_config(options, model.value(), {}, {});
  const auto connector = load_connector(options.connector);
  if (!connector.ok()) return connector.error();
  const std::string& name = connector.value().name;
  const auto text = read_connector_text(options, name);
  if (!text.ok()) return text.error();
  return effective_config(options, model.value(), name, text.value());
}

}  // namespace kvc::host
