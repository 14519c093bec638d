// Refuses an engine that does not take the hit.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.alloc_update = [](kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) noexcept {
    const kvc_status status = kvc::bad::right().alloc_update(s, in, out);
    return status == KVC_OK && in->accepted_tokens == 0 ? kvc_status{KVC_E_STATE} : status;
  };
}
