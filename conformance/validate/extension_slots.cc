// Functions of extensions that the layer checks. A connector's table is asked for at each call: one
// process may have several connectors behind the layer.
#include <kvc/kvc_retention.h>

#include "conformance/validate/c_structs.h"
#include "conformance/validate/call.h"
#include "conformance/validate/table.h"

namespace kvc::validate {
namespace {

const kvc_retention_api* retention_of(const kvc_plugin_api& next) {
  const auto* const table =
      static_cast<const kvc_retention_api*>(next.extension(kvc_text_of(KVC_RETENTION_EXTENSION)));
  return table != nullptr && KVC_CAN(table, kvc_retention_api, boundaries) ? table : nullptr;
}

kvc_status boundaries(kvc_sched* s, const kvc_retention_in* in_c,
                      kvc_retention_out* out_c) noexcept {
  Call call(Slot::retention_boundaries, s);
  if (!call.known()) return KVC_E_ARG;
  const kvc_retention_api* const table = retention_of(*call.side().next);
  if (table == nullptr) return KVC_E_UNSUPPORTED;  // that of another connector of this process
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
  return status;
}

constexpr kvc_retention_api retention_table{sizeof(kvc_retention_api), 0, boundaries};

}  // namespace

const void* checked_extension(std::string_view id, const void* table) {
  return id == KVC_RETENTION_EXTENSION ? &retention_table : table;
}

}  // namespace kvc::validate
