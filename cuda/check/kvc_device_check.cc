// kvc-device-check: is the copy engine right on this machine's device, and how fast is it? Run by
// cuda/device_check.sh.
#include <fmt/format.h>

#include <chrono>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cuda/check/check_device.h"
#include "plugin/core/program.h"

namespace {

using nlohmann::json;

json run(const kvc::check::CheckOptions& options, bool speed, bool& right) {
  json out{{"schema", "kvc.device_check/1"}};
  kvc::check::CheckDevice device(options);
  out["device"] = device.name();
  out["driver"] = device.driver().version;
  out["driver_path"] = device.driver().path;
  out["engine"] = device.engine(kvc::CopyPath::automatic)->describe();
  out["bytes_wrong"] = kvc::check::check_bytes(device);
  out["order_wrong"] = kvc::check::check_order(device);
  right = out["bytes_wrong"].empty() && out["order_wrong"].empty();
  out["speed"] = json::array();
  if (!speed) return out;
  for (const kvc::check::Speed& s : kvc::check::measure_speed(device)) {
    out["speed"].push_back({{"way", s.way},
                            {"direction", s.direction},
                            {"fragment_bytes", s.fragment_bytes},
                            {"gb_per_s", s.gb_per_s}});
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Checks the CUDA copies on this machine and prints a report as JSON. Exit codes: 0 "
      "right, 1 wrong bytes or order, 2 no device, no driver or a report that stdout did not take.",
      "kvc-device-check");
  kvc::check::CheckOptions options;
  std::uint64_t mib = options.bytes >> 20U;
  bool no_speed = false;
  app.add_option("--driver", options.driver, "Library of the driver [libcuda.so.1]");
  app.add_option("--device", options.device, "Number of the device [0]");
  app.add_option("--mib", mib, "MiB that each measurement moves [256]")->check(CLI::Range(8, 8192));
  app.add_option("--repeats", options.repeats, "Measurements of each row, the best counts [3]")
      ->check(CLI::Range(1, 100));
  app.set_version_flag("--version", kvc::version_line("kvc-device-check"));
  app.add_flag("--no-speed", no_speed, "Bytes and order only");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return kvc::with_stdout_written("kvc-device-check", app.exit(e) == 0 ? 0 : 2, 2);
  }
  options.bytes = mib << 20U;
  try {
    bool right = false;
    fmt::print("{}\n", run(options, !no_speed, right).dump(1));
    return kvc::with_stdout_written("kvc-device-check", right ? 0 : 1, 2);
  } catch (const std::exception& e) {
    fmt::print(stderr, "kvc-device-check: {}\n", e.what());
    return 2;
  }
}
