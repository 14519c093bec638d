// Says at a request's end that nothing is held.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.request_end = [](kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
    const kvc_status status = kvc::bad::right().request_end(s, in, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_end_out, held)) out->held.count = 0;
    return status;
  };
}
