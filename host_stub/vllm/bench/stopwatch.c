/* A kvc library that hands every call to another one, and keeps how long the last call of four
 * slots took: the library alone, in the state and with the arguments in which an engine's adapter
 * calls it. What it costs (two readings of the clock) is in the adapter's time, and one in the
 * library's.
 *
 * The other library: environment KVC_STOPWATCH_OF. Threads: the scheduler's alone for timed slots.
 */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <kvc/kvc.h>
#include <stdlib.h>
#include <time.h>

static kvc_plugin_api real;

/* ns of the last lookup, alloc_update, build_store_jobs, complete; the reader sets them to 0 */
KVC_EXPORT uint64_t kvc_stopwatch_ns[4];

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static kvc_status timed(int at, uint64_t start, kvc_status status) {
  kvc_stopwatch_ns[at] = now_ns() - start;
  return status;
}

static kvc_status lookup(kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) {
  const uint64_t start = now_ns();
  return timed(0, start, real.lookup(s, in, out));
}

static kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) {
  const uint64_t start = now_ns();
  return timed(1, start, real.alloc_update(s, in, out));
}

static kvc_status build_store_jobs(kvc_sched* s, const kvc_step* step, kvc_plan* out) {
  const uint64_t start = now_ns();
  return timed(2, start, real.build_store_jobs(s, step, out));
}

static kvc_status complete(kvc_sched* s, const kvc_bytes* reports, uint64_t count,
                           kvc_complete_out* out) {
  const uint64_t start = now_ns();
  return timed(3, start, real.complete(s, reports, count, out));
}

KVC_EXPORT kvc_status kvc_plugin_entry_v1(uint32_t minor, kvc_plugin_api* api) {
  const char* path = getenv("KVC_STOPWATCH_OF");
  void* library = path == NULL ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return KVC_E_STATE;
  kvc_status (*entry)(uint32_t, kvc_plugin_api*);
  *(void**)&entry = dlsym(library, "kvc_plugin_entry_v1");
  if (entry == NULL) return KVC_E_UNSUPPORTED;
  const kvc_status status = entry(minor, api);
  if (status < 0) return status;
  real = *api;
  api->lookup = lookup;
  api->alloc_update = alloc_update;
  api->build_store_jobs = build_store_jobs;
  api->complete = complete;
  return status;
}
