// What open refuses, with the numbers, and that a refused open leaves nothing behind.
#include <boost/test/unit_test.hpp>
#include <cstring>

#include "plugin/edge/tests/form_fixture.h"

namespace kvc::edge::testing {

BOOST_AUTO_TEST_SUITE(edge_open)

namespace {

struct Opening : Form {
  void refused(kvc_status want, std::string_view part) {
    log.clear();
    kvc_sched* out = reinterpret_cast<kvc_sched*>(this);
    BOOST_CHECK_EQUAL(try_open(out), want);
    BOOST_CHECK(out == nullptr);
    BOOST_CHECK_MESSAGE(logged(part), "not logged: " << part << "; but: "
                                                     << (log.empty() ? "" : log.back().second));
    BOOST_CHECK(memory.live.empty());
    BOOST_CHECK_EQUAL(script().live_roles, 0U);
    // The same for a rank, but for what concerns the scheduler only.
    kvc_rank* rank_out = reinterpret_cast<kvc_rank*>(this);
    if (script().open_error.empty() && open.rank == 0) {
      BOOST_CHECK_EQUAL(api.open_rank(&host, &open, &rank_out), want);
      BOOST_CHECK(rank_out == nullptr);
    }
  }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_valid_open_works_twice_at_once, Opening) {
  kvc_sched* a = nullptr;
  kvc_sched* b = nullptr;
  BOOST_REQUIRE_EQUAL(try_open(a), KVC_OK);
  BOOST_REQUIRE_EQUAL(try_open(b), KVC_OK);
  BOOST_CHECK(a != b);
  BOOST_CHECK_EQUAL(script().live_roles, 2U);
  BOOST_CHECK_EQUAL(script().limits.device_blocks, 32U);
  BOOST_CHECK_EQUAL(script().limits.max_running, 4U);
  BOOST_CHECK(script().limits.stepped);
  api.close_scheduler(a);
  api.close_scheduler(b);
}

BOOST_FIXTURE_TEST_CASE(numbers_out_of_range_are_named, Opening) {
  const kvc_open good = open;
  struct Case {
    std::uint64_t kvc_open::*field;
    std::string_view name;
  };
  const Case counts[] = {
      {&kvc_open::hash_unit_tokens, "hash_unit_tokens is"},
      {&kvc_open::scheduler_block_tokens, "scheduler_block_tokens is"},
      {&kvc_open::cp_interleave_tokens, "cp_interleave_tokens is"},
      {&kvc_open::device_blocks, "device_blocks is"},
      {&kvc_open::max_prompt_tokens, "max_prompt_tokens is"},
      {&kvc_open::max_total_tokens, "max_total_tokens is"},
      {&kvc_open::max_batch_tokens, "max_batch_tokens is"},
      {&kvc_open::max_live_requests, "max_live_requests is"},
      {&kvc_open::max_running, "max_running is"},
      {&kvc_open::max_steps_in_flight, "max_steps_in_flight is"},
  };
  for (const Case& c : counts) {
    for (const std::uint64_t v : {std::uint64_t{0}, std::uint64_t{1} << 63U}) {
      open = good;
      open.*c.field = v;
      refused(KVC_E_ARG, c.name);
    }
  }
  open = good;
  open.max_request_bytes = 0;
  refused(KVC_E_ARG, "max_request_bytes is 0");
  for (const std::uint32_t v : {0U, 7U, 33U, 1U << 31U}) {
    open = good;
    open.key_bytes = v;
    refused(KVC_E_ARG, "key_bytes is");
  }
  for (const std::uint32_t v : {0U, 1U << 31U}) {
    open = good;
    open.ranks = v;
    refused(KVC_E_ARG, "ranks is");
    open = good;
    open.context_parallel = v;
    refused(KVC_E_ARG, "context_parallel is");
  }
  open = good;
  open.ranks = 3;
  open.context_parallel = 2;
  refused(KVC_E_ARG, "no multiple of context_parallel 2");
  open = good;
  open.rank = 1;
  refused(KVC_E_ARG, "kvc_open.rank is 1");
  open = good;
  open.retention_tokens = -2;
  refused(KVC_E_ARG, "retention_tokens is -2");
  open = good;
  open.max_prompt_tokens = 4096;
  refused(KVC_E_ARG, "above max_total_tokens 2048");
}

BOOST_FIXTURE_TEST_CASE(a_rank_beyond_the_ranks_is_named, Opening) {
  open.rank = 1;
  kvc_rank* out = nullptr;
  BOOST_CHECK_EQUAL(api.open_rank(&host, &open, &out), KVC_E_ARG);
  BOOST_CHECK(logged("kvc_open.rank is 1, ranks are 1"));
}

BOOST_FIXTURE_TEST_CASE(flags_and_capabilities_are_named_by_bit, Opening) {
  const kvc_open good = open;
  const kvc_group group = groups[0];
  open.flags = UINT64_C(1) << 17U;
  refused(KVC_E_UNSUPPORTED, "bit 17");
  open = good;
  groups[0].caps_known &= ~KVC_GROUP_CAP_SHARDED;
  refused(KVC_E_UNSUPPORTED, "caps_known lacks bit 4 (SHARDED)");
  groups[0] = group;
  groups[0].caps |= UINT64_C(1) << 40U;
  refused(KVC_E_UNSUPPORTED, "bit 40");
  groups[0].caps_known |= UINT64_C(1) << 40U;
  refused(KVC_E_UNSUPPORTED, "bit 40");
  groups[0] = group;
  groups[0].caps_known |= UINT64_C(1) << 40U;  // a newer host that decided against it
  kvc_sched* out = nullptr;
  BOOST_CHECK_EQUAL(try_open(out), KVC_OK);
  api.close_scheduler(out);
  groups[0] = group;
  groups[0].kind = KVC_GROUP_STATE;
  refused(KVC_E_ARG, "requires capability STATE");
  groups[0] = group;
  groups[0].caps |= KVC_GROUP_CAP_STATE;
  refused(KVC_E_ARG, "must not have capability STATE");
  groups[0] = group;
  groups[0].kind = 99;
  refused(KVC_E_UNSUPPORTED, "kind 99");
}

BOOST_FIXTURE_TEST_CASE(lists_and_bytes_of_open_are_checked, Opening) {
  const kvc_open good = open;
  open.groups.count = 0;
  refused(KVC_E_ARG, "groups is empty");
  for (const std::uint64_t n :
       {std::uint64_t{65}, std::uint64_t{1} << 31U, std::uint64_t{1} << 63U}) {
    open = good;
    open.groups.count = n;
    refused(KVC_E_ARG, "at most 64");
    open = good;
    open.namespace_id = {keys.data(), std::max(n, namespace_bytes_max + 1)};
    refused(KVC_E_ARG, "namespace_id");
  }
  open = good;
  open.groups.data = nullptr;
  refused(KVC_E_ARG, "groups is NULL");
  open = good;
  open.groups.stride = 40;
  refused(KVC_E_ARG, "stride is 40");
  open = good;
  open.groups.reserved0 = 1;
  refused(KVC_E_UNSUPPORTED, "groups.reserved0");
  open = good;
  open.namespace_id = {nullptr, 3};
  refused(KVC_E_ARG, "namespace_id is NULL");
  open = good;
  open.struct_size = sizeof open - 1;
  refused(KVC_E_ARG, "kvc_open.struct_size is 191");
  open.struct_size = 0;
  refused(KVC_E_ARG, "kvc_open.struct_size is 0");
}

BOOST_FIXTURE_TEST_CASE(geometry_and_options_refuse_with_their_own_text, Opening) {
  groups[0].tokens_per_block = 24;
  refused(KVC_E_ARG, "24");
  groups[0].tokens_per_block = UINT64_C(1) << 62U;
  refused(KVC_E_ARG, "tokens_per_block is");
  groups[0].tokens_per_block = 16;
  script().open_error = "host.blocks is 1";
  refused(KVC_E_ARG, "open_scheduler: host.blocks is 1");
}

BOOST_FIXTURE_TEST_CASE(the_host_table_is_checked, Opening) {
  const kvc_host_api good = host;
  host.release = nullptr;
  refused(KVC_E_ARG, "alloc and release");
  host = good;
  host.now_ns = nullptr;
  refused(KVC_E_ARG, "now_ns is NULL");
  host = good;
  host.caps |= KVC_HOST_BLOCK_QUERY;
  refused(KVC_E_ARG, "KVC_HOST_BLOCK_QUERY");
  host = good;
  host.struct_size = sizeof host - 8;
  refused(KVC_E_ARG, "host.struct_size is 72");
  // Too short to have a log: nobody is told, the code says it.
  for (std::uint32_t n = 0; n < offsetof(kvc_host_api, now_ns); ++n) {
    host.struct_size = n;
    log.clear();
    kvc_sched* out = nullptr;
    BOOST_CHECK_EQUAL(try_open(out), KVC_E_ARG);
    BOOST_CHECK(log.empty());
  }
  host = good;
  kvc_sched* out = nullptr;
  BOOST_CHECK_EQUAL(api.open_scheduler(nullptr, &open, &out), KVC_E_ARG);
  BOOST_CHECK_EQUAL(api.open_scheduler(&host, nullptr, &out), KVC_E_ARG);
  BOOST_CHECK_EQUAL(api.open_scheduler(&host, &open, nullptr), KVC_E_ARG);
  host.caps |= UINT64_C(1) << 50U;  // unknown abilities of a host are ignored
  BOOST_CHECK_EQUAL(try_open(out), KVC_OK);
  api.close_scheduler(out);
}

BOOST_FIXTURE_TEST_CASE(a_newer_host_table_is_taken_for_what_is_known, Opening) {
  struct Newer {
    kvc_host_api known;
    void* more[4];
  } newer{host, {this, this, this, this}};
  newer.known.struct_size = sizeof newer;
  kvc_sched* out = nullptr;
  BOOST_CHECK_EQUAL(api.open_scheduler(&newer.known, &open, &out), KVC_OK);
  api.close_scheduler(out);
}

BOOST_FIXTURE_TEST_CASE(every_failed_allocation_of_open_is_full_and_leaves_nothing, Opening) {
  std::uint64_t failed = 0;
  for (std::uint64_t n = 0;; ++n) {
    memory.calls = 0;
    memory.fail_at = n;
    kvc_sched* out = nullptr;
    const kvc_status got = try_open(out);
    if (got == KVC_OK) {
      api.close_scheduler(out);
      break;
    }
    ++failed;
    BOOST_CHECK_EQUAL(got, KVC_E_FULL);
    BOOST_CHECK(out == nullptr);
    BOOST_CHECK(memory.live.empty());
    BOOST_CHECK(logged("out of memory"));
  }
  BOOST_CHECK_GT(failed, 5U);
}

BOOST_FIXTURE_TEST_CASE(open_and_close_two_hundred_times_leave_nothing, Opening) {
  for (int i = 0; i < 200; ++i) {
    kvc_sched* out = nullptr;
    kvc_rank* rank_out = nullptr;
    BOOST_REQUIRE_EQUAL(try_open(out), KVC_OK);
    BOOST_REQUIRE_EQUAL(api.open_rank(&host, &open, &rank_out), KVC_OK);
    api.close_rank(rank_out);
    api.close_scheduler(out);
  }
  BOOST_CHECK(memory.live.empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::edge::testing
