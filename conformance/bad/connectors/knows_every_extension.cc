// Has a table for every extension.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.extension = [](kvc_bytes) noexcept -> const void* {
    static const uint64_t empty = 0;
    return &empty;
  };
}
