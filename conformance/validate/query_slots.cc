// Queries, texts and drains: KVC-H-003, KVC-P-010, 011, 110 to 115.
#include <algorithm>

#include <fmt/format.h>

#include "conformance/validate/call.h"
#include "conformance/validate/table.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate::slots {
namespace {

constexpr std::uint64_t compared_max = 1U << 16U;
constexpr std::uint64_t not_set = 0xA5A5A5A5A5A5A5A5U;

// The host's buffer before the call, if it is small enough to be compared.
ByteString before_call(const void* buf, std::uint64_t bytes) {
  if (buf == nullptr || bytes == 0 || bytes > compared_max || !readable(buf, bytes)) return {};
  return {static_cast<const char*>(buf), bytes};
}

// KVC-P-011, of explain, last_error and stats.
void check_query(Call& call, const ByteString& before, const void* buf, std::uint64_t cap,
                 bool has_needed, kvc_status status, std::uint64_t needed) {
  const char* const name = info(call.slot()).name;
  if (status == KVC_E_INTERNAL || status == KVC_E_ARG || !has_needed) return;
  const bool room = status == KVC_E_ROOM;
  if ((room || status == KVC_OK) && needed == not_set) {
    call.find("KVC-P-011",
              fmt::format("{} answered {} and did not set *needed", name, host::Said{status}));
  } else if (room != (cap < needed)) {
    call.find("KVC-P-011", fmt::format("{} answered {} with room for {} and {} needed", name,
                                       host::Said{status}, cap, needed));
  } else if (room && !before.empty() &&
             !std::equal(before.begin(), before.end(), static_cast<const char*>(buf))) {
    call.find("KVC-P-011", fmt::format("{} answered KVC_E_ROOM and wrote", name));
  }
}

// KVC-H-003. Of a query the host takes what its room holds.
template <class T>
void query_room(Call& call, const T* out, const char* name) {
  Form form;
  form.room(out, sizeof(std::uint32_t), name);
  call.form(form);
}

void text_room(Call& call, const char* buf, std::uint64_t cap, const std::uint64_t* set) {
  Form form;
  form.buffer(buf, cap, cap, set);
  call.form(form);
}

void rows_room(Call& call, const void* out, std::uint32_t stride, std::uint32_t least,
               std::uint64_t cap, const std::uint64_t* set) {
  Form form;
  if (stride < least) {
    form.add(Fault::short_room,
             fmt::format("the stride is {}, at least {} is needed", stride, least));
  }
  std::uint64_t bytes = 0;
  if (kvc_mul(cap, stride, &bytes) == 0) bytes = UINT64_MAX;
  form.buffer(out, cap, bytes, set);
  call.form(form);
}

TextOut text_out(kvc_status status, const char* buf, std::uint64_t cap, std::uint64_t size) {
  TextOut out{size == not_set ? 0 : size, {}};
  if (status >= 0 && buf != nullptr && size <= cap && size != not_set) out.text.assign(buf, size);
  return out;
}

template <class Handle, class Next>
kvc_status last_error(Slot slot, const Handle* h, char* buf, std::uint64_t cap,
                      std::uint64_t* needed, const Next& next_slot) {
  Call call(slot, h);
  if (!call.known()) return KVC_E_ARG;
  text_room(call, buf, cap, needed);
  const ByteString before = before_call(buf, cap);
  std::uint64_t mine = not_set;
  const bool failed = call.side().failed.load();
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next_slot(next)(h, buf, cap, needed == nullptr ? nullptr : &mine);
  });
  if (needed != nullptr && mine != not_set) *needed = mine;
  check_query(call, before, buf, cap, needed != nullptr, status, mine);
  const bool unseen = mine != 0 && Registry::of_process().unseen_calls;
  if (needed != nullptr && mine != not_set && status != KVC_E_ARG && failed != (mine != 0) &&
      !unseen) {
    call.find("KVC-P-010", failed
                               ? std::string("a call failed, and there is no text")
                               : fmt::format("no call failed, and there are {} bytes of text: '{}'",
                                             mine, text_out(status, buf, cap, mine).text));
  }
  call.record(RoomIn{0, cap}, status, text_out(status, buf, cap, mine));
  return status;
}

