// Ignores KVC_REQUEST_NO_READ.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.request_begin = [](kvc_sched* s, const kvc_request* request) noexcept {
    if (request == nullptr || request->struct_size != sizeof *request) {
      return kvc::bad::right().request_begin(s, request);
    }
    kvc_request reading = *request;
    reading.flags &= ~KVC_REQUEST_NO_READ;
    return kvc::bad::right().request_begin(s, &reading);
  };
}
