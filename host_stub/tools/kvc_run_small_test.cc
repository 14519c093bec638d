// Small runs of the built kvc-run over all example models.
#include <boost/property_tree/ptree.hpp>
#include <boost/property_tree/xml_parser.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "host_stub/tools/run_program_test.h"
#include "host_stub/tools/run_schema_test.h"

namespace kvc::host {
namespace {

using nlohmann::json;

const char* const models[] = {"llama", "llama-512", "gemma", "qwen3.5-4b", "kimi-k3"};
// Prompts long enough for windows of 1024 tokens, with shared starts.
constexpr const char* trace = "gen:agent?requests=16&steps=4&system_tokens=1500&output_tokens=24";

struct SmallRun : ProgramFolder {
  // Runs to the end, requires exit code 0 and a report that follows the schema.
  json run_right(const std::string& model_name, const std::string& connector,
                 const std::vector<std::string>& more = {}) {
    std::vector<std::string> args{
        "--connector", connector, "--model", model(model_name),
        "--trace",     trace,     "--json",  (folder / "report.json").string()};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome out = run_program(args);
    json report;
    BOOST_TEST_CONTEXT(out.command << "\n" << out.out << out.err) {
      BOOST_REQUIRE(out.code == 0);
      BOOST_TEST(out.err.empty());
      report = json::parse(text_of("report.json"));
      const auto problems = schema_problems(report);
      BOOST_REQUIRE_MESSAGE(problems.empty(), (problems.empty() ? "" : problems.front()));
      for (const json& pass : report["passes"]) {
        BOOST_TEST(pass["requests"] == 16);
        BOOST_TEST(pass["mismatched_blocks"] == 0);
        BOOST_TEST(pass["output_digest"] == report["passes"][0]["output_digest"]);
      }
    }
    return report;
  }
  static std::string simple_cpu() { return library("kvc_simple_cpu"); }
};

BOOST_FIXTURE_TEST_SUITE(kvc_run_small, SmallRun)

BOOST_DATA_TEST_CASE_F(SmallRun, without_connector_the_device_cache_alone_serves_every_model,
                       boost::unit_test::data::make(models), name) {
  const json report = run_right(name, "none");
  BOOST_TEST(report["connector"]["name"] == "none");
  BOOST_TEST(report["passes"].size() == 2U);
  for (const json& pass : report["passes"]) {
    BOOST_TEST(pass["external_hit_tokens"] == 0);
    BOOST_TEST(pass["stored_blocks"] == 0);
  }
  const json off = run_right(name, "none", {"--device-cache", "off", "--passes", "cold"});
  BOOST_TEST(off["passes"].size() == 1U);
  BOOST_TEST(off["passes"][0]["local_hit_tokens"] == 0);
  BOOST_TEST(off["passes"][0]["output_digest"] == report["passes"][0]["output_digest"]);
}

BOOST_AUTO_TEST_CASE(outputs_depend_on_the_seed_and_on_nothing_else) {
  const json plain = run_right("llama", "none", {"--passes", "cold"});
  const json tight = run_right("llama", "none",
                               {"--passes", "cold", "--max-running", "3", "--token-budget", "100",
                                "--steps-in-flight", "3", "--device-blocks", "0"});
  const json other = run_right("llama", "none", {"--passes", "cold", "--seed", "2"});
  BOOST_TEST(plain["passes"][0]["output_digest"] == tight["passes"][0]["output_digest"]);
  BOOST_TEST(plain["passes"][0]["output_digest"] != other["passes"][0]["output_digest"]);
}

BOOST_AUTO_TEST_CASE(the_plot_is_a_picture_and_the_table_names_every_source) {
  const Outcome out = run_program({"--connector", "none", "--model", model("llama"), "--trace",
                                   "gen:chat?requests=9", "--plot", (folder / "p.svg").string()});
  BOOST_TEST(out.code == 0);
  boost::property_tree::ptree tree;
  std::istringstream in(text_of("p.svg"));
  boost::property_tree::read_xml(in, tree);
  BOOST_TEST(tree.count("svg") == 1U);
  for (const char* part : {"sim_bytes_per_token 8", "9 requests", "local hit", "external hit",
                           "computed", "cold", "replay", "output digest", "leaks: slots 0"}) {
    BOOST_TEST(out.out.find(part) != std::string::npos, "no " << part << " in " << out.out);
  }
}

BOOST_AUTO_TEST_CASE(help_and_version_are_printed_and_nothing_is_run) {
  const Outcome help = run_program({"--help"});
  BOOST_TEST(help.code == 0);
  for (const char* option : {"--connector ",
                             "--connector-config ",
                             "--model ",
                             "--trace ",
                             "--limit ",
                             "--turns ",
                             "--passes ",
                             "--device-blocks ",
                             "--host-blocks ",
                             "--device-cache ",
                             "--max-running ",
                             "--token-budget ",
                             "--reserve ",
                             "--retention ",
                             "--hint-priority ",
                             "--hint-ttl ",
                             "--hint-pin-tokens ",
                             "--hint-every ",
                             "--ranks ",
                             "--steps-in-flight ",
                             "--seed ",
                             "--json ",
                             "--plot ",
                             "--print-config",
                             "--version",
                             "Examples:"}) {
    BOOST_TEST(help.out.find(option) != std::string::npos, "no " << option);
  }
  BOOST_TEST(wrong_version("kvc-run") == "");
}

BOOST_AUTO_TEST_CASE(the_printed_config_is_a_model_file_again) {
  const std::vector<std::string> args{"--connector", "none", "--model", model("kimi-k3"),
                                      "--print-config"};
  const Outcome first = run_program(args);
  BOOST_TEST(first.code == 0);
  std::ofstream((folder / "printed.toml").string()) << first.out;
  std::vector<std::string> again = args;
  again[3] = (folder / "printed.toml").string();
  const Outcome second = run_program(again);
  BOOST_TEST(second.code == 0);
  BOOST_TEST(second.out.substr(second.out.find('\n')) == first.out.substr(first.out.find('\n')));
}

BOOST_AUTO_TEST_CASE(the_printed_config_of_a_foreign_connector_claims_no_defaults) {
  std::ofstream((folder / "foreign.toml").string()) << "[cache]\npages = 7\n";
  // What a library is called does not make it ours: the name that it gives itself counts.
  const std::string path = (folder / "libkvc_simple_cpu.so").string();
  boost::filesystem::copy_file(library("kvc_loader_complete"), path);
  std::vector<std::string> args{"--connector", path, "--model", model("llama"), "--print-config"};
  const Outcome without = run_program(args);
  BOOST_TEST(without.code == 0);
  BOOST_TEST(without.out.find("# connector hand_made, no options given\n") != std::string::npos);
  BOOST_TEST(without.out.find("lease_steps") == std::string::npos);
  args.insert(args.end(), {"--connector-config", (folder / "foreign.toml").string()});
  const Outcome with = run_program(args);
  BOOST_TEST(with.code == 0);
  BOOST_TEST(with.out.ends_with("[cache]\npages = 7\n"), with.out);
  BOOST_TEST(with.out.find("lease_steps") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
