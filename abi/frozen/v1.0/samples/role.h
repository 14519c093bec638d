/* What every connector in C does the same way, whatever it keeps: it checks how it is opened, what
 * memory it is given, fences and plans; it keeps texts. Copy it beside connector.c. */
#ifndef KVC_DOCS_MINIMAL_ROLE_H_
#define KVC_DOCS_MINIMAL_ROLE_H_

#ifdef __cplusplus
#error "docs/minimal is C11: compile it as C; a connector in C++ starts from kvc.hpp (docs/abi.md)"
#endif

#include <inttypes.h>
#include <kvc/kvc_util.h>
#include <stdio.h>
#include <stdlib.h>

/* Bytes of a plan: only ranks of this connector read them. */
typedef struct plan_header {
  uint64_t magic; /* PLAN_MAGIC: the bytes KVCMIN, version 1 */
  uint64_t epoch; /* one per opened scheduler */
  uint64_t step;
} plan_header;
#define PLAN_MAGIC UINT64_C(0x01004e494d43564b)

typedef struct role { /* of either handle */
  kvc_host_api host;
  kvc_open how;
  uint64_t cacheable; /* masks of groups */
  uint64_t states;
  uint64_t drafts;
  char error[128]; /* of the last failed call */
  char log[512];   /* whole lines for take_log, if the host has no log */
} role;

/* Is there room for the first field of an answer? Asked before anything changes. */
static inline int has_room(const void* out) {
  uint32_t room = 0;
  if (out != NULL) memcpy(&room, out, sizeof room);
  return room >= sizeof room;
}

/* A copy of a struct that came in; returns from the slot if it is malformed, or if `out`, where the
   answer will go, has no room. `h` is the handle. */
