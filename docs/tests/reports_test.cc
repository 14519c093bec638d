// The table of field reports in docs/conformance.md: every name in it is a check that exists.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/case.h"

namespace {

namespace fs = std::filesystem;

const std::string root = KVC_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Everything that declares a check, read once.
struct Checks {
  std::set<std::string> cases;   // of kvc-conform
  std::set<std::string> tests;   // suite/case of Boost.Test
  std::set<std::string> python;  // functions of the vLLM tests
  std::set<std::string> ctests;
  std::set<std::string> bad;  // of conformance/bad
};

void add_all(const std::string& text, const std::regex& pattern, std::set<std::string>& to,
             const std::string& prefix = {}) {
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    to.insert(prefix + (*it)[1].str());
  }
}

void add_boost_tests(const std::string& text, std::set<std::string>& to) {
  static const std::regex any(R"((SUITE|TEST_CASE)\((\w+))");
  std::string suite;
  for (std::sregex_iterator it(text.begin(), text.end(), any), end; it != end; ++it) {
    if ((*it)[1] == "SUITE") {
      suite = (*it)[2].str();
    } else {
      to.insert(suite + "/" + (*it)[2].str());
    }
  }
}

Checks read_checks() {
  static const std::regex python(R"(def (test_\w+)\()");
  static const std::regex ctest(R"(add_test\(\[?=?\[?([\w.]+))");
  static const std::regex bad(R"(\nKVC_BAD(?:_HOST)?\((\w+))");
  Checks all;
  for (const kvc::conform::Case& c : kvc::conform::all_cases()) all.cases.emplace(c.id);
  for (const char* folder : {"config", "conformance", "cuda", "host_stub", "plugin"}) {
    for (const auto& entry : fs::recursive_directory_iterator(root + "/" + folder)) {
      const std::string name = entry.path().filename().string();
      if (name.ends_with("_test.cc")) add_boost_tests(text_of(entry.path()), all.tests);
      if (name.starts_with("test_") && name.ends_with(".py"))
        add_all(text_of(entry.path()), python, all.python);
    }
  }
  for (const char* list : {"/conformance/bad/manifest.def", "/conformance/bad/hosts/hosts.def"}) {
    add_all(text_of(root + list), bad, all.bad);
  }
  const fs::path build = fs::path(KVC_BIN_DIR).parent_path();
  for (const auto& entry : fs::recursive_directory_iterator(build)) {
    if (entry.path().filename() == "CTestTestfile.cmake")
      add_all(text_of(entry.path()), ctest, all.ctests);
  }
  return all;
}

const Checks& checks() {
  static const Checks all = read_checks();
  return all;
}

// What kind of check a name says it is decides where it must be.
bool exists(const std::string& name) {
  const Checks& all = checks();
  if (name.starts_with("KVC-")) return kvc::rules::find_rule(name) != nullptr;
  if (name.find('/') != std::string::npos) return all.tests.contains(name);
  if (name.find('.') != std::string::npos) return all.cases.contains(name);
  return all.python.contains(name) || all.ctests.contains(name) || all.bad.contains(name);
}

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

std::vector<std::string> names_in(const std::string& text) {
  static const std::regex quoted("`([^`]+)`");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), quoted), end; it != end; ++it) {
    names.push_back((*it)[1].str());
  }
  return names;
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
  BOOST_TEST(numbers == (std::vector<std::string>{"1, 3", "4", "118", "119", "122", "124", "125",
                                                  "127", "128", "129", "132", "144"}),
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
