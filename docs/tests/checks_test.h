// What a page may name as a check, and whether it exists.
#pragma once
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "conformance/cases/case.h"

namespace kvc::docs {

namespace fs = std::filesystem;

inline const std::string root = KVC_SOURCE_DIR;

inline std::string text_of(const fs::path& path) {
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

inline void add_all(const std::string& text, const std::regex& pattern, std::set<std::string>& to,
                    const std::string& prefix = {}) {
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    to.insert(prefix + (*it)[1].str());
  }
}

inline void add_boost_tests(const std::string& text, std::set<std::string>& to) {
  static const std::regex any(R"((SUITE|TEST_CASE)\(\s*(\w+))");
  std::string suite;
  for (std::sregex_iterator it(text.begin(), text.end(), any), end; it != end; ++it) {
    if ((*it)[1] == "SUITE") {
      suite = (*it)[2].str();
    } else {
      to.insert(suite + "/" + (*it)[2].str());
    }
  }
}

inline Checks read_checks() {
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

inline const Checks& checks() {
  static const Checks all = read_checks();
  return all;
}

// What kind of check a name says it is decides where it must be.
inline bool exists(const std::string& name) {
  const Checks& all = checks();
  if (name.starts_with("KVC-")) return kvc::rules::find_rule(name) != nullptr;
  if (name.find('/') != std::string::npos) return all.tests.contains(name);
  if (name.find('.') != std::string::npos) return all.cases.contains(name);
  return all.python.contains(name) || all.ctests.contains(name) || all.bad.contains(name);
}

// What stands in `backticks`.
inline std::vector<std::string> names_in(const std::string& text) {
  static const std::regex quoted("`([^`]+)`");
  std::vector<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), quoted), end; it != end; ++it) {
    names.push_back((*it)[1].str());
  }
  return names;
}

}  // namespace kvc::docs
