// Serves hosts of its own minor only.
#include <cstddef>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api&) {}

kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api* out) noexcept {
  if (host_minor != KVC_MINOR) return KVC_E_UNSUPPORTED;
  return kvc_write(out, &kvc::bad::right(), sizeof(kvc_plugin_api),
                   offsetof(kvc_plugin_api, describe));
}
