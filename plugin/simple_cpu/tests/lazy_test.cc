// Lazy mode: what is stored, under which name everything else ends, and what is off (R-670..R-672,
// CW-12; spec 9.1 lazy_store_and_load_roundtrip, lazy_duplicate_store_skipped,
// reset_pending_lazy_stores, fine_grained_external_hits_require_eager_offload; 9.2
// lazy_store_emits_block_stored).
#include "plugin/simple_cpu/tests/rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

SimpleCpuSchedulerOptions lazy() {
  SimpleCpuSchedulerOptions o;
  o.lazy = true;
  return o;
}

struct Lazy : Rig {
  explicit Lazy(std::uint64_t slots = 16, SimpleCpuSchedulerOptions options = lazy(),
                Layout in = {{full(16)}, 16, 16, 1}, OpenLimits limits_in = limits_of())
      : Rig(std::move(in), slots, options, limits_in) {}

  // The first `count` blocks of the tokens' prefix, in blocks first, first + 1, ..
  void name_prefix(const TokenIds& all, std::uint64_t count, BlockId first) {
    for (std::uint64_t i = 0; i < count; ++i) {
      name(0, first + static_cast<BlockId>(i), all, (i + 1) * 16);
    }
  }
  void store_prefix(const TokenIds& all, std::uint64_t count, BlockId first) {
    name_prefix(all, count, first);
    drain();
  }
  // What a new request with these tokens hits; it leaves nothing behind.
  std::uint64_t hit_of(const TokenIds& all) {
    const RequestId id = ++last_id;
    begin(id, all);
    const std::uint64_t found = hit(id);
    end(id);
    return found;
  }
  RequestId last_id = 1000;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_lazy)

BOOST_AUTO_TEST_CASE(candidates_are_stored_and_loaded) {
  Lazy rig;
  const TokenIds prompt = tokens_of(1, 33);
  rig.name_prefix(prompt, 2, 5);
  const std::vector<PlanCopyOf> plan = rig.step();
  BOOST_REQUIRE_EQUAL(plan.size(), 1u);
  BOOST_TEST((plan[0].kind == JobKind::store));
  BOOST_TEST(plan[0].request == 0u);
  BOOST_TEST(plan[0].copies.size() == 2u);
  // Deepest first, under the position of the key.
  BOOST_REQUIRE_EQUAL(plan[0].held.size(), 2u);
  BOOST_TEST(plan[0].held[0].block == 6);
  BOOST_TEST(plan[0].held[0].position == 1u);
  BOOST_TEST(plan[0].held[1].block == 5);
  BOOST_TEST(rig.offers().pending == 2u);
  BOOST_TEST(rig.hit_of(prompt) == 0u);
  const Completed done = rig.finish(plan[0].job);
  BOOST_REQUIRE_EQUAL(done.jobs.size(), 1u);
  BOOST_TEST(done.jobs[0].released.size() == 2u);
  BOOST_TEST(rig.offers().stored == 2u);
  rig.begin(1, prompt);
  BOOST_TEST(rig.hit(1) == 32u);
  const JobId load = rig.alloc(1, 32, {{8, 9, 10}});
  rig.step();
  const Completed loaded = rig.finish(load);
  BOOST_REQUIRE_EQUAL(loaded.verdicts.size(), 1u);
  BOOST_TEST((loaded.verdicts[0].status == Code::ok));
  BOOST_TEST(rig.stat("lazy_mode_now") == 1u);
  rig.end(1, 33, {{8, 9, 10}});
  rig.check_quiet();
  BOOST_TEST(rig.host.faults() == 0u);
}

BOOST_AUTO_TEST_CASE(nothing_else_is_offered_and_the_gate_says_why) {
  Lazy rig(16, lazy(), {{full(64), state(64)}, 16, 64, 1});
  const TokenIds prompt = tokens_of(1, 100);
  rig.begin(1, prompt);
  const Tables tables{{1, 2}, {3}};
  rig.alloc(1, 0, tables);
  BOOST_TEST(rig.step({{1, 100, {{1, 2}, {}}}}, {}, {{1, 1, 3, Tokens{64}}}).empty());
  rig.step({}, {1});
  rig.step({{1, 100, {{1, 2}, {}}, true}});
  BOOST_TEST(rig.end(1, 100, tables, {{1, 1, 3, Tokens{96}}}) == 0u);
  rig.drain();
  BOOST_TEST(rig.offers().published == 0u);
  BOOST_TEST(rig.handoffs().published == 0u);
  rig.check_quiet();
  const std::string all = rig.role->explain(0).value();
  BOOST_TEST(all.find("\"mode\":\"lazy\"") != std::string::npos);
  for (const char* gate : {"fine_hits", "store_when_filled"}) {
    BOOST_TEST(all.find(std::string("\"feature\":\"") + gate) != std::string::npos, all);
    std::size_t logged = 0;
    for (const auto& line : rig.host.lines) logged += line.second.starts_with(gate);
    BOOST_TEST(logged == 1u);
  }
  BOOST_TEST(all.find("the owner forbids hits inside") != std::string::npos);
  std::vector<Stat> stats(rig.role->stat_count());
  rig.role->stats(stats);
  std::size_t gates = 0;
  for (const Stat& s : stats) gates += s.name == "gate_off_now";
  BOOST_TEST(gates == 2u);
}

