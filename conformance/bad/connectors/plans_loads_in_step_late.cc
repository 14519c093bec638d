// Says yes to a load in step, and lists it in the plan behind the one of its step.
#include <algorithm>
#include <array>

#include "conformance/bad/layers.h"

namespace {

// Loads that were taken in step: not in a plan yet, or in the one before the next.
struct Taken {
  const kvc_sched* sched = nullptr;
  kvc_job job = 0;
  bool due = false;
};
std::array<Taken, 256> taken;

Taken* find(const kvc_sched* s, kvc_job job) {
  const auto is_it = [&](const Taken& t) { return t.sched == s && t.job == job; };
  Taken* const it = std::find_if(taken.begin(), taken.end(), is_it);
  return it == taken.end() ? nullptr : it;
}

kvc_status load_in_step(kvc_sched* s, const kvc_load_in_step* in) noexcept {
  const kvc_status status = kvc::bad::right_layers().load_in_step(s, in);
  if (status != KVC_OK || find(s, in->job) != nullptr) return status;
  if (Taken* const place = find(nullptr, 0); place != nullptr) *place = {s, in->job, false};
  return status;
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  static const kvc_layerwise_api mine{sizeof mine, 0, load_in_step,
                                      kvc::bad::right_layers().layer_fence};
  kvc::bad::replace_extension(table, KVC_LAYERWISE_EXTENSION, &mine);
  table.close_scheduler = [](kvc_sched* s) noexcept {
    for (Taken& t : taken) t = t.sched == s ? Taken{} : t;
    kvc::bad::right().close_scheduler(s);
  };
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    const kvc_status status = kvc::bad::right().build_store_jobs(s, step, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_plan, jobs)) return status;
    auto& jobs = kvc::bad::copy_of<kvc_plan_job>(out->jobs);
    for (Taken& t : taken) {
      if (t.sched != s || !t.due) continue;
      jobs.push_back({sizeof(kvc_plan_job), KVC_JOB_LOAD, t.job, 0, {}});
      t = {};
    }
    std::erase_if(jobs, [&](const kvc_plan_job& job) {
      Taken* const t = find(s, job.job);
      if (t != nullptr) t->due = true;
      return t != nullptr;
    });
    out->jobs = kvc::bad::list_of(jobs);
    return status;
  };
}
