// Opening and closing: which connector, which engine; KVC-H-008, 010, KVC-P-022, 030, 032, 035,
// 131.
#include <cstdio>

#include <fmt/format.h>

#include "conformance/validate/c_structs.h"
#include "conformance/validate/call.h"
#include "conformance/validate/table.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate::slots {
namespace {

// The layer's own refusal, where a connector would say why it refuses.
kvc_status refuse(const kvc_host_api* host, const std::string& why) {
  const std::string line = "kvc_validate: " + why;
  kvc_host_api h{};
  if (KVC_READ(kvc_host_api, &h, host) == KVC_OK && h.log != nullptr) {
    h.log(h.self, KVC_LOG_ERROR, kvc_bytes_of(line.data(), line.size()));
  } else {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
  return KVC_E_ARG;
}

// Everything that open needs to know before it can be forwarded.
struct Opening {
  Form form;
  OpenIn in;
  LayerText text;
  const kvc_plugin_api* next = nullptr;
  std::shared_ptr<Engine> engine;
  HostTable* host = nullptr;
  bool clash = false;
};

Status prepare(Opening& o, bool sched, const kvc_host_api* host, const kvc_open* open) {
  o.in = read_open(o.form, host, open);
  const auto environment = environment_settings();
  if (!environment.ok()) return environment.error();
  auto text = split_layer_table(o.in.toml, environment.value());
  if (!text.ok()) return text.error();
  o.text = std::move(text).value();
  o.in.toml = o.text.rest;
  if (o.text.settings.next.empty()) {
    return {Code::arg,
            "no connector is named: set KVC_LAYER_NEXT, or next in the table [layer] of the "
            "connector's options"};
  }
  auto next = Registry::of_process().next(o.text.settings.next);
  if (!next.ok()) return next.error();
  o.next = next.value();
  kvc_host_api h{};
  const bool host_ok = KVC_READ(kvc_host_api, &h, host) == KVC_OK;
  Registry& registry = Registry::of_process();
  auto engine =
      registry.engine_for(host_ok ? h.self : nullptr, sched, o.in, o.text.settings, o.clash);
  if (!engine.ok()) return engine.error();
  o.engine = std::move(engine).value();
  if (host_ok) o.host = registry.keep(std::make_unique<HostTable>(h, o.engine));
  return {};
}

// KVC-H-010.
void check_layout(Call& call, const Opening& o, bool sched) {
  if (o.clash) {
    call.find("KVC-H-010", fmt::format("rank {} is opened a second time", o.in.rank));
  }
  if (!sched && o.in.rank >= o.in.ranks) {
    call.find("KVC-H-010", fmt::format("rank {} of {} is opened", o.in.rank, o.in.ranks));
  }
  OpenIn mine = o.in;
  OpenIn first = o.engine->first_open;
  mine.rank = first.rank = 0;
  mine.toml = first.toml = {};
  mine.host_caps = first.host_caps = 0;
  mine.host_slots = first.host_slots = 0;
  if (!(mine == first)) {
    call.find("KVC-H-010", "scheduler and ranks of one engine are opened with different layouts");
  }
}

void check_failed(Call& call, const Opening& o, const void* handle, std::uint64_t lines_before) {
  if (handle != nullptr) call.find("KVC-P-030", "open failed and *out is not NULL");
  if (o.host == nullptr) return;
  if (o.host->theirs.log != nullptr && o.host->log_lines.load() == lines_before) {
    call.find("KVC-P-030", "open failed without a line in the log");
  }
  const auto [count, bytes] = o.host->outstanding();
  if (count != 0) {
    call.find("KVC-P-032",
              fmt::format("open failed and kept {} allocations, {} bytes", count, bytes));
  }
}

void opened(Call& call, const Opening& o, bool sched, const void* handle) {
  auto side = std::make_shared<Side>();
  side->sched = sched;
  side->rank = sched ? 0 : o.in.rank;
  side->handle = handle;
  side->next = o.next;
  side->engine = o.engine;
  side->host = o.host;
  {
    const std::lock_guard lock(o.engine->mutex);
    if (sched) o.engine->sched_used = o.engine->model.have_sched = true;
    if (!sched) {
      auto& ranks = o.engine->model.ranks;
      if (o.in.rank >= ranks.size()) ranks.resize(o.in.rank + std::size_t{1});
      ranks[o.in.rank] = {};
      ranks[o.in.rank].here = true;
    }
  }
  Registry::of_process().add(side);
  const bool stepped = (o.in.host_caps & KVC_HOST_STEPPED) != 0;
  if (stepped && o.host != nullptr && o.host->theirs.now_ns == nullptr) {
    call.find("KVC-P-035", "open answered 0 without a clock under KVC_HOST_STEPPED");
  }
}

template <class Handle, class Next>
kvc_status open_role(Slot slot, const kvc_host_api* host, const kvc_open* open, Handle** out,
                     const Next& next_slot) {
  const bool sched = slot == Slot::open_scheduler;
  if (out != nullptr) *out = nullptr;
  Opening o;
  if (Status s = prepare(o, sched, host, open); !s.ok()) return refuse(host, s.text);
  Call call(slot, o.engine, o.host, o.next);
  call.opens_rank(o.in.rank);
  if (out == nullptr) o.form.add(Fault::short_room, "the room for the handle is NULL");
  call.form(o.form);
  check_layout(call, o, sched);
  // The host's struct with the layer's table taken out of the text.
  std::vector<std::max_align_t> copy;
  const kvc_open* passed = open;
  if (o.text.had_table) {
    copy.resize(open->struct_size / sizeof(std::max_align_t) + 1);
    __builtin_memcpy(copy.data(), open, open->struct_size);
    auto* const mine = reinterpret_cast<kvc_open*>(copy.data());
    mine->config_toml = kvc_bytes_of(o.in.toml.data(), o.in.toml.size());
    passed = mine;
  }
  passed = call.guarded(passed, [&](Arena& a) { return c_open(a, o.in); });
  const kvc_host_api* const table = o.host == nullptr ? host : &o.host->shown;
  const std::uint64_t lines = o.host == nullptr ? 0 : o.host->log_lines.load();
  const kvc_status status =
      call.forward([&](const kvc_plugin_api& next) { return next_slot(next)(table, passed, out); });
  const void* const handle = out == nullptr ? nullptr : *out;
  if (status >= 0 && handle != nullptr) {
    opened(call, o, sched, handle);
  } else if (status >= 0) {
    call.find("KVC-P-030", fmt::format("open answered {} and *out is NULL", host::Said{status}));
  } else {
    check_failed(call, o, handle, lines);
    if (o.host != nullptr) o.host->closed.store(true);
  }
  call.record(o.in, status, Nothing{});
  return status;
}

void check_closed(Call& call) {
  if (call.host() == nullptr) return;
  const auto [count, bytes] = call.host()->outstanding();
  if (count != 0) {
    call.find("KVC-P-022", fmt::format("close returned and {} allocations, {} bytes, were not "
                                       "released",
                                       count, bytes));
  }
  call.publish_new();
  call.host()->closed.store(true);
}

void check_last_state(Call& call, kvc_sched* s) {
  if (call.side().poisoned.load()) return;
  kvc_boundary_stats counts{};
  counts.struct_size = sizeof counts;
  kvc_pending pending{};
  pending.struct_size = sizeof pending;
  const kvc_plugin_api& next = *call.side().next;
  if (next.boundary_stats(s, &counts) != KVC_OK || next.has_pending(s, &pending) != KVC_OK) return;
  call.check([&](const Check& c) {
    check_quiet(c, counts, pending);
    // An engine that gives the connector up for one handle of it carries no reports any more.
    if (!call.engine().broken.load()) before_close_sched(c);
  });
}

}  // namespace

kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open,
                          kvc_sched** out) noexcept {
  return open_role(Slot::open_scheduler, host, open, out,
                   [](const kvc_plugin_api& n) { return n.open_scheduler; });
}

kvc_status open_rank(const kvc_host_api* host, const kvc_open* open, kvc_rank** out) noexcept {
  return open_role(Slot::open_rank, host, open, out,
                   [](const kvc_plugin_api& n) { return n.open_rank; });
}

void close_scheduler(kvc_sched* s) noexcept {
  Call call(Slot::close_scheduler, s);
  if (!call.known()) return;
  check_last_state(call, s);
  Registry::of_process().remove(s);
  call.forward_void([&](const kvc_plugin_api& next) { next.close_scheduler(s); });
  check_closed(call);
  call.record(Nothing{}, KVC_OK, Nothing{});
}

void close_rank(kvc_rank* r) noexcept {
  Call call(Slot::close_rank, r);
  if (!call.known()) return;
  Registry::of_process().remove(r);
  call.forward_void([&](const kvc_plugin_api& next) { next.close_rank(r); });
  check_closed(call);
  call.record(Nothing{}, KVC_OK, Nothing{});
}

}  // namespace kvc::validate::slots
