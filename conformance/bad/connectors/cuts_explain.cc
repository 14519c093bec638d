// Fills a buffer that is too small instead of asking for more room.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.explain = [](const kvc_sched* s, uint64_t request, char* buf, uint64_t cap,
                     uint64_t* needed) noexcept {
    const kvc_status status = kvc::bad::right().explain(s, request, buf, cap, needed);
    if (status != KVC_E_ROOM || buf == nullptr) return status;
    for (uint64_t i = 0; i < cap; ++i) buf[i] = ' ';
    return status;
  };
}
