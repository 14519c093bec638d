// Stores, loads and leases of the role with full attention: spec 9.1 and the field reports K2 to
// K4.
#include <set>

#include "plugin/simple_cpu/tests/rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

Layout fa16() { return {{full(16)}, 16, 16, 1}; }

std::uint64_t copies(const std::vector<PlanCopyOf>& jobs, JobKind kind) {
  std::uint64_t n = 0;
  for (const PlanCopyOf& j : jobs) n += j.kind == kind ? j.copies.size() : 0;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_flows)

BOOST_AUTO_TEST_CASE(what_one_request_stored_another_loads) {
  Rig rig(fa16());
  const TokenIds prompt = tokens_of(1, 33);
  rig.begin(1, prompt);
  BOOST_TEST(rig.hit(1) == 0u);
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  auto jobs = rig.step({{1, 33, tables}});
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  BOOST_TEST(jobs[0].copies.size() == 2u);
  // Deepest position first.
  BOOST_REQUIRE_EQUAL(jobs[0].held.size(), 2u);
  BOOST_TEST(jobs[0].held[0].position == 1u);
  BOOST_TEST(rig.offers().pending == 2u);
  const Completed done = rig.finish(jobs[0].job);
  BOOST_REQUIRE_EQUAL(done.jobs.size(), 1u);
  BOOST_TEST(done.jobs[0].released.size() == 2u);
  BOOST_TEST(done.jobs[0].released[0].position == 1u);
  BOOST_TEST(rig.offers().stored == 2u);
  BOOST_TEST(rig.stat("stored_bytes") == 2u * 1024);
  rig.end(1, 33, tables);

  rig.begin(2, prompt);
  BOOST_TEST(rig.hit(2) == 32u);
  const JobId load = rig.alloc(2, 32, {{11, 12, 13}});
  BOOST_TEST(load != 0u);
  BOOST_TEST(rig.last_held.size() == 2u);
  BOOST_TEST(rig.last_held[1].position == 1u);
  jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  BOOST_CHECK(jobs[0].kind == JobKind::load);
  BOOST_REQUIRE_EQUAL(jobs[0].copies.size(), 2u);
  BOOST_TEST(jobs[0].copies[0].block == 11);
  BOOST_TEST(jobs[0].copies[1].block == 12);
  BOOST_CHECK(rig.lookup_code(2) == Code::state);
  BOOST_CHECK(rig.alloc_code(2, 16, {{11, 12, 13}}) == Code::state);
  const Completed loaded = rig.finish(load);
  BOOST_REQUIRE_EQUAL(loaded.verdicts.size(), 1u);
  BOOST_CHECK(loaded.verdicts[0].status == Code::ok);
  BOOST_TEST(rig.stat("loaded_bytes") == 2u * 1024);
  // Loaded blocks are offered and known already.
  rig.step({{2, 33, {}}});
  BOOST_TEST(rig.offers().skipped_already_cached == 2u);
  rig.end(2, 33, {{11, 12, 13}});
  rig.drain();
  rig.check_quiet();
  BOOST_TEST(rig.host.faults() == 0u);
}

BOOST_AUTO_TEST_CASE(one_token_is_always_computed) {
  for (const auto& [prompt, expected] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {15, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}}) {
    Rig rig(fa16());
    rig.serve(1, tokens_of(1, prompt), 1);
    rig.begin(2, tokens_of(1, prompt));
    BOOST_TEST(rig.hit(2) == expected);
  }
}

BOOST_AUTO_TEST_CASE(a_request_that_may_not_read_is_told_so_and_still_stores) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33), true);
  const LookupAnswer answer = rig.lookup(2);
  BOOST_TEST(answer.external.n == 0u);
  BOOST_CHECK(answer.why == Why::no_read);
  rig.begin(3, tokens_of(3, 33), true);
  const Tables tables{{5, 6, 7}};
  rig.alloc(3, 0, tables);
  BOOST_TEST(copies(rig.step({{3, 33, tables}}), JobKind::store) == 2u);
}

