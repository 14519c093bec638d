#include "host_stub/traces/trace.h"

#include <algorithm>

namespace kvc::host {
namespace {

// One round of SplitMix64's finalizer: neighbouring inputs give unrelated outputs.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30U;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27U;
  x *= 0x94d049bb133111ebULL;
  return x ^ (x >> 31U);
}

TokenId token_at(std::uint64_t mixed_origin, std::uint64_t offset) {
  return static_cast<TokenId>(mix(mixed_origin + offset * 0x9e3779b97f4a7c15ULL) >> 33U);
}

}  // namespace

config::Parsed<Trace> Trace::open(const std::string& spec, std::size_t limit, Turns turns) {
  constexpr std::string_view prefix = "gen:";
  if (spec.compare(0, prefix.size(), prefix) == 0) return generate_trace(spec, limit);
  return read_trace_file(spec, limit, turns);
}

TraceRequest Trace::request(std::size_t index) const {
  const Row& row = rows_[index];
  return {row.timestamp_ms, row.prompt_tokens, row.output_tokens};
}

void Trace::expand_prompt(std::size_t index, std::vector<TokenId>& tokens) const {
  const Row& row = rows_[index];
  tokens.clear();
  tokens.reserve(row.prompt_tokens);
  if (!literals_.empty()) {
    const auto begin = literals_.begin() + static_cast<std::ptrdiff_t>(row.first);
    tokens.assign(begin, begin + static_cast<std::ptrdiff_t>(row.prompt_tokens));
    return;
  }
  for (std::size_t run = row.first; tokens.size() < row.prompt_tokens; ++run) {
    const std::uint64_t mixed = mix(runs_[run].origin + 0x632be59bd9b4e019ULL);
    for (std::uint64_t offset = 0; offset < runs_[run].tokens; ++offset) {
      tokens.push_back(token_at(mixed, offset));
    }
  }
}

void TraceBuilder::add_run(std::uint64_t origin, std::uint64_t tokens) {
  trace_.runs_.push_back({origin, tokens});
  open_tokens_ += tokens;
}

void TraceBuilder::add_token(TokenId token) {
  trace_.literals_.push_back(token);
  ++open_tokens_;
}

void TraceBuilder::end_row(std::uint64_t timestamp_ms, std::uint64_t output_tokens) {
  trace_.rows_.push_back({timestamp_ms, row_first_, static_cast<std::uint32_t>(open_tokens_),
                          static_cast<std::uint32_t>(output_tokens)});
  TraceTotals& totals = trace_.totals_;
  ++totals.requests;
  totals.prompt_tokens += open_tokens_;
  totals.output_tokens += output_tokens;
  totals.longest_prompt_tokens = std::max(totals.longest_prompt_tokens, open_tokens_);
  totals.longest_total_tokens = std::max(totals.longest_total_tokens, open_tokens_ + output_tokens);
  row_first_ = trace_.literals_.empty() ? trace_.runs_.size() : trace_.literals_.size();
  open_tokens_ = 0;
}

Trace TraceBuilder::take() && {
  trace_.rows_.shrink_to_fit();
  trace_.runs_.shrink_to_fit();
  trace_.literals_.shrink_to_fit();
  return std::move(trace_);
}

}  // namespace kvc::host
