// Steps lists by the size that it knows, not by their stride.
#include "conformance/bad/wrapped.h"

namespace {

template <class T>
void pack(kvc_list& list) {
  const auto* const first = static_cast<const T*>(list.data);
  if (first != nullptr && list.stride > sizeof(T) && first->struct_size == sizeof(T)) {
    list.stride = sizeof(T);
  }
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.open_scheduler = [](const kvc_host_api* host, const kvc_open* open,
                            kvc_sched** out) noexcept {
    if (open == nullptr || open->struct_size != sizeof *open) {
      return kvc::bad::right().open_scheduler(host, open, out);
    }
    kvc_open packed = *open;
    pack<kvc_group>(packed.groups);
    return kvc::bad::right().open_scheduler(host, &packed, out);
  };
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    if (step == nullptr || step->struct_size != sizeof *step) {
      return kvc::bad::right().build_store_jobs(s, step, out);
    }
    kvc_step packed = *step;
    pack<kvc_step_request>(packed.scheduled);
    pack<kvc_handoff>(packed.handoffs);
    return kvc::bad::right().build_store_jobs(s, &packed, out);
  };
}