BOOST_AUTO_TEST_CASE(lookups_say_why_they_answer_zero) {
  Rig rig({{full(16)}, 16, 16, 1}, 0);
  rig.begin(1, tokens_of(1, 33));
  BOOST_CHECK(rig.lookup(1).why == Why::no_ranks);
  rig.set_ranks(4);
  BOOST_CHECK(rig.lookup(1).why == Why::miss);
  BOOST_CHECK(rig.lookup(1, 8).why == Why::local_unaligned);
  BOOST_CHECK(rig.lookup_code(99) == Code::arg);
}

BOOST_AUTO_TEST_CASE(a_pool_below_the_request_keeps_the_head_and_counts_the_rest) {
  Rig rig(fa16(), 2);
  rig.begin(1, tokens_of(1, 49));
  const Tables tables{{1, 2, 3, 4}};
  rig.alloc(1, 0, tables);
  BOOST_TEST(copies(rig.step({{1, 49, tables}}), JobKind::store) == 2u);
  // The third position waits at the cursor, once.
  BOOST_TEST(rig.offers().published == 3u);
  BOOST_TEST(rig.offers().pending == 3u);
  rig.finish_all();
  rig.step({{1, 49, {}}});
  BOOST_TEST(rig.offers().published == 3u);
  BOOST_TEST(rig.offers().pending == 1u);
  rig.end(1, 49, tables);
  BOOST_TEST(rig.offers().dropped_pool_full == 1u);
  rig.drain();
  rig.check_quiet();
  rig.begin(2, tokens_of(1, 49));
  BOOST_TEST(rig.hit(2) == 32u);
}

BOOST_AUTO_TEST_CASE(positions_behind_a_refused_one_have_no_parent_at_the_end) {
  Rig rig(fa16(), 2);
  rig.begin(1, tokens_of(1, 81));
  const Tables tables{{1, 2, 3, 4, 5, 6}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 81, tables}});
  BOOST_TEST(rig.offers().published == 3u);
  rig.end(1, 81, tables);
  BOOST_TEST(rig.offers().dropped_pool_full == 1u);
  BOOST_TEST(rig.offers().dropped_no_parent == 2u);
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(the_same_prompt_twice_is_stored_once) {  // T-6, CW-9
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 33));
  rig.begin(2, tokens_of(1, 33));
  const Tables a{{1, 2, 3}};
  const Tables b{{4, 5, 6}};
  rig.alloc(1, 0, a);
  rig.alloc(2, 0, b);
  BOOST_TEST(copies(rig.step({{1, 33, a}, {2, 33, b}}), JobKind::store) == 2u);
  BOOST_TEST(rig.offers().pending == 4u);
  rig.finish_all();
  BOOST_TEST(rig.offers().stored == 2u);
  rig.step({{1, 34, {}}, {2, 34, {}}});
  BOOST_TEST(rig.offers().skipped_already_cached == 2u);
  BOOST_TEST(rig.offers().pending == 0u);
  BOOST_TEST(rig.stat("host_slots_used_now") == 2u);
}

BOOST_AUTO_TEST_CASE(who_waits_for_a_copy_that_fails_stores_the_block_itself) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 17));
  rig.begin(2, tokens_of(1, 17));
  rig.alloc(1, 0, {{1, 2}});
  rig.alloc(2, 0, {{4, 5}});
  const auto first = rig.step({{1, 17, {{1, 2}}}, {2, 17, {{4, 5}}}});
  rig.finish(first[0].job, Code::io);
  BOOST_TEST(rig.offers().dropped_copy_failed == 1u);
  const auto second = rig.step({{1, 17, {}}, {2, 17, {}}});
  BOOST_REQUIRE_EQUAL(copies(second, JobKind::store), 1u);
  BOOST_TEST(second[0].copies[0].block == 4);
  rig.finish_all();
  BOOST_TEST(rig.offers().stored == 1u);
}

