// For bad connectors of kvc.layerwise/1: the right one's table, to be copied with a function
// changed.
#pragma once
#include <kvc/kvc_layerwise.h>

#include "conformance/bad/wrapped.h"

namespace kvc::bad {

inline const kvc_layerwise_api& right_layers() {
  static const auto& table = right_extension<kvc_layerwise_api>(KVC_LAYERWISE_EXTENSION);
  return table;
}

}  // namespace kvc::bad
