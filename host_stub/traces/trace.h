// The requests of a run: recorded in a file or made by a generator, kept compact, expanded one at a
// time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/parsed.h"

namespace kvc::host {

// Token ids of every trace are below 2^31.
using TokenId = std::uint32_t;

// What a run does for one row of a trace.
struct TraceRequest {
  std::uint64_t timestamp_ms = 0;   // arrival, from the start of the trace
  std::uint64_t prompt_tokens = 0;  // >= 1
  std::uint64_t output_tokens =
      0;  // >= 1; how many the engine generates, which ones is the model's affair
};

struct TraceTotals {
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t longest_prompt_tokens = 0;
  std::uint64_t longest_total_tokens = 0;  // prompt and output of one request
};

// What the incomplete last block of a Mooncake prompt has to do with the prompt that continues it.
enum class Turns : std::uint8_t {
  apart,      // nothing: its hash id stands once, so that nobody shares its tokens
  continued,  // the next turn begins with its tokens (TurnJoiner)
};

// A validated trace.
//
// Threads:    immutable once built, any thread may read.
// Owns:       its rows: 24 bytes a request plus 16 bytes a run of tokens with one origin (a hash id
// of a Mooncake row,
//             a message of a generated chat), or 4 bytes a token where the file gives the tokens
//             themselves.
// Invariants: every row has at least one prompt and one output token; tokens of equal origin and
// offset are equal,
//             tokens of different origins differ from the first on except by chance (1 in 2^31 a
//             token).
class Trace {
 public:
  static constexpr std::size_t no_limit = SIZE_MAX;
  // Limits of a row; larger ones are errors.
  static constexpr std::uint64_t tokens_largest = std::uint64_t{1} << 30U;

  // `spec` is the path of a file or "gen:NAME?key=value&...". At most `limit` rows are read; all of
  // them are checked before this returns.
  //
  // Files hold one JSON object a line, either Mooncake rows {timestamp, input_length,
  // output_length, hash_ids}, with 512 tokens per id and ceil(input_length / 512) ids, or token
  // rows {"prompt": [ids below 2^31], "output_length": n} with an optional timestamp; the first
  // line decides. Other keys are ignored.
  //
  // `turns`: of Mooncake rows alone.
  //
  // Generators (all take requests, seed and output_tokens; see generator_help()): chat, shared,
  // agent. Equal specs give equal traces.
  //
  // Errors name file and line, or the parameter and what is allowed: unreadable file, no row, a
  // line that is not such an object (also a cut last one), a missing, negative or too large number,
  // a wrong number of ids.
  static config::Parsed<Trace> open(const std::string& spec, std::size_t limit = no_limit,
                                    Turns turns = Turns::apart);

  [[nodiscard]] std::size_t size() const { return rows_.size(); }
  // Requires index < size().
  [[nodiscard]] TraceRequest request(std::size_t index) const;
  // Replaces the content of `tokens` by the prompt of request `index` (< size()).
  void expand_prompt(std::size_t index, std::vector<TokenId>& tokens) const;
  [[nodiscard]] const TraceTotals& totals() const { return totals_; }

  // Names and parameters of the generators with their defaults, for a program's --help.
  [[nodiscard]] static std::string generator_help();

 private:
  friend class TraceBuilder;
  struct Row {
    std::uint64_t timestamp_ms;
    std::uint64_t first;  // index into runs_ or literals_; ends where the next row begins
    std::uint32_t prompt_tokens;
    std::uint32_t output_tokens;
  };
  // `tokens` tokens with offsets 0, 1, ... of one origin.
  struct Run {
    std::uint64_t origin;
    std::uint64_t tokens;
  };

  std::vector<Row> rows_;
  std::vector<Run> runs_;
  std::vector<TokenId> literals_;  // used instead of runs_ when the file gives tokens
  TraceTotals totals_;
};

// Collects rows. Requires of every row: 1 <= prompt tokens <= tokens_largest, the same for output
// tokens, and either runs in all rows or literals in all rows.
class TraceBuilder {
 public:
  // Appends a run to the row being built; `tokens` >= 1.
  void add_run(std::uint64_t origin, std::uint64_t tokens);
  // Appends one token to the row being built.
  void add_token(TokenId token);
  // Ends the row being built.
  void end_row(std::uint64_t timestamp_ms, std::uint64_t output_tokens);
  // Tokens of the row being built so far.
  [[nodiscard]] std::uint64_t open_tokens() const { return open_tokens_; }
  [[nodiscard]] std::size_t rows() const { return trace_.rows_.size(); }
  [[nodiscard]] Trace take() &&;

 private:
  Trace trace_;
  std::uint64_t open_tokens_ = 0;
  std::uint64_t row_first_ = 0;
};

// Readers behind Trace::open.
config::Parsed<Trace> read_trace_file(const std::string& path, std::size_t limit, Turns turns);
config::Parsed<Trace> generate_trace(std::string_view spec, std::size_t limit);

}  // namespace kvc::host
