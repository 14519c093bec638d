// Reports every load of a rank twice.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.progress = [](kvc_rank* r, kvc_progress* out) noexcept {
    const kvc_status status = kvc::bad::right().progress(r, out);
    if (status != KVC_OK || !KVC_HAS(out, kvc_progress, loads)) return status;
    auto& loads = kvc::bad::copy_of<kvc_load_done>(out->loads);
    const std::vector<kvc_load_done> once = loads;
    loads.insert(loads.end(), once.begin(), once.end());
    out->loads = kvc::bad::list_of(loads);
    return status;
  };
}
