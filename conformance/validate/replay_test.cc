// Recordings replayed: the same on the connector that made them, different with another pool, and a
// text for what is no recording.
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>

#include "conformance/validate/replay.h"
#include "conformance/validate/tests/resealed_test.h"
#include "host_stub/loader/loader.h"
#include "host_stub/tools/run_program_test.h"
#include "plugin/core/prng.h"

namespace kvc::validate {
namespace {

using host::Outcome;

const std::string corpus = std::string(KVC_CORPUS) + "/calls/kvc_run_qwen3.5-4b.kvcc";
const std::string corpus_in_step = std::string(KVC_CORPUS) + "/calls/kvc_run_layerwise.kvcc";
const std::string corpora[] = {corpus, corpus_in_step};

struct WithFolder : host::ProgramFolder {
  [[nodiscard]] Outcome replay(const std::vector<std::string>& args) const {
    return run_program(args, "kvc-replay-calls");
  }
  [[nodiscard]] std::string options(const std::string& text) const {
    std::ofstream((folder / "c.toml").string()) << text;
    return (folder / "c.toml").string();
  }
  // kvc-run through the layer over simple_cpu; the recording.
  [[nodiscard]] std::string recorded(const std::string& name,
                                     const std::vector<std::string>& more = {}) const {
    const std::string file = (folder / "run.kvcc").string();
    ::setenv("KVC_LAYER_NEXT", library("kvc_simple_cpu").c_str(), 1);
    ::setenv("KVC_LAYER_RECORD", file.c_str(), 1);
    std::vector<std::string> args = {
        "--connector", library("kvc_validate"),
        "--model",     model(name),
        "--ranks",     "2",
        "--trace",     "gen:agent?requests=8&steps=3&system_tokens=900&output_tokens=60"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome run = run_program(args);
    ::unsetenv("KVC_LAYER_NEXT");
    ::unsetenv("KVC_LAYER_RECORD");
    BOOST_REQUIRE_MESSAGE(run.code == 0, run.out << run.err);
    return file;
  }
  // Its loads run in the step of their plan, and it asks which states are wanted.
  [[nodiscard]] std::string recorded_with_extensions(const std::string& name) const {
    return recorded(name, {"--layerwise", "3", "--connector-config",
                           options("[connector]\nstates = \"auto\"\n")});
  }
};

std::size_t calls_of(const Recording& recording, Slot slot) {
  const auto& calls = recording.calls();
  return static_cast<std::size_t>(std::count_if(
      calls.begin(), calls.end(), [&](const RecordedCall& c) { return c.slot == slot; }));
}

bool of_extension(const RecordedCall& call) { return call.head.slot >= extension_numbers; }

Difference difference_of(const Recording& recording, const kvc_plugin_api& api) {
  Replay run(recording, api, {});
  const auto result = run.run();
  BOOST_REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().text));
  BOOST_REQUIRE(result.value().has_value());
  return *result.value();
}

const char* const models[] = {"llama", "gemma", "qwen3.5-4b"};

BOOST_FIXTURE_TEST_SUITE(replays, WithFolder)

BOOST_DATA_TEST_CASE_F(WithFolder, a_recorded_run_replays_with_the_same_answers,
                       boost::unit_test::data::make(models), name) {
  const Outcome same = replay({recorded(name), library("kvc_simple_cpu")});
  BOOST_TEST(same.code == 0, same.out << same.err);
  BOOST_TEST(same.out.find("the same answers") != std::string::npos);
}

BOOST_DATA_TEST_CASE_F(WithFolder, a_run_that_uses_extensions_replays_with_the_same_answers,
                       boost::unit_test::data::make(models), name) {
  const std::string file = recorded_with_extensions(name);
  const Outcome same = replay({file, library("kvc_simple_cpu")});
  BOOST_TEST(same.code == 0, same.out << same.err);
  BOOST_TEST(same.out.find("the same answers") != std::string::npos);
  const auto recording = Recording::read(file);
  BOOST_REQUIRE(recording.ok());
  for (const Slot slot : {Slot::boundaries, Slot::load_in_step, Slot::layer_fence}) {
    BOOST_TEST(calls_of(recording.value(), slot) > 0U, info(slot).name);
  }
}

// Without the calls of extensions a run is another one: what recordings of version 1 were.
BOOST_AUTO_TEST_CASE(control_without_its_calls_of_extensions_a_run_differs) {
  const auto connector = host::load_connector(library("kvc_simple_cpu"));
  const auto whole = Recording::read(corpus_in_step);
  BOOST_REQUIRE((connector.ok() && whole.ok()));
  std::vector<RecordedCall> calls = whole.value().calls();
  std::erase_if(calls, of_extension);
  const auto without =
      Recording::parse(testing::sealed(calls, 1, [](std::size_t, std::string&) {}));
  BOOST_REQUIRE(without.ok());
  const Difference first = difference_of(without.value(), connector.value().api);
  BOOST_TEST(first.slot == "build_store_jobs", first.slot << ": " << first.field);
}

BOOST_AUTO_TEST_CASE(a_connector_without_an_extension_differs_where_it_is_asked_for_it) {
  const auto connector = host::load_connector(library("kvc_simple_cpu"));
  const auto whole = Recording::read(corpus_in_step);
  BOOST_REQUIRE((connector.ok() && whole.ok()));
  kvc_plugin_api api = connector.value().api;
  api.extension = [](kvc_bytes) noexcept -> const void* { return nullptr; };
  const auto& calls = whole.value().calls();
  const auto first_call = std::find_if(calls.begin(), calls.end(), of_extension);
  BOOST_REQUIRE(first_call != calls.end());
  const Difference first = difference_of(whole.value(), api);
  BOOST_TEST(first.call == first_call->head.call);
  BOOST_TEST(first.field == "extension");
  BOOST_TEST(first.recorded.starts_with("kvc."), first.recorded);
  BOOST_TEST(first.present == "none");
}

BOOST_AUTO_TEST_CASE(other_states_differ_in_the_answer_of_the_extension) {
  const Outcome other = replay({corpus_in_step, library("kvc_simple_cpu"), "--connector-config",
                                options("[connector]\nstates = \"tail\"\n[host]\nblocks = 40\n")});
  BOOST_TEST(other.code == 1, other.out << other.err);
  BOOST_TEST(other.out.find(" (boundaries): boundaries: recorded [") != std::string::npos,
             other.out);
}

BOOST_AUTO_TEST_CASE(the_recording_of_the_corpus_replays_with_the_same_answers) {
  const Outcome same = replay({corpus, library("kvc_simple_cpu")});
  BOOST_TEST(same.code == 0, same.out << same.err);
  BOOST_TEST(same.out == "1224 calls, the same answers\n");
}

// Of kvc-run and of real engines; what is in them: conformance/corpus/README.md.
BOOST_AUTO_TEST_CASE(every_recording_of_the_corpus_replays_with_the_same_answers) {
  std::size_t recordings = 0;
  for (const auto& entry :
       boost::filesystem::directory_iterator(std::string(KVC_CORPUS) + "/calls")) {
    const Outcome same = replay({entry.path().string(), library("kvc_simple_cpu")});
    BOOST_TEST(same.code == 0, entry.path().string() << ": " << same.out << same.err);
    BOOST_TEST(same.out.find("calls, the same answers") != std::string::npos);
    ++recordings;
  }
  BOOST_TEST(recordings >= 5U);
}

BOOST_AUTO_TEST_CASE(a_smaller_pool_differs_and_the_first_difference_is_named) {
  const Outcome other = replay(
      {corpus, library("kvc_simple_cpu"), "--connector-config", options("[host]\nblocks = 10\n")});
  BOOST_TEST(other.code == 1, other.out << other.err);
  BOOST_TEST(other.out == "call 138 (build_store_jobs): jobs.count: recorded 1, present 0\n");
}

BOOST_AUTO_TEST_CASE(wrong_input_is_one_line_and_exit_code_2) {
  const auto refused = [&](const std::vector<std::string>& args, const std::string& part) {
    const Outcome out = replay(args);
    BOOST_TEST(out.code == 2, out.out << out.err);
    BOOST_TEST(out.err.find(part) != std::string::npos, out.err);
  };
  const std::string simple = library("kvc_simple_cpu");
  refused({"/nowhere.kvcc", simple}, "/nowhere.kvcc");
  refused({corpus, "/nowhere.so"}, "/nowhere.so");
  refused({corpus, simple, "--connector-config", "/nowhere.toml"}, "/nowhere.toml");
  refused({options("no recording, but a text that is long enough"), simple}, "KVCC");
  refused({corpus}, "LIB");
  std::ifstream in(corpus, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(in), {});
  refused({options(bytes.substr(0, bytes.size() / 2)), simple}, "cut off");
}

BOOST_AUTO_TEST_CASE(a_recording_without_its_end_is_replayed_on_request) {
  std::ifstream in(corpus, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::string half = options(bytes.substr(0, bytes.size() / 2));
  const Outcome same = replay({half, library("kvc_simple_cpu"), "--cut"});
  BOOST_TEST(same.code == 0, same.out << same.err);
  BOOST_TEST(same.err.find("is cut off at byte ") != std::string::npos, same.err);
  BOOST_TEST(same.out.find(" calls, the same answers\n") != std::string::npos, same.out);
}

BOOST_AUTO_TEST_CASE(a_recording_without_a_part_of_its_checksum_is_replayed_on_request) {
  std::ifstream in(corpus, std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  const std::string file = options(bytes.substr(0, bytes.size() - 3));
  const Outcome same = replay({file, library("kvc_simple_cpu"), "--cut"});
  BOOST_TEST(same.code == 0, same.out << same.err);
  BOOST_TEST(same.out == "1224 calls, the same answers\n");
  const Outcome refused = replay({file, library("kvc_simple_cpu")});
  BOOST_TEST(refused.code == 2, refused.out << refused.err);
  BOOST_TEST(refused.err.find("3 of its last 9 bytes are missing") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_connector_that_ends_the_process_is_no_success) {
  const Outcome out = replay({corpus, library("kvc_planted_gone")});
  BOOST_TEST(out.code == 1);
  BOOST_TEST(out.err == "kvc-replay-calls: the connector ended the process\n");
}

BOOST_AUTO_TEST_CASE(a_stdout_that_is_full_is_no_success) {
  BOOST_TEST(wrong_at_a_full_stdout({corpus, library("kvc_simple_cpu")}, "kvc-replay-calls", 2) ==
             "");
}

// The connector reads as many bytes of keys as the scheduler was opened with.
BOOST_AUTO_TEST_CASE(a_rank_with_shorter_keys_does_not_shorten_those_of_requests) {
  const auto connector = host::load_connector(library("kvc_simple_cpu"));
  const auto whole = Recording::read(corpus);
  BOOST_REQUIRE((connector.ok() && whole.ok()));
  const auto& calls = whole.value().calls();
  const auto opened = std::find_if(calls.begin(), calls.end(), [](const RecordedCall& c) {
    return c.head.slot == static_cast<std::uint32_t>(Slot::open_scheduler);
  });
  BOOST_REQUIRE(opened != calls.end());
  OpenIn in;
  std::vector<QueryAnswer> queries;
  Reader(opened->body)(in, queries);
  const std::string file = (folder / "short.kvcc").string();
  {
    Recorder recorder(file);
    const auto add = [&](Slot slot, std::uint32_t who, std::uint64_t call, const auto& what) {
      recorder.add({static_cast<std::uint32_t>(slot), who, call, 0, KVC_OK}, what, {}, Nothing{});
    };
    add(Slot::open_scheduler, 0, 1, in);
    in.rank = 0;
    in.key_bytes = 8;
    add(Slot::open_rank, 1, 2, in);
    add(Slot::request_begin, 0, 3,
        BeginIn{0, 1, 64, 2, ByteString(16, 'k'), KVC_NO_LIMIT, KVC_NO_LIMIT});
  }
  const auto recording = Recording::read(file);
  BOOST_REQUIRE(recording.ok());
  Replay run(recording.value(), connector.value().api, {});
  const auto result = run.run();
  BOOST_REQUIRE(!result.ok());
  BOOST_TEST(result.error().text.find("lie in 16 bytes") != std::string::npos, result.error().text);
}

// Every field is read by somebody who trusts it: none may crash the tool.
BOOST_DATA_TEST_CASE_F(WithFolder,
                       recordings_with_wrong_fields_are_refused_or_differ_and_never_crash,
                       boost::unit_test::data::make(corpora), file) {
  const auto connector = host::load_connector(library("kvc_simple_cpu"));
  BOOST_REQUIRE(connector.ok());
  const auto whole = Recording::read(file);
  BOOST_REQUIRE(whole.ok());
  constexpr std::uint64_t seed = 20261130;
  Prng draw(seed);
  std::size_t refused = 0;
  for (int i = 0; i < 300; ++i) {
    const std::string bytes = testing::resealed(whole.value(), draw);
    const auto recording = Recording::parse(bytes);
    if (!recording.ok()) {
      ++refused;
      continue;
    }
    Replay run(recording.value(), connector.value().api, {});
    const auto result = run.run();
    refused += result.ok() ? 0 : 1;
  }
  BOOST_TEST_MESSAGE(refused << " of 300 refused, seed " << seed);
  BOOST_TEST(refused > 0U);
  BOOST_TEST(refused < 300U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::validate
