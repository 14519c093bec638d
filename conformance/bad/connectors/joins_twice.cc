// Takes a second set_ranks.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.set_ranks = [](kvc_sched* s, const kvc_list* ranks, kvc_list* usable) noexcept {
    const kvc_status status = kvc::bad::right().set_ranks(s, ranks, usable);
    return status == KVC_E_STATE ? kvc_status{KVC_OK} : status;
  };
}
