// The objects of the layer: one per opened engine, one per handle, one per host table.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <kvc/kvc.h>

#include "conformance/validate/checks.h"
#include "conformance/validate/findings.h"
#include "conformance/validate/model.h"
#include "conformance/validate/outputs.h"
#include "conformance/validate/recording.h"
#include "conformance/validate/settings.h"

namespace kvc::validate {

struct Side;

// One opened engine: its scheduler and those of its ranks that live in this process.
//
// Threads:    model, open: under mutex, which is never held while a call is forwarded.
// Owns:       files. Invariants: none.
struct Engine {
  std::uint64_t number = 0;
  const kvc_host* self = nullptr;
  Settings settings;
  std::mutex mutex;
  Model model;
  OpenIn first_open;
  bool open_known = false;
  bool sched_used = false;
  std::atomic<std::uint64_t> sched_calls{0};  // begun
  std::atomic<bool> blind{false};             // a checker failed itself: calls are only forwarded
  std::atomic<bool> broken{false};            // a handle answered KVC_E_INTERNAL
  std::atomic<std::uint64_t> calls{0};
  std::shared_ptr<FindingsFile> findings;
  std::unique_ptr<Recorder> recorder;
};

// The host's table as the connector sees it. It lives as long as the process: a connector that
// still calls after close must be seen, not crash.
//
// Threads:    any.
// Owns:       a copy of the table, the list of allocations.
// Invariants: after closed the host's own functions are not called any more.
struct HostTable {
  HostTable(const kvc_host_api& theirs, const std::shared_ptr<Engine>& of);
  HostTable(const HostTable&) = delete;
  HostTable& operator=(const HostTable&) = delete;

  kvc_host_api theirs;
  kvc_host_api shown{};
  std::weak_ptr<Engine> engine;
  std::atomic<bool> closed{false};
  std::atomic<std::uint64_t> log_lines{0};
  std::mutex mutex;
  std::map<void*, std::pair<std::uint64_t, std::uint64_t>> allocated;  // size, alignment

  // What is still allocated: number and bytes.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> outstanding();
};

// One handle.
//
// Threads:    inside, queries, poisoned, failed: any. outputs, counters: the role's caller (a
//             second one at the same time is a finding, and is kept out by `engine->mutex`).
// Owns:       nothing of the connector. Invariants: none.
struct Side {
  bool sched = false;
  std::uint32_t rank = 0;
  const void* handle = nullptr;
  const kvc_plugin_api* next = nullptr;
  std::shared_ptr<Engine> engine;
  HostTable* host = nullptr;
  std::atomic<const char*> inside{nullptr};
  std::atomic<std::int32_t> queries{0};
  std::atomic<bool> poisoned{false};
  std::atomic<bool> told{false};  // a call of the role itself answered KVC_E_INTERNAL
  std::atomic<bool> failed{false};
  Outputs outputs;
  Counters counters;
};

// All handles that are open, and the libraries behind the layer.
//
// Threads:    any.
// Owns:       the sides until they are closed; host tables for ever.
// Invariants: a handle is here from the return of its open to the start of its close.
class Registry {
 public:
  static Registry& of_process();

  [[nodiscard]] std::shared_ptr<Side> find(const void* handle);
  // The engine got a table of the connector that the layer does not stand before: calls of it, and
  // what they leave in last_error, are not seen.
  std::atomic<bool> unseen_calls{false};
  void add(const std::shared_ptr<Side>& side);
  void remove(const void* handle);
  // The engine that this open belongs to: the one with the same self pointer, namespace and
  // connector that has no such role yet, or a new one. `clash`: the role is open there already.
  // Errors: arg, naming the file of findings or the recording that cannot be written.
  Result<std::shared_ptr<Engine>> engine_for(const kvc_host* self, bool sched, const OpenIn& open,
                                             const Settings& settings, bool& clash);
  HostTable* keep(std::unique_ptr<HostTable> table);
  // The table of the library at `path`, checked; it stays loaded. Errors: arg, unsupported: what is
  // wrong with it; the layer itself, over which every call would come back here.
  Result<const kvc_plugin_api*> next(const std::string& path);
  // A table of another origin under that name, for programs that bring their connector with them.
  void use(const std::string& name, const kvc_plugin_api& api);
  // The first library that was loaded; NULL: none.
  [[nodiscard]] const kvc_plugin_api* first_next();
  // The file of the engine that was made last, for what belongs to none; NULL: there is none.
  [[nodiscard]] std::shared_ptr<FindingsFile> newest_findings();
  // What is still open when the process ends.
  std::vector<std::shared_ptr<Side>> take_all();

 private:
  std::mutex mutex_;
  std::map<const void*, std::shared_ptr<Side>> sides_;
  std::vector<std::weak_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<HostTable>> tables_;
  std::map<std::string, std::unique_ptr<kvc_plugin_api>> next_;
  const kvc_plugin_api* first_ = nullptr;
  std::shared_ptr<FindingsFile> newest_findings_;
  std::uint64_t engines_made_ = 0;
};

// Puts a finding into the list, the file of the engine and the host's log (`host` may be NULL).
void publish(Engine* engine, HostTable* host, rules::RuleId rule, std::string_view slot,
             std::uint64_t call, const std::string& text);

}  // namespace kvc::validate