#define TAKE(h, T, mine, in, out)                      \
  T mine;                                              \
  if ((h) == NULL || !has_room(out)) return KVC_E_ARG; \
  if (KVC_READ(T, &mine, in) != KVC_OK) return fail(&(h)->role, KVC_READ(T, &mine, in), #T, 0, 0)
#define REFUSE(h, when, status, what, a, b) \
  if (when) return fail(&(h)->role, status, what, a, b)
#define ANSWER(T, answer) \
  T answer;               \
  KVC_CLEAR(&answer)

/* "what: a, b" is the text of last_error. */
static inline kvc_status fail(role* r, kvc_status status, const char* what, uint64_t a,
                              uint64_t b) {
  snprintf(r->error, sizeof r->error, "%s: %" PRIu64 ", %" PRIu64, what, a, b);
  return status;
}

static inline void say(role* r, int32_t level, const char* text) {
  static const char* const levels[] = {"debug", "info", "warn", "error", "peer_fault"};
  const size_t used = strlen(r->log);
  if (r->host.log != NULL) {
    r->host.log(r->host.self, level, kvc_text_of(text));
  } else if (used + strlen(text) + sizeof "peer_fault \n" <= sizeof r->log) {
    snprintf(r->log + used, sizeof r->log - used, "%s %s\n", levels[level], text);
  }
}

/* The host broke a rule; the call goes on without the element. */
static inline void fault(role* r, const char* what, uint64_t a, uint64_t b) {
  char text[128];
  snprintf(text, sizeof text, "%s: %" PRIu64 ", %" PRIu64, what, a, b);
  say(r, KVC_LOG_PEER_FAULT, text);
}

static inline kvc_status take_log(role* r, char* buf, uint64_t cap, uint64_t* count) {
  const size_t have = r == NULL ? 0 : strlen(r->log);
  size_t n = have;
  if (r == NULL || count == NULL || (buf == NULL && cap != 0)) return KVC_E_ARG;
  while (n > 0 && (n > cap || r->log[n - 1] != '\n')) --n;
  if (n > 0) memcpy(buf, r->log, n);
  memmove(r->log, r->log + n, have - n + 1);
  *count = n;
  return n < have ? KVC_MORE : KVC_OK;
}

static inline kvc_status check_group(role* r, uint64_t i) {
  kvc_group g;
  const kvc_status s = KVC_READ_AT(kvc_group, &g, &r->how.groups, i);
  if (s != KVC_OK) return fail(r, s, "malformed group", i, r->how.groups.stride);
  if ((g.caps_known & KVC_GROUP_CAPS_ALL) != KVC_GROUP_CAPS_ALL) {
    return fail(r, KVC_E_UNSUPPORTED, "group, caps_known lacks a bit", i, g.caps_known);
  }
  if ((g.caps & ~KVC_GROUP_CAPS_ALL) != 0) {
    return fail(r, KVC_E_UNSUPPORTED, "group, caps has an unknown bit", i, g.caps);
  }
  if (g.kind < KVC_GROUP_FULL || g.kind > KVC_GROUP_OTHER) {
    return fail(r, KVC_E_UNSUPPORTED, "group, unknown kind", i, (uint64_t)(uint32_t)g.kind);
  }
  if (g.tokens_per_block == 0) return fail(r, KVC_E_ARG, "group, tokens_per_block", i, 0);
  if ((g.kind == KVC_GROUP_STATE) != ((g.caps & KVC_GROUP_CAP_STATE) != 0)) {
    return fail(r, KVC_E_ARG, "group, STATE is for state groups: caps", i, g.caps);
  }
  if ((g.caps & KVC_GROUP_CAP_CACHEABLE) != 0) r->cacheable |= UINT64_C(1) << i;
  if ((g.caps & KVC_GROUP_CAP_STATE) != 0) r->states |= UINT64_C(1) << i;
  if ((g.caps & KVC_GROUP_CAP_DRAFT) != 0) r->drafts |= UINT64_C(1) << i;
  return KVC_OK;
}

static inline kvc_status check_numbers(role* r) {
  const kvc_open* const o = &r->how;
  const struct {
    const char* name;
    uint64_t value, least, most;
  } rows[] = {
      {"groups, at most", o->groups.count, 1, KVC_GROUPS_MAX},
      {"hash_unit_tokens, at most", o->hash_unit_tokens, 1, INT64_MAX},
      {"scheduler_block_tokens, at most", o->scheduler_block_tokens, 1, INT64_MAX},
      {"cp_interleave_tokens, at most", o->cp_interleave_tokens, 1, INT64_MAX},
      {"ranks, at most", o->ranks, 1, UINT32_MAX},
      {"context_parallel, at most", o->context_parallel, 1, o->ranks},
      {"rank, at most", o->rank, 0, o->ranks - UINT64_C(1)},
      {"key_bytes, at most", o->key_bytes, KVC_KEY_BYTES_MIN, KVC_KEY_BYTES_MAX},
      {"device_blocks, at most", o->device_blocks, 1, UINT64_MAX},
      {"max_total_tokens, at most", o->max_total_tokens, 1, UINT64_MAX},
      {"max_prompt_tokens, at most", o->max_prompt_tokens, 1, o->max_total_tokens},
      {"max_batch_tokens, at most", o->max_batch_tokens, 1, UINT64_MAX},
      {"max_live_requests, at most", o->max_live_requests, 1, UINT64_MAX},
      {"max_running, at most", o->max_running, 1, UINT64_MAX},
      {"max_steps_in_flight, at most", o->max_steps_in_flight, 1, UINT64_MAX},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i) {
    if (rows[i].value < rows[i].least || rows[i].value > rows[i].most) {
      return fail(r, KVC_E_ARG, rows[i].name, rows[i].value, rows[i].most);
    }
  }
  if (o->ranks % o->context_parallel != 0) {
    return fail(r, KVC_E_ARG, "ranks, context_parallel", o->ranks, o->context_parallel);
  }
  return KVC_OK;
}

/* Valid TOML without a key has blank lines and comments only. The first other line; 0: none. */
static inline uint64_t line_with_key(kvc_bytes toml) {
  uint64_t line = 1;
  int comment = 0;
  for (uint64_t i = 0; i < toml.size; ++i) {
    const uint8_t c = toml.data[i];
    if (c == '\n') ++line, comment = 0;
    if (c == '#') comment = 1;
    if (!comment && c != ' ' && c != '\t' && c != '\r' && c != '\n') return line;
  }
  return 0;
}

/* A newer host may offer more functions than we know: not a wish, so they are ignored. */
static inline kvc_status read_host(kvc_host_api* mine, const kvc_host_api* host) {
  uint32_t n = 0;
  if (host == NULL) return KVC_E_ARG;
  memcpy(&n, host, sizeof n); /* as kvc_read: a short struct may lie anywhere */
  if (n < kvc_host_api_least || n > KVC_STRUCT_BYTES_MAX) return KVC_E_ARG;
  memcpy(mine, host, sizeof *mine < n ? sizeof *mine : n);
  mine->struct_size = sizeof *mine;
  return KVC_OK;
}

static inline kvc_status check_open(role* r, const kvc_host_api* host, const kvc_open* open) {
  kvc_open* const o = &r->how;
  kvc_status s = read_host(&r->host, host);
  if (s == KVC_OK) s = KVC_READ(kvc_open, o, open);
  if (s == KVC_OK) s = KVC_LIST_CHECK(kvc_group, &o->groups);
  if (s != KVC_OK) return fail(r, s, "malformed kvc_host_api, kvc_open or list", o->struct_size, 0);
  if ((o->flags & ~KVC_OPEN_FLAGS_ALL) != 0) {
    return fail(r, KVC_E_UNSUPPORTED, "kvc_open.flags, known", o->flags, KVC_OPEN_FLAGS_ALL);
  }
  if ((r->host.caps & KVC_HOST_STEPPED) != 0) { /* this connector has no pump */
    s = r->host.now_ns == NULL ? KVC_E_ARG : KVC_E_UNSUPPORTED;
    return fail(r, s, "the host steps, KVC_CAP_STEPPED is missing: caps", r->host.caps, 0);
  }
  if (o->config_toml.size != 0 && o->config_toml.data == NULL) {
    return fail(r, KVC_E_ARG, "no TOML: bytes", o->config_toml.size, 0);
  }
  if (line_with_key(o->config_toml) != 0) {
    return fail(r, KVC_E_ARG, "there are no options, but TOML has a key: line",
                line_with_key(o->config_toml), 0);
  }
  s = check_numbers(r);
  for (uint64_t i = 0; s == KVC_OK && i < o->groups.count; ++i) s = check_group(r, i);
  if (s == KVC_OK && (o->flags & KVC_OPEN_DRAFT_DROP) != 0 && r->drafts == 0) {
    say(r, KVC_LOG_INFO, "KVC_OPEN_DRAFT_DROP has no effect: no group is of a draft model");
  }
  return s;
}

/* A zeroed handle of `bytes`, which starts with its role. On failure the text is logged: there is
   no handle to ask. */
static inline kvc_status open_role(const kvc_host_api* host, const kvc_open* open, size_t bytes,
                                   void* out) {
  role* const r = out == NULL ? NULL : (role*)calloc(1, bytes);
  kvc_status s = KVC_E_FULL;
  if (out == NULL) return KVC_E_ARG;
  memset(out, 0, sizeof(void*));
  if (r == NULL) return s;
  s = check_open(r, host, open);
  if (s != KVC_OK) {
    say(r, KVC_LOG_ERROR, r->error);
    free(r);
    return s;
  }
  memcpy(out, &r, sizeof(void*));
  return KVC_OK;
}

#endif
