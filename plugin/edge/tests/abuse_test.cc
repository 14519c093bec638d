// Calls at every wrong moment, with wrong ids, numbers and order: a status each time, and
// everything goes on.
#include <kvc/kvc_util.h>

#include <boost/test/unit_test.hpp>
#include <thread>

#include "plugin/edge/tests/abi_host.h"

namespace kvc::abi_test {

BOOST_AUTO_TEST_SUITE(abuse)

namespace {

Tokens req(std::uint64_t seed, std::uint64_t k) { return tokens_of(seed, 16 * k + 1); }

// Raw calls with any numbers.
struct Raw {
  explicit Raw(World& world) : w(world) {}
  kvc_status begin(std::uint64_t id, std::uint64_t prompt, std::uint64_t n_keys) {
    std::vector<std::uint8_t> keys(std::min<std::uint64_t>(n_keys, 4096) * 16 + 16, 3);
    const kvc_request r{sizeof r, 0, id, prompt, keys.data(), n_keys, KVC_NO_LIMIT, KVC_NO_LIMIT};
    return w.api().request_begin(w.sched(), &r);
  }
  kvc_status extend(std::uint64_t id, std::uint64_t first, std::uint64_t n) {
    std::vector<std::uint8_t> keys(std::min<std::uint64_t>(n, 4096) * 16 + 16, 4);
    const kvc_extend x{sizeof x, 0, id, first, keys.data(), n};
    return w.api().request_extend(w.sched(), &x);
  }
  kvc_status lookup(std::uint64_t id, std::uint64_t total, std::uint64_t device,
                    std::uint64_t cap = KVC_NO_LIMIT) {
    const kvc_lookup_in in{sizeof in, 0, id, total, device, cap};
    found = {};
    found.struct_size = sizeof found;
    return w.api().lookup(w.sched(), &in, &found);
  }
  kvc_status alloc(std::uint64_t id, std::uint64_t accepted) {
    const kvc_alloc_in in{sizeof in, 0, id, accepted, {}};
    kvc_alloc_out out{};
    out.struct_size = sizeof out;
    return w.api().alloc_update(w.sched(), &in, &out);
  }
  kvc_status end(std::uint64_t id, std::uint64_t confirmed) {
    const kvc_end_in in{sizeof in, KVC_END_STOP, id, confirmed, {}, {}};
    kvc_end_out out{};
    out.struct_size = sizeof out;
    return w.api().request_end(w.sched(), &in, &out);
  }
  World& w;
  kvc_lookup_out found{};
};

constexpr std::uint64_t odd_numbers[] = {0,
                                         1,
                                         15,
                                         17,
                                         1U << 16U,
                                         1U << 31U,
                                         UINT32_MAX,
                                         std::uint64_t{1} << 40U,
                                         std::uint64_t{1} << 63U,
                                         UINT64_MAX - 1,
                                         UINT64_MAX};

}  // namespace

BOOST_AUTO_TEST_CASE(unknown_ended_and_repeated_ids_are_refused) {
  World w(Setup{});
  Raw raw(w);
  BOOST_CHECK_EQUAL(raw.begin(0, 33, 2), KVC_E_ARG);
  for (const std::uint64_t id : {std::uint64_t{5}, UINT64_MAX}) {
    BOOST_CHECK_EQUAL(raw.extend(id, 0, 1), KVC_E_ARG);
    BOOST_CHECK_EQUAL(raw.lookup(id, 33, 0), KVC_E_ARG);
    BOOST_CHECK_EQUAL(raw.alloc(id, 0), KVC_E_ARG);
    BOOST_CHECK_EQUAL(raw.end(id, 0), KVC_E_ARG);
    BOOST_CHECK_EQUAL(w.lookup_cancel(id), KVC_E_ARG);
  }
  BOOST_CHECK_EQUAL(raw.begin(5, 33, 2), KVC_OK);
  BOOST_CHECK_EQUAL(raw.begin(5, 33, 2), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.end(5, 0), KVC_OK);
  BOOST_CHECK_EQUAL(raw.end(5, 0), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.begin(5, 33, 2), KVC_E_ARG);  // never reused
  BOOST_CHECK_EQUAL(raw.lookup(5, 33, 0), KVC_E_ARG);
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(odd_numbers_get_a_status_everywhere) {
  World w(Setup{});
  w.store(1, req(1, 4), 64);
  Raw raw(w);
  BOOST_REQUIRE_EQUAL(raw.begin(2, 65, 4), KVC_OK);
  std::uint64_t id = 10;
  for (const std::uint64_t n : odd_numbers) {
    BOOST_TEST_CONTEXT("number " << n) {
      raw.begin(++id, n, 0);
      raw.begin(++id, 64, n);
      raw.extend(2, n, 1);
      raw.extend(2, 4, n == 1 ? 0 : n);
      raw.lookup(2, n, 0);
      raw.lookup(2, 65, n);
      raw.lookup(2, 65, 0, n);
      raw.lookup(2, n, n, n);
      raw.alloc(2, n == 0 ? 1 : n);
      w.lookup_cancel(n);
      w.reset(n << 1U);
      w.api().pump_scheduler(w.sched(), static_cast<std::uint32_t>(n));
      w.api().pump_rank(w.rank(0), static_cast<std::uint32_t>(n));
      const kvc_job job = n;
      w.api().wait(w.rank(0), &job, 1, 0);
      w.api().wait(w.rank(0), nullptr, 0, n);
      w.api().wait(w.rank(0), nullptr, n == 0 ? 1 : n, 0);
      std::uint64_t needed = 0;
      w.api().explain(w.sched(), n, nullptr, 0, &needed);
      Planned p;
      if (n != w.next_step) BOOST_CHECK_LT(w.try_plan(p, n), 0);
      BOOST_CHECK_EQUAL(w.verify(), "");
    }
  }
  BOOST_CHECK(!w.last_error().empty());
  w.step();
  w.store(1000, req(7, 2), 32);
  BOOST_CHECK_EQUAL(w.hit(req(7, 2)), 32U);
}

BOOST_AUTO_TEST_CASE(impossible_counts_of_a_request_are_refused_with_numbers) {
  Setup s;
  s.max_prompt = 64;
  s.max_total = 128;
  World w(s);
  Raw raw(w);
  BOOST_CHECK_EQUAL(raw.begin(1, 65, 0), KVC_E_ARG);
  BOOST_CHECK(w.last_error().find("65") != std::string::npos);
  BOOST_CHECK_EQUAL(raw.begin(1, 33, 3), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.begin(1, 33, 2), KVC_OK);
  BOOST_CHECK_EQUAL(raw.extend(1, 1, 1), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.extend(1, 3, 1), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.extend(1, 2, 7), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.extend(1, 2, 6), KVC_OK);
  BOOST_CHECK_EQUAL(raw.extend(1, 8, 1), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.lookup(1, 0, 0), KVC_E_ARG);
  BOOST_CHECK_EQUAL(raw.lookup(1, 33, 48), KVC_E_ARG);
}

BOOST_AUTO_TEST_CASE(steps_count_one_by_one_and_a_wrong_number_changes_nothing) {
  World w(Setup{});
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  Planned p;
  for (const std::uint64_t wrong : {std::uint64_t{0}, std::uint64_t{2}, UINT64_MAX}) {
    BOOST_CHECK_LT(w.try_plan(p, wrong), 0);
    BOOST_CHECK_EQUAL(w.counts().all_offers.published, 0U);
  }
  BOOST_CHECK_EQUAL(w.try_plan(p), KVC_OK);
  BOOST_CHECK_LT(w.try_plan(p, 1), 0);
  BOOST_CHECK_EQUAL(p.stores.size(), 1U);
  w.submit(p);
  w.pump();
  w.complete(w.reports());
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
}

BOOST_AUTO_TEST_CASE(bad_elements_of_a_step_are_skipped_and_the_rest_is_done) {
  Setup s;
  s.groups = {full(16)};
  World w(s);
  for (std::uint64_t id = 1; id <= 4; ++id) {
    w.begin(id, req(id, 2));
    if (id != 4) w.take(id, 0);
  }
  w.compute(1, 32);
  w.compute(2, 32);
  w.request(2).tables[0][0] = 9999;  // foreign
  w.compute(3, 32);
  w.request(3).tables[0].resize(1);  // shorter than confirmed
  w.schedule(3, 32);
  w.schedule(4, 16);          // never admitted
  w.preempted.push_back(77);  // unknown
  w.step();
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  BOOST_CHECK_GE(w.stat("peer_faults"), 3U);
  BOOST_CHECK_GE(w.counts().all_offers.dropped_bad_offer, 1U);
  BOOST_CHECK(w.logged_times("the host broke") > 0 || w.logged(KVC_LOG_PEER_FAULT, ""));
}

// Without a limit of tokens nothing but the engine's word says how many are confirmed.
BOOST_AUTO_TEST_CASE(any_number_of_confirmed_tokens_ends_at_once_without_a_limit_of_tokens) {
  Setup s;
  s.groups = {full(16), state_align(16)};
  s.max_total = s.max_prompt = KVC_NO_LIMIT;
  World w(s);
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.step();
  const std::int64_t far = std::int64_t{1} << 39;
  const kvc_handoff h{sizeof h, 1, 1, far, 32};
  const kvc_table none[] = {{sizeof(kvc_table), 0, nullptr, 0, 0},
                            {sizeof(kvc_table), 1, nullptr, 0, 0}};
  const kvc_table foreign[] = {{sizeof(kvc_table), 0, &far, 1, 0},
                               {sizeof(kvc_table), 1, nullptr, 0, 0}};
  for (const std::uint64_t confirmed : {std::uint64_t{1} << 50, UINT64_MAX - 1, UINT64_MAX}) {
    const std::uint64_t before = w.counts().handoffs.dropped_bad_offer;
    kvc_step_request r{};
    r.struct_size = sizeof r;
    r.request = 1;
    r.confirmed_tokens = confirmed;
    r.tables = kvc_list_of(foreign, 2, sizeof(kvc_table));
    kvc_step step{};
    step.struct_size = sizeof step;
    step.step = w.stat("steps") + 1;
    step.scheduled = kvc_list_of(&r, 1, sizeof r);
    step.handoffs = kvc_list_of(&h, 1, sizeof h);
    kvc_plan plan{};
    plan.struct_size = sizeof plan;
    BOOST_CHECK_EQUAL(w.api().build_store_jobs(w.sched(), &step, &plan), KVC_OK);
    BOOST_CHECK_EQUAL(w.counts().handoffs.dropped_bad_offer, before + 1);
  }
  const kvc_end_in end{
      sizeof end, KVC_END_STOP, 1, UINT64_MAX, kvc_list_of(none, 2, sizeof(kvc_table)), {}};
  kvc_end_out out{};
  out.struct_size = sizeof out;
  BOOST_CHECK_EQUAL(w.api().request_end(w.sched(), &end, &out), KVC_OK);
  BOOST_CHECK_GE(w.counts().all_offers.skipped_not_hashed, std::uint64_t{1} << 50);
  BOOST_CHECK_EQUAL(w.counts().all_offers.pending, 0U);
}

// The same id twice in one record, and preempted and scheduled at once.
BOOST_AUTO_TEST_CASE(an_id_twice_in_a_record_stores_once) {
  World w(Setup{});
  w.begin(1, req(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.scheduled.push_back(w.scheduled[0]);
  w.step();
  BOOST_CHECK_EQUAL(w.counts().all_offers.stored, 2U);
  w.preempted = {1, 1};
  w.schedule(1, 32);
  w.step();
  BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 32U);
  w.end(1);
  w.drain();
  w.check_quiet();
}

BOOST_AUTO_TEST_CASE(a_rank_answers_at_every_wrong_moment) {
  World w(Setup{});
  kvc_open o = w.open_struct();
  kvc_rank* r = nullptr;
  BOOST_REQUIRE_EQUAL(w.api().open_rank(&w.host(), &o, &r), KVC_OK);
  const Planned p = w.plan();
  const kvc_bytes plan = kvc_bytes_of(p.bytes.data(), p.bytes.size());
  kvc_fence none{};
  none.struct_size = sizeof none;
  kvc_progress done{};
  done.struct_size = sizeof done;
  BOOST_CHECK_EQUAL(w.api().submit_loads(r, plan, &none), KVC_E_STATE);
  BOOST_CHECK_EQUAL(w.api().submit_stores(r, plan, &none), KVC_E_STATE);
  BOOST_CHECK_EQUAL(w.api().progress(r, &done), KVC_OK);
  BOOST_CHECK_EQUAL(done.report.size, 0U);
  BOOST_CHECK_EQUAL(w.api().wait(r, nullptr, 0, 0), KVC_OK);
  BOOST_CHECK_EQUAL(w.api().pump_rank(r, 5), KVC_OK);
  const auto& regions = w.memory(0).regions();
  const kvc_list list = kvc_list_of(regions.data(), regions.size(), sizeof(kvc_region));
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  BOOST_CHECK_EQUAL(w.api().register_regions(r, &list, &info), KVC_OK);
  BOOST_CHECK_EQUAL(w.api().register_regions(r, &list, &info), KVC_E_STATE);
  BOOST_CHECK_EQUAL(w.api().submit_loads(r, plan, &none), KVC_OK);
  BOOST_CHECK_EQUAL(w.api().submit_stores(r, plan, &none), KVC_OK);
  w.api().close_rank(r);
}

BOOST_AUTO_TEST_CASE(regions_that_do_not_fit_are_refused_with_numbers_and_may_be_registered_again) {
  World w(Setup{});
  kvc_open o = w.open_struct();
  kvc_rank* r = nullptr;
  BOOST_REQUIRE_EQUAL(w.api().open_rank(&w.host(), &o, &r), KVC_OK);
  const std::vector<kvc_region> good = w.memory(0).regions();
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  const auto with = [&](auto change) {
    std::vector<kvc_region> bad = good;
    change(bad);
    const kvc_list list = kvc_list_of(bad.data(), bad.size(), sizeof(kvc_region));
    return w.api().register_regions(r, &list, &info);
  };
  using Regions = std::vector<kvc_region>;
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].base = nullptr; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].block_bytes = 0; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].block_bytes = UINT64_MAX; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].block_stride_bytes = 1; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].block_stride_bytes = UINT64_MAX / 2; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].size_bytes = 1; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].size_bytes = UINT64_MAX; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].group_mask = 0; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].group_mask = 2; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b.clear(); }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].device_kind = KVC_DEVICE_CUDA; }),
                    KVC_E_UNSUPPORTED);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].device_kind = 77; }), KVC_E_UNSUPPORTED);
  BOOST_CHECK_EQUAL(with([](Regions& b) { b[0].struct_size = 8; }), KVC_E_ARG);
  BOOST_CHECK_EQUAL(with([](Regions&) {}), KVC_OK);
  w.api().close_rank(r);
}