BOOST_AUTO_TEST_CASE(who_ends_while_waiting_for_a_copy_was_in_flight) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 17));
  rig.begin(2, tokens_of(1, 17));
  rig.alloc(1, 0, {{1, 2}});
  rig.alloc(2, 0, {{4, 5}});
  rig.step({{1, 17, {{1, 2}}}, {2, 17, {{4, 5}}}});
  rig.end(2, 17, {{4, 5}});
  BOOST_TEST(rig.offers().skipped_in_flight == 1u);
  rig.end(1, 17, {{1, 2}});
  rig.drain();
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(blocks_are_stored_in_the_step_that_fills_them) {
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 64));
  rig.alloc(1, 0, {{1, 2}});
  BOOST_TEST(copies(rig.step({{1, 32, {{1, 2}}}}), JobKind::store) == 2u);
  BOOST_TEST(copies(rig.step({{1, 64, {{1, 2, 3, 4}}}}), JobKind::store) == 2u);
  BOOST_TEST(copies(rig.step({{1, 64, {}}}), JobKind::store) == 0u);
}

BOOST_AUTO_TEST_CASE(the_last_block_of_a_request_is_stored) {  // K4-26
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 40));
  const Tables tables{{1, 2, 3, 4}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 40, tables}});
  rig.extend(1, tokens_of(2, 9));
  BOOST_TEST(rig.end(1, 48, tables) != 0u);
  rig.drain();
  BOOST_TEST(rig.offers().stored == 3u);
  TokenIds follow = tokens_of(1, 40);
  for (const std::uint32_t t : tokens_of(2, 9)) follow.push_back(t);
  follow.resize(64, 7);
  rig.begin(2, follow);
  BOOST_TEST(rig.hit(2) == 48u);
}

BOOST_AUTO_TEST_CASE(the_last_sampled_token_has_no_block) {  // K4-28
  Rig rig({{full(4)}, 4, 4, 1});
  rig.begin(1, tokens_of(1, 6));
  const Tables tables{{1, 2}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 6, tables}});
  rig.extend(1, tokens_of(2, 2));
  rig.end(1, 7, tables);
  rig.drain();
  BOOST_TEST(rig.offers().stored == 1u);
}

BOOST_AUTO_TEST_CASE(blocks_of_decode_are_stored_when_their_key_comes) {  // K4-29
  Rig rig({{full(4)}, 4, 4, 1});
  rig.begin(1, tokens_of(1, 7));
  const Tables tables{{1, 2, 3, 4}};
  rig.alloc(1, 0, tables);
  std::vector<std::uint64_t> stored;
  for (std::uint64_t confirmed = 7; confirmed <= 13; ++confirmed) {
    for (const PlanCopyOf& job : rig.step({{1, confirmed, tables}})) {
      for (const PlanCopy& c : job.copies) stored.push_back((c.position + 1) * 4);
    }
    rig.extend(1, {static_cast<std::uint32_t>(900 + confirmed)});
  }
  BOOST_TEST((stored == std::vector<std::uint64_t>{4, 8, 12}));
}

BOOST_AUTO_TEST_CASE(a_request_that_never_ran_leaves_nothing) {  // K4-24
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 48));
  rig.lookup(1);
  BOOST_TEST(rig.end(1) == 0u);
  BOOST_TEST(rig.step().empty());
  BOOST_CHECK(rig.lookup_code(1) == Code::arg);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(two_lookups_and_a_refusal_leave_no_pin) {  // K3-19, K2-7
  Rig rig(fa16(), 4);
  rig.serve(1, tokens_of(1, 65), 1);
  rig.begin(2, tokens_of(1, 65));
  for (int i = 0; i < 100; ++i) {
    BOOST_TEST(rig.hit(2) == 64u);
    BOOST_TEST(rig.hit(2) == 64u);
    BOOST_TEST(rig.stat("host_slots_pinned_now") == 1u);  // the deepest holds the path
    rig.alloc(2, 0, {});
    BOOST_TEST(rig.stat("host_slots_evictable_now") == 4u);
  }
  // The second lookup of a round finds what the first left.
  BOOST_TEST(rig.stat("index_bisections") == 100u);
  BOOST_TEST(rig.stat("index_linear_walks") == 0u);
}

