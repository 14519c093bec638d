// kvc-run --metrics-port: what is served while it runs and after.
#include <httplib.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "host_stub/tools/run_program_test.h"

namespace kvc::host {
namespace {

// kvc-run in the background, killed at the end; what it says on stderr can be read.
struct Background : ProgramFolder {
  pid_t child = -1;
  std::FILE* err = nullptr;

  void start(const std::vector<std::string>& args) {
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::pipe(ends.data()) == 0);
    child = ::fork();
    if (child == 0) {
      ::dup2(ends[1], 2);
      ::close(ends[0]);
      std::FILE* const out = std::freopen((folder / "stdout").string().c_str(), "w", stdout);
      const std::string program = std::string(KVC_BIN_DIR) + "/kvc-run";
      std::vector<char*> argv{const_cast<char*>(program.c_str())};
      for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
      argv.push_back(nullptr);
      if (out != nullptr) ::execv(program.c_str(), argv.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    err = ::fdopen(ends[0], "r");
  }
  ~Background() {
    if (child > 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    if (err != nullptr) std::fclose(err);
  }
  // The port that the first line names; 0: it ended without one.
  int port() const {
    char line[256];
    int found = 0;
    while (found == 0 && std::fgets(line, sizeof line, err) != nullptr) {
      if (std::sscanf(line, "kvc-run: http://127.0.0.1:%d/metrics", &found) != 1) found = 0;
    }
    return found;
  }
};

double value_of(const std::string& metrics, const std::string& name) {
  const std::size_t at = ("\n" + metrics).find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::atof(metrics.c_str() + at + name.size());
}

BOOST_FIXTURE_TEST_CASE(a_run_can_be_watched, Background) {
  start({"--connector", library("kvc_simple_cpu"), "--model", model("llama"), "--trace",
         "gen:agent?requests=16", "--metrics-port", "0", "--metrics-linger", "86400"});
  const int at = port();
  BOOST_REQUIRE(at != 0);
  httplib::Client client("127.0.0.1", at);
  client.set_read_timeout(60);
  std::string metrics;
  do {  // until both passes are over
    const auto got = client.Get("/metrics");
    BOOST_REQUIRE(got);
    metrics = got->body;
  } while (value_of(metrics, "kvc:run_passes_total") != 2);
  BOOST_TEST(value_of(metrics, "kvc:run_requests") == 16);
  BOOST_TEST(value_of(metrics, "kvc:lookups_total") >= 32);
  BOOST_TEST(value_of(metrics, "vllm:kv_offload_store_bytes_total") > 0);
  const auto explain = client.Get("/explain");
  BOOST_REQUIRE(explain);
  BOOST_TEST(nlohmann::json::parse(explain->body).contains("gates"));
}

BOOST_FIXTURE_TEST_CASE(a_port_that_cannot_be_bound_is_wrong_input, ProgramFolder) {
  const Outcome out = run_program({"--connector", "none", "--model", model("llama"), "--trace",
                                   "gen:agent?requests=1", "--metrics-port", "65536"});
  BOOST_TEST(out.code == 2, out.err);
  BOOST_TEST(out.err.find("--metrics-port") != std::string::npos, out.err);
}

}  // namespace
}  // namespace kvc::host
