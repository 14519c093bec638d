/* A kvc connector to start from: it keeps nothing, has no capability, and is right. No request
 * hits, every hand-off is refused and counted, and open takes all memory. This file is what a
 * connector decides itself; scheduler.h, rank.h and role.h beside it are the same in all of them.
 */
#include <time.h>
#include "rank.h"
#include "scheduler.h"

static kvc_status describe(kvc_description* out) {
  ANSWER(kvc_description, mine);
  mine.name = kvc_text_of("minimal");
  mine.version = mine.build_id = kvc_text_of("1");
  return KVC_WRITE(out, &mine);
}
static kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open, kvc_sched** out) {
  const kvc_status s = open_role(host, open, sizeof(kvc_sched), out);
  if (s != KVC_OK) return s;
  (*out)->plan.magic = PLAN_MAGIC;
  (*out)->plan.epoch = (uint64_t)(uintptr_t)*out ^ (uint64_t)time(NULL) << 32;
  say(&(*out)->role, KVC_LOG_WARN, "stores is off: the connector has no slots");
  return KVC_OK;
}
static void close_scheduler(kvc_sched* s) { free(s); }

/* A connector that stores searches its index for the longest prefix here, and opens a lease. */
static kvc_status lookup(kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
  TAKE(s, kvc_lookup_in, mine, in, out);
  const kvc_open* const o = &s->role.how;
  ANSWER(kvc_lookup_out, answer);
  REFUSE(s, mine.flags != 0, KVC_E_UNSUPPORTED, "lookup flags", mine.flags, 0);
  KNOWN(s, r, mine.request);
  REFUSE(s, mine.total_tokens == 0 || mine.device_tokens > mine.total_tokens, KVC_E_ARG,
         "total, device tokens", mine.total_tokens, mine.device_tokens);
  REFUSE(s, mine.total_tokens > o->max_total_tokens, KVC_E_ARG, "total tokens, at most",
         mine.total_tokens, o->max_total_tokens);
  r->admitted = r->confirmed_tokens = 0; /* of a running request: the notice of its preemption */
  answer.why = KVC_WHY_MISS;
  if (mine.device_tokens % o->scheduler_block_tokens != 0) answer.why = KVC_WHY_LOCAL_UNALIGNED;
  if ((r->in.flags & KVC_REQUEST_NO_READ) != 0) answer.why = KVC_WHY_NO_READ;
  if (!s->joined) answer.why = KVC_WHY_NO_RANKS;
  if (!r->tracked) answer.why = KVC_WHY_NOT_TRACKED;
  return KVC_WRITE(out, &answer);
}

/* A connector that stores opens a load job of the accepted tokens here. */
static kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) {
  TAKE(s, kvc_alloc_in, mine, in, out);
  ANSWER(kvc_alloc_out, answer);
  REFUSE(s, mine.flags != 0, KVC_E_UNSUPPORTED, "alloc flags", mine.flags, 0);
  KNOWN(s, r, mine.request);
  REFUSE(s, mine.accepted_tokens != 0, KVC_E_ARG, "accepted, offered", mine.accepted_tokens, 0);
  const kvc_status status = check_tables(&s->role, &mine.tables);
  if (status != KVC_OK) return status;
  r->admitted = 1;
  return KVC_WRITE(out, &answer);
}

/* One element of a step record. With `act` 0 it is only checked: a malformed struct changes
   nothing. A connector that stores offers the blocks up to confirmed_tokens here. */
static kvc_status schedule(kvc_sched* s, const kvc_list* scheduled, uint64_t i, int act) {
  kvc_step_request in = {0};
  kvc_status status = KVC_READ_AT(kvc_step_request, &in, scheduled, i);
  if (status == KVC_OK) status = KVC_REFUSE_BITS(in.flags, KVC_STEP_FLAGS_ALL);
  if (status == KVC_OK) status = check_tables(&s->role, &in.tables);
  request* const r = act && in.request != 0 ? find_request(s, in.request) : NULL;
  if (status != KVC_OK || !act || (r != NULL && !r->tracked)) return status;
  if (r == NULL || !r->admitted) {
    fault(&s->role, "KVC-H-023: scheduled, but not admitted", in.request, s->plan.step);
  } else if (in.confirmed_tokens < r->confirmed_tokens) {
    fault(&s->role, "KVC-H-041: confirmed tokens fell", in.confirmed_tokens, r->confirmed_tokens);
  } else {
    r->confirmed_tokens = in.confirmed_tokens;
  }
  return KVC_OK;
}

