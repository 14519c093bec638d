// Where findings go: the host's log, a file of JSON lines, and a list that the extension shows.
#pragma once
#include <cstdint>
#include <cstdio>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/rules/rules.h"

namespace kvc::validate {

// One broken rule, seen at one call.
struct Finding {
  std::string_view rule;  // of rules.def
  std::string_view slot;
  std::uint64_t engine = 0;  // 1, 2, ...: which opened engine of this process; 0: none
  std::uint64_t call = 0;    // of that engine, 1, 2, ...
  std::string text;
};

// A file of JSON lines, one per finding, written at once.
//
// Threads:    any.
// Owns:       the file. Invariants: every line is whole.
class FindingsFile {
 public:
  // Empties the file. Not open(): it cannot be written.
  explicit FindingsFile(const std::string& path);
  ~FindingsFile();
  FindingsFile(const FindingsFile&) = delete;
  FindingsFile& operator=(const FindingsFile&) = delete;
  [[nodiscard]] bool open() const { return file_ != nullptr; }
  void add(const Finding& finding);

 private:
  std::mutex mutex_;
  std::FILE* file_ = nullptr;
};

// All findings of this process, for the extension.
//
// Threads:    any.
// Owns:       the first kept_max findings; the count goes on.
// Invariants: what at() returned stays until forget().
class FindingsList {
 public:
  static constexpr std::uint64_t kept_max = 10'000;
  // Of one rule so many go to the file and the log: a mistake in every step of a long run must not
  // fill the disk.
  static constexpr std::uint64_t told_max = 1'000;
  static FindingsList& of_process();

  // How many of this rule there are now.
  std::uint64_t add(const Finding& finding);
  [[nodiscard]] std::uint64_t count() const;
  // NULL: not kept, or there is none.
  [[nodiscard]] const Finding* at(std::uint64_t index) const;
  void forget();

 private:
  mutable std::mutex mutex_;
  std::deque<Finding> kept_;
  std::map<std::string_view, std::uint64_t> by_rule_;
  std::uint64_t count_ = 0;
};

// The findings of one call while it runs.
//
// Threads:    the caller's.
// Owns:       the texts. Invariants: none.
class CallFindings {
 public:
  struct Item {
    rules::RuleId rule;
    std::string text;
  };
  // Of one rule the first same_max are kept: a table of a thousand wrong entries is one mistake.
  static constexpr std::size_t same_max = 8;
  void add(rules::RuleId rule, std::string text);
  [[nodiscard]] const std::vector<Item>& all() const { return all_; }
  [[nodiscard]] bool empty() const { return all_.empty(); }
  [[nodiscard]] bool has(rules::RuleId rule) const;
  // Findings about the host so far.
  [[nodiscard]] bool host_is_wrong() const;
  // Items that nobody took yet.
  [[nodiscard]] std::vector<Item> take_new();

 private:
  std::vector<Item> all_;
  std::size_t taken_ = 0;
};

}  // namespace kvc::validate
