// What of a connector the engine can use to run requests in the step of their load.
#pragma once
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_util.h>

#include "host_stub/loader/loader.h"

namespace kvc::host {

// The connector's kvc.layerwise/1; NULL where it, or one of its functions, is absent.
[[nodiscard]] inline const kvc_layerwise_api* layerwise_table(const LoadedConnector& connector) {
  const auto* const table = static_cast<const kvc_layerwise_api*>(
      connector.api.extension(kvc_text_of(KVC_LAYERWISE_EXTENSION)));
  const bool whole = table != nullptr && KVC_CAN(table, kvc_layerwise_api, load_in_step) &&
                     KVC_CAN(table, kvc_layerwise_api, layer_fence);
  return whole ? table : nullptr;
}

}  // namespace kvc::host