BOOST_AUTO_TEST_CASE(what_a_lookup_found_is_not_evicted_before_the_answer) {  // K2-7
  SimpleCpuSchedulerOptions options;
  options.lease_steps = 2;
  Rig rig(fa16(), 4, options);
  rig.serve(1, tokens_of(1, 33), 1);
  rig.serve(2, tokens_of(2, 33), 5);
  rig.begin(3, tokens_of(2, 33));
  BOOST_TEST(rig.hit(3) == 32u);
  // Request 4 stores two blocks: only those of request 1 may go.
  rig.begin(4, tokens_of(4, 33));
  const Tables tables{{9, 10, 11}};
  rig.alloc(4, 0, tables);
  BOOST_TEST(copies(rig.step({{4, 33, tables}}), JobKind::store) == 2u);
  const JobId load = rig.alloc(3, 32, {{13, 14, 15}});
  BOOST_TEST(copies(rig.step(), JobKind::load) == 2u);
  rig.finish_all();
  BOOST_TEST(load != 0u);
  BOOST_TEST(rig.stat("host_slots_pinned_now") == 0u);
  rig.begin(5, tokens_of(1, 33));
  BOOST_TEST(rig.hit(5) == 0u);
}

BOOST_AUTO_TEST_CASE(a_store_refused_only_because_of_leases_says_so) {
  SimpleCpuSchedulerOptions options;
  options.lease_steps = 8;
  Rig rig(fa16(), 2, options);
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 32u);
  rig.begin(3, tokens_of(3, 33));
  const Tables tables{{5, 6, 7}};
  rig.alloc(3, 0, tables);
  BOOST_TEST(copies(rig.step({{3, 33, tables}}), JobKind::store) == 0u);
  rig.end(3, 33, tables);
  BOOST_TEST(rig.offers().dropped_leased == 1u);
  BOOST_TEST(rig.offers().dropped_no_parent == 1u);
}

BOOST_AUTO_TEST_CASE(a_lease_ends_with_the_plan_and_the_hit_is_found_again) {
  Rig rig(fa16(), 4);
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 32u);
  rig.step();
  BOOST_TEST(rig.stat("leases_open_now") == 0u);
  const JobId load = rig.alloc(2, 32, {{13, 14, 15}});
  BOOST_TEST(copies(rig.step(), JobKind::load) == 2u);
  BOOST_CHECK(rig.finish(load).verdicts[0].status == Code::ok);
}

BOOST_AUTO_TEST_CASE(a_hit_that_is_gone_becomes_a_load_that_fails) {  // T-8, CW-5
  Rig rig(fa16(), 2);
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 32u);
  rig.step();
  rig.serve(3, tokens_of(3, 33), 5);
  const JobId load = rig.alloc(2, 32, {{13, 14, 15}});
  BOOST_TEST(load != 0u);
  BOOST_TEST(rig.last_held.empty());
  const auto jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  BOOST_TEST(jobs[0].copies.empty());
  const Completed done = rig.finish(load);
  BOOST_REQUIRE_EQUAL(done.verdicts.size(), 1u);
  BOOST_CHECK(done.verdicts[0].status == Code::io);
  // It was no failed load.
  BOOST_CHECK(rig.lookup(2).why == Why::miss);
}

BOOST_AUTO_TEST_CASE(an_acceptance_is_checked_in_units_and_places) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 65), 1);
  rig.begin(2, tokens_of(1, 65));
  BOOST_TEST(rig.hit(2) == 64u);
  BOOST_CHECK(rig.alloc_code(2, 80, {{1, 2, 3, 4, 5}}) == Code::arg);
  BOOST_CHECK(rig.alloc_code(2, 8, {{1, 2, 3, 4, 5}}) == Code::arg);
  BOOST_CHECK(rig.alloc_code(2, 64, {{1, 2, 0, 4, 5}}) == Code::arg);
  BOOST_CHECK(rig.alloc_code(2, 64, {{1, 2, 3}}) == Code::arg);
  BOOST_CHECK(rig.alloc_code(2, 64, {{1, 2, 100000, 4, 5}}) == Code::arg);
  BOOST_TEST(rig.stat("leases_open_now") == 1u);
  BOOST_CHECK(rig.alloc_code(77, 16, {}) == Code::arg);
  BOOST_TEST(rig.alloc(2, 48, {{11, 12, 13, 14, 15}}) != 0u);
  BOOST_TEST(copies(rig.step(), JobKind::load) == 3u);
}

