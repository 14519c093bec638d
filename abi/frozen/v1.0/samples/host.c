/* A kvc host to start from: an engine with one full-attention group, two ranks and no prefix cache
 * of its own. It runs three requests twice through the connector given on its command line, checks
 * every byte that the connector loads and says how many tokens came from there. A "forward" writes
 * bytes that are a function of the whole prefix, and is over when it returns: fences are NONE.
 * usage: host LIB.so [text of the connector's TOML]. Exit code 0: all was right. */
#ifdef __cplusplus
#error "docs/minimal is C11: compile it as C; a host in C++ starts from kvc.hpp (docs/abi.md)"
#endif
#include <dlfcn.h>
#include <inttypes.h>
#include <kvc/kvc_util.h>
#include <stdio.h>
#include <stdlib.h>

enum { unit = 16, token_bytes = 8, block_bytes = unit * token_bytes, ranks = 2, blocks = 64 };
enum { prompt = 72, total = 104, chunk = 8, table_max = (total + unit - 1) / unit, key_bytes = 16 };
enum { holds_max = 256, patience = 30000 };

static kvc_plugin_api api;
static kvc_sched* sched;
static kvc_rank* rank[ranks];
static uint8_t memory[ranks][blocks][block_bytes]; /* the device pools; block 0 is the null block */
static unsigned references[blocks];                /* by the table of the request and by jobs */
static struct {
  kvc_job job;
  int64_t block;
} holds[holds_max];
static uint64_t n_holds;
static uint64_t steps;
static kvc_verdict verdict; /* the newest */

static void die(const char* what, int64_t a, int64_t b) {
  fprintf(stderr, "host: %s: %" PRId64 ", %" PRId64 "\n", what, a, b);
  exit(1);
}

/* Positive ones that are not known count as KVC_OK with nothing done. */
static kvc_status ok(kvc_status status, const char* slot) {
  char text[256];
  uint64_t n = 0;
  if (status >= 0) return status == KVC_LATER ? KVC_LATER : KVC_OK;
  if (sched == NULL || api.last_error_scheduler(sched, text, sizeof text, &n) != KVC_OK) n = 0;
  fprintf(stderr, "host: %s answered %" PRId32 ": %.*s\n", slot, status, (int)n, text);
  exit(1);
}

static void log_line(kvc_host* h, int32_t level, kvc_bytes text) {
  (void)h;
  if (level >= KVC_LOG_WARN) fprintf(stderr, "%.*s\n", (int)text.size, (const char*)text.data);
  if (level == KVC_LOG_PEER_FAULT) exit(1); /* the connector says that this host broke a rule */
}

/* ------------------------------------------------------------------------------- the library */

