// The functions of the layer's table, one per slot and of the slot's name.
#pragma once
#include <string_view>
#include <type_traits>

#include <kvc/kvc.h>

namespace kvc::validate::slots {

#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  std::remove_pointer_t<decltype(kvc_plugin_api::slot)> slot;
#include <kvc/kvc_calls.def>

}  // namespace kvc::validate::slots

namespace kvc::validate {

// What stands before the connector's table of the extension `id`, which it has: one that checks, or
// that table itself where the layer knows nothing of it.
[[nodiscard]] const void* checked_extension(std::string_view id, const void* table);

}  // namespace kvc::validate
