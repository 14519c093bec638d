/* What abidw sees: one exported function per public struct and per named group of constants, since
 * codes travel as int32_t and would not show otherwise. abi/freeze.sh compiles it with -g and
 * the header pinned to a released minor, and compares the result with that release's dump. */
#include <kvc/kvc.h>

#define KVC_TYPE(type, last)                 \
  KVC_EXPORT void abi_probe_##type(type* p); \
  void abi_probe_##type(type* p) { (void)p; }
#include "abi/layout_items.def"

KVC_EXPORT void abi_probe_entry(kvc_plugin_entry_fn entry);
void abi_probe_entry(kvc_plugin_entry_fn entry) { (void)entry; }

/* Groups of constants; every one of abi/layout_items.def is in one. */
#define KVC_VALUE(name) probe_##name = (int)(int64_t)(name)
#define KVC_VALUES(group, ...)                           \
  enum probe_##group{__VA_ARGS__};                       \
  KVC_EXPORT void abi_probe_##group(enum probe_##group); \
  void abi_probe_##group(enum probe_##group value) { (void)value; }

KVC_VALUES(limits, KVC_VALUE(KVC_MAJOR), KVC_VALUE(KVC_NO_LIMIT), KVC_VALUE(KVC_KEY_BYTES_MIN),
           KVC_VALUE(KVC_KEY_BYTES_MAX), KVC_VALUE(KVC_GROUPS_MAX))
KVC_VALUES(status, KVC_VALUE(KVC_OK), KVC_VALUE(KVC_MORE), KVC_VALUE(KVC_LATER),
           KVC_VALUE(KVC_E_ARG), KVC_VALUE(KVC_E_STATE), KVC_VALUE(KVC_E_ROOM),
           KVC_VALUE(KVC_E_UNSUPPORTED), KVC_VALUE(KVC_E_FULL), KVC_VALUE(KVC_E_IO),
           KVC_VALUE(KVC_E_CANCELLED), KVC_VALUE(KVC_E_DEADLINE), KVC_VALUE(KVC_E_INTERNAL))
KVC_VALUES(group_kind, KVC_VALUE(KVC_GROUP_FULL), KVC_VALUE(KVC_GROUP_SLIDING),
           KVC_VALUE(KVC_GROUP_CHUNKED), KVC_VALUE(KVC_GROUP_STATE), KVC_VALUE(KVC_GROUP_OTHER))
KVC_VALUES(group_caps, KVC_VALUE(KVC_GROUP_CAP_CACHEABLE), KVC_VALUE(KVC_GROUP_CAP_POSITION_STABLE),
           KVC_VALUE(KVC_GROUP_CAP_FINE_LOOKUP), KVC_VALUE(KVC_GROUP_CAP_STATE),
           KVC_VALUE(KVC_GROUP_CAP_SHARDED), KVC_VALUE(KVC_GROUP_CAP_DRAFT),
           KVC_VALUE(KVC_GROUP_CAP_RESUME_INSIDE_BLOCK), KVC_VALUE(KVC_GROUP_CAPS_ALL))
KVC_VALUES(open_flags, KVC_VALUE(KVC_OPEN_DRAFT_DROP), KVC_VALUE(KVC_OPEN_RANDOM_ROOT),
           KVC_VALUE(KVC_OPEN_FLAGS_ALL))
KVC_VALUES(log, KVC_VALUE(KVC_LOG_DEBUG), KVC_VALUE(KVC_LOG_INFO), KVC_VALUE(KVC_LOG_WARN),
           KVC_VALUE(KVC_LOG_ERROR), KVC_VALUE(KVC_LOG_PEER_FAULT))
KVC_VALUES(host_caps, KVC_VALUE(KVC_HOST_STEPPED), KVC_VALUE(KVC_HOST_BLOCK_QUERY),
           KVC_VALUE(KVC_HOST_RANK_VERDICTS), KVC_VALUE(KVC_HOST_NO_DEVICE_CACHE))
KVC_VALUES(request_flags, KVC_VALUE(KVC_REQUEST_NO_READ), KVC_VALUE(KVC_REQUEST_NO_WRITE),
           KVC_VALUE(KVC_REQUEST_FLAGS_ALL))
KVC_VALUES(why, KVC_VALUE(KVC_WHY_NONE), KVC_VALUE(KVC_WHY_MISS),
           KVC_VALUE(KVC_WHY_LOCAL_UNALIGNED), KVC_VALUE(KVC_WHY_NO_RANKS),
           KVC_VALUE(KVC_WHY_NO_READ), KVC_VALUE(KVC_WHY_LOAD_FAILED), KVC_VALUE(KVC_WHY_RESET),
           KVC_VALUE(KVC_WHY_COST_GATE), KVC_VALUE(KVC_WHY_ATTACHED),
           KVC_VALUE(KVC_WHY_NOT_TRACKED))
KVC_VALUES(medium, KVC_VALUE(KVC_MEDIUM_HOST), KVC_VALUE(KVC_MEDIUM_DISK),
           KVC_VALUE(KVC_MEDIUM_REMOTE))
KVC_VALUES(step_flags, KVC_VALUE(KVC_STEP_RESUMED), KVC_VALUE(KVC_STEP_FLAGS_ALL))
KVC_VALUES(job, KVC_VALUE(KVC_JOB_LOAD), KVC_VALUE(KVC_JOB_STORE))
KVC_VALUES(side, KVC_VALUE(KVC_SIDE_SOURCE), KVC_VALUE(KVC_SIDE_DESTINATION))
KVC_VALUES(end, KVC_VALUE(KVC_END_STOP), KVC_VALUE(KVC_END_LENGTH), KVC_VALUE(KVC_END_ABORT),
           KVC_VALUE(KVC_END_ERROR))
KVC_VALUES(event, KVC_VALUE(KVC_EVENT_STORED), KVC_VALUE(KVC_EVENT_REMOVED),
           KVC_VALUE(KVC_EVENT_CLEARED))
KVC_VALUES(reset_flags, KVC_VALUE(KVC_RESET_INVALIDATE))
KVC_VALUES(device, KVC_VALUE(KVC_DEVICE_HOST), KVC_VALUE(KVC_DEVICE_CUDA))
KVC_VALUES(fence, KVC_VALUE(KVC_FENCE_NONE), KVC_VALUE(KVC_FENCE_CUDA_EVENT),
           KVC_VALUE(KVC_FENCE_CUDA_STREAM), KVC_VALUE(KVC_FENCE_COUNTER))
KVC_VALUES(plugin_caps, KVC_VALUE(KVC_CAP_STEPPED), KVC_VALUE(KVC_CAP_FINE_HITS),
           KVC_VALUE(KVC_CAP_STATES), KVC_VALUE(KVC_CAP_EVENTS), KVC_VALUE(KVC_CAP_CANDIDATES),
           KVC_VALUE(KVC_CAP_PERSISTENT))

/* None of the list is missing above. KVC_MINOR alone is left out: it changes with every minor. */
enum {
  probe_KVC_MINOR,
#define KVC_CONST(name) listed_##name = probe_##name,
#include "abi/layout_items.def"
  listed
};
