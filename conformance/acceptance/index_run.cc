#include "conformance/acceptance/index_run.h"

#include <array>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>

#include "conformance/acceptance/measured_run.h"
#include "host_stub/engine/engine.h"
#include "host_stub/engine/trace_source.h"

namespace kvc::acceptance {
namespace {

// A connector's table that shows the mirror what goes in and out.
//
// Threads:    the one that drives the engine; one at a time in a process (the slots of a C table
//             carry no state of their own).
// Owns:       the mirror and the samples. Invariants: the first exception stays until rethrow().
class Recorder {
 public:
  Recorder(const host::LoadedConnector& real, const config::ModelConfig& model,
           std::uint64_t sample_requests)
      : real_(real.api), shown_(real), mirror_(model), sample_requests_(sample_requests) {
    current = this;
    kvc_plugin_api& api = shown_.api;
    api.open_scheduler = open_scheduler;
    api.request_begin = request_begin;
    api.request_extend = request_extend;
    api.build_store_jobs = build_store_jobs;
    api.complete = complete;
    api.request_end = request_end;
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder() { current = nullptr; }

  [[nodiscard]] const host::LoadedConnector& connector() const { return shown_; }
  void sample() { samples.push_back(mirror_.reach()); }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

  std::vector<Reach> samples;

 private:
  template <class Do>
  void attempt(Do what) noexcept {
    if (error_) return;
    try {
      what();
    } catch (...) {
      error_ = std::current_exception();
    }
  }
  void drain() {
    kvc_status status = KVC_MORE;
    while (status == KVC_MORE) {
      std::uint64_t count = 0;
      status = real_.take_events(sched_, events_.data(), sizeof events_[0], events_.size(), &count);
      if (status < 0) throw std::runtime_error("take_events failed");
      for (std::uint64_t i = 0; i < count; ++i) take(events_[i]);
    }
  }
  void take(const kvc_event& e) {
    if (e.kind == KVC_EVENT_STORED) mirror_.stored(e.group, e.key, e.request);
    if (e.kind == KVC_EVENT_REMOVED) mirror_.removed(e.group, e.key);
    if (e.kind == KVC_EVENT_CLEARED) throw std::logic_error("nobody reset the connector");
  }

  static kvc_status open_scheduler(const kvc_host_api* host, const kvc_open* open,
                                   kvc_sched** out) noexcept {
    const kvc_status status = current->real_.open_scheduler(host, open, out);
    current->sched_ = *out;
    return status;
  }
  static kvc_status request_begin(kvc_sched* s, const kvc_request* in) noexcept {
    Recorder& r = *current;
    r.attempt([&] {
      if (r.begun_ > 0 && r.begun_ % r.sample_requests_ == 0) r.sample();
      ++r.begun_;
      r.mirror_.keys(in->request, in->keys, in->n_keys);
    });
    return r.real_.request_begin(s, in);
  }
  static kvc_status request_extend(kvc_sched* s, const kvc_extend* in) noexcept {
    current->attempt([&] { current->mirror_.keys(in->request, in->keys, in->n_keys); });
    return current->real_.request_extend(s, in);
  }
  static kvc_status build_store_jobs(kvc_sched* s, const kvc_step* in, kvc_plan* out) noexcept {
    const kvc_status status = current->real_.build_store_jobs(s, in, out);
    current->attempt([] { current->drain(); });
    return status;
  }
  static kvc_status complete(kvc_sched* s, const kvc_bytes* reports, std::uint64_t count,
                             kvc_complete_out* out) noexcept {
    const kvc_status status = current->real_.complete(s, reports, count, out);
    current->attempt([] { current->drain(); });
    return status;
  }
  static kvc_status request_end(kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
    const kvc_status status = current->real_.request_end(s, in, out);
    current->attempt([&] {
      current->drain();
      current->mirror_.ended(in->request);
    });
    return status;
  }

  static Recorder* current;
  const kvc_plugin_api real_;
  host::LoadedConnector shown_;
  TierMirror mirror_;
  const std::uint64_t sample_requests_;
  std::uint64_t begun_ = 0;
  kvc_sched* sched_ = nullptr;
  std::array<kvc_event, 256> events_{};
  std::exception_ptr error_;
};

Recorder* Recorder::current = nullptr;

host::EngineOptions engine_options(const host::RunInputs& inputs, const IndexRunOptions& options,
                                   std::uint64_t& clock_ns) {
  host::EngineOptions e;
  e.model = inputs.model;
  e.ranks = inputs.ranks;
  e.device_cache = false;
  e.max_running = 1;
  e.stepped = true;
  e.hooks.now_ns = [&clock_ns] { return ++clock_ns; };
  e.max_prompt_tokens = inputs.trace.totals().longest_prompt_tokens;
  e.max_total_tokens = inputs.trace.totals().longest_total_tokens;
  e.connector_toml = "[connector]\nindex = \"" + options.index + "\"\n[host]\n";
  e.connector_toml += options.host_blocks == 0
                          ? std::string("unlimited = true\n")
                          : "blocks = " + std::to_string(options.host_blocks) + "\n";
  const auto needed = host::Engine::blocks_needed(e);
  if (!needed.ok()) throw std::runtime_error(needed.error().text);
  e.device_blocks = 2 * needed.value();
  return e;
}

std::uint64_t stat(const host::Engine& engine, const char* name) {
  std::uint64_t sum = 0;
  for (const host::StatValue& s : engine.stats()) {
    if (s.name == name) sum += s.value;
  }
  return sum;
}

}  // namespace

host::RunInputs index_inputs(const std::string& model, std::size_t limit) {
  host::RunOptions options;
  options.connector = connector_library();
  options.model = example("models/" + model + ".toml");
  options.trace = conversation_trace();
  if (limit != SIZE_MAX) options.limit = limit;
  auto inputs = host::read_inputs(options);
  if (!inputs.ok()) throw std::runtime_error(inputs.error().text);
  return std::move(inputs).value();
}

IndexRun run_index(const host::RunInputs& inputs, const IndexRunOptions& options) {
  std::optional<Recorder> recorder;
  if (options.sample_requests != 0) {
    recorder.emplace(*inputs.connector, inputs.model, options.sample_requests);
  }
  std::uint64_t clock_ns = 0;
  auto made = host::Engine::make(engine_options(inputs, options, clock_ns),
                                 recorder ? recorder->connector() : *inputs.connector);
  if (!made.ok()) throw std::runtime_error(made.error().text);
  host::Engine& engine = *made.value();
  const auto counters = engine.run(host::TraceSource(inputs.trace));
  if (!counters.ok()) throw std::runtime_error(counters.error().text);
  if (!engine.connector_alive()) throw std::runtime_error(engine.connector_failure());
  IndexRun out;
  out.counters = counters.value();
  out.explained = engine.explain(0);
  out.slots_used = stat(engine, "host_slots_used_now");
  out.events_lost = stat(engine, "events_lost");
  out.leaks = engine.leaks();
  if (recorder) {
    recorder->rethrow();
    recorder->sample();
    out.samples = std::move(recorder->samples);
  }
  return out;
}

}  // namespace kvc::acceptance
