// Takes any bytes for a plan.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.submit_stores = [](kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
    const kvc_status status = kvc::bad::right().submit_stores(r, plan, fence);
    const bool fenced = fence != nullptr && fence->kind == KVC_FENCE_NONE;
    return status == KVC_E_ARG && fenced ? kvc_status{KVC_OK} : status;
  };
}
