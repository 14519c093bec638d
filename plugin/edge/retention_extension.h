// The extension "kvc.retention/1" (kvc_retention.h).
#pragma once
#include <string_view>

namespace kvc::edge {

// The table of extension `id`, or NULL: another id.
[[nodiscard]] const void* retention_extension(std::string_view id);

}  // namespace kvc::edge
