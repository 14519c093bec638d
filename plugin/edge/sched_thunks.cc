// Thunks of the scheduler role: read, check the form, call the role, write.
#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include <array>
#include <cstring>

#include "plugin/edge/read_in.h"
#include "plugin/edge/sched_handle.h"
#include "plugin/edge/slots.h"

namespace kvc::edge {

namespace {

Status is_set(const void* p, std::string_view name) {
  if (p != nullptr) return {};
  return {Code::arg, fmt::format("{} is NULL", name)};
}

kvc_status set_ranks(kvc_sched* s, const kvc_list* ranks, kvc_list* usable) noexcept {
  return at_edge(s, "set_ranks", [&](Stage& stage) -> Status {
    if (Status e = is_set(ranks, "ranks"); !e.ok()) return e;
    if (Status e = is_set(usable, "usable"); !e.ok()) return e;
    auto in = s->in.ranks(*ranks);
    if (!in.ok()) return in.error();
    auto classes = s->role->set_ranks(in.value());
    if (!classes.ok()) return classes.error();
    stage.changed = true;
    *usable = s->out.usable(classes.value());
    return {};
  });
}

Status check_keys(const kvc_sched& s, const std::uint8_t* keys, std::uint64_t n_keys) {
  const std::uint64_t most = ceil_div(std::min(s.config.limits.max_total_tokens.n, tokens_max),
                                      s.config.geometry.hash_unit().n);
  return check_array("keys", keys, n_keys, s.config.limits.key_bytes, most);
}

kvc_status request_begin(kvc_sched* s, const kvc_request* request) noexcept {
  return at_edge(s, "request_begin", [&](Stage&) -> Status {
    kvc_request r{};
    if (Status e = read_struct(request, r); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_request.flags", r.flags, KVC_REQUEST_FLAGS_ALL); !e.ok()) {
      return e;
    }
    if (Status e = check_keys(*s, r.keys, r.n_keys); !e.ok()) return e;
    RequestBegin begin;
    begin.request = r.request;
    begin.no_read = (r.flags & KVC_REQUEST_NO_READ) != 0;
    begin.no_write = (r.flags & KVC_REQUEST_NO_WRITE) != 0;
    begin.prompt = {r.prompt_tokens};
    begin.keys = r.keys;
    begin.key_count = r.n_keys;
    begin.load_limit = {r.load_limit_tokens};
    begin.store_limit = {r.store_limit_tokens};
    return s->role->request_begin(begin);
  });
}

kvc_status request_extend(kvc_sched* s, const kvc_extend* extend) noexcept {
  return at_edge(s, "request_extend", [&](Stage&) -> Status {
    kvc_extend x{};
    if (Status e = read_struct(extend, x); !e.ok()) return e;
    if (Status e = refuse_reserved("kvc_extend.reserved0", x.reserved0); !e.ok()) return e;
    if (Status e = check_keys(*s, x.keys, x.n_keys); !e.ok()) return e;
    return s->role->request_extend(x.request, x.first_key, x.keys, x.n_keys);
  });
}

kvc_status lookup(kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
  return at_edge(s, "lookup", [&](Stage& stage) -> Status {
    kvc_lookup_in q{};
    if (Status e = read_struct(in, q); !e.ok()) return e;
    if (Status e = check_room(out); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_lookup_in.flags", q.flags, 0); !e.ok()) return e;
    stage.changed = true;
    const auto answer =
        s->role->lookup({q.request, {q.total_tokens}, {q.device_tokens}, {q.external_cap_tokens}});
    if (!answer.ok()) return answer.error();
    const LookupAnswer& a = answer.value();
    const kvc_lookup_out mine{sizeof mine, 0, a.external.n, static_cast<std::int32_t>(a.why), 0};
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {a.code, {}};
  });
}

kvc_status lookup_cancel(kvc_sched* s, std::uint64_t request) noexcept {
  return at_edge(s, "lookup_cancel",
                 [&](Stage&) -> Status { return s->role->lookup_cancel(request); });
}

kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) noexcept {
  return at_edge(s, "alloc_update", [&](Stage& stage) -> Status {
    kvc_alloc_in a{};
    if (Status e = read_struct(in, a); !e.ok()) return e;
    if (Status e = check_room(out); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_alloc_in.flags", a.flags, 0); !e.ok()) return e;
    const auto tables = s->in.tables(a.tables);
    if (!tables.ok()) return tables.error();
    stage.changed = true;
    const auto result = s->role->alloc_update(a.request, {a.accepted_tokens}, tables.value());
    if (!result.ok()) return result.error();
    const kvc_alloc_out mine = s->out.alloc(result.value());
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

kvc_status build_store_jobs(kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
  return at_edge(s, "build_store_jobs", [&](Stage& stage) -> Status {
    kvc_step given{};
    if (Status e = read_struct(step, given); !e.ok()) return e;
    if (Status e = check_room(out); !e.ok()) return e;
    const auto record = s->in.step(given);
    if (!record.ok()) return record.error();
    stage.changed = true;
    const auto plan = s->role->build_store_jobs(record.value());
    if (!plan.ok()) return plan.error();
    const kvc_plan mine = s->out.plan(plan.value());
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

kvc_status complete(kvc_sched* s, const kvc_bytes* reports, std::uint64_t n_reports,
                    kvc_complete_out* out) noexcept {
  return at_edge(s, "complete", [&](Stage& stage) -> Status {
    if (Status e = check_room(out); !e.ok()) return e;
    const auto in = s->in.reports(reports, n_reports);
    if (!in.ok()) return in.error();
    stage.changed = true;
    const auto result = s->role->complete(in.value());
    if (!result.ok()) return result.error();
    const kvc_complete_out mine = s->out.complete(result.value());
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

kvc_status request_end(kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
  return at_edge(s, "request_end", [&](Stage& stage) -> Status {
    kvc_end_in e{};
    if (Status bad = read_struct(in, e); !bad.ok()) return bad;
    if (Status bad = check_room(out); !bad.ok()) return bad;
    if (e.reason < KVC_END_STOP || e.reason > KVC_END_ERROR) {
      return {Code::unsupported, fmt::format("kvc_end_in.reason {} is not known", e.reason)};
    }
    const auto tables = s->in.tables(e.tables);
    if (!tables.ok()) return tables.error();
    const auto handoffs = s->in.handoffs(e.handoffs);
    if (!handoffs.ok()) return handoffs.error();
    stage.changed = true;
    const auto result = s->role->request_end({e.request,
                                              static_cast<EndReason>(e.reason),
                                              {e.confirmed_tokens},
                                              tables.value(),
                                              handoffs.value()});
    if (!result.ok()) return result.error();
    const kvc_end_out mine = s->out.end(result.value());
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

kvc_event to_event(const CacheEvent& e, std::uint32_t key_bytes) {
  kvc_event out{};
  out.struct_size = sizeof out;
  out.kind = static_cast<std::int32_t>(e.kind);
  out.medium = static_cast<std::int32_t>(e.medium);
  out.group = e.group;
  out.begin_tokens = e.begin.n;
  out.end_tokens = e.end.n;
  out.request = e.request;
  if (e.kind != EventKind::cleared) out.key_bytes = key_bytes;
  out.has_parent = e.has_parent ? 1 : 0;
  std::memcpy(out.key, e.key.data(), sizeof out.key);
  std::memcpy(out.parent_key, e.parent_key.data(), sizeof out.parent_key);
  return out;
}

kvc_status take_events(kvc_sched* s, void* out, std::uint32_t stride, std::uint64_t cap,
                       std::uint64_t* count) noexcept {
  return at_edge(s, "take_events", [&](Stage& stage) -> Status {
    if (Status e = is_set(count, "count"); !e.ok()) return e;
    if (stride < Form<kvc_event>::least) {
      return {Code::arg,
              fmt::format("stride is {}, at least {} is needed", stride, Form<kvc_event>::least)};
    }
    if (Status e = check_array("out", out, cap, stride, UINT64_MAX); !e.ok()) return e;
    std::array<CacheEvent, 64> some;
    std::uint64_t done = 0;
    bool more = true;
    while (more && done < cap) {
      std::size_t n = 0;
      const std::uint64_t room = std::min<std::uint64_t>(some.size(), cap - done);
      more = s->role->take_events(std::span(some).first(room), n);
      stage.changed = true;
      for (std::size_t i = 0; i < n; ++i, ++done) {
        const kvc_event e = to_event(some[i], s->config.limits.key_bytes);
        KVC_CHECK(kvc_write_at(out, stride, done, &e, sizeof e, Form<kvc_event>::least) == KVC_OK);
      }
    }
    if (cap == 0) {
      std::size_t n = 0;
      more = s->role->take_events({}, n);
    }
    *count = done;
    return {more ? Code::more : Code::ok, {}};
  });
}

kvc_status reset(kvc_sched* s, std::uint64_t flags) noexcept {
  return at_edge(s, "reset", [&](Stage& stage) -> Status {
    if (Status e = refuse_bits("flags", flags, KVC_RESET_INVALIDATE); !e.ok()) return e;
    stage.changed = true;
    return s->role->reset((flags & KVC_RESET_INVALIDATE) != 0);
  });
}

kvc_status pump_scheduler(kvc_sched* s, std::uint32_t budget) noexcept {
  return at_edge(s, "pump_scheduler", [&](Stage&) -> Status { return s->role->pump(budget); });
}

}  // namespace

void fill_sched_slots(kvc_plugin_api& api) {
  api.set_ranks = set_ranks;
  api.request_begin = request_begin;
  api.request_extend = request_extend;
  api.lookup = lookup;
  api.lookup_cancel = lookup_cancel;
  api.alloc_update = alloc_update;
  api.build_store_jobs = build_store_jobs;
  api.complete = complete;
  api.request_end = request_end;
  api.take_events = take_events;
  api.reset = reset;
  api.pump_scheduler = pump_scheduler;
}

}  // namespace kvc::edge
