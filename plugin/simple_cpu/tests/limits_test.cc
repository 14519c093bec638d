// Where exactly a limit lies: plan room, hold budget, patience, and what one failure reaches.
#include <boost/test/unit_test.hpp>

#include <set>

#include "plugin/simple_cpu/tests/rig.h"

namespace kvc {
namespace {

using namespace test;

constexpr std::uint64_t ms = 1'000'000;

Layout fa16() { return {{full(16)}, 16, 16, 1}; }

std::size_t store_copies(const std::vector<PlanCopyOf>& jobs) {
  std::size_t n = 0;
  for (const PlanCopyOf& job : jobs) n += job.kind == JobKind::store ? job.copies.size() : 0;
  return n;
}

Layout states3() { return {{full(64), state(64), state(64), state(64)}, 16, 64, 1}; }

BOOST_AUTO_TEST_SUITE(simple_cpu_limits)

BOOST_AUTO_TEST_CASE(states_handed_off_by_a_running_request_cost_no_hold_budget) {
  SimpleCpuSchedulerOptions options;
  options.held_device_blocks_max = 1;
  Rig rig(states3(), 16, options);
  rig.begin(1, tokens_of(1, 100));
  const Tables tables{{1, 2}, {}, {}, {}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 64, tables}}, {},
           {{1, 1, 5, Tokens{64}}, {2, 1, 6, Tokens{64}}, {3, 1, 7, Tokens{64}}});
  BOOST_TEST(rig.handoffs().pending == 3u);
  BOOST_TEST(rig.stat("holds_orphaned_now") == 0u);
  rig.finish_all();
  BOOST_TEST(rig.handoffs().stored == 3u);
}

BOOST_AUTO_TEST_CASE(blocks_that_another_table_names_cost_no_hold_budget_at_an_end) {
  SimpleCpuSchedulerOptions options;
  options.held_device_blocks_max = 1;
  Rig rig(fa16(), 16, options);
  const Tables tables{{1, 2, 3, 4, 5}};
  for (const RequestId id : {1u, 2u}) {
    rig.begin(id, tokens_of(1, 65));
    rig.alloc(id, 0, tables);
  }
  rig.step({{1, 0, tables}, {2, 0, tables}});
  rig.end(1, 64, tables);
  BOOST_TEST(rig.last_held.size() == 4u);
  BOOST_TEST(rig.offers().dropped_hold_budget == 0u);
  BOOST_TEST(rig.stat("holds_orphaned_now") == 0u);
  rig.drain();
  BOOST_TEST(rig.offers().stored == 4u);
}

BOOST_AUTO_TEST_CASE(states_of_a_preempted_request_count_as_orphaned_until_their_copies_end) {
  Rig rig(states3());
  rig.begin(1, tokens_of(1, 100));
  const Tables tables{{1, 2}, {}, {}, {}};
  rig.alloc(1, 0, tables);
  rig.step({{1, 64, tables}}, {},
           {{1, 1, 5, Tokens{64}}, {2, 1, 6, Tokens{64}}, {3, 1, 7, Tokens{64}}});
  rig.step({}, {1});
  BOOST_TEST(rig.stat("holds_orphaned_now") == 4u);
  rig.finish_all();
  BOOST_TEST(rig.stat("holds_orphaned_now") == 0u);
}

