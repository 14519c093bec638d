// Which loads are in step decides what a step record may say (KVC-H-046, KVC-H-071). Calls of
// extensions are no part of a recording.
#include "conformance/validate/layerwise.h"

#include <mutex>

#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_util.h>

#include "conformance/validate/engine.h"

namespace kvc::validate {
namespace {

const kvc_layerwise_api* table_behind(const Side& side) {
  return static_cast<const kvc_layerwise_api*>(
      side.next->extension(kvc_text_of(KVC_LAYERWISE_EXTENSION)));
}

kvc_status load_in_step(kvc_sched* s, const kvc_load_in_step* in) noexcept {
  const auto side = Registry::of_process().find(s);
  if (side == nullptr || !side->sched) return KVC_E_ARG;
  const kvc_layerwise_api* const next = table_behind(*side);
  if (next == nullptr) return KVC_E_UNSUPPORTED;
  const kvc_status status = next->load_in_step(s, in);
  kvc_load_in_step q{};
  if (status != KVC_OK || kvc_read(&q, sizeof q, in, sizeof q) != KVC_OK) return status;
  const std::lock_guard lock(side->engine->mutex);
  Request* const r = side->engine->model.find(q.request);
  if (r != nullptr && r->open_load == q.job) r->in_step = true;
  return status;
}

kvc_status layer_fence(kvc_rank* r, std::uint64_t step, std::uint32_t layer,
                       kvc_fence* out) noexcept {
  const auto side = Registry::of_process().find(r);
  if (side == nullptr || side->sched) return KVC_E_ARG;
  const kvc_layerwise_api* const next = table_behind(*side);
  return next == nullptr ? KVC_E_UNSUPPORTED : next->layer_fence(r, step, layer, out);
}

constexpr kvc_layerwise_api table{sizeof table, 0, load_in_step, layer_fence};

}  // namespace

const void* layerwise_before(const void* next) { return next == nullptr ? nullptr : &table; }

}  // namespace kvc::validate
