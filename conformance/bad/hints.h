// For bad connectors of kvc.hints/1: the right one's table, and that with one function changed.
#pragma once
#include <kvc/kvc_hints.h>

#include "conformance/bad/wrapped.h"

namespace kvc::bad {

inline const kvc_hints_api& right_hints() {
  static const auto& table = right_extension<kvc_hints_api>(KVC_HINTS_EXTENSION);
  return table;
}

// `table` answers with the right one's hints, but for `function`, which is `mine`. Once a library.
template <class Function>
void spoil_hints(kvc_plugin_api& table, Function kvc_hints_api::*function, Function mine) {
  static kvc_hints_api wrong = right_hints();
  wrong.*function = mine;
  replace_extension(table, KVC_HINTS_EXTENSION, &wrong);
}

}  // namespace kvc::bad
