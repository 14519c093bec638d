// A connector that does nothing, built several times, each time breaking one rule of loading.
#include <cstddef>
#include <cstring>

#include <kvc/kvc.h>

namespace {

template <class... Args>
kvc_status nothing(Args...) noexcept {
  return KVC_E_UNSUPPORTED;
}
template <class... Args>
void closed(Args...) noexcept {}
template <class... Args>
const void* no_extension(Args...) noexcept {
  return nullptr;
}

kvc_status describe(kvc_description* out) noexcept {
  static const unsigned char name[] = "hand_made";
  static const unsigned char version[] = "1";
  out->name = {name, sizeof name - 1};
  out->version = {version, sizeof version - 1};
  out->build_id = {version, 0};
  return KVC_OK;
}

[[maybe_unused]] kvc_status fill(kvc_plugin_api* out) noexcept {
  kvc_plugin_api t{};
  t.struct_size = sizeof t;
  t.describe = describe;
  t.open_scheduler = nothing;
  t.open_rank = nothing;
  t.close_scheduler = closed;
  t.close_rank = closed;
  t.last_error_scheduler = nothing;
  t.last_error_rank = nothing;
  t.set_ranks = nothing;
  t.request_begin = nothing;
  t.request_extend = nothing;
  t.lookup = nothing;
  t.lookup_cancel = nothing;
  t.alloc_update = nothing;
  t.build_store_jobs = nothing;
  t.complete = nothing;
  t.request_end = nothing;
  t.boundary_stats = nothing;
  t.stats = nothing;
  t.has_pending = nothing;
  t.explain = nothing;
  t.take_log_scheduler = nothing;
  t.take_log_rank = nothing;
  t.reset = nothing;
  t.register_regions = nothing;
  t.submit_loads = nothing;
  t.submit_stores = nothing;
  t.progress = nothing;
  t.wait = nothing;
  t.extension = no_extension;
#if defined(KVC_FAULT_SMALL_TABLE)
  t.struct_size = offsetof(kvc_plugin_api, progress);
#elif defined(KVC_FAULT_NULL_SLOT)
  t.complete = nullptr;
#elif defined(KVC_FAULT_EMPTY_CAPABILITY)
  t.caps = KVC_CAP_STEPPED;
#elif defined(KVC_FAULT_SILENT)
  t.describe = [](kvc_description*) noexcept -> kvc_status { return KVC_E_ARG; };
#endif
  std::memcpy(out, &t, t.struct_size);
#if defined(KVC_FAULT_BEYOND_ROOM)
  out->struct_size += 8;
#endif
  return KVC_OK;
}

}  // namespace

#if defined(KVC_FAULT_NO_SYMBOL)
extern "C" KVC_EXPORT int kvc_something_else() { return 0; }
#elif defined(KVC_FAULT_OTHER_MAJOR)
extern "C" KVC_EXPORT kvc_status kvc_plugin_entry_v2(uint32_t, kvc_plugin_api* out) noexcept {
  return fill(out);
}
#elif defined(KVC_FAULT_REFUSES)
kvc_status kvc_plugin_entry_v1(uint32_t, kvc_plugin_api*) noexcept { return KVC_E_UNSUPPORTED; }
#else
kvc_status kvc_plugin_entry_v1(uint32_t, kvc_plugin_api* out) noexcept { return fill(out); }
#endif
