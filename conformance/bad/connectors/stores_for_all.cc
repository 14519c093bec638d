// Ignores KVC_REQUEST_NO_WRITE and store limits.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.request_begin = [](kvc_sched* s, const kvc_request* request) noexcept {
    if (request == nullptr || request->struct_size != sizeof *request) {
      return kvc::bad::right().request_begin(s, request);
    }
    kvc_request writing = *request;
    writing.flags &= ~KVC_REQUEST_NO_WRITE;
    writing.store_limit_tokens = KVC_NO_LIMIT;
    return kvc::bad::right().request_begin(s, &writing);
  };
}
