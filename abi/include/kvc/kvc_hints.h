/* The extension "kvc.hints/1": what an engine knows of a request's future and the connector cannot.
 *
 * Three things, each of use without the others: how much a request's blocks are worth beside those
 * of others (priority), how long they are worth anything (time to live), and which prefixes stay
 * whatever comes (pins). They are about the connector's own memory, the host tier; what slower
 * tiers keep is their matter. An engine that does not use them loses nothing. docs/hints.md tells
 * how the connectors here go about it. */
#ifndef KVC_KVC_HINTS_H_
#define KVC_KVC_HINTS_H_

#include <kvc/kvc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_HINTS_EXTENSION "kvc.hints/1"

/* kvc_hint_in.priority */
enum { KVC_PRIORITY_LEAST = -2, KVC_PRIORITY_NORMAL = 0, KVC_PRIORITY_MOST = 2 };

/* kvc_hint_in.flags */
enum {
  /* The request will be admitted soon: what slower tiers have of the prefix that it may hit is
     brought into the host tier from now on, as far as nothing must go for it. A lookup of it that
     comes too early may be answered KVC_LATER. KVC_OK says no more than that the wish was heard.
     A connector that never does this may answer KVC_E_UNSUPPORTED: give the rest of the hint
     without it. */
  KVC_HINT_PREFETCH = 1
};

typedef struct kvc_hint_in {
  uint32_t struct_size;
  uint32_t flags;
  uint64_t request;
  int32_t priority;
  uint32_t reserved0;
  uint64_t ttl_ns; /* by kvc_host_api.now_ns; 0: for ever */
} kvc_hint_in;

typedef struct kvc_pin_in {
  uint32_t struct_size;
  uint32_t flags; /* none in version 1 */
  uint64_t request;
  uint64_t tokens; /* at most so many of the request's, >= 1; KVC_NO_LIMIT: all */
} kvc_pin_in;

typedef struct kvc_pin_out {
  uint32_t struct_size;
  uint32_t reserved0;
  uint64_t pin; /* 0: nothing of the prefix is there, and nothing was pinned */
  uint64_t tokens;
  uint64_t blocks; /* that count against the connector's bound */
} kvc_pin_out;

/* What a hint is about: a stored block belongs to the request that used it last, by storing it or
 * by a load; but while it belongs to one of higher priority it stays that one's, and each such use
 * counts as a use by its owner. Blocks that may go (nothing hangs on them, nothing holds them) go
 * in this order: what no lookup can use; what belongs to a request whose time to live has passed
 * since any block of it was used last; the lower priority before the higher; of equal priority as
 * the connector decides without hints. Nothing is evicted for a store of lower priority. What has
 * outlived its time is found and loaded as before, as long as it is there; a use gives it a new
 * time. A block never goes before those that hang on it. */
typedef struct kvc_hints_api {
  uint32_t struct_size;
  uint32_t reserved0;

  /* [sched] +nowait +noalloc
     Between request_begin and the first admission of the request, which is an alloc_update that
     passes tables or accepts tokens, or its first step. The last hint counts.
     On failure, and nothing changed: KVC_E_ARG: unknown id, a priority out of range; KVC_E_STATE:
     the request was admitted before, or is being prefetched; KVC_E_UNSUPPORTED: flags, reserved0.
     An id that request_begin answered KVC_E_FULL for: OK, no effect. */
  kvc_status (*hint)(kvc_sched *s, const kvc_hint_in *in) KVC_NOTHROW;

  /* [sched] +nowait +noalloc
     Of a known request: the longest prefix of at most `tokens` that a lookup from token 0 would
     find now in the host tier, without regard to the request's flags and limits. It and what such a
     lookup needs of it stay until unpin, a reset, close, or until one of its blocks cannot be read
     and must be written again. The request may end before. Pins add.
     On failure, and nothing changed: KVC_E_ARG: unknown id, 0 tokens; KVC_E_FULL: as many pins are
     open as the connector allows, or it would hold more blocks than it may: last_error has the
     numbers; KVC_E_UNSUPPORTED: flags. An id that request_begin answered KVC_E_FULL for: OK and no
     pin. */
  kvc_status (*pin)(kvc_sched *s, const kvc_pin_in *in, kvc_pin_out *out) KVC_NOTHROW;

  /* [sched] +nowait +noalloc
     KVC_OK also for a pin that is over. KVC_E_ARG: an id that no pin had. */
  kvc_status (*unpin)(kvc_sched *s, uint64_t pin) KVC_NOTHROW;
} kvc_hints_api;

KVC_ASSERT(sizeof(kvc_hint_in) == 32 && sizeof(kvc_pin_in) == 24 && sizeof(kvc_pin_out) == 32);
KVC_ASSERT(sizeof(kvc_hints_api) == 32);

#ifdef __cplusplus
}
#endif
#endif /* KVC_KVC_HINTS_H_ */
