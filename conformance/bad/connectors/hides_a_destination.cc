// Does not list the last block that a load writes.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.alloc_update = [](kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) noexcept {
    const kvc_status status = kvc::bad::right().alloc_update(s, in, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_alloc_out, held) && out->held.count != 0) {
      --out->held.count;
    }
    return status;
  };
}
