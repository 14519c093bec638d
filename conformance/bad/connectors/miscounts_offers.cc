// Publishes one offer more than it has outcomes for.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.boundary_stats = [](const kvc_sched* s, kvc_boundary_stats* out) noexcept {
    const kvc_status status = kvc::bad::right().boundary_stats(s, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_boundary_stats, all_offers)) {
      ++out->all_offers.published;
    }
    return status;
  };
}
