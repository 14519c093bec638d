// Has counters that fall.
#include <atomic>

#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.stats = [](const kvc_sched* s, void* out, uint32_t stride, uint64_t cap,
                   uint64_t* needed) noexcept {
    static std::atomic<uint64_t> less{1000000};
    const kvc_status status = kvc::bad::right().stats(s, out, stride, cap, needed);
    if (status != KVC_OK || out == nullptr || *needed == 0 || cap == 0) return status;
    static_cast<kvc_stat*>(out)->value = less.fetch_sub(1);
    return status;
  };
}
