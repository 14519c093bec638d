/* The extension "kvc.retention/1": at which boundaries of a prompt the connector wants states.
 *
 * A state is as large as hundreds of tokens of attention, and most of those that an engine could
 * hand off are never used again. An engine that has this extension asks, once per admission of a
 * request and before it plans the first chunk, and does what the answer says; one that has not
 * hands off what it likes, and all of that is taken. docs/policies.md tells what is answered. */
#ifndef KVC_KVC_RETENTION_H_
#define KVC_KVC_RETENTION_H_

#include <kvc/kvc.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVC_RETENTION_EXTENSION "kvc.retention/1"

/* kvc_retention_out.mode; treat an unknown one as KVC_RETENTION_ENGINE */
enum {
  KVC_RETENTION_ENGINE = 0, /* hand off what you would without this extension; the list is empty */
  KVC_RETENTION_LISTED = 1  /* the states at the listed boundaries, and no others */
};

typedef struct kvc_retention_in {
  uint32_t struct_size;
  uint32_t flags; /* none in version 1 */
  uint64_t request;
  uint64_t begin_tokens; /* the admission begins here: what the device has, and what is loaded */
} kvc_retention_in;

typedef struct kvc_retention_out {
  uint32_t struct_size;
  int32_t mode;
  /* ascending multiples of the hash unit in [begin, prompt], none 0. begin itself is listed only if
     the connector has no state there: it is that of the engine's own cache */
  const uint64_t *boundaries;
  uint64_t n_boundaries;
} kvc_retention_out;

/* The engine ends a chunk at every listed boundary that it computes. It hands the state of every
 * state group there off, in the record of the step that computes it or of a later one, or in
 * request_end, from a block that no later step writes: where the boundary lies inside a block, the
 * request goes on in its block and the state moves to a copy, as a prompt's tail does. Together
 * with the states of a boundary inside an attention block the connector takes what attention
 * blocks hold of it, by the tables of that record: all of it or nothing. With KVC_HOST_BLOCK_QUERY
 * it asks has_key of the attention block for the key of the boundary, of the block's end, or of the
 * prompt's tail in that block. */
typedef struct kvc_retention_api {
  uint32_t struct_size;
  uint32_t reserved0;

  /* [sched] +nowait +noalloc
     The list is the connector's, valid until the next call of this slot on the same handle. The
     first question of a request also tells the connector that this prompt is about to be computed.
     May be asked before set_ranks.
     On failure: KVC_E_ARG: unknown id, a begin behind the prompt; KVC_E_UNSUPPORTED: flags. An id
     that request_begin answered KVC_E_FULL for: OK and KVC_RETENTION_ENGINE. */
  kvc_status (*boundaries)(kvc_sched *s, const kvc_retention_in *in,
                           kvc_retention_out *out) KVC_NOTHROW;
} kvc_retention_api;

KVC_ASSERT(sizeof(kvc_retention_in) == 24 && sizeof(kvc_retention_out) == 24);
KVC_ASSERT(sizeof(kvc_retention_api) == 16);

#ifdef __cplusplus
}
#endif
#endif /* KVC_KVC_RETENTION_H_ */
