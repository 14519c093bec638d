// The seed of a random test, and how one repeats it.
#pragma once
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>

namespace kvc::test {

// The seed that KVC_SEED asks for alone.
[[nodiscard]] inline std::optional<std::uint64_t> only_seed() {
  const char* given = std::getenv("KVC_SEED");
  if (given == nullptr) return std::nullopt;
  return std::strtoull(given, nullptr, 10);
}
// The seed of a test with one: fixed, or that of KVC_SEED.
[[nodiscard]] inline std::uint64_t seed_or(std::uint64_t fixed) {
  return only_seed().value_or(fixed);
}

// `program` as one calls it from the root of the tree.
[[nodiscard]] inline std::string from_root(std::string program) {
  const std::string root = std::string(KVC_SOURCE_DIR) + "/";
  if (program.starts_with(root)) program.erase(0, root.size());
  return program;
}

// "repeat: KVC_SEED=17 build/dev/bin/x_test --run_test=suite/case" of the running test case, for
// the root of the tree. Requires a running test case.
[[nodiscard]] inline std::string repeat_command(std::uint64_t seed) {
  namespace framework = boost::unit_test::framework;
  const std::string called = framework::master_test_suite().argv[0];
  return "repeat: KVC_SEED=" + std::to_string(seed) + " " +
         from_root(std::string(KVC_BIN_DIR) + "/" + called.substr(called.rfind('/') + 1)) +
         " --run_test=" + framework::current_test_case().full_name();
}

}  // namespace kvc::test
