// What became of a case, and of all of them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvc::conform {

enum class Outcome { pass, fail, crashed, timed_out, skipped, warning };

// The word in reports: "pass", "fail", "crashed", "timed_out", "skipped", "warning".
std::string_view word_of(Outcome outcome);

struct CaseResult {
  std::string id;
  std::string rule;  // failed: the rule that was broken first; else the one that the case is about
  Outcome outcome = Outcome::pass;
  std::string detail;  // failed: one line per finding, "KVC-P-nnn: text"; skipped: what is missing
  std::uint64_t ms = 0;
};

struct Plugin {
  std::string name;
  std::string version;
  std::string build_id;
  std::string path;
};

struct Summary {
  std::uint64_t passed = 0;  // warnings too
  std::uint64_t failed = 0;
  std::uint64_t crashed = 0;
  std::uint64_t timed_out = 0;
  std::uint64_t skipped = 0;
  [[nodiscard]] bool good() const { return failed + crashed + timed_out == 0; }
};
Summary summary_of(const std::vector<CaseResult>& results);

// Schema kvc.conform/1 (docs/kvc-conform.md), pretty printed, with a newline at the end.
std::string json_of(const Plugin& plugin, const std::vector<CaseResult>& results);
// The JUnit dialect that CI systems read.
std::string junit_of(const Plugin& plugin, const std::vector<CaseResult>& results);
// Without control characters and without bytes that are no ASCII: \x1b and so on. Texts come from
// the connector.
std::string printable(std::string_view text);
// One line per case that did not simply pass.
std::string line_of(const CaseResult& result, std::string_view repeat);
// The requirements that were broken, each with its text and in how many cases it came first, and
// those about which nothing is known, as their cases crashed or ran out of time. Empty: none.
std::string broken_rules(const std::vector<CaseResult>& results);
std::string summary_line(const std::vector<CaseResult>& results, double seconds);

}  // namespace kvc::conform
