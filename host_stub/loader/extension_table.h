// A connector's table of an extension, as far as its caller may use it.
#pragma once
#include <kvc/kvc_util.h>

#include <cstddef>

namespace kvc::host {

// Whether the writer of the table knew this function of it (KVC_HAS) and has it.
template <class Table, class Function>
[[nodiscard]] bool has_function(const Table& table, Function Table::*function) {
  const auto* const begin = reinterpret_cast<const char*>(&table);
  const auto* const end = reinterpret_cast<const char*>(&(table.*function) + 1);
  return table.struct_size >= static_cast<std::size_t>(end - begin) && table.*function != nullptr;
}

// The connector's table of the extension `id`, whose major stands in the id, if it has one with all
// of these functions in it; NULL: it has not. The table is the connector's and stays as long as
// its library is loaded. Any thread; asks the connector each time.
// Requires: api.extension is not NULL, as in every table that load_connector took.
template <class Table, class... Function>
[[nodiscard]] const Table* extension_table(const kvc_plugin_api& api, const char* id,
                                           Function Table::*... functions) {
  const auto* const table = static_cast<const Table*>(api.extension(kvc_text_of(id)));
  return table != nullptr && (has_function(*table, functions) && ...) ? table : nullptr;
}

}  // namespace kvc::host
