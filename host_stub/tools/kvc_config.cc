// kvc-config: is a file of connector options right, what does it come to, and can it work?
//
// Exit codes: 0 the file is right (warnings are no fault); 1 it is wrong, or with --strict there is
// a warning; 2 wrong input.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <limits>
#include <optional>
#include <string>

#include "config/connector_file.h"
#include "config/model_config.h"
#include "host_stub/tools/capacity.h"
#include "host_stub/tools/command_line.h"
#include "host_stub/tools/must_return.h"
#include "host_stub/tools/program_files.h"
#include "plugin/core/program.h"

namespace kvc::host {
namespace {

constexpr std::uint64_t prompt_default = 32'768;
// So that one prompt's blocks, keys and bytes can be counted and its index be made.
constexpr std::uint64_t prompt_max = std::uint64_t{1} << 27U;
constexpr int exit_right = 0;
constexpr int exit_wrong = 1;
constexpr int exit_wrong_input = 2;

struct Arguments {
  std::string command;
  std::string file;
  std::string model;
  std::string connector;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t bytes_per_token = 0;
  std::uint64_t ranks = 0;
  std::uint64_t device_blocks = 0;
  bool strict = false;
};

int refuse(const std::string& why, int code = exit_wrong_input) {
  std::fputs(("kvc-config: " + first_line(why) + "\n").c_str(), stderr);
  return code;
}

std::uint64_t prompt_of(const Arguments& a) {
  return a.prompt_tokens == 0 ? prompt_default : a.prompt_tokens;
}

// The library of that connector beside this program, as both are built.
std::string library_beside(const std::string& kind) {
  char path[4096];
  const ssize_t n = ::readlink("/proc/self/exe", path, sizeof path - 1);
  if (n <= 0) return {};
  std::string at(path, static_cast<std::size_t>(n));
  at.resize(at.rfind('/'));
  at.resize(at.rfind('/') + 1);
  return at + "lib/libkvc_" + kind + ".so";
}

std::optional<int> parse(Arguments& a, int argc, char** argv) {
  CLI::App app(
      "Checks a file of connector options, shows it with all defaults, and with a model what it "
      "comes to in bytes, blocks and tokens.",
      "kvc-config");
  app.add_option("check|show", a.command, "check: errors and warnings; show: also the values");
  app.add_option("FILE", a.file, "the connector's options, TOML");
  app.add_option("--model", a.model, "cache geometry of the model: asks the connector what it has");
  app.add_option("--connector", a.connector,
                 "the connector's library [that of the file's kind, beside this program]");
  const auto number = [&app](const char* name, std::uint64_t& to, const char* help,
                             std::uint64_t most = UINT64_MAX) {
    add_number(app, name, help, {.min = 1, .max = most}, [&to](std::uint64_t v) { to = v; });
  };
  number("--prompt-tokens", a.prompt_tokens, "the longest prompt [32768]", prompt_max);
  number("--bytes-per-token", a.bytes_per_token,
         "KV bytes of a token in one group on one rank [the model's sim_bytes_per_token]");
  number("--ranks", a.ranks, "workers [the model's context parallel size]");
  number("--device-blocks", a.device_blocks, "of the engine [what one request needs]");
  app.add_flag("--strict", a.strict, "a warning is an error");
  app.set_version_flag("--version", version_line("kvc-config"));
  app.footer(
      "Exit codes: 0 the file is right (warnings are no fault); 1 it is wrong, the connector "
      "refuses "
      "it, or with --strict there is a warning; 2 wrong input.");
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help and version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  if (const auto why = unknown_argument(app)) return refuse(*why);
  if (a.command != "check" && a.command != "show") {
    return refuse(a.command.empty() ? "what? kvc-config check FILE, or show FILE"
                                    : "\"" + a.command + "\": check or show is meant");
  }
  if (a.file.empty()) return refuse("which file? kvc-config " + a.command + " FILE");
  if (!a.model.empty()) return std::nullopt;
  for (const auto& [name, value] : {std::pair("--prompt-tokens", a.prompt_tokens),
                                    {"--bytes-per-token", a.bytes_per_token},
                                    {"--ranks", a.ranks},
                                    {"--device-blocks", a.device_blocks}}) {
    if (value != 0) return refuse(fmt::format("{} needs --model: of which model?", name));
  }
  return std::nullopt;
}

// What --connector names, or the library of that kind.
Result<LoadedConnector> library_of(const Arguments& a, const std::string& kind) {
  return load_connector(a.connector.empty() ? library_beside(kind) : a.connector);
}

Result<Capacity> measure(const Arguments& a, const config::ConnectorFile& file,
                         const LoadedConnector& connector) {
  const auto model_text = config::read_text_file(a.model);
  if (!model_text.ok()) return Status{Code::arg, model_text.error().text};
  auto model = config::parse_model(model_text.value(), a.model);
  if (!model.ok()) return Status{Code::arg, model.error().text};
  CapacityQuestion question;
  question.model = std::move(model.value());
  if (a.bytes_per_token != 0) question.model.sim_bytes_per_token = a.bytes_per_token;
  question.ranks = a.ranks;
  question.prompt_tokens = prompt_of(a);
  question.device_blocks = a.device_blocks;
  question.connector_toml = file.options;
  question.blocks_per_chunk = file.blocks_per_chunk;
  question.disk_bytes = file.disk.bytes;
  question.disk_paths = file.disk.paths.size();
  auto capacity = capacity_of(connector, question);
  if (capacity.ok() && a.bytes_per_token == 0) {
    capacity.value().warnings.push_back(fmt::format(
        "a token counts as {} bytes in one group on one rank, as the simulator of {} has it: say "
        "the real number with --bytes-per-token",
        question.model.sim_bytes_per_token, a.model));
  }
  return capacity;
}

int run(const Arguments& a) {
  const auto text = config::read_text_file(a.file);
  if (!text.ok()) return refuse(text.error().text);
  std::optional<LoadedConnector> connector;
  if (!a.connector.empty()) {
    auto loaded = library_of(a, {});
    if (!loaded.ok()) return refuse(loaded.error().text);
    connector = std::move(loaded).value();
  }
  const std::string library_kind = connector ? connector->name : std::string();
  const auto file = config::parse_connector_file(text.value(), a.file, library_kind);
  if (!file.ok()) return refuse(file.error().text, exit_wrong);
  if (connector && library_kind != file.value().kind) {
    return refuse(fmt::format("{}: connector.kind = \"{}\", but {} is {}", a.file,
                              file.value().kind, a.connector, library_kind),
                  exit_wrong);
  }
  std::vector<std::string> warnings = file.value().warnings;
  if (a.command == "show") std::fputs(file.value().effective.c_str(), stdout);
  if (!a.model.empty()) {
    if (!connector) {
      auto loaded = library_of(a, file.value().kind);
      if (!loaded.ok()) return refuse(loaded.error().text);
      connector = std::move(loaded).value();
    }
    const auto capacity = measure(a, file.value(), *connector);
    if (!capacity.ok()) {
      const std::string& why = capacity.error().text;
      return refuse(why, why.starts_with("connector ") ? exit_wrong : exit_wrong_input);
    }
    std::fputs(fmt::format("\n# on {}, prompts of up to {} tokens\n{}", a.model, prompt_of(a),
                           capacity_text(capacity.value(), prompt_of(a)))
                   .c_str(),
               stdout);
    warnings.insert(warnings.end(), capacity.value().warnings.begin(),
                    capacity.value().warnings.end());
  }
  for (const std::string& w : warnings) {
    std::fputs(("warning: " + first_line(w) + "\n").c_str(), stderr);
  }
  if (a.command == "check") {
    std::fputs(fmt::format("{}: right, options of {}, {} warning{}\n", a.file, file.value().kind,
                           warnings.size(), warnings.size() == 1 ? "" : "s")
                   .c_str(),
               stdout);
  }
  return a.strict && !warnings.empty() ? exit_wrong : exit_right;
}

}  // namespace
}  // namespace kvc::host

int main(int argc, char** argv) {
  const kvc::host::MustReturn guard("kvc-config: the connector ended the process\n");
  try {
    kvc::host::Arguments a;
    const auto parsed = kvc::host::parse(a, argc, argv);
    const int code = parsed ? *parsed : kvc::host::run(a);
    return guard.with(kvc::with_stdout_written("kvc-config", code, 2));
  } catch (const std::exception& e) {
    return guard.with(kvc::host::refuse(e.what()));
  }
}
