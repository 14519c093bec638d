/* Connectors of other versions, and broken ones, for the compatibility matrix: the frozen sample
 * with one thing different each. */
#define kvc_plugin_entry_v1 frozen_entry
#include "connector.c"
#undef kvc_plugin_entry_v1

KVC_EXPORT kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api* out);
KVC_EXPORT kvc_status kvc_plugin_entry_v2(uint32_t host_minor, void* out);

#if defined(COMPAT_TRIM)
static kvc_status trim(kvc_sched* s, uint64_t bytes) {
  return s == NULL || bytes == 0 ? KVC_E_ARG : KVC_OK;
}
#endif

#if !defined(COMPAT_V2_ONLY)
kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api* out) {
  kvc_plugin_api mine;
  kvc_status s;
  KVC_CLEAR(&mine);
  s = frozen_entry(host_minor, &mine);
  if (s != KVC_OK) return s;
#if defined(COMPAT_TRIM) /* a slot more than 1.0 has */
  mine.caps |= KVC_CAP_TRIM;
  mine.trim = trim;
#elif defined(COMPAT_NULL_SLOT)
  mine.complete = NULL;
#elif defined(COMPAT_EMPTY_CAPABILITY)
  mine.caps |= KVC_CAP_STEPPED;
#endif
  s = kvc_write(out, &mine, sizeof mine, offsetof(kvc_plugin_api, describe));
#if defined(COMPAT_SHORT_TABLE)
  out->struct_size = offsetof(kvc_plugin_api, progress);
#elif defined(COMPAT_LONG_TABLE)
  out->struct_size = sizeof mine + 800;
#endif
  return s;
}
#endif

#if defined(COMPAT_V2) || defined(COMPAT_V2_ONLY)
kvc_status kvc_plugin_entry_v2(uint32_t host_minor, void* out) {
  (void)host_minor, (void)out;
  abort(); /* a host of major 1 does not call it */
}
#endif
