// One call through the layer: who may make it, what is checked before and after, and the way on.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "conformance/validate/engine.h"
#include "conformance/validate/form.h"
#include "conformance/validate/guard.h"
#include "conformance/validate/out_box.h"

namespace kvc::validate {

// Made at the entry of a slot, gone at its end.
//
// Threads:    the caller's.
// Owns:       the findings of this call. Invariants: while forward() runs, this is current().
class Call {
 public:
  // Of a slot with a handle. NULL and unknown handles are found (KVC-H-002) and not forwarded.
  Call(Slot slot, const void* handle);
  // Of an open: there is no handle yet.
  Call(Slot slot, std::shared_ptr<Engine> engine, HostTable* host, const kvc_plugin_api* next);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // False: answer KVC_E_ARG, or nothing for slots without status.
  [[nodiscard]] bool known() const { return side_ != nullptr || opening_; }
  [[nodiscard]] Side& side() { return *side_; }
  [[nodiscard]] std::shared_ptr<Side> shared_side() { return side_; }
  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] HostTable* host() { return host_; }
  [[nodiscard]] const Layout& layout() const { return engine_->model.layout; }
  [[nodiscard]] Slot slot() const { return slot_; }
  [[nodiscard]] std::uint64_t number() const { return number_; }
  [[nodiscard]] std::uint64_t host_allocations() const { return allocations_; }
  template <class Handle>
  [[nodiscard]] Handle* handle() {
    return static_cast<Handle*>(const_cast<void*>(side_->handle));
  }

  void opens_rank(std::uint32_t rank) { opening_rank_ = rank; }
  void find(rules::RuleId rule, std::string text) { findings_.add(rule, std::move(text)); }
  // KVC-H-003 and so on, from the form of what was passed.
  void form(const Form& form);
  // KVC-P-004 from the form of what was answered.
  void out_form(const Form& form);
  [[nodiscard]] bool form_ok() const { return form_ok_; }
  // Calls f(Check) under the engine's lock, unless the form was wrong, the handle is poisoned or a
  // checker failed before. A failure of the checker itself makes the engine blind, nothing else.
  template <class F>
  void check(const F& f) {
    if (!form_ok_ || side_poisoned_ || engine_->blind.load()) return;
    try {
      const std::lock_guard lock(engine_->mutex);
      f(Check{engine_->model, findings_});
    } catch (const std::exception& e) {
      gave_up(e.what());
    }
  }
  // Shows the findings so far, calls f(table of the connector) and looks at its answer.
  template <class F>
  kvc_status forward(const F& f) {
    begin();
    const kvc_status status = f(next());
    end(status, true);
    return status;
  }
  template <class F>
  void forward_void(const F& f) {
    begin();
    f(next());
    end(KVC_OK, false);
  }
  // Copies of the inputs on guard pages, or what the host passed: copy(Arena&) gives the copy.
  template <class T, class F>
  const T* guarded(const T* theirs, const F& copy) {
    if (!engine_->settings.guard || !form_ok_ || theirs == nullptr) return theirs;
    const T* const mine = copy(pages_);
    if (mine == nullptr) return theirs;
    pages_.lock();
    return mine;
  }
  template <class In, class Out>
  void record(const In& in, kvc_status status, const Out& out) {
    if (engine_ == nullptr || engine_->recorder == nullptr || !form_ok_) return;
    engine_->recorder->add(head(status), in, queries_, out);
  }
  // The connector's out-struct goes to the host; its form is checked.
  template <class T>
  void put_back(OutBox<T>& box, kvc_status status, std::size_t least) {
    const std::string why = box.put_back(status, least);
    if (!why.empty()) find("KVC-P-004", why);
  }
  // Outputs of the last call of this slot must still be there; then those of this call.
  void check_outputs();
  template <class T>
  void keep_outputs(kvc_status status, const T& out) {
    if (status >= 0 && exclusive_) side_->outputs.keep(slot_, ranges_of(out));
  }
  // boundary_stats after a scheduler call (KVC-P-110).
  void check_counts();

  // From inside a callback of the host's table.
  static Call* current();
  void note_query(QueryAnswer answer) { queries_.push_back(std::move(answer)); }
  [[nodiscard]] const std::vector<QueryAnswer>& queries() const { return queries_; }
  void note_allocation() { ++allocations_; }
  // Findings so far go out.
  void publish_new();

 private:
  void enter();
  void begin();
  void end(kvc_status status, bool has_status);
  void check_status(kvc_status status);
  void check_form_answer(kvc_status status);
  void gave_up(const char* why);
  [[nodiscard]] const kvc_plugin_api& next() const { return *next_; }
  [[nodiscard]] CallHead head(kvc_status status) const;

  Slot slot_;
  std::shared_ptr<Side> side_;
  std::shared_ptr<Engine> engine_;
  HostTable* host_ = nullptr;
  const kvc_plugin_api* next_ = nullptr;
  bool opening_ = false;
  std::uint32_t opening_rank_ = 0;
  bool exclusive_ = false;  // it is the one inside
  bool counted_ = false;    // it is among the queries
  bool form_ok_ = true;
  bool side_poisoned_ = false;
  std::uint64_t number_ = 0;
  std::uint64_t time_ns_ = 0;
  std::uint64_t allocations_ = 0;
  Call* outer_ = nullptr;
  CallFindings findings_;
  std::vector<Form::Item> faults_;
  std::vector<QueryAnswer> queries_;
  GuardPages pages_;
};

// How deep this thread is inside functions of a host's table.
class InsideHost {
 public:
  InsideHost();
  ~InsideHost();
  InsideHost(const InsideHost&) = delete;
  InsideHost& operator=(const InsideHost&) = delete;
  [[nodiscard]] static bool now();
};

}  // namespace kvc::validate
