// The extension "kvc.hints/1" (kvc_hints.h).
#pragma once
#include <string_view>

namespace kvc::edge {

// The table of extension `id`, or NULL: another id.
[[nodiscard]] const void* hints_extension(std::string_view id);

}  // namespace kvc::edge
