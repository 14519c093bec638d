// Calls a failed load a good one.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.complete = [](kvc_sched* s, const kvc_bytes* reports, uint64_t n,
                      kvc_complete_out* out) noexcept {
    const kvc_status status = kvc::bad::right().complete(s, reports, n, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_complete_out, verdicts)) return status;
    auto& jobs = kvc::bad::copy_of<kvc_ended_job>(out->jobs);
    for (kvc_ended_job& job : jobs) {
      job.status = KVC_OK;
      job.failed.count = 0;
    }
    auto& verdicts = kvc::bad::copy_of<kvc_verdict>(out->verdicts);
    for (kvc_verdict& v : verdicts) v.status = KVC_OK;
    out->jobs = kvc::bad::list_of(jobs);
    out->verdicts = kvc::bad::list_of(verdicts);
    return status;
  };
}
