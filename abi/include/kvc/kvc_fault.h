/* The extension "kvc.test/1": how tests make a connector fail on purpose. Only builds with
 * KVC_FAULT_POINTS have it; elsewhere kvc_plugin_api.extension answers NULL. Not part of the frozen
 * line. */
#ifndef KVC_KVC_FAULT_H_
#define KVC_KVC_FAULT_H_

#include <kvc/kvc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_TEST_EXTENSION "kvc.test/1"

typedef struct kvc_test_api {
  uint32_t struct_size;
  uint32_t reserved0;

  /* [any] Fault point `name` fails at its countdown-th visit from now on (0: the next one), in the
     whole process. An empty name: the countdown-th visit of any point. KVC_E_ARG: no text. The
     points are listed in docs/testing.md. */
  kvc_status (*set_fault)(kvc_bytes name, uint64_t countdown) KVC_NOTHROW;

  /* [any] Disarms everything and forgets all counts. */
  void (*clear_faults)(void) KVC_NOTHROW;

  /* [any] 1 if an armed point fired since it was armed. */
  int32_t (*tripped)(void) KVC_NOTHROW;

  /* [any] Visits of a point since the last clear_faults. */
  uint64_t (*visits)(kvc_bytes name) KVC_NOTHROW;

  /* [sched] Slow check of the whole structure: the text is empty if every invariant holds. Sized
     and copied as by the pure queries. */
  kvc_status (*verify)(const kvc_sched *s, char *buf, uint64_t cap, uint64_t *needed) KVC_NOTHROW;

  /* [any] Ranks opened from now on under KVC_HOST_STEPPED work on ready copies in an order drawn
     from the seed; 0 (the state at load): loads first, each kind in the order of submission. */
  void (*set_copy_order)(uint64_t seed) KVC_NOTHROW;
} kvc_test_api;

#ifdef __cplusplus
}
#endif
#endif /* KVC_KVC_FAULT_H_ */
