// Answers a device prefix inside a block as a miss.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    const kvc_status status = kvc::bad::right().lookup(s, in, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_lookup_out, why) &&
        out->why == KVC_WHY_LOCAL_UNALIGNED) {
      out->why = KVC_WHY_MISS;
    }
    return status;
  };
}
