// Functions of extensions that the layer checks and records. A connector's table is asked for at
// each call: one process may have several connectors behind the layer, and what is asked of one
// that has it not is KVC_E_UNSUPPORTED.
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>

#include "conformance/validate/c_structs.h"
#include "conformance/validate/call.h"
#include "conformance/validate/table.h"
#include "host_stub/loader/extension_table.h"

namespace kvc::validate {
namespace {

kvc_status boundaries(kvc_sched* s, const kvc_retention_in* in_c,
                      kvc_retention_out* out_c) noexcept {
  Call call(Slot::boundaries, s);
  if (!call.known()) return KVC_E_ARG;
  const auto* const table = host::extension_table(*call.side().next, KVC_RETENTION_EXTENSION,
                                                  &kvc_retention_api::boundaries);
  if (table == nullptr) return KVC_E_UNSUPPORTED;
  Form form;
  const RetentionIn in = read_retention(form, in_c);
  form.room(out_c, sizeof *out_c, "kvc_retention_out");
  call.form(form);
  OutBox<kvc_retention_out> box(out_c);
  call.check_outputs();
  call.check([&](const Check& c) { before_retention(c, in); });
  const kvc_retention_in* const passed =
      call.guarded(in_c, [&](Arena& a) { return c_retention(a, in); });
  const kvc_status status = call.forward([&](const kvc_plugin_api&) {
    return table->boundaries(call.handle<kvc_sched>(), passed, box.get());
  });
  call.put_back(box, status, sizeof(kvc_retention_out));
  RetentionOut out;
  if (status >= 0) {
    Form answer;
    out = read_retention_out(answer, box.value());
    call.out_form(answer);
    call.keep_outputs(status, box.value());
  }
  call.check([&](const Check& c) {
    if (box.judged()) after_retention(c, in, status, out);
  });
  call.check_counts();
  call.record(in, status, out);
  return status;
}

kvc_status load_in_step(kvc_sched* s, const kvc_load_in_step* in_c) noexcept {
  Call call(Slot::load_in_step, s);
  if (!call.known()) return KVC_E_ARG;
  const auto* const table = host::extension_table(*call.side().next, KVC_LAYERWISE_EXTENSION,
                                                  &kvc_layerwise_api::load_in_step);
  if (table == nullptr) return KVC_E_UNSUPPORTED;
  Form form;
  const InStepIn in = read_in_step(form, in_c);
  call.form(form);
  call.check([&](const Check& c) { before_in_step(c, in); });
  const kvc_load_in_step* const passed =
      call.guarded(in_c, [&](Arena& a) { return c_in_step(a, in); });
  const kvc_status status = call.forward(
      [&](const kvc_plugin_api&) { return table->load_in_step(call.handle<kvc_sched>(), passed); });
  call.check([&](const Check& c) { after_in_step(c, in, status); });
  call.check_counts();
  call.record(in, status, Nothing{});
  return status;
}

kvc_status layer_fence(kvc_rank* r, std::uint64_t step, std::uint32_t layer,
                       kvc_fence* out_c) noexcept {
  Call call(Slot::layer_fence, r);
  if (!call.known()) return KVC_E_ARG;
  const std::uint32_t rank = call.side().rank;
  const auto* const table = host::extension_table(*call.side().next, KVC_LAYERWISE_EXTENSION,
                                                  &kvc_layerwise_api::layer_fence);
  if (table == nullptr) return KVC_E_UNSUPPORTED;
  const LayerIn in{step, layer};
  Form form;
  form.room(out_c, kvc_fence_least, "kvc_fence");
  call.form(form);
  OutBox<kvc_fence> box(out_c);
  const kvc_status status = call.forward([&](const kvc_plugin_api&) {
    return table->layer_fence(call.handle<kvc_rank>(), step, layer, box.get());
  });
  call.put_back(box, status, kvc_fence_least);
  call.check([&](const Check& c) {
    if (box.judged()) after_layer(c, rank, in, status, box.value());
  });
  const bool answered = status == KVC_OK && box.judged();
  call.record(in, status, answered ? LayerOut{box.value().kind, box.value().value} : LayerOut{});
  return status;
}

constexpr kvc_retention_api retention_table{sizeof(kvc_retention_api), 0, boundaries};
constexpr kvc_layerwise_api layerwise_table{sizeof(kvc_layerwise_api), 0, load_in_step,
                                            layer_fence};

}  // namespace

const void* checked_extension(std::string_view id, const void* table) {
  if (id == KVC_RETENTION_EXTENSION) return &retention_table;
  if (id == KVC_LAYERWISE_EXTENSION) return &layerwise_table;
  return table;
}

}  // namespace kvc::validate
