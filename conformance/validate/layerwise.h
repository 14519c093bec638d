// kvc.layerwise/1 through the layer.
#pragma once
#include <kvc/kvc.h>

namespace kvc::validate {

// The layer's table of the extension before that of the connector behind it; NULL: it has none.
const void* layerwise_before(const void* next);

}  // namespace kvc::validate