static kvc_status build_store_jobs(kvc_sched* s, const kvc_step* in, kvc_plan* out) {
  TAKE(s, kvc_step, mine, in, out);
  ANSWER(kvc_plan, plan);
  REFUSE(s, mine.reserved0 != 0, KVC_E_UNSUPPORTED, "reserved0", mine.reserved0, 0);
  REFUSE(s, mine.step != s->plan.step + 1, KVC_E_ARG, "step after", mine.step, s->plan.step);
  REFUSE(s, mine.n_preempted != 0 && mine.preempted == NULL, KVC_E_ARG, "preempted",
         mine.n_preempted, 0);
  kvc_status status = KVC_LIST_CHECK(kvc_step_request, &mine.scheduled);
  if (status == KVC_OK) status = KVC_LIST_CHECK(kvc_candidate, &mine.candidates);
  if (status == KVC_OK) status = check_handoffs(&s->role, &mine.handoffs);
  for (uint64_t i = 0; status == KVC_OK && i < mine.scheduled.count; ++i) {
    status = schedule(s, &mine.scheduled, i, 0);
  }
  REFUSE(s, status != KVC_OK, status, "malformed step, scheduled", mine.step, mine.scheduled.count);
  for (uint64_t i = 0; i < mine.n_preempted; ++i) {
    request* const r = mine.preempted[i] == 0 ? NULL : find_request(s, mine.preempted[i]);
    if (r != NULL) r->admitted = r->confirmed_tokens = 0;
    if (r == NULL) fault(&s->role, "KVC-H-049: preempted, but unknown", mine.preempted[i], i);
  }
  for (uint64_t i = 0; i < mine.scheduled.count; ++i) schedule(s, &mine.scheduled, i, 1);
  count_handoffs(s, &mine.handoffs);
  plan.step = s->plan.step = mine.step;
  plan.bytes = kvc_bytes_of(&s->plan, sizeof s->plan);
  return KVC_WRITE(out, &plan);
}

/* Ranks of this connector send no reports: all there are come from elsewhere. */
static kvc_status complete(kvc_sched* s, const kvc_bytes* reports, uint64_t n,
                           kvc_complete_out* out) {
  ANSWER(kvc_complete_out, answer);
  if (s == NULL || !has_room(out)) return KVC_E_ARG;
  REFUSE(s, n > reports_max || (n != 0 && reports == NULL), KVC_E_ARG, "reports", n, reports_max);
  for (uint64_t i = 0; i < n; ++i) {
    if (reports[i].size == 0) continue;
    kvc_rejected* const rejected = &s->rejected[answer.rejected.count];
    KVC_CLEAR(rejected);
    rejected->report = i;
    rejected->status = KVC_E_ARG;
    answer.rejected = kvc_list_of(s->rejected, answer.rejected.count + 1, sizeof(kvc_rejected));
    fault(&s->role, "KVC-H-051: not our report, bytes", i, reports[i].size);
  }
  return KVC_WRITE(out, &answer);
}

static kvc_status request_end(kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) {
  TAKE(s, kvc_end_in, mine, in, out);
  ANSWER(kvc_end_out, answer);
  KNOWN(s, r, mine.request);
  kvc_status status = check_tables(&s->role, &mine.tables);
  if (status == KVC_OK) status = check_handoffs(&s->role, &mine.handoffs);
  if (status != KVC_OK) return status;
  if (mine.confirmed_tokens > r->confirmed_tokens) r->confirmed_tokens = mine.confirmed_tokens;
  count_handoffs(s, &mine.handoffs);
  if (r->tracked) --s->live;
  r->id = 0;
  return KVC_WRITE(out, &answer);
}

static kvc_status explain(const kvc_sched* s, uint64_t id, char* buf, uint64_t cap, uint64_t* n) {
  if (s == NULL || (id != 0 && !was_used(s, id))) return KVC_E_ARG;
  return kvc_put(buf, cap, n, kvc_text_of("{\"stores\": \"off: the connector has no slots\"}"));
}
static const void* extension(kvc_bytes id) { return (void)id, NULL; }

kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api* out) {
  ANSWER(kvc_plugin_api, mine);
  (void)host_minor;
  mine.abi_minor = KVC_MINOR; /* each required slot below has a function of its name */
#define KVC_SLOT_req(slot) mine.slot = slot
#define KVC_SLOT_opt(slot) mine.slot = NULL
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) KVC_SLOT_##need(slot);
#include <kvc/kvc_calls.def>
  return kvc_write(out, &mine, sizeof mine, offsetof(kvc_plugin_api, describe));
}
