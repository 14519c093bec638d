// The table of field reports in docs/conformance.md: every name in it is a check that exists.
#include <boost/test/unit_test.hpp>
#include <regex>
#include <string>
#include <vector>

#include "docs/tests/checks_test.h"

namespace {

using namespace kvc::docs;

struct Row {
  std::string number, kind, checks, limits;
};

std::vector<Row> rows() {
  const std::string page = text_of(root + "/docs/conformance.md");
  const std::size_t from = page.find("\n## Field reports\n");
  BOOST_REQUIRE(from != std::string::npos);
  const std::string section = page.substr(from, page.find("\n## ", from + 5) - from);
  static const std::regex row(R"(\n\| *(\d+(?:, \d+)*) *\|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|)");
  std::vector<Row> all;
  for (std::sregex_iterator it(section.begin(), section.end(), row), end; it != end; ++it) {
    all.push_back({(*it)[1].str(), (*it)[2].str(), (*it)[3].str(), (*it)[4].str()});
  }
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(docs_reports)

BOOST_AUTO_TEST_CASE(every_check_that_the_table_names_exists) {
  for (const Row& r : rows()) {
    const std::vector<std::string> names = names_in(r.checks + r.limits);
    BOOST_TEST(!names.empty(), "report " << r.number << " has no check");
    for (const std::string& name : names) {
      BOOST_TEST(exists(name), "report " << r.number << ": there is no check " << name);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_report_of_the_kinds_has_a_row) {
  std::vector<std::string> numbers;
  for (const Row& r : rows()) numbers.push_back(r.number);
  BOOST_TEST(numbers == (std::vector<std::string>{
                            "1, 3", "4",   "35",  "38",  "40",  "41",  "42",  "44",  "91",
                            "92",   "94",  "95",  "97",  "98",  "100", "102", "104", "106",
                            "108",  "110", "112", "113", "116", "118", "119", "122", "124",
                            "125",  "127", "128", "129", "132", "138", "139", "144"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_name_of_nothing_is_noticed) {
  for (const char* name : {"open.no_such_case", "geometry/no_such_case", "no_suite/no_such_case",
                           "KVC-P-999", "test_no_such_function", "kvc_no_such_test", "no_such"}) {
    BOOST_TEST(!exists(name), name);
  }
  for (const char* name : {"open.two_instances", "KVC-P-030", "docs_reports_test"}) {
    BOOST_TEST(exists(name), name);
  }
}

// The rules of conformance/rules name ctests as text.
BOOST_AUTO_TEST_CASE(every_ctest_that_a_rule_names_exists) {
  for (const kvc::rules::Rule& rule : kvc::rules::all_rules) {
    if (rule.ctest.empty()) continue;
    BOOST_TEST(checks().ctests.contains(std::string(rule.ctest)), rule.id << ": " << rule.ctest);
  }
}

BOOST_AUTO_TEST_SUITE_END()
