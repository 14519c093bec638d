#include "conformance/acceptance/measured_run.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <boost/filesystem.hpp>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

extern char** environ;

namespace kvc::acceptance {

Measured run_kvc(std::vector<std::string> args) {
  namespace fs = boost::filesystem;
  const fs::path json = fs::temp_directory_path() / fs::unique_path("kvc_acceptance_%%%%%%%%.json");
  Measured out;
  args.insert(args.begin(), std::string(KVC_BIN_DIR) + "/kvc-run");
  for (const std::string& arg : args) out.command += (out.command.empty() ? "" : " ") + arg;
  args.insert(args.end(), {"--json", json.string()});
  std::vector<char*> argv;
  argv.reserve(args.size() + 1);
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);

  std::printf("\n$ %s\n", out.command.c_str());
  std::fflush(stdout);
  const auto begin = std::chrono::steady_clock::now();
  pid_t child = 0;
  if (::posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ) != 0) {
    throw std::runtime_error(args[0] + " cannot be started");
  }
  int status = 0;
  rusage usage{};
  while (::wait4(child, &status, 0, &usage) < 0) {
    if (errno != EINTR) throw std::runtime_error("wait4 failed");
  }
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  out.wall_s = wall.count();
  out.peak_gib = static_cast<double>(usage.ru_maxrss) / (1024.0 * 1024.0);  // ru_maxrss is in KiB
  if (fs::exists(json)) {
    std::ifstream in(json.string());
    out.report = nlohmann::json::parse(in);
    fs::remove(json);
  }
  std::printf("exit code %d, %.1f s, peak %.2f GiB\n", out.code, out.wall_s, out.peak_gib);
  std::fflush(stdout);
  return out;
}

std::uint64_t count(const Measured& run, std::size_t pass, const char* name) {
  return run.report.at("passes").at(pass).at(name).get<std::uint64_t>();
}

std::string connector_name() {
  const char* name = std::getenv("KVC_TEST_CONNECTOR");
  return name == nullptr ? "simple_cpu" : name;
}

std::string connector_library() {
  return std::string(KVC_LIB_DIR) + "/libkvc_" + connector_name() + ".so";
}

std::string connector_example() { return example(connector_name() + ".toml"); }

std::string example(const std::string& name) {
  return std::string(KVC_SOURCE_DIR) + "/config/examples/" + name;
}

std::string conversation_trace() {
  return std::string(KVC_CORPUS) + "/traces/mooncake_conversation.jsonl";
}

}  // namespace kvc::acceptance
