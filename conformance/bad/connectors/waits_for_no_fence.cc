// Reads its sources before the fence is reached.
#include "conformance/bad/wrapped.h"

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.submit_stores = [](kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
    kvc_fence none{};
    none.struct_size = sizeof none;
    const bool right = fence == nullptr || fence->struct_size < sizeof none ||
                       fence->kind != KVC_FENCE_COUNTER || fence->counter == nullptr ||
                       reinterpret_cast<uintptr_t>(fence->counter) % 8 != 0;
    return kvc::bad::right().submit_stores(r, plan, right ? fence : &none);
  };
}
