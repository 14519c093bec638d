// The answer of kvc-size: hit rate against capacity, per policy.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "host_stub/size/size_simulator.h"

namespace kvc::host {

struct SizeCell {
  Eviction eviction = Eviction::lru;
  StateRule states = StateRule::dense;
  SizeCounts counts;
};

struct SizeRow {
  std::uint64_t slots = 0;
  double share = 0;                  // of all distinct entries
  std::uint64_t optimal_tokens = 0;  // that nothing hits more than
  std::vector<SizeCell> cells;
};

struct SizeReport {
  std::string trace;
  std::string model;
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t entries = 0;           // distinct ones
  std::uint64_t unlimited_tokens = 0;  // hit when every hash unit of every prompt is kept
  bool has_states = false;
  bool bound_is_exact = false;  // the chain is all there is: Belady's; else unlimited_tokens
  std::vector<SizeRow> rows;    // ascending slots
};

// A table: a line per capacity, a column per policy, beside the bound.
[[nodiscard]] std::string to_text(const SizeReport& report);
// All numbers, schema kvc.size/1 (docs/formats/size.md). Ratios have 6 digits.
[[nodiscard]] std::string to_json(const SizeReport& report);
// One self-contained picture: hit rate over capacity (logarithmic), a line per policy and the
// bound.
[[nodiscard]] std::string to_svg(const SizeReport& report);

}  // namespace kvc::host
