// Each finding of the judge: an engine that breaks the rule is found, one that does not is not.
#include "conformance/probe/judge.h"

#include <kvc/kvc_util.h>
#include <boost/test/unit_test.hpp>
#include <optional>

using kvc::probe::HeldBlock;
using kvc::probe::Judge;

namespace {

// One full-attention group of 16 tokens a block.
struct Bench {
  Bench() {
    group.struct_size = sizeof group;
    group.caps = KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE;
    group.tokens_per_block = 16;
    open.struct_size = sizeof open;
    open.groups = kvc_list_of(&group, 1, sizeof group);
    open.hash_unit_tokens = 16;
    open.context_parallel = 1;
    open.device_blocks = 100;
    judge.emplace(host, open);
  }
  void begin(std::uint64_t id, bool tracked = true) {
    kvc_request in{};
    in.request = id;
    judge->begin(in, tracked);
  }
  void lookup(std::uint64_t id, bool later, std::uint64_t honest) {
    kvc_lookup_in in{};
    in.request = id;
    judge->looked_up(in, later, honest);
  }
  kvc_list tables(const std::vector<std::int64_t>& blocks) {
    table.struct_size = sizeof table;
    table.blocks = blocks.data();
    table.count = blocks.size();
    return kvc_list_of(&table, 1, sizeof table);
  }
  void allocate(std::uint64_t id, std::uint64_t accepted, const std::vector<std::int64_t>& blocks) {
    kvc_alloc_in in{};
    in.request = id;
    in.accepted_tokens = accepted;
    in.tables = tables(blocks);
    judge->allocated(in);
  }
  void run(std::uint64_t id, const std::vector<std::int64_t>& blocks) {
    kvc_step_request r{};
    r.struct_size = sizeof r;
    r.request = id;
    r.tables = tables(blocks);
    kvc_step in{};
    in.scheduled = kvc_list_of(&r, 1, sizeof r);
    judge->step(in);
  }
  void end(std::uint64_t id) {
    kvc_end_in in{};
    in.request = id;
    judge->end(in);
  }
  // A request that waits for a load of two blocks.
  void loading(std::uint64_t id, kvc_job job) {
    begin(id);
    lookup(id, false, 32);
    allocate(id, 32, {5, 6});
    judge->opened_load(id, job, {{0, 5, 0}, {0, 6, 1}});
  }
  void finds(const char* rule) {
    BOOST_REQUIRE_MESSAGE(!judge->findings().empty(), "no finding, expected " << rule);
    BOOST_TEST_INFO(judge->findings().front());
    BOOST_TEST(judge->findings().front().starts_with(rule));
  }
  void finds_nothing() {
    for (const std::string& f : judge->findings()) BOOST_ERROR(f);
  }

  kvc_host_api host{};
  kvc_group group{};
  kvc_open open{};
  kvc_table table{};
  std::optional<Judge> judge;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(probe_judge, Bench)

BOOST_AUTO_TEST_CASE(a_request_that_loads_runs_and_ends_is_no_finding) {
  loading(1, 7);
  judge->step({});
  judge->ended(7);
  judge->verdict(1, true);
  run(1, {5, 6, 8});
  begin(2);
  lookup(2, false, 0);
  allocate(2, 0, {5, 6, 9});  // shares the prefix
  run(2, {5, 6, 9});
  end(1);
  end(2);
  judge->closing();
  finds_nothing();
}

BOOST_AUTO_TEST_CASE(a_call_after_a_fatal_answer_is_found) {
  BOOST_TEST(judge->called("lookup"));
  judge->answered_fatal("lookup");
  BOOST_TEST(!judge->called("complete"));
  finds("KVC-H-005");
}

BOOST_AUTO_TEST_CASE(a_request_that_runs_before_its_verdict_is_found) {
  loading(1, 7);
  run(1, {5, 6});
  finds("KVC-H-046");
}

BOOST_AUTO_TEST_CASE(a_request_that_runs_on_after_its_load_failed_is_found) {
  loading(1, 7);
  judge->ended(7);
  judge->verdict(1, false);
  run(1, {5, 6});
  finds("KVC-H-046");
}

BOOST_AUTO_TEST_CASE(a_request_that_is_preempted_and_allocated_again_in_one_step_may_run) {
  begin(1);
  lookup(1, false, 0);
  allocate(1, 0, {5});
  run(1, {5});
  lookup(1, false, 0);
  allocate(1, 0, {6});
  const std::uint64_t preempted[] = {1};
  kvc_step in{};
  in.preempted = preempted;
  in.n_preempted = 1;
  judge->step(in);
  run(1, {6});
  finds_nothing();
  judge->step(in);
  run(1, {6});
  finds("KVC-H-046");
}

BOOST_AUTO_TEST_CASE(a_block_of_an_open_load_that_another_request_gets_is_found) {
  loading(1, 7);
  end(1);
  begin(2);
  lookup(2, false, 0);
  allocate(2, 0, {6});
  run(2, {6});
  finds("KVC-H-047");
}

BOOST_AUTO_TEST_CASE(a_block_of_an_open_store_that_moves_is_found) {
  begin(1);
  lookup(1, false, 0);
  allocate(1, 0, {5, 6});
  run(1, {5, 6});
  judge->opened_store(9, {{0, 6, 1}});
  run(1, {5, 6});
  finds_nothing();
  run(1, {5, 4, 6});
  finds("KVC-H-047");
}

BOOST_AUTO_TEST_CASE(a_load_into_a_held_block_is_found) {
  judge->opened_store(9, {{0, 6, 3}});
  begin(1);
  lookup(1, false, 32);
  allocate(1, 32, {5, 6});
  finds("KVC-H-047");
}

BOOST_AUTO_TEST_CASE(a_request_that_forgets_to_ask_again_is_found) {
  begin(1);
  lookup(1, true, 0);
  for (int i = 0; i < 100; ++i) judge->step({});
  judge->closing();
  finds("KVC-H-060");
}

BOOST_AUTO_TEST_CASE(an_engine_in_which_nothing_runs_beside_a_waiting_request_is_found) {
  begin(1);
  begin(2);
  lookup(1, true, 0);
  judge->closing();
  finds("KVC-H-060");
}

BOOST_AUTO_TEST_CASE(a_load_of_a_refused_request_is_found) {
  begin(1, false);
  allocate(1, 16, {5});
  finds("KVC-H-061");
}

BOOST_AUTO_TEST_CASE(requests_left_over_beside_a_job_without_end_are_found) {
  loading(1, 7);
  begin(2);
  judge->never_ends(7);
  begin(3);
  lookup(3, false, 0);
  allocate(3, 0, {9});
  run(3, {9});
  end(3);
  judge->closing();
  finds("KVC-H-063");
}

BOOST_AUTO_TEST_CASE(more_tokens_than_could_be_offered_are_found) {
  begin(1);
  lookup(1, false, 32);
  allocate(1, 48, {5, 6, 7});
  finds("KVC-H-064");
}

BOOST_AUTO_TEST_CASE(requests_that_never_end_are_found_and_not_when_the_probe_broke_the_contract) {
  begin(1);
  judge->contradicted();
  judge->closing();
  finds_nothing();
  judge.emplace(host, open);
  begin(1);
  judge->closing();
  finds("KVC-H-024");
  judge.emplace(host, open);
  begin(1);
  judge->answered_unknown();
  judge->closing();
  finds("KVC-H-004");
}

BOOST_AUTO_TEST_CASE(an_id_that_begins_twice_is_found) {
  begin(1, false);
  begin(1);
  finds("KVC-H-020");
}

BOOST_AUTO_TEST_SUITE_END()