// The states of a boundary fit a plan that has room for exactly them.
BOOST_AUTO_TEST_CASE(states_fill_a_plan_to_its_last_copy) {
  OpenLimits limits = limits_of();
  limits.max_total_tokens = limits.max_prompt_tokens = Tokens{65};
  bool refused = false;
  for (std::uint64_t room = 1; room < 40; ++room) {
    SimpleCpuSchedulerOptions options;
    options.plan_bytes_max = plan_bytes(1, room);
    TestHost host;
    if (!make_simple_cpu_scheduler(geometry_of(states3()), limits, options, host).ok()) {
      refused = true;
      continue;
    }
    Rig rig(states3(), 64, options, limits);
    std::vector<Sched> scheduled;
    std::vector<Handoff> handoffs;
    for (RequestId id = 1; id <= 3; ++id) {  // four copies each
      const auto first = static_cast<BlockId>(10 * id);
      rig.begin(id, tokens_of(static_cast<std::uint32_t>(id), 65));
      const Tables tables{{first, first + 1}, {}, {}, {}};
      rig.alloc(id, 0, tables);
      scheduled.push_back({id, 64, tables});
      for (GroupId g = 1; g <= 3; ++g) handoffs.push_back({g, id, first + 1 + g, Tokens{64}});
    }
    const std::size_t copies = store_copies(rig.step(scheduled, {}, handoffs));
    const std::uint64_t states =
        std::min<std::uint64_t>(3, (room - std::min<std::uint64_t>(room, 3)) / 3);
    BOOST_TEST_CONTEXT("room for " << room << ", " << copies << " copies") {
      BOOST_TEST(rig.handoffs().pending == 3 * states);
      BOOST_TEST(rig.handoffs().dropped_plan_full == 9 - 3 * states);
    }
  }
  BOOST_TEST(refused);
}

// kvc_layerwise.h: what was promised is in the next plan; in whatever order the engine asks.
BOOST_AUTO_TEST_CASE(loads_in_step_are_promised_as_far_as_the_plan_has_room) {
  OpenLimits limits = limits_of();
  limits.max_total_tokens = limits.max_prompt_tokens = Tokens{65};
  constexpr std::uint64_t each = 6;  // four copies, and two for the entry of the job
  for (std::uint64_t room = each; room < 4 * each; ++room) {
    for (const bool backwards : {false, true}) {
      SimpleCpuSchedulerOptions options;
      options.plan_bytes_max = plan_bytes(1, room);
      options.single_flight = false;
      Rig rig(fa16(), 64, options, limits);
      rig.serve(1, tokens_of(1, 65), 1);
      std::vector<JobId> jobs;
      for (RequestId id = 2; id <= 4; ++id) {
        rig.begin(id, tokens_of(1, 65));
        BOOST_REQUIRE(rig.hit(id) == 64U);
        jobs.push_back(rig.alloc(id, 64, rig.fresh_tables(65, static_cast<BlockId>(10 * id))));
      }
      BOOST_TEST_CONTEXT("room for " << room << (backwards ? ", backwards" : "")) {
        std::set<JobId> promised;
        for (std::size_t i = 0; i < jobs.size(); ++i) {
          const std::size_t at = backwards ? jobs.size() - 1 - i : i;
          const Code code = rig.role->load_in_step(2 + at, jobs[at]).code;
          BOOST_TEST((code == (each * (at + 1) <= room ? Code::ok : Code::later)));
          if (code == Code::ok) promised.insert(jobs[at]);
        }
        for (const PlanCopyOf& job : rig.step()) promised.erase(job.job);
        BOOST_TEST(promised.empty());
      }
    }
  }
}

