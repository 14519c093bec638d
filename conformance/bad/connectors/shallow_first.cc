// Lists the holds of a plan from the shallow end.
#include <algorithm>
#include <deque>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    const kvc_status status = kvc::bad::right().build_store_jobs(s, step, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_plan, jobs)) return status;
    static std::deque<std::vector<kvc_block>> turned;
    turned.clear();
    auto& jobs = kvc::bad::copy_of<kvc_plan_job>(out->jobs);
    for (kvc_plan_job& job : jobs) {
      turned.push_back(kvc::bad::copy_of<kvc_block>(job.held));
      std::reverse(turned.back().begin(), turned.back().end());
      job.held = kvc::bad::list_of(turned.back());
    }
    out->jobs = kvc::bad::list_of(jobs);
    return status;
  };
}
