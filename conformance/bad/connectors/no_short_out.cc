// Writes a whole kvc_pending, however little room there is.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.has_pending = [](const kvc_sched* s, kvc_pending* out) noexcept {
    kvc_pending whole{};
    whole.struct_size = sizeof whole;
    const kvc_status status = kvc::bad::right().has_pending(s, &whole);
    if (out == nullptr || out->struct_size < sizeof whole.struct_size) return kvc_status{KVC_E_ARG};
    *out = whole;
    return status;
  };
}