// kvc.h, build_store_jobs: loads may wait for a plan with room, stores that were handed out may
// not.
BOOST_AUTO_TEST_CASE(stores_of_finished_requests_are_in_the_next_plan_before_loads) {
  OpenLimits limits = limits_of();
  limits.max_total_tokens = limits.max_prompt_tokens = Tokens{65};  // five blocks
  for (std::uint64_t room = 6; room < 30; ++room) {                 // a load has up to six copies
    SimpleCpuSchedulerOptions options;
    options.plan_bytes_max = plan_bytes(1, room);
    options.single_flight = false;  // all three loads are of the same blocks
    Rig rig(fa16(), 64, options, limits);
    rig.serve(1, tokens_of(1, 65), 1);
    rig.step();
    BOOST_TEST_CONTEXT("room for " << room) {
      std::vector<JobId> stores;
      for (RequestId id = 2; id <= 6; ++id) {  // five blocks each, none of them offered yet
        const auto first = static_cast<BlockId>(10 * id);
        rig.begin(id, tokens_of(static_cast<std::uint32_t>(id), 65));
        const Tables tables{{first, first + 1, first + 2, first + 3, first + 4}};
        rig.alloc(id, 0, tables);
        if (const JobId job = rig.end(id, 64, tables); job != 0) stores.push_back(job);
      }
      std::vector<JobId> loads;
      for (RequestId id = 7; id <= 9; ++id) {
        const auto first = static_cast<BlockId>(10 * id);
        rig.begin(id, tokens_of(1, 65));
        BOOST_REQUIRE(rig.hit(id) == 64U);
        loads.push_back(rig.alloc(id, 64, {{first, first + 1, first + 2, first + 3, first + 4}}));
      }
      const auto planned = [&rig] {
        std::set<JobId> jobs;
        for (const PlanCopyOf& copy : rig.step()) jobs.insert(copy.job);
        return jobs;
      };
      const std::set<JobId> first = planned();
      for (const JobId store : stores) BOOST_TEST(first.count(store) == 1U);
      // Every plan has room for one load as well.
      BOOST_TEST(first.count(loads[0]) == 1U);
      std::set<JobId> later = planned();
      BOOST_TEST((first.count(loads[1]) + later.count(loads[1])) == 1U);
      later.merge(planned());
      BOOST_TEST((first.count(loads[2]) + later.count(loads[2])) == 1U);
      BOOST_TEST(stores.empty() == (room < 6 + 3));
      rig.finish_all();
    }
  }
}

BOOST_AUTO_TEST_CASE(a_request_waits_for_half_of_the_deadline_of_anothers_load) {
  SimpleCpuSchedulerOptions options;
  options.load_deadline_ms = 1000;
  Rig rig(fa16(), 16, options);
  rig.host.now = 5000 * ms;
  rig.serve(1, tokens_of(1, 65), 1);
  for (const RequestId id : {2u, 3u}) rig.begin(id, tokens_of(1, 65));
  BOOST_TEST(rig.hit(2) == 64u);
  rig.alloc(2, 64, {{11, 12, 13, 14, 15}});
  rig.step();
  rig.host.now = 5500 * ms;
  BOOST_CHECK(rig.lookup_code(3) == Code::later);
  rig.host.now = 5500 * ms + 1;
  BOOST_TEST(rig.hit(3) == 64u);
}

BOOST_AUTO_TEST_CASE(a_table_that_is_too_short_is_one_fault_however_much_it_lacks) {
  Rig rig(fa16(), 16);
  rig.begin(1, tokens_of(1, 90));
  rig.alloc(1, 0, {{1, 2}});
  const std::size_t before = rig.host.faults();
  rig.step({{1, 90, {{1, 2}}}});
  BOOST_TEST(rig.host.faults() == before + 1);
  BOOST_TEST(rig.offers().dropped_bad_offer + rig.offers().dropped_no_parent >= 3u);
}

BOOST_AUTO_TEST_CASE(a_source_failure_ends_the_leases_of_its_path_and_no_others) {
  SimpleCpuSchedulerOptions options;
  options.single_flight = false;
  Rig rig(fa16(), 32, options);
  rig.serve(1, tokens_of(1, 65), 1);
  rig.serve(2, tokens_of(2, 65), 1);
  rig.begin(3, tokens_of(1, 65));
  rig.begin(4, tokens_of(1, 65));
  rig.begin(5, tokens_of(2, 65));
  BOOST_TEST(rig.hit(3) == 64u);
  const JobId load = rig.alloc(3, 64, {{11, 12, 13, 14, 15}});
  rig.step();
  BOOST_TEST(rig.hit(4) == 64u);
  BOOST_TEST(rig.hit(5) == 64u);
  BOOST_TEST(rig.stat("leases_open_now") == 2u);
  rig.report(load, 0, Code::io, {{0, 12, 1, 0, Code::io, FailedSide::source}});
  BOOST_TEST(rig.stat("leases_open_now") == 1u);
  // The other one is still what it was: nothing but its load pins it now.
  rig.alloc(5, 64, {{21, 22, 23, 24, 25}});
  BOOST_TEST(rig.stat("leases_open_now") == 0u);
  BOOST_TEST(rig.last_held.size() == 4u);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace kvc
