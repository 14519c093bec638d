/* The extension "kvc.layerwise/1": loads that the forward of the same step reads layer by layer.
 *
 * In kvc.h a load is asynchronous: its request is not scheduled before it has ended. With this
 * extension an engine may schedule the request in the step whose plan has the load, and waits for
 * each layer where its forward comes to it: layer 0 is computed while layer 1 is still loaded. An
 * engine that does not use it, or does not use it for a load, loses nothing. docs/layerwise.md
 * tells how an engine goes about it. */
#ifndef KVC_KVC_LAYERWISE_H_
#define KVC_KVC_LAYERWISE_H_

#include <kvc/kvc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_LAYERWISE_EXTENSION "kvc.layerwise/1"

typedef struct kvc_load_in_step {
  uint32_t struct_size;
  uint32_t flags; /* none in version 1 */
  uint64_t request;
  kvc_job job; /* what alloc_update of this request answered */
} kvc_load_in_step;

/* Layers are the numbers of kvc_region.layer; an engine that uses this numbers them in the order in
 * which its forward comes to them. Several regions may have one number.
 *
 * From the plan of a load in step to its verdict,
 * - the request's confirmed tokens are those that the device had (kvc.h: what is confirmed can be
 *   taken back by nothing), so that nothing that came of the load is stored before every rank has
 *   loaded all of it; no hand-off and no candidate names such a state or block either;
 * - what the engine's forward computed from it is not given to anybody: no output token, no block
 *   of its own cache;
 * - a layer of the destinations is neither read nor written before its fence is reached.
 * Meanwhile the request may stand in further records, with the same confirmed tokens. A load in
 * step has one verdict, as all have. If that is not KVC_OK, the request is recomputed, as after any
 * failed load; as it was scheduled, it is preempted by that: the next record names it so, or a
 * lookup before it, and it comes back with KVC_STEP_RESUMED. */
typedef struct kvc_layerwise_api {
  uint32_t struct_size;
  uint32_t reserved0;

  /* [sched] +nowait +noalloc
     Between the alloc_update that answered the job and the next build_store_jobs. KVC_OK: the job
     is in the plan of that step, no job of this plan or of a later one writes what it reads, and
     the record of that step may name the request. KVC_LATER: that cannot be promised (it reads from
     a slower tier, has no copies, or the plan has no room): the load stays an asynchronous one.
     On failure: KVC_E_ARG: unknown id, not the open load of the request; KVC_E_STATE: it was
     planned already; KVC_E_UNSUPPORTED: flags. */
  kvc_status (*load_in_step)(kvc_sched *s, const kvc_load_in_step *in) KVC_NOTHROW;

  /* [rank] +nowait +noalloc
     After submit_loads of that step: what a forward waits for before it touches `layer` of the
     destinations of the loads in step of plan `step`. Reached when their copies have ended, well or
     not: the verdict tells which.
     - KVC_FENCE_NONE: they have; or nothing of the layer is loaded in step.
     - KVC_FENCE_COUNTER: the counter is the rank's, readable until close_rank, and reached as every
       counter. Under KVC_HOST_STEPPED pump_rank gets it there.
     - KVC_FENCE_CUDA_EVENT: an event of the rank's device, to be waited for by a stream
       (cuStreamWaitEvent) or the host before the next submit_loads of this rank; behind that it may
       stand for something else.
     KVC_LATER: some of the copies are not with the device yet, as its queue is full or a counter
     fence is not reached: ask again. Costs the same however many jobs are open.
     On failure: KVC_E_STATE: loads of that step were not submitted. */
  kvc_status (*layer_fence)(kvc_rank *r, uint64_t step, uint32_t layer, kvc_fence *out) KVC_NOTHROW;
} kvc_layerwise_api;

KVC_ASSERT(sizeof(kvc_load_in_step) == 24);
KVC_ASSERT(sizeof(kvc_layerwise_api) == 24);

#ifdef __cplusplus
}
#endif
#endif /* KVC_KVC_LAYERWISE_H_ */
