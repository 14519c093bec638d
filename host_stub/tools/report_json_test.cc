#include "host_stub/tools/report_json.h"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>
#include <set>

#include "host_stub/tools/report_example_test.h"
#include "host_stub/tools/run_schema_test.h"

namespace kvc::host {
namespace {

using nlohmann::json;

BOOST_AUTO_TEST_SUITE(report_json)

BOOST_AUTO_TEST_CASE(an_example_report_follows_the_schema) {
  const json j = json::parse(to_json(example_report()));
  const std::vector<std::string> problems = schema_problems(j);
  BOOST_TEST(problems.empty(), (problems.empty() ? std::string() : problems.front()));
}

BOOST_AUTO_TEST_CASE(values_stand_under_their_names) {
  const json j = json::parse(to_json(example_report()));
  BOOST_TEST(j["connector"]["path"] == "lib/libkvc_simple_cpu.so");
  BOOST_TEST(j["passes"][0]["external_hit_tokens"] == 103);
  BOOST_TEST(j["passes"][1]["preemptions"] == 1'000'013);
  BOOST_TEST(j["passes"][0]["output_digest"] == "000000000000feed");
  BOOST_TEST(j["boundary_stats"]["all_offers"]["dropped_pool_full"] == 3);
  BOOST_TEST(j["stats"]["slots_used_now{class=0}"] == 12);
  BOOST_TEST(j["model"]["groups"][1]["window_tokens"] == 1024);
}

BOOST_AUTO_TEST_CASE(the_schema_check_finds_a_missing_field_and_a_wrong_sum) {
  json j = json::parse(to_json(example_report()));
  j["passes"][0].erase("failed_loads");
  BOOST_TEST(schema_problems(j).size() == 1U);
  j = json::parse(to_json(example_report()));
  j["passes"][1]["computed_tokens"] = 1;
  BOOST_TEST(schema_problems(j).size() == 1U);
  j = json::parse(to_json(example_report()));
  j["boundary_stats"]["all_offers"]["stored"] = 1;
  BOOST_TEST(schema_problems(j).size() == 1U);
}

BOOST_AUTO_TEST_CASE(names_that_are_not_utf8_do_not_stop_the_report) {
  RunReport r = example_report();
  r.model.name = "\xff\xfe";
  BOOST_TEST(json::accept(to_json(r)));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
