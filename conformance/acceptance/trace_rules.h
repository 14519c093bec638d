// What a recorded trace must give, counted from the file alone: no code of the product is used.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace kvc::acceptance {

struct Row {
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::vector<std::uint64_t> ids;  // one per 512 prompt tokens
};

// All rows, or the first `limit`. Throws std::runtime_error for a file that is no such trace.
std::vector<Row> read_rows(const std::string& path, std::size_t limit = SIZE_MAX);

std::uint64_t sum_of_prompts(const std::vector<Row>& rows);

// Sum of floor((P - 1) / unit) * unit: what a replay can hit at most when everything was kept.
std::uint64_t replay_limit_tokens(const std::vector<Row>& rows, std::uint64_t unit_tokens);

// One request after the other, unlimited cache, full attention: the common prefix with earlier
// prompts, at most P - 1 tokens, in multiples of `unit_tokens`.
std::uint64_t ideal_hit_tokens(const std::vector<Row>& rows, std::uint64_t unit_tokens);

std::uint64_t unique_ids(const std::vector<Row>& rows);

// Plain LRU over blocks of 512 tokens, one request after the other, no device cache. Complete
// blocks only; a hit is the longest run of resident prompt blocks from the start, at most
// floor((P - 1) / 512) blocks; afterwards the complete blocks of prompt and output (P + outputs - 1
// tokens have KV) are resident. Recency within a request: last block touched first, so that tails
// are evicted before heads. Output blocks belong to their request alone.
std::uint64_t lru_hit_tokens(const std::vector<Row>& rows, std::uint64_t capacity_blocks);

}  // namespace kvc::acceptance
