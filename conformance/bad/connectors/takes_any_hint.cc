// Takes every hint, also those that it cannot.
#include <kvc/kvc_hints.h>

#include "conformance/bad/wrapped.h"

namespace {

const kvc_hints_api& right_table() {
  return kvc::bad::right_extension<kvc_hints_api>(KVC_HINTS_EXTENSION);
}

kvc_status hint(kvc_sched* s, const kvc_hint_in* in) noexcept {
  static_cast<void>(right_table().hint(s, in));
  return KVC_OK;
}

kvc_hints_api wrong(kvc_hints_api table) {
  table.hint = hint;
  return table;
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  static const kvc_hints_api mine = wrong(right_table());
  replace_extension(table, KVC_HINTS_EXTENSION, &mine);
}
