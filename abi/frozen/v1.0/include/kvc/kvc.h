/* kvc: the line between an LLM inference engine (host) and a KV-cache connector (plugin).
 * Major 1, minor 0.
 *
 * One exported function, kvc_plugin_entry_v1, fills one table. An engine opens a connector once per
 * role:
 *   scheduler role  one handle, in the process that plans steps            (kvc_sched)
 *   rank role       one handle per worker, maybe in other processes        (kvc_rank)
 * The roles share no memory: the engine carries flat, versioned bytes between them. The plan of a
 * step goes from the scheduler to every rank; reports go back (docs/formats).
 *
 * TAGS. Each slot has a tag line: [role] +attributes since M.m req|opt. kvc_calls.def repeats it
 * for machines. A comment over two slots names two roles ("[sched] / [rank]"), in slot order.
 *   [load]  alone in the library
 *   [ctl]   nothing else in flight on this handle
 *   [sched] one caller at a time per scheduler handle; the OS thread may change; the host orders
 *           the calls
 *   [rank]  one caller at a time per rank handle; concurrent with [sched] and with other ranks
 *   [any]   concurrent with everything
 *   +nowait      no I/O, no sleep, no lock held by slow work
 *   +noalloc     no heap use after open (unlimited pools excepted)
 *   +pure        no visible change, may be repeated
 *   +calls-host  may call the host table's block queries
 * Every slot may call the host's log, clock and allocator. No slot may throw.
 *
 * STRUCTS. struct_size comes first: the leading bytes that the writer filled. In-structs: the
 * caller sets it. Out-structs and tables: room on entry, bytes filled on return. reservedN must be
 * 0. Lists carry a stride: step by it, never by sizeof. A receiver refuses (KVC_E_UNSUPPORTED)
 * unknown flag bits and unknown non-zero tail bytes of requests.
 *
 * OWNERSHIP. In-data is borrowed for the call. Lists and bytes that a state-changing call puts out
 * are the connector's, valid until the next call of the same slot on the same handle (plan bytes:
 * until the next build_store_jobs; outputs of progress: until the next progress). Pure queries fill
 * the caller's buffer: *needed is always set, KVC_E_ROOM if it was too small (nothing written),
 * NULL with 0 sizes it. Strings are UTF-8 with lengths, no terminator.
 *
 * STATUS. 0 ok, > 0 normal outcomes, < 0 errors with nothing changed unless the slot says
 * otherwise. Treat an unknown positive status as KVC_OK with nothing done, an unknown negative one
 * as KVC_E_INTERNAL. After KVC_E_INTERNAL the handle is poisoned: every later call but close and
 * the queries answers KVC_E_INTERNAL and nothing more is published.
 *
 * UNITS. Tokens, blocks, bytes are said in names. A position is a block's index in its group's
 * table, absolute from token 0. A boundary is a prefix length in tokens. B_g = tokens_per_block x
 * (SHARDED ? context_parallel : 1).
 */
#ifndef KVC_KVC_H_
#define KVC_KVC_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define KVC_ASSERT(c) static_assert(c, #c)
#else
#define KVC_ASSERT(c) _Static_assert(c, #c)
#endif
#if defined(__cplusplus) && __cplusplus >= 201703L
/* part of the pointer's type: a slot that may throw does not compile */
#define KVC_NOTHROW noexcept
#else
#define KVC_NOTHROW
#endif
#define KVC_EXPORT __attribute__((visibility("default")))

#define KVC_MAJOR 1u
#define KVC_MINOR 0u
#ifndef KVC_TARGET_MINOR /* plugins and hosts may pin an older surface */
#define KVC_TARGET_MINOR KVC_MINOR
#endif

/* Bytes from the start of T through field f; did the writer of *p know f; does the table *p have
   slot f. */
#define KVC_THROUGH(T, f) (offsetof(T, f) + sizeof(((T *)0)->f))
#define KVC_HAS(p, T, f) ((size_t)(p)->struct_size >= KVC_THROUGH(T, f))
#define KVC_CAN(p, T, f) (KVC_HAS(p, T, f) && (p)->f != NULL)

#define KVC_NO_LIMIT UINT64_MAX
#define KVC_KEY_BYTES_MIN 8u
#define KVC_KEY_BYTES_MAX 32u
#define KVC_GROUPS_MAX 64u

