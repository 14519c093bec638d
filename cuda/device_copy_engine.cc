#include "cuda/device_copy_engine.h"

#include <fmt/format.h>

#include "cuda/calibrate.h"

namespace kvc {

namespace {

Status not_attached() { return {Code::state, "this copy engine was not told of a device"}; }

}  // namespace

Status DeviceCopyEngine::attach(CopyDevice device, std::int32_t ordinal) {
  inner_.reset();
  if (device == CopyDevice::host) {
    auto made = HostCopyEngine::create(host_);
    if (!made.ok()) return made.error();
    inner_ = std::move(made.value());
    return {};
  }
  if (device != CopyDevice::cuda) {
    return {Code::unsupported, fmt::format("there are no copies for device kind {}",
                                           static_cast<std::int32_t>(device))};
  }
  CudaCopyOptions options = cuda_;
  options.device = ordinal;
  if (Status s = calibrate(options); !s.ok()) return s;
  auto made = CudaCopyEngine::create(options);
  if (!made.ok()) return made.error();
  inner_ = std::move(made.value());
  return {};
}

Result<Fence> DeviceCopyEngine::capture(const Fence& fence) {
  if (inner_ == nullptr) return not_attached();
  return inner_->capture(fence);
}

Status DeviceCopyEngine::submit(const CopyBatch& batch) {
  return inner_ == nullptr ? not_attached() : inner_->submit(batch);
}

Status DeviceCopyEngine::pin(void* base, Bytes size, Bytes row) {
  return inner_ == nullptr ? not_attached() : inner_->pin(base, size, row);
}

}  // namespace kvc
