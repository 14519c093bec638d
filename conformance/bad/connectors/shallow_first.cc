// Lists the holds of a plan from the shallow end.
#include <algorithm>
#include <iterator>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    const kvc_status status = kvc::bad::right().build_store_jobs(s, step, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_plan, jobs)) return status;
    auto& turned = kvc::bad::kept<kvc_block>;
    turned.clear();
    auto& jobs = kvc::bad::copy_of<kvc_plan_job>(out->jobs);
    for (kvc_plan_job& job : jobs) {
      const auto* const held = static_cast<const kvc_block*>(job.held.data);
      const std::size_t first = turned.size();
      std::reverse_copy(held, held + job.held.count, std::back_inserter(turned));
      job.held.data = turned.data() + first;
    }
    out->jobs = kvc::bad::list_of(jobs);
    return status;
  };
}
