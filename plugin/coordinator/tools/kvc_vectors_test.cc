// The tool as a user runs it: exit codes, last line, messages.
#include <sys/wait.h>
#include <unistd.h>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

struct Ran {
  int code = -1;
  std::string out;
  [[nodiscard]] std::string last_line() const {
    const auto end = out.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const auto begin = out.rfind('\n', end);
    return out.substr(begin == std::string::npos ? 0 : begin + 1,
                      end - (begin == std::string::npos ? -1UL : begin));
  }
  [[nodiscard]] bool says(const char* word) const { return out.find(word) != std::string::npos; }
};

// A folder of its own for each case, removed at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("kvc_vectors_test." + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string write(const std::string& text) const {
    const fs::path file = path / "v.jsonl";
    std::ofstream(file) << text;
    return file.string();
  }
};

Ran run(const std::string& arguments) {
  Ran r;
  std::FILE* pipe =
      ::popen((std::string(KVC_BIN_DIR "/kvc-vectors ") + arguments + " 2>&1").c_str(), "r");
  BOOST_REQUIRE(pipe != nullptr);
  char buffer[4096];
  for (std::size_t n; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    r.out.append(buffer, n);
  const int status = ::pclose(pipe);
  r.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return r;
}

// V1 of the measured table, with what stands for `hit`.
std::string row(const std::string& hit, const std::string& extra = "") {
  return R"({"name":"v1","hash_block":528,"scheduler_block":528,"dcp":1,"fine_hits_allowed":true,"prompt_tokens":2200,)"
         R"("groups":[{"kind":"full","block":528,"held":[528,1056,1584]},)"
         R"({"kind":"mamba","block":528,"mode":"align","held":[1584]}],)"
         R"("expect":{"hit_tokens":)" +
         hit + R"(,"fine_hits":false,"group_block_tokens":[528,528],"slots":[3,3],"real":[3,1],)" +
         R"("uncached_common_prefix_tokens":0,"best_hit_tokens":)" + hit + extra + "}}\n";
}

BOOST_AUTO_TEST_SUITE(kvc_vectors_tool)

BOOST_AUTO_TEST_CASE(a_right_row_passes_with_exit_code_0) {
  const Folder folder;
  const Ran r = run(folder.write(row("1584") + "\n" + row("1584")));
  BOOST_TEST(r.code == 0);
  BOOST_TEST(r.last_line() == "2 passed, 0 failed");
}

BOOST_AUTO_TEST_CASE(a_wrong_row_fails_with_exit_code_1_and_says_why) {
  const Folder folder;
  const Ran r = run(folder.write(row("1584") + row("1056")));
  BOOST_TEST(r.code == 1);
  BOOST_TEST(r.last_line() == "1 passed, 1 failed");
  BOOST_TEST(r.says("v1 (line 2): hit 1584 is not in [1056, 1056]"));
}

BOOST_AUTO_TEST_CASE(a_layout_recorded_as_refused_must_be_refused_with_its_numbers) {
  const Folder folder;
  const std::string groups =
      R"("groups":[{"kind":"full","block":96,"held":[96]}],"expect":{"refused":"no"}})";
  const Ran r = run(folder.write(
      R"({"name":"r","hash_block":16,"scheduler_block":96,"dcp":1,"fine_hits_allowed":true,"prompt_tokens":200,)" +
      groups + "\n"));
  BOOST_TEST(r.code == 0);
  const Ran answered = run(folder.write(
      R"({"name":"r","hash_block":96,"scheduler_block":96,"dcp":1,"fine_hits_allowed":true,"prompt_tokens":200,)" +
      groups + "\n"));
  BOOST_TEST(answered.code == 0);  // supported instead, equal to brute force
}

BOOST_AUTO_TEST_CASE(an_output_never_takes_the_place_of_the_input) {
  const Folder folder;
  const std::string file = folder.write("not to be lost\n");
  const Ran r = run(file + " --json " + file);
  BOOST_TEST(r.code == 2, r.out);
  BOOST_TEST(r.says("--json and FILE both name "), r.out);
  BOOST_TEST(fs::file_size(file) == 15U);
}

BOOST_AUTO_TEST_CASE(a_stdout_that_is_full_is_no_success) {
  const Ran r = run("--help 3>&1 >/dev/full 2>&3 3>&- #");
  BOOST_TEST(r.code == 2, r.out);
  BOOST_TEST(r.says("kvc-vectors: stdout cannot be written"), r.out);
}

BOOST_AUTO_TEST_CASE(an_empty_file_is_no_success) {
  const Folder folder;
  const Ran r = run(folder.write(""));
  BOOST_TEST(r.code == 1);
  BOOST_TEST(r.last_line() == "0 passed, 0 failed");
  BOOST_TEST(r.says("no lookup in it"));
}

BOOST_AUTO_TEST_CASE(unreadable_files_and_lines_are_exit_code_2_naming_them) {
  const Folder folder;
  BOOST_TEST(run((folder.path / "absent.jsonl").string()).code == 2);
  BOOST_TEST(run((folder.path / "absent.jsonl").string()).says("absent.jsonl"));
  BOOST_TEST(run("").code == 2);
  BOOST_TEST(run("--nonsense x").code == 2);
  BOOST_TEST(run(folder.path.string()).code == 2);  // a folder
  for (const std::string& bad :
       {std::string("{\"name\": \"cut"), std::string("[]"), std::string("7"), std::string("{}"),
        row("-1"), row("1584").replace(row("1584").find("mamba"), 5, "mumba"),
        row("1584").replace(row("1584").find("1056,1584"), 4, "1057")}) {
    const Ran r = run(folder.write(row("1584") + bad + "\n"));
    BOOST_TEST_INFO_SCOPE(r.out);
    BOOST_TEST(r.code == 2);
    BOOST_TEST(r.says("v.jsonl:2: "));
    BOOST_TEST(!r.says("json.exception"));
  }
  const Ran cut = run(folder.write(row("1584") + "{\"name\": \"cut"));
  BOOST_TEST(cut.says("not a JSON object: wrong at byte"));
  BOOST_TEST(cut.says("it may be cut"));
}

BOOST_AUTO_TEST_CASE(a_slip_in_an_option_is_named_in_one_line_before_what_is_missing) {
  const auto refused = [](const std::string& arguments, const std::string& why) {
    const Ran r = run(arguments);
    BOOST_TEST(r.code == 2);
    BOOST_TEST(r.out == "kvc-vectors: " + why + " (see kvc-vectors --help)\n");
  };
  refused("--jsn out.json", "unknown option --jsn; did you mean --json?");
  refused("--jsn=out.json v.jsonl", "unknown option --jsn; did you mean --json?");
  refused("", "FILE is required");
  refused("--json out.json", "FILE is required");
  refused("a.jsonl b.jsonl", "unexpected argument \"b.jsonl\"");
}

BOOST_AUTO_TEST_CASE(help_explains_every_field_the_exit_codes_and_an_example_that_runs) {
  const Ran r = run("--help");
  BOOST_TEST(r.code == 0);
  // Each field of a row that passes is explained.
  const auto explained = [&](const nlohmann::json& object, const auto& self) -> void {
    for (const auto& [key, value] : object.items()) {
      BOOST_TEST(r.says(key.c_str()), "no " << key);
      if (value.is_object()) self(value, self);
      if (value.is_array() && !value.empty() && value[0].is_object()) self(value[0], self);
    }
  };
  explained(nlohmann::json::parse(row("1584")), explained);
  for (const char* word : {"window", "mode", "eagle", "refused", "Exit codes: 0"})
    BOOST_TEST(r.says(word), "no " << word);
  BOOST_TEST(r.says("kvc-vectors conformance/corpus/vectors/lookup_vllm.jsonl"));
}

BOOST_AUTO_TEST_CASE(verdicts_are_written_as_json) {
  const Folder folder;
  const std::string out = (folder.path / "out.json").string();
  BOOST_TEST(run(folder.write(row("1584") + row("1056")) + " --json " + out).code == 1);
  const auto j = nlohmann::json::parse(std::ifstream(out));
  BOOST_TEST(j["schema"].get<std::string>() == "kvc.vectors/1");
  BOOST_TEST(j["passed"].get<int>() == 1);
  BOOST_TEST(j["rows"][1]["passed"].get<bool>() == false);
  BOOST_TEST(j["rows"][1]["hit_tokens"].get<int>() == 1584);
  BOOST_TEST(run(folder.write(row("1584")) + " --json /nonexistent/out.json").code == 2);
}

BOOST_AUTO_TEST_CASE(all_recorded_lookups_pass) {
  const Ran r = run(KVC_CORPUS "/vectors/lookup_vllm.jsonl");
  BOOST_TEST(r.code == 0);
  BOOST_TEST(r.last_line() == "1500 passed, 0 failed");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
