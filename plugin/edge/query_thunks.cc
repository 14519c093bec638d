// Thunks of the [any] queries and of the texts of a handle: answered by a poisoned handle too.
#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "plugin/edge/rank_handle.h"
#include "plugin/edge/read_in.h"
#include "plugin/edge/sched_handle.h"
#include "plugin/edge/slots.h"

namespace kvc::edge {

namespace {

// Pure queries may be asked for less than 1.0 filled: the host takes what its room holds.
constexpr std::size_t least_query_room = sizeof(std::uint32_t);

template <class T>
Status write_query(T* out, const T& mine) {
  return kvc_write(out, &mine, sizeof mine, least_query_room) == KVC_OK
             ? Status{}
             : Status{Code::arg, "no room for struct_size"};
}

kvc_status boundary_stats(const kvc_sched* s, kvc_boundary_stats* out) noexcept {
  return any_query(s, "boundary_stats", [&]() -> Status {
    const BoundaryStats counts = s->role->counts();
    kvc_boundary_stats mine{};
    mine.struct_size = sizeof mine;
    std::memcpy(&mine.handoffs, &counts.handoffs, sizeof mine.handoffs);
    std::memcpy(&mine.all_offers, &counts.all_offers, sizeof mine.all_offers);
    return write_query(out, mine);
  });
}

kvc_status has_pending(const kvc_sched* s, kvc_pending* out) noexcept {
  return any_query(s, "has_pending", [&]() -> Status {
    const PendingWork p = s->role->pending();
    const kvc_pending mine{
        sizeof mine,          0,          p.load_jobs, p.store_jobs, p.held_blocks,
        p.quarantined_blocks, p.tier_jobs};
    return write_query(out, mine);
  });
}

// stats is +noalloc and [any]: its list lives on the stack of the caller's thread.
constexpr std::size_t stats_most = 1024;

kvc_status stats(const kvc_sched* s, void* out, std::uint32_t stride, std::uint64_t cap,
                 std::uint64_t* needed) noexcept {
  return any_query(s, "stats", [&]() -> Status {
    if (needed == nullptr || stride < Form<kvc_stat>::least) return {Code::arg, {}};
    if (Status e = check_array("out", out, cap, stride, UINT64_MAX); !e.ok()) return e;
    const std::size_t count = s->role->stat_count();
    KVC_CHECK(count <= stats_most);
    *needed = count;
    if (cap < count) return {Code::room, {}};
    std::array<Stat, stats_most> mine;
    s->role->stats(std::span(mine).first(count));
    for (std::size_t i = 0; i < count; ++i) {
      const Stat& m = mine[i];
      const kvc_stat row{sizeof row, 0, kvc_bytes_of(m.name.data(), m.name.size()),
                         kvc_bytes_of(m.labels.data(), m.labels.size()), m.value};
      KVC_CHECK(kvc_write_at(out, stride, i, &row, sizeof row, Form<kvc_stat>::least) == KVC_OK);
    }
    return {};
  });
}

kvc_status explain(const kvc_sched* s, std::uint64_t request, char* buf, std::uint64_t cap,
                   std::uint64_t* needed) noexcept {
  return any_query(s, "explain", [&]() -> Status {
    if (needed == nullptr || (buf == nullptr && cap != 0)) return {Code::arg, {}};
    const Result<std::string> text = s->role->explain(request);
    if (!text.ok()) return text.error();
    const std::string& json = text.value();
    return {static_cast<Code>(kvc_put(buf, cap, needed, kvc_bytes_of(json.data(), json.size()))),
            {}};
  });
}

template <class Handle>
kvc_status last_error(const Handle* h, char* buf, std::uint64_t cap,
                      std::uint64_t* needed) noexcept {
  if (h == nullptr) return KVC_E_ARG;
  const std::string_view text = h->error.text();
  return kvc_put(buf, cap, needed, kvc_bytes_of(text.data(), text.size()));
}

template <class Handle>
kvc_status take_log(Handle* h, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
  if (h == nullptr || count == nullptr || (buf == nullptr && cap != 0)) return KVC_E_ARG;
  bool more = false;
  *count = h->host.ring().take(buf, cap, more);
  return more ? KVC_MORE : KVC_OK;
}

}  // namespace

void fill_query_slots(kvc_plugin_api& api) {
  api.boundary_stats = boundary_stats;
  api.has_pending = has_pending;
  api.stats = stats;
  api.explain = explain;
  api.last_error_scheduler = [](const kvc_sched* s, char* buf, std::uint64_t cap,
                                std::uint64_t* needed) noexcept {
    return last_error(s, buf, cap, needed);
  };
  api.last_error_rank = [](const kvc_rank* r, char* buf, std::uint64_t cap,
                           std::uint64_t* needed) noexcept {
    return last_error(r, buf, cap, needed);
  };
  api.take_log_scheduler = [](kvc_sched* s, char* buf, std::uint64_t cap,
                              std::uint64_t* count) noexcept {
    return take_log(s, buf, cap, count);
  };
  api.take_log_rank = [](kvc_rank* r, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
    return take_log(r, buf, cap, count);
  };
}

}  // namespace kvc::edge
