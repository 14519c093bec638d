// Runs the built kvc-run as a user would, and measures it.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kvc::acceptance {

struct Measured {
  std::string command;
  int code = -1;  // 128 + signal after a crash
  double wall_s = 0;
  double peak_gib = 0;    // resident, of the whole process
  nlohmann::json report;  // null if there is none
};

// kvc-run with `args` and --json. Output goes to this program's own stdout and stderr. Throws
// std::runtime_error if no process can be made.
Measured run_kvc(std::vector<std::string> args);

// A number of pass `pass` of a report.
std::uint64_t count(const Measured& run, std::size_t pass, const char* name);

// Paths of the product.
// The connector under test: simple_cpu, or that which KVC_TEST_CONNECTOR names.
std::string connector_name();
std::string connector_library();
std::string connector_example();               // its config/examples/NAME.toml
std::string example(const std::string& name);  // config/examples/NAME
std::string conversation_trace();

}  // namespace kvc::acceptance