// Plans of a scheduler that lies: blocks and slots out of range end failed, the rest runs. Made by
// a world whose device is larger than the rank's.
BOOST_AUTO_TEST_CASE(a_plan_that_names_foreign_blocks_fails_those_jobs_only) {
  World w(Setup{});
  Setup narrow;
  narrow.device_blocks = 8;
  World small(narrow);
  kvc_open o = small.open_struct();
  kvc_rank* r = nullptr;
  BOOST_REQUIRE_EQUAL(small.api().open_rank(&small.host(), &o, &r), KVC_OK);
  const auto& regions = small.memory(0).regions();
  const kvc_list list = kvc_list_of(regions.data(), regions.size(), sizeof(kvc_region));
  kvc_rank_info info{};
  info.struct_size = sizeof info;
  BOOST_REQUIRE_EQUAL(small.api().register_regions(r, &list, &info), KVC_OK);
  w.begin(1, req(1, 20));
  w.take(1, 0);
  w.compute(1, 320);  // blocks 1 .. 20, the rank has 8
  const Planned p = w.plan();
  kvc_fence none{};
  none.struct_size = sizeof none;
  const kvc_bytes plan = kvc_bytes_of(p.bytes.data(), p.bytes.size());
  BOOST_CHECK_EQUAL(small.api().submit_loads(r, plan, &none), KVC_OK);
  BOOST_CHECK_EQUAL(small.api().submit_stores(r, plan, &none), KVC_OK);
  while (small.api().pump_rank(r, 64) == KVC_LATER) {
  }
  kvc_progress done{};
  done.struct_size = sizeof done;
  BOOST_REQUIRE_EQUAL(small.api().progress(r, &done), KVC_OK);
  const Completed c = w.complete({{done.report.data, done.report.data + done.report.size}});
  BOOST_REQUIRE_EQUAL(c.jobs.size(), 1U);
  BOOST_CHECK_LT(c.jobs[0].status, 0);
  BOOST_CHECK_EQUAL(w.hit(req(1, 20)), 0U);
  small.api().close_rank(r);
}

