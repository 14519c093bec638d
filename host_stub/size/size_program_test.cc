// kvc-size as a program: what it refuses and how, and the report of docs/formats/size.md.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "host_stub/tools/run_program_test.h"

namespace kvc::host {
namespace {

using nlohmann::json;

struct Sizes : ProgramFolder {
  // What `more` does not name is right.
  [[nodiscard]] Outcome run(std::vector<std::string> more) const {
    const auto give = [&](const std::string& name, const std::string& value) {
      if (std::find(more.begin(), more.end(), name) != more.end()) return;
      more.push_back(name);
      more.push_back(value);
    };
    give("--trace", "gen:chat?requests=4");
    give("--model", model("llama"));
    return run_program(more, "kvc-size");
  }
  // Refused with one line of the program that has this part.
  void refused(const std::vector<std::string>& more, const std::string& part) const {
    const Outcome out = run(more);
    BOOST_TEST_INFO_SCOPE(out.out + out.err);
    BOOST_TEST(out.code == 2);
    BOOST_TEST(out.out == "");
    BOOST_TEST(out.err.starts_with("kvc-size: "));
    BOOST_TEST(out.err.find(part) != std::string::npos);
    BOOST_TEST(out.err.find('\n') == out.err.size() - 1);
  }
};

BOOST_FIXTURE_TEST_SUITE(kvc_size_program, Sizes)

BOOST_AUTO_TEST_CASE(wrong_input_is_code_2_and_one_line) {
  refused({"--limit", "-1"}, "--limit: \"-1\" is not allowed");
  refused({"--limit", "0"}, "a whole number from 1");
  refused({"--capacities", "0.5"}, "\"0.5\" is not allowed");
  refused({"--capacities", "0"}, "\"0\" is not allowed");
  refused({"--capacities", "101%"}, "\"101%\" is not allowed");
  refused({"--capacities", "5%,x"}, "\"x\" is not allowed");
  refused({"--policies", "mru"}, "mru");
  refused({"--capacitys", "5%"}, "did you mean --capacities?");
  refused({"surplus"}, "unexpected argument");
  refused({"--model", "/nowhere.toml"}, "/nowhere.toml");
  refused({"--trace", "/nowhere.jsonl"}, "/nowhere.jsonl");
  BOOST_TEST(run_program({}, "kvc-size").code == 2);
  BOOST_TEST(run_program({}, "kvc-size").err == "kvc-size: which requests? --trace FILE\n");
}

BOOST_AUTO_TEST_CASE(what_a_list_has_twice_is_refused_by_its_value) {
  refused({"--capacities", "1,2,1"}, "--capacities: \"1\" is given twice");
  refused({"--capacities", "5%,5.0%"}, "--capacities: \"5%\" and \"5.0%\" are the same");
  refused({"--capacities", "1", "--capacities", "1"}, "--capacities: \"1\" is given twice");
  refused({"--policies", "lru,arc,lru"}, "--policies: \"lru\" is given twice");
  refused({"--states", "tail,tail"}, "--states: \"tail\" is given twice");
  BOOST_TEST(run({"--capacities", "1,1%", "--policies", "lru"}).code == 0);
}

// Before the trace is even read.
BOOST_AUTO_TEST_CASE(a_file_that_cannot_be_written_is_known_before_the_work) {
  for (const char* option : {"--json", "--svg"}) {
    const Outcome out = run_program(
        {"--trace", "/nowhere.jsonl", "--model", model("llama"), option, "/nowhere/out"},
        "kvc-size");
    BOOST_TEST(out.code == 2);
    BOOST_TEST(out.err.find("/nowhere/out") != std::string::npos, out.err);
  }
}

BOOST_AUTO_TEST_CASE(an_output_is_no_input_and_no_other_output) {
  const std::string file = (folder / "in").string();
  std::ofstream(file) << "what is not to be lost";
  for (const std::string output : {"--json", "--svg"}) {
    for (const std::string input : {"--trace", "--model"})
      refused({input, file, output, file}, output + " and " + input + " both name " + file);
  }
  refused({"--json", file, "--svg", file}, "--json and --svg both name " + file);
  BOOST_TEST(text_of("in") == "what is not to be lost");
}

BOOST_AUTO_TEST_CASE(turns_of_a_generated_trace_are_refused) {
  refused({"--turns", "continued"}, "--turns continued");
}

BOOST_AUTO_TEST_CASE(a_stdout_that_is_full_is_no_success) {
  const std::vector<std::string> args = {"--trace", "gen:chat?requests=4", "--model",
                                         model("llama")};
  BOOST_TEST(wrong_at_a_full_stdout(args, "kvc-size", 2) == "");
  BOOST_TEST(wrong_at_a_full_stdout({"--help"}, "kvc-size", 2) == "");
}

BOOST_AUTO_TEST_CASE(the_version_is_told) { BOOST_TEST(wrong_version("kvc-size") == ""); }

BOOST_AUTO_TEST_CASE(help_names_the_exit_codes) {
  const Outcome out = run_program({"--help"}, "kvc-size");
  BOOST_TEST(out.code == 0);
  BOOST_TEST(out.out.find("Exit codes: 0 ") != std::string::npos, out.out);
}

std::string page() {
  std::ifstream in(KVC_SOURCE_DIR "/docs/formats/size.md");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Every name of the report stands in its page as `name`.
void is_described(const json& value, const std::string& text) {
  if (value.is_object()) {
    for (const auto& [name, inner] : value.items()) {
      BOOST_TEST(text.find("`" + name + "`") != std::string::npos, name);
      is_described(inner, text);
    }
  } else if (value.is_array()) {
    for (const json& inner : value) is_described(inner, text);
  }
}

BOOST_AUTO_TEST_CASE(the_report_is_that_of_its_page) {
  const std::string file = (folder / "size.json").string();
  const Outcome out = run({"--capacities", "50%,0.001%", "--policies", "lru", "--json", file});
  BOOST_REQUIRE_MESSAGE(out.code == 0, out.err);
  std::ifstream in(file);
  const json report = json::parse(in);
  BOOST_TEST(report["schema"] == "kvc.size/1");
  BOOST_TEST(report["requests"] == 4);
  BOOST_REQUIRE(report["capacities"].size() == 2U);
  BOOST_TEST(report["capacities"][0]["slots"] == 1);  // a share is one slot at least
  const std::string text = page();
  BOOST_REQUIRE(text.find("kvc.size/1") != std::string::npos);
  is_described(report, text);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
