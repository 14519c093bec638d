// kvc-conform: is this connector right? docs/kvc-conform.md.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <regex>
#include <thread>

#include "config/parsed.h"
#include "config/shared_options.h"
#include "conformance/runner/run_case.h"
#include "host_stub/tools/command_line.h"
#include "host_stub/tools/output_file.h"
#include "host_stub/tools/program_files.h"
#include "plugin/core/program.h"

namespace {

using namespace kvc::conform;
using kvc::host::OutputFile;

constexpr int failed = 1;
constexpr int wrong_input = 2;

struct Arguments {
  std::string library;
  std::string config;
  std::string fake_device;
  std::string only;
  std::string json;
  std::string junit;
  std::uint64_t seed = 1;
  unsigned jobs = 0;
  unsigned timeout = 0;
  bool one_seed = false;
  bool list = false;
  bool in_process = false;
};

int refuse(const std::string& why) {
  fmt::print(stderr, "kvc-conform: {}\n", kvc::host::first_line(why));
  return wrong_input;
}

// fmt::print would throw at a full stdout; main says it once, at the end.
void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

// As one word for a shell.
std::string quoted(const std::string& word) {
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::strchr("/._-+:=@%,", c) != nullptr;
  };
  if (!word.empty() && word.find('\0') == std::string::npos &&
      std::all_of(word.begin(), word.end(), plain)) {
    return word;
  }
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& name, T& to, std::uint64_t min,
                        const std::string& help) {
  return kvc::host::add_number(app, name, help, {.min = min, .max = std::numeric_limits<T>::max()},
                               [&to](std::uint64_t v) { to = static_cast<T>(v); });
}

std::vector<Case> chosen(const std::string& only) {
  const std::span<const Case> all = all_cases();
  if (only.empty()) return {all.begin(), all.end()};
  // The regular expressions of the standard library recurse.
  constexpr std::size_t longest = 1000;
  if (only.size() > longest) throw std::regex_error(std::regex_constants::error_complexity);
  const std::regex pattern(only);
  std::vector<Case> some;
  for (const Case& c : all) {
    const std::string id(c.id);
    if (std::regex_search(id, pattern)) some.push_back(c);
  }
  return some;
}

RunOptions options_of(const Arguments& a, const std::string& program) {
  RunOptions o;
  // A name without a slash is a file here, not one of the system's libraries (dlopen(3)).
  const std::string path = a.library.find('/') == std::string::npos ? "./" + a.library : a.library;
  o.path = path;
  o.command = quoted(program) + " " + quoted(path);
  if (!a.config.empty()) o.command += " --connector-config " + quoted(a.config);
  if (!a.fake_device.empty()) o.command += " --fake-device " + quoted(a.fake_device);
  o.fake_device = a.fake_device;
  o.seed = a.seed;
  o.one_seed = a.one_seed;
  o.in_process = a.in_process;
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  o.seconds = a.timeout;
  o.parallel = a.jobs != 0 ? a.jobs : cores;
#if defined(KVC_SANITIZED)
  o.seconds_factor = 10;
#endif
  return o;
}

std::optional<int> parse(Arguments& a, int argc, char** argv) {
  CLI::App app("Checks a kvc connector against the requirements of the line (docs/kvc-conform.md)");
  app.add_option("library", a.library, "the connector, a shared library");
  app.add_option("--connector-config", a.config, "a TOML file with the connector's options");
  app.add_option("--fake-device", a.fake_device,
                 "the library of the fake CUDA device: blocks lie in its memory, and [cuda] driver "
                 "of the options names it");
  app.add_option("--only", a.only, "run the cases whose id matches this regular expression");
  app.add_flag("--list", a.list, "list the cases and their requirements");
  const CLI::Option* const seed =
      add_number(app, "--seed", a.seed, 0, "random cases run this seed alone");
  app.add_flag("--in-process", a.in_process, "run the cases in this process, for debuggers");
  add_number(app, "--jobs", a.jobs, 1, "cases at a time (default: one per core)");
  add_number(app, "--timeout", a.timeout, 1, "seconds per case (default: the case's own)");
  app.add_option("--json", a.json, "write the report, schema kvc.conform/1");
  app.add_option("--junit", a.junit, "write the report as JUnit XML");
  app.set_version_flag("--version", kvc::version_line("kvc-conform"), "print the version");
  app.footer(
      "Exit codes: 0 nothing failed, crashed or timed out; 1 something did; 2 wrong input, nothing "
      "was run.");
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // help and version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return refuse(e.what());
  }
  if (const auto why = kvc::host::unknown_argument(app)) return refuse(*why);
  a.one_seed = seed->count() != 0;
  return std::nullopt;
}

int list(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    print(fmt::format("{} {} {}\n", c.id, c.rule.text(), c.rule.rule().text));
  }
  return 0;
}

// What the connector says against the options, if it opens without them: then they are wrong, and
// not one case would say anything else. Empty: they do, or it does not open at all.
std::string refused_options(const RunOptions& options) {
  const Case opens{"open.options", "KVC-P-030", [](Context& c) {
                     const kvc::rig::World world(c.plain(), *c.library, *c.judge);
                   }};
  const auto result = [&](const std::string& toml) {
    RunOptions o = options;
    o.config_toml = toml;
    return run_cases({&opens, 1}, o, [](const CaseResult&) {}).front();
  };
  const CaseResult given = result(options.config_toml);
  if (given.outcome != Outcome::fail || given.rule != "KVC-P-030") return {};
  return result("").outcome == Outcome::pass ? given.detail : std::string();
}

int run(const Arguments& a, const std::vector<Case>& cases, const RunOptions& options) {
  std::optional<OutputFile> json;
  std::optional<OutputFile> junit;
  for (const auto& [path, file] : {std::pair(&a.json, &json), std::pair(&a.junit, &junit)}) {
    if (path->empty()) continue;
    auto created = OutputFile::create(*path);
    if (!created.ok()) return refuse(created.error().text);
    file->emplace(std::move(created).value());
  }
  const Loaded loaded = look_at_library(options);
  if (!loaded.refusal.empty()) return refuse(loaded.refusal);
  if (!a.config.empty()) {
    if (const std::string why = refused_options(options); !why.empty()) {
      return refuse(
          fmt::format("{} with the options of {}: {}", loaded.plugin.name, a.config, why));
    }
  }
  print(fmt::format("kvc-conform: {} {} ({}), {} cases\n", printable(loaded.plugin.name),
                    printable(loaded.plugin.version), loaded.plugin.path, cases.size()));
  const auto begun = std::chrono::steady_clock::now();
  const std::vector<CaseResult> results = run_cases(cases, options, [&](const CaseResult& r) {
    const std::string line = line_of(r, repeat_command(options, r.id));
    print(line);
    std::fflush(stdout);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begun;
  print(broken_rules(results) + summary_line(results, seconds.count()));
  for (const auto& [file, text] : {std::pair(&json, json_of(loaded.plugin, results)),
                                   std::pair(&junit, junit_of(loaded.plugin, results))}) {
    if (!*file) continue;
    if (const auto s = (*file)->commit(text); !s.ok()) return refuse(s.text);
  }
  return summary_of(results).good() ? 0 : failed;
}

std::optional<std::string> wrong_files(const Arguments& a) {
  return kvc::host::file_named_twice({{"--json", a.json}, {"--junit", a.junit}},
                                     {{"the library", a.library},
                                      {"--connector-config", a.config},
                                      {"--fake-device", a.fake_device}});
}

int main_checked(int argc, char** argv) {
  Arguments a;
  if (const auto code = parse(a, argc, argv)) return *code;
  std::vector<Case> cases;
  try {
    cases = chosen(a.only);
  } catch (const std::regex_error& e) {
    return refuse(
        fmt::format("--only \"{}\" is no regular expression: {}", a.only.substr(0, 200), e.what()));
  }
  if (cases.empty()) return refuse(fmt::format("--only \"{}\" matches no case", a.only));
  if (a.list) return list(cases);
  if (a.library.empty()) return refuse("which connector? kvc-conform LIB.so");
  if (const auto why = wrong_files(a)) return refuse(*why);
  RunOptions options = options_of(a, argv[0]);
  if (!a.config.empty()) {
    auto text = kvc::config::read_text_file(a.config);
    if (!text.ok()) return refuse(text.error().text);
    options.config_toml = std::move(text.value());
  }
  if (!a.fake_device.empty()) {
    auto text = kvc::config::with_cuda_driver(options.config_toml, a.config, a.fake_device);
    if (!text.ok()) return refuse(text.error().text);
    options.config_toml = std::move(text.value());
  }
  return run(a, cases, options);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return kvc::with_stdout_written("kvc-conform", main_checked(argc, argv), wrong_input);
  } catch (const std::exception& e) {
    return refuse(e.what());
  }
}