BOOST_AUTO_TEST_CASE(a_load_goes_only_to_blocks_of_its_own) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 65), 1);
  rig.begin(2, tokens_of(1, 65));
  rig.begin(3, tokens_of(1, 65));
  BOOST_TEST(rig.hit(2) == 64u);
  BOOST_TEST(rig.hit(3) == 64u);
  BOOST_CHECK(rig.alloc_code(2, 64, {{11, 12, 11, 14, 15}}) == Code::arg);
  BOOST_CHECK(rig.alloc_code(2, 64, {{11, 12, 13}}) == Code::arg);
  BOOST_CHECK(rig.alloc_code(2, 64, {{11, 12, 0, 14, 15}}) == Code::arg);
  // A refusal holds nothing and names nothing.
  BOOST_TEST(rig.role->pending().held_blocks == 0u);
  const JobId first = rig.alloc(2, 64, {{11, 12, 13, 14, 15}});
  BOOST_TEST(first != 0u);
  BOOST_CHECK(rig.alloc_code(3, 64, {{21, 22, 13, 24, 25}}) == Code::arg);
  BOOST_TEST(rig.stat("leases_open_now") == 1u);
  BOOST_TEST(rig.alloc(3, 64, {{21, 22, 23, 24, 25}}) != 0u);
  rig.step();
  rig.finish_all();
}

BOOST_AUTO_TEST_CASE(a_load_behind_a_device_prefix_goes_to_its_positions) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 97), 1);
  rig.begin(2, tokens_of(1, 97));
  BOOST_TEST(rig.hit(2, 32) == 64u);
  rig.alloc(2, 32, {{21, 22, 23, 24, 25, 26, 27}});
  const auto jobs = rig.step();
  BOOST_REQUIRE_EQUAL(copies(jobs, JobKind::load), 2u);
  BOOST_TEST(jobs[0].copies[0].block == 23);
  BOOST_TEST(jobs[0].copies[0].position == 2u);
  BOOST_TEST(jobs[0].copies[1].block == 24);
}

BOOST_AUTO_TEST_CASE(the_source_of_an_open_load_is_not_overwritten) {  // K2-10
  Rig rig(fa16(), 2);
  rig.serve(1, tokens_of(1, 17), 1);
  rig.begin(2, tokens_of(1, 17));
  BOOST_TEST(rig.hit(2) == 16u);
  const JobId load = rig.alloc(2, 16, {{3, 4}});
  const auto jobs = rig.step();
  const std::uint32_t source = jobs[0].copies[0].slot;
  rig.begin(3, tokens_of(3, 33));
  const Tables tables{{5, 6, 7}};
  rig.alloc(3, 0, tables);
  const auto stores = rig.step({{3, 33, tables}});
  BOOST_REQUIRE_EQUAL(copies(stores, JobKind::store), 1u);
  BOOST_TEST(stores[0].copies[0].slot != source);
  rig.finish(load);
  rig.finish_all();
}

// A load pins the deepest block of its path; what is above it must last as long.
BOOST_AUTO_TEST_CASE(a_reset_gives_away_no_source_of_an_open_load) {
  Rig rig(fa16(), 4);
  rig.serve(1, tokens_of(1, 49), 1);
  rig.begin(2, tokens_of(1, 49));
  BOOST_TEST(rig.hit(2) == 48u);
  const JobId load = rig.alloc(2, 48, {{11, 12, 13, 14}});
  const auto jobs = rig.step();
  std::set<std::uint32_t> sources;
  for (const auto& c : jobs[0].copies) sources.insert(c.slot);
  BOOST_REQUIRE_EQUAL(sources.size(), 3u);
  BOOST_CHECK(rig.role->reset(false).code == Code::later);
  rig.check();
  // Four slots, three of them are read: one block is stored.
  rig.begin(3, tokens_of(3, 65));
  const Tables tables{{21, 22, 23, 24, 25}};
  rig.alloc(3, 0, tables);
  const auto stores = rig.step({{3, 65, tables}});
  BOOST_REQUIRE_EQUAL(copies(stores, JobKind::store), 1u);
  BOOST_TEST(sources.count(stores[0].copies[0].slot) == 0u);
  rig.finish(load);
  BOOST_TEST(copies(rig.step({{3, 65, tables}}), JobKind::store) == 3u);
  rig.finish_all();
}

