// Slots of the rank role.
#include "conformance/validate/c_structs.h"
#include "conformance/validate/call.h"
#include "conformance/validate/table.h"

namespace kvc::validate::slots {
namespace {

kvc_status submit(Slot slot, kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) {
  Call call(slot, r);
  if (!call.known()) return KVC_E_ARG;
  const bool loads = slot == Slot::submit_loads;
  const std::uint32_t rank = call.side().rank;
  Form form;
  const SubmitIn in = read_submit(form, plan, fence);
  call.form(form);
  call.check([&](const Check& c) { before_submit(c, rank, loads, in, fence); });
  kvc_bytes passed = plan;
  call.guarded(plan.data, [&](Arena& a) {
    kvc_bytes copy{};
    const bool done = c_bytes(a, in.plan, copy);
    if (done && copy.data != nullptr) passed = copy;
    return passed.data;
  });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return loads ? next.submit_loads(call.handle<kvc_rank>(), passed, fence)
                 : next.submit_stores(call.handle<kvc_rank>(), passed, fence);
  });
  call.check([&](const Check& c) { after_submit(c, rank, loads, in, status); });
  call.record(in, status, Nothing{});
  return status;
}

}  // namespace

kvc_status register_regions(kvc_rank* r, const kvc_list* regions, kvc_rank_info* out_c) noexcept {
  Call call(Slot::register_regions, r);
  if (!call.known()) return KVC_E_ARG;
  const std::uint32_t rank = call.side().rank;
  Form form;
  const RegionsIn in = read_regions(form, regions);
  form.room(out_c, kvc_rank_info_least, "kvc_rank_info");
  call.form(form);
  OutBox<kvc_rank_info> box(out_c);
  call.check_outputs();
  call.check([&](const Check& c) { before_register(c, rank, in); });
  const kvc_list* const passed = call.guarded(regions, [&](Arena& a) { return c_regions(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.register_regions(call.handle<kvc_rank>(), passed, box.get());
  });
  call.put_back(box, status, kvc_rank_info_least);
  RankInfo out;
  if (status >= 0) {
    Form answer;
    out = read_rank_info(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    if (box.judged()) after_register(c, rank, in, status, out);
  });
  call.record(in, status, out);
  return status;
}

kvc_status submit_loads(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  return submit(Slot::submit_loads, r, plan, fence);
}

kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  return submit(Slot::submit_stores, r, plan, fence);
}

kvc_status progress(kvc_rank* r, kvc_progress* out_c) noexcept {
  Call call(Slot::progress, r);
  if (!call.known()) return KVC_E_ARG;
  const std::uint32_t rank = call.side().rank;
  Form form;
  form.room(out_c, kvc_progress_least, "kvc_progress");
  call.form(form);
  OutBox<kvc_progress> box(out_c);
  call.check_outputs();
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.progress(call.handle<kvc_rank>(), box.get());
  });
  call.put_back(box, status, kvc_progress_least);
  ProgressOut out;
  if (status >= 0) {
    Form answer;
    out = read_progress_out(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    if (box.judged()) after_progress(c, rank, status, out);
  });
  call.record(Nothing{}, status, out);
  return status;
}

kvc_status wait(kvc_rank* r, const kvc_job* jobs, std::uint64_t count,
                std::uint64_t timeout_ns) noexcept {
  Call call(Slot::wait, r);
  if (!call.known()) return KVC_E_ARG;
  const std::uint32_t rank = call.side().rank;
  Form form;
  const WaitIn in = read_wait(form, jobs, count, timeout_ns);
  call.form(form);
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.wait(call.handle<kvc_rank>(), jobs, count, timeout_ns);
  });
  call.check([&](const Check& c) { after_wait(c, rank, in, status); });
  call.record(in, status, Nothing{});
  return status;
}

kvc_status pump_rank(kvc_rank* r, std::uint32_t budget) noexcept {
  Call call(Slot::pump_rank, r);
  if (!call.known()) return KVC_E_ARG;
  const kvc_status status = call.forward(
      [&](const kvc_plugin_api& next) { return next.pump_rank(call.handle<kvc_rank>(), budget); });
  call.record(NumberIn{budget}, status, Nothing{});
  return status;
}

}  // namespace kvc::validate::slots
