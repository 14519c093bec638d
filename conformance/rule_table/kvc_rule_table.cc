// Prints the table of requirements of docs/abi.md between its markers: each rule with who sees that
// it is broken, and the tests that look. Fails if a rule has no check. After a change of rules.def
// or of the checks: build/dev/bin/kvc_rule_table, and its output goes between the markers.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "conformance/cases/case.h"
#include "conformance/rules/rules.h"
#include "plugin/core/program.h"

namespace {

using Names = std::vector<std::string>;
constexpr std::size_t id_bytes = 9;  // KVC-P-001

// Who checks, and where its sources name the rules. A check names its rule as a string literal,
// which the compiler compares with rules.def (RuleId), or in the text of a refusal (the loader).
struct Watcher {
  const char* name;
  std::vector<const char*> folders;
};
const std::vector<Watcher>& watchers() {
  static const std::vector<Watcher> all = {
      {"loader", {"host_stub/loader"}},
      {"layer", {"conformance/validate"}},
      {"suite", {"conformance/cases", "conformance/rig"}},
      {"probe", {"conformance/probe"}},
  };
  return all;
}

bool is_check(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  const std::string ext = path.extension().string();
  return (ext == ".cc" || ext == ".h" || ext == ".c") && name.find("_test") == std::string::npos &&
         path.string().find("/tests/") == std::string::npos;
}

void ids_of(const std::string& text, std::set<std::string>& ids) {
  for (std::size_t at = text.find("KVC-"); at != std::string::npos;
       at = text.find("KVC-", at + 4)) {
    const std::string id = text.substr(at, id_bytes);
    const bool digits = id.size() == id_bytes && std::all_of(id.end() - 3, id.end(), [](char c) {
                          return c >= '0' && c <= '9';
                        });
    if (digits && id[5] == '-') ids.insert(id);
  }
}

std::set<std::string> named_in(const std::filesystem::path& folder) {
  std::set<std::string> ids;
  if (!std::filesystem::is_directory(folder)) return ids;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || !is_check(entry.path())) continue;
    std::ifstream in(entry.path());
    ids_of({std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()}, ids);
  }
  return ids;
}

std::string joined(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::map<std::string, Names, std::less<>> seen_by(const std::filesystem::path& root, bool& wrong) {
  std::map<std::string, Names, std::less<>> seen;
  for (const Watcher& watcher : watchers()) {
    std::set<std::string> ids;
    for (const char* folder : watcher.folders) ids.merge(named_in(root / folder));
    for (const std::string& id : ids) {
      if (kvc::rules::find_rule(id) == nullptr) {
        std::fprintf(stderr, "%s names %s, which is no rule\n", watcher.name, id.c_str());
        wrong = true;
      }
      seen[id].emplace_back(watcher.name);
    }
  }
  return seen;
}

std::map<std::string, Names, std::less<>> tests_of_rules() {
  std::map<std::string, Names, std::less<>> tests;
  for (const kvc::conform::Case& c : kvc::conform::all_cases()) {
    tests[std::string(c.rule.text())].push_back("`" + std::string(c.id) + "`");
  }
  for (const kvc::rules::Rule& rule : kvc::rules::all_rules) {
    if (!rule.ctest.empty()) {
      tests[std::string(rule.id)].push_back("ctest `" + std::string(rule.ctest) + "`");
    }
  }
  return tests;
}

int print_table(const std::filesystem::path& root) {
  bool wrong = false;
  auto seen = seen_by(root, wrong);
  auto tests = tests_of_rules();
  std::puts(
      "| id | the loader (L), the plugin (P), the host (H) .. | otherwise | seen by | tests |");
  std::puts("|---|---|---|---|---|");
  std::string_view last;
  for (const kvc::rules::Rule& rule : kvc::rules::all_rules) {
    // Numbers rise within a letter.
    if (rule.id <= last && last.substr(0, 5) == rule.id.substr(0, 5)) {
      std::fprintf(stderr, "%s stands behind %s\n", rule.id.data(), last.data());
      wrong = true;
    }
    last = rule.id;
    Names by = seen[std::string(rule.id)];
    if (!rule.ctest.empty() && by.empty()) by.emplace_back("ctest");
    if (by.empty()) {
      std::fprintf(stderr, "%s has no check\n", rule.id.data());
      wrong = true;
    }
    std::printf("| %s | %s | %s | %s | %s |\n", rule.id.data(), rule.text.data(),
                rule.otherwise.data(), joined(by).c_str(),
                joined(tests[std::string(rule.id)]).c_str());
  }
  return wrong ? 1 : 0;
}

}  // namespace

int main() {
  try {
    return kvc::with_stdout_written("kvc_rule_table", print_table(KVC_SOURCE_DIR), 2);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
}
