// Counts layers from 1: who waits for a layer waits for the one before it.
#include "conformance/bad/layers.h"

namespace {

kvc_status layer_fence(kvc_rank* r, uint64_t step, uint32_t layer, kvc_fence* out) noexcept {
  return kvc::bad::right_layers().layer_fence(r, step, layer == 0 ? 0 : layer - 1, out);
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  static const kvc_layerwise_api mine{sizeof mine, 0, kvc::bad::right_layers().load_in_step,
                                      layer_fence};
  kvc::bad::replace_extension(table, KVC_LAYERWISE_EXTENSION, &mine);
}
