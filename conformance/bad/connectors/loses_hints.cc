// Refuses hints as it should, and forgets those that it takes.
#include <kvc/kvc_hints.h>

#include "conformance/bad/hints.h"
#include "conformance/bad/wrapped.h"

using kvc::bad::right_hints;

namespace {

kvc_status hint(kvc_sched* s, const kvc_hint_in* in) noexcept {
  const kvc_status status = right_hints().hint(s, in);
  if (status != KVC_OK) return status;
  const kvc_hint_in none{sizeof none, 0, in->request, KVC_PRIORITY_NORMAL, 0, 0};
  return right_hints().hint(s, &none);
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) { spoil_hints(table, &kvc_hints_api::hint, hint); }
