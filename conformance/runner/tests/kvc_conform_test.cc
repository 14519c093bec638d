// kvc-conform itself: every kind of result, its reports, and wrong input.
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>

#include "conformance/cases/case.h"
#include "conformance/runner/result.h"

namespace kvc::conform {

BOOST_AUTO_TEST_SUITE(kvc_conform)

namespace {

using Json = nlohmann::json;

struct Ran {
  int code = -1;
  std::string out;
};

Ran run(const std::string& arguments, const std::string& folder = ".") {
  Ran ran;
  const std::string command = "cd '" + folder + "' && " + std::string(KVC_BIN_DIR) +
                              "/kvc-conform " + arguments + " 2>&1 </dev/null";
  FILE* const pipe = ::popen(command.c_str(), "r");
  BOOST_REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) != 0;) {
    ran.out.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

std::string planted(const std::string& what) {
  return std::string(KVC_LIB_DIR) + "/libkvc_planted_" + what + ".so";
}

std::string text_of_file(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The report of one case of a planted connector.
Json one_case(const std::string& plant, const std::string& id, int code,
              const std::string& more = {}) {
  const std::string json = "kvc_conform_test_" + plant + ".json";
  const Ran ran = run(planted(plant) + " --only '^" + id + "$' --json " + json + " " + more);
  BOOST_TEST(ran.code == code, ran.out);
  const Json report = Json::parse(text_of_file(json));
  BOOST_REQUIRE(report.at("cases").size() == 1U);
  BOOST_TEST(report["cases"][0]["id"] == id);
  return report["cases"][0];
}

constexpr const char* extensions = "negotiation.unknown_extensions_are_absent";

}  // namespace

BOOST_AUTO_TEST_CASE(a_right_connector_passes_and_exits_0) {
  const Json c = one_case("right", extensions, 0);
  BOOST_TEST(c["result"] == "pass");
  BOOST_TEST(c["rule"] == "KVC-P-024");
  BOOST_TEST(c["detail"] == "");
}

BOOST_AUTO_TEST_CASE(a_library_is_named_without_a_folder) {
  const Ran ran = run("libkvc_planted_right.so --only '^negotiation[.]the_entry_'", KVC_LIB_DIR);
  BOOST_TEST(ran.code == 0, ran.out);
  BOOST_TEST(has(ran.out, "1 passed"), ran.out);
}

BOOST_AUTO_TEST_CASE(a_finding_fails_the_case_and_names_its_rule) {
  const Json c = one_case("nameless", "negotiation.the_description_is_static", 1);
  BOOST_TEST(c["result"] == "fail");
  BOOST_TEST(c["rule"] == "KVC-P-023");
  BOOST_TEST(c["detail"].get<std::string>().starts_with("KVC-P-023: name \"\""));
}

BOOST_AUTO_TEST_CASE(a_signal_is_named) {
  const Json c = one_case("crashes", extensions, 1);
  BOOST_TEST(c["result"] == "crashed");
#if !defined(KVC_SANITIZED)
  BOOST_TEST(c["detail"] == "the process ended by signal 11 (SIGSEGV) inside extension");
#endif
}

BOOST_AUTO_TEST_CASE(what_a_case_was_about_that_crashed_is_not_said_to_be_broken) {
  const Ran ran = run(planted("crashes") + " --only '" + extensions + "'");
  BOOST_TEST(!has(ran.out, "do not hold"), ran.out);
  BOOST_TEST(has(ran.out, "a case about KVC-P-024 ("), ran.out);
  BOOST_TEST(has(ran.out, "\nnot decided, as their cases crashed or ran out of time: KVC-P-024\n"),
             ran.out);
}

BOOST_AUTO_TEST_CASE(a_connector_that_ends_the_process_has_crashed) {
  const Json c = one_case("exits", extensions, 1);
  BOOST_TEST(c["result"] == "crashed");
  BOOST_TEST(c["detail"] == "the process ended by exit code 3 inside extension");
}

BOOST_AUTO_TEST_CASE(a_case_that_does_not_end_times_out) {
  const Json c = one_case("hangs", extensions, 1, "--timeout 1");
  BOOST_TEST(c["result"] == "timed_out");
  BOOST_TEST(has(c["detail"], " s, inside extension"));
  BOOST_TEST(c["ms"].get<std::uint64_t>() >= 1000U);
}

BOOST_AUTO_TEST_CASE(a_process_that_a_connector_leaves_behind_holds_nothing_up) {
  const Json c = one_case("leaves", extensions, 0, "--timeout 40");
  BOOST_TEST(c["result"] == "pass");
  BOOST_TEST(c["ms"].get<std::uint64_t>() < 30'000U);
}

BOOST_AUTO_TEST_CASE(a_connector_that_does_not_load_in_time_is_refused) {
  const Ran ran = run(planted("stuck") + " --timeout 1");
  BOOST_TEST(ran.code == 2, ran.out);
  BOOST_TEST(has(ran.out, "loading it is not over after 1 s [KVC-P-002]"), ran.out);
}

BOOST_AUTO_TEST_CASE(a_connector_that_ends_the_process_that_loads_it_is_refused) {
  const Ran ran = run(planted("dies"));
  BOOST_TEST(ran.code == 2, ran.out);
  BOOST_TEST(has(ran.out, "loading it ends the process by exit code 3 [KVC-P-002]"), ran.out);
}

#if !defined(KVC_SANITIZED)
BOOST_AUTO_TEST_CASE(a_handle_that_close_leaves_behind_is_seen_after_a_thousand_opens) {
  const Json c = one_case("leaks", "open.a_thousand_opens", 1);
  BOOST_TEST(c["result"] == "fail");
  BOOST_TEST(c["rule"] == "KVC-P-020");
  BOOST_TEST(has(c["detail"], "bytes of heap per open and close"));
}
#endif

BOOST_AUTO_TEST_CASE(texts_of_the_connector_are_printed_without_control_characters) {
  BOOST_TEST(printable("a\x1b[31m\xff\n b") == "a\\x1b[31m\\xff\n b");
  const CaseResult result{"open.x", "KVC-P-020", Outcome::fail, "KVC-P-020: \x07", 1};
  BOOST_TEST(has(line_of(result, "again"), "KVC-P-020: \\x07"));
}

BOOST_AUTO_TEST_CASE(help_names_the_exit_codes_and_version_is_printed) {
  BOOST_TEST(has(run("--help").out, "Exit codes: 0 "));
  const Ran version = run("--version");
  BOOST_TEST(version.code == 0);
  BOOST_TEST(version.out.starts_with("kvc-conform "), version.out);
}

BOOST_AUTO_TEST_CASE(a_missing_capability_is_named_and_skipped) {
  const Json c = one_case("right", "queries.events_have_the_engines_keys", 0);
  BOOST_TEST(c["result"] == "skipped");
  BOOST_TEST(has(c["detail"], "KVC_CAP_EVENTS"));
}

#if !defined(KVC_SANITIZED)
BOOST_AUTO_TEST_CASE(heap_inside_a_hot_call_is_seen_with_its_slot) {
  const Json c = one_case("allocates", "memory.hot_calls_use_no_heap", 1);
  BOOST_TEST(c["rule"] == "KVC-P-014");
  BOOST_TEST(has(c["detail"], "has_pending called malloc"));
}
#endif

BOOST_AUTO_TEST_CASE(cases_run_in_this_process_on_request) {
  const Json c = one_case("nameless", "negotiation.the_description_is_static", 1, "--in-process");
  BOOST_TEST(c["rule"] == "KVC-P-023");
}

BOOST_AUTO_TEST_CASE(numbers_are_taken_as_they_stand) {
  for (const std::string wrong : {"--seed -1", "--seed 18446744073709551616", "--seed 1x",
                                  "--jobs 4294967296", "--timeout ''", "--jobs 0", "--timeout 0"}) {
    const Ran ran = run(planted("right") + " --list " + wrong);
    BOOST_TEST(ran.code == 2, wrong + ": " + ran.out);
    BOOST_TEST(has(ran.out, "a whole number from "), ran.out);
  }
  for (const std::string right : {"--seed 0", "--seed 18446744073709551615"}) {
    BOOST_TEST(run(planted("right") + " --list " + right).code == 0, right);
  }
}

BOOST_AUTO_TEST_CASE(an_output_never_takes_the_place_of_an_input) {
  const std::string file = "kvc_conform_test_input";
  std::ofstream(file) << "what is not to be lost";
  for (const std::string output : {"--json ", "--junit "}) {
    for (const std::string& arguments : {file, planted("right") + " --connector-config " + file,
                                         planted("right") + " --fake-device " + file}) {
      const Ran ran = run(arguments + " " + output + "./" + file);
      BOOST_TEST(ran.code == 2, ran.out);
      BOOST_TEST(has(ran.out, output + "and "), ran.out);
      BOOST_TEST(has(ran.out, " both name "), ran.out);
    }
  }
  const Ran both = run(planted("right") + " --json " + file + " --junit " + file);
  BOOST_TEST(both.code == 2);
  BOOST_TEST(has(both.out, "--json and --junit both name " + file), both.out);
  BOOST_TEST(text_of_file(file) == "what is not to be lost");
}

BOOST_AUTO_TEST_CASE(a_stdout_that_is_full_is_no_success) {
  for (const std::string& arguments :
       {std::string("--list"), std::string("--help"), planted("right") + " --only " + extensions}) {
    // What is behind the redirection of run() is that of stderr alone.
    const Ran ran = run(arguments + " 3>&1 >/dev/full 2>&3 3>&- #");
    BOOST_TEST(ran.code == 2, arguments + ": " + ran.out);
    BOOST_TEST(has(ran.out, "kvc-conform: stdout cannot be written"), ran.out);
  }
}

BOOST_AUTO_TEST_CASE(a_device_that_is_none_is_wrong_input) {
  std::ofstream("kvc_conform_test_no_library") << "text";
  for (const char* none : {"/nonexist", "/tmp", "./kvc_conform_test_no_library"}) {
    const Ran ran = run(planted("right") + " --only " + extensions + " --fake-device " + none);
    BOOST_TEST(ran.code == 2, ran.out);
    BOOST_TEST(has(ran.out, std::string("kvc-conform: --fake-device ") + none + ": "), ran.out);
    BOOST_TEST(!has(ran.out, " cases"), ran.out);
  }
}

BOOST_AUTO_TEST_CASE(options_in_a_folder_are_refused) {
  const Ran ran = run(planted("right") + " --connector-config /tmp");
  BOOST_TEST(ran.code == 2, ran.out);
  BOOST_TEST(has(ran.out, "/tmp: cannot be read: Is a directory"), ran.out);
}

BOOST_AUTO_TEST_CASE(options_that_the_connector_refuses_are_wrong_input) {
  std::ofstream("kvc_conform_test_wrong.toml") << "[host]\nblock = 24\n";
  const std::string only = " --only '^open' --connector-config kvc_conform_test_wrong.toml";
  const Ran ran = run(std::string(KVC_LIB_DIR) + "/libkvc_simple_cpu.so" + only);
  BOOST_TEST(ran.code == 2, ran.out);
  BOOST_TEST(has(ran.out, "simple_cpu with the options of kvc_conform_test_wrong.toml: "), ran.out);
  BOOST_TEST(has(ran.out, "unknown key \"block\""), ran.out);
  // A connector that opens with nothing at all is judged.
  BOOST_TEST(run(planted("declines") + only).code == 1);
}

BOOST_AUTO_TEST_CASE(broken_requirements_are_counted_at_the_end) {
  const Ran ran = run(planted("nameless") + " --only '^negotiation.the_description'");
  BOOST_TEST(has(ran.out, "\nKVC-P-023 in 1 case: "), ran.out);
}

BOOST_AUTO_TEST_CASE(the_command_that_repeats_a_case_is_for_a_shell) {
  const std::string path = "kvc conform's test.so";
  std::remove(path.c_str());
  std::filesystem::copy_file(planted("nameless"), path);
  const Ran ran = run("\"./" + path + "\" --only '^negotiation.the_description_is_static$'");
  BOOST_TEST(has(ran.out, " './kvc conform'\\''s test.so' --only "), ran.out);
}

BOOST_AUTO_TEST_CASE(the_report_follows_its_schema) {
  const Ran ran = run(planted("nameless") +
                      " --only '^negotiation' --json kvc_conform_test.json --junit "
                      "kvc_conform_test.xml");
  BOOST_TEST(ran.code == 1);
  BOOST_TEST(has(ran.out, "again: "));
  BOOST_TEST(has(ran.out, "5 cases in "));
  const Json r = Json::parse(text_of_file("kvc_conform_test.json"));
  BOOST_TEST(r.size() == 4U);
  BOOST_TEST(r["schema"] == "kvc.conform/1");
  for (const char* name : {"name", "version", "build_id", "path"}) {
    BOOST_TEST(r["plugin"][name].is_string());
  }
  std::map<std::string, std::uint64_t> seen;
  const std::set<std::string> words = {"pass",      "fail",    "crashed",
                                       "timed_out", "skipped", "warning"};
  for (const Json& c : r["cases"]) {
    BOOST_TEST(c.size() == 5U);
    BOOST_TEST(c["id"].get<std::string>().starts_with("negotiation."));
    BOOST_TEST((rules::find_rule(c["rule"].get<std::string>()) != nullptr));
    BOOST_TEST(words.count(c["result"].get<std::string>()) == 1U);
    BOOST_TEST(c["detail"].is_string());
    BOOST_TEST(c["ms"].is_number_unsigned());
    ++seen[c["result"]];
  }
  const Json& s = r["summary"];
  BOOST_TEST(s.size() == 5U);
  BOOST_TEST(s["passed"] == seen["pass"] + seen["warning"]);
  BOOST_TEST(s["failed"] == seen["fail"]);
  BOOST_TEST(s["crashed"] == 0U);
  BOOST_TEST(s["timed_out"] == 0U);
  BOOST_TEST(s["skipped"] == seen["skipped"]);
  const std::string xml = text_of_file("kvc_conform_test.xml");
  BOOST_TEST(has(xml, "<testsuite name=\"kvc-conform \" tests=\"5\" failures=\"1\" errors=\"0\""));
  BOOST_TEST(has(xml, "<failure type=\"KVC-P-023\""));
  BOOST_TEST(has(xml, "</testsuite>"));
}

BOOST_AUTO_TEST_CASE(wrong_input_exits_2_and_names_the_rule_of_a_refused_library) {
  const std::string lib = KVC_LIB_DIR;
  const std::pair<std::string, std::string> rows[] = {
      {"", "which connector"},
      {"nowhere.so", "no such file"},
      {lib + "/libkvc_loader_no_symbol.so", "KVC-L-001"},
      {lib + "/libkvc_loader_other_major.so", "KVC-L-001"},
      {lib + "/libkvc_loader_small_table.so", "KVC-L-003"},
      {lib + "/libkvc_loader_null_slot.so", "KVC-L-004"},
      {lib + "/libkvc_loader_empty_capability.so", "KVC-L-005"},
      {planted("right") + " --only nothing_like_it", "matches no case"},
      {planted("right") + " --only '('", "no regular expression"},
      {planted("right") + " --connector-config nowhere.toml", "nowhere.toml"},
      {planted("right") + " --jsn x", "--json"},
  };
  for (const auto& [arguments, part] : rows) {
    const Ran ran = run(arguments);
    BOOST_TEST(ran.code == 2, arguments);
    BOOST_TEST(has(ran.out, part), ran.out);
  }
}

BOOST_AUTO_TEST_CASE(the_list_has_every_case_with_its_rule) {
  const Ran ran = run("--list");
  BOOST_TEST(ran.code == 0);
  std::set<std::string_view> ids;
  for (const Case& c : all_cases()) {
    BOOST_TEST(ids.insert(c.id).second, c.id);
    BOOST_TEST(has(ran.out, std::string(c.id) + " " + std::string(c.rule.text()) + " "));
  }
  BOOST_TEST(ids.size() >= 100U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::conform
