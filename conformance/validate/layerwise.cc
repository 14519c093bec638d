// kvc.layerwise/1: KVC-H-023, KVC-P-141. What a record may say of a load in step: steps.cc.
#include <kvc/kvc_layerwise.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "conformance/validate/checks.h"
#include "host_stub/loader/status_text.h"

namespace kvc::validate {
namespace {

// Empty: a fence that can be waited for.
std::string wrong_fence(const kvc_fence& fence) {
  const auto at = reinterpret_cast<std::uintptr_t>(fence.counter);
  switch (fence.kind) {
    case KVC_FENCE_NONE:
      return {};
    case KVC_FENCE_COUNTER:
      return at != 0 && at % alignof(std::uint64_t) == 0
                 ? std::string()
                 : fmt::format("the counter is at {:#x}", at);
    case KVC_FENCE_CUDA_EVENT:
      return fence.object != nullptr ? std::string() : "a fence without its event";
    default:
      return fmt::format("a fence of kind {}", fence.kind);
  }
}

}  // namespace

void before_in_step(const Check& c, const InStepIn& in) {
  if (c.model.find(in.request) == nullptr) {
    c.find("KVC-H-023", fmt::format("load_in_step of {}, which is not live", in.request));
  }
}

void after_in_step(const Check& c, const InStepIn& in, kvc_status status) {
  Model& m = c.model;
  m.last_was_lookup = m.last_was_retention = false;
  if (status == KVC_E_INTERNAL) return;
  const auto found = [&](const std::string& why) {
    c.find("KVC-P-141", fmt::format("load_in_step of request {} and job {} answered {}{}",
                                    in.request, in.job, host::Said{status}, why));
  };
  Request* const r = m.find(in.request);
  if (r == nullptr || in.job == 0 || r->open_load != in.job) {
    if (status != KVC_E_ARG) found("; it is not the request's open load");
    return;
  }
  const auto job = m.jobs.find(in.job);
  if (job != m.jobs.end() && job->second.plan != 0) {
    if (status != KVC_E_STATE) found(fmt::format("; it is in plan {}", job->second.plan));
    return;
  }
  if (status < 0) {
    if (!c.findings.host_is_wrong()) found("");
    return;
  }
  if (status != KVC_OK || r->in_step) return;
  r->in_step = true;
  m.promised_loads.push_back(in.request);
}

void check_promised(const Check& c) {
  Model& m = c.model;
  for (const std::uint64_t id : m.promised_loads) {
    const Request* const r = m.find(id);
    const auto job = r == nullptr ? m.jobs.end() : m.jobs.find(r->open_load);
    if (job == m.jobs.end() || !r->in_step || job->second.plan != 0) continue;
    c.find("KVC-P-141", fmt::format("load job {} of request {} was taken in step and is not in "
                                    "plan {}",
                                    r->open_load, id, m.step));
  }
  m.promised_loads.clear();
}

void after_layer(const Check& c, std::uint32_t rank, const LayerIn& in, kvc_status status,
                 const kvc_fence& out) {
  const RankView& view = c.model.ranks[rank];
  if (status == KVC_E_INTERNAL || c.findings.host_is_wrong()) return;
  const auto found = [&](const std::string& why) {
    c.find("KVC-P-141", fmt::format("layer_fence of rank {}, step {} and layer {} answered {}; {}",
                                    rank, in.step, in.layer, host::Said{status}, why));
  };
  // A rank that missed a plan or refused one knows better which it has; without the scheduler in
  // this process nobody knows whether it did.
  const bool counted = c.model.have_sched && !view.poisoned;
  const bool has_all = counted && view.loads == view.tried_loads;
  const std::uint64_t last = counted ? std::max(view.loads, view.tried_loads) : UINT64_MAX;
  if (status >= 0 && (in.step == 0 || in.step > last)) {
    found(fmt::format("loads were submitted up to step {}", last));
  } else if (status < 0 && in.step != 0 && in.step <= view.loads && has_all) {
    found(fmt::format("loads were submitted up to step {}", view.loads));
  } else if (status == KVC_OK) {
    if (const std::string why = wrong_fence(out); !why.empty()) found(why);
  }
}

}  // namespace kvc::validate
