// Stores nothing of a request whose hit was not taken (field report 122).
#include <algorithm>
#include <array>

#include "conformance/bad/wrapped.h"

namespace {

struct Declined {
  const kvc_sched* sched = nullptr;
  std::uint64_t request = 0;
};
std::array<Declined, 1024> declined;  // a ring
std::size_t next = 0;
Declined offered;  // by the last lookup that offered something

bool is_declined(const kvc_sched* s, std::uint64_t request) {
  return std::any_of(declined.begin(), declined.end(),
                     [&](const Declined& d) { return d.sched == s && d.request == request; });
}

void forget(const kvc_sched* s) {
  for (Declined& d : declined) d = d.sched == s ? Declined{} : d;
}

}  // namespace

void kvc::bad::spoil(kvc_plugin_api& table) {
  table.close_scheduler = [](kvc_sched* s) noexcept {
    forget(s);
    kvc::bad::right().close_scheduler(s);
  };
  table.lookup = [](kvc_sched* s, const kvc_lookup_in* in, kvc_lookup_out* out) noexcept {
    const kvc_status status = kvc::bad::right().lookup(s, in, out);
    if (status == KVC_OK && KVC_HAS(out, kvc_lookup_out, external_tokens) &&
        out->external_tokens != 0) {
      offered = {s, in->request};
    }
    return status;
  };
  table.alloc_update = [](kvc_sched* s, const kvc_alloc_in* in, kvc_alloc_out* out) noexcept {
    const kvc_status status = kvc::bad::right().alloc_update(s, in, out);
    if (status == KVC_OK && in->accepted_tokens == 0 && offered.sched == s &&
        offered.request == in->request) {
      declined[next++ % declined.size()] = offered;
    }
    return status;
  };
  table.build_store_jobs = [](kvc_sched* s, const kvc_step* step, kvc_plan* out) noexcept {
    if (step == nullptr || step->struct_size != sizeof *step ||
        step->scheduled.stride != sizeof(kvc_step_request) ||
        (step->handoffs.count != 0 && step->handoffs.stride != sizeof(kvc_handoff))) {
      return kvc::bad::right().build_store_jobs(s, step, out);
    }
    const auto gone = [&](const auto& element) { return is_declined(s, element.request); };
    auto& scheduled = kvc::bad::copy_of<kvc_step_request>(step->scheduled);
    auto& handoffs = kvc::bad::copy_of<kvc_handoff>(step->handoffs);
    std::erase_if(scheduled, gone);
    std::erase_if(handoffs, gone);
    kvc_step mine = *step;
    mine.scheduled = kvc::bad::list_of(scheduled);
    mine.handoffs = kvc::bad::list_of(handoffs);
    return kvc::bad::right().build_store_jobs(s, &mine, out);
  };
  table.request_end = [](kvc_sched* s, const kvc_end_in* in, kvc_end_out* out) noexcept {
    if (in == nullptr || in->struct_size != sizeof *in || !is_declined(s, in->request)) {
      return kvc::bad::right().request_end(s, in, out);
    }
    kvc_end_in mine = *in;
    mine.confirmed_tokens = 0;
    mine.tables = mine.handoffs = {};
    return kvc::bad::right().request_end(s, &mine, out);
  };
}
