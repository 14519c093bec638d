// Eviction policies as the role shows them: who goes, what a declined store becomes, and the
// numbers.
#include "plugin/simple_cpu/tests/rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

constexpr std::uint64_t block = 16;

struct PolicyRig : Rig {
  explicit PolicyRig(Eviction eviction, std::uint64_t slots = 8,
                     const Layout& layout_in = {{full(block)}, block, block, 1})
      : Rig(layout_in, slots, options_of(eviction), limits_of()) {}
  static SimpleCpuSchedulerOptions options_of(Eviction eviction) {
    SimpleCpuSchedulerOptions o;
    o.eviction = eviction;
    return o;
  }
  // A request with an answer of one token that stores what it can. Returns its hit.
  std::uint64_t serve(const TokenIds& prompt) {
    const RequestId id = ++last;
    BOOST_REQUIRE(begin(id, prompt) == Code::ok);
    const std::uint64_t external = hit(id);
    Tables tables(layout.groups.size());
    for (BlockId b = 1; b <= static_cast<BlockId>(prompt.size() / block + 1); ++b)
      for (Table& table : tables) table.push_back(b);
    alloc(id, external, tables);
    drain();
    step({{id, prompt.size(), tables}});
    finish_all();
    end(id, prompt.size(), tables);
    drain();
    BOOST_TEST(role->verify() == "");
    return external;
  }
  RequestId last = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_policies)

BOOST_AUTO_TEST_CASE(a_frequent_prefix_outlives_a_scan_under_gdsf_and_not_under_lru) {
  for (const Eviction e : {Eviction::lru, Eviction::gdsf}) {
    PolicyRig rig(e);
    const TokenIds often = tokens_of(1, 4 * block + 1);
    for (int i = 0; i < 6; ++i) rig.serve(often);
    for (std::uint32_t once = 2; once < 5; ++once) rig.serve(tokens_of(once, 4 * block + 1));
    const std::uint64_t kept = rig.serve(often);
    BOOST_TEST(kept == (e == Eviction::lru ? 0U : 4 * block), name_of(e));
  }
}

BOOST_AUTO_TEST_CASE(arc_keeps_what_was_used_twice_from_what_was_used_once) {
  PolicyRig rig(Eviction::arc);
  const TokenIds twice = tokens_of(1, 4 * block + 1);
  rig.serve(twice);
  rig.serve(twice);
  for (std::uint32_t once = 2; once < 6; ++once) rig.serve(tokens_of(once, 4 * block + 1));
  BOOST_TEST(rig.serve(twice) == 4 * block);
}

// Documents in a loop, a pool for half of them: lru never hits; auto keeps some and says what it
// did not take.
BOOST_AUTO_TEST_CASE(a_declined_store_is_a_full_pool_and_is_counted_beside_it) {
  constexpr std::uint32_t documents = 10;
  PolicyRig rig(Eviction::hazard, documents * 2);
  std::uint64_t hits = 0;
  for (std::uint32_t i = 0; i < 600; ++i)
    hits += rig.serve(tokens_of(i % documents, 4 * block + 1));
  BOOST_TEST(hits > 100U * 4 * block);
  const OfferCounts& all = rig.role->counts().all_offers;
  BOOST_TEST(rig.stat("policy_declined") > 0U);
  BOOST_TEST(all.dropped_pool_full >= rig.stat("policy_declined"));
  BOOST_TEST(all.balanced());
  BOOST_TEST(rig.stat("policy_classes_now") > 0U);
  BOOST_TEST(rig.stat("policy_refreshes") > 3U);
  BOOST_TEST(rig.stat("policy_bytes_now") > 0U);
}

BOOST_AUTO_TEST_CASE(stats_and_explain_name_the_policy_and_what_it_learned) {
  PolicyRig rig(Eviction::hazard);
  for (std::uint32_t i = 0; i < 120; ++i) rig.serve(tokens_of(i % 3, 4 * block + 1));
  std::vector<Stat> stats(rig.role->stat_count());
  rig.role->stats(stats);
  std::size_t buckets = 0;
  std::uint64_t hits = 0;
  for (const Stat& s : stats) {
    buckets += s.name == "policy_hazard_ppb_now" && s.value > 0 ? 1 : 0;
    hits += s.name == "policy_top_class_hits" ? s.value : 0;
  }
  BOOST_TEST(buckets == 32U);
  BOOST_TEST(hits > 0U);
  BOOST_TEST(rig.role->explain(0).value().find("\"eviction\":\"auto\"") != std::string::npos);
  const PolicyRig plain(Eviction::lru);
  BOOST_TEST(plain.role->explain(0).value().find("\"eviction\":\"lru\"") != std::string::npos);
  BOOST_TEST(plain.role->stat_count() < rig.role->stat_count());
}

BOOST_AUTO_TEST_CASE(a_layout_without_a_chain_keeps_lru_and_says_why) {
  PolicyRig rig(Eviction::arc, 8, {{sliding(block, 2 * block)}, block, block, 1});
  const std::string text = rig.role->explain(0).value();
  BOOST_TEST(text.find("\"eviction\":\"lru\"") != std::string::npos);
  BOOST_TEST(text.find("lru is used") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_reset_keeps_what_was_learned_and_nothing_else) {
  PolicyRig rig(Eviction::hazard);
  const TokenIds prompt = tokens_of(1, 4 * block + 1);
  for (int i = 0; i < 3; ++i) rig.serve(prompt);
  BOOST_TEST(rig.serve(prompt) == 4 * block);
  const std::uint64_t classes = rig.stat("policy_classes_now");
  BOOST_TEST(rig.role->reset(false).ok());
  BOOST_TEST(rig.stat("policy_ghosts_now") == 0U);
  BOOST_TEST(rig.stat("policy_classes_now") == classes);
  BOOST_TEST(rig.serve(prompt) == 0U);
  BOOST_TEST(rig.serve(prompt) == 4 * block);
}

BOOST_AUTO_TEST_SUITE_END()
