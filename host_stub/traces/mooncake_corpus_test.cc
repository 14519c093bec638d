// The recorded conversation trace of the corpus, counted exactly.
#include <boost/test/unit_test.hpp>
#include <boost/unordered/unordered_flat_set.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "host_stub/traces/trace.h"

namespace {

using kvc::host::TokenId;
using kvc::host::Trace;

constexpr std::uint64_t unit_tokens = 16;
// Printed by the independent counter of the trace's ideal hits (unlimited cache, one request after
// the other, full attention, at most n-1 tokens of a prompt of n) for unit 16.
constexpr std::uint64_t ideal_hit_tokens = 54'097'440;

const std::string path = KVC_CORPUS "/traces/mooncake_conversation.jsonl";

Trace corpus() {
  auto trace = Trace::open(path);
  if (!trace.ok()) BOOST_FAIL(trace.error().text);
  return std::move(trace.value());
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mooncake_corpus)

BOOST_AUTO_TEST_CASE(the_conversation_trace_is_counted_exactly) {
  const auto trace = corpus();
  BOOST_TEST(trace.totals().requests == 12'031U);
  BOOST_TEST(trace.totals().prompt_tokens == 144'793'823U);
  BOOST_TEST(trace.totals().longest_total_tokens == 126'527U);
}

// From the ids alone, by the rule of the independent counter.
BOOST_AUTO_TEST_CASE(ideal_hits_counted_from_the_hash_ids_are_those_of_the_independent_counter) {
  std::ifstream file(path);
  BOOST_REQUIRE(file.good());
  std::unordered_map<std::uint64_t, std::uint64_t> seen_tokens;
  std::uint64_t hits = 0;
  for (std::string line; std::getline(file, line);) {
    const auto row = nlohmann::json::parse(line);
    const auto n = row["input_length"].get<std::uint64_t>();
    const auto ids = row["hash_ids"].get<std::vector<std::uint64_t>>();
    std::uint64_t run = 0;
    bool open = true;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::uint64_t here = std::min<std::uint64_t>(512, n - i * 512);
      std::uint64_t& seen = seen_tokens[ids[i]];
      if (open) run += std::min(here, seen);
      open = open && std::min(here, seen) == 512;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      std::uint64_t& seen = seen_tokens[ids[i]];
      seen = std::max(seen, std::min<std::uint64_t>(512, n - i * 512));
    }
    hits += std::min(run, n - 1) / unit_tokens * unit_tokens;
  }
  BOOST_TEST(hits == ideal_hit_tokens);
}

// From the tokens that a run really computes: the expansion keeps exactly the sharing that the ids
// state.
BOOST_AUTO_TEST_CASE(ideal_hits_counted_from_the_expanded_tokens_are_the_same) {
  const auto trace = corpus();
  boost::unordered_flat_set<std::uint64_t> seen;
  std::vector<TokenId> tokens;
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    trace.expand_prompt(i, tokens);
    std::uint64_t chain = 0;
    std::uint64_t hit = 0;
    bool open = true;
    for (std::size_t at = 0; at + unit_tokens <= tokens.size(); at += unit_tokens) {
      for (std::size_t k = 0; k < unit_tokens; ++k) {
        chain = (chain ^ tokens[at + k]) * 0x9fb21c651e98df25ULL;
        chain ^= chain >> 32U;
      }
      open = !seen.insert(chain).second && open;
      if (open && at + unit_tokens < tokens.size()) hit = at + unit_tokens;
    }
    hits += hit;
  }
  BOOST_TEST(hits == ideal_hit_tokens);
}

BOOST_AUTO_TEST_SUITE_END()
