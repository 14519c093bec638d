/* Both sides of the line in plain C: a connector that fills the whole table and never hits, and a
 * host that takes one request through it. Compiled as C, with kvc_util.h as its only helper. */
#include <kvc/kvc_util.h>
#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------------------------- the connector
 */

struct kvc_sched {
  kvc_open how;
  uint64_t step;
  uint64_t live;
  char error[96];
};
struct kvc_rank {
  kvc_open how;
  uint64_t steps_loaded;
};

static kvc_status fail(kvc_sched* s, kvc_status status, const char* text) {
  strncpy(s->error, text, sizeof s->error - 1);
  return status;
}

static kvc_status describe(kvc_description* out) {
  kvc_description mine;
  KVC_CLEAR(&mine);
  mine.name = kvc_text_of("null");
  mine.version = kvc_text_of("1");
  return KVC_WRITE(out, &mine);
}

static kvc_status read_open(const kvc_open* open, kvc_open* mine) {
  uint64_t i;
  kvc_status s = KVC_READ(kvc_open, mine, open);
  if (s == KVC_OK) s = KVC_REFUSE_BITS(mine->flags, KVC_OPEN_FLAGS_ALL);
  if (s == KVC_OK) s = KVC_LIST_CHECK(kvc_group, &mine->groups);
  for (i = 0; s == KVC_OK && i < mine->groups.count; ++i) {
    kvc_group group;
    s = KVC_READ_AT(kvc_group, &group, &mine->groups, i);
    if (s == KVC_OK) s = KVC_REFUSE_BITS(group.caps, KVC_GROUP_CAPS_ALL);
  }
  return s;
}

static kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open, kvc_sched** out) {
  kvc_open mine;
  kvc_host_api services;
  kvc_status s = KVC_READ(kvc_host_api, &services, host);
  *out = NULL;
  if (s == KVC_OK) s = read_open(open, &mine);
  if (s != KVC_OK) return s;
  *out = (kvc_sched*)calloc(1, sizeof **out);
  if (*out == NULL) return KVC_E_FULL;
  (*out)->how = mine;
  return KVC_OK;
}
static kvc_status open_rank(const kvc_host_api* host, const kvc_open* open, kvc_rank** out) {
  kvc_open mine;
  kvc_status s = read_open(open, &mine);
  (void)host;
  *out = NULL;
  if (s != KVC_OK) return s;
  *out = (kvc_rank*)calloc(1, sizeof **out);
  if (*out == NULL) return KVC_E_FULL;
  (*out)->how = mine;
  return KVC_OK;
}
static void close_scheduler(kvc_sched* s) { free(s); }
static void close_rank(kvc_rank* r) { free(r); }

