/* The minimal connector with one defect, named by a define: for the tests of kvc-conform itself. */
#include <string.h>
#include <unistd.h>
#define kvc_plugin_entry_v1 minimal_entry
#include "docs/minimal/connector.c"
#undef kvc_plugin_entry_v1

#if defined(KVC_PLANTED_NAMELESS) /* KVC-P-023 */
static kvc_status nameless(kvc_description* out) {
  kvc_description mine;
  KVC_CLEAR(&mine);
  return KVC_WRITE(out, &mine);
}
#elif defined(KVC_PLANTED_CRASHES) /* KVC-P-008 */
static const void* crashes(kvc_bytes id) {
  volatile int* const nowhere = NULL;
  return id.size == 0 ? (const void*)(uintptr_t)*nowhere : NULL;
}
#elif defined(KVC_PLANTED_HANGS)
static const void* hangs(kvc_bytes id) {
  volatile int always = 1;
  while (id.size == 0 && always) {
  }
  return NULL;
}
#elif defined(KVC_PLANTED_ALLOCATES) /* KVC-P-014 */
static kvc_status allocates(const kvc_sched* s, kvc_pending* out) {
  void* volatile p = malloc(16);
  free(p);
  return has_pending(s, out);
}
#elif defined(KVC_PLANTED_DECLINES)  /* KVC-P-030 */
static kvc_status declines(const kvc_host_api* host, const kvc_open* open, kvc_sched** out) {
  (void)host;
  (void)open;
  *out = NULL;
  return KVC_E_ARG;
}
#elif defined(KVC_PLANTED_GONE)
static kvc_status ends_it_all(const kvc_host_api* host, const kvc_open* open, kvc_sched** out) {
  (void)host;
  (void)open;
  (void)out;
  exit(0);
}
#elif defined(KVC_PLANTED_LEAKS) /* KVC-P-020 */
static void leaks(kvc_sched* s) { (void)s; }
#elif defined(KVC_PLANTED_EXITS)
static const void* exits(kvc_bytes id) {
  if (id.size == 0) exit(3);
  return NULL;
}
#endif

/* The room for a table may begin anywhere; one that holds all of it is aligned. */
static inline int whole(const kvc_plugin_api* out) {
  uint32_t size;
  memcpy(&size, out, sizeof size);
  return size == sizeof *out;
}

KVC_EXPORT kvc_status kvc_plugin_entry_v1(uint32_t host_minor, kvc_plugin_api* out) {
#if defined(KVC_PLANTED_STUCK)
  for (;;) pause();
#elif defined(KVC_PLANTED_DIES)   /* KVC-P-002 */
  _exit(3);
#elif defined(KVC_PLANTED_LEAVES) /* a process that outlives the one that loads it */
  if (fork() == 0) {
    setsid();
    for (int i = 0; i < 3; ++i) close(i);
    alarm(60);
    pause();
  }
#endif
  const kvc_status s = minimal_entry(host_minor, out);
  if (s != KVC_OK) return s;
#if defined(KVC_PLANTED_NAMELESS)
  if (whole(out)) out->describe = nameless;
#elif defined(KVC_PLANTED_CRASHES)
  if (whole(out)) out->extension = crashes;
#elif defined(KVC_PLANTED_HANGS)
  if (whole(out)) out->extension = hangs;
#elif defined(KVC_PLANTED_ALLOCATES)
  if (whole(out)) out->has_pending = allocates;
#elif defined(KVC_PLANTED_DECLINES)
  if (whole(out)) out->open_scheduler = declines;
#elif defined(KVC_PLANTED_GONE)
  if (whole(out)) out->open_scheduler = ends_it_all;
#elif defined(KVC_PLANTED_LEAKS)
  if (whole(out)) out->close_scheduler = leaks;
#elif defined(KVC_PLANTED_EXITS)
  if (whole(out)) out->extension = exits;
#endif
  return s;
}
