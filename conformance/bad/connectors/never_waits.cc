// Says at once that all jobs have ended.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.wait = [](kvc_rank* r, const kvc_job* jobs, uint64_t n, uint64_t) noexcept {
    const kvc_status status = kvc::bad::right().wait(r, jobs, n, 0);
    return status == KVC_LATER ? kvc_status{KVC_OK} : status;
  };
}
