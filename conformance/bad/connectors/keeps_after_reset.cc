// Forgets nothing at a reset.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.reset = [](kvc_sched* s, uint64_t flags) noexcept {
    // An unknown flag, no handle and a poisoned handle are refused as ever.
    const kvc_status status = kvc::bad::right().reset(s, flags | uint64_t{1} << 63U);
    const bool known = (flags & ~uint64_t{KVC_RESET_INVALIDATE}) == 0;
    return status == KVC_E_UNSUPPORTED && known ? kvc_status{KVC_OK} : status;
  };
}