BOOST_AUTO_TEST_CASE(two_hundred_opens_and_closes_of_both_roles) {
  Setup s;
  s.host_blocks = 4;
  s.device_blocks = 8;
  for (int i = 0; i < 200; ++i) {
    World w(s);
    if (i % 10 == 0) {
      w.store(1, req(1, 2), 32);
      BOOST_REQUIRE_EQUAL(w.hit(req(1, 2)), 32U);
    }
  }
}

// [any] slots from another thread, while the scheduler role works.
BOOST_AUTO_TEST_CASE(queries_answer_from_any_thread_at_any_time) {
  World w(Setup{});
  w.check_structure = false;
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::thread reader([&] {
    while (!stop.load()) {
      kvc_boundary_stats c{};
      c.struct_size = sizeof c;
      kvc_pending p{};
      p.struct_size = sizeof p;
      std::vector<kvc_stat> rows(256);
      std::vector<char> text(1 << 18);
      std::uint64_t n = 0;
      const kvc_offer_counts& o = c.all_offers;
      if (w.api().boundary_stats(w.sched(), &c) != KVC_OK) ++wrong;
      if (o.published < o.stored + o.pending) ++wrong;
      if (w.api().has_pending(w.sched(), &p) != KVC_OK) ++wrong;
      if (w.api().stats(w.sched(), rows.data(), sizeof(kvc_stat), rows.size(), &n) != KVC_OK)
        ++wrong;
      const kvc_status s = w.api().explain(w.sched(), 0, text.data(), text.size(), &n);
      if (s != KVC_OK && s != KVC_E_ROOM) ++wrong;
    }
  });
  for (std::uint64_t i = 1; i <= 200; ++i) w.store(i, req(i % 9, 1 + i % 4), 16 * (1 + i % 4));
  stop.store(true);
  reader.join();
  BOOST_CHECK_EQUAL(wrong.load(), 0U);
}

