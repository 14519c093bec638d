// Leaves loads out of the list of their plan.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    const kvc_status status = kvc::bad::right().build_store_jobs(s, step, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_plan, jobs)) return status;
    auto& jobs = kvc::bad::copy_of<kvc_plan_job>(out->jobs);
    std::erase_if(jobs, [](const kvc_plan_job& job) { return job.kind == KVC_JOB_LOAD; });
    out->jobs = kvc::bad::list_of(jobs);
    return status;
  };
}