BOOST_AUTO_TEST_CASE(states_are_stored_by_their_keys_and_hit_at_scheduler_blocks) {
  Lazy rig(16, lazy(), {{full(64), state(64)}, 16, 64, 1});
  const TokenIds prompt = tokens_of(1, 200);
  rig.name(0, 1, prompt, 64);
  rig.name(0, 2, prompt, 128);
  rig.name(1, 3, prompt, 128);
  rig.name(1, 4, prompt, 64);
  rig.drain();
  BOOST_TEST(rig.offers().stored == 4u);
  BOOST_TEST(rig.hit_of(prompt) == 128u);
  // Both groups have the tail at 176; without fine hits nothing finds it, so it is no offer.
  rig.name(0, 5, prompt, 176);
  rig.name(1, 6, prompt, 176);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.stat("candidates_unreachable") == 2u);
  BOOST_TEST(rig.offers().published == 4u);
  BOOST_TEST(rig.host.faults() == 0u);
}

BOOST_AUTO_TEST_CASE(a_key_is_stored_once) {
  Lazy rig;
  const TokenIds prompt = tokens_of(1, 33);
  rig.name_prefix(prompt, 1, 5);
  rig.name_prefix(prompt, 1, 6);  // the same key on another block
  BOOST_REQUIRE_EQUAL(rig.step().size(), 1u);
  BOOST_TEST(rig.offers().skipped_in_flight == 1u);
  rig.name_prefix(prompt, 1, 7);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.offers().skipped_in_flight == 2u);
  rig.finish_all();
  rig.name_prefix(prompt, 1, 8);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.offers().skipped_already_cached == 1u);
  BOOST_TEST(rig.stat("host_slots_used_now") == 1u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(wrong_candidates_are_bad_elements_and_the_rest_is_stored) {
  Lazy rig(16, lazy(), {{full(16), group_spec(GroupKind::other, Tokens{16})}, 16, 16, 1});
  const TokenIds prompt = tokens_of(1, 100);
  rig.name(0, 1, prompt, 16);
  rig.step();
  const auto bad = [&](GroupId group, BlockId block, std::uint64_t end) {
    const std::size_t faults = rig.host.faults();
    const std::uint64_t counted = rig.stat("peer_faults");
    const std::uint64_t ended = rig.offers().dropped_bad_offer;
    rig.name(group, block, prompt, end);
    BOOST_TEST(rig.step().empty());
    BOOST_TEST(rig.offers().dropped_bad_offer == ended + 1);
    BOOST_TEST(rig.stat("peer_faults") == counted + 1);
    BOOST_TEST(rig.host.faults() >= faults);
  };
  bad(1, 4, 16);  // not cached
  bad(7, 4, 16);  // no such group
  bad(0, null_block, 32);
  bad(0, -3, 32);
  bad(0, 1000, 32);  // the pool ends before it
  bad(0, 4, 0);
  bad(0, 4, 17);  // no hash unit ends there
  bad(0, 1, 32);  // an open job reads it
  // Behind the longest request.
  rig.candidates.clear();
  rig.name(0, 4, prompt, 16);
  rig.candidates.back().end = Tokens{100'016};
  rig.name(0, 5, prompt, 32);
  const std::vector<PlanCopyOf> plan = rig.step();
  BOOST_REQUIRE_EQUAL(plan.size(), 1u);
  BOOST_TEST(plan[0].copies.size() == 1u);
  BOOST_TEST(rig.offers().dropped_bad_offer == 9u);
  rig.finish_all();
  BOOST_TEST(rig.hit_of(prompt) == 32u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(block_queries_must_agree) {
  Lazy rig;
  rig.host.queries = true;
  const TokenIds prompt = tokens_of(1, 33);
  rig.name(0, 5, prompt, 16);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.offers().skipped_not_hashed == 1u);
  const std::vector<std::uint8_t> keys = keys_of(prompt, 16);
  rig.host.keyed[{0, std::string(keys.data(), keys.data() + key_bytes)}] = 5;
  rig.host.said_end = 32;
  rig.name(0, 5, prompt, 16);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.offers().dropped_bad_offer == 1u);
  BOOST_TEST(rig.host.faults() == 1u);
  rig.host.said_end = 16;
  rig.name(0, 5, prompt, 16);
  BOOST_TEST(rig.step().size() == 1u);
}

BOOST_AUTO_TEST_CASE(every_block_taken_counts_against_the_budget_of_holds) {
  SimpleCpuSchedulerOptions o = lazy();
  o.held_device_blocks_max = 2;
  Lazy rig(16, o);
  const TokenIds prompt = tokens_of(1, 100);
  rig.name_prefix(prompt, 5, 1);
  const std::vector<PlanCopyOf> plan = rig.step();
  BOOST_REQUIRE_EQUAL(plan.size(), 1u);
  BOOST_TEST(plan[0].copies.size() == 2u);
  BOOST_TEST(rig.offers().dropped_hold_budget == 3u);
  // A device hit names one of them again: it is no orphan any more.
  rig.begin(1, prompt);
  rig.alloc(1, 0, {{1, 9, 10, 11, 12, 13, 14}});
  rig.name(0, 3, prompt, 48);
  rig.name(0, 4, prompt, 64);
  BOOST_TEST(rig.step({{1, 100, {}}})[0].copies.size() == 1u);
  BOOST_TEST(rig.offers().dropped_hold_budget == 4u);
  rig.finish_all();
  rig.name(0, 4, prompt, 64);
  rig.name(0, 5, prompt, 80);
  rig.drain();
  rig.end(1, 100, {});
  BOOST_TEST(rig.hit_of(prompt) == 80u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_plan_takes_what_it_has_room_for) {
  SimpleCpuSchedulerOptions o = lazy();
  OpenLimits limits = limits_of();
  limits.max_total_tokens = limits.max_prompt_tokens = Tokens{64};
  o.plan_bytes_max = 64 + 2 * 32 + 4 * 24;
  Lazy rig(64, o, {{full(16)}, 16, 16, 1}, limits);
  const TokenIds a = tokens_of(1, 64);
  const TokenIds b = tokens_of(2, 64);
  rig.name_prefix(a, 4, 1);
  rig.name_prefix(b, 4, 10);
  const std::size_t first = rig.step()[0].copies.size();
  BOOST_TEST(first >= 4u);
  BOOST_TEST(first < 8u);
  BOOST_TEST(rig.offers().dropped_plan_full == 8 - first);
  rig.finish_all();
  rig.name_prefix(b, 4, 10);
  rig.drain();
  BOOST_TEST(rig.hit_of(b) == 48u);
  BOOST_TEST(rig.hit_of(a) == 48u);
}

BOOST_AUTO_TEST_CASE(one_call_evicts_nothing_that_it_stored_or_refreshed) {
  Lazy rig(3);
  const TokenIds old = tokens_of(1, 33);
  const TokenIds kept = tokens_of(2, 17);
  rig.store_prefix(old, 2, 1);
  rig.store_prefix(kept, 1, 5);
  const TokenIds more = tokens_of(3, 81);
  rig.name_prefix(kept, 1, 5);
  rig.name_prefix(more, 5, 10);
  BOOST_TEST(rig.step()[0].copies.size() == 2u);
  BOOST_TEST(rig.offers().dropped_pool_full == 3u);
  rig.finish_all();
  BOOST_TEST(rig.hit_of(kept) == 16u);
  BOOST_TEST(rig.hit_of(more) == 32u);
  BOOST_TEST(rig.hit_of(old) == 0u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(what_was_stored_or_refreshed_last_stays_longest) {
  Lazy rig(4);
  const TokenIds a = tokens_of(1, 33);
  const TokenIds b = tokens_of(2, 33);
  const TokenIds c = tokens_of(3, 33);
  rig.store_prefix(a, 2, 1);
  rig.store_prefix(b, 2, 3);
  rig.name_prefix(a, 2, 1);  // about to be evicted again, and there: CW-10
  rig.drain();
  rig.store_prefix(c, 2, 5);
  BOOST_TEST(rig.hit_of(a) == 32u);
  BOOST_TEST(rig.hit_of(b) == 0u);
  BOOST_TEST(rig.hit_of(c) == 32u);
}

BOOST_AUTO_TEST_CASE(tails_go_before_heads) {
  Lazy rig(4);
  const TokenIds prompt = tokens_of(1, 65);
  rig.store_prefix(prompt, 4, 1);
  rig.store_prefix(tokens_of(2, 17), 1, 9);
  rig.begin(1, prompt);
  BOOST_TEST(rig.hit(1) == 48u);
}

BOOST_AUTO_TEST_CASE(a_failed_copy_stores_nothing_and_may_be_offered_again) {
  Lazy rig;
  const TokenIds prompt = tokens_of(1, 33);
  rig.name_prefix(prompt, 2, 1);
  rig.finish(rig.step()[0].job, Code::io);
  BOOST_TEST(rig.offers().dropped_copy_failed == 2u);
  BOOST_TEST(rig.hit_of(prompt) == 0u);
  rig.store_prefix(prompt, 2, 1);
  BOOST_TEST(rig.hit_of(prompt) == 32u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_store_past_its_deadline_is_not_stored_and_its_blocks_stay_held) {
  Lazy rig;
  rig.name_prefix(tokens_of(1, 17), 1, 1);
  const JobId job = rig.step()[0].job;
  rig.report(job, 0, Code::deadline, {}, ReportPhase::deadline);
  BOOST_TEST(rig.offers().dropped_copy_failed == 1u);
  BOOST_TEST(rig.role->pending().quarantined_blocks == 1u);
  BOOST_TEST(rig.role->pending().held_blocks == 1u);
  rig.finish(job);
  BOOST_TEST(rig.hit_of(tokens_of(1, 17)) == 0u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_reset_ends_open_stores) {
  Lazy rig;
  const TokenIds prompt = tokens_of(1, 33);
  rig.store_prefix(prompt, 1, 1);
  rig.name(0, 2, prompt, 32);
  const JobId job = rig.step()[0].job;
  BOOST_TEST((rig.role->reset(false).code == Code::later));
  BOOST_TEST(rig.offers().dropped_reset == 1u);
  BOOST_TEST(rig.hit_of(prompt) == 0u);
  rig.finish(job);
  BOOST_TEST((rig.role->reset(true).code == Code::ok));
  BOOST_TEST(rig.hit_of(prompt) == 0u);
  rig.store_prefix(prompt, 2, 1);
  BOOST_TEST(rig.hit_of(prompt) == 32u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(requests_that_come_and_go_do_not_touch_open_stores) {
  OpenLimits limits = limits_of();
  limits.ranks = 2;
  Lazy rig(16, lazy(), {{full(16)}, 16, 16, 1}, limits);
  const TokenIds prompt = tokens_of(1, 33);
  rig.begin(1, prompt);
  rig.alloc(1, 0, {{7, 8, 9}});
  rig.name_prefix(prompt, 2, 1);
  const JobId job = rig.step({{1, 33, {{7, 8, 9}}}})[0].job;
  rig.step({}, {1});
  BOOST_TEST(rig.report(job, 1).jobs.empty());
  rig.end(1);
  const Completed done = rig.report(job, 0);
  BOOST_REQUIRE_EQUAL(done.jobs.size(), 1u);
  BOOST_TEST(done.jobs[0].released.size() == 2u);
  BOOST_TEST(rig.hit_of(prompt) == 32u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(events_of_candidates_know_no_parent) {
  Lazy rig;
  rig.store_prefix(tokens_of(1, 33), 2, 1);
  std::array<CacheEvent, 4> events;
  std::size_t count = 0;
  BOOST_TEST(!rig.role->take_events(events, count));
  BOOST_REQUIRE_EQUAL(count, 2u);
  for (std::size_t i = 0; i < count; ++i) {
    BOOST_TEST((events[i].kind == EventKind::stored));
    BOOST_TEST(events[i].request == 0u);
    BOOST_TEST(!events[i].has_parent);
    BOOST_TEST(events[i].end.n - events[i].begin.n == 16u);
  }
}

BOOST_AUTO_TEST_CASE(before_the_ranks_are_known_candidates_are_refused) {
  Lazy rig(0);
  rig.name_prefix(tokens_of(1, 17), 1, 1);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.offers().dropped_pool_full == 1u);
}

BOOST_AUTO_TEST_CASE(eager_mode_does_not_use_candidates) {
  Lazy rig(16, SimpleCpuSchedulerOptions{});
  rig.name_prefix(tokens_of(1, 33), 2, 1);
  BOOST_TEST(rig.step().empty());
  BOOST_TEST(rig.offers().published == 0u);
}

BOOST_AUTO_TEST_CASE(an_engine_without_a_prefix_cache_is_refused) {
  OpenLimits limits = limits_of();
  limits.no_device_cache = true;
  TestHost host;
  const auto made =
      make_simple_cpu_scheduler(geometry_of({{full(16)}, 16, 16, 1}), limits, lazy(), host);
  BOOST_REQUIRE(!made.ok());
  BOOST_TEST((made.error().code == Code::unsupported));
  for (const char* part : {"mode = \"lazy\"", "prefix cache", "NO_DEVICE_CACHE", "\"eager\""}) {
    BOOST_TEST(made.error().text.find(part) != std::string::npos, made.error().text);
  }
}

BOOST_AUTO_TEST_SUITE_END()
