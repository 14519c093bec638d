// Ignores flags that it does not know.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    if (in == nullptr || in->struct_size < sizeof *in) return kvc::bad::right().lookup(s, in, out);
    kvc_lookup_in known = *in;
    known.struct_size = sizeof known;
    known.flags = 0;
    return in->struct_size > sizeof *in ? kvc::bad::right().lookup(s, in, out)
                                        : kvc::bad::right().lookup(s, &known, out);
  };
}
