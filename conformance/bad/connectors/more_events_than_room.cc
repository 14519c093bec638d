// Says that more events wait when none do.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.take_events = [](kvc_sched* s, void* out, uint32_t stride, uint64_t cap,
                         uint64_t* count) noexcept {
    const kvc_status status = kvc::bad::right().take_events(s, out, stride, cap, count);
    return status == KVC_OK ? kvc_status{KVC_MORE} : status;
  };
}
