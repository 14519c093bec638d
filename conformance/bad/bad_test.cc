// The suite of the suite: each connector of connectors/ breaks one rule, and kvc-conform names that
// rule in every case about it that fails (suite bad). Over the whole suite it names nothing but
// that rule and its consequences (suite bad_in_every_case, label slow).
#include <algorithm>
#include <boost/test/data/test_case.hpp>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "conformance/cases/case.h"

namespace {

struct Bad {
  const char* name;
  kvc::rules::RuleId rule;
  kvc::rules::RuleId about;
  const char* consequences;
  friend std::ostream& operator<<(std::ostream& out, const Bad& bad) { return out << bad.name; }
};
const Bad all_bad[] = {
#define KVC_BAD(connector, rule, about, consequences) {#connector, rule, about, consequences},
#include "conformance/bad/manifest.def"
};

// Heap and waiting belong to the sanitizer in its builds, and the suite does not see them
// there.
bool is_seen([[maybe_unused]] const Bad& bad) {
#if defined(KVC_SANITIZED)
  return bad.rule.text() != "KVC-P-014" && bad.rule.text() != "KVC-P-015" &&
         bad.rule.text() != "KVC-P-020";
#else
  return true;
#endif
}

// A regular expression for the cases that are about the rule.
std::string cases_about(kvc::rules::RuleId rule) {
  std::string ids;
  for (const kvc::conform::Case& c : kvc::conform::all_cases()) {
    if (c.rule == rule) ids += (ids.empty() ? "" : "|") + std::string(c.id);
  }
  // Rules that hold for every call have no case of their own.
  return ids.empty() ? "^open.two_instances$" : "^(" + ids + ")$";
}

// What failed, in the order of the suite.
std::vector<nlohmann::json> failures(const Bad& bad, const std::string& only) {
  const std::string out =
      (std::filesystem::temp_directory_path() / (std::string("kvc_bad_") + bad.name + ".json"))
          .string();
  const std::string command = std::string(KVC_BIN_DIR) + "/kvc-conform " + KVC_LIB_DIR +
                              "/libkvc_bad_" + bad.name + ".so --connector-config " +
                              KVC_SOURCE_DIR + "/conformance/bad/small.toml --only '" + only +
                              "' --json " + out + " >/dev/null 2>&1";
  BOOST_TEST_INFO_SCOPE(command);
  const int status = std::system(command.c_str());
  BOOST_REQUIRE(WIFEXITED(status));
  BOOST_TEST(WEXITSTATUS(status) == 1);
  std::ifstream in(out);
  BOOST_REQUIRE(in.good());
  const auto report = nlohmann::json::parse(in);
  std::filesystem::remove(out);
  std::vector<nlohmann::json> failed;
  for (const auto& c : report.at("cases")) {
    const std::string result = c.at("result");
    if (result == "fail" || result == "crashed" || result == "timed_out") failed.push_back(c);
  }
  return failed;
}

// The rules of all findings of a case. That of one that crashed is its own.
std::set<std::string> rules_of(const nlohmann::json& c) {
  std::set<std::string> rules = {c.at("rule").get<std::string>()};
  static const std::regex finding("(^|\n)(KVC-[A-Z]-[0-9]{3}): ");
  const std::string detail = c.at("detail");
  for (std::sregex_iterator it(detail.begin(), detail.end(), finding), end; it != end; ++it) {
    rules.insert((*it)[2]);
  }
  return rules;
}

BOOST_AUTO_TEST_SUITE(bad)

BOOST_DATA_TEST_CASE(the_suite_names_the_broken_rule, boost::unit_test::data::make(all_bad), one) {
  if (!is_seen(one)) return;
  const auto failed = failures(one, cases_about(one.about));
  for (const nlohmann::json& c : failed) {
    BOOST_TEST_INFO(c.dump());
    BOOST_TEST(c.at("rule").get<std::string>() == one.rule.text());
  }
  BOOST_TEST(!failed.empty());
}

BOOST_AUTO_TEST_CASE(every_connector_is_in_the_manifest_and_breaks_its_own_way) {
  std::size_t sources = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(KVC_SOURCE_DIR "/conformance/bad/connectors")) {
    const std::string name = entry.path().stem().string();
    const bool known = std::any_of(std::begin(all_bad), std::end(all_bad),
                                   [&](const Bad& bad) { return bad.name == name; });
    BOOST_TEST(known, name << " is not in manifest.def");
    ++sources;
  }
  BOOST_TEST(sources == std::size(all_bad));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(bad_in_every_case)

BOOST_DATA_TEST_CASE(every_finding_is_the_broken_rule_or_a_consequence,
                     boost::unit_test::data::make(all_bad), one) {
  if (!is_seen(one)) return;
  std::istringstream words(one.consequences);
  std::set<std::string> allowed(std::istream_iterator<std::string>(words), {});
  allowed.insert(std::string(one.rule.text()));
  bool named = false;
  for (const nlohmann::json& c : failures(one, "")) {
    for (const std::string& rule : rules_of(c)) {
      BOOST_TEST(allowed.count(rule) == 1U, rule << " is no consequence: " << c.dump());
      named = named || rule == one.rule.text();
    }
  }
  BOOST_TEST(named);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
