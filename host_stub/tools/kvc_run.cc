// kvc-run: replays a trace of requests through the host engine and a connector.
//
// Exit codes: 0 all is right; 1 the run found wrong bytes, different outputs or leaks, or could not
// go on; 2 wrong input, nothing was run.
#include <fmt/format.h>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <thread>

#include "host_stub/tools/metrics_server.h"
#include "host_stub/tools/must_return.h"
#include "host_stub/tools/output_file.h"
#include "host_stub/tools/program_files.h"
#include "host_stub/tools/progress.h"
#include "host_stub/tools/report_json.h"
#include "host_stub/tools/report_svg.h"
#include "host_stub/tools/report_text.h"
#include "host_stub/tools/run_driver.h"
#include "host_stub/tools/run_inputs.h"
#include "host_stub/tools/run_options.h"
#include "plugin/core/program.h"

namespace kvc::host {
namespace {

constexpr int exit_right = 0;
constexpr int exit_wrong_result = 1;
constexpr int exit_wrong_input = 2;

int refuse(const Status& why) {
  std::fputs(("kvc-run: " + why.text + "\n").c_str(), stderr);
  return exit_wrong_input;
}

Result<std::optional<OutputFile>> open_output(const std::string& path) {
  if (path.empty()) return std::optional<OutputFile>();
  auto file = OutputFile::create(path);
  if (!file.ok()) return file.error();
  return std::optional<OutputFile>(std::move(file).value());
}

bool write_output(std::optional<OutputFile>& file, const std::string& content) {
  if (!file) return true;
  const Status status = file->commit(content);
  if (!status.ok()) std::fputs(("kvc-run: " + status.text + "\n").c_str(), stderr);
  return status.ok();
}

int run(const RunOptions& options) {
  auto inputs = read_inputs(options);
  if (!inputs.ok()) return refuse(inputs.error());
  auto json = open_output(options.json);
  if (!json.ok()) return refuse(json.error());
  auto plot = open_output(options.plot);
  if (!plot.ok()) return refuse(plot.error());

  auto ready = Run::open(options, inputs.value());
  if (!ready.ok()) return refuse(ready.error());
  std::unique_ptr<MetricsServer> server;
  if (options.metrics_port) {
    auto opened = MetricsServer::open(*options.metrics_port);
    if (!opened.ok()) return refuse(opened.error());
    server = std::move(opened).value();
    std::fputs(
        fmt::format("kvc-run: http://127.0.0.1:{}/metrics and /explain\n", server->port()).c_str(),
        stderr);
    ready.value().serve(server.get());
  }
  std::fputs(ready.value().geometry().c_str(), stdout);
  std::fflush(stdout);
  ready.value().release_log();

  Progress progress(Progress::stderr_is_terminal());
  const auto report = ready.value().passes(progress);
  progress.finish();
  if (!report.ok()) {
    std::fputs(("kvc-run: " + report.error().text + "\n").c_str(), stderr);
    return exit_wrong_result;
  }
  std::fputs(report_text(report.value()).c_str(), stdout);
  bool good = write_output(json.value(), to_json(report.value()));
  good = write_output(plot.value(), to_svg(report.value())) && good;
  for (const std::string& fault : report.value().faults()) {
    std::fputs(("kvc-run: " + fault + "\n").c_str(), stderr);
    good = false;
  }
  if (server != nullptr && options.metrics_linger_s != 0) {
    std::fflush(stdout);
    std::this_thread::sleep_for(std::chrono::seconds(options.metrics_linger_s));
  }
  return good ? exit_right : exit_wrong_result;
}

int main_checked(int argc, const char* const* argv) {
  const auto line = parse_command_line(argc, argv);
  if (!line.ok()) return refuse(line.error());
  if (!line.value().print.empty()) {
    std::fputs(line.value().print.c_str(), stdout);
    return exit_right;
  }
  if (line.value().options.print_config) {
    const auto text = print_config(line.value().options);
    if (!text.ok()) return refuse(text.error());
    std::fputs(text.value().c_str(), stdout);
    return exit_right;
  }
  const RunOptions& options = line.value().options;
  if (options.connector == "none" && (!options.connector_config.empty() || options.host_blocks)) {
    std::fputs("kvc-run: --connector none: --connector-config and --host-blocks are not used\n",
               stderr);
  }
  return run(options);
}

}  // namespace
}  // namespace kvc::host

int main(int argc, char** argv) {
  const kvc::host::MustReturn guard("kvc-run: the connector ended the process\n");
  try {
    const int code = kvc::host::main_checked(argc, argv);
    return guard.with(kvc::with_stdout_written("kvc-run", code, 1));
  } catch (const std::exception& e) {
    std::fputs((std::string("kvc-run: could not go on: ") + e.what() + "\n").c_str(), stderr);
    return guard.with(1);
  }
}
