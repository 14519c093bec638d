// Runs one case, here or in a child process.
#pragma once
#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "conformance/cases/case.h"
#include "conformance/runner/result.h"

namespace kvc::conform {

struct RunOptions {
  std::string path;  // of the library
  std::string config_toml;
  std::string fake_device;  // library of a fake CUDA device for the blocks; empty: host memory
  std::string command;      // that repeats a case, without --only and --seed
  std::uint64_t seed = 1;
  bool one_seed = false;
  bool in_process = false;
  unsigned parallel = 1;
  unsigned seconds_factor = 1;  // sanitizers slow down
  unsigned seconds = 0;         // 0: the case's own
};

// Loads the library in a child process and tells who it is. `refusal` is empty, or one line that
// says why it cannot be used, with the KVC-L rule that it breaks, or why the device cannot be.
struct Loaded {
  Plugin plugin;
  std::string refusal;
};
Loaded look_at_library(const RunOptions& options);

// Runs the cases, each in a child process unless told otherwise, `parallel` at a time; the results
// in the order of the cases. `on_result` hears of each when it is there.
std::vector<CaseResult> run_cases(std::span<const Case> cases, const RunOptions& options,
                                  const std::function<void(const CaseResult&)>& on_result);

std::string repeat_command(const RunOptions& options, std::string_view id);

}  // namespace kvc::conform