static kvc_status last_error_scheduler(const kvc_sched* s, char* buf, uint64_t cap,
                                       uint64_t* needed) {
  return kvc_put(buf, cap, needed, kvc_text_of(s->error));
}
static kvc_status last_error_rank(const kvc_rank* r, char* buf, uint64_t cap, uint64_t* needed) {
  (void)r;
  return kvc_put(buf, cap, needed, kvc_text_of(NULL));
}
static kvc_status set_ranks(kvc_sched* s, const kvc_list* ranks, kvc_list* usable) {
  (void)s;
  *usable = kvc_list_of(NULL, 0, 0);
  return KVC_LIST_CHECK(kvc_rank_info, ranks);
}
static kvc_status request_begin(kvc_sched* s, const kvc_request* request) {
  kvc_request mine;
  const kvc_status status = KVC_READ(kvc_request, &mine, request);
  if (status != KVC_OK) return fail(s, status, "request: malformed");
  if (mine.request == 0) return fail(s, KVC_E_ARG, "request: the id is 0");
  s->live++;
  return KVC_OK;
}
static kvc_status request_extend(kvc_sched* s, const kvc_extend* extend) {
  kvc_extend mine;
  const kvc_status status = KVC_READ(kvc_extend, &mine, extend);
  if (status != KVC_OK) return fail(s, status, "extend: malformed");
  return KVC_REFUSE_SET(mine.reserved0);
}
static kvc_status lookup(kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
  kvc_lookup_in mine;
  kvc_lookup_out answer;
  const kvc_status status = KVC_READ(kvc_lookup_in, &mine, in);
  if (status != KVC_OK) return fail(s, status, "lookup: malformed");
  if (KVC_REFUSE_BITS(mine.flags, 0) != KVC_OK) {
    return fail(s, KVC_E_UNSUPPORTED, "lookup: unknown flags");
  }
  KVC_CLEAR(&answer);
  answer.why = KVC_WHY_MISS;
  return KVC_WRITE(out, &answer);
}
static kvc_status lookup_cancel(kvc_sched* s, uint64_t request) {
  (void)s;
  return request == 0 ? KVC_E_ARG : KVC_OK;
}
static kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) {
  kvc_alloc_in mine;
  kvc_alloc_out answer;
  const kvc_status status = KVC_READ(kvc_alloc_in, &mine, in);
  if (status != KVC_OK) return fail(s, status, "alloc: malformed");
  if (mine.accepted_tokens != 0) return fail(s, KVC_E_ARG, "alloc: more than was offered (0)");
  KVC_CLEAR(&answer);
  return KVC_WRITE(out, &answer);
}
static kvc_status build_store_jobs(kvc_sched* s, const kvc_step* step, kvc_plan* out) {
  kvc_step mine;
  kvc_plan plan;
  kvc_status status = KVC_READ(kvc_step, &mine, step);
  if (status == KVC_OK) status = KVC_LIST_CHECK(kvc_step_request, &mine.scheduled);
  if (status != KVC_OK) return fail(s, status, "step: malformed");
  if (mine.step != s->step + 1) return fail(s, KVC_E_ARG, "step: out of order");
  s->step = mine.step;
  KVC_CLEAR(&plan);
  plan.step = mine.step;
  plan.bytes = kvc_bytes_of(&s->step, sizeof s->step);
  return KVC_WRITE(out, &plan);
}
static kvc_status complete(kvc_sched* s, const kvc_bytes* reports, uint64_t n,
                           kvc_complete_out* out) {
  kvc_complete_out answer;
  (void)s;
  if (reports == NULL && n != 0) return KVC_E_ARG;
  KVC_CLEAR(&answer);
  return KVC_WRITE(out, &answer);
}
static kvc_status request_end(kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) {
  kvc_end_in mine;
  kvc_end_out answer;
  const kvc_status status = KVC_READ(kvc_end_in, &mine, in);
  if (status != KVC_OK) return fail(s, status, "end: malformed");
  s->live--;
  KVC_CLEAR(&answer);
  return KVC_WRITE(out, &answer);
}
static kvc_status boundary_stats(const kvc_sched* s, kvc_boundary_stats* out) {
  kvc_boundary_stats answer;
  (void)s;
  KVC_CLEAR(&answer);
  return KVC_WRITE(out, &answer);
}
static kvc_status stats(const kvc_sched* s, void* out, uint32_t stride, uint64_t cap,
                        uint64_t* needed) {
  kvc_stat one;
  *needed = 1;
  if (cap < 1) return KVC_E_ROOM;
  KVC_CLEAR(&one);
  one.name = kvc_text_of("live_requests_now");
  one.value = s->live;
  return kvc_write_at(out, stride, 0, &one, sizeof one, kvc_stat_least);
}
static kvc_status has_pending(const kvc_sched* s, kvc_pending* out) {
  kvc_pending answer;
  (void)s;
  KVC_CLEAR(&answer);
  return KVC_WRITE(out, &answer);
}
static kvc_status explain(const kvc_sched* s, uint64_t request, char* buf, uint64_t cap,
                          uint64_t* needed) {
  (void)s;
  return request != 0 ? KVC_E_ARG : kvc_put(buf, cap, needed, kvc_text_of("{}"));
}
static kvc_status take_log_scheduler(kvc_sched* s, char* buf, uint64_t cap, uint64_t* count) {
  (void)s, (void)buf, (void)cap;
  *count = 0;
  return KVC_OK;
}
static kvc_status take_log_rank(kvc_rank* r, char* buf, uint64_t cap, uint64_t* count) {
  (void)r, (void)buf, (void)cap;
  *count = 0;
  return KVC_OK;
}
static kvc_status reset(kvc_sched* s, uint64_t flags) {
  (void)s;
  return KVC_REFUSE_BITS(flags, KVC_RESET_INVALIDATE);
}
static kvc_status register_regions(kvc_rank* r, const kvc_list* regions, kvc_rank_info* out) {
  kvc_rank_info info;
  const kvc_status s = KVC_LIST_CHECK(kvc_region, regions);
  if (s != KVC_OK) return s;
  KVC_CLEAR(&info);
  info.rank = r->how.rank;
  return KVC_WRITE(out, &info);
}
static kvc_status submit_loads(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
  kvc_fence mine;
  const kvc_status s = KVC_READ(kvc_fence, &mine, fence);
  if (s != KVC_OK) return s;
  if (plan.size != sizeof r->steps_loaded) return KVC_E_ARG;
  memcpy(&r->steps_loaded, plan.data, sizeof r->steps_loaded);
  return KVC_OK;
}
static kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
  (void)r, (void)fence;
  return plan.size == sizeof(uint64_t) ? KVC_OK : KVC_E_ARG;
}
static kvc_status progress(kvc_rank* r, kvc_progress* out) {
  kvc_progress answer;
  (void)r;
  KVC_CLEAR(&answer);
  return KVC_WRITE(out, &answer);
}
static kvc_status wait_jobs(kvc_rank* r, const kvc_job* jobs, uint64_t n, uint64_t timeout_ns) {
  (void)r, (void)timeout_ns;
  return jobs == NULL && n != 0 ? KVC_E_ARG : KVC_OK;
}
static const void* extension(kvc_bytes id) {
  (void)id;
  return NULL;
}

kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api* out) {
  kvc_plugin_api mine;
  (void)host_minor;
  KVC_CLEAR(&mine);
  mine.abi_minor = KVC_MINOR;
  mine.describe = describe;
  mine.open_scheduler = open_scheduler;
  mine.open_rank = open_rank;
  mine.close_scheduler = close_scheduler;
  mine.close_rank = close_rank;
  mine.last_error_scheduler = last_error_scheduler;
  mine.last_error_rank = last_error_rank;
  mine.set_ranks = set_ranks;
  mine.request_begin = request_begin;
  mine.request_extend = request_extend;
  mine.lookup = lookup;
  mine.lookup_cancel = lookup_cancel;
  mine.alloc_update = alloc_update;
  mine.build_store_jobs = build_store_jobs;
  mine.complete = complete;
  mine.request_end = request_end;
  mine.boundary_stats = boundary_stats;
  mine.stats = stats;
  mine.has_pending = has_pending;
  mine.explain = explain;
  mine.take_log_scheduler = take_log_scheduler;
  mine.take_log_rank = take_log_rank;
  mine.reset = reset;
  mine.register_regions = register_regions;
  mine.submit_loads = submit_loads;
  mine.submit_stores = submit_stores;
  mine.progress = progress;
  mine.wait = wait_jobs;
  mine.extension = extension;
  return kvc_write(out, &mine, sizeof mine, offsetof(kvc_plugin_api, describe));
}

/* --------------------------------------------------------------------------------------- the host
 */

