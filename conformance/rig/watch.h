// What happens inside the calls of a connector: a copy of its table whose slots keep accounts, so
// that heap use, waiting, host calls and odd statuses can be told with the slot they happened in.
#pragma once
#include <kvc/kvc.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "conformance/rig/judge.h"

namespace kvc::rig::watch {

// The table with watched slots. One table per process: a second call replaces the first.
kvc_plugin_api watched(const kvc_plugin_api& real);

// Who hears of a status that the slot may not answer (KVC-P-012); NULL: nobody. Not owned.
void set_judge(Judge* judge);

// What the slot may not do and did; for the functions that a program puts before those of the C
// library. Called from anywhere, allocates nothing.
void saw_heap(const char* function);
void saw_wait(const char* function);
void saw_clock();

struct Seen {
  const char* slot;
  const char* function;
  std::uint64_t times;
};
// What was seen inside slots marked noalloc or nowait since the last forget, one row per slot and
// function.
std::vector<Seen> seen_heap();
std::vector<Seen> seen_waits();
// Clocks of the system read inside any slot since the last forget.
std::uint64_t seen_clocks();
void forget();

// Which call runs. Another process may read it, if it lies in memory that both have: the names are
// constants of this program.
//
// Threads: any; of several calls at a time the newest is told.
struct Trace {
  std::atomic<const char*> inside{nullptr};  // NULL: none
  std::atomic<const char*> last{nullptr};    // the newest call so far
};
// From now on calls are told to `trace`, which must stay.
void trace_into(Trace* trace);
// "inside lookup", "inside no call; the last one was lookup", "before the first call".
std::string where(const Trace& trace);

// Counts as a call marked noalloc and nowait: what is called before there is a table.
class EntryScope {
 public:
  EntryScope();
  EntryScope(const EntryScope&) = delete;
  EntryScope& operator=(const EntryScope&) = delete;
  ~EntryScope();
};

// Whether this thread is inside a slot that may call the host's block queries.
bool may_call_host();
// The slot that this thread is inside of; NULL: none, or the table is not watched.
const char* current_slot();
// Whether a table is watched at all.
bool active();

// The host's own functions run inside the connector's slots: what they do does not count.
class Pause {
 public:
  Pause();
  Pause(const Pause&) = delete;
  Pause& operator=(const Pause&) = delete;
  ~Pause();

 private:
  const void* before_;
};

}  // namespace kvc::rig::watch
