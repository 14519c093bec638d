// The simulator, the bound and the reports of kvc-size.
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "host_stub/size/optimum.h"
#include "host_stub/size/size_report.h"
#include "plugin/core/prng.h"
#include "plugin/tests/seed.h"

namespace kvc::host {
namespace {

constexpr Tokens block{64};

Geometry geometry_of(bool states) {
  GeometryOptions o;
  o.groups = {group_spec(GroupKind::full, block)};
  o.hash_unit = block;
  o.scheduler_block = block;
  if (states) {
    o.groups.push_back(group_spec(GroupKind::state, block));
    o.groups.push_back(group_spec(GroupKind::state, block));
    o.hash_unit = Tokens{16};
  }
  return std::move(Geometry::make(std::move(o))).value();
}

SizeTrace chat(std::uint64_t requests, std::uint64_t seed, Tokens unit) {
  const auto trace = Trace::open("gen:chat?requests=" + std::to_string(requests) +
                                 "&seed=" + std::to_string(seed));
  BOOST_REQUIRE(trace.ok());
  return SizeTrace(trace.value(), unit);
}

SizeCounts counts(const Geometry& geometry, const SizeTrace& trace, Eviction eviction,
                  std::uint64_t slots) {
  auto made = SizeSimulator::make(geometry, trace, {eviction, slots});
  BOOST_REQUIRE(made.ok());
  const SizeCounts out = made.value()->run();
  const Status s = made.value()->index().verify();
  BOOST_TEST(s.ok(), s.text);
  return out;
}

BOOST_AUTO_TEST_SUITE(size)

BOOST_AUTO_TEST_CASE(equal_prefixes_have_equal_keys_and_answers_are_their_own) {
  const SizeTrace trace = chat(200, 1, block);
  std::set<std::uint64_t> answers;
  std::set<std::uint64_t> prompts;
  for (const SizeRequest& r : trace.requests()) {
    for (std::uint64_t k = 0; k < r.prompt_keys; ++k) prompts.insert(trace.key(r.first + k));
    for (std::uint64_t k = r.prompt_keys; k < r.keys; ++k)
      BOOST_TEST(answers.insert(trace.key(r.first + k)).second);
    BOOST_TEST(r.keys == (r.prompt + r.output - Tokens{1}).n / block.n);
  }
  std::uint64_t asked = 0;
  for (const SizeRequest& r : trace.requests()) asked += r.prompt_keys;
  BOOST_TEST(prompts.size() < asked);
  for (const std::uint64_t key : answers) BOOST_TEST(prompts.count(key) == 0U);
}

BOOST_AUTO_TEST_CASE(an_unlimited_tier_hits_all_that_repeats) {
  const Geometry geometry = geometry_of(false);
  const SizeTrace trace = chat(300, 2, block);
  const Whole whole = whole_blocks(block, block, trace);
  const SizeCounts all = counts(geometry, trace, Eviction::lru, 0);
  BOOST_TEST(all.hit_tokens == whole.hit_tokens);
  BOOST_TEST(all.hit_tokens > 0U);
  BOOST_TEST(all.evicted == 0U);
  BOOST_TEST(optimal_hit_tokens(block, block, trace, whole.blocks) == whole.hit_tokens);
}

BOOST_AUTO_TEST_CASE(no_policy_hits_more_than_the_optimum) {
  const Geometry geometry = geometry_of(false);
  const SizeTrace trace = chat(400, 3, block);
  const std::uint64_t blocks = whole_blocks(block, block, trace).blocks;
  std::uint64_t before = 0;
  for (const std::uint64_t share : {100U, 30U, 10U, 3U}) {
    const std::uint64_t slots = std::max<std::uint64_t>(1, blocks / share);
    const std::uint64_t best = optimal_hit_tokens(block, block, trace, slots);
    BOOST_TEST(best >= before);
    before = best;
    for (const Eviction e : {Eviction::lru, Eviction::arc, Eviction::gdsf, Eviction::hazard}) {
      const SizeCounts c = counts(geometry, trace, e, slots);
      BOOST_TEST(c.hit_tokens <= best, name_of(e) << " with " << slots << " slots");
      BOOST_TEST(c.prompt_tokens == trace.prompt_tokens().n);
    }
  }
  BOOST_TEST(before > 0U);
}

// All ways to keep blocks between requests of a tiny trace.
std::uint64_t brute_force(const std::vector<std::vector<int>>& paths, std::size_t slots) {
  std::map<std::set<int>, std::uint64_t> states{{{}, 0}};
  for (const auto& path : paths) {
    std::map<std::set<int>, std::uint64_t> next;
    for (const auto& [held, hits] : states) {
      std::uint64_t run = 0;
      while (run < path.size() && held.count(path[run]) != 0) ++run;
      std::set<int> can = held;
      can.insert(path.begin(), path.end());
      const std::vector<int> all(can.begin(), can.end());
      for (std::uint32_t mask = 0; mask < 1U << all.size(); ++mask) {
        std::set<int> keep;
        for (std::size_t i = 0; i < all.size(); ++i)
          if ((mask >> i & 1U) != 0) keep.insert(all[i]);
        if (keep.size() > slots) continue;
        std::uint64_t& best = next[keep];
        best = std::max(best, hits + run);
      }
    }
    states = std::move(next);
  }
  std::uint64_t best = 0;
  for (const auto& [held, hits] : states) best = std::max(best, hits);
  return best;
}

BOOST_AUTO_TEST_CASE(the_optimum_is_what_trying_everything_finds) {
  const std::uint64_t first = test::seed_or(40);
  for (std::uint64_t seed = first; seed < first + (test::only_seed() ? 1 : 30); ++seed) {
    BOOST_TEST_CONTEXT(test::repeat_command(seed)) {
      Prng rng(seed);
      // A tree of two roots with two children each, and their children: paths from the root.
      std::vector<std::vector<int>> paths;
      std::string rows;
      for (int i = 0; i < 7; ++i) {
        std::vector<int> path{static_cast<int>(rng.below(2))};
        if (rng.chance(3, 4)) path.push_back(10 + path[0] * 2 + static_cast<int>(rng.below(2)));
        paths.push_back(path);
      }
      // One token more than the blocks, so that all of them may hit.
      const std::string file = "/tmp/kvc_size_test_" + std::to_string(seed) + ".jsonl";
      std::FILE* out = std::fopen(file.c_str(), "w");
      BOOST_REQUIRE(out != nullptr);
      for (const auto& path : paths) {
        std::string ids;
        for (const int id : path) ids += std::to_string(id) + ",";
        std::fprintf(
            out, "{\"timestamp\":0,\"input_length\":%zu,\"output_length\":1,\"hash_ids\":[%s99]}\n",
            path.size() * 512 + 1, ids.c_str());
      }
      std::fclose(out);
      const auto trace = Trace::open(file);
      std::remove(file.c_str());
      BOOST_REQUIRE(trace.ok());
      const SizeTrace sized(trace.value(), Tokens{512});
      for (std::size_t slots = 1; slots <= 4; ++slots)
        BOOST_TEST(optimal_hit_tokens(Tokens{512}, Tokens{512}, sized, slots) ==
                   brute_force(paths, slots) * 512);
    }
  }
}

BOOST_AUTO_TEST_CASE(hybrid_layouts_hit_only_where_states_are) {
  const Geometry geometry = geometry_of(true);
  const SizeTrace trace = chat(300, 4, Tokens{16});
  const SizeCounts all = counts(geometry, trace, Eviction::lru, 0);
  BOOST_TEST(all.hit_tokens > 0U);
  for (const Eviction e : {Eviction::lru, Eviction::arc, Eviction::gdsf, Eviction::hazard}) {
    const SizeCounts c = counts(geometry, trace, e, all.entries / 10);
    BOOST_TEST(c.hit_tokens > 0U);
    BOOST_TEST(c.hit_tokens <= all.hit_tokens);
    BOOST_TEST(c.evicted > 0U);
    BOOST_TEST(c.entries <= all.entries / 10);
  }
}

BOOST_AUTO_TEST_CASE(fewer_states_cost_fewer_slots) {
  const Geometry geometry = geometry_of(true);
  const SizeTrace trace = chat(300, 5, Tokens{16});
  const auto run = [&](StateRule rule) {
    auto made = SizeSimulator::make(geometry, trace, {Eviction::lru, 0, rule});
    BOOST_REQUIRE(made.ok());
    return made.value()->run();
  };
  const SizeCounts dense = run(StateRule::dense);
  const SizeCounts tail = run(StateRule::tail);
  const SizeCounts automatic = run(StateRule::automatic);
  BOOST_TEST(tail.stored < automatic.stored);
  BOOST_TEST(automatic.stored < dense.stored);
  BOOST_TEST(tail.hit_tokens <= automatic.hit_tokens);
}

SizeReport small_report() {
  SizeReport r;
  r.trace = "a<b>&c.jsonl";
  r.model = "m";
  r.requests = 7;
  r.prompt_tokens = 1000;
  r.entries = 50;
  r.unlimited_tokens = 500;
  r.bound_is_exact = true;
  for (const std::uint64_t slots : {5U, 10U}) {
    SizeRow row;
    row.slots = slots;
    row.share = static_cast<double>(slots) / 50;
    row.optimal_tokens = 300 + slots;
    SizeCell cell;
    cell.eviction = Eviction::hazard;
    cell.counts.prompt_tokens = 1000;
    cell.counts.hit_tokens = 20 * slots;
    row.cells = {cell};
    r.rows.push_back(row);
  }
  return r;
}

BOOST_AUTO_TEST_CASE(the_table_has_a_line_per_capacity) {
  const std::string text = to_text(small_report());
  for (const char* part : {"7 requests", "auto", "optimal", "0.1000", "0.2000", "0.3050", "10.00%"})
    BOOST_TEST(text.find(part) != std::string::npos, part << " is missing in\n" << text);
}

BOOST_AUTO_TEST_CASE(json_has_all_numbers) {
  const auto json = nlohmann::json::parse(to_json(small_report()));
  BOOST_TEST(json["capacities"].size() == 2U);
  BOOST_TEST(json["capacities"][1]["policies"][0]["hit_ratio"] == 0.2);
  BOOST_TEST(json["capacities"][1]["bound_hit_ratio"] == 0.31);
  BOOST_TEST(json["bound_is_exact"] == true);
}

BOOST_AUTO_TEST_CASE(the_picture_is_well_formed_for_any_name) {
  const std::string svg = to_svg(small_report());
  BOOST_TEST(svg.find("a&lt;b>&amp;c.jsonl") != std::string::npos);
  BOOST_TEST(svg.find("nan") == std::string::npos);
  BOOST_TEST(svg.ends_with("</svg>\n"));
  SizeReport empty = small_report();
  empty.rows.clear();
  BOOST_TEST(to_svg(empty).ends_with("</svg>\n"));
  empty.rows = {small_report().rows.front()};
  BOOST_TEST(to_svg(empty).find("nan") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc::host
