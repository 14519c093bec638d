// The functions of the layer's table, one per slot and of the slot's name.
#pragma once
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <kvc/kvc_util.h>

namespace kvc::validate::slots {

#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  std::remove_pointer_t<decltype(kvc_plugin_api::slot)> slot;
#include <kvc/kvc_calls.def>

}  // namespace kvc::validate::slots

namespace kvc::validate {

// The connector's table of the extension, if it has one and the function in it; NULL: it has not.
template <class Table, class Function>
const Table* table_of(const kvc_plugin_api& api, const char* id, Function Table::*function) {
  const auto* const table = static_cast<const Table*>(api.extension(kvc_text_of(id)));
  if (table == nullptr) return nullptr;
  const auto* const begin = reinterpret_cast<const char*>(table);
  const auto* const end = reinterpret_cast<const char*>(&(table->*function) + 1);
  const bool there = table->struct_size >= static_cast<std::size_t>(end - begin);
  return there && table->*function != nullptr ? table : nullptr;
}

// What stands before the connector's table of the extension `id`, which it has: one that checks, or
// that table itself where the layer knows nothing of it.
[[nodiscard]] const void* checked_extension(std::string_view id, const void* table);

}  // namespace kvc::validate
