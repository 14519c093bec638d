// The oracle against 1,500 recorded lookups of vLLM 0.32's own coordinator: the check of the oracle
// itself.
#include <boost/test/unit_test.hpp>
#include <fstream>
#include <nlohmann/json.hpp>

#include "conformance/oracle/oracle.h"

namespace {

using namespace kvc::oracle;
using Json = nlohmann::json;

Group group_of(const Json& row) {
  Group g;
  const auto kind = row.at("kind").get<std::string>();
  g.kind = kind == "full"      ? Kind::full
           : kind == "sliding" ? Kind::sliding
           : kind == "chunked" ? Kind::chunked
                               : Kind::state;
  BOOST_REQUIRE(g.kind != Kind::state || kind == "mamba");
  g.rank_block = row.at("block").get<std::uint64_t>();
  g.sharded = g.kind == Kind::full;
  g.window = row.value("window", std::uint64_t{0});
  g.align = row.value("mode", "") == "align";
  g.draft = row.value("eagle", false);
  g.held = row.at("held").get<std::set<std::uint64_t>>();
  return g;
}

World world_of(const Json& row) {
  World w;
  for (const auto& g : row.at("groups")) w.groups.push_back(group_of(g));
  w.hash_unit = row.at("hash_block").get<std::uint64_t>();
  w.scheduler_block = row.at("scheduler_block").get<std::uint64_t>();
  w.context_parallel = row.at("dcp").get<std::uint64_t>();
  w.fine_hits_allowed = row.at("fine_hits_allowed").get<bool>();
  w.tokens = row.at("prompt_tokens").get<std::uint64_t>();
  return w;
}

// Blocks of the group in the answer: the last position + 1, and how many are real.
std::pair<std::uint64_t, std::uint64_t> slots_and_real(const World& w, std::size_t group,
                                                       std::uint64_t t) {
  std::uint64_t last = 0;
  std::uint64_t real = 0;
  for (const auto& place : needed(w, t)) {
    if (place.first != group) continue;
    last = place.second + 1;
    ++real;
  }
  return {last, real};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(recorded_vectors)

BOOST_AUTO_TEST_CASE(the_oracle_reproduces_every_recorded_lookup) {
  std::ifstream file(KVC_CORPUS "/vectors/lookup_vllm.jsonl");
  BOOST_REQUIRE(file.good());
  std::size_t rows = 0;
  std::size_t refused = 0;
  std::size_t bests = 0;
  std::size_t drafts = 0;
  for (std::string line; std::getline(file, line); ++rows) {
    const Json row = Json::parse(line);
    const Json& expect = row.at("expect");
    BOOST_TEST_CONTEXT(line) {
      if (expect.contains("refused")) {
        ++refused;
        continue;
      }
      const World w = world_of(row);
      const auto hit = expect.at("hit_tokens").get<std::uint64_t>();
      BOOST_TEST(fine_hits(w) == expect.at("fine_hits").get<bool>());
      BOOST_TEST(rule_hit(w, w.tokens) == hit);
      const auto best = best_hit(w, w.tokens);
      BOOST_TEST(best >= hit);
      BOOST_TEST(all_serve(w, hit));
      if (expect.contains("best_hit_tokens")) {
        ++bests;
        BOOST_TEST(best == expect.at("best_hit_tokens").get<std::uint64_t>());
      } else {
        ++drafts;
      }
      for (std::size_t g = 0; g < w.groups.size(); ++g) {
        BOOST_TEST(w.span(g) == expect.at("group_block_tokens")[g].get<std::uint64_t>());
        const auto [slots, real] = slots_and_real(w, g, hit);
        // A window of one token looks back at nothing; the peer hands out its last block all the
        // same.
        const bool idle = w.groups[g].kind == Kind::sliding && w.groups[g].window == 1;
        const auto peer_real = expect.at("real")[g].get<std::uint64_t>();
        BOOST_TEST(real == (idle ? 0 : peer_real));
        if (real > 0) BOOST_TEST(slots == expect.at("slots")[g].get<std::uint64_t>());
      }
    }
  }
  BOOST_TEST(rows == 1500U);
  BOOST_TEST(refused == 139U);
  BOOST_TEST(bests == 1125U);
  BOOST_TEST(drafts == 236U);
}

BOOST_AUTO_TEST_SUITE_END()
