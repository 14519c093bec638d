// Fault points through the table, for tests.
#pragma once
#include <string_view>

namespace kvc::edge {

// The table of extension `id`, or NULL: another id, or a build without fault points.
[[nodiscard]] const void* test_extension(std::string_view id);

}  // namespace kvc::edge
