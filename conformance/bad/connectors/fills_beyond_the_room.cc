// Fills its whole table, however little room the host has.
#include <cstring>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api&) {}

kvc_status kvc_plugin_entry_v1(uint32_t, kvc_plugin_api* out) noexcept {
  if (out == nullptr || out->struct_size < 16) return KVC_E_ARG;
  std::memcpy(out, &kvc::bad::right(), sizeof(kvc_plugin_api));
  return KVC_OK;
}
