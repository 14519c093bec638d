// Values pass the edge unchanged, in both directions.
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "plugin/edge/tests/form_fixture.h"

namespace kvc::edge::testing {

BOOST_AUTO_TEST_SUITE(edge_convert)

namespace {

template <class T>
const T& item(const kvc_list& list, std::uint64_t i) {
  BOOST_REQUIRE_LT(i, list.count);
  BOOST_REQUIRE_EQUAL(list.stride, sizeof(T));
  BOOST_REQUIRE_EQUAL(list.reserved0, 0U);
  const T& t = *static_cast<const T*>(kvc_list_at(&list, i));
  BOOST_REQUIRE_EQUAL(t.struct_size, sizeof(T));
  return t;
}

struct Opened : Form {
  Opened() { sched(); }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_request_arrives_as_it_was_said, Opened) {
  BOOST_REQUIRE_EQUAL(api.request_begin(s, &request), KVC_OK);
  const RequestBegin& b = script().begin;
  BOOST_CHECK_EQUAL(b.request, 7U);
  BOOST_CHECK(b.no_read && !b.no_write);
  BOOST_CHECK_EQUAL(b.prompt.n, 33U);
  BOOST_CHECK_EQUAL(b.key_count, 2U);
  BOOST_CHECK(b.load_limit == no_token_limit);
  BOOST_CHECK_EQUAL(b.store_limit.n, 32U);
  BOOST_CHECK(script().keys == keys);
  request.flags = KVC_REQUEST_NO_WRITE;
  BOOST_REQUIRE_EQUAL(api.request_begin(s, &request), KVC_OK);
  BOOST_CHECK(!b.no_read && b.no_write);
  BOOST_REQUIRE_EQUAL(api.request_extend(s, &extend), KVC_OK);
  BOOST_CHECK_EQUAL(script().request, 7U);
  BOOST_CHECK_EQUAL(script().begin.key_count, 1U);
  BOOST_REQUIRE_EQUAL(api.lookup_cancel(s, 12), KVC_OK);
  BOOST_CHECK_EQUAL(script().request, 12U);
}

BOOST_FIXTURE_TEST_CASE(a_lookup_and_its_answer_pass, Opened) {
  kvc_lookup_out out{};
  out.struct_size = sizeof out;
  script().found = {Code::ok, {48}, Why::none};
  BOOST_REQUIRE_EQUAL(api.lookup(s, &lookup, &out), KVC_OK);
  BOOST_CHECK_EQUAL(script().query.request, 7U);
  BOOST_CHECK_EQUAL(script().query.total.n, 33U);
  BOOST_CHECK_EQUAL(script().query.device.n, 16U);
  BOOST_CHECK_EQUAL(script().query.external_cap.n, 32U);
  BOOST_CHECK_EQUAL(out.external_tokens, 48U);
  BOOST_CHECK_EQUAL(out.why, KVC_WHY_NONE);
  script().found = {Code::later, {0}, Why::attached};
  BOOST_REQUIRE_EQUAL(api.lookup(s, &lookup, &out), KVC_LATER);
  BOOST_CHECK_EQUAL(out.external_tokens, 0U);
  BOOST_CHECK_EQUAL(out.why, KVC_WHY_ATTACHED);
}

BOOST_FIXTURE_TEST_CASE(an_allocation_and_its_holds_pass, Opened) {
  const std::vector<BlockId> table = {5, 6, 7, 8, 9};
  const std::vector<HeldRange> held = {{0, table.data(), 3, 5}};
  const std::vector<MediumTokens> media = {{Medium::host, {16}}};
  script().alloc = {77, held, media};
  kvc_alloc_out out{};
  out.struct_size = sizeof out;
  BOOST_REQUIRE_EQUAL(api.alloc_update(s, &alloc, &out), KVC_OK);
  BOOST_CHECK_EQUAL(script().accepted.n, 16U);
  BOOST_CHECK((script().tables == std::vector<std::vector<BlockId>>{{3, 4}}));
  BOOST_CHECK(script().first_changed == std::vector<std::uint64_t>{1});
  BOOST_CHECK_EQUAL(out.job, 77U);
  BOOST_REQUIRE_EQUAL(out.held.count, 2U);
  BOOST_CHECK_EQUAL(item<kvc_block>(out.held, 0).block, 8);
  BOOST_CHECK_EQUAL(item<kvc_block>(out.held, 1).position, 4U);
  BOOST_CHECK_EQUAL(item<kvc_medium_tokens>(out.media, 0).tokens, 16U);
  BOOST_CHECK_EQUAL(item<kvc_medium_tokens>(out.media, 0).medium, KVC_MEDIUM_HOST);
  alloc.tables.count = 0;
  BOOST_REQUIRE_EQUAL(api.alloc_update(s, &alloc, &out), KVC_OK);
  BOOST_CHECK(script().tables.empty());
}

BOOST_FIXTURE_TEST_CASE(a_step_and_its_plan_pass, Opened) {
  const std::vector<HeldBlock> held = {{0, 4, 1}, {0, 3, 0}};
  const std::vector<PlannedJob> jobs = {{JobKind::load, 5, 7, {}}, {JobKind::store, 6, 0, held}};
  const std::vector<std::uint8_t> bytes = {1, 2, 3};
  script().plan = {1, jobs, bytes};
  kvc_plan out{};
  out.struct_size = sizeof out;
  BOOST_REQUIRE_EQUAL(api.build_store_jobs(s, &step, &out), KVC_OK);
  BOOST_CHECK_EQUAL(script().step.step, 1U);
  BOOST_REQUIRE_EQUAL(script().scheduled.size(), 1U);
  BOOST_CHECK(script().scheduled[0].resumed);
  BOOST_CHECK_EQUAL(script().scheduled[0].confirmed.n, 32U);
  BOOST_CHECK_EQUAL(script().scheduled[0].request, 7U);
  BOOST_CHECK((script().tables == std::vector<std::vector<BlockId>>{{3, 4}}));
  BOOST_CHECK(script().preempted == std::vector<RequestId>{8});
  BOOST_REQUIRE_EQUAL(script().handoffs.size(), 1U);
  BOOST_CHECK_EQUAL(script().handoffs[0].block, 5);
  BOOST_CHECK_EQUAL(script().handoffs[0].boundary.n, 48U);
  BOOST_REQUIRE_EQUAL(script().candidates.size(), 1U);
  BOOST_CHECK(script().candidates[0].key == keys.data());
  BOOST_CHECK_EQUAL(script().candidates[0].end.n, 64U);

  BOOST_CHECK_EQUAL(out.step, 1U);
  BOOST_REQUIRE_EQUAL(out.jobs.count, 2U);
  BOOST_CHECK_EQUAL(item<kvc_plan_job>(out.jobs, 0).kind, KVC_JOB_LOAD);
  BOOST_CHECK_EQUAL(item<kvc_plan_job>(out.jobs, 0).held.count, 0U);
  const kvc_plan_job& store = item<kvc_plan_job>(out.jobs, 1);
  BOOST_CHECK_EQUAL(store.job, 6U);
  BOOST_REQUIRE_EQUAL(store.held.count, 2U);
  BOOST_CHECK_EQUAL(item<kvc_block>(store.held, 0).block, 4);
  BOOST_CHECK_EQUAL(item<kvc_block>(store.held, 1).block, 3);
  BOOST_CHECK_EQUAL(out.bytes.size, 3U);
  BOOST_CHECK(std::memcmp(out.bytes.data, bytes.data(), 3) == 0);
}

BOOST_FIXTURE_TEST_CASE(lists_with_a_longer_stride_are_stepped_by_it, Opened) {
  struct Longer {
    kvc_handoff known;
    std::uint64_t more = 0;
  };
  std::vector<Longer> list(3);
  for (std::uint64_t i = 0; i < 3; ++i) {
    list[i].known = handoffs[0];
    list[i].known.struct_size = sizeof(Longer);
    list[i].known.boundary_tokens = 16 * (i + 1);
  }
  step.handoffs = kvc_list_of(list.data(), 3, sizeof(Longer));
  kvc_plan out{};
  out.struct_size = sizeof out;
  BOOST_REQUIRE_EQUAL(api.build_store_jobs(s, &step, &out), KVC_OK);
  BOOST_REQUIRE_EQUAL(script().handoffs.size(), 3U);
  BOOST_CHECK_EQUAL(script().handoffs[2].boundary.n, 48U);
  list[1].more = 1;  // a field that we do not know, in use
  BOOST_CHECK_EQUAL(api.build_store_jobs(s, &step, &out), KVC_E_UNSUPPORTED);
}

BOOST_FIXTURE_TEST_CASE(reports_and_what_ended_pass, Opened) {
  const std::vector<FailedBlock> failed = {{0, 3, 1, 2, Code::io, FailedSide::destination}};
  const std::vector<HeldBlock> released = {{0, 4, 1}, {0, 3, 0}};
  const std::vector<EndedJob> jobs = {{JobKind::store, 5, 0, Code::io, failed, released},
                                      {JobKind::load, 6, 7, Code::ok, {}, released}};
  const std::vector<Verdict> verdicts = {{7, 6, Code::ok}};
  const std::vector<RejectedEntry> rejected = {{3, 1, 99, Code::state}};
  script().complete = {jobs, verdicts, rejected};
  const kvc_bytes reports[] = {{keys.data(), 4}, {nullptr, 0}, {keys.data() + 4, 2}};
  kvc_complete_out out{};
  out.struct_size = sizeof out;
  BOOST_REQUIRE_EQUAL(api.complete(s, reports, 3, &out), KVC_OK);
  BOOST_REQUIRE_EQUAL(script().reports.size(), 3U);
  BOOST_CHECK(script().reports[0] == (std::vector<std::uint8_t>{0, 1, 2, 3}));
  BOOST_CHECK(script().reports[1].empty());
  BOOST_REQUIRE_EQUAL(out.jobs.count, 2U);
  const kvc_ended_job& store = item<kvc_ended_job>(out.jobs, 0);
  BOOST_CHECK_EQUAL(store.status, KVC_E_IO);
  const kvc_failed_block& bad = item<kvc_failed_block>(store.failed, 0);
  BOOST_CHECK_EQUAL(bad.rank, 2U);
  BOOST_CHECK_EQUAL(bad.side, KVC_SIDE_DESTINATION);
  BOOST_CHECK_EQUAL(bad.block, 3);
  BOOST_CHECK_EQUAL(item<kvc_block>(item<kvc_ended_job>(out.jobs, 1).released, 1).block, 3);
  BOOST_CHECK_EQUAL(item<kvc_verdict>(out.verdicts, 0).request, 7U);
  const kvc_rejected& entry = item<kvc_rejected>(out.rejected, 0);
  BOOST_CHECK_EQUAL(entry.report, 1U);
  BOOST_CHECK_EQUAL(entry.job, 99U);
  BOOST_CHECK_EQUAL(entry.status, KVC_E_STATE);
}

BOOST_FIXTURE_TEST_CASE(an_end_and_a_reset_pass, Opened) {
  const std::vector<HeldBlock> held = {{0, 4, 1}};
  script().end = {12, held};
  kvc_end_out out{};
  out.struct_size = sizeof out;
  BOOST_REQUIRE_EQUAL(api.request_end(s, &end, &out), KVC_OK);
  BOOST_CHECK_EQUAL(script().request, 7U);
  BOOST_CHECK_EQUAL(script().accepted.n, 32U);
  BOOST_CHECK_EQUAL(script().handoffs.size(), 1U);
  BOOST_CHECK_EQUAL(out.job, 12U);
  BOOST_CHECK_EQUAL(item<kvc_block>(out.held, 0).block, 4);
  BOOST_CHECK_EQUAL(api.reset(s, KVC_RESET_INVALIDATE), KVC_OK);
  BOOST_CHECK(script().invalidate);
  script().reset = Code::later;
  BOOST_CHECK_EQUAL(api.reset(s, 0), KVC_LATER);
  BOOST_CHECK(!script().invalidate);
}

BOOST_FIXTURE_TEST_CASE(ranks_and_their_classes_pass, Opened) {
  script().classes = {{1, 1, 2, {64}, 8}};
  kvc_list usable{};
  const kvc_list list = kvc_list_of(ranks.data(), 1, sizeof(kvc_rank_info));
  BOOST_REQUIRE_EQUAL(api.set_ranks(s, &list, &usable), KVC_OK);
  BOOST_REQUIRE_EQUAL(script().ranks.size(), 1U);
  BOOST_CHECK_EQUAL(script().ranks[0].pages, 8U);
  BOOST_REQUIRE_EQUAL(script().rank_classes.size(), 1U);
  BOOST_CHECK_EQUAL(script().rank_classes[0].bytes_per_block.n, 128U);
  BOOST_CHECK_EQUAL(item<kvc_class>(usable, 0).usable_slots, 8U);
  BOOST_CHECK_EQUAL(item<kvc_class>(usable, 0).slots_per_page, 2U);
}

BOOST_FIXTURE_TEST_CASE(events_are_drained_in_pieces_into_any_stride, Opened) {
  for (std::uint64_t i = 0; i < 150; ++i) {
    CacheEvent e;
    e.kind = EventKind::stored;
    e.begin = {i * 16};
    e.end = {i * 16 + 16};
    e.request = i;
    e.has_parent = i != 0;
    e.key.fill(static_cast<std::uint8_t>(i));
    script().events.push_back(e);
  }
  std::vector<std::uint8_t> room(200 * 128, 0xAA);
  std::uint64_t n = 7;
  BOOST_CHECK_EQUAL(api.take_events(s, nullptr, 128, 0, &n), KVC_MORE);
  BOOST_CHECK_EQUAL(n, 0U);
  BOOST_CHECK_EQUAL(api.take_events(s, room.data(), 128, 100, &n), KVC_MORE);
  BOOST_REQUIRE_EQUAL(n, 100U);
  kvc_event e{};
  std::memcpy(&e, room.data() + 99 * 128, sizeof e);
  BOOST_CHECK_EQUAL(e.request, 99U);
  BOOST_CHECK_EQUAL(e.key[3], 99);
  BOOST_CHECK_EQUAL(e.key_bytes, 16U);
  BOOST_CHECK_EQUAL(e.has_parent, 1U);
  BOOST_CHECK_EQUAL(room[100 * 128], 0xAA);
  BOOST_CHECK_EQUAL(api.take_events(s, room.data(), 128, 200, &n), KVC_OK);
  BOOST_CHECK_EQUAL(n, 50U);
  BOOST_CHECK_EQUAL(api.take_events(s, room.data(), 128, 200, &n), KVC_OK);
  BOOST_CHECK_EQUAL(n, 0U);
}

BOOST_FIXTURE_TEST_CASE(stats_and_explain_are_sized_and_copied, Opened) {
  script().stats = {{"lookups", "", 3}, {"slots_used_now", "class=0", 4}};
  std::uint64_t needed = 0;
  BOOST_CHECK_EQUAL(api.stats(s, nullptr, sizeof(kvc_stat), 0, &needed), KVC_E_ROOM);
  BOOST_CHECK_EQUAL(needed, 2U);
  kvc_stat rows[2]{};
  BOOST_CHECK_EQUAL(api.stats(s, rows, sizeof(kvc_stat), 1, &needed), KVC_E_ROOM);
  BOOST_CHECK_EQUAL(rows[0].struct_size, 0U);
  BOOST_CHECK_EQUAL(api.stats(s, rows, sizeof(kvc_stat), 2, &needed), KVC_OK);
  BOOST_CHECK_EQUAL(rows[1].value, 4U);
  BOOST_CHECK(std::memcmp(rows[1].labels.data, "class=0", 7) == 0);
  BOOST_CHECK_EQUAL(api.stats(s, rows, sizeof(kvc_stat) - 8, 2, &needed), KVC_E_ARG);
  BOOST_CHECK_EQUAL(api.stats(s, nullptr, sizeof(kvc_stat), 2, &needed), KVC_E_ARG);
  BOOST_CHECK_EQUAL(api.stats(s, rows, sizeof(kvc_stat), 2, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(api.stats(s, rows, sizeof(kvc_stat), UINT64_MAX, &needed), KVC_E_ARG);

  script().explain = "{\"a\":1}";
  char text[16] = {};
  BOOST_CHECK_EQUAL(api.explain(s, 0, nullptr, 0, &needed), KVC_E_ROOM);
  BOOST_CHECK_EQUAL(needed, 7U);
  BOOST_CHECK_EQUAL(api.explain(s, 0, text, 6, &needed), KVC_E_ROOM);
  BOOST_CHECK_EQUAL(text[0], '\0');
  BOOST_CHECK_EQUAL(api.explain(s, 0, text, 7, &needed), KVC_OK);
  BOOST_CHECK_EQUAL(std::string(text), "{\"a\":1}");
  BOOST_CHECK_EQUAL(api.explain(s, 404, text, sizeof text, &needed), KVC_E_ARG);
  BOOST_CHECK_EQUAL(api.explain(s, 0, nullptr, 9, &needed), KVC_E_ARG);
  BOOST_CHECK(last_error().empty());  // queries of any thread have no text
}

BOOST_FIXTURE_TEST_CASE(an_error_of_the_role_is_code_and_text_and_survives_successes, Opened) {
  BOOST_CHECK(last_error().empty());
  script().answer = Status(Code::state, "a load of request 7 has no verdict");
  BOOST_CHECK_EQUAL(api.lookup_cancel(s, 7), KVC_E_STATE);
  BOOST_CHECK_EQUAL(last_error(), "lookup_cancel: a load of request 7 has no verdict");
  script().answer = {};
  BOOST_CHECK_EQUAL(api.lookup_cancel(s, 7), KVC_OK);
  BOOST_CHECK_EQUAL(last_error(), "lookup_cancel: a load of request 7 has no verdict");
  script().answer = Status(Code::full, std::string(5000, 'x'));
  BOOST_CHECK_EQUAL(api.lookup_cancel(s, 7), KVC_E_FULL);
  BOOST_CHECK_EQUAL(last_error().size(), 1000U);
  char little[4];
  std::uint64_t needed = 0;
  BOOST_CHECK_EQUAL(api.last_error_scheduler(s, little, sizeof little, &needed), KVC_E_ROOM);
  BOOST_CHECK_EQUAL(needed, 1000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::edge::testing