BOOST_AUTO_TEST_CASE(a_bad_source_is_not_written_again_while_another_load_reads_it) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 49), 1);
  const Tables tables{{11, 12, 13, 14}};
  const Tables others{{21, 22, 23, 24}};
  rig.begin(2, tokens_of(1, 49));
  rig.begin(3, tokens_of(1, 49));
  rig.begin(4, tokens_of(1, 49));
  for (const RequestId id : {2U, 3U}) BOOST_TEST(rig.hit(id) == 48u);
  const JobId first = rig.alloc(2, 48, tables);
  const JobId second = rig.alloc(3, 48, others);
  const auto jobs = rig.step();
  const std::uint32_t slot = jobs[0].copies[1].slot;
  rig.report(first, 0, Code::io, {{0, 12, 1, 0, Code::io, FailedSide::source}});
  const Tables writer{{31, 32, 33, 34}};
  rig.alloc(4, 0, writer);
  BOOST_TEST(copies(rig.step({{4, 49, writer}}), JobKind::store) == 0u);
  rig.finish(second);
  const auto again = rig.step({{4, 49, writer}});
  BOOST_REQUIRE_EQUAL(copies(again, JobKind::store), 1u);
  BOOST_TEST(again[0].copies[0].slot == slot);
  rig.finish_all();
}

BOOST_AUTO_TEST_CASE(a_store_needs_every_rank) {  // K2-15, R-681
  OpenLimits limits = limits_of();
  limits.ranks = 2;
  Rig rig(fa16(), 8, {}, limits);
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  const JobId job = rig.step({{1, 33, tables}})[0].job;
  BOOST_TEST(rig.report(job, 0).jobs.empty());
  BOOST_TEST(rig.offers().stored == 0u);
  const FailedBlock failed{0, 2, 1, 1, Code::io, FailedSide::destination};
  const Completed done = rig.report(job, 1, Code::io, {failed});
  BOOST_REQUIRE_EQUAL(done.jobs.size(), 1u);
  BOOST_CHECK(done.jobs[0].status == Code::io);
  BOOST_REQUIRE_EQUAL(done.jobs[0].failed.size(), 1u);
  BOOST_TEST(done.jobs[0].failed[0].rank == 1u);
  BOOST_TEST(rig.offers().dropped_copy_failed == 2u);
  BOOST_TEST(rig.stat("stored_bytes") == 0u);
  rig.begin(2, tokens_of(1, 33));
  BOOST_TEST(rig.hit(2) == 0u);
  // No storm of retries.
  BOOST_TEST(rig.step({{1, 34, {}}}).empty());
  rig.end(1, 34, tables);
  rig.drain();
  rig.check_quiet();
}

// docs/semantics.md, "Plans that do not come": nobody can end them, and nobody else pays for it.
BOOST_AUTO_TEST_CASE(jobs_of_a_plan_that_a_rank_never_got_stay_open_and_serve_nobody) {
  OpenLimits limits = limits_of();
  limits.ranks = 2;
  Rig rig(fa16(), 64, {}, limits);
  const auto run = [&rig](RequestId id) {
    const TokenIds prompt = tokens_of(static_cast<std::uint32_t>(id), 65);
    rig.begin(id, prompt);
    const Tables tables = rig.fresh_tables(65, static_cast<BlockId>(10 * id));
    rig.alloc(id, 0, tables);
    return rig.step({{id, 65, tables}})[0].job;
  };
  const JobId lost_store = run(1);  // only rank 0 has this plan
  rig.report(lost_store, 0);
  rig.finish(run(2));
  rig.begin(3, tokens_of(1, 65));
  BOOST_TEST(rig.hit(3) == 0u);
  rig.begin(4, tokens_of(2, 65));
  BOOST_REQUIRE(rig.hit(4) == 64u);
  const JobId lost_load = rig.alloc(4, 64, rig.fresh_tables(65, 40));
  rig.step();
  BOOST_TEST(rig.report(lost_load, 0).verdicts.empty());
  BOOST_TEST((rig.lookup_code(4) == Code::state));
  for (const RequestId id : {1U, 2U, 3U, 4U}) rig.end(id, id <= 2 ? 65 : 0);
  rig.host.now += 3'600'000'000'000;
  rig.step();
  BOOST_TEST(rig.role->pending().store_jobs == 1u);
  BOOST_TEST(rig.role->pending().load_jobs == 1u);
  BOOST_TEST(rig.role->pending().held_blocks == 8u);
  BOOST_TEST(rig.offers().pending == 4u);
  BOOST_TEST((rig.role->reset(true).code == Code::later));
  BOOST_TEST((rig.role->reset(true).code == Code::later));
  BOOST_TEST(rig.role->pending().held_blocks == 8u);
  BOOST_TEST(rig.stat("host_slots_leaked_now") == 0u);
}

