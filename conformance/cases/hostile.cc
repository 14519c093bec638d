// Any argument gets a status: NULL everywhere, and odd numbers in every numeric field of every
// struct of every slot.
#include <kvc/kvc_util.h>

#include <algorithm>

#include "conformance/cases/families.h"
#include "conformance/cases/support.h"
#include "host_stub/loader/status_text.h"

namespace kvc::conform {

namespace {

void null_handles(Context& c) {
  const kvc_plugin_api& api = c.api();
  const auto request = sized<kvc_request>();
  const auto extend = sized<kvc_extend>();
  const auto lookup = sized<kvc_lookup_in>();
  const auto alloc = sized<kvc_alloc_in>();
  const auto step = sized<kvc_step>();
  const auto end = sized<kvc_end_in>();
  kvc_list list{};
  auto info = sized<kvc_rank_info>();
  auto progress = sized<kvc_progress>();
  std::uint64_t n = 0;
  char text[8];
  const auto stride = static_cast<std::uint32_t>(sizeof(kvc_stat));
  const std::pair<const char*, kvc_status> answers[] = {
      {"set_ranks", api.set_ranks(nullptr, &list, &list)},
      {"request_begin", api.request_begin(nullptr, &request)},
      {"request_extend", api.request_extend(nullptr, &extend)},
      {"lookup", api.lookup(nullptr, &lookup, nullptr)},
      {"lookup_cancel", api.lookup_cancel(nullptr, 1)},
      {"alloc_update", api.alloc_update(nullptr, &alloc, nullptr)},
      {"build_store_jobs", api.build_store_jobs(nullptr, &step, nullptr)},
      {"complete", api.complete(nullptr, nullptr, 0, nullptr)},
      {"request_end", api.request_end(nullptr, &end, nullptr)},
      {"boundary_stats", api.boundary_stats(nullptr, nullptr)},
      {"stats", api.stats(nullptr, nullptr, stride, 0, &n)},
      {"has_pending", api.has_pending(nullptr, nullptr)},
      {"explain", api.explain(nullptr, 0, text, sizeof text, &n)},
      {"take_log_scheduler", api.take_log_scheduler(nullptr, text, sizeof text, &n)},
      {"take_log_rank", api.take_log_rank(nullptr, text, sizeof text, &n)},
      {"last_error_scheduler", api.last_error_scheduler(nullptr, text, sizeof text, &n)},
      {"last_error_rank", api.last_error_rank(nullptr, text, sizeof text, &n)},
      {"reset", api.reset(nullptr, 0)},
      {"register_regions", api.register_regions(nullptr, &list, &info)},
      {"submit_loads", api.submit_loads(nullptr, {nullptr, 0}, nullptr)},
      {"submit_stores", api.submit_stores(nullptr, {nullptr, 0}, nullptr)},
      {"progress", api.progress(nullptr, &progress)},
      {"wait", api.wait(nullptr, nullptr, 0, 0)},
      {"open_scheduler", api.open_scheduler(nullptr, nullptr, nullptr)},
      {"open_rank", api.open_rank(nullptr, nullptr, nullptr)},
      {"describe", api.describe(nullptr)}};
  for (const auto& [slot, s] : answers) {
    c.expect(s == KVC_E_ARG, "KVC-P-008", "{} of NULL answered {}", slot, host::Said{s});
  }
  if (c.can(KVC_CAP_EVENTS)) {
    c.expect(api.take_events(nullptr, nullptr, 112, 0, &n) == KVC_E_ARG, "KVC-P-008",
             "take_events of NULL");
  }
  if (c.can(KVC_CAP_STEPPED)) {
    c.expect(api.pump_scheduler(nullptr, 1) == KVC_E_ARG, "KVC-P-008", "pump_scheduler of NULL");
    c.expect(api.pump_rank(nullptr, 1) == KVC_E_ARG, "KVC-P-008", "pump_rank of NULL");
  }
}

void null_structs(Context& c) {
  World w(c, c.plain());
  const kvc_plugin_api& api = w.api();
  w.begin(1, prompt(1, 2));
  auto found = sized<kvc_lookup_out>();
  auto allocated = sized<kvc_alloc_out>();
  auto plan = sized<kvc_plan>();
  auto ended = sized<kvc_end_out>();
  auto done = sized<kvc_complete_out>();
  auto info = sized<kvc_rank_info>();
  const kvc_lookup_in lookup{sizeof lookup, 0, 1, 33, 0, KVC_NO_LIMIT};
  const kvc_alloc_in alloc{sizeof alloc, 0, 1, 0, {}};
  auto step = sized<kvc_step>();
  step.step = 1;
  const kvc_end_in end{sizeof end, 0, 1, 0, {}, {}};
  kvc_list list{};
  const kvc_bytes no_report{nullptr, 4};
  kvc_request no_keys{sizeof no_keys, 0, 9, 33, nullptr, 2, KVC_NO_LIMIT, KVC_NO_LIMIT};
  kvc_extend no_more{sizeof no_more, 0, 1, 2, nullptr, 0};
  no_more.n_keys = 1;
  kvc_step no_ids = step;
  no_ids.n_preempted = 3;
  const std::pair<const char*, kvc_status> answers[] = {
      {"set_ranks without ranks", api.set_ranks(w.sched(), nullptr, &list)},
      {"set_ranks without room", api.set_ranks(w.sched(), &list, nullptr)},
      {"request_begin", api.request_begin(w.sched(), nullptr)},
      {"request_begin without keys", api.request_begin(w.sched(), &no_keys)},
      {"request_extend", api.request_extend(w.sched(), nullptr)},
      {"request_extend without keys", api.request_extend(w.sched(), &no_more)},
      {"lookup", api.lookup(w.sched(), nullptr, &found)},
      {"lookup without room", api.lookup(w.sched(), &lookup, nullptr)},
      {"alloc_update", api.alloc_update(w.sched(), nullptr, &allocated)},
      {"alloc_update without room", api.alloc_update(w.sched(), &alloc, nullptr)},
      {"build_store_jobs", api.build_store_jobs(w.sched(), nullptr, &plan)},
      {"build_store_jobs without room", api.build_store_jobs(w.sched(), &step, nullptr)},
      {"preempted without ids", api.build_store_jobs(w.sched(), &no_ids, &plan)},
      {"complete without reports", api.complete(w.sched(), nullptr, 1, &done)},
      {"a report without bytes", api.complete(w.sched(), &no_report, 1, &done)},
      {"complete without room", api.complete(w.sched(), nullptr, 0, nullptr)},
      {"request_end", api.request_end(w.sched(), nullptr, &ended)},
      {"request_end without room", api.request_end(w.sched(), &end, nullptr)},
      {"boundary_stats", api.boundary_stats(w.sched(), nullptr)},
      {"has_pending", api.has_pending(w.sched(), nullptr)},
      {"register_regions", api.register_regions(w.rank(0), nullptr, &info)},
      {"submit_loads without fence", api.submit_loads(w.rank(0), {nullptr, 0}, nullptr)},
      {"progress", api.progress(w.rank(0), nullptr)},
      {"wait without ids", api.wait(w.rank(0), nullptr, 3, 0)}};
  for (const auto& [what, s] : answers) {
    const bool state_is_fine = std::string_view(what).starts_with("register") ||
                               std::string_view(what).starts_with("set_ranks");
    const bool rejected = std::string_view(what).starts_with("a report") && s == KVC_OK;
    c.expect(s == KVC_E_ARG || rejected || (state_is_fine && s == KVC_E_STATE), "KVC-P-008",
             "{}: answered {}", what, host::Said{s});
  }
  c.expect(w.lookup(1).status == KVC_OK, "KVC-P-009", "after refused calls a right one fails");
  w.end(1, KVC_END_ABORT);
  w.check_quiet();
}

// A numeric field of a struct: where it is and how wide.
struct Field {
  const char* name;
  std::size_t offset;
  std::size_t bytes;
};
#define KVC_FIELD(T, f) \
  Field { #T "." #f, offsetof(T, f), sizeof(T::f) }

// `call` with each odd number in each field, from a struct that `good` makes. It must come back.
template <class T>
void odd_fields(std::initializer_list<Field> fields, const std::function<T()>& good,
                const std::function<void(const T&)>& call) {
  for (const Field& f : fields) {
    for (const std::uint64_t n : odd_numbers) {
      T t = good();
      std::memcpy(reinterpret_cast<char*>(&t) + f.offset, &n, f.bytes);
      call(t);
    }
  }
}

void fields_of_requests(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 4), 64);
  w.begin(2, prompt(1, 4));
  const std::vector<std::uint8_t> keys(1 << 16, 5);
  std::uint64_t id = 100;
  odd_fields<kvc_request>(
      {KVC_FIELD(kvc_request, struct_size), KVC_FIELD(kvc_request, flags),
       KVC_FIELD(kvc_request, request), KVC_FIELD(kvc_request, prompt_tokens),
       KVC_FIELD(kvc_request, load_limit_tokens), KVC_FIELD(kvc_request, store_limit_tokens)},
      [&] {
        return kvc_request{sizeof(kvc_request), 0, ++id,         33,
                           keys.data(),         2, KVC_NO_LIMIT, KVC_NO_LIMIT};
      },
      [&](const kvc_request& r) {
        if (w.api().request_begin(w.sched(), &r) == KVC_OK) Raw(w).end(r.request, 0);
      });
  // More keys than tokens hold are refused before they are read.
  for (const std::uint64_t n : odd_numbers) {
    if (n < 3) continue;
    const kvc_request r{sizeof r, 0, ++id, 33, keys.data(), n, KVC_NO_LIMIT, KVC_NO_LIMIT};
    c.expect(w.api().request_begin(w.sched(), &r) == KVC_E_ARG, "KVC-P-050",
             "{} keys for 33 tokens", n);
    const kvc_extend x{sizeof x, 0, 2, 4, keys.data(), n + 8192};
    c.expect(w.api().request_extend(w.sched(), &x) == KVC_E_ARG, "KVC-P-052",
             "{} more keys, max_total_tokens {}", n + 8192, w.setup().max_total);
  }
  odd_fields<kvc_extend>(
      {KVC_FIELD(kvc_extend, struct_size), KVC_FIELD(kvc_extend, reserved0),
       KVC_FIELD(kvc_extend, request), KVC_FIELD(kvc_extend, first_key)},
      [&] { return kvc_extend{sizeof(kvc_extend), 0, 2, 4, keys.data(), 0}; },
      [&](const kvc_extend& x) { w.api().request_extend(w.sched(), &x); });
  odd_fields<kvc_lookup_in>(
      {KVC_FIELD(kvc_lookup_in, struct_size), KVC_FIELD(kvc_lookup_in, flags),
       KVC_FIELD(kvc_lookup_in, request), KVC_FIELD(kvc_lookup_in, total_tokens),
       KVC_FIELD(kvc_lookup_in, device_tokens), KVC_FIELD(kvc_lookup_in, external_cap_tokens)},
      [] { return kvc_lookup_in{sizeof(kvc_lookup_in), 0, 2, 65, 0, KVC_NO_LIMIT}; },
      [&](const kvc_lookup_in& in) {
        auto out = sized<kvc_lookup_out>();
        const kvc_status s = w.api().lookup(w.sched(), &in, &out);
        c.expect(s != KVC_OK || out.external_tokens <= 64, "KVC-P-060",
                 "total {}, device {}, cap {}: {} tokens", in.total_tokens, in.device_tokens,
                 in.external_cap_tokens, out.external_tokens);
      });
  w.end(2, KVC_END_ABORT);
  w.store(3, prompt(3, 2), 32);
  w.check_quiet();
}

void fields_of_tables(Context& c) {
  World w(c, c.plain());
  w.begin(2, prompt(2, 4));
  w.allocate_for_compute(2, 64);
  const auto& blocks = w.request(2).tables[0];
  const auto table = [&] {
    return kvc_table{sizeof(kvc_table), 0, blocks.data(), blocks.size(), 0};
  };
  const auto alloc = [&](const kvc_table& t) {
    const kvc_alloc_in a{sizeof a, 0, 2, 0, kvc_list_of(&t, 1, sizeof t)};
    auto out = sized<kvc_alloc_out>();
    return w.api().alloc_update(w.sched(), &a, &out);
  };
  odd_fields<kvc_table>({KVC_FIELD(kvc_table, struct_size), KVC_FIELD(kvc_table, group),
                         KVC_FIELD(kvc_table, first_changed)},
                        table, [&](const kvc_table& t) { alloc(t); });
  for (const std::uint64_t n : odd_numbers) {
    if (n <= std::uint64_t{1} << 40U) continue;
    kvc_table t = table();
    t.count = n;
    const kvc_status got = alloc(t);  // who does not read the blocks may accept them
    c.expect(got == KVC_E_ARG || got == KVC_OK, "KVC-P-008", "a table of {} blocks answered {}", n,
             host::Said{got});
  }
  odd_fields<kvc_alloc_in>(
      {KVC_FIELD(kvc_alloc_in, struct_size), KVC_FIELD(kvc_alloc_in, flags),
       KVC_FIELD(kvc_alloc_in, request), KVC_FIELD(kvc_alloc_in, accepted_tokens)},
      [] {
        return kvc_alloc_in{sizeof(kvc_alloc_in), 0, 2, 0, {}};
      },
      [&](const kvc_alloc_in& a) {
        auto out = sized<kvc_alloc_out>();
        w.api().alloc_update(w.sched(), &a, &out);
      });
  // Block ids of every size in a right call.
  std::vector<std::int64_t> ids(4);
  for (const std::uint64_t n : odd_numbers) {
    for (std::int64_t& b : ids) b = static_cast<std::int64_t>(n);
    alloc({sizeof(kvc_table), 0, ids.data(), ids.size(), 0});
  }
  w.end(2, KVC_END_ABORT, 0);
  w.store(3, prompt(3, 2), 32);
  w.check_quiet();
}

void fields_of_steps(Context& c) {
  World w(c, c.layout({rig::full(16), rig::state_align(16)}));
  w.begin(1, prompt(1, 2));
  w.take(1, 0);
  w.compute(1, 32);
  w.step();
  std::uint64_t last = 1;
  const auto build = [&](kvc_step step) {
    auto plan = sized<kvc_plan>();
    if (w.api().build_store_jobs(w.sched(), &step, &plan) == KVC_OK) last = step.step;
  };
  const auto step = [&] {
    auto s = sized<kvc_step>();
    s.step = last + 1;
    return s;
  };
  odd_fields<kvc_step>(
      {KVC_FIELD(kvc_step, struct_size), KVC_FIELD(kvc_step, reserved0), KVC_FIELD(kvc_step, step)},
      step, build);
  const std::int64_t block = w.request(1).tables[1].back();
  odd_fields<kvc_handoff>(
      {KVC_FIELD(kvc_handoff, struct_size), KVC_FIELD(kvc_handoff, group),
       KVC_FIELD(kvc_handoff, request), KVC_FIELD(kvc_handoff, block),
       KVC_FIELD(kvc_handoff, boundary_tokens)},
      [&] {
        return kvc_handoff{sizeof(kvc_handoff), 1, 1, block, 32};
      },
      [&](const kvc_handoff& h) {
        kvc_step s = step();
        s.handoffs = kvc_list_of(&h, 1, sizeof h);
        build(s);
      });
  const std::vector<std::uint8_t> key(32, 9);
  odd_fields<kvc_candidate>(
      {KVC_FIELD(kvc_candidate, struct_size), KVC_FIELD(kvc_candidate, group),
       KVC_FIELD(kvc_candidate, block), KVC_FIELD(kvc_candidate, end_tokens)},
      [&] {
        return kvc_candidate{sizeof(kvc_candidate), 0, 60, key.data(), 16};
      },
      [&](const kvc_candidate& k) {
        kvc_step s = step();
        s.candidates = kvc_list_of(&k, 1, sizeof k);
        build(s);
      });
  odd_fields<kvc_step_request>(
      {KVC_FIELD(kvc_step_request, struct_size), KVC_FIELD(kvc_step_request, flags),
       KVC_FIELD(kvc_step_request, request), KVC_FIELD(kvc_step_request, confirmed_tokens)},
      [] {
        return kvc_step_request{sizeof(kvc_step_request), 0, 1, 32, {}};
      },
      [&](const kvc_step_request& r) {
        kvc_step s = step();
        s.scheduled = kvc_list_of(&r, 1, sizeof r);
        build(s);
      });
}

void lists_of_steps(Context& c) {
  World w(c, c.plain());
  std::uint64_t last = 0;
  const auto build = [&](const kvc_step& step) {
    auto plan = sized<kvc_plan>();
    const kvc_status s = w.api().build_store_jobs(w.sched(), &step, &plan);
    if (s == KVC_OK) last = step.step;
    return s;
  };
  const std::vector<std::uint8_t> bytes(64, 9);
  for (const std::uint64_t n : odd_numbers) {
    auto step = sized<kvc_step>();
    step.step = last + 1;
    step.preempted = &n;
    step.n_preempted = 1;
    build(step);
    if (n <= std::uint64_t{1} << 40U) continue;
    for (kvc_list kvc_step::*list :
         {&kvc_step::scheduled, &kvc_step::handoffs, &kvc_step::candidates}) {
      step = sized<kvc_step>();
      step.step = last + 1;
      step.*list = {bytes.data(), n, 64, 0};
      const kvc_status got = build(step);
      c.expect(got == KVC_E_ARG, "KVC-P-008", "a list of {} elements answered {}", n,
               host::Said{got});
    }
  }
}

void fields_of_ends(Context& c) {
  World w(c, c.layout({rig::full(16), rig::state_align(16)}));
  std::uint64_t id = 0;
  const auto end = [&] {
    ++id;
    w.begin(id, prompt(id, 2));
    return kvc_end_in{sizeof(kvc_end_in), KVC_END_STOP, id, 0, {}, {}};
  };
  odd_fields<kvc_end_in>({KVC_FIELD(kvc_end_in, struct_size), KVC_FIELD(kvc_end_in, reason),
                          KVC_FIELD(kvc_end_in, request), KVC_FIELD(kvc_end_in, confirmed_tokens)},
                         end, [&](const kvc_end_in& e) {
                           auto out = sized<kvc_end_out>();
                           w.api().request_end(w.sched(), &e, &out);
                           Raw(w).end(id, 0);
                         });
  odd_fields<kvc_handoff>(
      {KVC_FIELD(kvc_handoff, group), KVC_FIELD(kvc_handoff, request),
       KVC_FIELD(kvc_handoff, block), KVC_FIELD(kvc_handoff, boundary_tokens)},
      [&] {
        return kvc_handoff{sizeof(kvc_handoff), 1, id + 1, 5, 16};
      },
      [&](const kvc_handoff& h) {
        kvc_end_in e = end();
        e.handoffs = kvc_list_of(&h, 1, sizeof h);
        auto out = sized<kvc_end_out>();
        w.api().request_end(w.sched(), &e, &out);
        Raw(w).end(id, 0);
      });
}

void fields_of_open(Context& c) {
  Setup setup = c.plain();
  setup.host_alloc = true;
  World w(c, setup);
  // Sizes that a machine could serve are not what is asked here.
  w.host_memory().limit(std::uint64_t{64} << 20U);
  const auto try_open = [&](const kvc_open& o) {
#if defined(KVC_SANITIZED)
    // Sanitizers end the process where operator new throws.
    constexpr std::uint64_t most = std::uint64_t{1} << 24U;
    if (std::max({o.max_prompt_tokens, o.max_total_tokens, o.max_batch_tokens, o.max_live_requests,
                  o.max_running, o.max_steps_in_flight}) > most) {
      return;
    }
#endif
    kvc_sched* sched = nullptr;
    kvc_rank* rank = nullptr;
    const kvc_status a = w.api().open_scheduler(&w.host(), &o, &sched);
    const kvc_status b = w.api().open_rank(&w.host(), &o, &rank);
    c.expect((a == KVC_OK) == (sched != nullptr) && (b == KVC_OK) == (rank != nullptr), "KVC-P-030",
             "open answered {} and {}, handles {} and {}", host::Said{a}, host::Said{b},
             static_cast<const void*>(sched), static_cast<const void*>(rank));
    w.api().close_scheduler(sched);
    w.api().close_rank(rank);
  };
  odd_fields<kvc_open>(
      {KVC_FIELD(kvc_open, struct_size),
       KVC_FIELD(kvc_open, rank),
       KVC_FIELD(kvc_open, flags),
       KVC_FIELD(kvc_open, hash_unit_tokens),
       KVC_FIELD(kvc_open, scheduler_block_tokens),
       KVC_FIELD(kvc_open, context_parallel),
       KVC_FIELD(kvc_open, ranks),
       KVC_FIELD(kvc_open, cp_interleave_tokens),
       KVC_FIELD(kvc_open, device_blocks),
       KVC_FIELD(kvc_open, null_block),
       KVC_FIELD(kvc_open, key_bytes),
       KVC_FIELD(kvc_open, lookahead_tokens),
       KVC_FIELD(kvc_open, max_prompt_tokens),
       KVC_FIELD(kvc_open, max_total_tokens),
       KVC_FIELD(kvc_open, max_batch_tokens),
       KVC_FIELD(kvc_open, max_live_requests),
       KVC_FIELD(kvc_open, max_running),
       KVC_FIELD(kvc_open, max_request_bytes),
       KVC_FIELD(kvc_open, max_steps_in_flight),
       KVC_FIELD(kvc_open, retention_tokens)},
      [&] { return w.open_struct(); }, try_open);
  const kvc_open good = w.open_struct();
  kvc_group group{};
  std::memcpy(&group, good.groups.data, sizeof group);
  odd_fields<kvc_group>(
      {KVC_FIELD(kvc_group, struct_size), KVC_FIELD(kvc_group, kind), KVC_FIELD(kvc_group, caps),
       KVC_FIELD(kvc_group, caps_known), KVC_FIELD(kvc_group, tokens_per_block),
       KVC_FIELD(kvc_group, window_tokens), KVC_FIELD(kvc_group, extra_retained_tokens)},
      [&] { return group; },
      [&](const kvc_group& g) {
        kvc_open o = good;
        o.groups = kvc_list_of(&g, 1, sizeof g);
        try_open(o);
      });
  for (const std::uint64_t n : odd_numbers) {
    if (n < 65) continue;
    kvc_open o = good;
    o.groups.count = n;
    try_open(o);
  }
}

void fields_of_regions(Context& c) {
  World w(c, c.plain());
  const kvc_open o = w.open_struct();
  const kvc_region good = w.memory(0).regions()[0];
  odd_fields<kvc_region>(
      {KVC_FIELD(kvc_region, struct_size), KVC_FIELD(kvc_region, device_kind),
       KVC_FIELD(kvc_region, device_ordinal), KVC_FIELD(kvc_region, layer),
       KVC_FIELD(kvc_region, block_stride_bytes), KVC_FIELD(kvc_region, block_bytes),
       KVC_FIELD(kvc_region, group_mask)},
      [&] { return good; },
      [&](const kvc_region& r) {
        kvc_rank* rank = nullptr;
        c.need(w.api().open_rank(&w.host(), &o, &rank) == KVC_OK, "KVC-P-030", "open_rank failed");
        const kvc_list list = kvc_list_of(&r, 1, sizeof r);
        auto info = sized<kvc_rank_info>();
        w.api().register_regions(rank, &list, &info);
        w.api().close_rank(rank);
      });
}

void fields_of_ranks(Context& c) {
  Setup s = two_ranks(c);
  s.join = false;
  const World source(c, s);
  const auto join = [&](const kvc_rank_info& second) {
    World w(c, s);
    const kvc_rank_info infos[] = {source.rank_infos()[0], second};
    const kvc_list list = kvc_list_of(infos, 2, sizeof(kvc_rank_info));
    kvc_list usable{};
    w.api().set_ranks(w.sched(), &list, &usable);
  };
  odd_fields<kvc_rank_info>(
      {KVC_FIELD(kvc_rank_info, struct_size), KVC_FIELD(kvc_rank_info, rank),
       KVC_FIELD(kvc_rank_info, pages)},
      [&] { return source.rank_infos()[1]; }, join);
  if (source.rank_infos()[1].classes.count == 0) return;
  kvc_class k{};
  KVC_READ_AT(kvc_class, &k, &source.rank_infos()[1].classes, 0);
  odd_fields<kvc_class>(
      {KVC_FIELD(kvc_class, struct_size), KVC_FIELD(kvc_class, class_id),
       KVC_FIELD(kvc_class, group_mask), KVC_FIELD(kvc_class, slots_per_page),
       KVC_FIELD(kvc_class, bytes_per_block), KVC_FIELD(kvc_class, usable_slots)},
      [&] { return k; },
      [&](const kvc_class& one) {
        kvc_rank_info info = source.rank_infos()[1];
        info.classes = kvc_list_of(&one, 1, sizeof one);
        join(info);
      });
}

void numbers_of_calls(Context& c) {
  World w(c, c.plain());
  w.store(1, prompt(1, 4), 64);
  w.begin(2, prompt(1, 4));
  const kvc_bytes report{nullptr, 0};
  for (const std::uint64_t n : odd_numbers) {
    w.lookup_cancel(n == 2 ? 3 : n);
    w.reset(n << 1U);
    w.api().pump_scheduler(w.sched(), static_cast<std::uint32_t>(n));
    w.api().pump_rank(w.rank(0), static_cast<std::uint32_t>(n));
    const kvc_job job = n;
    w.api().wait(w.rank(0), &job, 1, 0);
    w.api().wait(w.rank(0), nullptr, 0, n);
    std::uint64_t needed = 0;
    w.api().explain(w.sched(), n, nullptr, 0, &needed);
    w.api().stats(w.sched(), nullptr, static_cast<std::uint32_t>(n), 0, &needed);
    w.api().take_log_scheduler(w.sched(), nullptr, 0, &needed);
    w.api().extension({nullptr, n});
    Planned p;
    if (n != w.next_step) {
      c.expect(w.try_plan(p, n) < 0, "KVC-P-081", "step {} instead of {}", n, w.next_step);
    }
    if (n > std::uint64_t{1} << 40U) {
      auto out = sized<kvc_complete_out>();
      c.expect(w.api().complete(w.sched(), &report, n, &out) == KVC_E_ARG, "KVC-P-008",
               "{} reports", n);
    }
  }
  w.end(2, KVC_END_ABORT, 0);
  w.store(3, prompt(3, 2), 32);
  w.check_quiet();
}

constexpr Case cases[] = {
    {"hostile.null_handles", "KVC-P-008", null_handles},
    {"hostile.null_structs", "KVC-P-008", null_structs},
    {"hostile.fields_of_requests_and_lookups", "KVC-P-008", fields_of_requests},
    {"hostile.fields_of_tables_and_allocations", "KVC-P-008", fields_of_tables},
    {"hostile.fields_of_steps", "KVC-P-008", fields_of_steps},
    {"hostile.lists_of_steps", "KVC-P-008", lists_of_steps},
    {"hostile.fields_of_ends", "KVC-P-008", fields_of_ends},
    {"hostile.fields_of_open", "KVC-P-008", fields_of_open, 120},
    {"hostile.fields_of_regions", "KVC-P-008", fields_of_regions},
    {"hostile.fields_of_ranks", "KVC-P-008", fields_of_ranks},
    {"hostile.numbers_of_calls", "KVC-P-008", numbers_of_calls},
};

}  // namespace

std::span<const Case> hostile_cases() { return cases; }

}  // namespace kvc::conform
