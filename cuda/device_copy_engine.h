// The copy engine of a rank before it is known where the rank's blocks lie: attach makes the
// backend for that device.
#pragma once
#include <memory>
#include <string>

#include "cuda/cuda_copy_engine.h"
#include "cuda/host_copy_engine.h"

namespace kvc {

// Threads:    as CopyEngine; attach while nothing else is called.
// Owns:       the backend.
// Invariants: without a backend nothing is open: poll has nothing, waits are over. Attached again
//             it begins anew.
class DeviceCopyEngine final : public CopyEngine {
 public:
  // `cuda.device` is what attach says; thresholds may
  // be kernel_below_measured (cuda/calibrate.h). Whether it steps follows from host.workers.
  DeviceCopyEngine(const HostCopyOptions& host, const CudaCopyOptions& cuda)
      : host_(host), cuda_(cuda) {
    cuda_.stepped = host.workers == 0;
  }

  // Errors: those of both backends' create; unsupported: another kind of device.
  Status attach(CopyDevice device, std::int32_t ordinal) override;
  [[nodiscard]] std::string describe() const override {
    return inner_ == nullptr ? std::string("no copies yet") : inner_->describe();
  }
  std::string take_trouble() override {
    return inner_ == nullptr ? std::string() : inner_->take_trouble();
  }
  [[nodiscard]] std::uint32_t part_copies() const override {
    return inner_ == nullptr ? 0 : inner_->part_copies();
  }
  Result<Fence> capture(const Fence& fence) override;
  void release(const Fence& fence) override {
    if (inner_ != nullptr) inner_->release(fence);
  }
  Code fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out) override {
    return inner_ == nullptr ? CopyEngine::fence_of(mark, operations, out)
                             : inner_->fence_of(mark, operations, out);
  }
  [[nodiscard]] bool supports(FenceKind kind) const override {
    return inner_ != nullptr && inner_->supports(kind);
  }
  [[nodiscard]] bool stepped() const override { return cuda_.stepped; }
  Status submit(const CopyBatch& batch) override;
  std::size_t poll(std::span<CopyCompletion> out) override {
    return inner_ == nullptr ? 0 : inner_->poll(out);
  }
  Code wait(std::span<const std::uint64_t> ops, std::chrono::nanoseconds timeout) override {
    return inner_ == nullptr ? Code::ok : inner_->wait(ops, timeout);
  }
  std::uint64_t pump(std::uint64_t budget) override {
    return inner_ == nullptr ? 0 : inner_->pump(budget);
  }
  Status pin(void* base, Bytes size, Bytes row) override;
  void unpin() override {
    if (inner_ != nullptr) inner_->unpin();
  }

 private:
  HostCopyOptions host_;
  CudaCopyOptions cuda_;
  std::unique_ptr<CopyEngine> inner_;
};

}  // namespace kvc
