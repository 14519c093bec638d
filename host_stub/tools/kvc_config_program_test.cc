// kvc-config as a program: what it says of good, doubtful and wrong files.
#include <boost/test/unit_test.hpp>

#include "host_stub/tools/run_program_test.h"

namespace kvc::host {
namespace {

struct WithFile : ProgramFolder {
  [[nodiscard]] std::string file(const std::string& text) const {
    std::ofstream((folder / "c.toml").string()) << text;
    return (folder / "c.toml").string();
  }
  [[nodiscard]] Outcome run(std::vector<std::string> args) const {
    return run_program(args, "kvc-config");
  }
  // A pool of so many blocks on the model.
  [[nodiscard]] Outcome on(const std::string& name, const std::string& blocks,
                           std::vector<std::string> more = {}) const {
    std::vector<std::string> args{
        "check",
        file("[connector]\nkind = \"simple_cpu\"\n[host]\nblocks = " + blocks + "\n"),
        "--model",
        model(name),
        "--bytes-per-token",
        "512"};
    args.insert(args.end(), more.begin(), more.end());
    return run(args);
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }
};

BOOST_FIXTURE_TEST_SUITE(kvc_config_program, WithFile)

BOOST_AUTO_TEST_CASE(every_example_is_right) {
  const boost::filesystem::path examples = std::string(KVC_SOURCE_DIR) + "/config/examples";
  std::size_t files = 0;
  for (const auto& entry : boost::filesystem::directory_iterator(examples)) {
    if (entry.path().extension() != ".toml") continue;
    const Outcome out = run({"check", entry.path().string(), "--strict"});
    BOOST_TEST(out.code == 0, entry.path().string() << ": " << out.out << out.err);
    BOOST_TEST(has(out.out, ": right, options of "), out.out);
    ++files;
  }
  BOOST_TEST(files >= 3U);
}

BOOST_AUTO_TEST_CASE(a_stdout_that_is_full_is_no_success) {
  const std::string right = file("[connector]\nkind = \"simple_cpu\"\n");
  BOOST_TEST(wrong_at_a_full_stdout({"show", right}, "kvc-config", 2) == "");
}

BOOST_AUTO_TEST_CASE(the_version_is_told) { BOOST_TEST(wrong_version("kvc-config") == ""); }

BOOST_AUTO_TEST_CASE(show_prints_every_value) {
  const Outcome out = run({"show", file("[connector]\nkind = \"simple_cpu\"\nlease_steps = 3\n")});
  BOOST_TEST(out.code == 0, out.err);
  BOOST_TEST(has(out.out, "lease_steps = 3\nmax_leases = 64\nmax_pins = 32\n"), out.out);
}

BOOST_AUTO_TEST_CASE(a_wrong_file_is_code_1_with_its_place) {
  const Outcome out =
      run({"check", file("[connector]\nkind = \"simple_cpu\"\nlease_stepps = 3\n")});
  BOOST_TEST(out.code == 1, out.out);
  BOOST_TEST(has(out.err, "c.toml:3:"), out.err);
  BOOST_TEST(has(out.err, "lease_steps"), out.err);
  BOOST_TEST(run({"check", file("")}).code == 1);
  const Outcome table = run({"check", file("[conector]\nkind = \"simple_cpu\"\n")});
  BOOST_TEST(has(table.err, "did you mean \"connector\"?"), table.err);
}

BOOST_AUTO_TEST_CASE(wrong_input_is_code_2) {
  BOOST_TEST(run({}).code == 2);
  BOOST_TEST(run({"look", file("")}).code == 2);
  BOOST_TEST(run({"check"}).code == 2);
  BOOST_TEST(run({"check", "/nowhere.toml"}).code == 2);
  BOOST_TEST(on("llama", "100", {"--prompt-tokens", "0"}).code == 2);
  for (const char* many : {"18446744073709551615", "134217729"}) {
    const Outcome out = on("llama", "100", {"--prompt-tokens", many});
    BOOST_TEST(out.code == 2);
    BOOST_TEST(has(out.err, "--prompt-tokens"), out.err);
    BOOST_TEST(has(out.err, "a whole number from 1 to 134217728 is"), out.err);
  }
  BOOST_TEST(on("llama", "100", {"--promt-tokens", "9"}).code == 2);
  BOOST_TEST(on("llama", "100", {"--connector", "/nowhere.so"}).code == 2);
  const Outcome slip = on("llama", "100", {"--promt-tokens", "9"});
  BOOST_TEST(has(slip.err, "--prompt-tokens"), slip.err);
}

// llama: blocks of 16 tokens of full attention. The connector itself says how many it holds.
BOOST_AUTO_TEST_CASE(a_pool_is_measured_in_bytes_blocks_and_tokens) {
  const Outcome out = on("llama", "2048", {"--prompt-tokens", "4096"});
  BOOST_TEST(out.code == 0, out.err);
  BOOST_TEST(has(out.out, "the pool: 2048 blocks, 16.0 MiB on each rank\n"), out.out);
  BOOST_TEST(has(out.out, "it holds 8.0 hits of 4096 tokens (256 blocks each): 32768 tokens\n"),
             out.out);
  BOOST_TEST(out.err == "");
}

// Four blocks share a slot: the pool counts in chunks, its numbers are of blocks.
BOOST_AUTO_TEST_CASE(a_pool_of_chunks_is_measured_in_blocks) {
  const auto on_chunks = [&](const std::string& chunk) {
    return run({"check",
                file("[connector]\nkind = \"offloading\"\nblocks_per_chunk = " + chunk +
                     "\n[host]\nbytes = \"16MiB\"\n"),
                "--model", model("llama"), "--prompt-tokens", "4096", "--bytes-per-token", "512"});
  };
  const Outcome one = on_chunks("1");
  BOOST_TEST(has(one.out, "the pool: 2048 blocks, 16.0 MiB on each rank\n"), one.out << one.err);
  const Outcome four = on_chunks("4");
  BOOST_TEST(has(four.out, "the pool: 2048 blocks in 512 chunks of 4, 16.0 MiB on each rank\n"),
             four.out << four.err);
  for (const Outcome& out : {one, four}) {
    BOOST_TEST(has(out.out, "it holds 8.0 hits of 4096 tokens (256 blocks each): 32768 tokens\n"),
               out.out);
    BOOST_TEST(out.err == "");
  }
  // 65 blocks lie in 17 chunks.
  const Outcome odd =
      run({"check",
           file("[connector]\nkind = \"offloading\"\nblocks_per_chunk = 4\n[host]\n"
                "bytes = \"16MiB\"\n"),
           "--model", model("llama"), "--prompt-tokens", "1040", "--bytes-per-token", "512"});
  BOOST_TEST(has(odd.out, "(68 blocks each)"), odd.out << odd.err);
}

// A place of docs/formats/disk.md: 256 + 16 * 512 bytes up to a multiple of 4096, and a record of
// 128: 12416 bytes. 64 KiB a path are no blocks'.
BOOST_AUTO_TEST_CASE(a_disk_tier_is_counted_and_its_folders_are_left_alone) {
  const std::string folder_text = (folder / "tier").string();
  const auto with_disk = [&](const std::string& kind, const std::string& chunk,
                             const std::string& bytes) {
    return run({"check",
                file("[connector]\nkind = \"" + kind + "\"\n" + chunk +
                     "[host]\nbytes = \"16MiB\"\n[disk]\npaths = [\"" + folder_text +
                     "\"]\nbytes = " + bytes + "\n"),
                "--model", model("llama"), "--prompt-tokens", "4096", "--bytes-per-token", "512",
                "--strict"});
  };
  for (const std::string kind : {"simple_cpu", "offloading"}) {
    const Outcome out = with_disk(kind, "", std::to_string(12'416 * 2'560 + 65'536));
    BOOST_TEST(out.code == 0, out.err);
    BOOST_TEST(has(out.out,
                   "the disk tier: not opened, its folders were not looked at; 30.4 MiB in 1 path "
                   "on each rank would hold 2560 blocks, 12.1 KiB each\n"),
               out.out);
    BOOST_TEST(
        has(out.out, "it would hold 10.0 hits of 4096 tokens (3.03 MiB each): 40960 tokens\n"),
        out.out);
  }
  // Four blocks and their header: 36864 bytes.
  const Outcome four =
      with_disk("offloading", "blocks_per_chunk = 4\n", std::to_string(36'992 * 640 + 65'536));
  BOOST_TEST(has(four.out, "would hold 2560 blocks, 36.1 KiB for 4 of them\n"),
             four.out << four.err);
  BOOST_TEST(has(four.out, "it would hold 10.0 hits of 4096 tokens"), four.out);
  // As many bytes as the host pool, and fewer blocks.
  const Outcome fewer = with_disk("simple_cpu", "", "\"16MiB\"");
  BOOST_TEST(fewer.code == 1);
  BOOST_TEST(
      has(fewer.err, "holds 1345 blocks, the host pool 2048: 8192 bytes of blocks take 12416"),
      fewer.err);
  BOOST_TEST(!boost::filesystem::exists(folder_text));
  BOOST_TEST(!has(on("llama", "2048", {"--prompt-tokens", "4096"}).out, "disk"));
}

// What the connector refuses where it has the tier opened.
BOOST_AUTO_TEST_CASE(a_disk_tier_without_room_for_two_blocks_is_code_1) {
  const Outcome out = run(
      {"check",
       file("[connector]\nkind = \"simple_cpu\"\n[host]\nbytes = \"64MiB\"\n[disk]\npaths = [\"" +
            (folder / "tier").string() + "\"]\nbytes = \"1MiB\"\n"),
       "--model", model("llama"), "--prompt-tokens", "64", "--bytes-per-token", "65536"});
  BOOST_TEST(out.code == 1, out.out);
  BOOST_TEST(has(out.err,
                 "[disk] bytes = 1048576 in 1 path is 983040 for blocks, and has no room "
                 "for 2 of every group, which take 2105600"),
             out.err);
}

BOOST_AUTO_TEST_CASE(the_table_of_the_layer_is_accepted) {
  const std::string text =
      "[layer]\nnext = \"build/dev/lib/libkvc_simple_cpu.so\"\n"
      "findings = \"findings.jsonl\"\n\n[connector]\nkind = \"simple_cpu\"\n"
      "[host]\nblocks = 9000\n";
  const Outcome out = run({"check", file(text), "--model", model("llama"), "--bytes-per-token",
                           "512", "--prompt-tokens", "4096", "--strict"});
  BOOST_TEST(out.code == 0, out.err);
  BOOST_TEST(run({"check", file("[layer]\nnxt = \"x\"\n")}).code == 1);
}

BOOST_AUTO_TEST_CASE(the_bytes_of_a_token_that_nobody_said_are_told) {
  const Outcome out =
      run({"check", file("[connector]\nkind = \"simple_cpu\"\n"), "--model", model("llama")});
  BOOST_TEST(out.code == 0);
  BOOST_TEST(has(out.err, "warning: a token counts as 8 bytes in one group on one rank"), out.err);
}

BOOST_AUTO_TEST_CASE(the_library_says_the_kind_and_must_be_of_the_files) {
  const std::string library = ProgramFolder::library("kvc_simple_cpu");
  const Outcome empty = run({"check", file(""), "--connector", library});
  BOOST_TEST(empty.code == 0, empty.err);
  BOOST_TEST(has(empty.out, "right, options of simple_cpu"), empty.out);
  const Outcome other =
      run({"check", file("[connector]\nkind = \"offloading\"\n"), "--connector", library});
  BOOST_TEST(other.code == 1);
  BOOST_TEST(has(other.err, "connector.kind = \"offloading\", but " + library + " is simple_cpu"),
             other.err);
}

BOOST_AUTO_TEST_CASE(questions_about_a_model_need_one) {
  for (const char* name : {"--prompt-tokens", "--bytes-per-token", "--ranks", "--device-blocks"}) {
    const Outcome out = run({"check", file("[connector]\nkind = \"simple_cpu\"\n"), name, "9"});
    BOOST_TEST(out.code == 2);
    BOOST_TEST(has(out.err, std::string(name) + " needs --model"), out.err);
  }
  BOOST_TEST(has(run({"--help"}).out, "Exit codes: 0 "));
}

// It parses, and is too small for the model: the file is at fault.
BOOST_AUTO_TEST_CASE(options_that_the_connector_refuses_are_code_1) {
  const Outcome out =
      run({"check", file("[connector]\nkind = \"simple_cpu\"\n[host]\nbytes = \"1KiB\"\n"),
           "--model", model("llama"), "--bytes-per-token", "512"});
  BOOST_TEST(out.code == 1, out.out);
  BOOST_TEST(has(out.err, "kvc-config: connector "), out.err);
}

BOOST_AUTO_TEST_CASE(what_cannot_work_is_warned_of) {
  const Outcome small = on("llama", "100", {"--prompt-tokens", "4096"});
  BOOST_TEST(small.code == 0);
  BOOST_TEST(
      has(small.err, "warning: the pool of 100 blocks is smaller than the 256 of one prompt"),
      small.err);
  BOOST_TEST(has(small.out, "1 warning\n"), small.out);
  BOOST_TEST(on("llama", "100", {"--prompt-tokens", "4096", "--strict"}).code == 1);
  const Outcome few = on("llama", "600", {"--prompt-tokens", "4096"});
  BOOST_TEST(has(few.err, "warning: the pool holds 2.3 prompts of 4096 tokens"), few.err);
  const Outcome longer = on("qwen3.5-4b", "1000", {"--prompt-tokens", "784"});
  BOOST_TEST(has(longer.err, "a block of 784 tokens is not shorter than the longest prompt of 784"),
             longer.err);
  const Outcome grows =
      run({"check", file("[connector]\nkind = \"simple_cpu\"\n[host]\nunlimited = true\n"),
           "--model", model("llama"), "--bytes-per-token", "8"});
  BOOST_TEST(has(grows.err, "grows without bound"), grows.err);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
