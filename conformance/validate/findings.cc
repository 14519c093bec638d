#include "conformance/validate/findings.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kvc::validate {

FindingsFile::FindingsFile(const std::string& path) : file_(std::fopen(path.c_str(), "wb")) {}

FindingsFile::~FindingsFile() {
  if (file_ != nullptr) std::fclose(file_);
}

void FindingsFile::add(const Finding& finding) {
  const nlohmann::json line = {{"rule", finding.rule},
                               {"engine", finding.engine},
                               {"call", finding.call},
                               {"slot", finding.slot},
                               {"text", finding.text}};
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  const std::lock_guard lock(mutex_);
  if (file_ == nullptr) return;
  std::fwrite(text.data(), 1, text.size(), file_);
  std::fflush(file_);
}

FindingsList& FindingsList::of_process() {
  // Never destroyed: findings come as late as the end of the process.
  static auto* const list = new FindingsList;
  return *list;
}

std::uint64_t FindingsList::add(const Finding& finding) {
  const std::lock_guard lock(mutex_);
  ++count_;
  if (kept_.size() < kept_max) kept_.push_back(finding);
  return ++by_rule_[finding.rule];
}

std::uint64_t FindingsList::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

const Finding* FindingsList::at(std::uint64_t index) const {
  const std::lock_guard lock(mutex_);
  return index < kept_.size() ? &kept_[index] : nullptr;
}

void FindingsList::forget() {
  const std::lock_guard lock(mutex_);
  kept_.clear();
  by_rule_.clear();
  count_ = 0;
}

void CallFindings::add(rules::RuleId rule, std::string text) {
  const auto same =
      std::count_if(all_.begin(), all_.end(), [&](const Item& i) { return i.rule == rule; });
  if (static_cast<std::size_t>(same) < same_max) all_.push_back({rule, std::move(text)});
}

bool CallFindings::has(rules::RuleId rule) const {
  return std::any_of(all_.begin(), all_.end(), [&](const Item& i) { return i.rule == rule; });
}

bool CallFindings::host_is_wrong() const {
  return std::any_of(all_.begin(), all_.end(),
                     [](const Item& i) { return i.rule.text().starts_with("KVC-H-"); });
}

std::vector<CallFindings::Item> CallFindings::take_new() {
  std::vector<Item> fresh(all_.begin() + static_cast<std::ptrdiff_t>(taken_), all_.end());
  taken_ = all_.size();
  return fresh;
}

}  // namespace kvc::validate
