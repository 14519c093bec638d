// The extension "kvc.layerwise/1" (kvc_layerwise.h).
#pragma once
#include <string_view>

namespace kvc::edge {

// The table of extension `id`, or NULL: another id.
[[nodiscard]] const void* layerwise_extension(std::string_view id);

}  // namespace kvc::edge
