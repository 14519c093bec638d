#include "conformance/validate/call.h"
#include "host_stub/loader/status_text.h"

#include <time.h>
#include <algorithm>
#include <cstdio>

#include <fmt/format.h>

namespace kvc::validate {
namespace {

thread_local Call* current_call = nullptr;
thread_local int inside_host = 0;

std::uint64_t now_ns(const HostTable* host) {
  if (host != nullptr && host->theirs.now_ns != nullptr && !host->closed.load()) {
    return host->theirs.now_ns(host->theirs.self);
  }
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

bool is_close(Slot slot) { return slot == Slot::close_scheduler || slot == Slot::close_rank; }
// Texts that a poisoned handle still gives.
bool is_text(Slot slot) {
  return slot == Slot::last_error_scheduler || slot == Slot::last_error_rank ||
         slot == Slot::take_log_scheduler || slot == Slot::take_log_rank;
}
bool answers_when_poisoned(Slot slot) {
  return info(slot).role == Role::any || is_close(slot) || is_text(slot);
}
bool may_say_more(Slot slot) {
  return slot == Slot::take_events || slot == Slot::take_log_scheduler ||
         slot == Slot::take_log_rank;
}
bool may_say_later(Slot slot) {
  return slot == Slot::lookup || slot == Slot::reset || slot == Slot::pump_scheduler ||
         slot == Slot::pump_rank || slot == Slot::wait || slot == Slot::load_in_step ||
         slot == Slot::layer_fence;
}
bool known_error(kvc_status status) {
  return (status < 0 && status >= KVC_E_DEADLINE) || status == KVC_E_INTERNAL;
}

}  // namespace

InsideHost::InsideHost() { ++inside_host; }
InsideHost::~InsideHost() { --inside_host; }
bool InsideHost::now() { return inside_host > 0; }

Call* Call::current() { return current_call; }

Call::Call(Slot slot, const void* handle) : slot_(slot) {
  if (InsideHost::now()) {
    find("KVC-H-006",
         fmt::format("{} is called from inside a function of the host's table", info(slot).name));
  }
  side_ = Registry::of_process().find(handle);
  if (side_ == nullptr) {
    if (handle != nullptr || !is_close(slot)) {
      find("KVC-H-002", fmt::format("{} gets {}, which no open gave or close has taken",
                                    info(slot).name, fmt::ptr(handle)));
    }
    return;
  }
  engine_ = side_->engine;
  host_ = side_->host;
  next_ = side_->next;
  if (side_->sched != (info(slot).handle == HandleOf::sched)) {
    find("KVC-H-002", fmt::format("{} gets the handle of a {}", info(slot).name,
                                  side_->sched ? "scheduler" : "rank"));
    number_ = ++engine_->calls;
    side_ = nullptr;
    return;
  }
  enter();
}

Call::Call(Slot slot, std::shared_ptr<Engine> engine, HostTable* host, const kvc_plugin_api* next)
    : slot_(slot), engine_(std::move(engine)), host_(host), next_(next), opening_(true) {
  number_ = ++engine_->calls;
  if (engine_->recorder != nullptr) time_ns_ = now_ns(host_);
  if (InsideHost::now()) {
    find("KVC-H-006",
         fmt::format("{} is called from inside a function of the host's table", info(slot).name));
  }
}

Call::~Call() {
  if (exclusive_) side_->inside.store(nullptr);
  if (counted_) --side_->queries;
  publish_new();
}

void Call::enter() {
  number_ = ++engine_->calls;
  if (engine_->recorder != nullptr) time_ns_ = now_ns(host_);
  const SlotInfo& i = info(slot_);
  if (i.role == Role::any) {
    ++side_->queries;
    counted_ = true;
  } else {
    if (side_->sched) ++engine_->sched_calls;
    const char* other = nullptr;
    exclusive_ = side_->inside.compare_exchange_strong(other, i.name);
    if (!exclusive_) {
      find("KVC-H-001", fmt::format("{} begins while {} runs on the same handle", i.name, other));
    } else if (i.role == Role::ctl && side_->queries.load() != 0) {
      find("KVC-H-001", fmt::format("{} begins while a query runs on the same handle", i.name));
    }
  }
  side_poisoned_ = side_->poisoned.load();
  if (side_->told.load() && !answers_when_poisoned(slot_)) {
    find("KVC-H-005", fmt::format("{} after KVC_E_INTERNAL on the same handle", i.name));
  }
}

void Call::form(const Form& form) {
  for (const Form::Item& item : form.items()) {
    form_ok_ = false;
    faults_.push_back(item);
    const bool keys = item.fault == Fault::limit && item.text.starts_with("keys ");
    if (keys) {
      find("KVC-H-021", item.text);
    } else {
      find("KVC-H-003", item.text);
    }
  }
}

void Call::out_form(const Form& form) {
  for (const Form::Item& item : form.items()) find("KVC-P-004", item.text);
}

void Call::begin() {
  publish_new();
  outer_ = current_call;
  current_call = this;
}

void Call::end(kvc_status status, bool has_status) {
  current_call = outer_;
  pages_.close();
  if (!has_status) return;
  check_status(status);
  check_form_answer(status);
  if (side_ == nullptr) return;
  if (status == KVC_E_INTERNAL) {
    side_->poisoned.store(true);
    engine_->broken.store(true);
  }
  if (status == KVC_E_INTERNAL && info(slot_).role != Role::any) side_->told.store(true);
  if (status < 0 && info(slot_).role != Role::any && !is_text(slot_)) side_->failed.store(true);
  const bool grows = layout().device_blocks == KVC_NO_LIMIT || engine_->model.pool_grows;
  if (info(slot_).has(KVC_ATTR_NOALLOC) && allocations_ != 0 && !grows) {
    find("KVC-P-014",
         fmt::format("{} asked the host for memory {} times", info(slot_).name, allocations_));
  }
}

void Call::check_status(kvc_status status) {
  const char* const name = info(slot_).name;
  const bool right = status == KVC_OK || known_error(status) ||
                     (status == KVC_MORE && may_say_more(slot_)) ||
                     (status == KVC_LATER && may_say_later(slot_));
  const bool room = status != KVC_E_ROOM || info(slot_).has(KVC_ATTR_PURE);
  if (!right || !room) find("KVC-P-012", fmt::format("{} answered {}", name, host::Said{status}));
  if (side_poisoned_ && !answers_when_poisoned(slot_) && status != KVC_E_INTERNAL) {
    find("KVC-P-013", fmt::format("{} answered {} after KVC_E_INTERNAL", name, host::Said{status}));
  }
}

void Call::check_form_answer(kvc_status status) {
  if (status < 0) return;
  for (const Form::Item& item : faults_) {
    const std::string text =
        fmt::format("{} answered {}: {}", info(slot_).name, host::Said{status}, item.text);
    switch (item.fault) {
      case Fault::size:
      case Fault::tail:
        find("KVC-P-005", text);
        break;
      case Fault::bits:
        find("KVC-P-006", text);
        break;
      case Fault::list:
        find("KVC-P-007", text);
        break;
      case Fault::no_room:
        find("KVC-P-004", text);
        break;
      case Fault::limit:
      case Fault::short_room:
        break;
    }
  }
}

void Call::check_outputs() {
  if (!exclusive_) return;
  const std::string why = side_->outputs.changed(slot_);
  if (!why.empty()) find("KVC-P-016", why);
}

void Call::check_counts() {
  if (!exclusive_ || side_->poisoned.load()) return;
  kvc_boundary_stats stats{};
  stats.struct_size = sizeof stats;
  const kvc_status status = next().boundary_stats(handle<kvc_sched>(), &stats);
  if (status == KVC_E_INTERNAL) return;
  if (status != KVC_OK) {
    find("KVC-P-110",
         fmt::format("after {}: boundary_stats answered {}", info(slot_).name, host::Said{status}));
    return;
  }
  const std::lock_guard lock(engine_->mutex);
  check_balance(Check{engine_->model, findings_}, side_->counters, stats);
}

void Call::gave_up(const char* why) {
  if (engine_->blind.exchange(true)) return;
  std::fprintf(stderr,
               "kvc_validate: a check of %s failed itself (%s): calls of engine %llu are "
               "only forwarded from now on\n",
               info(slot_).name, why, static_cast<unsigned long long>(engine_->number));
}

CallHead Call::head(kvc_status status) const {
  const bool rank = side_ != nullptr ? !side_->sched : slot_ == Slot::open_rank;
  const std::uint32_t number = side_ != nullptr ? side_->rank : opening_rank_;
  return {info(slot_).number, rank ? 1 + number : 0, number_, time_ns_, status};
}

void Call::publish_new() {
  for (const CallFindings::Item& item : findings_.take_new()) {
    if (engine_ == nullptr) {
      std::fprintf(stderr, "kvc_validate: %s: %s\n", std::string(item.rule.text()).c_str(),
                   item.text.c_str());
    }
    const InsideHost inside;
    publish(engine_.get(), host_, item.rule, info(slot_).name, number_, item.text);
  }
}

}  // namespace kvc::validate
