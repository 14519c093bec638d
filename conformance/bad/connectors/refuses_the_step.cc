// Refuses a whole step for one bad element.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    const auto bad_offers = [s] {
      kvc_boundary_stats stats{};
      stats.struct_size = sizeof stats;
      kvc::bad::right().boundary_stats(s, &stats);
      return stats.all_offers.dropped_bad_offer;
    };
    const uint64_t before = bad_offers();
    const kvc_status status = kvc::bad::right().build_store_jobs(s, step, out);
    return status == KVC_OK && bad_offers() != before ? kvc_status{KVC_E_ARG} : status;
  };
}