static int failures;
#define EXPECT(c) \
  ((c) ? (void)0 : (void)(fprintf(stderr, "line %d: %s does not hold\n", __LINE__, #c), ++failures))

static void open_both(const kvc_plugin_api* api, kvc_sched** sched, kvc_rank** rank) {
  kvc_host_api host;
  kvc_open open;
  kvc_group group;
  KVC_CLEAR(&host);
  KVC_CLEAR(&open);
  KVC_CLEAR(&group);
  group.caps = KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE;
  group.caps_known = KVC_GROUP_CAPS_ALL;
  group.tokens_per_block = 16;
  open.groups = kvc_list_of(&group, 1, sizeof group);
  open.hash_unit_tokens = open.scheduler_block_tokens = 16;
  open.context_parallel = open.ranks = 1;
  open.key_bytes = 16;
  open.namespace_id = kvc_text_of("c");
  EXPECT(api->open_scheduler(&host, &open, sched) == KVC_OK);
  EXPECT(api->open_rank(&host, &open, rank) == KVC_OK);

  open.flags = KVC_OPEN_FLAGS_ALL + 1;
  {
    kvc_sched* refused = NULL;
    EXPECT(api->open_scheduler(&host, &open, &refused) == KVC_E_UNSUPPORTED && refused == NULL);
  }
}

static void one_request(const kvc_plugin_api* api, kvc_sched* s, kvc_rank* r) {
  const uint8_t key[16] = {1};
  kvc_request request;
  kvc_lookup_in ask;
  kvc_lookup_out hit;
  kvc_step step;
  kvc_plan plan;
  kvc_fence fence;
  kvc_progress done;
  kvc_complete_out ended;
  kvc_end_in end;
  kvc_end_out last;
  kvc_stat one;
  uint64_t needed = 0;

  KVC_CLEAR(&request);
  EXPECT(api->request_begin(s, &request) == KVC_E_ARG); /* id 0 */
  EXPECT(api->last_error_scheduler(s, NULL, 0, &needed) == KVC_E_ROOM && needed > 0);
  request.request = 1;
  request.prompt_tokens = 20;
  request.keys = key;
  request.n_keys = 1;
  EXPECT(api->request_begin(s, &request) == KVC_OK);

  KVC_CLEAR(&ask);
  KVC_CLEAR(&hit);
  ask.request = 1;
  ask.total_tokens = 20;
  EXPECT(api->lookup(s, &ask, &hit) == KVC_OK && hit.external_tokens == 0);
  EXPECT(KVC_HAS(&hit, kvc_lookup_out, why) && hit.why == KVC_WHY_MISS);

  KVC_CLEAR(&step);
  KVC_CLEAR(&plan);
  KVC_CLEAR(&fence);
  step.step = 1;
  EXPECT(api->build_store_jobs(s, &step, &plan) == KVC_OK && plan.step == 1);
  EXPECT(api->submit_loads(r, plan.bytes, &fence) == KVC_OK);
  EXPECT(api->submit_stores(r, plan.bytes, &fence) == KVC_OK);
  KVC_CLEAR(&done);
  KVC_CLEAR(&ended);
  EXPECT(api->progress(r, &done) == KVC_OK);
  EXPECT(api->complete(s, &done.report, 1, &ended) == KVC_OK && ended.jobs.count == 0);

  EXPECT(api->stats(s, &one, sizeof one, 1, &needed) == KVC_OK && one.value == 1);
  KVC_CLEAR(&end);
  KVC_CLEAR(&last);
  end.request = 1;
  EXPECT(api->request_end(s, &end, &last) == KVC_OK && last.job == 0);
}

int main(void) {
  kvc_plugin_api api;
  kvc_sched* sched = NULL;
  kvc_rank* rank = NULL;
  KVC_CLEAR(&api);
  EXPECT(kvc_plugin_entry_v1(KVC_MINOR, &api) == KVC_OK);
  EXPECT(KVC_CAN(&api, kvc_plugin_api, extension) && !KVC_CAN(&api, kvc_plugin_api, take_events));
  open_both(&api, &sched, &rank);
  if (failures == 0) one_request(&api, sched, rank);
  api.close_scheduler(sched);
  api.close_rank(rank);
  api.close_scheduler(NULL);
  return failures == 0 ? 0 : 1;
}
