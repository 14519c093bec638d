// Does not say which reports it did not use.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.complete = [](kvc_sched* s, const kvc_bytes* reports, uint64_t n,
                      kvc_complete_out* out) noexcept {
    const kvc_status status = kvc::bad::right().complete(s, reports, n, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_complete_out, rejected)) out->rejected.count = 0;
    return status;
  };
}