template <class Handle, class Next>
kvc_status take_log(Slot slot, Handle* h, char* buf, std::uint64_t cap, std::uint64_t* count,
                    const Next& next_slot) {
  Call call(slot, h);
  if (!call.known()) return KVC_E_ARG;
  text_room(call, buf, cap, count);
  std::uint64_t mine = not_set;
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next_slot(next)(h, buf, cap, count == nullptr ? nullptr : &mine);
  });
  if (count != nullptr && mine != not_set) *count = mine;
  const TextOut out = text_out(status, buf, cap, mine);
  if (count != nullptr && status >= 0) {
    call.check([&](const Check& c) { check_log_lines(c, cap, status, out); });
  }
  call.record(RoomIn{0, cap}, status, out);
  return status;
}

std::vector<std::uint64_t> counts_of(const kvc_offer_counts& c) {
  std::vector<std::uint64_t> values(sizeof c / sizeof(std::uint64_t));
  __builtin_memcpy(values.data(), &c, sizeof c);
  return values;
}

ByteString bytes_of(const kvc_bytes& bytes) {
  if (bytes.data == nullptr || bytes.size > compared_max) return {};
  return {reinterpret_cast<const char*>(bytes.data), bytes.size};
}

}  // namespace

kvc_status last_error_scheduler(const kvc_sched* s, char* buf, std::uint64_t cap,
                                std::uint64_t* needed) noexcept {
  return last_error(Slot::last_error_scheduler, s, buf, cap, needed,
                    [](const kvc_plugin_api& n) { return n.last_error_scheduler; });
}

kvc_status last_error_rank(const kvc_rank* r, char* buf, std::uint64_t cap,
                           std::uint64_t* needed) noexcept {
  return last_error(Slot::last_error_rank, r, buf, cap, needed,
                    [](const kvc_plugin_api& n) { return n.last_error_rank; });
}

kvc_status take_log_scheduler(kvc_sched* s, char* buf, std::uint64_t cap,
                              std::uint64_t* count) noexcept {
  return take_log(Slot::take_log_scheduler, s, buf, cap, count,
                  [](const kvc_plugin_api& n) { return n.take_log_scheduler; });
}

kvc_status take_log_rank(kvc_rank* r, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
  return take_log(Slot::take_log_rank, r, buf, cap, count,
                  [](const kvc_plugin_api& n) { return n.take_log_rank; });
}

kvc_status boundary_stats(const kvc_sched* s, kvc_boundary_stats* out_c) noexcept {
  Call call(Slot::boundary_stats, s);
  if (!call.known()) return KVC_E_ARG;
  query_room(call, out_c, "kvc_boundary_stats");
  OutBox<kvc_boundary_stats> box(out_c);
  const kvc_status status =
      call.forward([&](const kvc_plugin_api& next) { return next.boundary_stats(s, box.get()); });
  call.put_back(box, status, kvc_boundary_stats_least);
  call.record(Nothing{}, status,
              CountsOut{counts_of(box.value().handoffs), counts_of(box.value().all_offers)});
  return status;
}

kvc_status has_pending(const kvc_sched* s, kvc_pending* out_c) noexcept {
  Call call(Slot::has_pending, s);
  if (!call.known()) return KVC_E_ARG;
  query_room(call, out_c, "kvc_pending");
  OutBox<kvc_pending> box(out_c);
  const std::uint64_t calls = call.engine().sched_calls.load();
  const bool idle = call.side().inside.load() == nullptr;
  const kvc_status status =
      call.forward([&](const kvc_plugin_api& next) { return next.has_pending(s, box.get()); });
  call.put_back(box, status, kvc_pending_least);
  const kvc_pending& p = box.value();
  const PendingOut out{p.load_jobs, p.store_jobs, p.held_blocks, p.quarantined_blocks};
  const bool whole = status == KVC_OK && box.judged() && p.struct_size >= kvc_pending_least;
  if (idle && whole) {
    call.check([&](const Check& c) {
      if (calls == call.engine().sched_calls.load()) check_pending(c, out);
    });
  }
  call.record(Nothing{}, status, out);
  return status;
}

