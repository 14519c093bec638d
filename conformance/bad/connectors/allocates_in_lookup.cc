// Uses the heap in lookup.
#include <cstdlib>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    void* volatile p = std::malloc(64);
    std::free(p);
    return kvc::bad::right().lookup(s, in, out);
  };
}
