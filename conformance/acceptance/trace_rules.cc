#include "conformance/acceptance/trace_rules.h"

#include <algorithm>
#include <fstream>
#include <list>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>

namespace kvc::acceptance {
namespace {

constexpr std::uint64_t span_tokens = 512;  // of one id of the trace

// The blocks of one tier in order of use.
class LruTier {
 public:
  explicit LruTier(std::uint64_t capacity) : capacity_(capacity) {}
  [[nodiscard]] bool has(std::uint64_t block) const { return at_.contains(block); }
  void touch(std::uint64_t block) {
    if (const auto found = at_.find(block); found != at_.end()) {
      order_.splice(order_.end(), order_, found->second);
      return;
    }
    if (at_.size() >= capacity_) {
      at_.erase(order_.front());
      order_.pop_front();
    }
    at_[block] = order_.insert(order_.end(), block);
  }

 private:
  std::uint64_t capacity_;
  std::list<std::uint64_t> order_;  // oldest first
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> at_;
};

}  // namespace

std::vector<Row> read_rows(const std::string& path, std::size_t limit) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error(path + " cannot be read");
  std::vector<Row> rows;
  std::string line;
  while (rows.size() < limit && std::getline(in, line)) {
    const auto j = nlohmann::json::parse(line);
    rows.push_back({j.at("input_length"), j.at("output_length"), j.at("hash_ids")});
  }
  return rows;
}

std::uint64_t sum_of_prompts(const std::vector<Row>& rows) {
  std::uint64_t sum = 0;
  for (const Row& row : rows) sum += row.prompt_tokens;
  return sum;
}

std::uint64_t replay_limit_tokens(const std::vector<Row>& rows, std::uint64_t unit_tokens) {
  std::uint64_t sum = 0;
  for (const Row& row : rows) sum += (row.prompt_tokens - 1) / unit_tokens * unit_tokens;
  return sum;
}

std::uint64_t ideal_hit_tokens(const std::vector<Row>& rows, std::uint64_t unit_tokens) {
  std::unordered_map<std::uint64_t, std::uint64_t> seen;  // id to tokens of it held so far
  std::uint64_t hits = 0;
  for (const Row& row : rows) {
    const auto here = [&](std::size_t i) {
      return std::min(span_tokens, row.prompt_tokens - i * span_tokens);
    };
    std::uint64_t run = 0;
    for (std::size_t i = 0; i < row.ids.size(); ++i) {
      const auto found = seen.find(row.ids[i]);
      const std::uint64_t common = found == seen.end() ? 0 : std::min(here(i), found->second);
      run += common;
      if (common < span_tokens) break;
    }
    hits += std::min(run, row.prompt_tokens - 1) / unit_tokens * unit_tokens;
    for (std::size_t i = 0; i < row.ids.size(); ++i) {
      std::uint64_t& held = seen[row.ids[i]];
      held = std::max(held, here(i));
    }
  }
  return hits;
}

std::uint64_t unique_ids(const std::vector<Row>& rows) {
  std::unordered_set<std::uint64_t> ids;
  for (const Row& row : rows) ids.insert(row.ids.begin(), row.ids.end());
  return ids.size();
}

std::uint64_t lru_hit_tokens(const std::vector<Row>& rows, std::uint64_t capacity_blocks) {
  LruTier tier(capacity_blocks);
  std::uint64_t hits = 0;
  std::uint64_t own = std::uint64_t{1} << 63U;  // names of output blocks: above all ids
  for (const Row& row : rows) {
    const std::uint64_t complete = row.prompt_tokens / span_tokens;
    std::vector<std::uint64_t> use(row.ids.begin(),
                                   row.ids.begin() + static_cast<std::ptrdiff_t>(complete));
    std::uint64_t run = 0;
    while (run < use.size() && tier.has(use[run])) ++run;
    hits += std::min(run, (row.prompt_tokens - 1) / span_tokens) * span_tokens;
    const std::uint64_t written = row.prompt_tokens + std::max<std::uint64_t>(row.output_tokens, 1);
    for (std::uint64_t i = complete; i < (written - 1) / span_tokens; ++i) use.push_back(own++);
    for (auto block = use.rbegin(); block != use.rend(); ++block) tier.touch(*block);
  }
  return hits;
}

}  // namespace kvc::acceptance
