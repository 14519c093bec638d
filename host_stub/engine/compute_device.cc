#include "host_stub/engine/compute_device.h"

#include <fmt/format.h>

namespace kvc::host {

namespace {

constexpr std::uint64_t page_bytes = 4096;

}  // namespace

Result<std::unique_ptr<ComputeDevice>> ComputeDevice::open(const std::string& driver,
                                                           std::uint64_t seed) {
  std::unique_ptr<ComputeDevice> device(new ComputeDevice());
  auto loaded = cuda::Driver::load(driver);
  if (!loaded.ok()) return loaded.error();
  device->driver_ = std::move(loaded.value());
  const cuda::Driver& d = *device->driver_;
  if (!device->control_.find(d)) {
    return {Code::unsupported,
            fmt::format("{} is no fake device: the model of this engine computes on the CPU and "
                        "needs device memory that the CPU may touch",
                        driver)};
  }
  kvc_fake_options options{};
  options.seed = seed;
  device->control_.reset(&options);
  cuda::DriverResult r = d.context_retain(&device->context_, 0);
  if (r != cuda::driver_success) {
    device->context_ = nullptr;
    return d.error(r, "cannot use device 0");
  }
  const cuda::ContextScope scope(d, device->context_);
  r = d.stream_create(&device->stream_, cuda::stream_non_blocking, 0);
  if (r == cuda::driver_success) {
    r = d.event_create(&device->event_, cuda::event_disable_timing);
  }
  if (r != cuda::driver_success) return d.error(r, "cannot make stream and event");
  // Turns run when the engine's own thread comes to them, not in whoever calls the driver.
  device->control_.hold(device->stream_, 1);
  return device;
}

ComputeDevice::~ComputeDevice() {
  if (context_ == nullptr) return;
  {
    const cuda::ContextScope scope(*driver_, context_);
    const std::function<void()> nothing = [] {};
    while (turns_ != 0) take_turn(nothing);
    control_.run_stream(stream_, UINT64_MAX, 0);
    if (event_ != nullptr) static_cast<void>(driver_->event_destroy(event_));
    if (stream_ != nullptr) static_cast<void>(driver_->stream_destroy(stream_));
  }
  static_cast<void>(driver_->context_release(0));
}

std::byte* ComputeDevice::allocate(Bytes bytes) {
  const cuda::ContextScope scope(*driver_, context_);
  cuda::DevicePointer p = 0;
  const std::uint64_t rounded = ceil_div(bytes.n, page_bytes) * page_bytes;
  if (driver_->device_alloc(&p, rounded) != cuda::driver_success) return nullptr;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the fake's device memory is host memory
  return reinterpret_cast<std::byte*>(p);
}

void ComputeDevice::free(std::byte* memory) {
  const cuda::ContextScope scope(*driver_, context_);
  // What the stream did is over when it is waited for, and the fake wants that to be known.
  control_.run_stream(stream_, UINT64_MAX, 0);
  static_cast<void>(driver_->stream_synchronize(stream_));
  static_cast<void>(driver_->device_free(reinterpret_cast<std::uintptr_t>(memory)));
}

void ComputeDevice::run_turn(void* self) {
  const auto& device = *static_cast<ComputeDevice*>(self);
  KVC_CHECK(device.work_ != nullptr);
  (*device.work_)();
}

void ComputeDevice::launch_turn() {
  const cuda::ContextScope scope(*driver_, context_);
  KVC_CHECK(control_.launch(stream_, run_turn, this) == cuda::driver_success);
  ++turns_;
}

kvc_fence ComputeDevice::fence_now() {
  kvc_fence fence{};
  fence.struct_size = sizeof fence;
  if (fences_++ % 2 == 0) {
    const cuda::ContextScope scope(*driver_, context_);
    KVC_CHECK(driver_->event_record(event_, stream_) == cuda::driver_success);
    if (turns_ == 0) control_.run_stream(stream_, UINT64_MAX, 0);
    fence.kind = KVC_FENCE_CUDA_EVENT;
    fence.object = event_;
  } else {
    fence.kind = KVC_FENCE_CUDA_STREAM;
    fence.object = stream_;
  }
  return fence;
}

void ComputeDevice::wait_for(const kvc_fence& fence) {
  if (fence.kind == KVC_FENCE_NONE) return;
  KVC_CHECK(fence.kind == KVC_FENCE_CUDA_EVENT);
  const cuda::ContextScope scope(*driver_, context_);
  KVC_CHECK(driver_->stream_wait_event(stream_, static_cast<cuda::Event>(fence.object), 0) ==
            cuda::driver_success);
}

void ComputeDevice::take_turn(const std::function<void()>& work) {
  if (turns_ == 0) launch_turn();
  --turns_;
  bool done = false;
  const std::function<void()> once = [&] {
    work();
    done = true;
  };
  work_ = &once;
  while (!done) {
    control_.run_stream(stream_, UINT64_MAX, 0);
    if (control_.run_stream(stream_, 1, 1) == 1 || control_.run(1) == 1) continue;
    // A rank's thread has run what the stream waited for in between the two.
    KVC_CHECK(control_.run_stream(stream_, 1, 1) == 1);
  }
  work_ = nullptr;
  // The events of fences behind it are reached with it.
  control_.run_stream(stream_, UINT64_MAX, 0);
}

std::string ComputeDevice::faults() const {
  const std::vector<std::string> all = control_.all_faults();
  if (all.empty()) return {};
  return fmt::format("{} faults of the device, the first: {}", control_.faults(), all.front());
}

}  // namespace kvc::host
