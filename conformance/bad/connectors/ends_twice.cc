// Ends the last job of a call twice.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.complete = [](kvc_sched* s, const kvc_bytes* reports, uint64_t n,
                      kvc_complete_out* out) noexcept {
    const kvc_status status = kvc::bad::right().complete(s, reports, n, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_complete_out, jobs) || out->jobs.count == 0) {
      return status;
    }
    auto& jobs = kvc::bad::copy_of<kvc_ended_job>(out->jobs);
    const kvc_ended_job last = jobs.back();
    jobs.push_back(last);
    out->jobs = kvc::bad::list_of(jobs);
    return status;
  };
}
