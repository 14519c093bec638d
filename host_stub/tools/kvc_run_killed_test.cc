// K10-104: runs that are killed leave nothing that grows and nothing that stops the next.
#include <httplib.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <set>

#include "host_stub/tools/background_run_test.h"

namespace kvc::host {
namespace {

std::set<std::string> files_in(const std::filesystem::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    out.insert(entry.path().lexically_relative(folder).string());
  }
  return out;
}

// Shared memory with a name; that of others comes and goes.
std::set<std::string> shared_memory() {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    const std::string name = entry.path().filename().string();
    if (name.find("kvc") != name.npos) out.insert(name);
  }
  return out;
}

BOOST_AUTO_TEST_SUITE(run_killed)

BOOST_FIXTURE_TEST_CASE(five_killed_runs_leave_no_residue_and_the_sixth_is_right, Background) {
  const std::filesystem::path disk = (folder / "disk").string();
  const std::string config = (folder / "disk.toml").string();
  std::ofstream(config)
      << "[connector]\nkind = \"offloading\"\n[host]\nblocks = 64\n[disk]\npaths = [\""
      << disk.string() << "\"]\nbytes = \"16MiB\"\n";
  const std::vector<std::string> args{"--connector",  library("kvc_offloading"), "--model",
                                      model("llama"), "--connector-config",      config,
                                      "--trace",      "gen:agent?requests=16"};
  const std::set<std::string> shared = shared_memory();
  std::set<std::string> first;
  for (int life = 0; life < 5; ++life) {
    std::vector<std::string> watched = args;
    watched.insert(watched.end(), {"--metrics-port", "0", "--metrics-linger", "86400"});
    start(watched);
    const int at = port();
    BOOST_REQUIRE(at != 0);
    httplib::Client client("127.0.0.1", at);
    client.set_read_timeout(60);
    for (double blocks = 0; blocks <= 0;) {
      const auto got = client.Get("/metrics");
      BOOST_REQUIRE(got);
      blocks = value_of(got->body, "kvc:disk_blocks");
    }
    kill();
    if (life == 0) first = files_in(disk);
    BOOST_TEST(files_in(disk) == first, boost::test_tools::per_element());
    BOOST_TEST(shared_memory() == shared, boost::test_tools::per_element());
  }
  BOOST_TEST(first.size() > 3U);
  const Outcome last = run_program(args);
  BOOST_TEST(last.code == 0, last.err);
  BOOST_TEST(files_in(disk) == first, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
