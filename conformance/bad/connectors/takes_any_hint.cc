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

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) { spoil_hints(table, &kvc_hints_api::hint, hint); }
