// The built kvc-run refuses every kind of wrong input with one line and exit code 2.
#include <boost/test/unit_test.hpp>
#include <fstream>

#include "host_stub/tools/run_program_test.h"

namespace kvc::host {
namespace {

struct Refusal : ProgramFolder {
  // The arguments of a run that would work, without connector.
  [[nodiscard]] std::vector<std::string> good() const {
    return {"--connector", "none", "--model", model("llama"), "--trace", "gen:chat?requests=4"};
  }
  // `good` with the value of `option` replaced, or the option added.
  [[nodiscard]] std::vector<std::string> with(const std::string& option,
                                              const std::string& value) const {
    std::vector<std::string> args = good();
    for (std::size_t i = 0; i + 1 < args.size(); i += 2) {
      if (args[i] != option) continue;
      args[i + 1] = value;
      return args;
    }
    args.push_back(option);
    args.push_back(value);
    return args;
  }
  [[nodiscard]] std::string file(const std::string& name, const std::string& content) const {
    std::ofstream((folder / name).string()) << content;
    return (folder / name).string();
  }
  // One line on stderr that contains all of `parts`, nothing on stdout, exit code 2, no file left.
  void check_refused(const std::vector<std::string>& args, const std::vector<std::string>& parts) {
    const Outcome out = run_program(args);
    BOOST_TEST_CONTEXT(out.command << "\n" << out.err) {
      BOOST_TEST(out.code == 2);
      BOOST_TEST(out.out.empty());
      BOOST_TEST(std::count(out.err.begin(), out.err.end(), '\n') == 1);
      BOOST_TEST(out.err.starts_with("kvc-run: "));
      for (const std::string& part : parts) {
        BOOST_TEST(out.err.find(part) != std::string::npos, "no \"" << part << "\" in " << out.err);
      }
    }
  }
};

BOOST_FIXTURE_TEST_SUITE(kvc_run_refusals, Refusal)

BOOST_AUTO_TEST_CASE(a_connector_that_ends_the_process_is_no_success) {
  const Outcome out = run_program(with("--connector", library("kvc_planted_gone")));
  BOOST_TEST(out.code == 1);
  BOOST_TEST(out.err == "kvc-run: the connector ended the process\n");
}

BOOST_AUTO_TEST_CASE(options_that_the_program_wrote_are_named_as_its_own) {
  std::vector<std::string> args = with("--connector", library("kvc_minimal_connector"));
  args.insert(args.end(), {"--host-blocks", "9"});
  check_refused(args, {"(--host-blocks wrote [host] blocks = 9 into its options)"});
}

BOOST_AUTO_TEST_CASE(layers_of_a_connector_without_the_extension_are_a_warning_alone) {
  std::vector<std::string> args = with("--connector", library("kvc_minimal_connector"));
  args.insert(args.end(), {"--layerwise", "4"});
  const Outcome out = run_program(args);
  BOOST_TEST(out.code == 0, out.err);
  BOOST_TEST(out.err.find("has no kvc.layerwise/1: loads are waited for") != std::string::npos,
             out.err);
  BOOST_TEST(out.out.find("layers, read in the step") == std::string::npos, out.out);
}

BOOST_AUTO_TEST_CASE(numbers_out_of_range_are_refused_with_what_is_allowed) {
  check_refused(with("--limit", "0"), {"--limit", "\"0\"", "from 1 to"});
  check_refused(with("--limit", "-5"), {"--limit", "\"-5\"", "from 1 to"});
  check_refused(with("--limit", "ten"), {"--limit", "\"ten\""});
  check_refused(with("--limit", "1.5"), {"--limit", "\"1.5\""});
  check_refused(with("--limit", "99999999999999999999"), {"--limit"});
  check_refused(with("--device-blocks", "-1"), {"--device-blocks", "0 is unlimited"});
  check_refused(with("--host-blocks", "1"), {"--host-blocks", "from 2 to"});
  check_refused(with("--max-running", "0"), {"--max-running", "from 1 to"});
  check_refused(with("--token-budget", "0"), {"--token-budget", "from 1 to"});
  check_refused(with("--ranks", "0"), {"--ranks", "from 1 to"});
  check_refused(with("--steps-in-flight", "0"), {"--steps-in-flight", "from 1 to"});
  check_refused(with("--seed", "-1"), {"--seed"});
  for (const char* priority : {"3", "-3", "1.5", "", "high"}) {
    check_refused(with("--hint-priority", priority), {"--hint-priority"});
  }
  check_refused(with("--hint-priority", "3"), {"\"3\"", "-2 to 2"});
  check_refused(with("--hint-ttl", "0"), {"--hint-ttl", "from 1 to"});
  check_refused(with("--hint-pin-tokens", "0"), {"--hint-pin-tokens", "from 1 to"});
  check_refused(with("--hint-every", "0"), {"--hint-every", "from 1 to"});
}

BOOST_AUTO_TEST_CASE(words_that_are_no_choice_are_refused_with_the_choices) {
  check_refused(with("--passes", "cold,warm"), {"--passes", "\"warm\"", "cold, replay"});
  check_refused(with("--passes", ""), {"--passes"});
  check_refused(with("--passes", "cold,"), {"--passes"});
  check_refused(with("--device-cache", "maybe"), {"--device-cache", "\"maybe\"", "on or off"});
  check_refused(with("--reserve", "maybe"), {"--reserve", "\"maybe\"", "on or off"});
  check_refused(with("--no-such-option", "1"), {"--no-such-option"});
}

BOOST_AUTO_TEST_CASE(missing_options_are_named) {
  check_refused({}, {"--connector is required"});
  check_refused({"--connector", "none"}, {"--model is required"});
  check_refused({"--connector", "none", "--model", model("llama")}, {"--trace is required"});
  check_refused(with("--json", ""), {"--json"});
}

BOOST_AUTO_TEST_CASE(a_mistyped_option_is_named_before_one_that_is_missing_with_the_nearest_name) {
  check_refused({"--conector", "none", "--model", model("llama")},
                {"unknown option --conector; did you mean --connector?"});
  check_refused({"--modl=x"}, {"unknown option --modl; did you mean --model?"});
  check_refused({"-connector", "none"}, {"unknown option -connector; did you mean --connector?"});
  check_refused(with("--host-block", "7"), {"did you mean --host-blocks?"});
  // The wrong value is that of another option.
  check_refused({"--lmit", "--limit", "ten"}, {"unknown option --lmit; did you mean --limit?"});
  std::vector<std::string> args = with("--frobnicate", "1");
  check_refused(args, {"unknown option --frobnicate (see kvc-run --help)"});
  args = good();
  args.emplace_back("stray");
  check_refused(args, {"unexpected argument \"stray\""});
}

BOOST_AUTO_TEST_CASE(missing_files_are_named) {
  check_refused(with("--model", "no/model.toml"), {"no/model.toml"});
  check_refused(with("--trace", "no/trace.jsonl"), {"no/trace.jsonl"});
  check_refused(with("--connector", "no/lib.so"), {"no/lib.so"});
  check_refused(with("--json", "no/out.json"), {"no/out.json"});
  check_refused(with("--plot", "no/out.svg"), {"no/out.svg"});
  check_refused(with("--json", folder.string()), {folder.string(), "directory"});
}

BOOST_AUTO_TEST_CASE(a_bad_trace_row_is_named_by_file_and_line_and_nothing_is_written) {
  const std::string row =
      R"({"timestamp": 0, "input_length": 20, "output_length": 2, "hash_ids": [1]})";
  const std::string cut = file("cut.jsonl", row + "\n" + row.substr(0, 40));
  std::vector<std::string> args = with("--trace", cut);
  args.insert(args.end(), {"--json", (folder / "out.json").string()});
  check_refused(args, {"cut.jsonl:2"});
  BOOST_TEST(!boost::filesystem::exists(folder / "out.json"));
  const std::string negative =
      R"({"timestamp": 0, "input_length": -20, "output_length": 2, "hash_ids": [1]})";
  check_refused(with("--trace", file("negative.jsonl", row + "\n" + row + "\n" + negative + "\n")),
                {"negative.jsonl:3", "input_length"});
  check_refused(with("--trace", file("empty.jsonl", "")), {"empty.jsonl"});
  check_refused(with("--trace", "gen:nothing"), {"nothing"});
}

BOOST_AUTO_TEST_CASE(wrong_toml_is_named_by_file_line_and_key) {
  check_refused(with("--model", file("syntax.toml", "[model]\nname = \n")), {"syntax.toml:2"});
  check_refused(with("--model", file("key.toml", "[model]\nname = \"a\"\nhash_unitt = 16\n")),
                {"key.toml:3", "hash_unitt", "hash_unit"});
}

BOOST_AUTO_TEST_CASE(libraries_that_are_no_connector_are_named) {
  check_refused(with("--connector", "no/lib.so"),
                {"cannot load connector no/lib.so: there is no such file\n"});
  check_refused(with("--connector", folder.string()), {folder.string() + ": it is a directory\n"});
  check_refused(with("--connector", file("text.so", "not a library\n")),
                {"cannot load connector " + folder.string() + "/text.so: file too short\n"});
  check_refused(with("--connector", library("kvc_loader_no_symbol")),
                {"no_symbol", "kvc_plugin_entry_v1"});
  check_refused(with("--connector", library("kvc_loader_other_major")),
                {"other_major", "major version"});
  check_refused(with("--connector", library("kvc_loader_small_table")), {"small_table", "bytes"});
  check_refused(with("--connector", library("kvc_loader_null_slot")), {"null_slot", "NULL"});
}

BOOST_AUTO_TEST_CASE(combinations_that_cannot_be_are_refused) {
  std::vector<std::string> args = with("--model", model("kimi-k3"));
  args.insert(args.end(), {"--ranks", "3"});
  check_refused(args, {"--ranks", "3", "8"});
  args = with("--json", (folder / "a").string());
  args.insert(args.end(), {"--plot", (folder / "a").string()});
  check_refused(args, {"--json", "--plot"});
}

BOOST_AUTO_TEST_CASE(an_output_never_takes_the_place_of_an_input) {
  const std::string in = file("in", "what is not to be lost");
  const std::string link = (folder / "link").string();
  boost::filesystem::create_symlink(in, link);
  for (const std::string output : {"--json", "--plot"}) {
    for (const std::string input :
         {"--trace", "--connector-config", "--model", "--connector", "--fake-device"}) {
      for (const std::string& path : {in, link, (folder / "." / "in").string()}) {
        std::vector<std::string> args = with(input, in);
        args.insert(args.end(), {output, path});
        check_refused(args, {output + " and " + input + " both name " + in});
      }
    }
  }
  BOOST_TEST(text_of("in") == "what is not to be lost");
}

BOOST_AUTO_TEST_CASE(a_stdout_that_is_full_is_no_success) {
  BOOST_TEST(wrong_at_a_full_stdout(good(), "kvc-run", 1) == "");
  std::vector<std::string> args = good();
  args.emplace_back("--print-config");
  BOOST_TEST(wrong_at_a_full_stdout(args, "kvc-run", 1) == "");
  BOOST_TEST(wrong_at_a_full_stdout({"--help"}, "kvc-run", 1) == "");
}

BOOST_AUTO_TEST_CASE(options_about_what_is_not_there_are_refused) {
  check_refused(with("--metrics-linger", "5"), {"--metrics-linger needs --metrics-port"});
  check_refused(with("--device-seed", "2"), {"--device-seed needs --fake-device"});
  check_refused(with("--layerwise", "4"), {"--layerwise needs a connector"});
  check_refused(with("--turns", "continued"), {"--turns continued", "gen:chat?requests=4"});
  check_refused(with("--trace", "gen:chat?seed=1&seed=2"), {"seed is given twice"});
}

BOOST_AUTO_TEST_CASE(a_device_pool_that_cannot_hold_the_longest_request_is_refused) {
  check_refused(with("--device-blocks", "1"), {"--device-blocks"});
  const std::string row =
      R"({"timestamp": 0, "input_length": 1024, "output_length": 2, "hash_ids": [1, 2]})";
  std::vector<std::string> args = with("--trace", file("long.jsonl", row + "\n"));
  args.insert(args.end(), {"--device-blocks", "20"});
  check_refused(args, {"--device-blocks", "20", "1026"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
