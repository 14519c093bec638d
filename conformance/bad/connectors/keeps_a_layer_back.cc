// Is never done with handing over the copies of the second layer.
#include "conformance/bad/layers.h"

namespace {

kvc_status layer_fence(kvc_rank* r, uint64_t step, uint32_t layer, kvc_fence* out) noexcept {
  const kvc_status status = kvc::bad::right_layers().layer_fence(r, step, layer, out);
  return status == KVC_OK && layer == 1 ? kvc_status{KVC_LATER} : status;
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  static const kvc_layerwise_api mine{sizeof mine, 0, kvc::bad::right_layers().load_in_step,
                                      layer_fence};
  kvc::bad::replace_extension(table, KVC_LAYERWISE_EXTENSION, &mine);
}