kvc_status stats(const kvc_sched* s, void* out_c, std::uint32_t stride, std::uint64_t cap,
                 std::uint64_t* needed) noexcept {
  Call call(Slot::stats, s);
  if (!call.known()) return KVC_E_ARG;
  rows_room(call, out_c, stride, kvc_stat_least, cap, needed);
  std::uint64_t bytes = 0;
  const bool sized = kvc_mul(cap, stride, &bytes) != 0;
  const ByteString before = before_call(out_c, sized ? bytes : 0);
  std::uint64_t mine = not_set;
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.stats(s, out_c, stride, cap, needed == nullptr ? nullptr : &mine);
  });
  if (needed != nullptr && mine != not_set) *needed = mine;
  check_query(call, before, out_c, cap, needed != nullptr, status, mine);
  StatsOut out;
  out.needed = mine == not_set ? 0 : mine;
  const kvc_list list = kvc_list_of(out_c, mine, stride);
  if (status == KVC_OK && out_c != nullptr && mine <= cap && stride >= kvc_stat_least) {
    for (std::uint64_t i = 0; i < mine; ++i) {
      kvc_stat row{};
      if (KVC_READ_AT(kvc_stat, &row, &list, i) != KVC_OK) {
        call.find("KVC-P-004", fmt::format("row {} of stats is no kvc_stat", i));
        break;
      }
      out.rows.push_back({bytes_of(row.name), bytes_of(row.labels), row.value});
    }
    call.check([&](const Check& c) { check_stats(c, call.side().counters, out); });
  }
  call.record(RoomIn{0, cap}, status, out);
  return status;
}

kvc_status explain(const kvc_sched* s, std::uint64_t request, char* buf, std::uint64_t cap,
                   std::uint64_t* needed) noexcept {
  Call call(Slot::explain, s);
  if (!call.known()) return KVC_E_ARG;
  text_room(call, buf, cap, needed);
  const ByteString before = before_call(buf, cap);
  std::uint64_t mine = not_set;
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.explain(s, request, buf, cap, needed == nullptr ? nullptr : &mine);
  });
  if (needed != nullptr && mine != not_set) *needed = mine;
  check_query(call, before, buf, cap, needed != nullptr, status, mine);
  const TextOut out = text_out(status, buf, cap, mine);
  const bool asked_right = needed != nullptr && (buf != nullptr || cap == 0);
  if (asked_right && call.side().inside.load() == nullptr) {
    call.check([&](const Check& c) { check_explain(c, {request, cap}, status, out); });
  }
  call.record(RoomIn{request, cap}, status, out);
  return status;
}

kvc_status take_events(kvc_sched* s, void* out_c, std::uint32_t stride, std::uint64_t cap,
                       std::uint64_t* count) noexcept {
  Call call(Slot::take_events, s);
  if (!call.known()) return KVC_E_ARG;
  rows_room(call, out_c, stride, kvc_event_least, cap, count);
  std::uint64_t mine = not_set;
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.take_events(s, out_c, stride, cap, count == nullptr ? nullptr : &mine);
  });
  if (count != nullptr && mine != not_set) *count = mine;
  EventsOut out;
  out.count = mine == not_set ? 0 : mine;
  const kvc_list list = kvc_list_of(out_c, out.count, stride);
  if (status >= 0 && out_c != nullptr && out.count <= cap && stride >= kvc_event_least) {
    for (std::uint64_t i = 0; i < out.count; ++i) {
      kvc_event e{};
      if (KVC_READ_AT(kvc_event, &e, &list, i) != KVC_OK || e.key_bytes > KVC_KEY_BYTES_MAX) {
        call.find("KVC-P-114", fmt::format("event {} is no kvc_event", i));
        break;
      }
      const auto key = [&](const std::uint8_t* k) {
        return ByteString(reinterpret_cast<const char*>(k), e.key_bytes);
      };
      out.events.push_back({e.kind, e.medium, e.group, e.begin_tokens, e.end_tokens, e.request,
                            key(e.key), e.has_parent == 1 ? key(e.parent_key) : ByteString()});
    }
  }
  call.check([&](const Check& c) { check_events(c, cap, status, out); });
  call.record(RoomIn{0, cap}, status, out);
  return status;
}

}  // namespace kvc::validate::slots
