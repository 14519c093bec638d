// Explains in words that no program reads.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.explain = [](const kvc_sched* s, uint64_t request, char* buf, uint64_t cap,
                     uint64_t* needed) noexcept {
    const kvc_status status = kvc::bad::right().explain(s, request, nullptr, 0, needed);
    return status == KVC_E_ARG ? status : kvc_put(buf, cap, needed, kvc_text_of("all is well"));
  };
}
