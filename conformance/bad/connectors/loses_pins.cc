// Answers pins as it should, and holds nothing.
#include <kvc/kvc_hints.h>

#include "conformance/bad/hints.h"
#include "conformance/bad/wrapped.h"

using kvc::bad::right_hints;

namespace {

kvc_status pin(kvc_sched* s, const kvc_pin_in* in, kvc_pin_out* out) noexcept {
  const kvc_status status = right_hints().pin(s, in, out);
  if (status == KVC_OK && out->pin != 0) static_cast<void>(right_hints().unpin(s, out->pin));
  return status;
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) { spoil_hints(table, &kvc_hints_api::pin, pin); }
