/* What every scheduler role in C does the same way: it knows the requests, checks what names them,
 * and counts offers. */
#ifndef KVC_DOCS_MINIMAL_SCHEDULER_H_
#define KVC_DOCS_MINIMAL_SCHEDULER_H_

#include "role.h"

/* The queries of role [any] run beside every other call: what they read is atomic. */
typedef _Atomic uint64_t shared_u64;

enum { live_max = 2048, places = 2 * live_max, ids_max = 65536, reports_max = 256 };
/* outcomes of hand-offs that this connector knows */
enum { gone, bad, null_block, not_hashed, pool_full, outcomes };

typedef struct request {
  uint64_t id;       /* 0: a free place */
  uint64_t tracked;  /* 0: request_begin answered KVC_E_FULL */
  uint64_t admitted; /* alloc_update since it began or was preempted */
  uint64_t keys;
  uint64_t confirmed_tokens;
  kvc_request in;
} request;

struct kvc_sched {
  role role;
  plan_header plan; /* of the last step */
  uint64_t joined;  /* set_ranks was called */
  request book[places];
  shared_u64 live;
  shared_u64 began;
  shared_u64 ids[ids_max]; /* of the last requests, live or over */
  shared_u64 offers[outcomes];
  kvc_rejected rejected[reports_max];
};

/* Every rank once, with the classes that register_regions of this connector returns: none. */
static inline kvc_status check_ranks(role* r, const kvc_list* ranks) {
  kvc_rank_info a, b;
  const kvc_status list = KVC_LIST_CHECK(kvc_rank_info, ranks);
  if (list != KVC_OK) return fail(r, list, "malformed list of ranks", 0, 0);
  if (ranks->count != r->how.ranks) {
    return fail(r, KVC_E_ARG, "ranks given, opened for", ranks->count, r->how.ranks);
  }
  for (uint64_t i = 0; i < ranks->count; ++i) {
    const kvc_status s = KVC_READ_AT(kvc_rank_info, &a, ranks, i);
    if (s != KVC_OK) return fail(r, s, "malformed rank info", i, 0);
    if (a.rank >= ranks->count || a.classes.count != 0) {
      return fail(r, KVC_E_ARG, "rank, classes", a.rank, a.classes.count);
    }
    for (uint64_t j = 0; j < i; ++j) {
      if (KVC_READ_AT(kvc_rank_info, &b, ranks, j) == KVC_OK && a.rank == b.rank) {
        return fail(r, KVC_E_ARG, "rank twice, at", a.rank, i);
      }
    }
  }
  return KVC_OK;
}

/* id 0: a free place. */
static inline request* find_request(kvc_sched* s, uint64_t id) {
  for (request* r = s->book; r < s->book + places; ++r) {
    if (r->id == id) return r;
  }
  return NULL;
}

/* The slots per class of all ranks: here none. */
static inline kvc_status set_ranks(kvc_sched* s, const kvc_list* ranks, kvc_list* usable) {
  if (s == NULL || usable == NULL) return KVC_E_ARG;
  REFUSE(s, s->joined, KVC_E_STATE, "set_ranks again, step", s->plan.step, 0);
  const kvc_status status = check_ranks(&s->role, ranks);
  if (status != KVC_OK) return status;
  s->joined = 1;
  *usable = kvc_list_of(NULL, 0, sizeof(kvc_class));
  return KVC_OK;
}

static inline kvc_status check_request(role* r, const kvc_request* in) {
  const uint64_t held = in->prompt_tokens / r->how.hash_unit_tokens;
  if ((in->flags & ~KVC_REQUEST_FLAGS_ALL) != 0) {
    return fail(r, KVC_E_UNSUPPORTED, "request, flags", in->request, in->flags);
  }
  if (in->request == 0) return fail(r, KVC_E_ARG, "request id", 0, 0);
  if (in->prompt_tokens > r->how.max_prompt_tokens) {
    return fail(r, KVC_E_ARG, "prompt tokens, allowed", in->prompt_tokens,
                r->how.max_prompt_tokens);
  }
  if (in->n_keys > held || (in->n_keys != 0 && in->keys == NULL)) {
    return fail(r, KVC_E_ARG, "keys, hash units of the prompt", in->n_keys, held);
  }
  return KVC_OK;
}

