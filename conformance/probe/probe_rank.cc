// The rank role of the probe.
#include <kvc/kvc_util.h>

#include "conformance/probe/handle.h"

namespace kvc::probe {
namespace {

constexpr std::uint64_t late_every = 16;  // script "late": news at every so many-th progress

RankHandle& rank(kvc_rank* r) { return *reinterpret_cast<RankHandle*>(r); }

kvc_status register_regions(kvc_rank* r, const kvc_list* regions, kvc_rank_info* out) noexcept {
  return rank(r).next.api.register_regions(rank(r).inner, regions, out);
}

kvc_status submit_loads(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  RankHandle& p = rank(r);
  kvc_status status = KVC_OK;
  if (p.answers("submit_loads", status)) return status;
  return p.next.api.submit_loads(p.inner, plan, fence);
}

kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  RankHandle& p = rank(r);
  kvc_status status = KVC_OK;
  if (p.answers("submit_stores", status)) return status;
  return p.next.api.submit_stores(p.inner, plan, fence);
}

void spoil_loads(RankHandle& p, std::vector<kvc_load_done>& loads) {
  std::erase_if(loads, [&p](const kvc_load_done& l) {
    const bool kept = p.script.meets_job("missing_load", l.job);
    if (kept) p.judge.acted();
    return kept;
  });
  for (kvc_load_done& l : loads) {
    if (p.script.meets_job("failed", l.job)) l.status = KVC_E_IO;
    l.failed = p.failed.put(elements_of<kvc_failed_block>(l.failed));
  }
  if (!p.script.has("duplicate")) return;
  const auto again = loads;
  loads.insert(loads.end(), again.begin(), again.end());
}

kvc_status progress(kvc_rank* r, kvc_progress* out) noexcept {
  RankHandle& p = rank(r);
  kvc_status status = KVC_OK;
  if (p.answers("progress", status)) return status;
  kvc_progress answer{};
  answer.struct_size = sizeof answer;
  if (p.script.has("late") && ++p.progresses % late_every != 0) {
    p.judge.acted();
    return KVC_WRITE(out, &answer);
  }
  status = p.next.api.progress(p.inner, &answer);
  if (status < 0) return status;
  std::vector<kvc_load_done> loads = elements_of<kvc_load_done>(answer.loads);
  p.loads.clear();
  p.failed.clear();
  spoil_loads(p, loads);
  answer.struct_size = sizeof answer;
  answer.loads = p.loads.put(loads);
  const kvc_status written = KVC_WRITE(out, &answer);
  return written < 0 ? written : status;
}

kvc_status wait(kvc_rank* r, const kvc_job* jobs, std::uint64_t n,
                std::uint64_t timeout_ns) noexcept {
  RankHandle& p = rank(r);
  // Before close an engine may wait for what still runs, also when the handle is poisoned.
  kvc_status status = KVC_OK;
  if (p.answers("wait", status)) return status;
  return p.next.api.wait(p.inner, jobs, n, timeout_ns);
}

kvc_status pump_rank(kvc_rank* r, std::uint32_t budget) noexcept {
  RankHandle& p = rank(r);
  kvc_status status = KVC_OK;
  if (p.answers("pump_rank", status)) return status;
  return p.next.api.pump_rank(p.inner, budget);
}

kvc_status last_error(const kvc_rank* r, char* buf, std::uint64_t cap,
                      std::uint64_t* needed) noexcept {
  const RankHandle& p = *reinterpret_cast<const RankHandle*>(r);
  if (!p.error.empty()) {
    return kvc_put(buf, cap, needed, kvc_bytes_of(p.error.data(), p.error.size()));
  }
  return p.next.api.last_error_rank(p.inner, buf, cap, needed);
}

kvc_status take_log(kvc_rank* r, char* buf, std::uint64_t cap, std::uint64_t* count) noexcept {
  return rank(r).next.api.take_log_rank(rank(r).inner, buf, cap, count);
}

}  // namespace

void fill_rank(kvc_plugin_api& t) {
  t.last_error_rank = last_error;
  t.take_log_rank = take_log;
  t.register_regions = register_regions;
  t.submit_loads = submit_loads;
  t.submit_stores = submit_stores;
  t.progress = progress;
  t.wait = wait;
  t.pump_rank = pump_rank;
}

}  // namespace kvc::probe
