#include "plugin/edge/layerwise_extension.h"

#include <kvc/kvc_layerwise.h>
#include <kvc/kvc_util.h>

#include "plugin/edge/abi_codes.h"
#include "plugin/edge/rank_handle.h"
#include "plugin/edge/read_in.h"
#include "plugin/edge/sched_handle.h"

namespace kvc::edge {

template <>
struct Form<kvc_load_in_step> {
  static constexpr std::size_t least = sizeof(kvc_load_in_step);
  static constexpr std::string_view name = "kvc_load_in_step";
};

namespace {

kvc_status load_in_step(kvc_sched* s, const kvc_load_in_step* in) noexcept {
  return at_edge(s, "load_in_step", [&](Stage& stage) -> Status {
    kvc_load_in_step q{};
    if (Status e = read_struct(in, q); !e.ok()) return e;
    if (Status e = refuse_bits("kvc_load_in_step.flags", q.flags, 0); !e.ok()) return e;
    Status answer = s->role->load_in_step(q.request, q.job);
    stage.changed = answer.ok();
    return answer;
  });
}

kvc_fence to_abi(const Fence& fence) {
  kvc_fence out{};
  out.struct_size = sizeof out;
  KVC_CHECK(fence.kind != FenceKind::cuda_stream && fence.kind != FenceKind::captured);
  if (fence.kind == FenceKind::counter) out.kind = KVC_FENCE_COUNTER;
  if (fence.kind == FenceKind::cuda_event) out.kind = KVC_FENCE_CUDA_EVENT;
  out.object = fence.handle;
  out.counter = fence.counter;
  out.value = fence.value;
  return out;
}

kvc_status layer_fence(kvc_rank* r, std::uint64_t step, std::uint32_t layer,
                       kvc_fence* out) noexcept {
  return at_edge(r, "layer_fence", [&](Stage& stage) -> Status {
    if (Status e = check_room(out); !e.ok()) return e;
    Fence fence;
    Status answer = r->role->layer_fence(step, layer, fence);
    if (!answer.ok()) return answer;
    stage.changed = true;  // it may have handed copies over
    const kvc_fence mine = to_abi(fence);
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return answer;
  });
}

constexpr kvc_layerwise_api layerwise_table{sizeof(kvc_layerwise_api), 0, load_in_step,
                                            layer_fence};

}  // namespace

const void* layerwise_extension(std::string_view id) {
  return id == KVC_LAYERWISE_EXTENSION ? &layerwise_table : nullptr;
}

}  // namespace kvc::edge
