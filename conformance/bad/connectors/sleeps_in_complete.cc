// Sleeps in complete.
#include <unistd.h>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.complete = [](kvc_sched* s, const kvc_bytes* reports, uint64_t n,
                      kvc_complete_out* out) noexcept {
    ::usleep(1);
    return kvc::bad::right().complete(s, reports, n, out);
  };
}
