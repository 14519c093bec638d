// Says that nothing is open.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.has_pending = [](const kvc_sched* s, kvc_pending* out) noexcept {
    const kvc_status status = kvc::bad::right().has_pending(s, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_pending, held_blocks)) {
      out->load_jobs = out->store_jobs = out->held_blocks = 0;
    }
    return status;
  };
}
