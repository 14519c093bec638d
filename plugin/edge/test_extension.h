// Fault points through the table, for tests.
#pragma once
#include <cstdint>
#include <string_view>

namespace kvc::edge {

// The table of extension `id`, or NULL: another id, or a build without fault points.
[[nodiscard]] const void* test_extension(std::string_view id);

// What kvc_test_api.set_copy_order set last; 0 in a build without fault points.
[[nodiscard]] std::uint64_t copy_order_seed();

}  // namespace kvc::edge
