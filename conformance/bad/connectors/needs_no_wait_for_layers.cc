// Says of every layer of a load in step that it is there.
#include "conformance/bad/layers.h"

namespace {

kvc_status layer_fence(kvc_rank* r, uint64_t step, uint32_t layer, kvc_fence* out) noexcept {
  const kvc_status status = kvc::bad::right_layers().layer_fence(r, step, layer, out);
  if (status < 0) return status;
  kvc_fence none{};
  none.struct_size = sizeof none;
  return KVC_WRITE(out, &none);
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  static const kvc_layerwise_api mine{sizeof mine, 0, kvc::bad::right_layers().load_in_step,
                                      layer_fence};
  kvc::bad::replace_extension(table, KVC_LAYERWISE_EXTENSION, &mine);
}
