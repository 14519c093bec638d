// The layer over hosts that break one rule each: it names that rule first, then only what
// hosts/hosts.def lists as its consequences, and nothing over the right host.
#include <sys/wait.h>
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdio>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/rules/rules.h"

namespace {

struct BadHost {
  const char* name;
  kvc::rules::RuleId rule;
  const char* consequences;
  friend std::ostream& operator<<(std::ostream& out, const BadHost& bad) { return out << bad.name; }
};
const BadHost all_bad[] = {
#define KVC_BAD_HOST(name, rule, consequences) {#name, rule, consequences},
#include "conformance/bad/hosts/hosts.def"
};

struct Run {
  int status = 0;
  std::string text;
  std::vector<std::string> rules;  // of the findings, oldest first
};

Run run(const std::string& name) {
  Run result;
  std::FILE* const out =
      ::popen((std::string(KVC_BIN_DIR) + "/kvc_bad_hosts " + name + " 2>&1").c_str(), "r");
  BOOST_REQUIRE(out != nullptr);
  char buffer[4096];
  for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, out)) != 0;) {
    result.text.append(buffer, n);
  }
  result.status = ::pclose(out);
  std::istringstream lines(result.text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    if (words >> word && word == "finding" && words >> word) result.rules.push_back(word);
  }
  return result;
}

std::set<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

BOOST_AUTO_TEST_SUITE(bad_hosts)

BOOST_DATA_TEST_CASE(the_layer_names_the_broken_rule_and_its_consequences,
                     boost::unit_test::data::make(all_bad), bad) {
  const Run found = run(bad.name);
  BOOST_TEST_INFO_SCOPE(found.text);
  BOOST_TEST(WIFEXITED(found.status));
  BOOST_REQUIRE(!found.rules.empty());
  BOOST_TEST(found.rules.front() == bad.rule.text());
  std::set<std::string> rest(found.rules.begin(), found.rules.end());
  rest.erase(std::string(bad.rule.text()));
  BOOST_TEST(rest == words_of(bad.consequences), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(the_right_host_comes_to_its_end_without_a_finding) {
  const Run found = run("right");
  BOOST_TEST((WIFEXITED(found.status) && WEXITSTATUS(found.status) == 0));
  BOOST_TEST(found.text == "");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
