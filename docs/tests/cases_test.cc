// docs/offloading_cases.md has a line for every case of the peer's, and names checks that exist.
#include <boost/test/unit_test.hpp>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "docs/tests/checks_test.h"

namespace {

using namespace kvc::docs;

const std::string page = root + "/docs/offloading_cases.md";

struct Row {
  std::string number, here, checks;
};

std::vector<Row> rows() {
  const std::string text = text_of(page);
  static const std::regex row(R"(\n\| (\d{3}) \|([^|\n]*)\|([^|\n]*)\|)");
  std::vector<Row> all;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    all.push_back({(*it)[1].str(), (*it)[2].str(), (*it)[3].str()});
  }
  return all;
}

// The peer's numbers, in ranges.
std::vector<std::string> peer_numbers() {
  std::vector<std::string> out;
  for (const auto& [first, last] :
       {std::pair(1, 61), std::pair(65, 75), std::pair(80, 87), std::pair(90, 95),
        std::pair(100, 105), std::pair(110, 116), std::pair(120, 136), std::pair(140, 144)}) {
    for (int n = first; n <= last; ++n) {
      const std::string digits = std::to_string(n);
      out.push_back(std::string(3 - digits.size(), '0') + digits);
    }
  }
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(docs_cases)

BOOST_AUTO_TEST_CASE(every_case_of_the_peer_has_a_line_of_its_own) {
  std::vector<std::string> numbers;
  for (const Row& r : rows()) numbers.push_back(r.number);
  BOOST_TEST(numbers == peer_numbers(), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(every_case_is_shown_by_checks_that_exist_or_is_not_offered_and_why) {
  for (const Row& r : rows()) {
    const std::vector<std::string> names = names_in(r.checks);
    const bool offered = r.here.find(" not offered: ") != 0;
    BOOST_TEST((!offered || !names.empty()), "case " << r.number << " has no check");
    for (const std::string& name : names) {
      BOOST_TEST(exists(name), "case " << r.number << ": there is no check " << name);
    }
  }
}

BOOST_AUTO_TEST_CASE(every_deviation_that_a_line_names_is_explained) {
  const std::string text = text_of(page);
  static const std::regex letters("^ ((?:[a-z], )*[a-z])[:; ]");
  std::set<char> used;
  for (const Row& r : rows()) {
    std::smatch found;
    if (!std::regex_search(r.here, found, letters)) continue;
    for (const char c : found[1].str()) {
      if (c >= 'a' && c <= 'z') used.insert(c);
    }
  }
  BOOST_TEST(used.size() > 4U);
  for (const char c : used) {
    BOOST_TEST(text.find(std::string("\n| ") + c + " | ") != std::string::npos,
               "deviation " << c << " is not explained");
  }
}

BOOST_AUTO_TEST_SUITE_END()
