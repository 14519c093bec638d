// A bad connector is the right one with one thing changed: its table is libkvc_simple_cpu.so's, and
// `spoil` replaces the slots that are to be wrong. Each source of connectors/ breaks one rule,
// which manifest.def names.
#pragma once
#include <kvc/kvc_util.h>

#include <cstdint>
#include <vector>

namespace kvc::bad {

// The right connector's table, complete; the libraries of this folder share nothing else.
const kvc_plugin_api& right();

// Defined by each bad connector: changes the slots of a copy of right().
void spoil(kvc_plugin_api& table);

// The right connector's table of an extension.
template <class T>
const T& right_extension(const char* id) {
  return *static_cast<const T*>(right().extension(kvc_text_of(id)));
}
// From now on `mine` is in place of that table; one extension a library.
void replace_extension(kvc_plugin_api& table, const char* id, const void* mine);

// Room for copies from the load of the library on, so that no call uses the heap for them.
template <class T>
inline std::vector<T> kept = [] {
  std::vector<T> room;
  room.reserve(1U << 14U);
  return room;
}();

// A copy of a list's elements that stays until the next call for the same type, to be changed and
// put out instead. T has no strides in it: the right connector's own structs.
template <class T>
std::vector<T>& copy_of(const kvc_list& list) {
  const T* const data = static_cast<const T*>(list.data);
  kept<T>.assign(data, data + list.count);
  return kept<T>;
}
template <class T>
kvc_list list_of(const std::vector<T>& elements) {
  return kvc_list_of(elements.data(), elements.size(), sizeof(T));
}

}  // namespace kvc::bad