/* The whole table of every group, or nothing. */
static inline kvc_status check_tables(role* r, const kvc_list* tables) {
  kvc_table t;
  kvc_status s = KVC_LIST_CHECK(kvc_table, tables);
  if (s == KVC_OK && tables->count != 0 && tables->count != r->how.groups.count) s = KVC_E_ARG;
  for (uint64_t i = 0; s == KVC_OK && i < tables->count; ++i) {
    s = KVC_READ_AT(kvc_table, &t, tables, i);
    if (s == KVC_OK && (t.group != i || (t.count != 0 && t.blocks == NULL))) s = KVC_E_ARG;
  }
  return s == KVC_OK ? s : fail(r, s, "tables, groups", tables->count, r->how.groups.count);
}

static inline int was_used(const kvc_sched* s, uint64_t id) {
  for (uint64_t i = 0; i < ids_max && i < s->began; ++i) {
    if (s->ids[i] == id) return 1;
  }
  return 0;
}

/* The request that a call names. */
#define KNOWN(s, r, id)                       \
  request* const r = find_request((s), (id)); \
  REFUSE(s, r == NULL || (id) == 0, KVC_E_ARG, "unknown request", id, 0)

static inline kvc_status request_begin(kvc_sched* s, const kvc_request* in) {
  TAKE(s, kvc_request, mine, in, in);
  const kvc_status status = check_request(&s->role, &mine);
  if (status != KVC_OK) return status;
  REFUSE(s, was_used(s, mine.request), KVC_E_ARG, "request id used before", mine.request, 0);
  const uint64_t allowed = s->role.how.max_live_requests;
  const uint64_t most = allowed < live_max ? allowed : live_max;
  request* const r = find_request(s, 0);
  s->ids[s->began % ids_max] = mine.request;
  ++s->began;
  if (r != NULL) {
    memset(r, 0, sizeof *r);
    r->id = mine.request;
    r->tracked = s->live < most;
    r->keys = mine.n_keys;
    r->in = mine;
    r->in.keys = NULL; /* borrowed for the call: a connector that stores copies the keys */
  }
  REFUSE(s, r == NULL || !r->tracked, KVC_E_FULL, "live requests, at most", s->live, most);
  ++s->live;
  return KVC_OK;
}

static inline kvc_status request_extend(kvc_sched* s, const kvc_extend* in) {
  TAKE(s, kvc_extend, mine, in, in);
  const uint64_t most = s->role.how.max_total_tokens / s->role.how.hash_unit_tokens;
  REFUSE(s, mine.reserved0 != 0, KVC_E_UNSUPPORTED, "reserved0", mine.reserved0, 0);
  KNOWN(s, r, mine.request);
  if (!r->tracked) return KVC_OK;
  REFUSE(s, mine.first_key != r->keys, KVC_E_ARG, "first_key, keys", mine.first_key, r->keys);
  REFUSE(s, mine.n_keys > most - r->keys, KVC_E_ARG, "new keys, at most", mine.n_keys,
         most - r->keys);
  REFUSE(s, mine.n_keys != 0 && mine.keys == NULL, KVC_E_ARG, "no keys", mine.n_keys, 0);
  r->keys += mine.n_keys;
  return KVC_OK;
}

static inline kvc_status lookup_cancel(kvc_sched* s, uint64_t id) {
  if (s == NULL) return KVC_E_ARG;
  KNOWN(s, r, id);
  return KVC_OK;
}

/* What becomes of a hand-off in a connector without slots; -1: it is no offer. */
static inline int outcome_of(kvc_sched* s, const kvc_handoff* h) {
  const request* const r = h->request == 0 ? NULL : find_request(s, h->request);
  const kvc_open* const o = &s->role.how;
  const uint64_t end = h->boundary_tokens;
  if (r == NULL) return h->request != 0 && was_used(s, h->request) ? gone : bad;
  if (!r->tracked) return -1;
  if (!r->admitted) return gone;
  if ((r->in.flags & KVC_REQUEST_NO_WRITE) != 0 || end > r->in.store_limit_tokens) return -1;
  if (h->group >= o->groups.count || (s->role.states >> h->group & 1) == 0) return bad;
  if (end == 0 || end % o->hash_unit_tokens != 0 || end > r->confirmed_tokens) return bad;
  if (h->block == o->null_block) return null_block;
  if (h->block < 0 || (uint64_t)h->block >= o->device_blocks) return bad;
  return end / o->hash_unit_tokens > r->keys ? not_hashed : pool_full;
}

