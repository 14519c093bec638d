// What a call visits depends on what changed, not on what requests hold (design 2.5.3, 6): counted
// with KVC_OP, which is compiled in with the fault points.
#include "plugin/core/op_count.h"
#include "plugin/simple_cpu/tests/rig.h"

using namespace kvc;
using namespace kvc::test;

namespace {

#if defined(KVC_FAULT_POINTS)

constexpr RequestId running = 256;

OpenLimits wide_limits() {
  OpenLimits limits = limits_of(60'000);
  limits.max_batch_tokens = Tokens{100'000};
  limits.max_live_requests = 2 * running;
  limits.max_running = running;
  limits.max_request_bytes = Bytes{UINT64_MAX};
  return limits;
}

template <class Call>
OpCounts ops_of(Call call) {
  op_counts().clear();
  call();
  return op_counts();
}

bool equal(const OpCounts& a, const OpCounts& b) { return a.of == b.of; }

std::string text_of(const OpCounts& counts) {
  std::string out;
  for (std::size_t i = 0; i < op_names.size(); ++i) {
    out += std::string(op_names[i]) + " " + std::to_string(counts.of[i]) + "; ";
  }
  return out;
}

// A role on which nothing but the calls of the test costs anything.
std::unique_ptr<Rig> quiet_rig(const Layout& layout, std::uint64_t slots = 30'000) {
  auto rig = std::make_unique<Rig>(layout, slots, SimpleCpuSchedulerOptions{}, wide_limits());
  rig->checks = false;
  return rig;
}

// 256 requests with the same prompt of so many tokens, stored and running.
std::unique_ptr<Rig> running_rig(const Layout& layout, std::uint64_t tokens) {
  std::unique_ptr<Rig> rig = quiet_rig(layout);
  const TokenIds prompt = tokens_of(1, tokens);
  const Tables tables = rig->fresh_tables(tokens + 32, 1);
  for (RequestId id = 1; id <= running; ++id) {
    BOOST_REQUIRE(rig->begin(id, prompt) == Code::ok);
    rig->step({{id, tokens, tables}});
    rig->finish_all();
  }
  std::vector<Sched> all;
  for (RequestId id = 1; id <= running; ++id) all.push_back({id, tokens, {}});
  rig->step(all);
  rig->finish_all();
  BOOST_REQUIRE(rig->offers().pending == 0u);
  BOOST_REQUIRE(rig->stat("host_published_now") >= tokens / 16);
  return rig;
}

OpCounts ops_of_step(Rig& rig, std::uint64_t confirmed) {
  std::vector<Sched> all;
  for (RequestId id = 1; id <= running; ++id) all.push_back({id, confirmed, {}});
  return ops_of([&] { rig.step(all); });
}

// Others that hold much: open stores of one step, and open loads.
void add_others(Rig& rig, RequestId first, std::uint64_t count, std::uint64_t tokens) {
  std::vector<Sched> scheduled;
  BlockId block = 20'000;
  for (RequestId id = first; id < first + count; ++id) {
    BOOST_REQUIRE(rig.begin(id, tokens_of(static_cast<std::uint32_t>(id), tokens)) == Code::ok);
    scheduled.push_back({id, tokens, rig.fresh_tables(tokens, block)});
    block += static_cast<BlockId>(2 * tokens / 16 + 2);
  }
  rig.step(scheduled);
}

// A request with an open store of its own and one that it shares with another.
void run_one(Rig& rig, RequestId id) {
  const Tables tables = rig.fresh_tables(320, 1);
  const Tables other = rig.fresh_tables(320, 1000);
  BOOST_REQUIRE(rig.begin(id, tokens_of(static_cast<std::uint32_t>(id), 320)) == Code::ok);
  BOOST_REQUIRE(rig.begin(id + 1, tokens_of(static_cast<std::uint32_t>(id + 1), 320)) == Code::ok);
  rig.step({{id, 160, tables}});
  rig.step({{id + 1, 320, other}, {id, 320, {}}});
  BOOST_REQUIRE(rig.role->pending().store_jobs >= 2);
}

const Layout attention{{full(16)}, 16, 16, 1};
const Layout with_window{{full(16), sliding(16, 48)}, 16, 16, 1};

// With 64 tokens stored that any number of requests load at the same time.
std::unique_ptr<Rig> shared_rig() {
  SimpleCpuSchedulerOptions options;
  options.single_flight = false;
  auto rig = std::make_unique<Rig>(attention, 100, options, wide_limits());
  rig->checks = false;
  rig->serve(1, tokens_of(1, 65), 1);
  return rig;
}

// The request loads them; its job waits for a plan.
JobId waiting_load(Rig& rig, RequestId id) {
  BOOST_REQUIRE(rig.begin(id, tokens_of(1, 65)) == Code::ok);
  BOOST_REQUIRE(rig.hit(id) == 64u);
  return rig.alloc(id, 64, rig.fresh_tables(65, static_cast<BlockId>(5 * id)));
}

// Runs `call` on a role that has nothing else to do, and on one where 100 requests of 1,600 tokens
// have open stores, and demands that both visit the same.
template <class Call>
void same_beside_others(Call call) {
  for (const Layout& layout : {attention, with_window}) {
    std::unique_ptr<Rig> alone = quiet_rig(layout);
    std::unique_ptr<Rig> beside = quiet_rig(layout, 100'000);
    add_others(*beside, 1000, 100, 1600);
    const OpCounts few = call(*alone);
    const OpCounts many = call(*beside);
    BOOST_TEST(few.all() > 0u);
    BOOST_TEST(equal(few, many), "alone " << text_of(few) << " beside others " << text_of(many));
  }
}

#endif

}  // namespace

BOOST_AUTO_TEST_SUITE(simple_cpu_no_scan)

#if defined(KVC_FAULT_POINTS)

BOOST_AUTO_TEST_CASE(
    a_step_in_which_nothing_changed_visits_as_much_for_long_requests_as_for_short) {
  for (const Layout& layout : {attention, with_window}) {
    std::unique_ptr<Rig> small = running_rig(layout, 1'000);
    std::unique_ptr<Rig> large = running_rig(layout, 99'000);
    const OpCounts few = ops_of_step(*small, 1'000);
    const OpCounts many = ops_of_step(*large, 99'000);
    BOOST_TEST(equal(few, many), "1k " << text_of(few) << " 100k " << text_of(many));
    BOOST_TEST(many[Op::request] == running);
    BOOST_TEST(many.all() == running);
    // One token further, no block full: of their records of explain one word changes.
    const OpCounts next = ops_of_step(*large, 99'001);
    BOOST_TEST(equal(ops_of_step(*small, 1'001), next), text_of(next));
    BOOST_TEST(next.all() == running);
  }
}

// Its positions are in another request's open copies; nothing can have changed before one ends.
BOOST_AUTO_TEST_CASE(a_request_that_waits_for_others_is_looked_at_when_copies_end) {
  std::unique_ptr<Rig> rig = quiet_rig(attention);
  BOOST_REQUIRE(rig->begin(1, tokens_of(1, 320)) == Code::ok);
  BOOST_REQUIRE(rig->begin(2, tokens_of(1, 320)) == Code::ok);
  rig->step({{1, 320, rig->fresh_tables(320, 1)}, {2, 320, rig->fresh_tables(320, 1000)}});
  BOOST_REQUIRE(rig->offers().pending > 20u);
  rig->step({{2, 320, {}}});
  const OpCounts waits = ops_of([&] { rig->step({{2, 320, {}}}); });
  BOOST_TEST(waits[Op::position] + waits[Op::entry] == 0u, text_of(waits));
  rig->finish_all();
  const OpCounts ended = ops_of([&] { rig->step({{2, 320, {}}}); });
  BOOST_TEST(ended[Op::entry] > 0u, text_of(ended));
}

BOOST_AUTO_TEST_CASE(a_table_that_grows_costs_its_new_entries) {
  std::unique_ptr<Rig> rig = running_rig(attention, 99'000);
  Tables tables = rig->fresh_tables(99'000 + 32, 1);
  tables[0].push_back(50'000);
  std::vector<TableView> changed = views(tables);
  changed[0].first_changed = tables[0].size() - 1;
  const ScheduledRequest element{7, false, Tokens{99'000}, changed};
  StepRecord record;
  record.step = ++rig->steps;
  record.scheduled = {&element, 1};
  const OpCounts ops = ops_of([&] { BOOST_REQUIRE(rig->role->build_store_jobs(record).ok()); });
  BOOST_TEST(ops[Op::cell] == 1u);
}

BOOST_AUTO_TEST_CASE(a_completion_visits_its_own_copies) {
  same_beside_others([](Rig& rig) {
    run_one(rig, 1);
    const JobId job = rig.open.rbegin()->first;
    return ops_of([&] { rig.finish(job); });
  });
}

BOOST_AUTO_TEST_CASE(a_preemption_visits_what_its_request_has) {
  same_beside_others([](Rig& rig) {
    run_one(rig, 1);
    return ops_of([&] { rig.step({}, {1}); });
  });
}

BOOST_AUTO_TEST_CASE(an_end_visits_what_its_request_has) {
  same_beside_others([](Rig& rig) {
    run_one(rig, 1);
    return ops_of([&] { rig.end(1, 320, rig.fresh_tables(320, 1)); });
  });
}

BOOST_AUTO_TEST_CASE(a_lookup_and_a_load_visit_the_hit) {
  same_beside_others([](Rig& rig) {
    rig.serve(500, tokens_of(500, 481), 1);
    BOOST_REQUIRE(rig.begin(501, tokens_of(500, 481)) == Code::ok);
    return ops_of([&] {
      BOOST_REQUIRE(rig.hit(501) == 480u);
      rig.alloc(501, 480, rig.fresh_tables(481, 2000));
    });
  });
}

// However many wait, and in whatever order they are asked for.
BOOST_AUTO_TEST_CASE(loads_in_step_look_at_each_load_that_waits_once) {
  for (const RequestId count : {20U, 200U}) {
    for (const bool backwards : {false, true}) {
      std::unique_ptr<Rig> rig = shared_rig();
      std::vector<JobId> jobs;
      for (RequestId i = 0; i < count; ++i) jobs.push_back(waiting_load(*rig, 2 + i));
      const OpCounts ops = ops_of([&] {
        for (RequestId i = 0; i < count; ++i) {
          const RequestId at = backwards ? count - 1 - i : i;
          BOOST_TEST((rig->role->load_in_step(2 + at, jobs[at]).code == Code::ok));
        }
      });
      BOOST_TEST(ops[Op::job] == count, text_of(ops));
      BOOST_TEST(rig->step().size() == count);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_load_in_step_that_is_asked_for_at_once_looks_at_itself_alone) {
  std::unique_ptr<Rig> rig = shared_rig();
  for (RequestId id = 2; id < 100; ++id) {
    const JobId job = waiting_load(*rig, id);
    const OpCounts ops =
        ops_of([&] { BOOST_TEST((rig->role->load_in_step(id, job).code == Code::ok)); });
    BOOST_TEST(ops[Op::job] == 1u, text_of(ops));
    if (id % 10 == 0) BOOST_TEST(!rig->step().empty());  // the line begins anew
  }
}

BOOST_AUTO_TEST_CASE(boundary_stats_visit_nothing) {
  std::unique_ptr<Rig> rig = running_rig(attention, 1'000);
  const OpCounts ops = ops_of([&] { BOOST_TEST(rig->role->counts().all_offers.published > 0u); });
  BOOST_TEST(ops.all() == 0u);
}

#else

BOOST_AUTO_TEST_CASE(counting_is_compiled_out) {
  op_counts().clear();
  Rig rig(Layout{{full(16)}, 16, 16, 1});
  rig.serve(1, tokens_of(1, 64), 1);
  BOOST_TEST(op_counts().all() == 0u);
}

#endif

BOOST_AUTO_TEST_SUITE_END()