BOOST_AUTO_TEST_CASE(a_report_is_used_once) {  // K3-21
  Rig rig(fa16());
  rig.begin(1, tokens_of(1, 33));
  const Tables tables{{1, 2, 3}};
  rig.alloc(1, 0, tables);
  const JobId job = rig.step({{1, 33, tables}})[0].job;
  rig.finish(job);
  const std::uint64_t used = rig.stat("host_slots_used_now");
  const Completed again = rig.report(job, 0);
  BOOST_REQUIRE_EQUAL(again.rejected.size(), 1u);
  BOOST_TEST(again.rejected[0].job == job);
  BOOST_CHECK(again.rejected[0].status == Code::arg);
  BOOST_TEST(rig.stat("host_slots_used_now") == used);
  BOOST_TEST(rig.report(4711, 0).rejected.size() == 1u);
  const Completed foreign = rig.report(job, 0, Code::ok, {}, ReportPhase::ended, rig.epoch + 2);
  BOOST_REQUIRE_EQUAL(foreign.rejected.size(), 1u);
  BOOST_CHECK(foreign.rejected[0].status == Code::state);
  const std::vector<std::uint8_t> garbage(70, 0x5A);
  BOOST_TEST(rig.complete({garbage}).rejected.size() == 1u);
}

BOOST_AUTO_TEST_CASE(end_and_completion_of_the_last_store_commute) {  // K2-16
  std::uint64_t used[2] = {};
  for (int order = 0; order < 2; ++order) {
    Rig rig(fa16());
    rig.begin(1, tokens_of(1, 33));
    const Tables tables{{1, 2, 3}};
    rig.alloc(1, 0, tables);
    const JobId job = rig.step({{1, 33, tables}})[0].job;
    if (order == 0) rig.finish(job);
    rig.end(1, 33, tables);
    if (order == 1) rig.finish(job);
    rig.drain();
    used[order] = rig.stat("host_slots_used_now");
    rig.check_quiet();
  }
  BOOST_TEST(used[0] == used[1]);
}

BOOST_AUTO_TEST_CASE(a_verdict_comes_also_after_the_request_is_over) {  // T-11
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  rig.hit(2);
  const JobId load = rig.alloc(2, 32, {{13, 14, 15}});
  rig.step();
  rig.end(2, 0, {{13, 14, 15}});
  BOOST_TEST(rig.last_held.size() == 2u);
  BOOST_TEST(rig.role->pending().held_blocks == 2u);
  const Completed done = rig.finish(load);
  BOOST_REQUIRE_EQUAL(done.verdicts.size(), 1u);
  BOOST_TEST(done.verdicts[0].request == 2u);
  BOOST_TEST(done.jobs[0].released.size() == 2u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_load_that_is_not_planned_yet_is_cancelled_by_the_end) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  rig.hit(2);
  const JobId load = rig.alloc(2, 32, {{13, 14, 15}});
  rig.end(2, 0, {});
  const auto jobs = rig.step();
  BOOST_REQUIRE_EQUAL(jobs.size(), 1u);
  BOOST_TEST(jobs[0].copies.empty());
  // Ranks end it so too: their items must say what the verdict will.
  BOOST_CHECK(jobs[0].outcome == Code::cancelled);
  const Completed done = rig.finish(load);
  BOOST_CHECK(done.verdicts[0].status == Code::cancelled);
  BOOST_TEST(done.jobs[0].released.size() == 2u);
  rig.check_quiet();
}

