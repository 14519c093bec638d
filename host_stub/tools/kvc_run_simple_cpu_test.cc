// The built kvc-run with the built simple_cpu connector.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "host_stub/tools/run_program_test.h"
#include "host_stub/tools/run_schema_test.h"

namespace kvc::host {
namespace {

using nlohmann::json;

const char* const models[] = {"llama", "llama-512", "gemma", "qwen3.5-4b", "kimi-k3"};
constexpr const char* trace = "gen:agent?requests=16&steps=4&system_tokens=1500&output_tokens=24";

struct WithConnector : ProgramFolder {
  [[nodiscard]] std::vector<std::string> arguments(const std::string& model_name,
                                                   const std::string& config) const {
    std::ofstream((folder / "c.toml").string()) << config;
    return {"--connector",
            library("kvc_simple_cpu"),
            "--connector-config",
            (folder / "c.toml").string(),
            "--model",
            model(model_name),
            "--trace",
            trace,
            "--json",
            (folder / "report.json").string()};
  }
  json run_right(std::vector<std::string> args, const std::vector<std::string>& more = {}) {
    args.insert(args.end(), more.begin(), more.end());
    const Outcome out = run_program(args);
    json report;
    BOOST_TEST_CONTEXT(out.command << "\n" << out.out << out.err) {
      BOOST_REQUIRE(out.code == 0);
      report = json::parse(text_of("report.json"));
      const auto problems = schema_problems(report);
      BOOST_REQUIRE_MESSAGE(problems.empty(), (problems.empty() ? "" : problems.front()));
      for (const json& pass : report["passes"]) {
        BOOST_TEST(pass["mismatched_blocks"] == 0);
        BOOST_TEST(pass["failed_loads"] == 0);
        BOOST_TEST(pass["output_digest"] == report["passes"][0]["output_digest"]);
      }
      for (const char* row : {"handoffs", "all_offers"}) {
        BOOST_TEST(report["boundary_stats"][row]["pending"] == 0);
      }
    }
    return report;
  }
  void check_refused(std::vector<std::string> args, const std::vector<std::string>& more,
                     const std::vector<std::string>& parts) {
    args.insert(args.end(), more.begin(), more.end());
    const Outcome out = run_program(args);
    BOOST_TEST_CONTEXT(out.command << "\n" << out.err) {
      BOOST_TEST(out.code == 2);
      BOOST_TEST(std::count(out.err.begin(), out.err.end(), '\n') == 1);
      for (const std::string& part : parts) {
        BOOST_TEST(out.err.find(part) != std::string::npos, "no \"" << part << "\" in " << out.err);
      }
      BOOST_TEST(!boost::filesystem::exists(folder / "report.json"));
    }
  }
};

BOOST_FIXTURE_TEST_SUITE(kvc_run_simple_cpu, WithConnector)

BOOST_DATA_TEST_CASE_F(WithConnector, a_replay_of_every_model_is_served_and_verified,
                       boost::unit_test::data::make(models), name) {
  const json on = run_right(arguments(name, ""));
  BOOST_TEST(on["connector"]["name"] == "simple_cpu");
  const json& replay = on["passes"][1];
  BOOST_TEST(replay["external_hit_tokens"] > 0);
  BOOST_TEST(replay["verified_blocks"] >= replay["loaded_blocks"]);
  BOOST_TEST(replay["loaded_bytes"] > 0);
  BOOST_TEST(on["passes"][0]["stored_bytes"] > 0);
  const json off = run_right(arguments(name, ""), {"--device-cache", "off"});
  BOOST_TEST(off["passes"][1]["local_hit_tokens"] == 0);
  BOOST_TEST(off["passes"][1]["output_digest"] == replay["output_digest"]);
  const json none = run_right(arguments(name, ""), {"--passes", "cold", "--max-running", "2"});
  BOOST_TEST(none["passes"][0]["output_digest"] == replay["output_digest"]);
}

BOOST_DATA_TEST_CASE_F(WithConnector, no_example_model_is_warned_of,
                       boost::unit_test::data::make(models), name) {
  const Outcome out = run_program(arguments(name, ""));
  BOOST_TEST(out.code == 0);
  BOOST_TEST(out.err.empty(), out.err);
}

BOOST_DATA_TEST_CASE_F(WithConnector, lazy_mode_gives_the_same_outputs_from_what_the_device_evicts,
                       boost::unit_test::data::make(models), name) {
  const std::string config = "[connector]\nmode = \"lazy\"\n";
  const json run = run_right(arguments(name, config), {"--max-running", "2"});
  BOOST_TEST(run["passes"][0]["stored_bytes"] > 0);
  BOOST_TEST(run["boundary_stats"]["handoffs"]["published"] == 0);
  BOOST_TEST(run["boundary_stats"]["all_offers"]["dropped_bad_offer"] == 0);
  const json eager = run_right(arguments(name, ""), {"--passes", "cold"});
  BOOST_TEST(run["passes"][0]["output_digest"] == eager["passes"][0]["output_digest"]);
  boost::filesystem::remove(folder / "report.json");
  check_refused(arguments(name, config), {"--device-cache", "off"}, {"lazy", "prefix cache"});
}

BOOST_AUTO_TEST_CASE(hints_on_the_command_line_reach_both_connectors) {
  for (const char* name : {"kvc_simple_cpu", "kvc_offloading"}) {
    std::vector<std::string> args = arguments("llama", "[host]\nblocks = 200\n");
    args[1] = library(name);
    const json run = run_right(args, {"--hint-priority", "-1", "--hint-ttl", "1",
                                      "--hint-pin-tokens", "64", "--hint-every", "2"});
    const auto stat = [&](const char* wanted) {
      return run["stats"].at(wanted).get<std::uint64_t>();
    };
    std::uint64_t requests = 0;
    for (const json& pass : run["passes"]) requests += pass["requests"].get<std::uint64_t>();
    BOOST_TEST(stat("hints_taken") == requests / 2);
    BOOST_TEST(stat("pins_open_now") > 0U);
    BOOST_TEST(stat("pin_blocks_now") == 4 * stat("pins_open_now"));
  }
}

BOOST_AUTO_TEST_CASE(host_blocks_on_the_command_line_win_over_the_file) {
  const json small = run_right(arguments("llama", "[host]\nunlimited = true\n"),
                               {"--host-blocks", "8", "--device-cache", "off"});
  const json large = run_right(arguments("llama", "[host]\nblocks = 8\n"),
                               {"--host-blocks", "100000", "--device-cache", "off"});
  BOOST_TEST(small["passes"][1]["external_hit_tokens"] <= 8 * 16 * 16);
  BOOST_TEST(large["passes"][1]["external_hit_tokens"] > small["passes"][1]["external_hit_tokens"]);
}

BOOST_AUTO_TEST_CASE(wrong_connector_options_are_named_by_file_line_and_key) {
  check_refused(arguments("llama", "[host]\nbites = 5\n"), {}, {"c.toml:2", "bites", "bytes"});
  check_refused(arguments("llama", "[connector]\nlease_steps = 99\n"), {},
                {"c.toml:2", "lease_steps", "99", "8"});
  check_refused(arguments("llama", "[host\n"), {}, {"c.toml:1"});
  check_refused(arguments("llama", "[host\n"), {"--host-blocks", "10"}, {"c.toml:1"});
}

BOOST_AUTO_TEST_CASE(a_host_pool_below_two_blocks_is_refused) {
  check_refused(arguments("llama", "[host]\nblocks = 1\n"), {}, {"c.toml:2", "blocks", "2"});
  check_refused(arguments("llama", "[host]\nbytes = 200\n"), {}, {"c.toml", "200"});
  // A layout that makes the connector log a warning before it refuses.
  std::vector<std::string> warned = arguments("gemma", "[host]\nbytes = 200\n");
  warned[5] = (folder / "gemma-8.toml").string();
  std::ifstream in(model("gemma"));
  std::stringstream text;
  text << in.rdbuf();
  std::string with_unit = text.str();
  with_unit.insert(with_unit.find("[model]\n") + 8, "hash_unit = 8\n");
  std::ofstream(warned[5]) << with_unit;
  check_refused(warned, {}, {"c.toml", "200"});
  warned[3] = (folder / "enough.toml").string();
  std::ofstream(warned[3]) << "[host]\nblocks = 1000\n";
  BOOST_TEST(run_program(warned).err.find("fine_hits is off") != std::string::npos);
  boost::filesystem::remove(folder / "report.json");
  check_refused(arguments("llama", ""), {"--host-blocks", "1"}, {"--host-blocks"});
}

BOOST_AUTO_TEST_CASE(on_the_fake_device_every_model_gives_the_outputs_of_the_host) {
  for (const char* name : models) {
    const auto args = arguments(name, "[host]\nblocks = 4000\n");
    const json host = run_right(args);
    const json device = run_right(args, {"--fake-device", library("kvc_fake_cuda"), "--device-seed",
                                         "3", "--steps-in-flight", "3"});
    BOOST_TEST_CONTEXT(name) {
      BOOST_TEST(device["passes"][1]["output_digest"] == host["passes"][1]["output_digest"]);
      BOOST_TEST(device["passes"][1]["loaded_blocks"] != 0);
    }
  }
  boost::filesystem::remove(folder / "report.json");
  check_refused(arguments("llama", ""), {"--fake-device", "libm.so.6"}, {"libm.so.6"});
  check_refused(arguments("llama", ""),
                {"--fake-device", library("kvc_fake_cuda"), "--device-blocks", "0"},
                {"--device-blocks 0"});
}

BOOST_AUTO_TEST_CASE(the_printed_config_has_every_default_of_simple_cpu) {
  std::vector<std::string> args = arguments("llama", "[host]\nblocks = 77\n");
  args.emplace_back("--print-config");
  const Outcome out = run_program(args);
  BOOST_TEST(out.code == 0);
  BOOST_TEST(out.err.empty());
  for (const char* part : {"# connector simple_cpu, ", "blocks = 77", "lease_steps = "}) {
    BOOST_TEST(out.out.find(part) != std::string::npos, "no \"" << part << "\" in " << out.out);
  }
  args[1] = "no/libkvc_simple_cpu.so";
  check_refused(args, {}, {"no/libkvc_simple_cpu.so: there is no such file"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
