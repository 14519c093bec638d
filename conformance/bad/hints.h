// For bad connectors of kvc.hints/1: the right one's table, to be copied with a function changed.
#pragma once
#include <kvc/kvc_hints.h>

#include "conformance/bad/wrapped.h"

namespace kvc::bad {

inline const kvc_hints_api& right_hints() {
  static const auto& table = right_extension<kvc_hints_api>(KVC_HINTS_EXTENSION);
  return table;
}

}  // namespace kvc::bad
