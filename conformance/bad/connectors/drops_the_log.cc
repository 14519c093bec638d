// Drains no log line.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.take_log_scheduler = [](kvc_sched* s, char*, uint64_t, uint64_t* count) noexcept {
    if (s == nullptr || count == nullptr) return kvc_status{KVC_E_ARG};
    *count = 0;
    return kvc_status{KVC_OK};
  };
}
