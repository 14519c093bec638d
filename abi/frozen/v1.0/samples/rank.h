/* The rank role of a connector that copies nothing: it checks what it is given. A connector that
 * stores copies in submit_stores and submit_loads, when their fence is reached, and says in
 * progress what ended. */
#ifndef KVC_DOCS_MINIMAL_RANK_H_
#define KVC_DOCS_MINIMAL_RANK_H_

#include "role.h"

struct kvc_rank {
  role role;
  uint64_t registered;
  uint64_t epoch;  /* of the first plan */
  uint64_t loads;  /* step of the last submit_loads */
  uint64_t stores; /* step of the last submit_stores */
};

static inline kvc_status check_regions(role* r, const kvc_list* regions) {
  uint64_t covered = 0;
  const kvc_status list = KVC_LIST_CHECK(kvc_region, regions);
  if (list != KVC_OK) return fail(r, list, "malformed list of regions", 0, 0);
  for (uint64_t i = 0; i < regions->count; ++i) {
    kvc_region g;
    uint64_t needed = 0;
    const kvc_status s = KVC_READ_AT(kvc_region, &g, regions, i);
    if (s != KVC_OK) return fail(r, s, "malformed region", i, 0);
    if (g.device_kind != KVC_DEVICE_HOST) {
      return fail(r, KVC_E_UNSUPPORTED, "region, device kind", i,
                  (uint64_t)(uint32_t)g.device_kind);
    }
    if (g.base == NULL || g.block_bytes == 0 || g.block_stride_bytes < g.block_bytes) {
      return fail(r, KVC_E_ARG, "stride, block bytes", g.block_stride_bytes, g.block_bytes);
    }
    if (g.size_bytes > UINT64_MAX - (uint64_t)(uintptr_t)g.base) {
      return fail(r, KVC_E_ARG, "region beyond the address space", i, g.size_bytes);
    }
    if (r->how.device_blocks != KVC_NO_LIMIT &&
        (!kvc_mul(r->how.device_blocks - 1, g.block_stride_bytes, &needed) ||
         !kvc_add(needed, g.block_bytes, &needed) || g.size_bytes < needed)) {
      return fail(r, KVC_E_ARG, "region bytes, needed", g.size_bytes, needed);
    }
    covered |= g.group_mask;
  }
  if ((r->cacheable & ~covered) != 0) {
    return fail(r, KVC_E_ARG, "groups without region: mask, covered", r->cacheable & ~covered,
                covered);
  }
  return KVC_OK;
}

/* *last: the step of the last plan of this kind. */
static inline kvc_status check_plan(kvc_rank* rank, kvc_bytes bytes, const kvc_fence* fence,
                                    uint64_t* last) {
  role* const r = &rank->role;
  plan_header plan;
  kvc_fence f;
  const kvc_status s = KVC_READ(kvc_fence, &f, fence);
  if (!rank->registered) return fail(r, KVC_E_STATE, "no regions are registered", 0, 0);
  if (s != KVC_OK) return fail(r, s, "malformed fence", 0, 0);
  if (f.kind != KVC_FENCE_NONE && f.kind != KVC_FENCE_COUNTER) {
    return fail(r, KVC_E_UNSUPPORTED, "fence kind", (uint64_t)(uint32_t)f.kind, 0);
  }
  if (f.kind == KVC_FENCE_COUNTER && (f.counter == NULL || (uintptr_t)f.counter % 8 != 0)) {
    return fail(r, KVC_E_ARG, "fence counter at", (uint64_t)(uintptr_t)f.counter, 8);
  }
  if (bytes.data == NULL || bytes.size != sizeof plan) {
    return fail(r, KVC_E_ARG, "bytes of a plan, expected", bytes.size, sizeof plan);
  }
  memcpy(&plan, bytes.data, sizeof plan);
  if (plan.magic != PLAN_MAGIC) return fail(r, KVC_E_ARG, "magic", plan.magic, PLAN_MAGIC);
  if (rank->epoch != 0 && plan.epoch != rank->epoch) {
    return fail(r, KVC_E_STATE, "a plan of another scheduler: epoch", plan.epoch, rank->epoch);
  }
  if (plan.step != *last + 1) return fail(r, KVC_E_STATE, "step after", plan.step, *last);
  rank->epoch = plan.epoch;
  *last = plan.step;
  return KVC_OK;
}

static inline kvc_status open_rank(const kvc_host_api* host, const kvc_open* open, kvc_rank** out) {
  return open_role(host, open, sizeof(kvc_rank), out);
}
static inline void close_rank(kvc_rank* r) { free(r); }
static inline kvc_status last_error_rank(const kvc_rank* r, char* buf, uint64_t cap,
                                         uint64_t* needed) {
  return r == NULL ? KVC_E_ARG : kvc_put(buf, cap, needed, kvc_text_of(r->role.error));
}
static inline kvc_status take_log_rank(kvc_rank* r, char* buf, uint64_t cap, uint64_t* count) {
  return take_log(r == NULL ? NULL : &r->role, buf, cap, count);
}

static inline kvc_status register_regions(kvc_rank* r, const kvc_list* regions,
                                          kvc_rank_info* out) {
  ANSWER(kvc_rank_info, info);
  if (r == NULL || !has_room(out)) return KVC_E_ARG;
  REFUSE(r, r->registered, KVC_E_STATE, "registered before; rank", r->role.how.rank, 0);
  const kvc_status s = check_regions(&r->role, regions);
  if (s != KVC_OK) return s;
  r->registered = 1;
  info.rank = r->role.how.rank;
  return KVC_WRITE(out, &info);
}
static inline kvc_status submit_loads(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
  return r == NULL ? KVC_E_ARG : check_plan(r, plan, fence, &r->loads);
}
static inline kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
  return r == NULL ? KVC_E_ARG : check_plan(r, plan, fence, &r->stores);
}
static inline kvc_status progress(kvc_rank* r, kvc_progress* out) {
  ANSWER(kvc_progress, nothing);
  return r == NULL ? KVC_E_ARG : KVC_WRITE(out, &nothing);
}
static inline kvc_status wait(kvc_rank* r, const kvc_job* jobs, uint64_t n_jobs,
                              uint64_t timeout_ns) {
  (void)timeout_ns;
  if (r == NULL) return KVC_E_ARG;
  return jobs == NULL && n_jobs != 0 ? fail(&r->role, KVC_E_ARG, "no jobs", n_jobs, 0) : KVC_OK;
}

#endif
