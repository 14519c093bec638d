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

namespace kvc::host {
namespace {

constexpr int exit_right = 0;
constexpr int exit_wrong = 1;
constexpr int exit_wrong_input = 2;

struct Arguments {
  std::string command;
  std::string file;
  std::string model;
  std::string connector;
  std::uint64_t prompt_tokens = 32'768;
  std::uint64_t bytes_per_token = 0;
  std::uint64_t ranks = 0;
  std::uint64_t device_blocks = 0;
  bool strict = false;
};

int refuse(const std::string& why, int code = exit_wrong_input) {
  std::fputs(("kvc-config: " + first_line(why) + "\n").c_str(), stderr);
  return code;
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
  const auto number = [&app](const char* name, std::uint64_t& to, const char* help) {
    add_number(app, name, help, {.min = 1}, [&to](std::uint64_t v) { to = v; });
  };
  number("--prompt-tokens", a.prompt_tokens, "the longest prompt [32768]");
  number("--bytes-per-token", a.bytes_per_token,
         "KV bytes of a token in one group on one rank [the model's sim_bytes_per_token]");
  number("--ranks", a.ranks, "workers [the model's context parallel size]");
  number("--device-blocks", a.device_blocks, "of the engine [what one request needs]");
  app.add_flag("--strict", a.strict, "a warning is an error");
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& e) {
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
  return std::nullopt;
}

Result<Capacity> measure(const Arguments& a, const config::ConnectorFile& file,
                         const std::string& text) {
  const auto model_text = config::read_text_file(a.model);
  if (!model_text.ok()) return Status{Code::arg, model_text.error().text};
  auto model = config::parse_model(model_text.value(), a.model);
  if (!model.ok()) return Status{Code::arg, model.error().text};
  const std::string path = a.connector.empty() ? library_beside(file.kind) : a.connector;
  auto connector = load_connector(path);
  if (!connector.ok()) return connector.error();
  CapacityQuestion question;
  question.model = std::move(model.value());
  if (a.bytes_per_token != 0) question.model.sim_bytes_per_token = a.bytes_per_token;
  question.ranks = a.ranks;
  question.prompt_tokens = a.prompt_tokens;
  question.device_blocks = a.device_blocks;
  question.connector_toml = text;
  return capacity_of(connector.value(), question);
}

int run(const Arguments& a) {
  const auto text = config::read_text_file(a.file);
  if (!text.ok()) return refuse(text.error().text);
  const auto file = config::parse_connector_file(text.value(), a.file);
  if (!file.ok()) return refuse(file.error().text, exit_wrong);
  std::vector<std::string> warnings = file.value().warnings;
  if (a.command == "show") std::fputs(file.value().effective.c_str(), stdout);
  if (!a.model.empty()) {
    const auto capacity = measure(a, file.value(), text.value());
    if (!capacity.ok()) return refuse(capacity.error().text);
    std::fputs(fmt::format("\n# on {}, prompts of up to {} tokens\n{}", a.model, a.prompt_tokens,
                           capacity_text(capacity.value(), a.prompt_tokens))
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
  try {
    kvc::host::Arguments a;
    if (const auto code = kvc::host::parse(a, argc, argv)) return *code;
    return kvc::host::run(a);
  } catch (const std::exception& e) {
    return kvc::host::refuse(e.what());
  }
}