// A reset between any two steps of a request's life: nothing older is found, everything drains.
BOOST_AUTO_TEST_CASE(a_reset_at_every_point_leaves_nothing_behind) {
  for (const std::uint64_t flags : {std::uint64_t{0}, KVC_RESET_INVALIDATE}) {
    for (int point = 0; point < 12; ++point) {
      BOOST_TEST_CONTEXT("flags " << flags << ", point " << point) {
        Setup s;
        s.groups = {full(16), state_align(16)};
        World w(s);
        int at = 0;
        const auto maybe = [&] {
          if (at++ != point) return;
          w.reset(flags);
          BOOST_CHECK_EQUAL(w.hit(req(1, 2)), 0U);
        };
        w.store(1, req(1, 2), 32);
        maybe();
        w.begin(2, req(1, 2));
        maybe();
        const std::uint64_t found = w.lookup(2).tokens;
        maybe();
        w.take(2, found);
        maybe();
        Planned p = w.plan();
        maybe();
        w.submit(p);
        maybe();
        w.pump();
        maybe();
        const auto reports = w.reports();
        maybe();
        const Completed c = w.complete(reports);
        maybe();
        const bool ok = !c.verdicts.empty() && c.verdicts[0].status == KVC_OK;
        if (ok) BOOST_CHECK_EQUAL(w.wrong_bytes(w.request(2), 0, found), "");
        w.request(2).computed = ok ? found : 0;
        w.compute(2, 33);
        w.step();
        maybe();
        w.end(2);
        maybe();
        w.drain();
        maybe();
        w.drain();
        BOOST_CHECK_EQUAL(w.reset(), KVC_OK);
        BOOST_CHECK_EQUAL(w.stat("host_slots_used_now"), 0U);
        w.check_quiet();
        // And it works on.
        w.store(50, req(9, 2), 32);
        BOOST_CHECK_EQUAL(w.hit(req(9, 2)), 32U);
      }
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvc::abi_test
