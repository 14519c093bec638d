// Opens for any number of groups, and says at the end of the first request that it serves one only
// (field report 124).
#include "conformance/bad/wrapped.h"

namespace {
std::uint64_t groups = 0;  // of the scheduler that was opened last
}

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.open_scheduler = [](const kvc_host_api* host, const kvc_open* open,
                            kvc_sched** out) noexcept {
    const kvc_status status = kvc::bad::right().open_scheduler(host, open, out);
    if (status == KVC_OK) groups = open->groups.count;
    return status;
  };
  table.request_end = [](kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
    if (groups > 1) return kvc_status{KVC_E_UNSUPPORTED};
    return kvc::bad::right().request_end(s, in, out);
  };
}
