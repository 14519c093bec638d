// The entry of bad connectors whose entry is right.
#include <cstddef>

#include "conformance/bad/wrapped.h"

kvc_status kvc_plugin_entry_v1(uint32_t, kvc_plugin_api* out) noexcept {
  static const kvc_plugin_api table = [] {
    kvc_plugin_api t = kvc::bad::right();
    kvc::bad::spoil(t);
    return t;
  }();
  return kvc_write(out, &table, sizeof table, offsetof(kvc_plugin_api, describe));
}
