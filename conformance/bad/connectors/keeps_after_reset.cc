// Forgets nothing at a reset.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.reset = [](kvc_sched* s, uint64_t flags) noexcept {
    (void)s;
    return kvc_status{(flags & ~uint64_t{KVC_RESET_INVALIDATE}) == 0 ? KVC_OK : KVC_E_UNSUPPORTED};
  };
}
