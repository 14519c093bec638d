// Takes lookup_cancel of ids that it does not know.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.lookup_cancel = [](kvc_sched* s, uint64_t request) noexcept {
    const kvc_status status = kvc::bad::right().lookup_cancel(s, request);
    return status == KVC_E_ARG && s != nullptr ? kvc_status{KVC_OK} : status;
  };
}