/* Every hand-off is one offer with one outcome. Requires a list that check_handoffs accepted. */
static inline void count_handoffs(kvc_sched* s, const kvc_list* list) {
  for (uint64_t i = 0; i < list->count; ++i) {
    kvc_handoff h;
    if (KVC_READ_AT(kvc_handoff, &h, list, i) != KVC_OK) continue;
    const int outcome = outcome_of(s, &h);
    if (outcome == bad)
      fault(&s->role, "KVC-H-044: bad hand-off, request, boundary", h.request, h.boundary_tokens);
    if (outcome >= 0) ++s->offers[outcome];
  }
}
static inline kvc_status check_handoffs(role* r, const kvc_list* list) {
  kvc_handoff h;
  kvc_status s = KVC_LIST_CHECK(kvc_handoff, list);
  for (uint64_t i = 0; s == KVC_OK && i < list->count; ++i) {
    s = KVC_READ_AT(kvc_handoff, &h, list, i);
  }
  return s == KVC_OK ? s : fail(r, s, "malformed hand-offs", list->count, list->stride);
}

static inline kvc_status boundary_stats(const kvc_sched* s, kvc_boundary_stats* out) {
  ANSWER(kvc_boundary_stats, answer);
  kvc_offer_counts* const c = &answer.handoffs;
  if (s == NULL) return KVC_E_ARG;
  c->dropped_request_gone = s->offers[gone];
  c->dropped_bad_offer = s->offers[bad];
  c->dropped_null_block = s->offers[null_block];
  c->skipped_not_hashed = s->offers[not_hashed];
  c->dropped_pool_full = s->offers[pool_full];
  c->published = c->dropped_request_gone + c->dropped_bad_offer + c->dropped_null_block +
                 c->skipped_not_hashed + c->dropped_pool_full;
  answer.all_offers = *c;
  return KVC_WRITE(out, &answer);
}

static inline kvc_status stats(const kvc_sched* s, void* out, uint32_t stride, uint64_t cap,
                               uint64_t* needed) {
  ANSWER(kvc_stat, live);
  if (s == NULL || needed == NULL || stride < sizeof live) return KVC_E_ARG;
  *needed = 2;
  if (cap < 2) return KVC_E_ROOM;
  live.name = kvc_text_of("requests_live_now");
  live.value = s->live;
  const kvc_status status = kvc_write_at(out, stride, 0, &live, sizeof live, sizeof live);
  live.name = kvc_text_of("feature_off");
  live.labels = kvc_text_of("feature=stores,why=the connector has no slots");
  live.value = 1;
  return status != KVC_OK ? status : kvc_write_at(out, stride, 1, &live, sizeof live, sizeof live);
}
static inline kvc_status has_pending(const kvc_sched* s, kvc_pending* out) {
  ANSWER(kvc_pending, nothing);
  return s == NULL ? KVC_E_ARG : KVC_WRITE(out, &nothing);
}

static inline kvc_status last_error_scheduler(const kvc_sched* s, char* buf, uint64_t cap,
                                              uint64_t* needed) {
  return s == NULL ? KVC_E_ARG : kvc_put(buf, cap, needed, kvc_text_of(s->role.error));
}
static inline kvc_status take_log_scheduler(kvc_sched* s, char* buf, uint64_t cap,
                                            uint64_t* count) {
  return take_log(s == NULL ? NULL : &s->role, buf, cap, count);
}

static inline kvc_status reset(kvc_sched* s, uint64_t flags) {
  if (s == NULL) return KVC_E_ARG;
  REFUSE(s, flags & ~KVC_RESET_INVALIDATE, KVC_E_UNSUPPORTED, "reset flags", flags, 0);
  return KVC_OK;
}

#endif
