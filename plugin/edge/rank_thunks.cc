// Thunks of the rank role: read, check the form, call the rank engine, write.
#include <fmt/format.h>
#include <kvc/kvc_util.h>

#include <vector>

#include "plugin/edge/abi_codes.h"
#include "plugin/edge/rank_handle.h"
#include "plugin/edge/read_in.h"
#include "plugin/edge/slots.h"

namespace kvc::edge {

namespace {

static_assert(same(DeviceKind::host, KVC_DEVICE_HOST) && same(DeviceKind::cuda, KVC_DEVICE_CUDA));

constexpr std::uint64_t regions_max = 1U << 16U;
constexpr std::uint64_t wait_jobs_max = 1U << 24U;
constexpr std::uint64_t plan_bytes_most = std::uint64_t{1} << 40U;

Result<RankRegion> read_region(const kvc_list& list, std::uint64_t i) {
  kvc_region r{};
  if (Status s = read_element("regions", list, i, r); !s.ok()) return s;
  RankRegion region;
  region.base = r.base;
  region.size_bytes = {r.size_bytes};
  region.stride_bytes = {r.block_stride_bytes};
  region.block_bytes = {r.block_bytes};
  region.device = static_cast<DeviceKind>(r.device_kind);
  region.ordinal = r.device_ordinal;
  region.layer = r.layer;
  region.group_mask = r.group_mask;
  return region;
}

kvc_status register_regions(kvc_rank* r, const kvc_list* regions, kvc_rank_info* out) noexcept {
  return at_edge(r, "register_regions", [&](Stage& stage) -> Status {
    if (regions == nullptr) return {Code::arg, "regions is NULL"};
    if (Status s = check_room(out); !s.ok()) return s;
    if (Status s = check_list<kvc_region>("regions", *regions, regions_max); !s.ok()) return s;
    std::vector<RankRegion> given;
    for (std::uint64_t i = 0; i < regions->count; ++i) {
      const Result<RankRegion> region = read_region(*regions, i);
      if (!region.ok()) return region.error();
      given.push_back(region.value());
    }
    const Result<RankInfo> info = r->role->register_regions(given);
    if (!info.ok()) return info.error();
    stage.changed = true;
    const kvc_rank_info mine = r->out.info(info.value());
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

Status read_fence(const kvc_fence* fence, Fence& out) {
  kvc_fence f{};
  if (Status s = read_struct(fence, f); !s.ok()) return s;
  switch (f.kind) {
    case KVC_FENCE_NONE:
      out.kind = FenceKind::none;
      break;
    case KVC_FENCE_CUDA_EVENT:
      out.kind = FenceKind::cuda_event;
      break;
    case KVC_FENCE_CUDA_STREAM:
      out.kind = FenceKind::cuda_stream;
      break;
    case KVC_FENCE_COUNTER:
      out.kind = FenceKind::counter;
      break;
    default:
      return {Code::unsupported, fmt::format("kvc_fence.kind {} is not known", f.kind)};
  }
  out.handle = f.object;
  out.counter = f.counter;
  out.value = f.value;
  return {};
}

using Submit = Status (RankEngine::*)(std::span<const std::uint8_t>, const Fence&);

kvc_status submit(kvc_rank* r, std::string_view slot, kvc_bytes plan, const kvc_fence* fence,
                  Submit how) noexcept {
  return at_edge(r, slot, [&](Stage&) -> Status {
    if (Status s = check_array("plan", plan.data, plan.size, 1, plan_bytes_most); !s.ok()) return s;
    Fence given;
    if (Status s = read_fence(fence, given); !s.ok()) return s;
    return ((*r->role).*how)({plan.data, plan.size}, given);
  });
}

kvc_status submit_loads(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  return submit(r, "submit_loads", plan, fence, &RankEngine::submit_loads);
}

kvc_status submit_stores(kvc_rank* r, kvc_bytes plan, const kvc_fence* fence) noexcept {
  return submit(r, "submit_stores", plan, fence, &RankEngine::submit_stores);
}

kvc_status progress(kvc_rank* r, kvc_progress* out) noexcept {
  return at_edge(r, "progress", [&](Stage& stage) -> Status {
    if (Status s = check_room(out); !s.ok()) return s;
    const RankProgress what = r->role->progress();
    stage.changed = true;
    const kvc_progress mine = r->out.progress(what, r->config.rank);
    KVC_CHECK(KVC_WRITE(out, &mine) == KVC_OK);
    return {};
  });
}

kvc_status wait(kvc_rank* r, const kvc_job* jobs, std::uint64_t n_jobs,
                std::uint64_t timeout_ns) noexcept {
  return at_edge(r, "wait", [&](Stage&) -> Status {
    if (Status s =
            check_array("jobs", jobs, n_jobs, sizeof(kvc_job), wait_jobs_max, alignof(kvc_job));
        !s.ok()) {
      return s;
    }
    return {r->role->wait({jobs, n_jobs}, timeout_ns), {}};
  });
}

kvc_status pump_rank(kvc_rank* r, std::uint32_t budget) noexcept {
  return at_edge(r, "pump_rank", [&](Stage&) -> Status { return {r->role->pump(budget), {}}; });
}

}  // namespace

RankOutputs::RankOutputs(const Reserved& reserved, std::pmr::memory_resource* memory)
    : classes_(KVC_GROUPS_MAX, memory),
      loads_(reserved.jobs, memory),
      failed_(reserved.blocks, memory) {}

kvc_rank_info RankOutputs::info(const RankInfo& info) {
  classes_.begin(info.classes.size());
  for (const SlotClass& c : info.classes) {
    classes_.add({sizeof(kvc_class), c.class_id, c.group_mask, c.slots_per_page,
                  c.bytes_per_block.n, c.usable_slots});
  }
  return {sizeof(kvc_rank_info), info.rank, info.pages,
          kvc_list_of(classes_.data(), classes_.size(), sizeof(kvc_class)),
          kvc_bytes_of(info.inventory.data(), info.inventory.size())};
}

kvc_progress RankOutputs::progress(const RankProgress& progress, std::uint32_t rank) {
  std::uint64_t failed = 0;
  for (const LoadDone& d : progress.loads) failed += d.failed.size();
  failed_.begin(failed);
  loads_.begin(progress.loads.size());
  for (const LoadDone& d : progress.loads) {
    const std::uint64_t first = failed_.size();
    for (const FailedBlock& b : d.failed) {
      failed_.add({sizeof(kvc_failed_block), b.group, b.block, b.position, rank, to_abi(b.status),
                   static_cast<std::int32_t>(b.side), 0});
    }
    const auto blocks = failed_.from(first);
    loads_.add({sizeof(kvc_load_done), to_abi(d.status), d.request, d.job,
                kvc_list_of(blocks.data(), blocks.size(), sizeof(kvc_failed_block))});
  }
  return {sizeof(kvc_progress), 0, kvc_list_of(loads_.data(), loads_.size(), sizeof(kvc_load_done)),
          kvc_bytes_of(progress.report.data(), progress.report.size())};
}

void fill_rank_slots(kvc_plugin_api& api) {
  api.register_regions = register_regions;
  api.submit_loads = submit_loads;
  api.submit_stores = submit_stores;
  api.progress = progress;
  api.wait = wait;
  api.pump_rank = pump_rank;
}

}  // namespace kvc::edge