#ifdef __cplusplus
extern "C" {
#endif

/* --------------------------------------------------------------------------------------- basics */

typedef int32_t kvc_status;
enum {
  KVC_OK = 0,
  KVC_MORE = 1,           /* output full; call again for the rest (take_events, take_log only) */
  KVC_LATER = 2,          /* not known or not finished yet; ask again */
  KVC_E_ARG = -1,         /* the caller broke the contract of this call */
  KVC_E_STATE = -2,       /* right call, wrong moment */
  KVC_E_ROOM = -3,        /* caller's buffer too small; *needed is set */
  KVC_E_UNSUPPORTED = -4, /* a flag, bit, kind or field that this side does not know or do */
  KVC_E_FULL = -5,        /* a bounded resource is exhausted: normal under load */
  KVC_E_IO = -6,          /* a copy or a tier failed */
  KVC_E_CANCELLED = -7,   /* the job was cancelled before it ran */
  KVC_E_DEADLINE = -8,    /* the job is past its deadline; its end travels separately */
  KVC_E_INTERNAL = -127   /* an invariant of the callee broke: the handle is poisoned */
};

typedef struct kvc_sched kvc_sched; /* two handle types: a role cannot be passed for the other */
typedef struct kvc_rank kvc_rank;
typedef struct kvc_host kvc_host;
typedef uint64_t kvc_job; /* 0 is none; never reused within one scheduler open */

typedef struct kvc_bytes {
  const uint8_t *data;
  uint64_t size;
} kvc_bytes;

typedef struct kvc_list { /* an array whose elements may grow: element i is at data + i * stride */
  const void *data;
  uint64_t count;
  uint32_t stride;
  uint32_t reserved0;
} kvc_list;

/* ----------------------------------------------------------------------------------------- open */

/* kvc_group.kind */
enum {
  KVC_GROUP_FULL = 0,
  KVC_GROUP_SLIDING = 1, /* window_tokens: what a token attends to, itself included       */
  KVC_GROUP_CHUNKED = 2, /* window_tokens: the chunk                                      */
  KVC_GROUP_STATE = 3,   /* recurrent state; requires KVC_GROUP_CAP_STATE                 */
  KVC_GROUP_OTHER = 4    /* scratch: never cached, its slots in tables stay empty         */
};

/* kvc_group.caps. A bit outside caps_known is KVC_E_UNSUPPORTED naming group and bit (the host must
   decide each). */
#define KVC_GROUP_CAP_CACHEABLE (UINT64_C(1) << 0)
/* a visited index of its table is never reused for other tokens */
#define KVC_GROUP_CAP_POSITION_STABLE (UINT64_C(1) << 1)
#define KVC_GROUP_CAP_FINE_LOOKUP (UINT64_C(1) << 2) /* can hit at hash-unit granularity */
/* one block is the whole state; stored by position iff POSITION_STABLE */
#define KVC_GROUP_CAP_STATE (UINT64_C(1) << 3)
#define KVC_GROUP_CAP_SHARDED (UINT64_C(1) << 4) /* split over the context-parallel ranks */
#define KVC_GROUP_CAP_DRAFT (UINT64_C(1) << 5)   /* belongs to a draft model */
/* the engine can continue a window group inside a block */
#define KVC_GROUP_CAP_RESUME_INSIDE_BLOCK (UINT64_C(1) << 6)
#define KVC_GROUP_CAPS_ALL ((UINT64_C(1) << 7) - 1)

typedef struct kvc_group {
  uint32_t struct_size;
  int32_t kind;
  uint64_t caps;
  uint64_t caps_known;       /* bits that the host knows; must be KVC_GROUP_CAPS_ALL at least */
  uint64_t tokens_per_block; /* per rank */
  uint64_t window_tokens;    /* sliding: window, chunked: chunk, others 0 */
  uint64_t extra_retained_tokens; /* kept behind the window */
} kvc_group;

/* kvc_open.flags */
/* draft models drop the trailing block; without a DRAFT group: no effect, one log line */
#define KVC_OPEN_DRAFT_DROP (UINT64_C(1) << 0)
/* keys have a per-process root: refused with a persistent tier */
#define KVC_OPEN_RANDOM_ROOT (UINT64_C(1) << 1)
#define KVC_OPEN_FLAGS_ALL ((UINT64_C(1) << 2) - 1)

typedef struct kvc_open {
  uint32_t struct_size;
  uint32_t rank; /* rank role: its number, < ranks; scheduler role: 0 */
  /* of kvc_group: every group of the engine in order, also uncached ones; 1..KVC_GROUPS_MAX */
  kvc_list groups;
  uint64_t flags;
  uint64_t hash_unit_tokens;       /* h: tokens per key */
  uint64_t scheduler_block_tokens; /* S */
  uint32_t context_parallel;       /* >= 1 */
  uint32_t ranks;                  /* >= 1, a multiple of context_parallel */
  uint64_t cp_interleave_tokens;   /* token t lives on rank (t / this) mod context_parallel; >= 1 */
  /* block ids are 0 .. device_blocks - 1; KVC_NO_LIMIT: grows (measuring only) */
  uint64_t device_blocks;
  int64_t null_block;        /* the placeholder id; never copied */
  uint32_t key_bytes;        /* KVC_KEY_BYTES_MIN .. KVC_KEY_BYTES_MAX */
  uint32_t lookahead_tokens; /* multi-token draft lookahead, 0 none */
  uint64_t max_prompt_tokens;
  uint64_t max_total_tokens; /* prompt and output of one request */
  uint64_t max_batch_tokens; /* of one step */
  uint64_t max_live_requests;
  uint64_t max_running;
  uint64_t max_request_bytes;   /* connector memory for all live requests together */
  uint64_t max_steps_in_flight; /* >= 1 */
  /* -1 dense, 0 semantic boundaries only, r > 0: one state per r tokens */
  int64_t retention_tokens;
  /* weights, dtype, layout, parallelism, hash and its root. Keys of two namespaces never meet */
  kvc_bytes namespace_id;
  kvc_bytes config_toml; /* the connector's own options, UTF-8 TOML; empty: defaults */
} kvc_open;

enum {
  KVC_LOG_DEBUG = 0,
  KVC_LOG_INFO = 1,
  KVC_LOG_WARN = 2,
  KVC_LOG_ERROR = 3,
  KVC_LOG_PEER_FAULT = 4
};

/* kvc_host_api.caps */
/* the plugin starts no thread and reads no clock of its own: work is done in pump */
#define KVC_HOST_STEPPED (UINT64_C(1) << 0)
#define KVC_HOST_BLOCK_QUERY (UINT64_C(1) << 1)   /* has_key and block_of may be called */
#define KVC_HOST_RANK_VERDICTS (UINT64_C(1) << 2) /* the engine acts on load items of ranks */
/* the engine keeps no prefix cache of its own */
#define KVC_HOST_NO_DEVICE_CACHE (UINT64_C(1) << 3)

typedef struct kvc_host_api { /* passed to open, valid until close returns */
  uint32_t struct_size;
  uint32_t abi_minor;
  uint64_t caps; /* KVC_HOST_*; unknown bits are ignored */
  kvc_host *self;
  /* [any] +nowait since 1.0 opt
     Finished text. NULL: drained by take_log. PEER_FAULT: "the host broke rule <id>". */
  void (*log)(kvc_host *h, int32_t level, kvc_bytes text) KVC_NOTHROW;

  /* [any] +nowait since 1.0 opt
     Monotonic ns. NULL: CLOCK_MONOTONIC; NULL with KVC_HOST_STEPPED is KVC_E_ARG. */
  uint64_t (*now_ns)(kvc_host *h) KVC_NOTHROW;

  /* [any] since 1.0 opt
     Both or none. NULL: the plugin's own heap. A NULL result is out of memory. */
  void *(*alloc)(kvc_host *h, uint64_t size_bytes, uint64_t align_bytes)KVC_NOTHROW;
  void (*release)(kvc_host *h, void *p, uint64_t size_bytes, uint64_t align_bytes) KVC_NOTHROW;

  /* [any] +nowait since 1.0 opt
     "progress has news". Coalesced; must not call back into the plugin. */
  void (*wake)(kvc_host *h) KVC_NOTHROW;

  /* [sched] +nowait since 1.0 opt, KVC_HOST_BLOCK_QUERY
     Only from inside scheduler-role calls. has_key: 1 and *end_tokens: the device block has that
     key; 0: it has not. block_of: 1 and *block: a device block with that key; 0: none. */
  kvc_status (*has_key)(kvc_host *h, uint32_t group, int64_t block, const uint8_t *key,
                        uint64_t *end_tokens) KVC_NOTHROW;
  kvc_status (*block_of)(kvc_host *h, uint32_t group, const uint8_t *key,
                         int64_t *block) KVC_NOTHROW;
} kvc_host_api;

/* -------------------------------------------------------------------------------- shared pieces */

typedef struct kvc_block { /* a device block that a job holds */
  uint32_t struct_size;
  uint32_t group;
  int64_t block;
  uint64_t position;
} kvc_block;

/* A request's block table of one group. In lists of tables: one element per group, in group order.
   count 0: unchanged or not passed. Absolute: blocks[i] covers tokens [i * B_g, (i + 1) * B_g);
   first_changed: entries below it are as before. */
typedef struct kvc_table {
  uint32_t struct_size;
  uint32_t group;
  const int64_t *blocks;
  uint64_t count;
  uint64_t first_changed;
} kvc_table;

/* the state of group `group` after boundary_tokens tokens is in `block`; valid in this call only */
typedef struct kvc_handoff {
  uint32_t struct_size;
  uint32_t group;
  uint64_t request;
  int64_t block;
  uint64_t boundary_tokens;
} kvc_handoff;

/*
 * Lazy mode: a keyed device block that the engine is about to evict from its own prefix cache, in
 * its order of eviction. A connector that takes it holds it until complete(): the engine keeps it
 * out of its free queue. A refused one may be named again. Since candidates name no request, the
 * engine names no block that only requests with KVC_REQUEST_NO_WRITE gave up, none beyond their
 * store limit, and after KVC_RESET_INVALIDATE none that was written before.
 */
typedef struct kvc_candidate {
  uint32_t struct_size;
  uint32_t group;
  int64_t block;
  const uint8_t *key; /* key_bytes bytes */
  uint64_t end_tokens;
} kvc_candidate;

/* ------------------------------------------------------------------------------- scheduler role */

typedef struct kvc_class { /* groups whose blocks have the same bytes share one class of slots */
  uint32_t struct_size;
  uint32_t class_id;
  uint64_t group_mask;
  uint64_t slots_per_page;
  uint64_t bytes_per_block; /* on that rank */
  uint64_t usable_slots;    /* out of set_ranks: minimum over ranks; in: 0 */
} kvc_class;

typedef struct kvc_rank_info { /* what register_regions returned, carried to set_ranks */
  uint32_t struct_size;
  uint32_t rank;
  uint64_t pages;      /* KVC_NO_LIMIT: grows */
  kvc_list classes;    /* of kvc_class */
  kvc_bytes inventory; /* of the rank's persistent tier: opaque, versioned, may be empty */
} kvc_rank_info;

/* kvc_request.flags */
/* lookup answers 0, why no_read; stores go on */
#define KVC_REQUEST_NO_READ (UINT32_C(1) << 0)
#define KVC_REQUEST_NO_WRITE (UINT32_C(1) << 1) /* nothing is offered */
#define KVC_REQUEST_FLAGS_ALL ((UINT32_C(1) << 2) - 1)

typedef struct kvc_request {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t request; /* id, never reused, not 0 */
  uint64_t prompt_tokens;
  const uint8_t *keys; /* n_keys x key_bytes: one key per complete hash unit, from token 0 */
  uint64_t n_keys;
  uint64_t load_limit_tokens;  /* a hit ends at or before it; KVC_NO_LIMIT none */
  uint64_t store_limit_tokens; /* nothing that ends behind it is offered; KVC_NO_LIMIT none */
} kvc_request;

typedef struct kvc_extend {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t request;
  uint64_t first_key; /* index of the first new key: proves that the list is append only */
  const uint8_t *keys;
  uint64_t n_keys;
} kvc_extend;

/* kvc_lookup_out.why */
enum {
  KVC_WHY_NONE = 0,
  KVC_WHY_MISS = 1,
  KVC_WHY_LOCAL_UNALIGNED = 2, /* device_tokens is no multiple of the scheduler block */
  KVC_WHY_NO_RANKS = 3,        /* before set_ranks */
  KVC_WHY_NO_READ = 4,
  KVC_WHY_LOAD_FAILED = 5, /* until the request has been admitted once */
  KVC_WHY_RESET = 6,
  KVC_WHY_COST_GATE = 7,
  /* with KVC_LATER: an open load of another request covers the whole rest of this hit */
  KVC_WHY_ATTACHED = 8,
  KVC_WHY_NOT_TRACKED = 9 /* request_begin answered KVC_E_FULL for this id */
};

typedef struct kvc_lookup_in {
  uint32_t struct_size;
  uint32_t flags; /* none in 1.0 */
  uint64_t request;
  uint64_t total_tokens; /* of the request now; at most total - 1 can hit */
  /* what the engine's own cache serves, a multiple of the scheduler block */
  uint64_t device_tokens;
  uint64_t external_cap_tokens; /* at most so many beyond device_tokens; KVC_NO_LIMIT none */
} kvc_lookup_in;

typedef struct kvc_lookup_out {
  uint32_t struct_size;
  uint32_t flags; /* none in 1.0 */
  uint64_t external_tokens;
  int32_t why;
  uint32_t reserved0;
} kvc_lookup_out;

typedef struct kvc_alloc_in {
  uint32_t struct_size;
  uint32_t flags; /* none in 1.0 */
  uint64_t request;
  uint64_t accepted_tokens; /* 0, or a multiple of h, at most what the last lookup offered */
  kvc_list tables;          /* of kvc_table: the whole table of every group */
} kvc_alloc_in;

enum { KVC_MEDIUM_HOST = 1, KVC_MEDIUM_DISK = 2, KVC_MEDIUM_REMOTE = 3 };

typedef struct kvc_medium_tokens {
  uint32_t struct_size;
  int32_t medium;
  uint64_t tokens;
} kvc_medium_tokens;

typedef struct kvc_alloc_out {
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_job job;    /* 0: no load */
  kvc_list held;  /* of kvc_block: destinations, by group, positions ascending */
  kvc_list media; /* of kvc_medium_tokens; sums to accepted_tokens */
} kvc_alloc_out;

/* kvc_step_request.flags */
/* first step after a preemption: the tables are passed whole */
#define KVC_STEP_RESUMED (UINT32_C(1) << 0)
#define KVC_STEP_FLAGS_ALL ((UINT32_C(1) << 1) - 1)

typedef struct kvc_step_request {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t request;
  /* written by forwards launched with or before this step, and final (design 2.3) */
  uint64_t confirmed_tokens;
  /* of kvc_table, as this step's forward uses them; a released entry is the null block */
  kvc_list tables;
} kvc_step_request;

typedef struct kvc_step {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t step;      /* 1, 2, ... per open */
  kvc_list scheduled; /* of kvc_step_request */
  const uint64_t *preempted;
  uint64_t n_preempted;
  kvc_list handoffs;   /* of kvc_handoff */
  kvc_list candidates; /* of kvc_candidate */
} kvc_step;

enum { KVC_JOB_LOAD = 1, KVC_JOB_STORE = 2 };

typedef struct kvc_plan_job {
  uint32_t struct_size;
  int32_t kind;
  kvc_job job;
  uint64_t request; /* 0: a store job of several requests */
  /* of kvc_block: the holds that this plan adds, deepest position first. Those of loads and of
     finish-time stores were listed by alloc_update and request_end and do not come again */
  kvc_list held;
} kvc_plan_job;

typedef struct kvc_plan {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t step;
  kvc_list jobs;   /* of kvc_plan_job: every job in these bytes */
  kvc_bytes bytes; /* carry to every rank */
} kvc_plan;

enum { KVC_SIDE_SOURCE = 1, KVC_SIDE_DESTINATION = 2 };

typedef struct kvc_failed_block {
  uint32_t struct_size;
  uint32_t group;
  int64_t block;
  uint64_t position;
  uint32_t rank;
  kvc_status status;
  int32_t side; /* KVC_SIDE_*: only source failures mark tier entries bad */
  uint32_t reserved0;
} kvc_failed_block;

typedef struct kvc_ended_job {
  uint32_t struct_size;
  int32_t kind;
  kvc_job job;
  uint64_t request;
  kvc_status status;
  uint32_t reserved0;
  kvc_list failed;   /* of kvc_failed_block */
  kvc_list released; /* of kvc_block: holds to drop, in this order (deepest position first) */
} kvc_ended_job;

/* one per load job; the request may be scheduled (OK) or must recompute (others) */
typedef struct kvc_verdict {
  uint32_t struct_size;
  kvc_status status;
  uint64_t request;
  kvc_job job;
} kvc_verdict;

typedef struct kvc_rejected { /* a report or an entry of one that was not used; the rest was */
  uint32_t struct_size;
  uint32_t rank;
  uint64_t report; /* index in the call */
  kvc_job job;     /* 0: the whole report */
  kvc_status status;
  uint32_t reserved0;
} kvc_rejected;

typedef struct kvc_complete_out {
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_list jobs;     /* of kvc_ended_job */
  kvc_list verdicts; /* of kvc_verdict */
  kvc_list rejected; /* of kvc_rejected */
} kvc_complete_out;

enum { KVC_END_STOP = 0, KVC_END_LENGTH = 1, KVC_END_ABORT = 2, KVC_END_ERROR = 3 };

typedef struct kvc_end_in {
  uint32_t struct_size;
  int32_t reason;
  uint64_t request;
  uint64_t confirmed_tokens; /* the last sampled token has no KV and does not count */
  kvc_list tables;           /* of kvc_table: final tables; empty if it owns no blocks */
  kvc_list handoffs;         /* of kvc_handoff: finish-time state tails */
} kvc_end_in;

typedef struct kvc_end_out {
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_job job;   /* of the finish-time stores; 0 none */
  kvc_list held; /* of kvc_block: every device block of the request that open jobs still hold */
} kvc_end_out;

/* published == the sum of all other fields, after every scheduler-role call. Never grows: new
   outcomes make a new row. */
typedef struct kvc_offer_counts {
  /* offers made: one per (admission, group, position or boundary) */
  uint64_t published;
  /* copied and published: lookups can hit it */
  uint64_t stored;
  /* not decided yet: its copy is open, or it is offered again with the next step */
  uint64_t pending;
  /* its key is in the tier; counts as a use of it */
  uint64_t skipped_already_cached;
  /* another open copy writes its key */
  uint64_t skipped_in_flight;
  /* the request has no key for it, or the device block does not have it */
  uint64_t skipped_not_hashed;
  /* no slot: everything in the tier is in use. A larger pool helps */
  uint64_t dropped_pool_full;
  /* a hand-off of an ended, preempted or not admitted request */
  uint64_t dropped_request_gone;
  /* the table has no block there any more: normal behind a sliding window */
  uint64_t dropped_null_block;
  /* the engine broke a rule; the log names it (PEER_FAULT) */
  uint64_t dropped_bad_offer;
  /* an earlier position of the request was refused and never stored */
  uint64_t dropped_no_parent;
  /* the copy of an earlier position failed */
  uint64_t dropped_parent_failed;
  /* its copy failed, or is past its deadline */
  uint64_t dropped_copy_failed;
  /* no slot, only because open leases pin the tier */
  uint64_t dropped_leased;
  /* held_device_blocks_max blocks are held already */
  uint64_t dropped_hold_budget;
  /* a reset came before its end */
  uint64_t dropped_reset;
  /* no room in the plan of this step */
  uint64_t dropped_plan_full;
} kvc_offer_counts;

typedef struct kvc_boundary_stats {
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_offer_counts handoffs;   /* hand-offs alone */
  kvc_offer_counts all_offers; /* hand-offs, positional offers, tails and finish-time offers */
} kvc_boundary_stats;

typedef struct kvc_stat { /* monotonic unless the name ends in _now */
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_bytes name;   /* name and labels live as long as the handle */
  kvc_bytes labels; /* key=value,key=value; may be empty */
  uint64_t value;
} kvc_stat;

typedef struct kvc_pending {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t load_jobs;
  uint64_t store_jobs;
  uint64_t held_blocks; /* device blocks that will come back */
  /* device blocks whose copies never ended: they come back at close only */
  uint64_t quarantined_blocks;
  /* jobs between the connector's own tiers, that plans and reports carry: keep stepping until 0, to
     lose nothing; no request waits for them */
  uint64_t tier_jobs;
} kvc_pending;

enum { KVC_EVENT_STORED = 1, KVC_EVENT_REMOVED = 2, KVC_EVENT_CLEARED = 3 };

/* CLEARED: the whole medium, other fields 0. Loss is counted in stats (events_lost) */
typedef struct kvc_event {
  uint32_t struct_size;
  int32_t kind;
  int32_t medium;
  uint32_t group;
  uint64_t begin_tokens; /* STORED: the block covers [begin, end) */
  uint64_t end_tokens;
  uint64_t request; /* STORED: whose offer it was; else 0 */
  uint32_t key_bytes;
  uint32_t has_parent;            /* 1: parent_key ends at begin_tokens */
  uint8_t key[KVC_KEY_BYTES_MAX]; /* zero behind key_bytes */
  uint8_t parent_key[KVC_KEY_BYTES_MAX];
} kvc_event;

/* reset flags */
#define KVC_RESET_INVALIDATE (UINT64_C(1) << 0) /* weights changed: open loads end failed */

/* ------------------------------------------------------------------------------------ rank role */

enum { KVC_DEVICE_HOST = 0, KVC_DEVICE_CUDA = 1 };

/* block i of the region: block_bytes at base + i * block_stride_bytes */
typedef struct kvc_region {
  uint32_t struct_size;
  int32_t device_kind;
  int32_t device_ordinal;
  uint32_t layer;
  uint8_t *base;
  uint64_t size_bytes;
  uint64_t block_stride_bytes;
  uint64_t block_bytes;
  uint64_t group_mask; /* groups whose blocks live here; several groups may overlay one region */
} kvc_region;

/* A growing device pool (device_blocks KVC_NO_LIMIT) registers one region of address space that is
   large enough. */

enum {
  KVC_FENCE_NONE = 0,
  KVC_FENCE_CUDA_EVENT = 1,
  KVC_FENCE_CUDA_STREAM = 2,
  KVC_FENCE_COUNTER = 3
};

typedef struct kvc_fence {
  uint32_t struct_size;
  int32_t kind;
  void *object; /* event: captured at submit; stream: its position at submit */
  /* 8-byte aligned, readable until close; reached when its atomic load is >= value */
  const uint64_t *counter;
  uint64_t value;
} kvc_fence;

typedef struct kvc_load_done { /* this rank's part of a load */
  uint32_t struct_size;
  kvc_status status;
  uint64_t request;
  kvc_job job;
  kvc_list failed; /* of kvc_failed_block */
} kvc_load_done;

typedef struct kvc_progress {
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_list loads;   /* of kvc_load_done: each load of this rank exactly once */
  kvc_bytes report; /* carry to complete; empty: nothing to say */
} kvc_progress;

/* ------------------------------------------------------------------------------------ the table */

/* kvc_plugin_api.caps */
/* works under KVC_HOST_STEPPED; requires pump_scheduler, pump_rank */
#define KVC_CAP_STEPPED (UINT64_C(1) << 0)
#define KVC_CAP_FINE_HITS (UINT64_C(1) << 1)  /* a hit may end inside a block */
#define KVC_CAP_STATES (UINT64_C(1) << 2)     /* stores hand-offs of state groups */
#define KVC_CAP_EVENTS (UINT64_C(1) << 3)     /* requires take_events */
#define KVC_CAP_CANDIDATES (UINT64_C(1) << 4) /* lazy mode: uses kvc_step.candidates */
#define KVC_CAP_PERSISTENT (UINT64_C(1) << 5) /* has a tier that outlives the process */

typedef struct kvc_description { /* static text */
  uint32_t struct_size;
  uint32_t reserved0;
  kvc_bytes name;
  kvc_bytes version;
  kvc_bytes build_id;
} kvc_description;

typedef struct kvc_plugin_api {
  uint32_t struct_size;
  uint32_t abi_minor;
  uint64_t caps;

  /* [any] +nowait +noalloc +pure since 1.0 req
     Who the connector is. On failure: KVC_E_ARG for a room too small for struct_size. */
  kvc_status (*describe)(kvc_description *out) KVC_NOTHROW;

  /* [ctl] since 1.0 req
     Opens a role. Requires: host table and open struct per their comments. Ensures: *out is a
     handle; every gate that switches a feature off for this layout was logged once and stands in
     stats and explain.
     On failure: *out is NULL, the text with the numbers went to host->log, nothing is left behind.
     KVC_E_ARG: layout, size or TOML; KVC_E_UNSUPPORTED: a bit, kind or flag; KVC_E_FULL: memory;
     KVC_E_STATE: tier owned by another opener. */
  kvc_status (*open_scheduler)(const kvc_host_api *host, const kvc_open *open,
                               kvc_sched **out) KVC_NOTHROW;
  kvc_status (*open_rank)(const kvc_host_api *host, const kvc_open *open,
                          kvc_rank **out) KVC_NOTHROW;

  /* [ctl] since 1.0 req
     Accepts NULL. Legal with jobs in flight. Ensures: after it returns no thread of the plugin runs
     for this handle and no byte of host or device memory is touched. Undelivered completions are
     dropped. */
  void (*close_scheduler)(kvc_sched *s) KVC_NOTHROW;
  void (*close_rank)(kvc_rank *r) KVC_NOTHROW;

  /* [sched] / [rank] +nowait +noalloc +pure since 1.0 req
     Text of the last failed call of this handle; empty after none. Survives successes. [any] calls
     have no text. */
  kvc_status (*last_error_scheduler)(const kvc_sched *s, char *buf, uint64_t cap,
                                     uint64_t *needed) KVC_NOTHROW;
  kvc_status (*last_error_rank)(const kvc_rank *r, char *buf, uint64_t cap,
                                uint64_t *needed) KVC_NOTHROW;

  /* [sched] since 1.0 req
     Once, before the first lookup that shall hit: every rank's number and what its register_regions
     returned. Ensures: *usable (of kvc_class) names the slots per class, minimum over ranks.
     On failure: KVC_E_ARG with the numbers: a rank missing or twice, a class with < 2 slots, ranks
     that disagree on classes or slots per page; KVC_E_STATE: called before. */
  kvc_status (*set_ranks)(kvc_sched *s, const kvc_list *ranks, kvc_list *usable) KVC_NOTHROW;

  /* [sched] +nowait since 1.0 req
     A request exists. Keys are copied. On failure: KVC_E_ARG: id 0, known or used before, more keys
     than tokens hold, over max_prompt_tokens; KVC_E_FULL: beyond max_request_bytes or
     max_live_requests: the engine runs it without connector and later calls for the id are OK
     no-ops. */
  kvc_status (*request_begin)(kvc_sched *s, const kvc_request *request) KVC_NOTHROW;

  /* [sched] +nowait since 1.0 req
     Appends keys. On failure: KVC_E_ARG: unknown id, first_key is not the number of keys so far,
     more than max_total_tokens hold. KVC_E_FULL: as request_begin; the request is then no longer
     tracked for stores behind its present keys. */
  kvc_status (*request_extend)(kvc_sched *s, const kvc_extend *extend) KVC_NOTHROW;

  /* [sched] +nowait +noalloc +calls-host since 1.0 req
     How many tokens beyond device_tokens can be loaded; opens a lease on what it found. Repeatable
     every step: the newest answer counts. For a running id it is the notice of its preemption.
     KVC_LATER (why attached): ask again.
     On failure: KVC_E_ARG: unknown id, counts that contradict the request; KVC_E_STATE: a load of
     the id has no verdict. */
  kvc_status (*lookup)(kvc_sched *s, const kvc_lookup_in *in, kvc_lookup_out *out) KVC_NOTHROW;

  /* [sched] +nowait +noalloc since 1.0 req
     Ends the lease of the id, if any; unknown id: KVC_E_ARG. */
  kvc_status (*lookup_cancel)(kvc_sched *s, uint64_t request) KVC_NOTHROW;

  /* [sched] +nowait +noalloc since 1.0 req
     The engine allocated, and takes `accepted_tokens` of the hit (0 is legal at any time, any
     number of times; it ends the lease). Ensures: a load is all or nothing over all groups; entry i
     of group g goes to table[g][position i]. If exactly the accepted length cannot be served any
     more, OK with a job without copies that ends KVC_E_IO the normal way.
     On failure: KVC_E_ARG: accepted > offered, no multiple of h, a null or foreign entry where the
     load must write, unknown id; KVC_E_STATE: a load of the id has no verdict yet. The lease
     stays. */
  kvc_status (*alloc_update)(kvc_sched *s, const kvc_alloc_in *in, kvc_alloc_out *out) KVC_NOTHROW;

  /* [sched] +nowait +noalloc +calls-host since 1.0 req
     Exactly once per step, also empty ones. Ends leases of age lease_steps. Ensures: the plan holds
     every job id handed out since the last plan, and the new stores; a bad element is skipped,
     logged as PEER_FAULT, counted dropped_bad_offer.
     On failure: only for a malformed struct or a wrong step number; nothing changed, call again. */
  kvc_status (*build_store_jobs)(kvc_sched *s, const kvc_step *step, kvc_plan *out) KVC_NOTHROW;

  /* [sched] +nowait +noalloc since 1.0 req
     Takes reports of ranks, in any order, split or late. Ensures: a job is in out->jobs once, when
     every rank reported its end; one verdict per load job, also after request_end. Unknown,
     repeated or foreign entries stand in out->rejected.
     On failure: only for a malformed struct; a report of a foreign epoch is rejected with
     KVC_E_STATE. */
  kvc_status (*complete)(kvc_sched *s, const kvc_bytes *reports, uint64_t n_reports,
                         kvc_complete_out *out) KVC_NOTHROW;

  /* [sched] +nowait +noalloc +calls-host since 1.0 req
     The request is over. Ensures: last offers (blocks, tails, finish-time states) are made; open
     jobs still end.
     On failure: KVC_E_ARG: unknown id; a confirmed_tokens that fell ends the request all the
     same. */
  kvc_status (*request_end)(kvc_sched *s, const kvc_end_in *in, kvc_end_out *out) KVC_NOTHROW;

  /* [any] +nowait +noalloc +pure since 1.0 req
     The snapshots published at the end of the last scheduler-role call. stats: cap elements of
     `stride` bytes (at least sizeof(kvc_stat) of 1.0), *needed in elements. */
  kvc_status (*boundary_stats)(const kvc_sched *s, kvc_boundary_stats *out) KVC_NOTHROW;
  kvc_status (*stats)(const kvc_sched *s, void *out, uint32_t stride, uint64_t cap,
                      uint64_t *needed) KVC_NOTHROW;
  kvc_status (*has_pending)(const kvc_sched *s, kvc_pending *out) KVC_NOTHROW;

  /* [any] +pure since 1.0 req
     UTF-8 JSON. request 0: all gates, options in effect and the last 256 requests; else that
     request (KVC_E_ARG: not among them). *needed in bytes. */
  kvc_status (*explain)(const kvc_sched *s, uint64_t request, char *buf, uint64_t cap,
                        uint64_t *needed) KVC_NOTHROW;

  /* [sched] +nowait since 1.0 opt, KVC_CAP_EVENTS
     Drains at most cap events into elements of `stride` bytes; *count is what was written; KVC_MORE
     if more wait. */
  kvc_status (*take_events)(kvc_sched *s, void *out, uint32_t stride, uint64_t cap,
                            uint64_t *count) KVC_NOTHROW;

  /* [sched] / [rank] +nowait since 1.0 req
     Drains log lines ("level text\n") if the host gave no log; whole lines only; KVC_MORE if more
     wait. */
  kvc_status (*take_log_scheduler)(kvc_sched *s, char *buf, uint64_t cap,
                                   uint64_t *count) KVC_NOTHROW;
  kvc_status (*take_log_rank)(kvc_rank *r, char *buf, uint64_t cap, uint64_t *count) KVC_NOTHROW;

  /* [sched] since 1.0 req
     From its return no lookup hits anything older. KVC_LATER: slots of open jobs still drain; a
     second reset is legal.
     On failure: KVC_E_STATE: INVALIDATE under KVC_HOST_RANK_VERDICTS with a load without verdict;
     KVC_E_UNSUPPORTED: flag. */
  kvc_status (*reset)(kvc_sched *s, uint64_t flags) KVC_NOTHROW;

  /* [sched] / [rank] since 1.0 opt, KVC_CAP_STEPPED
     Does at most `budget` units of background work; KVC_LATER if more waits. Required under
     KVC_HOST_STEPPED; elsewhere OK and nothing done. */
  kvc_status (*pump_scheduler)(kvc_sched *s, uint32_t budget) KVC_NOTHROW;
  kvc_status (*pump_rank)(kvc_rank *r, uint32_t budget) KVC_NOTHROW;

  /* [rank] since 1.0 req
     Once: of kvc_region. Ensures: *out is to be carried to set_ranks. Regions stay readable and
     writable until close.
     On failure: KVC_E_ARG with the numbers: overflow, stride < block bytes, region shorter than its
     blocks, a cacheable group without region, < 2 slots; KVC_E_UNSUPPORTED: device kind;
     KVC_E_FULL: host memory; KVC_E_STATE: called before. */
  kvc_status (*register_regions)(kvc_rank *r, const kvc_list *regions,
                                 kvc_rank_info *out) KVC_NOTHROW;

  /* [rank] +nowait since 1.0 req
     Once each per plan, each in plan order. The load fence covers every earlier use of the
     destinations, zeroing and block copies of this step included; the store fence covers the step's
     forward. A store -> load chain on one slot is ordered.
     On failure: KVC_E_ARG: malformed plan; KVC_E_STATE: foreign epoch, step out of order or
     repeated; KVC_E_UNSUPPORTED: fence kind. A job that names a block or slot out of range ends
     failed, the rest runs. */
  kvc_status (*submit_loads)(kvc_rank *r, kvc_bytes plan, const kvc_fence *fence) KVC_NOTHROW;
  kvc_status (*submit_stores)(kvc_rank *r, kvc_bytes plan, const kvc_fence *fence) KVC_NOTHROW;

  /* [rank] +nowait since 1.0 req
     What ended since the last call; checks the deadlines. */
  kvc_status (*progress)(kvc_rank *r, kvc_progress *out) KVC_NOTHROW;

  /* [rank] since 1.0 req
     Waits until the parts of these jobs on this rank have ended (n 0: all open ones), at most
     timeout_ns of the host's clock; KVC_LATER: they have not. Under KVC_HOST_STEPPED: does the work
     that can be done and returns. Unknown ids count as ended. Results come from progress. */
  kvc_status (*wait)(kvc_rank *r, const kvc_job *jobs, uint64_t n_jobs,
                     uint64_t timeout_ns) KVC_NOTHROW;

  /* [any] +nowait +pure since 1.0 req
     Table of an extension ("kvc.layerwise/1"), NULL if absent; lives as long as the library. */
  const void *(*extension)(kvc_bytes id)KVC_NOTHROW;
} kvc_plugin_api;

/* [load] since 1.0. Fills min(out->struct_size, own size). May run twice, on any thread; starts no
   thread, allocates nothing. KVC_E_ARG: room below struct_size, abi_minor and caps;
   KVC_E_UNSUPPORTED: the host is older than it can serve. */
KVC_EXPORT kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api *out) KVC_NOTHROW;
typedef kvc_status (*kvc_plugin_entry_fn)(uint32_t host_minor, kvc_plugin_api *out) KVC_NOTHROW;
#define KVC_PLUGIN_ENTRY_NAME "kvc_plugin_entry_v1"

KVC_ASSERT(sizeof(void *) == 8);
KVC_ASSERT(sizeof(kvc_list) == 24 && sizeof(kvc_bytes) == 16);
KVC_ASSERT(sizeof(kvc_group) == 48 && sizeof(kvc_open) == 192);
KVC_ASSERT(offsetof(kvc_plugin_api, describe) == 16);

#ifdef __cplusplus
}
#endif
#endif /* KVC_KVC_H_ */
