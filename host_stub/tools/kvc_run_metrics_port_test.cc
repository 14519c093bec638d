// kvc-run --metrics-port: what is served while it runs and after.
#include <httplib.h>

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include "host_stub/tools/background_run_test.h"
#include "host_stub/tools/exposition_test.h"

namespace kvc::host {
namespace {

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
  for (const std::string& problem : Exposition::problems(metrics)) BOOST_ERROR(problem);
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
