#include "conformance/rig/watch.h"
#include "host_stub/loader/status_text.h"

#include <kvc/kvc_util.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <string_view>
#include <type_traits>

namespace kvc::rig::watch {

namespace {

struct Slot {
  const char* name;
  std::size_t offset;
  unsigned attributes;
};

constexpr Slot slots[] = {
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  {#slot, offsetof(kvc_plugin_api, slot), (attributes)},
#include <kvc/kvc_calls.def>
    {KVC_PLUGIN_ENTRY_NAME, 0, KVC_ATTR_NOALLOC | KVC_ATTR_NOWAIT},
};
constexpr std::size_t slot_count = std::size(slots);
constexpr const Slot* entry_slot = slots + slot_count - 1;

// The functions that a program may report; the last counts what is not among them.
constexpr const char* functions[] = {"malloc",
                                     "calloc",
                                     "realloc",
                                     "free",
                                     "posix_memalign",
                                     "aligned_alloc",
                                     "mmap",
                                     "munmap",
                                     "alloc",
                                     "release",
                                     "nanosleep",
                                     "usleep",
                                     "sleep",
                                     "poll",
                                     "select",
                                     "read",
                                     "write",
                                     "pread",
                                     "pwrite",
                                     "open",
                                     "fsync",
                                     "clock_nanosleep",
                                     "pthread_cond_wait",
                                     "another"};
constexpr std::size_t function_count = std::size(functions);

using Table = std::array<std::array<std::atomic<std::uint64_t>, function_count>, slot_count>;
Table heap;
Table waits;
std::atomic<std::uint64_t> clocks{0};
kvc_plugin_api real_table;
std::atomic<Judge*> judge{nullptr};
std::atomic<bool> any_table{false};
thread_local const Slot* inside = nullptr;
Trace own_trace;
std::atomic<Trace*> trace{&own_trace};

// Tells the trace of a call while it runs.
class Told {
 public:
  explicit Told(const char* name)
      : trace_(trace.load(std::memory_order_relaxed)),
        outer_(trace_->inside.exchange(name, std::memory_order_relaxed)) {
    trace_->last.store(name, std::memory_order_relaxed);
  }
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;
  ~Told() { trace_->inside.store(outer_, std::memory_order_relaxed); }

 private:
  Trace* trace_;
  const char* outer_;
};

void count(Table& table, const char* function) {
  const Slot* const slot = inside;
  if (slot == nullptr) return;
  std::size_t f = 0;
  while (f + 1 < function_count && std::string_view(functions[f]) != function) ++f;
  table[static_cast<std::size_t>(slot - slots)][f].fetch_add(1, std::memory_order_relaxed);
}

std::vector<Seen> rows_of(const Table& table) {
  std::vector<Seen> rows;
  for (std::size_t s = 0; s < slot_count; ++s) {
    for (std::size_t f = 0; f < function_count; ++f) {
      const std::uint64_t n = table[s][f].load(std::memory_order_relaxed);
      if (n != 0) rows.push_back({slots[s].name, functions[f], n});
    }
  }
  return rows;
}

bool is_known(kvc_status s) {
  return (s >= KVC_E_DEADLINE && s <= KVC_LATER) || s == KVC_E_INTERNAL;
}

void judge_status(const Slot& slot, kvc_status s) {
  Judge* const to = judge.load();
  if (to == nullptr) return;
  const std::string_view name = slot.name;
  const bool drains = name.starts_with("take_");
  const bool waits_on =
      name == "lookup" || name == "reset" || name == "wait" || name.starts_with("pump_");
  if (is_known(s) && (s != KVC_MORE || drains) && (s != KVC_LATER || waits_on)) return;
  to->fail("KVC-P-012", fmt::format("{} answered status {}", name, host::Said{s}));
}

template <std::size_t index, class Result, class... Args>
struct Thunk {
  static Result call(Args... args) noexcept {
    using Function = Result (*)(Args...) KVC_NOTHROW;
    Function real = nullptr;
    __builtin_memcpy(&real, reinterpret_cast<const char*>(&real_table) + slots[index].offset,
                     sizeof real);
    const Slot* const before = inside;
    const Told told(slots[index].name);
    inside = &slots[index];
    if constexpr (std::is_same_v<Result, kvc_status>) {
      const kvc_status s = real(args...);
      inside = before;
      judge_status(slots[index], s);
      return s;
    } else if constexpr (std::is_void_v<Result>) {
      real(args...);
      inside = before;
    } else {
      const Result r = real(args...);
      inside = before;
      return r;
    }
  }
};

template <std::size_t index, class Result, class... Args>
void put(Result (*&slot)(Args...) KVC_NOTHROW) {
  slot = Thunk<index, Result, Args...>::call;
}

template <std::size_t at>
constexpr std::size_t index_of() {
  for (std::size_t i = 0; i < slot_count; ++i) {
    if (slots[i].offset == at) return i;
  }
  return slot_count;
}

}  // namespace

kvc_plugin_api watched(const kvc_plugin_api& real) {
  real_table = real;
  kvc_plugin_api table = real;
#define KVC_SLOT(slot, handle, role, attributes, minor, need, capability) \
  put<index_of<offsetof(kvc_plugin_api, slot)>()>(table.slot);
#include <kvc/kvc_calls.def>
  any_table = true;
  return table;
}

void set_judge(Judge* to) { judge = to; }

void saw_heap(const char* function) {
  if (inside != nullptr && (inside->attributes & KVC_ATTR_NOALLOC) != 0) count(heap, function);
}

void saw_wait(const char* function) {
  if (inside != nullptr && (inside->attributes & KVC_ATTR_NOWAIT) != 0) count(waits, function);
}

void saw_clock() {
  if (inside != nullptr) ++clocks;
}
std::uint64_t seen_clocks() { return clocks; }

std::vector<Seen> seen_heap() { return rows_of(heap); }
std::vector<Seen> seen_waits() { return rows_of(waits); }

void forget() {
  clocks = 0;
  for (Table* table : {&heap, &waits}) {
    for (auto& row : *table) {
      for (auto& cell : row) cell = 0;
    }
  }
}

bool may_call_host() {
  return inside != nullptr && (inside->attributes & KVC_ATTR_CALLS_HOST) != 0;
}

const char* current_slot() { return inside == nullptr ? nullptr : inside->name; }

bool active() { return any_table; }

void trace_into(Trace* to) { trace = to; }

std::string where(const Trace& t) {
  if (const char* const slot = t.inside.load(); slot != nullptr) {
    return fmt::format("inside {}", slot);
  }
  const char* const last = t.last.load();
  return last == nullptr ? std::string("before the first call")
                         : fmt::format("inside no call; the last one was {}", last);
}

EntryScope::EntryScope() { inside = entry_slot; }
EntryScope::~EntryScope() { inside = nullptr; }

Pause::Pause() : before_(inside) { inside = nullptr; }
Pause::~Pause() { inside = static_cast<const Slot*>(before_); }

}  // namespace kvc::rig::watch
