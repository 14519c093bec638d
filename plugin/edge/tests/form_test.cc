// The form of every struct and list at the edge: prefixes, tails, reserved fields, flags, counts,
// strides, pointers.
#include <boost/test/unit_test.hpp>
#include <cstring>
#include <functional>

#include "plugin/edge/tests/form_fixture.h"

namespace kvc::edge::testing {

BOOST_AUTO_TEST_SUITE(edge_form)

BOOST_AUTO_TEST_CASE(the_table_is_filled_up_to_every_room_and_not_behind_it) {
  for (std::uint32_t room = 0; room <= sizeof(kvc_plugin_api) + 64; ++room) {
    std::vector<unsigned char> bytes(sizeof(kvc_plugin_api) + 128, 0xAB);
    std::memcpy(bytes.data(), &room, sizeof room);
    auto* table = reinterpret_cast<kvc_plugin_api*>(bytes.data());
    const kvc_status s = kvc_plugin_entry_v1(0, table);
    if (room < 16) {
      BOOST_CHECK_EQUAL(s, KVC_E_ARG);
      continue;
    }
    BOOST_CHECK_EQUAL(s, KVC_OK);
    std::uint32_t filled = 0;
    std::memcpy(&filled, bytes.data(), sizeof filled);
    BOOST_CHECK_EQUAL(filled, std::min<std::uint32_t>(room, sizeof(kvc_plugin_api)));
    for (std::size_t i = filled; i < bytes.size(); ++i) BOOST_REQUIRE_EQUAL(bytes[i], 0xAB);
  }
  BOOST_CHECK_EQUAL(kvc_plugin_entry_v1(0, nullptr), KVC_E_ARG);
}

BOOST_AUTO_TEST_CASE(no_slot_of_the_table_is_null_and_a_newer_host_is_served) {
  kvc_plugin_api api{};
  api.struct_size = sizeof api;
  BOOST_REQUIRE_EQUAL(kvc_plugin_entry_v1(77, &api), KVC_OK);
  for (std::size_t at = offsetof(kvc_plugin_api, describe); at < sizeof api; at += 8) {
    void* slot = nullptr;
    std::memcpy(&slot, reinterpret_cast<const char*>(&api) + at, sizeof slot);
    BOOST_CHECK(slot != nullptr);
  }
}

BOOST_AUTO_TEST_CASE(describe_fills_every_room) {
  Form f;
  for (std::uint32_t room = 0; room <= sizeof(kvc_description) + 8; ++room) {
    std::vector<unsigned char> bytes(sizeof(kvc_description) + 32, 0xCD);
    std::memcpy(bytes.data(), &room, sizeof room);
    const kvc_status s = f.api.describe(reinterpret_cast<kvc_description*>(bytes.data()));
    BOOST_CHECK_EQUAL(s, room < 4 ? KVC_E_ARG : KVC_OK);
    for (std::size_t i = std::max<std::size_t>(room, 4); i < bytes.size(); ++i) {
      BOOST_REQUIRE_EQUAL(bytes[i], 0xCD);
    }
  }
  kvc_description d{};
  d.struct_size = sizeof d;
  BOOST_REQUIRE_EQUAL(f.api.describe(&d), KVC_OK);
  BOOST_CHECK_EQUAL(std::string(reinterpret_cast<const char*>(d.name.data), d.name.size),
                    "scripted");
  BOOST_CHECK_GT(d.version.size, 0U);
  BOOST_CHECK_GT(d.build_id.size, 0U);
  BOOST_CHECK_EQUAL(f.api.describe(nullptr), KVC_E_ARG);
}

// Calls `call` with every prefix of `good`, with tails of zeros and with a tail that is not zero.
// Bytes behind struct_size are garbage that must not be read as values.
template <class T>
void every_size(const T& good, std::size_t least, const std::function<kvc_status(const T*)>& call,
                const std::function<bool()>& reached) {
  for (std::uint32_t n = 0; n <= sizeof(T) + 24; ++n) {
    std::vector<unsigned char> bytes(sizeof(T) + 64, 0);
    std::memcpy(bytes.data(), &good, sizeof(T));
    for (std::size_t i = n; i < bytes.size(); ++i) bytes[i] = 0xFF;
    if (n > sizeof(T)) std::memset(bytes.data() + sizeof(T), 0, n - sizeof(T));
    std::memcpy(bytes.data(), &n, sizeof n);
    const bool enough = n >= least;
    BOOST_TEST_CONTEXT("struct_size " << n) {
      BOOST_CHECK_EQUAL(call(reinterpret_cast<const T*>(bytes.data())),
                        enough ? KVC_OK : KVC_E_ARG);
      BOOST_CHECK_EQUAL(reached(), enough);
      if (n > sizeof(T)) {
        bytes[n - 1] = 1;
        BOOST_CHECK_EQUAL(call(reinterpret_cast<const T*>(bytes.data())), KVC_E_UNSUPPORTED);
        BOOST_CHECK(!reached());
      }
    }
  }
  for (const std::uint32_t n : {std::uint32_t{KVC_STRUCT_BYTES_MAX} + 1, 1U << 31U, UINT32_MAX}) {
    T huge = good;
    huge.struct_size = n;
    BOOST_CHECK_EQUAL(call(&huge), KVC_E_ARG);
  }
  BOOST_CHECK_EQUAL(call(nullptr), KVC_E_ARG);
}

// As every_size for out-structs of calls that change something: less room than 1.0 is refused
// before the role is called, more is left alone.
template <class T>
void every_room(std::size_t least, const std::function<kvc_status(T*)>& call,
                const std::function<bool()>& reached) {
  for (std::uint32_t n = 0; n <= sizeof(T) + 24; ++n) {
    std::vector<unsigned char> bytes(sizeof(T) + 64, 0xEE);
    std::memcpy(bytes.data(), &n, sizeof n);
    const bool enough = n >= least;
    BOOST_TEST_CONTEXT("room " << n) {
      BOOST_CHECK_EQUAL(call(reinterpret_cast<T*>(bytes.data())), enough ? KVC_OK : KVC_E_ARG);
      BOOST_CHECK_EQUAL(reached(), enough);
      for (std::size_t i = enough ? sizeof(T) : 4; i < bytes.size(); ++i) {
        BOOST_REQUIRE_EQUAL(bytes[i], 0xEE);
      }
    }
  }
  BOOST_CHECK_EQUAL(call(nullptr), KVC_E_ARG);
}

bool take_calls() {
  const bool any = !script().calls.empty();
  script().calls.clear();
  return any;
}

BOOST_AUTO_TEST_CASE(every_in_struct_is_read_by_its_size) {
  Form f;
  kvc_sched* s = f.sched();
  kvc_lookup_out found{};
  found.struct_size = sizeof found;
  kvc_alloc_out allocated{};
  allocated.struct_size = sizeof allocated;
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  kvc_end_out ended{};
  ended.struct_size = sizeof ended;
  every_size<kvc_request>(
      f.request, kvc_request_least, [&](const kvc_request* p) { return f.api.request_begin(s, p); },
      take_calls);
  every_size<kvc_extend>(
      f.extend, kvc_extend_least, [&](const kvc_extend* p) { return f.api.request_extend(s, p); },
      take_calls);
  every_size<kvc_lookup_in>(
      f.lookup, kvc_lookup_in_least,
      [&](const kvc_lookup_in* p) { return f.api.lookup(s, p, &found); }, take_calls);
  every_size<kvc_alloc_in>(
      f.alloc, kvc_alloc_in_least,
      [&](const kvc_alloc_in* p) { return f.api.alloc_update(s, p, &allocated); }, take_calls);
  every_size<kvc_step>(
      f.step, kvc_step_least,
      [&](const kvc_step* p) { return f.api.build_store_jobs(s, p, &plan); }, take_calls);
  every_size<kvc_end_in>(
      f.end, kvc_end_in_least, [&](const kvc_end_in* p) { return f.api.request_end(s, p, &ended); },
      take_calls);
}

BOOST_AUTO_TEST_CASE(every_element_of_a_list_is_read_by_its_size) {
  Form f;
  kvc_sched* s = f.sched();
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  kvc_list usable{};
  const auto build = [&] { return f.api.build_store_jobs(s, &f.step, &plan); };
  // One element in a stride that leaves room for a newer one.
  const auto one = [](auto& list, const auto* p) { list = kvc_list_of(p, 1, sizeof *p + 64); };
  every_size<kvc_step_request>(
      f.scheduled[0], kvc_step_request_least,
      [&](const kvc_step_request* p) {
        one(f.step.scheduled, p);
        return p == nullptr ? KVC_E_ARG : build();
      },
      take_calls);
  f.step.scheduled = kvc_list_of(f.scheduled.data(), 1, sizeof(kvc_step_request));
  every_size<kvc_handoff>(
      f.handoffs[0], kvc_handoff_least,
      [&](const kvc_handoff* p) {
        one(f.step.handoffs, p);
        return build();
      },
      take_calls);
  f.step.handoffs = {};
  every_size<kvc_candidate>(
      f.candidates[0], kvc_candidate_least,
      [&](const kvc_candidate* p) {
        one(f.step.candidates, p);
        return build();
      },
      take_calls);
  f.step.candidates = {};
  every_size<kvc_table>(
      f.tables[0], kvc_table_least,
      [&](const kvc_table* p) {
        one(f.scheduled[0].tables, p);
        return build();
      },
      take_calls);
  every_size<kvc_rank_info>(
      f.ranks[0], kvc_rank_info_least,
      [&](const kvc_rank_info* p) {
        kvc_list list{};
        one(list, p);
        return f.api.set_ranks(s, &list, &usable);
      },
      take_calls);
  every_size<kvc_class>(
      f.classes[0], kvc_class_least,
      [&](const kvc_class* p) {
        one(f.ranks[0].classes, p);
        const kvc_list list = kvc_list_of(f.ranks.data(), 1, sizeof(kvc_rank_info));
        return f.api.set_ranks(s, &list, &usable);
      },
      take_calls);
}

BOOST_AUTO_TEST_CASE(every_out_struct_of_a_changing_call_needs_all_its_room) {
  Form f;
  kvc_sched* s = f.sched();
  every_room<kvc_lookup_out>(
      kvc_lookup_out_least, [&](kvc_lookup_out* p) { return f.api.lookup(s, &f.lookup, p); },
      take_calls);
  every_room<kvc_alloc_out>(
      kvc_alloc_out_least, [&](kvc_alloc_out* p) { return f.api.alloc_update(s, &f.alloc, p); },
      take_calls);
  every_room<kvc_plan>(
      kvc_plan_least, [&](kvc_plan* p) { return f.api.build_store_jobs(s, &f.step, p); },
      take_calls);
  every_room<kvc_complete_out>(
      kvc_complete_out_least, [&](kvc_complete_out* p) { return f.api.complete(s, nullptr, 0, p); },
      take_calls);
  every_room<kvc_end_out>(
      kvc_end_out_least, [&](kvc_end_out* p) { return f.api.request_end(s, &f.end, p); },
      take_calls);
}

BOOST_AUTO_TEST_CASE(queries_fill_every_room) {
  Form f;
  kvc_sched* s = f.sched();
  script().counts.all_offers.published = 9;
  script().counts.all_offers.dropped_plan_full = 9;
  script().pending = {1, 2, 3, 4};
  for (std::uint32_t n = 0; n <= sizeof(kvc_boundary_stats) + 8; ++n) {
    std::vector<unsigned char> bytes(sizeof(kvc_boundary_stats) + 64, 0xEE);
    std::memcpy(bytes.data(), &n, sizeof n);
    auto* stats = reinterpret_cast<kvc_boundary_stats*>(bytes.data());
    BOOST_CHECK_EQUAL(f.api.boundary_stats(s, stats), n < 4 ? KVC_E_ARG : KVC_OK);
    const std::size_t filled = std::clamp<std::size_t>(n, 4, sizeof(kvc_boundary_stats));
    for (std::size_t i = filled; i < bytes.size(); ++i) BOOST_REQUIRE_EQUAL(bytes[i], 0xEE);
    if (n >= sizeof(kvc_boundary_stats)) {
      BOOST_CHECK_EQUAL(stats->all_offers.published, 9U);
      BOOST_CHECK_EQUAL(stats->all_offers.dropped_plan_full, 9U);
    }
  }
  kvc_pending p{};
  p.struct_size = sizeof p;
  BOOST_CHECK_EQUAL(f.api.has_pending(s, &p), KVC_OK);
  BOOST_CHECK_EQUAL(p.load_jobs, 1U);
  BOOST_CHECK_EQUAL(p.store_jobs, 2U);
  BOOST_CHECK_EQUAL(p.held_blocks, 3U);
  BOOST_CHECK_EQUAL(p.quarantined_blocks, 4U);
  BOOST_CHECK_EQUAL(f.api.has_pending(s, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.boundary_stats(s, nullptr), KVC_E_ARG);
}

BOOST_AUTO_TEST_CASE(reserved_fields_and_unknown_flags_are_refused_by_name) {
  Form f;
  kvc_sched* s = f.sched();
  kvc_lookup_out found{};
  found.struct_size = sizeof found;
  kvc_alloc_out allocated{};
  allocated.struct_size = sizeof allocated;
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  const auto refused = [&](kvc_status got, std::string_view part) {
    BOOST_CHECK_EQUAL(got, KVC_E_UNSUPPORTED);
    BOOST_CHECK_MESSAGE(f.last_error().find(part) != std::string::npos, f.last_error());
    BOOST_CHECK(!take_calls());
  };
  f.request.flags |= 1U << 5U;
  refused(f.api.request_begin(s, &f.request), "bit 5");
  f.extend.reserved0 = 3;
  refused(f.api.request_extend(s, &f.extend), "kvc_extend.reserved0 is 3");
  f.lookup.flags = 1U << 31U;
  refused(f.api.lookup(s, &f.lookup, &found), "bit 31");
  f.alloc.flags = 1;
  refused(f.api.alloc_update(s, &f.alloc, &allocated), "bit 0");
  f.alloc.flags = 0;
  f.alloc.tables.reserved0 = 1;
  refused(f.api.alloc_update(s, &f.alloc, &allocated), "tables.reserved0");
  f.step.reserved0 = 1;
  refused(f.api.build_store_jobs(s, &f.step, &plan), "kvc_step.reserved0");
  f.step.reserved0 = 0;
  f.scheduled[0].flags = 1U << 9U;
  refused(f.api.build_store_jobs(s, &f.step, &plan), "bit 9");
  refused(f.api.reset(s, UINT64_C(1) << 40U), "bit 40");
  kvc_end_out ended{};
  ended.struct_size = sizeof ended;
  f.end.reason = 17;
  refused(f.api.request_end(s, &f.end, &ended), "reason 17");
}

BOOST_AUTO_TEST_CASE(hostile_counts_strides_and_pointers_are_refused_before_anything_is_read) {
  Form f;
  kvc_sched* s = f.sched();
  kvc_alloc_out allocated{};
  allocated.struct_size = sizeof allocated;
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  kvc_complete_out done{};
  done.struct_size = sizeof done;
  const std::uint64_t calls = f.memory.calls;
  const auto refused = [&](kvc_status got) {
    BOOST_CHECK_EQUAL(got, KVC_E_ARG);
    BOOST_CHECK(!f.last_error().empty());
    BOOST_CHECK(!take_calls());
  };
  for (const std::uint64_t n :
       {std::uint64_t{65}, std::uint64_t{1} << 31U, std::uint64_t{1} << 63U, UINT64_MAX}) {
    kvc_alloc_in a = f.alloc;
    a.tables.count = n;
    refused(f.api.alloc_update(s, &a, &allocated));
    kvc_step st = f.step;
    st.scheduled.count = n;
    refused(f.api.build_store_jobs(s, &st, &plan));
    st = f.step;
    st.n_preempted = n;
    refused(f.api.build_store_jobs(s, &st, &plan));
    st = f.step;
    st.handoffs.count = n * 1024;
    if (st.handoffs.count > 1024) refused(f.api.build_store_jobs(s, &st, &plan));
    st = f.step;
    st.candidates.count = n;
    refused(f.api.build_store_jobs(s, &st, &plan));
    kvc_request r = f.request;
    r.n_keys = n * 64;
    if (r.n_keys > 64) refused(f.api.request_begin(s, &r));
    kvc_table t = f.tables[0];
    t.count = n * 16;
    if (t.count == 0) continue;
    a = f.alloc;
    a.tables = kvc_list_of(&t, 1, sizeof t);
    refused(f.api.alloc_update(s, &a, &allocated));
    const kvc_bytes report{f.keys.data(), 4};
    if (n > 65) refused(f.api.complete(s, &report, n, &done));
    const kvc_list ranks = kvc_list_of(f.ranks.data(), n, sizeof(kvc_rank_info));
    kvc_list usable{};
    refused(f.api.set_ranks(s, &ranks, &usable));
  }
  BOOST_CHECK_EQUAL(f.memory.calls, calls);
}

BOOST_AUTO_TEST_CASE(null_and_crooked_pointers_are_refused) {
  Form f;
  kvc_sched* s = f.sched();
  kvc_alloc_out allocated{};
  allocated.struct_size = sizeof allocated;
  kvc_plan plan{};
  plan.struct_size = sizeof plan;
  kvc_complete_out done{};
  done.struct_size = sizeof done;
  kvc_list usable{};
  const auto refused = [&](kvc_status got, std::string_view part) {
    BOOST_CHECK_EQUAL(got, KVC_E_ARG);
    BOOST_CHECK_MESSAGE(f.last_error().find(part) != std::string::npos,
                        part << " is not in: " << f.last_error());
    BOOST_CHECK(!take_calls());
  };
  kvc_request r = f.request;
  r.keys = nullptr;
  refused(f.api.request_begin(s, &r), "keys is NULL");
  kvc_table t = f.tables[0];
  kvc_alloc_in a = f.alloc;
  a.tables = kvc_list_of(&t, 1, sizeof t);
  t.blocks = nullptr;
  refused(f.api.alloc_update(s, &a, &allocated), "tables[0].blocks is NULL");
  t.blocks =
      reinterpret_cast<const std::int64_t*>(reinterpret_cast<std::uintptr_t>(f.keys.data()) | 1U);
  refused(f.api.alloc_update(s, &a, &allocated), "not aligned to 8");
  t = f.tables[0];
  t.group = 1;
  refused(f.api.alloc_update(s, &a, &allocated), "group order");
  t = f.tables[0];
  t.first_changed = 3;
  refused(f.api.alloc_update(s, &a, &allocated), "first_changed is 3, count is 2");
  a = f.alloc;
  a.tables.data = nullptr;
  refused(f.api.alloc_update(s, &a, &allocated), "tables is NULL");
  a = f.alloc;
  a.tables.stride = 8;
  refused(f.api.alloc_update(s, &a, &allocated), "stride is 8");
  kvc_step st = f.step;
  st.preempted = nullptr;
  refused(f.api.build_store_jobs(s, &st, &plan), "preempted is NULL");
  st = f.step;
  f.candidates[0].key = nullptr;
  refused(f.api.build_store_jobs(s, &st, &plan), "candidates[0].key is NULL");
  const kvc_bytes report{nullptr, 4};
  refused(f.api.complete(s, &report, 1, &done), "reports[0].data is NULL");
  refused(f.api.complete(s, nullptr, 1, &done), "reports is NULL");
  refused(f.api.set_ranks(s, nullptr, &usable), "ranks is NULL");
  const kvc_list ranks = kvc_list_of(f.ranks.data(), 1, sizeof(kvc_rank_info));
  refused(f.api.set_ranks(s, &ranks, nullptr), "usable is NULL");
  std::uint64_t count = 0;
  refused(f.api.take_events(s, nullptr, sizeof(kvc_event), 2, &count), "out is NULL");
  kvc_event event{};
  refused(f.api.take_events(s, &event, 16, 1, &count), "stride is 16");
  refused(f.api.take_events(s, &event, sizeof event, 1, nullptr), "count is NULL");
}

BOOST_AUTO_TEST_CASE(null_handles_are_refused_everywhere) {
  Form f;
  kvc_list list{};
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  kvc_progress progress{};
  progress.struct_size = sizeof progress;
  std::uint64_t n = 0;
  char text[8];
  BOOST_CHECK_EQUAL(f.api.set_ranks(nullptr, &list, &list), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.request_begin(nullptr, &f.request), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.request_extend(nullptr, &f.extend), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.lookup(nullptr, &f.lookup, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.lookup_cancel(nullptr, 1), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.alloc_update(nullptr, &f.alloc, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.build_store_jobs(nullptr, &f.step, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.complete(nullptr, nullptr, 0, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.request_end(nullptr, &f.end, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.boundary_stats(nullptr, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.stats(nullptr, nullptr, sizeof(kvc_stat), 0, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.has_pending(nullptr, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.explain(nullptr, 0, text, sizeof text, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.take_events(nullptr, nullptr, sizeof(kvc_event), 0, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.take_log_scheduler(nullptr, text, sizeof text, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.take_log_rank(nullptr, text, sizeof text, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.last_error_scheduler(nullptr, text, sizeof text, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.last_error_rank(nullptr, text, sizeof text, &n), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.reset(nullptr, 0), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.pump_scheduler(nullptr, 1), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.pump_rank(nullptr, 1), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.register_regions(nullptr, &list, &info), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.submit_loads(nullptr, {nullptr, 0}, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.submit_stores(nullptr, {nullptr, 0}, nullptr), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.progress(nullptr, &progress), KVC_E_ARG);
  BOOST_CHECK_EQUAL(f.api.wait(nullptr, nullptr, 0, 0), KVC_E_ARG);
  f.api.close_scheduler(nullptr);
  f.api.close_rank(nullptr);
  BOOST_CHECK(f.api.extension({nullptr, 12}) == nullptr);
  BOOST_CHECK(f.api.extension(kvc_text_of("kvc.unknown/1")) == nullptr);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::edge::testing
