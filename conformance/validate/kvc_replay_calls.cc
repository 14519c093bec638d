// kvc-replay-calls: replays a recording of the layer against a connector.
//
// Exit codes: 0 all answers are the same; 1 one differs, and is shown, or the connector ended the
// process; 2 wrong input.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include <fmt/format.h>

#include "config/parsed.h"
#include "conformance/validate/replay.h"
#include "host_stub/loader/loader.h"
#include "host_stub/tools/must_return.h"
#include "host_stub/tools/program_files.h"
#include "plugin/core/program.h"

namespace kvc::validate {
namespace {

constexpr int exit_same = 0;
constexpr int exit_differs = 1;
constexpr int exit_wrong_input = 2;

int refuse(const std::string& why) {
  std::fputs(("kvc-replay-calls: " + why + "\n").c_str(), stderr);
  return exit_wrong_input;
}

int replay(const std::string& file, const std::string& library, const std::string& config_file,
           bool cut) {
  ReplayOptions options;
  if (!config_file.empty()) {
    auto text = config::read_text_file(config_file);
    if (!text.ok()) return refuse(text.error().text);
    options.config = std::move(text.value());
  }
  auto recording = Recording::read(file, cut ? Recording::Cut::allowed : Recording::Cut::refused);
  if (!recording.ok()) return refuse(recording.error().text);
  if (recording.value().cut_at() != 0) {
    std::fputs(fmt::format("{} is cut off at byte {}: {} calls are there\n", file,
                           recording.value().cut_at(), recording.value().calls().size())
                   .c_str(),
               stderr);
  }
  auto connector = host::load_connector(library);
  if (!connector.ok()) return refuse(connector.error().text);
  Replay run(recording.value(), connector.value().api, std::move(options));
  const auto difference = run.run();
  if (!difference.ok()) return refuse(file + ": " + difference.error().text);
  if (!difference.value()) {
    std::fputs(fmt::format("{} calls, the same answers\n", run.calls_replayed()).c_str(), stdout);
    return exit_same;
  }
  const Difference& d = *difference.value();
  std::fputs(fmt::format("call {} ({}): {}: recorded {}, present {}\n", d.call, d.slot, d.field,
                         d.recorded, d.present)
                 .c_str(),
             stdout);
  if (run.queries_not_recorded() != 0) {
    std::fputs(
        fmt::format("before it {} block queries were asked that are not in the recording and "
                    "were answered with no, the first in {}\n",
                    run.queries_not_recorded(), run.first_new_query())
            .c_str(),
        stdout);
  }
  return exit_differs;
}

int main_checked(int argc, char** argv) {
  CLI::App app{
      "Replays a recording of libkvc_validate.so against a connector and shows the first "
      "answer that differs.",
      "kvc-replay-calls"};
  std::string file;
  std::string library;
  std::string config;
  app.add_option("FILE", file, "The recording")->required();
  app.add_option("LIB", library, "The connector's library")->required();
  app.add_option("--connector-config", config,
                 "TOML for the connector, in place of the recorded text");
  bool cut = false;
  app.add_flag("--cut", cut, "Also a recording without its end, of a process that was killed");
  app.set_version_flag("--version", version_line("kvc-replay-calls"));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? exit_same : exit_wrong_input;
  }
  return replay(file, library, config, cut);
}

}  // namespace
}  // namespace kvc::validate

int main(int argc, char** argv) {
  const kvc::host::MustReturn guard("kvc-replay-calls: the connector ended the process\n");
  try {
    const int code = kvc::validate::main_checked(argc, argv);
    return guard.with(kvc::with_stdout_written("kvc-replay-calls", code, 2));
  } catch (const std::exception& e) {
    return guard.with(kvc::validate::refuse(e.what()));
  }
}
