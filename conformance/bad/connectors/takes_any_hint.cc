// Takes every hint, also those that it cannot.
#include <kvc/kvc_hints.h>

#include "conformance/bad/hints.h"
#include "conformance/bad/wrapped.h"

using kvc::bad::right_hints;

namespace {

kvc_status hint(kvc_sched* s, const kvc_hint_in* in) noexcept {
  static_cast<void>(right_hints().hint(s, in));
  return KVC_OK;
}

kvc_hints_api wrong(kvc_hints_api table) {
  table.hint = hint;
  return table;
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  static const kvc_hints_api mine = wrong(right_hints());
  replace_extension(table, KVC_HINTS_EXTENSION, &mine);
}
