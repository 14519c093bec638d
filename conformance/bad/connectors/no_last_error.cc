// Has no text for its failures.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.last_error_scheduler = [](const kvc_sched* s, char* buf, uint64_t cap,
                                  uint64_t* needed) noexcept {
    if (s == nullptr) return kvc_status{KVC_E_ARG};
    return kvc_put(buf, cap, needed, kvc_bytes_of(nullptr, 0));
  };
}
