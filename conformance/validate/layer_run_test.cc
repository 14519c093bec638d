// The layer under a real engine and a real connector: no finding, and the same run as without it.
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "host_stub/tools/run_program_test.h"

namespace kvc::validate {
namespace {

using host::Outcome;
using nlohmann::json;

constexpr const char* trace = "gen:agent?requests=12&steps=3&system_tokens=600&output_tokens=300";

struct RunCase {
  const char* model;
  std::vector<std::string> more;
  const char* config;
};
std::ostream& operator<<(std::ostream& out, const RunCase& c) {
  out << c.model;
  for (const std::string& arg : c.more) out << ' ' << arg;
  return out << (c.config[0] == '\0' ? "" : " lazy");
}

constexpr const char* lazy = "[connector]\nmode = \"lazy\"\n";
const RunCase cases[] = {
    {"llama", {}, ""},
    {"llama-512", {}, ""},
    {"gemma", {}, ""},
    {"qwen3.5-4b", {}, ""},
    {"kimi-k3", {"--ranks", "8"}, ""},
    // Small pools: preemption on the device, eviction in the tier.
    {"llama", {"--ranks", "2", "--device-blocks", "300", "--host-blocks", "200"}, ""},
    {"gemma", {"--ranks", "2", "--device-blocks", "900", "--host-blocks", "300"}, ""},
    {"qwen3.5-4b", {"--ranks", "2", "--device-blocks", "22", "--host-blocks", "20"}, ""},
    {"llama", {"--device-cache", "off", "--steps-in-flight", "3"}, ""},
    {"llama", {"--max-running", "2"}, lazy},
    {"qwen3.5-4b", {"--max-running", "2"}, lazy},
    {"qwen3.5-4b", {"--layerwise", "2"}, ""},
    {"gemma", {"--layerwise", "3", "--device-blocks", "900", "--host-blocks", "300"}, ""},
    // Pins that are refused leave a text behind, and the layer does not see their calls.
    {"llama", {"--host-blocks", "100", "--hint-pin-tokens", "512"}, ""},
};

// What does not depend on the time that copies take.
json outputs_of(const json& report) {
  json out = {{"model", report["model"]}, {"leaks", report["leaks"]}};
  for (const json& pass : report["passes"]) {
    out["passes"].push_back({{"requests", pass["requests"]},
                             {"prompt_tokens", pass["prompt_tokens"]},
                             {"output_tokens", pass["output_tokens"]},
                             {"mismatched_blocks", pass["mismatched_blocks"]},
                             {"failed_loads", pass["failed_loads"]},
                             {"output_digest", pass["output_digest"]}});
  }
  return out;
}

struct Layered : host::ProgramFolder {
  [[nodiscard]] std::vector<std::string> arguments(const RunCase& c,
                                                   const std::string& connector) const {
    std::ofstream((folder / "c.toml").string()) << c.config;
    std::vector<std::string> args{"--connector",
                                  connector,
                                  "--connector-config",
                                  (folder / "c.toml").string(),
                                  "--model",
                                  model(c.model),
                                  "--trace",
                                  trace,
                                  "--json",
                                  (folder / "report.json").string()};
    args.insert(args.end(), c.more.begin(), c.more.end());
    return args;
  }
  json run(const std::vector<std::string>& args) const {
    const Outcome out = run_program(args);
    BOOST_REQUIRE_MESSAGE(out.code == 0, out.command << "\n" << out.out << out.err);
    return json::parse(text_of("report.json"));
  }
};

// The layer is told by the environment here, so that the connector's own options stay as they are.
struct Environment {
  Environment(const std::string& next, const std::string& findings, bool guard) {
    ::setenv("KVC_LAYER_NEXT", next.c_str(), 1);
    ::setenv("KVC_LAYER_FINDINGS", findings.c_str(), 1);
    ::setenv("KVC_LAYER_GUARD", guard ? "1" : "0", 1);
  }
  ~Environment() {
    for (const char* name : {"KVC_LAYER_NEXT", "KVC_LAYER_FINDINGS", "KVC_LAYER_GUARD"}) {
      ::unsetenv(name);
    }
  }
};

BOOST_FIXTURE_TEST_SUITE(layer_run, Layered)

BOOST_DATA_TEST_CASE_F(Layered, a_run_through_the_layer_is_the_run_without_it_and_has_no_finding,
                       boost::unit_test::data::make(cases), c) {
  const json plain = run(arguments(c, library("kvc_simple_cpu")));
  json layered;
  {
    const bool guard = c.more.empty() || c.more.front() == "--layerwise";
    const Environment set(library("kvc_simple_cpu"), (folder / "findings.jsonl").string(), guard);
    layered = run(arguments(c, library("kvc_validate")));
  }
  BOOST_TEST(boost::filesystem::exists(folder / "findings.jsonl"));
  BOOST_TEST(text_of("findings.jsonl") == "");
  BOOST_TEST(layered["connector"]["name"] == "simple_cpu");
  BOOST_TEST(outputs_of(layered) == outputs_of(plain));
}

BOOST_AUTO_TEST_CASE(small_pools_preempt_and_evict) {
  const json report = run(arguments(cases[5], library("kvc_simple_cpu")));
  BOOST_TEST(report["passes"][0]["preemptions"] > 0);
}

BOOST_AUTO_TEST_CASE(the_table_layer_of_the_options_names_the_connector_and_is_taken_out) {
  const std::string findings = (folder / "findings.jsonl").string();
  const std::string options = "[host]\nblocks = 500\n[layer]\nnext = \"" +
                              library("kvc_simple_cpu") + "\"\nfindings = \"" + findings +
                              "\"\nguard = true\n[connector]\nlease_steps = 2\n";
  const json report = run(arguments({"llama", {}, options.c_str()}, library("kvc_validate")));
  BOOST_TEST(report["connector"]["name"] == "kvc_validate");
  BOOST_TEST(text_of("findings.jsonl") == "");
}

BOOST_AUTO_TEST_CASE(a_wrong_option_of_the_connector_keeps_its_line_behind_the_table_layer) {
  const std::string options =
      "[layer]\nnext = \"" + library("kvc_simple_cpu") + "\"\n[connector]\nlease_steps = 99\n";
  const Outcome out =
      run_program(arguments({"llama", {}, options.c_str()}, library("kvc_validate")));
  BOOST_TEST(out.code == 2);
  BOOST_TEST(out.err.find(":4") != std::string::npos, out.err);
  BOOST_TEST(out.err.find("lease_steps") != std::string::npos, out.err);
}

BOOST_AUTO_TEST_CASE(a_layer_that_is_told_no_connector_or_a_wrong_one_refuses_with_a_text) {
  const auto refused = [&](const std::string& options, const std::string& part) {
    const Outcome out =
        run_program(arguments({"llama", {}, options.c_str()}, library("kvc_validate")));
    BOOST_TEST(out.code == 2);
    BOOST_TEST(out.err.find(part) != std::string::npos, out.err);
  };
  refused("", "KVC_LAYER_NEXT");
  refused("[layer]\nnext = \"/nowhere/lib.so\"\n", "/nowhere/lib.so");
  refused("[layer]\nnxt = \"a\"\n", "nxt");
  refused("layer.next = \"a.so\"\n", "[layer]");
  const std::string next = "[layer]\nnext = \"" + library("kvc_simple_cpu") + "\"\n";
  // The connector or the recording would be overwritten.
  const auto copy = folder / "connector.so";
  boost::filesystem::copy_file(library("kvc_simple_cpu"), copy);
  const std::string of_copy = "[layer]\nnext = \"" + copy.string() + "\"\n";
  refused(of_copy + "findings = \"" + copy.string() + "\"\n", "both name");
  BOOST_TEST(boost::filesystem::file_size(copy) != 0U);
  const std::string out = (folder / "out").string();
  refused(next + "findings = \"" + out + "\"\nrecord = \"" + out + "\"\n", "both name");
  refused(next + "findings = \"/nowhere/f\"\n", "/nowhere/f: No such file");
  refused(next + "record = \"/nowhere/r\"\n", "/nowhere/r: No such file");
  const Environment set("/nowhere/lib.so", "", false);
  refused("", "/nowhere/lib.so");
}

BOOST_AUTO_TEST_CASE(a_layer_over_itself_is_refused_with_a_text) {
  const std::string layer = library("kvc_validate");
  {
    const Environment set(layer, "", false);
    const Outcome out = run_program(arguments({"llama", {}, ""}, layer));
    BOOST_TEST(out.code == 2);
    BOOST_TEST(out.err.find("leads back to the layer") != std::string::npos, out.err);
  }
  // kvc-run checks the options of simple_cpu itself, and there is no [layer] in them.
  const Environment set(library("kvc_minimal_connector"), "", false);
  const std::string options = "[layer]\nnext = \"" + layer + "\"\n";
  const Outcome out = run_program(arguments({"llama", {}, options.c_str()}, layer));
  BOOST_TEST(out.code == 2);
  BOOST_TEST(out.err.find("is the layer itself") != std::string::npos, out.err);
}

BOOST_AUTO_TEST_CASE(a_copy_of_the_layer_stands_over_another) {
  const auto copy = folder / "copy.so";
  boost::filesystem::copy_file(library("kvc_validate"), copy);
  const Environment set(library("kvc_minimal_connector"), "", false);
  const std::string options = "[layer]\nnext = \"" + copy.string() + "\"\n";
  const json report = run(arguments({"llama", {}, options.c_str()}, library("kvc_validate")));
  BOOST_TEST(report["connector"]["name"] != "kvc_validate");
  BOOST_TEST(report["leaks"].size() > 0U);
}

BOOST_AUTO_TEST_CASE(options_may_begin_with_the_mark_of_utf_8) {
  const std::string options = "\xEF\xBB\xBF[layer]\nnext = \"" + library("kvc_simple_cpu") + "\"\n";
  run(arguments({"llama", {}, options.c_str()}, library("kvc_validate")));
}

BOOST_AUTO_TEST_CASE(a_recording_that_is_lost_is_told_of) {
  const std::string options =
      "[layer]\nnext = \"" + library("kvc_simple_cpu") + "\"\nrecord = \"/dev/full\"\n";
  const Outcome out =
      run_program(arguments({"llama", {}, options.c_str()}, library("kvc_validate")));
  BOOST_TEST(out.code == 0);
  BOOST_TEST(out.err.find("the recording is lost: cannot write /dev/full") != std::string::npos,
             out.err);
}

// KVC-H-008.
BOOST_AUTO_TEST_CASE(a_handle_that_is_open_when_the_process_ends_is_found) {
  const Environment set(library("kvc_simple_cpu"), (folder / "findings.jsonl").string(), false);
  const std::string program = std::string(KVC_BIN_DIR) + "/kvc_validate_leave_open '" +
                              library("kvc_validate") + "' 2>'" + (folder / "err").string() + "'";
  BOOST_TEST(std::system(program.c_str()) == 0);
  BOOST_TEST(text_of("findings.jsonl").find("KVC-H-008") != std::string::npos,
             text_of("findings.jsonl"));
  BOOST_TEST(text_of("err").find("KVC-H-008") != std::string::npos, text_of("err"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate
