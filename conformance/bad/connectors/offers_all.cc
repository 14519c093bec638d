// Offers more than the engine's cap.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    if (in == nullptr || in->struct_size != sizeof *in) return kvc::bad::right().lookup(s, in, out);
    kvc_lookup_in uncapped = *in;
    uncapped.external_cap_tokens = KVC_NO_LIMIT;
    return kvc::bad::right().lookup(s, &uncapped, out);
  };
}