#define NEEDED_req 1
#define NEEDED_opt 0
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability)                          \
  if ((NEEDED_##need || (api.caps & (capability)) != 0) && !KVC_CAN(&api, kvc_plugin_api, slot)) { \
    fprintf(stderr, "host: %s: required slot %s is missing\n", path, #slot);                       \
    exit(2);                                                                                       \
  }

static void load(const char* path) {
  kvc_plugin_entry_fn entry;
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL); /* never closed */
  void* const symbol = library == NULL ? NULL : dlsym(library, KVC_PLUGIN_ENTRY_NAME);
  if (symbol == NULL) {
    fprintf(stderr, "host: %s\n", dlerror()); /* names the symbol that is missing */
    exit(2);
  }
  memcpy(&entry, &symbol, sizeof entry);
  KVC_CLEAR(&api);
  if (entry(KVC_MINOR, &api) != KVC_OK) die("the connector refuses hosts of minor", KVC_MINOR, 0);
  if (api.struct_size > sizeof api) die("table, of room", api.struct_size, sizeof api);
#include <kvc/kvc_calls.def>
}

static void open_roles(const char* toml) {
  static kvc_host_api host; /* valid until close */
  kvc_group group;
  kvc_open open;
  kvc_rank_info infos[ranks];
  kvc_list list, usable;
  KVC_CLEAR(&host);
  host.caps = KVC_HOST_NO_DEVICE_CACHE;
  host.log = log_line;
  KVC_CLEAR(&group);
  group.caps = KVC_GROUP_CAP_CACHEABLE | KVC_GROUP_CAP_POSITION_STABLE;
  group.caps_known = KVC_GROUP_CAPS_ALL;
  group.tokens_per_block = unit;
  KVC_CLEAR(&open);
  open.groups = kvc_list_of(&group, 1, sizeof group);
  open.hash_unit_tokens = open.scheduler_block_tokens = unit;
  open.context_parallel = 1;
  open.ranks = ranks;
  open.cp_interleave_tokens = 1;
  open.device_blocks = blocks;
  open.key_bytes = key_bytes;
  open.max_prompt_tokens = prompt;
  open.max_total_tokens = open.max_batch_tokens = total;
  open.max_live_requests = open.max_running = open.max_steps_in_flight = 1;
  open.max_request_bytes = 1 << 20;
  open.retention_tokens = -1;
  open.namespace_id = kvc_text_of("minimal host, model 1");
  open.config_toml = kvc_text_of(toml);
  ok(api.open_scheduler(&host, &open, &sched), "open_scheduler");
  for (uint32_t r = 0; r < ranks; ++r) {
    kvc_region region;
    open.rank = r;
    ok(api.open_rank(&host, &open, &rank[r]), "open_rank");
    KVC_CLEAR(&region);
    region.base = &memory[r][0][0];
    region.size_bytes = sizeof memory[r];
    region.block_stride_bytes = region.block_bytes = block_bytes;
    region.group_mask = 1;
    list = kvc_list_of(&region, 1, sizeof region);
    KVC_CLEAR(&infos[r]);
    ok(api.register_regions(rank[r], &list, &infos[r]), "register_regions");
  }
  list = kvc_list_of(infos, ranks, sizeof *infos);
  ok(api.set_ranks(sched, &list, &usable), "set_ranks");
}

/* ---------------------------------------------------------------------------- holds and steps */

/* The blocks of a job stay until it ends. request_end also names blocks of older jobs: holding too
   much is no harm. */
static void hold(kvc_job job, const kvc_list* held) {
  for (uint64_t i = 0; i < held->count; ++i) {
    const kvc_block* const b = kvc_list_at(held, i);
    if (b->block <= 0 || b->block >= blocks) die("a job holds block", b->block, blocks);
    if (n_holds == holds_max) die("more holds than", holds_max, 0);
    holds[n_holds].job = job;
    holds[n_holds++].block = b->block;
    ++references[b->block];
  }
}

static void end_job(const kvc_ended_job* job) {
  for (uint64_t i = 0, k; i < job->released.count; ++i) {
    const kvc_block* const b = kvc_list_at(&job->released, i);
    for (k = 0; k < n_holds && (holds[k].job != job->job || holds[k].block != b->block);) ++k;
    if (k == n_holds) die("released, but not held: block", b->block, (int64_t)job->job);
  }
  for (uint64_t k = n_holds; k-- > 0;) {
    if (holds[k].job != job->job) continue;
    --references[holds[k].block];
    holds[k] = holds[--n_holds];
  }
}

/* Carries what the ranks have to say to the scheduler. */
static void collect(void) {
  kvc_bytes reports[ranks];
  kvc_complete_out out;
  for (int r = 0; r < ranks; ++r) {
    kvc_progress p;
    ok(api.wait(rank[r], NULL, 0, 1000000), "wait");
    KVC_CLEAR(&p);
    ok(api.progress(rank[r], &p), "progress");
    reports[r] = p.report;
  }
  KVC_CLEAR(&out);
  ok(api.complete(sched, reports, ranks, &out), "complete");
  for (uint64_t i = 0; i < out.jobs.count; ++i) {
    end_job(kvc_list_at(&out.jobs, i));
  }
  for (uint64_t i = 0; i < out.verdicts.count; ++i) {
    memcpy(&verdict, kvc_list_at(&out.verdicts, i), sizeof verdict);
  }
  if (out.rejected.count != 0) {
    fprintf(stderr, "host: %" PRIu64 " rejected reports\n", out.rejected.count);
  }
}

/* One step: the record, the plan to every rank. With NULL nothing runs in it. */
static void step(const kvc_step_request* scheduled) {
  kvc_step in;
  kvc_plan plan;
  kvc_fence fence;
  KVC_CLEAR(&in);
  in.step = ++steps;
  in.scheduled = kvc_list_of(scheduled, scheduled != NULL, sizeof *scheduled);
  KVC_CLEAR(&plan);
  ok(api.build_store_jobs(sched, &in, &plan), "build_store_jobs");
  for (uint64_t i = 0; i < plan.jobs.count; ++i) {
    const kvc_plan_job* const job = kvc_list_at(&plan.jobs, i);
    hold(job->job, &job->held);
  }
  KVC_CLEAR(&fence);
  for (int r = 0; r < ranks; ++r) {
    ok(api.submit_loads(rank[r], plan.bytes, &fence), "submit_loads");
    ok(api.submit_stores(rank[r], plan.bytes, &fence), "submit_stores");
  }
  collect();
}

/* ----------------------------------------------------------------------------- a request's life */

struct request {
  uint64_t id;
  int tracked;
  uint64_t hash[total]; /* of the prefix through token t: what its KV is a function of */
  uint8_t keys[total / unit][key_bytes];
  int64_t block[table_max];
  uint64_t n_blocks;
};

static uint64_t mix(uint64_t a, uint64_t b) {
  a = (a ^ b) * UINT64_C(0x9E3779B97F4A7C15);
  return a ^ (a >> 29);
}

static uint8_t* place(const struct request* r, int on, uint64_t token) {
  return &memory[on][r->block[token / unit]][token % unit * token_bytes];
}

static void make(struct request* r, uint64_t id, uint64_t kind) {
  memset(r, 0, sizeof *r);
  r->id = id;
  for (uint64_t t = 0, h = 1; t < total; ++t) {
    h = mix(h, t < 3 * unit ? t : t * 3 + kind); /* all requests share their first three units */
    r->hash[t] = h;
    if ((t + 1) % unit == 0) memcpy(r->keys[t / unit], (uint64_t[]){h, mix(h, 7)}, key_bytes);
  }
}

static void grow(struct request* r, uint64_t tokens) {
  for (int64_t b = 1; r->n_blocks * unit < tokens; ++b) {
    if (b == blocks) die("no free device block for tokens", (int64_t)tokens, blocks);
    if (references[b] != 0) continue;
    references[b] = 1;
    r->block[r->n_blocks++] = b;
  }
}

/* Writes tokens [from, to), or compares them. */
static void forward(const struct request* r, uint64_t from, uint64_t to, int compare) {
  for (int on = 0; on < ranks; ++on) {
    for (uint64_t t = from; t < to; ++t) {
      const uint64_t value = mix(r->hash[t], (uint64_t)on);
      if (compare && memcmp(place(r, on, t), &value, sizeof value) != 0) {
        die("wrong bytes, request, token", (int64_t)r->id, (int64_t)t);
      }
      memcpy(place(r, on, t), &value, sizeof value);
    }
  }
}

static kvc_list tables_of(const struct request* r, kvc_table* table) {
  KVC_CLEAR(table);
  table->blocks = r->block;
  table->count = r->n_blocks;
  return kvc_list_of(table, 1, sizeof *table);
}

/* Asks, allocates and loads; the tokens that are in place then. */
static uint64_t admit(struct request* r) {
  kvc_lookup_in ask;
  kvc_lookup_out hit;
  kvc_alloc_in in;
  kvc_alloc_out out;
  kvc_table table;
  KVC_CLEAR(&ask);
  ask.request = r->id;
  ask.total_tokens = prompt;
  ask.external_cap_tokens = KVC_NO_LIMIT;
  KVC_CLEAR(&hit);
  for (int tries = 0; ok(api.lookup(sched, &ask, &hit), "lookup") == KVC_LATER; KVC_CLEAR(&hit)) {
    if (++tries == patience) break; /* runs without it */
    step(NULL);
  }
  if (hit.external_tokens >= prompt) die("hit of tokens", (int64_t)hit.external_tokens, prompt);
  grow(r, hit.external_tokens);
  KVC_CLEAR(&in);
  in.request = r->id;
  in.accepted_tokens = hit.external_tokens;
  in.tables = tables_of(r, &table);
  KVC_CLEAR(&out);
  ok(api.alloc_update(sched, &in, &out), "alloc_update");
  if (out.job == 0) return 0;
  hold(out.job, &out.held);
  step(NULL); /* its plan carries the load */
  for (int tries = 0; verdict.job != out.job; collect()) {
    if (++tries == patience) die("no verdict for job", (int64_t)out.job, tries);
  }
  if (verdict.status == KVC_OK) {
    forward(r, 0, hit.external_tokens, 1);
    return hit.external_tokens;
  }
  in.accepted_tokens = 0; /* admitted again, to be computed like any other token */
  KVC_CLEAR(&out);
  ok(api.alloc_update(sched, &in, &out), "alloc_update");
  return 0;
}

/* Computes tokens up to `to` and tells the connector. */
static void run(struct request* r, uint64_t from, uint64_t to) {
  kvc_step_request scheduled;
  kvc_table table;
  kvc_extend extend;
  grow(r, to);
  forward(r, from, to, 0);
  KVC_CLEAR(&extend);
  extend.request = r->id;
  extend.first_key = from <= prompt ? prompt / unit : from / unit;
  extend.keys = r->keys[extend.first_key];
  extend.n_keys = to / unit - extend.first_key;
  if (to > prompt && extend.n_keys > 0) ok(api.request_extend(sched, &extend), "request_extend");
  KVC_CLEAR(&scheduled);
  scheduled.request = r->id;
  scheduled.confirmed_tokens = to;
  scheduled.tables = tables_of(r, &table);
  step(r->tracked ? &scheduled : NULL);
}

static uint64_t serve(uint64_t id, uint64_t kind) {
  static struct request r;
  kvc_request begin;
  kvc_end_in end;
  kvc_end_out out;
  kvc_table table;
  kvc_status status;
  make(&r, id, kind);
  KVC_CLEAR(&begin);
  begin.request = id;
  begin.prompt_tokens = prompt;
  begin.keys = r.keys[0];
  begin.n_keys = prompt / unit;
  begin.load_limit_tokens = begin.store_limit_tokens = KVC_NO_LIMIT;
  status = api.request_begin(sched, &begin);
  r.tracked = status != KVC_E_FULL; /* else it runs without the connector */
  if (r.tracked) ok(status, "request_begin");
  const uint64_t loaded = r.tracked ? admit(&r) : 0;
  for (uint64_t t = loaded, to = prompt; t < total; t = to, to = t + chunk) run(&r, t, to);
  forward(&r, 0, total, 1);
  KVC_CLEAR(&end);
  end.reason = KVC_END_LENGTH;
  end.request = id;
  end.confirmed_tokens = total;
  end.tables = tables_of(&r, &table);
  KVC_CLEAR(&out);
  ok(api.request_end(sched, &end, &out), "request_end");
  if (out.job != 0) hold(out.job, &out.held);
  for (uint64_t i = 0; i < r.n_blocks; ++i) --references[r.block[i]];
  return loaded;
}

int main(int argc, char** argv) {
  uint64_t id = 0;
  kvc_pending left;
  if (argc < 2) {
    fputs("usage: host LIB.so [text of the connector's TOML]\n", stderr);
    return 2;
  }
  load(argv[1]);
  open_roles(argc > 2 ? argv[2] : "");
  for (int pass = 1; pass <= 2; ++pass) {
    uint64_t hits = 0;
    for (uint64_t kind = 0; kind < 3; ++kind) hits += serve(++id, kind);
    do { /* until no job is open */
      step(NULL);
      KVC_CLEAR(&left);
      ok(api.has_pending(sched, &left), "has_pending");
    } while (left.load_jobs + left.store_jobs != 0);
    printf("run %d: %" PRIu64 " external hit tokens\n", pass, hits);
  }
  for (int b = 0; b < blocks; ++b) {
    if (references[b] != 0) die("block still held, by", b, references[b]);
  }
  for (int r = 0; r < ranks; ++r) api.close_rank(rank[r]);
  api.close_scheduler(sched);
  return 0;
}
