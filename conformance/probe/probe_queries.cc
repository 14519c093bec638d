// Queries of the probe: the next connector's, and what the probe keeps back.
#include <kvc/kvc_util.h>

#include "conformance/probe/handle.h"

namespace kvc::probe {
namespace {

const SchedHandle& sched(const kvc_sched* s) { return *reinterpret_cast<const SchedHandle*>(s); }

kvc_status last_error(const kvc_sched* s, char* buf, std::uint64_t cap,
                      std::uint64_t* needed) noexcept {
  const SchedHandle& p = sched(s);
  if (!p.error.empty()) {
    return kvc_put(buf, cap, needed, kvc_bytes_of(p.error.data(), p.error.size()));
  }
  return p.next.api.last_error_scheduler(p.inner, buf, cap, needed);
}

kvc_status boundary_stats(const kvc_sched* s, kvc_boundary_stats* out) noexcept {
  return sched(s).next.api.boundary_stats(sched(s).inner, out);
}

kvc_status stats(const kvc_sched* s, void* out, std::uint32_t stride, std::uint64_t cap,
                 std::uint64_t* needed) noexcept {
  return sched(s).next.api.stats(sched(s).inner, out, stride, cap, needed);
}

kvc_status has_pending(const kvc_sched* s, kvc_pending* out) noexcept {
  const SchedHandle& p = sched(s);
  kvc_pending answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = p.next.api.has_pending(p.inner, &answer);
  if (status < 0) return status;
  const std::lock_guard lock(p.mutex);
  answer.struct_size = sizeof answer;
  answer.load_jobs += p.kept_back.load_jobs;
  answer.store_jobs += p.kept_back.store_jobs;
  answer.held_blocks += p.kept_back.held_blocks;
  return KVC_WRITE(out, &answer);
}

kvc_status explain(const kvc_sched* s, std::uint64_t request, char* buf, std::uint64_t cap,
                   std::uint64_t* needed) noexcept {
  return sched(s).next.api.explain(sched(s).inner, request, buf, cap, needed);
}

kvc_status take_events(kvc_sched* s, void* out, std::uint32_t stride, std::uint64_t cap,
                       std::uint64_t* count) noexcept {
  return sched(s).next.api.take_events(reinterpret_cast<SchedHandle*>(s)->inner, out, stride, cap,
                                       count);
}

kvc_status take_log(kvc_sched* s, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
  return sched(s).next.api.take_log_scheduler(reinterpret_cast<SchedHandle*>(s)->inner, buf, cap,
                                              count);
}

}  // namespace

void fill_queries(kvc_plugin_api& t) {
  t.last_error_scheduler = last_error;
  t.boundary_stats = boundary_stats;
  t.stats = stats;
  t.has_pending = has_pending;
  t.explain = explain;
  t.take_events = take_events;
  t.take_log_scheduler = take_log;
}

}  // namespace kvc::probe
