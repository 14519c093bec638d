// The eviction policies on the recorded conversation trace and on a loop, through the built kvc-run
// and connector. The table of docs/policies.md is what the first case prints.
#include <boost/filesystem.hpp>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <fstream>

#include "conformance/acceptance/measured_run.h"
#include "conformance/acceptance/policy_sim.h"
#include "conformance/acceptance/trace_rules.h"

namespace kvc::acceptance {
namespace {

// A folder of files that goes with it.
class Folder {
 public:
  Folder()
      : path_(boost::filesystem::temp_directory_path() /
              boost::filesystem::unique_path("kvc_policies_%%%%%%%%")) {
    boost::filesystem::create_directory(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    boost::system::error_code ignored;
    boost::filesystem::remove_all(path_, ignored);
  }
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = (path_ / name).string();
    std::ofstream(path) << text;
    return path;
  }

 private:
  boost::filesystem::path path_;
};

// Hit tokens of the first pass; 0 when the run went wrong, which is a failure.
std::uint64_t hit_tokens(const Folder& folder, const std::string& trace,
                         const std::string& eviction, std::uint64_t blocks) {
  const std::string config =
      folder.write(eviction + ".toml", "[connector]\nkind = \"" + connector_name() +
                                           "\"\neviction = \"" + eviction + "\"\n");
  const Measured run = run_kvc(
      {"--connector", connector_library(), "--model", example("models/llama-512.toml"), "--trace",
       trace, "--connector-config", config, "--host-blocks", std::to_string(blocks),
       "--device-cache", "off", "--max-running", "1", "--passes", "cold"});
  BOOST_TEST_CONTEXT(run.command) {
    BOOST_REQUIRE(run.code == 0);
    BOOST_TEST(count(run, 0, "mismatched_blocks") == 0U);
    BOOST_TEST(count(run, 0, "failed_loads") == 0U);
    BOOST_TEST(count(run, 0, "local_hit_tokens") == 0U);
    BOOST_TEST(run.report["leaks"]["slots"] == 0);
  }
  return count(run, 0, "external_hit_tokens");
}

struct Cell {
  double percent;
  double least_auto;  // hit rate in percent, half a point below what was measured elsewhere
};
std::ostream& operator<<(std::ostream& out, const Cell& cell) { return out << cell.percent << "%"; }
const Cell cells[] = {{1, 10.6}, {2, 15.3}, {5, 23.0}, {10, 30.2}, {20, 35.3}, {40, 36.6}};

BOOST_AUTO_TEST_SUITE(policies)

BOOST_DATA_TEST_CASE(a_small_pool_hits_what_each_policy_promises,
                     boost::unit_test::data::make(cells), cell) {
  const auto rows = read_rows(conversation_trace());
  const auto blocks =
      static_cast<std::uint64_t>(static_cast<double>(unique_ids(rows)) * cell.percent / 100);
  const Folder folder;
  const auto share = [&](std::uint64_t tokens) {
    return 100 * static_cast<double>(tokens) / static_cast<double>(sum_of_prompts(rows));
  };
  const auto measured = [&](const char* eviction) {
    return share(hit_tokens(folder, conversation_trace(), eviction, blocks));
  };
  const double lru = measured("lru");
  const double arc = measured("arc");
  const double gdsf = measured("gdsf");
  const double automatic = measured("auto");
  const double lru_goal = share(lru_hit_tokens(rows, blocks));
  const double arc_goal = share(arc_hit_tokens(rows, blocks));
  const double gdsf_goal = share(gdsf_hit_tokens(rows, blocks));
  std::printf("| %g %% | %llu | %.2f (%.2f) | %.2f (%.2f) | %.2f (%.2f) | **%.2f** |\n",
              cell.percent, static_cast<unsigned long long>(blocks), lru, lru_goal, arc, arc_goal,
              gdsf, gdsf_goal, automatic);
  BOOST_TEST(std::abs(lru - lru_goal) <= 0.1);
  BOOST_TEST(std::abs(arc - arc_goal) <= 0.2);
  BOOST_TEST(std::abs(gdsf - gdsf_goal) <= 0.2);
  BOOST_TEST(automatic >= cell.least_auto);
  BOOST_TEST(automatic >= lru - 0.3);
}

constexpr std::uint64_t documents = 200;
constexpr std::uint64_t document_blocks = 20;
constexpr std::uint64_t rounds = 60;

// Every request asks a new question about the next document.
std::string loop_trace() {
  std::string out;
  std::uint64_t question = documents * document_blocks;
  for (std::uint64_t i = 0; i < rounds * documents; ++i) {
    out += "{\"timestamp\": " + std::to_string(i) +
           ", \"input_length\": " + std::to_string(document_blocks * 512 + 100) +
           ", \"output_length\": 20, \"hash_ids\": [";
    const std::uint64_t first = i % documents * document_blocks;
    for (std::uint64_t b = 0; b < document_blocks; ++b) out += std::to_string(first + b) + ", ";
    out += std::to_string(question++) + "]}\n";
  }
  return out;
}

// The best that can be kept: in a loop, once it is known, the same blocks all the time. In the
// first round nothing is known.
std::uint64_t loop_optimum_tokens(std::uint64_t blocks) {
  return (rounds - 1) * std::min(blocks, documents * document_blocks) * 512;
}

BOOST_DATA_TEST_CASE(a_loop_over_documents_is_hit_as_far_as_the_pool_goes,
                     boost::unit_test::data::make({2, 5, 20, 40}), percent) {
  const Folder folder;
  const std::string trace = folder.write("loop.jsonl", loop_trace());
  const std::uint64_t blocks =
      documents * document_blocks * static_cast<std::uint64_t>(percent) / 100;
  const std::uint64_t best = loop_optimum_tokens(blocks);
  const std::uint64_t found = hit_tokens(folder, trace, "auto", blocks);
  std::printf("| %d %% | %llu | %.1f %% of the optimum |\n", percent,
              static_cast<unsigned long long>(blocks),
              100 * static_cast<double>(found) / static_cast<double>(best));
  BOOST_TEST(found <= best);
  BOOST_TEST(found * 10 >= best * 9);
  BOOST_TEST(hit_tokens(folder, trace, "lru", blocks) == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::acceptance
