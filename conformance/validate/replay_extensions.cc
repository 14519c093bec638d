// The functions of extensions in a replay.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_retention.h>

#include "conformance/validate/form.h"
#include "conformance/validate/replay_read.h"
#include "conformance/validate/table.h"
#include "host_stub/loader/extension_table.h"

namespace kvc::validate {

template <class Table, class Function>
const Table* Replay::extension(const RecordedCall& call, const char* id,
                               Function Table::*function) {
  const Table* const table = host::extension_table(api_, id, function);
  if (table == nullptr) differ(call, "extension", id, "none");
  return table;
}

void Replay::boundaries(const RecordedCall& call) {
  RetentionIn in;
  RetentionOut out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  const auto* const table =
      extension(call, KVC_RETENTION_EXTENSION, &kvc_retention_api::boundaries);
  if (table == nullptr) return;
  kvc_retention_out answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = table->boundaries(sched_, c_retention(arena_, in), &answer);
  if (!same(call, "status", call.head.status, status) || status < 0) return;
  Form form;
  const RetentionOut present = read_retention_out(form, answer);
  if (!same(call, "mode", out.mode, present.mode)) return;
  same(call, "boundaries", out.boundaries, present.boundaries);
}

void Replay::load_in_step(const RecordedCall& call) {
  InStepIn in;
  Nothing out;
  read(call, in, out);
  if (over() || !need_sched(call)) return;
  const auto* const table =
      extension(call, KVC_LAYERWISE_EXTENSION, &kvc_layerwise_api::load_in_step);
  if (table == nullptr) return;
  in.job = mine(in.job);
  same(call, "status", call.head.status, table->load_in_step(sched_, c_in_step(arena_, in)));
}

void Replay::layer_fence(const RecordedCall& call) {
  LayerIn in;
  LayerOut out;
  read(call, in, out);
  Rank* const rank = over() ? nullptr : rank_of(call);
  if (rank == nullptr) return;
  const auto* const table =
      extension(call, KVC_LAYERWISE_EXTENSION, &kvc_layerwise_api::layer_fence);
  if (table == nullptr) return;
  kvc_fence answer{};
  answer.struct_size = sizeof answer;
  const kvc_status status = table->layer_fence(rank->handle, in.step, in.layer, &answer);
  // How far the copies are is a matter of time: what was there may not be yet.
  const auto in_time = [](kvc_status s) { return s == KVC_LATER ? kvc_status{KVC_OK} : s; };
  same(call, "status", in_time(call.head.status), in_time(status));
}

}  // namespace kvc::validate
