// Slots of the scheduler role that change something.
#include "conformance/validate/c_structs.h"
#include "conformance/validate/call.h"
#include "conformance/validate/table.h"

namespace kvc::validate::slots {
namespace {

// The call after any but a lookup: what the next lookup answers may differ.
void no_lookup(Call& call) {
  call.check([](const Check& c) {
    c.model.last_was_lookup = false;
    c.model.last_was_retention = false;
  });
}

// Blocks that the host's block_of named in this call may be stored.
void allow_found_blocks(Call& call, const Check& c) {
  for (const QueryAnswer& q : call.queries()) {
    if (q.block_of && q.status == 1) c.model.step_blocks.insert(q.block);
  }
}

}  // namespace

kvc_status set_ranks(kvc_sched* s, const kvc_list* ranks, kvc_list* usable) noexcept {
  Call call(Slot::set_ranks, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const SetRanksIn in = read_ranks(form, ranks, call.layout());
  if (usable == nullptr) form.add(Fault::short_room, "the room for the usable slots is NULL");
  call.form(form);
  call.check_outputs();
  no_lookup(call);
  call.check([&](const Check& c) { before_set_ranks(c, in); });
  const kvc_list* const passed = call.guarded(ranks, [&](Arena& a) { return c_ranks(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.set_ranks(call.handle<kvc_sched>(), passed, usable);
  });
  SetRanksOut out;
  if (status >= 0 && usable != nullptr) {
    Form answer;
    out.usable = read_classes(answer, *usable);
    call.out_form(answer);
    call.keep_outputs(status, *usable);
  }
  call.check([&](const Check& c) { after_set_ranks(c, in, status, out); });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status request_begin(kvc_sched* s, const kvc_request* request) noexcept {
  Call call(Slot::request_begin, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const BeginIn in = read_begin(form, request, call.layout());
  call.form(form);
  no_lookup(call);
  call.check([&](const Check& c) { before_begin(c, in); });
  const kvc_request* const passed = call.guarded(request, [&](Arena& a) { return c_begin(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.request_begin(call.handle<kvc_sched>(), passed);
  });
  call.check([&](const Check& c) { after_begin(c, in, status); });
  call.check_counts();
  call.record(in, status, Nothing{});
  return status;
}

kvc_status request_extend(kvc_sched* s, const kvc_extend* extend) noexcept {
  Call call(Slot::request_extend, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const ExtendIn in = read_extend(form, extend, call.layout());
  call.form(form);
  no_lookup(call);
  call.check([&](const Check& c) { before_extend(c, in); });
  const kvc_extend* const passed = call.guarded(extend, [&](Arena& a) { return c_extend(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.request_extend(call.handle<kvc_sched>(), passed);
  });
  call.check([&](const Check& c) { after_extend(c, in, status); });
  call.check_counts();
  call.record(in, status, Nothing{});
  return status;
}

kvc_status lookup(kvc_sched* s, const kvc_lookup_in* in_c, kvc_lookup_out* out_c) noexcept {
  Call call(Slot::lookup, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const LookupIn in = read_lookup(form, in_c);
  form.room(out_c, kvc_lookup_out_least, "kvc_lookup_out");
  call.form(form);
  OutBox<kvc_lookup_out> box(out_c);
  call.check([&](const Check& c) { before_lookup(c, in); });
  const kvc_lookup_in* const passed = call.guarded(in_c, [&](Arena& a) { return c_lookup(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.lookup(call.handle<kvc_sched>(), passed, box.get());
  });
  call.put_back(box, status, kvc_lookup_out_least);
  const LookupOut out{box.value().external_tokens, box.value().why};
  call.check([&](const Check& c) {
    if (box.judged()) after_lookup(c, in, status, out);
    c.model.last_was_lookup = true;
    c.model.last_was_retention = false;
    c.model.last_lookup = in;
    c.model.last_status = status;
    c.model.last_answer = out;
  });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status lookup_cancel(kvc_sched* s, std::uint64_t request) noexcept {
  Call call(Slot::lookup_cancel, s);
  if (!call.known()) return KVC_E_ARG;
  no_lookup(call);
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.lookup_cancel(call.handle<kvc_sched>(), request);
  });
  call.check([&](const Check& c) { after_cancel(c, request, status); });
  call.check_counts();
  call.record(NumberIn{request}, status, Nothing{});
  return status;
}

kvc_status alloc_update(kvc_sched* s, const kvc_alloc_in* in_c, kvc_alloc_out* out_c) noexcept {
  Call call(Slot::alloc_update, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const AllocIn in = read_alloc(form, in_c, call.layout());
  form.room(out_c, kvc_alloc_out_least, "kvc_alloc_out");
  call.form(form);
  OutBox<kvc_alloc_out> box(out_c);
  call.check_outputs();
  no_lookup(call);
  call.check([&](const Check& c) { before_alloc(c, in); });
  const kvc_alloc_in* const passed = call.guarded(in_c, [&](Arena& a) { return c_alloc(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.alloc_update(call.handle<kvc_sched>(), passed, box.get());
  });
  call.put_back(box, status, kvc_alloc_out_least);
  AllocOut out;
  if (status >= 0) {
    Form answer;
    out = read_alloc_out(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    if (box.judged()) after_alloc(c, in, status, out);
  });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status build_store_jobs(kvc_sched* s, const kvc_step* step, kvc_plan* out_c) noexcept {
  Call call(Slot::build_store_jobs, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const StepIn in = read_step(form, step, call.layout());
  form.room(out_c, kvc_plan_least, "kvc_plan");
  call.form(form);
  OutBox<kvc_plan> box(out_c);
  call.check_outputs();
  no_lookup(call);
  call.check([&](const Check& c) { before_build(c, in); });
  const kvc_step* const passed = call.guarded(step, [&](Arena& a) { return c_step(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.build_store_jobs(call.handle<kvc_sched>(), passed, box.get());
  });
  call.put_back(box, status, kvc_plan_least);
  PlanOut out;
  if (status >= 0) {
    Form answer;
    out = read_plan_out(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    allow_found_blocks(call, c);
    if (box.judged()) after_build(c, in, status, out);
  });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status complete(kvc_sched* s, const kvc_bytes* reports, std::uint64_t count,
                    kvc_complete_out* out_c) noexcept {
  Call call(Slot::complete, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const CompleteIn in = read_reports(form, reports, count, call.layout());
  form.room(out_c, kvc_complete_out_least, "kvc_complete_out");
  call.form(form);
  OutBox<kvc_complete_out> box(out_c);
  call.check_outputs();
  no_lookup(call);
  call.check([&](const Check& c) { before_reports(c, in); });
  const kvc_bytes* const passed =
      call.guarded(reports, [&](Arena& a) { return c_reports(a, in.reports); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.complete(call.handle<kvc_sched>(), passed, count, box.get());
  });
  call.put_back(box, status, kvc_complete_out_least);
  CompleteOut out;
  if (status >= 0) {
    Form answer;
    out = read_complete_out(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    if (box.judged()) after_complete(c, in, status, out);
  });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status request_end(kvc_sched* s, const kvc_end_in* in_c, kvc_end_out* out_c) noexcept {
  Call call(Slot::request_end, s);
  if (!call.known()) return KVC_E_ARG;
  Form form;
  const EndIn in = read_end(form, in_c, call.layout());
  form.room(out_c, kvc_end_out_least, "kvc_end_out");
  call.form(form);
  OutBox<kvc_end_out> box(out_c);
  call.check_outputs();
  no_lookup(call);
  call.check([&](const Check& c) { before_end(c, in); });
  const kvc_end_in* const passed = call.guarded(in_c, [&](Arena& a) { return c_end(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.request_end(call.handle<kvc_sched>(), passed, box.get());
  });
  call.put_back(box, status, kvc_end_out_least);
  EndOut out;
  if (status >= 0) {
    Form answer;
    out = read_end_out(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    allow_found_blocks(call, c);
    if (box.judged()) after_end(c, in, status, out);
  });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status reset(kvc_sched* s, std::uint64_t flags) noexcept {
  Call call(Slot::reset, s);
  if (!call.known()) return KVC_E_ARG;
  no_lookup(call);
  const kvc_status status = call.forward(
      [&](const kvc_plugin_api& next) { return next.reset(call.handle<kvc_sched>(), flags); });
  call.check([&](const Check& c) { after_reset(c, flags, status); });
  call.check_counts();
  call.record(NumberIn{flags}, status, Nothing{});
  return status;
}

kvc_status pump_scheduler(kvc_sched* s, std::uint32_t budget) noexcept {
  Call call(Slot::pump_scheduler, s);
  if (!call.known()) return KVC_E_ARG;
  no_lookup(call);
  const kvc_status status = call.forward([&](const kvc_plugin_api& next) {
    return next.pump_scheduler(call.handle<kvc_sched>(), budget);
  });
  call.check_counts();
  call.record(NumberIn{budget}, status, Nothing{});
  return status;
}

}  // namespace kvc::validate::slots
