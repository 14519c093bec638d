// What travels between the roles.
#include "conformance/bad/hosts/host.h"

namespace kvc::bad {
namespace {

constexpr std::uint64_t at_step = 4;

std::vector<std::uint8_t> copy_of(kvc_bytes bytes) { return {bytes.data, bytes.data + bytes.size}; }

// The submit_loads and submit_stores of rank 1 in one step get f(right, plan).
template <class F>
void change_plans(Host& h, F f) {
  for (auto* const slot : {&h.call.submit_loads, &h.call.submit_stores}) {
    instead(*slot, [&h, f](auto& right, kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
      if (h.steps != at_step || r != h.rank[1]) return right(r, plan, fence);
      return f([&](kvc_bytes mine) { return right(r, mine, fence); }, plan);
    });
  }
}

// The reports of one step.
template <class F>
void change_reports(Host& h, F f) {
  instead(h.call.complete,
          [&h, f](auto& right, kvc_sched* s, const kvc_bytes* reports, std::uint64_t n, auto* out) {
            std::vector<kvc_bytes> mine(reports, reports + n);
            if (h.steps == at_step) f(mine);
            return right(s, mine.data(), mine.size(), out);
          });
}

}  // namespace

void loses_a_plan(Host& h) {
  change_plans(h, [](auto, kvc_bytes) { return kvc_status{KVC_OK}; });
}

void gives_a_rank_no_plan(Host& h) {
  for (auto* const slot : {&h.call.submit_loads, &h.call.submit_stores}) {
    instead(*slot, [&h](auto& right, kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
      return r == h.rank[1] ? kvc_status{KVC_OK} : right(r, plan, fence);
    });
  }
}

void gives_a_rank_no_loads(Host& h) {
  instead(h.call.submit_loads,
          [&h](auto& right, kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
            return r == h.rank[1] ? kvc_status{KVC_OK} : right(r, plan, fence);
          });
}

void alters_a_plan(Host& h) {
  change_plans(h, [](auto submit, kvc_bytes plan) {
    auto mine = copy_of(plan);
    mine.back() ^= 1;
    return submit(kvc_bytes_of(mine.data(), mine.size()));
  });
}

void submits_a_plan_twice(Host& h) {
  change_plans(h, [](auto submit, kvc_bytes plan) {
    submit(plan);
    return submit(plan);
  });
}

void sends_the_plan_of_another_step(Host& h) {
  static std::vector<std::uint8_t> last;
  instead(h.call.build_store_jobs, [&h](auto& right, auto* s, auto* in, kvc_plan* out) {
    const kvc_status status = right(s, in, out);
    if (h.steps < at_step) last = copy_of(out->bytes);
    return status;
  });
  change_plans(
      h, [](auto submit, kvc_bytes) { return submit(kvc_bytes_of(last.data(), last.size())); });
}

void loses_a_report(Host& h) {
  change_reports(h, [](std::vector<kvc_bytes>& reports) { reports.pop_back(); });
}

void brings_no_report_of_a_rank(Host& h) {
  instead(h.call.complete, [](auto& right, kvc_sched* s, const kvc_bytes* reports, std::uint64_t,
                              auto* out) { return right(s, reports, 1, out); });
}

void brings_a_report_twice(Host& h) {
  change_reports(h, [](std::vector<kvc_bytes>& reports) { reports.push_back(reports.front()); });
}

void alters_a_report(Host& h) {
  static std::vector<std::uint8_t> mine;
  change_reports(h, [](std::vector<kvc_bytes>& reports) {
    mine = copy_of(reports.front());
    mine.back() ^= 1;
    reports.front() = kvc_bytes_of(mine.data(), mine.size());
  });
}

void brings_the_report_of_another_rank(Host& h) {
  change_reports(h, [](std::vector<kvc_bytes>& reports) { reports.back() = reports.front(); });
}

void fences_of_no_kind(Host& h) {
  instead(h.call.submit_stores, [](auto& right, kvc_rank* r, kvc_bytes plan, const kvc_fence* in) {
    kvc_fence mine = *in;
    mine.kind = 9;
    return right(r, plan, &mine);
  });
}

void fences_without_a_counter(Host& h) {
  instead(h.call.submit_stores, [](auto& right, kvc_rank* r, kvc_bytes plan, const kvc_fence* in) {
    kvc_fence mine = *in;
    mine.kind = KVC_FENCE_COUNTER;
    return right(r, plan, &mine);
  });
}

}  // namespace kvc::bad
