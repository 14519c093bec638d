// What of a connector the engine can use to run requests in the step of their load.
#pragma once
#include <kvc/kvc_layerwise.h>

#include "host_stub/loader/extension_table.h"
#include "host_stub/loader/loader.h"

namespace kvc::host {

// The connector's kvc.layerwise/1; NULL where it, or one of its functions, is absent.
[[nodiscard]] inline const kvc_layerwise_api* layerwise_table(const LoadedConnector& connector) {
  return extension_table(connector.api, KVC_LAYERWISE_EXTENSION, &kvc_layerwise_api::load_in_step,
                         &kvc_layerwise_api::layer_fence);
}

}  // namespace kvc::host
