// The one place where C++ failures turn into codes (style/cpp.md habit 4, design 2.5.5).
#pragma once
#include <kvc/kvc.h>

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <new>
#include <string_view>

#include "plugin/core/check.h"
#include "plugin/core/fault.h"
#include "plugin/core/result.h"
#include "plugin/edge/abi_codes.h"
#include "plugin/edge/host_adapter.h"
#include "plugin/edge/last_error.h"

namespace kvc::edge {

// What both handles have.
//
// Threads:    error, told: the role of the handle. poisoned: any.
// Owns:       the copy of the host's table.
// Invariants: poisoned never goes back to false.
struct HandleBase {
  explicit HandleBase(const kvc_host_api& table) : host(table) {}

  // mutable: the [any] queries get a const handle, and they may log and poison too.
  mutable HostAdapter host;
  LastError error;
  mutable std::atomic<bool> poisoned{false};
  bool told = false;  // error says why the handle is poisoned
};

// How far a call has come: past `changed` a failure cannot be answered by "nothing was done".
struct Stage {
  bool changed = false;
};

inline void poison(const HandleBase& h, std::string_view slot, std::string_view why) noexcept {
  h.poisoned.store(true, std::memory_order_release);
  try {
    h.host.log(
        LogLevel::error,
        fmt::format("{}: {}: this handle does nothing more and answers KVC_E_INTERNAL", slot, why));
  } catch (...) {
    h.host.log(LogLevel::error, "a call broke an invariant: this handle does nothing more");
  }
}

// Runs body and returns its status; `sink` takes the text of a failure. Out of memory before
// anything changed is KVC_E_FULL; everything else that is thrown poisons.
template <class Sink, class F>
kvc_status run_caught(const HandleBase& h, std::string_view slot, Sink&& sink, F&& body) noexcept {
  Stage stage;
  try {
    // Injected trouble for tests: thrown as it is, so that builds which abort on a broken check
    // live through it too.
    if (KVC_FAULT("edge.out_of_memory")) throw std::bad_alloc();
    if (KVC_FAULT("edge.broken_invariant")) throw BrokenInvariant("injected before the call");
    const Status s = body(stage);
    if (KVC_FAULT("edge.broken_after_call")) throw BrokenInvariant("injected after the call");
    if (s.code == Code::internal) throw BrokenInvariant(s.text);
    if (!s.ok()) sink(s.text);
    return to_abi(s.code);
  } catch (const std::bad_alloc&) {
    if (!stage.changed) {
      sink("out of memory");
      return KVC_E_FULL;
    }
    sink("out of memory after the call took effect");
    poison(h, slot, "out of memory after the call took effect");
  } catch (const std::exception& e) {
    sink(e.what());
    poison(h, slot, e.what());
  } catch (...) {
    sink("unknown exception");
    poison(h, slot, "unknown exception");
  }
  return KVC_E_INTERNAL;
}

// Every exported call of a role is one call to this. body: Status(Stage&).
template <class Handle, class F>
kvc_status at_edge(Handle* h, std::string_view slot, F&& body) noexcept {
  if (h == nullptr) return KVC_E_ARG;
  if (h->poisoned.load(std::memory_order_acquire)) {
    // An [any] query has no text, so what it broke is told here; the first reason stays.
    if (!h->told) h->error.set(slot, "a query broke an invariant, the log says which");
    h->told = true;
    return KVC_E_INTERNAL;
  }
  const kvc_status status = run_caught(
      *h, slot, [&](std::string_view why) { h->error.set(slot, why); }, body);
  if (status == KVC_E_INTERNAL) h->told = true;
  return status;
}

// An [any] query: answered by a poisoned handle too, has no text. body: Status().
template <class Handle, class F>
kvc_status any_query(const Handle* h, std::string_view slot, F&& body) noexcept {
  if (h == nullptr) return KVC_E_ARG;
  return run_caught(
      *h, slot, [](std::string_view) {}, [&](Stage&) { return body(); });
}

}  // namespace kvc::edge
