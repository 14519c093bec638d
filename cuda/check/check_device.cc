#include "cuda/check/check_device.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

namespace kvc::check {

const char* name_of(CopyPath path) {
  switch (path) {
    case CopyPath::automatic:
      break;
    case CopyPath::batch:
      return "batch";
    case CopyPath::loop:
      return "loop";
    case CopyPath::kernel:
      return "kernel";
  }
  return "auto";
}

CheckDevice::CheckDevice(const CheckOptions& options) : options_(options) {
  auto loaded = cuda::Driver::load(options.driver);
  if (!loaded.ok()) throw std::runtime_error(loaded.error().text);
  driver_ = loaded.value();
  check(driver_->device_get(&id_, options.device), "cuDeviceGet");
  char name[128] = {};
  check(driver_->device_name(name, sizeof name, id_), "cuDeviceGetName");
  name_ = name;
  check(driver_->context_retain(&context_, id_), "cuDevicePrimaryCtxRetain");
  check(driver_->context_push(context_), "cuCtxPushCurrent");
  check(driver_->stream_create(&compute_, cuda::stream_non_blocking, 0), "cuStreamCreate");
  check(driver_->device_alloc(&memory_, options.bytes), "cuMemAlloc");
  void* host =
      ::mmap(nullptr, options.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (host == MAP_FAILED) throw std::runtime_error("no host memory");
  host_ = static_cast<std::byte*>(host);
  void* staging = nullptr;
  check(driver_->host_alloc(&staging, options.bytes, cuda::host_alloc_portable), "cuMemHostAlloc");
  staging_ = static_cast<std::byte*>(staging);
}

CheckDevice::~CheckDevice() {
  static_cast<void>(driver_->stream_synchronize(compute_));
  static_cast<void>(driver_->host_free(staging_));
  ::munmap(host_, options_.bytes);
  static_cast<void>(driver_->device_free(memory_));
  static_cast<void>(driver_->stream_destroy(compute_));
  cuda::Context popped = nullptr;
  static_cast<void>(driver_->context_pop(&popped));
  static_cast<void>(driver_->context_release(id_));
}

void CheckDevice::check(cuda::DriverResult result, const char* what) const {
  if (result != cuda::driver_success) throw std::runtime_error(driver_->error(result, what).text);
}

std::unique_ptr<CudaCopyEngine> CheckDevice::engine(CopyPath path) const {
  CudaCopyOptions o;
  o.driver = options_.driver;
  o.device = options_.device;
  o.path = path;
  auto made = CudaCopyEngine::create(o);
  if (!made.ok()) throw std::runtime_error(made.error().text);
  if (Status s = made.value()->pin(host_, {options_.bytes}, {4096}); !s.ok()) {
    throw std::runtime_error(s.text);
  }
  return std::move(made.value());
}

void CheckDevice::write_device(const std::vector<std::byte>& image) {
  std::memcpy(staging_, image.data(), image.size());
  check(driver_->copy_to_device(memory_, staging_, image.size(), compute_), "cuMemcpyHtoDAsync");
  check(driver_->stream_synchronize(compute_), "cuStreamSynchronize");
}

std::vector<std::byte> CheckDevice::read_device(std::size_t bytes) {
  check(driver_->copy_to_host(staging_, memory_, bytes, compute_), "cuMemcpyDtoHAsync");
  check(driver_->stream_synchronize(compute_), "cuStreamSynchronize");
  return {staging_, staging_ + bytes};
}

std::byte* CheckDevice::device(std::size_t offset) const {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): named, not touched
  return reinterpret_cast<std::byte*>(memory_) + offset;
}

void finish(CopyEngine& engine, const std::vector<std::uint64_t>& ops) {
  if (engine.wait(ops, std::chrono::seconds(60)) != Code::ok) {
    throw std::runtime_error("copies did not end within 60 s");
  }
  std::size_t left = ops.size();
  CopyCompletion done[64];
  while (const std::size_t n = engine.poll(done)) {
    for (std::size_t i = 0; i < n; ++i) {
      if (done[i].status == Code::ok) continue;
      throw std::runtime_error(fmt::format("operation {} ended with code {}: {}", done[i].id,
                                           static_cast<std::int32_t>(done[i].status),
                                           engine.take_trouble()));
    }
    left -= std::min(left, n);
  }
  if (left != 0) throw std::runtime_error("an operation was not reported");
}

}  // namespace kvc::check
