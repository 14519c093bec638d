// Takes an id that it knows already.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.request_begin = [](kvc_sched* s, const kvc_request* request) noexcept {
    const kvc_status status = kvc::bad::right().request_begin(s, request);
    if (status != KVC_E_ARG || request == nullptr || request->struct_size != sizeof *request) {
      return status;
    }
    return kvc::bad::right().lookup_cancel(s, request->request) == KVC_OK ? kvc_status{KVC_OK}
                                                                          : status;
  };
}
