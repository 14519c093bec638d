// What the engine asks of a connector's extensions.
#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "host_stub/engine/connector_link.h"
#include "host_stub/engine/layerwise_table.h"
#include "host_stub/loader/extension_table.h"
#include "host_stub/loader/status_text.h"

namespace kvc::host {

void ConnectorLink::find_extensions(const EngineOptions& options) {
  retention_ =
      extension_table(connector_.api, KVC_RETENTION_EXTENSION, &kvc_retention_api::boundaries);
  find_hints(options);
  if (!options.loads_in_step) return;
  layerwise_ = layerwise_table(connector_);
  if (layerwise_ == nullptr) {
    log_line(KVC_LOG_WARN, fmt::format("connector {} has no {}: loads are waited for",
                                       connector_.path, KVC_LAYERWISE_EXTENSION));
  }
}

void ConnectorLink::find_hints(const EngineOptions& options) {
  hint_options_ = options.hints;
  if (!options.hints.any()) return;
  hints_ = extension_table(connector_.api, KVC_HINTS_EXTENSION, &kvc_hints_api::hint,
                           &kvc_hints_api::pin, &kvc_hints_api::unpin);
  if (hints_ == nullptr) {
    log_line(KVC_LOG_WARN, fmt::format("connector {} has no {}: nothing is said of requests",
                                       connector_.path, KVC_HINTS_EXTENSION));
  }
}

void ConnectorLink::hint(std::uint64_t request, const KeyView& keys) {
  const HintOptions& o = hint_options_;
  if (!alive() || hints_ == nullptr || (request - 1) % o.every != 0) return;
  if (o.priority != 0 || o.ttl_ns != 0) {
    kvc_hint_in in{};
    in.struct_size = sizeof in;
    in.request = request;
    in.priority = o.priority;
    in.ttl_ns = o.ttl_ns;
    const kvc_status s = note("hint", hints_->hint(sched_, &in));
    if (s < 0) {
      fail(fmt::format("hint of request {} with priority {} answered {}: {}", request, o.priority,
                       host::Said{s}, last_error()));
    }
  }
  if (o.pin_tokens != 0) pin(request, keys);
}

void ConnectorLink::pin(std::uint64_t request, const KeyView& keys) {
  const std::uint64_t units = hint_options_.pin_tokens / hash_unit_;
  if (!alive() || units == 0 || keys.count < units || pins_refused_) return;
  const auto* last = reinterpret_cast<const char*>(keys.at(units - 1));
  const std::string key(last, keys.key_bytes);
  if (pinned_.count(key) != 0) return;
  kvc_pin_in in{};
  in.struct_size = sizeof in;
  in.request = request;
  in.tokens = units * hash_unit_;
  kvc_pin_out out{};
  out.struct_size = sizeof out;
  const kvc_status s = note("pin", hints_->pin(sched_, &in, &out));
  if (s == KVC_E_FULL) {
    pins_refused_ = true;
    log_line(KVC_LOG_INFO, fmt::format("no more pins: {}", last_error()));
  } else if (s < 0) {
    fail(fmt::format("pin of request {} answered {}: {}", request, host::Said{s}, last_error()));
  } else if (out.pin != 0 && out.tokens == in.tokens) {
    pinned_.insert(key);
  } else if (out.pin != 0) {  // not all of it is stored yet
    note("unpin", hints_->unpin(sched_, out.pin));
  }
}

bool ConnectorLink::retained(std::uint64_t request, std::uint64_t begin,
                             std::vector<std::uint64_t>& boundaries) {
  boundaries.clear();
  if (!alive() || retention_ == nullptr) return false;
  kvc_retention_in in{};
  in.struct_size = sizeof in;
  in.request = request;
  in.begin_tokens = begin;
  kvc_retention_out out{};
  out.struct_size = sizeof out;
  const kvc_status s = note("boundaries", retention_->boundaries(sched_, &in, &out));
  if (s < 0) {
    fail(fmt::format("boundaries of {} answered {}: {}", request, s, last_error()));
    return false;
  }
  if (out.mode != KVC_RETENTION_LISTED) return false;
  std::uint64_t before = begin == 0 ? 0 : begin - 1;
  for (std::uint64_t i = 0; i < out.n_boundaries; ++i) {
    const std::uint64_t end = out.boundaries[i];
    if (end <= before || end % hash_unit_ != 0) {
      fail(fmt::format("boundaries of {} named {} behind {}, in units of {}", request, end, before,
                       hash_unit_));
      boundaries.clear();
      return false;
    }
    boundaries.push_back(before = end);
  }
  return true;
}

bool ConnectorLink::in_step(std::uint64_t request, kvc_job job) {
  if (!alive() || layerwise_ == nullptr) return false;
  kvc_load_in_step in{};
  in.struct_size = sizeof in;
  in.request = request;
  in.job = job;
  const kvc_status s = note("load_in_step", layerwise_->load_in_step(sched_, &in));
  if (s < 0) {
    fail(fmt::format("load_in_step of request {} and job {} answered {}: {}", request, job,
                     host::Said{s}, last_error()));
  }
  return s == KVC_OK;
}

kvc_status ConnectorLink::layer_fence(std::uint32_t rank, std::uint64_t layer, kvc_fence* out) {
  const kvc_status s = note(
      "layer_fence",
      layerwise_->layer_fence(ranks_[rank], step_, static_cast<std::uint32_t>(layer), out), rank);
  const bool waits = out->kind == KVC_FENCE_COUNTER
                         ? out->counter != nullptr && device_ == nullptr
                         : out->kind == KVC_FENCE_NONE ||
                               (out->kind == KVC_FENCE_CUDA_EVENT && device_ != nullptr);
  if (s < 0) {
    fail(fmt::format("layer_fence of layer {} on rank {} answered {}: {}", layer, rank,
                     host::Said{s}, rank_error(rank)));
  } else if (s == KVC_OK && !waits) {
    fail(fmt::format("layer_fence of layer {} on rank {} gave a fence of kind {}", layer, rank,
                     out->kind));
  }
  return s;
}

bool ConnectorLink::layer_fences(std::uint64_t layer, std::vector<kvc_fence>& out) {
  const std::size_t first = out.size();
  for (std::uint32_t rank = 0; rank < ranks_.size() && alive() && layerwise_ != nullptr; ++rank) {
    kvc_fence fence{};
    fence.struct_size = sizeof fence;
    const kvc_status s = layer_fence(rank, layer, &fence);
    if (s == KVC_OK && alive()) {
      out.push_back(fence);
    } else if (s > 0) {
      out.resize(first);
      return false;
    }
  }
  return true;
}

void ConnectorLink::launch_layer(std::span<const kvc_fence> fences) {
  for (const kvc_fence& fence : fences) device_->wait_for(fence);
  device_->launch_turn();
}

}  // namespace kvc::host