BOOST_AUTO_TEST_CASE(after_a_failed_load_the_request_computes_once) {  // T-9
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  rig.begin(2, tokens_of(1, 33));
  rig.hit(2);
  const Tables tables{{13, 14, 15}};
  const JobId load = rig.alloc(2, 32, tables);
  rig.step();
  // The destination failed: the tier's bytes are good.
  rig.report(load, 0, Code::io, {{0, 14, 1, 0, Code::io, FailedSide::destination}});
  BOOST_CHECK(rig.lookup(2).why == Why::load_failed);
  rig.alloc(2, 0, tables);
  rig.step({{2, 33, tables}});
  BOOST_TEST(rig.hit(2) == 32u);  // preempted: it may load again
}

BOOST_AUTO_TEST_CASE(a_bad_source_is_absent_until_it_is_written_again) {
  Rig rig(fa16());
  rig.serve(1, tokens_of(1, 33), 1);
  for (const RequestId id : {2u, 3u}) {
    rig.begin(id, tokens_of(1, 33));
    rig.hit(id);
  }
  rig.begin(4, tokens_of(1, 33));
  const Tables tables{{13, 14, 15}};
  const JobId load = rig.alloc(2, 32, tables);
  rig.step();
  BOOST_CHECK(rig.lookup(4).code == Code::later);  // single flight
  rig.report(load, 0, Code::io, {{0, 14, 1, 0, Code::io, FailedSide::source}});
  BOOST_TEST(rig.stat("index_bad_entries") == 1u);
  BOOST_TEST(rig.hit(4) == 16u);
  BOOST_CHECK(rig.lookup(2).why == Why::load_failed);
  rig.alloc(2, 0, tables);
  const auto jobs = rig.step({{2, 33, tables}});
  BOOST_REQUIRE_EQUAL(copies(jobs, JobKind::store), 1u);
  BOOST_TEST(jobs[0].copies[0].position == 1u);
  rig.finish_all();
  BOOST_TEST(rig.hit(4) == 32u);
}

BOOST_AUTO_TEST_CASE(a_block_that_is_named_twice_is_stored_once) {  // K3-17
  Rig rig({{full(16), sliding(16, 32)}, 16, 16, 1});
  rig.begin(1, tokens_of(1, 65));
  const Tables tables{{1, 2, 5, 6, 7}, {3, 4, 3, 4, 8}};
  rig.alloc(1, 0, tables);
  std::map<BlockId, int> seen;
  for (const PlanCopyOf& job : rig.step({{1, 64, tables}})) {
    for (const PlanCopy& c : job.copies) {
      if (c.group == 1) ++seen[c.block];
      if (c.group == 1) BOOST_TEST(c.position >= 2u);
    }
  }
  BOOST_TEST(seen[3] == 1);
  BOOST_TEST(seen[4] == 1);
  BOOST_TEST(rig.offers().dropped_bad_offer == 2u);
  BOOST_TEST(rig.host.faults() >= 1u);
}

BOOST_AUTO_TEST_CASE(leases_are_bounded_and_the_oldest_goes) {
  SimpleCpuSchedulerOptions options;
  options.max_leases = 2;
  Rig rig(fa16(), 16, options);
  for (std::uint32_t i = 1; i <= 3; ++i) rig.serve(i, tokens_of(i, 17), 1);
  for (std::uint32_t i = 1; i <= 3; ++i) {
    rig.begin(10 + i, tokens_of(i, 17));
    BOOST_TEST(rig.hit(10 + i) == 16u);
  }
  BOOST_TEST(rig.stat("leases_open_now") == 2u);
  BOOST_TEST(rig.stat("leases_dropped") == 1u);
  // The one that lost its lease is served all the same.
  BOOST_TEST(rig.alloc(11, 16, {{40, 41}}) != 0u);
  BOOST_TEST(copies(rig.step(), JobKind::load) == 1u);
}

BOOST_AUTO_TEST_SUITE_END()
