#include "cuda/calibrate.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "cuda/driver/cuda_driver.h"

namespace kvc {

namespace {

constexpr std::uint64_t moved_bytes = std::uint64_t{4} << 20U;
constexpr std::uint64_t sizes[] = {4u << 10, 8u << 10, 16u << 10, 32u << 10, 64u << 10};
constexpr int repeats = 3;

// Twice `moved_bytes` at both ends, so that scattered fragments have room.
class Ground {
 public:
  Ground(const cuda::Driver& driver, cuda::Device device) : driver_(driver), device_(device) {}
  Ground(const Ground&) = delete;
  Ground& operator=(const Ground&) = delete;
  ~Ground() {
    if (host_ != MAP_FAILED) ::munmap(host_, 2 * moved_bytes);
    if (context_ == nullptr) return;
    if (memory_ != 0) {
      const cuda::ContextScope scope(driver_, context_);
      static_cast<void>(driver_.device_free(memory_));
    }
    static_cast<void>(driver_.context_release(device_));
  }
  Status open() {
    host_ = ::mmap(nullptr, 2 * moved_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    if (host_ == MAP_FAILED) return {Code::full, "no host memory to measure copies with"};
    if (const auto r = driver_.context_retain(&context_, device_); r != cuda::driver_success) {
      context_ = nullptr;
      return driver_.error(r, "cannot use the device");
    }
    const cuda::ContextScope scope(driver_, context_);
    if (const auto r = driver_.device_alloc(&memory_, 2 * moved_bytes); r != cuda::driver_success) {
      return driver_.error(r, "no device memory to measure copies with", Code::full);
    }
    return {};
  }
  [[nodiscard]] void* host() const { return host_; }
  [[nodiscard]] std::vector<CopyDescriptor> copies(CopyDirection direction,
                                                   std::uint64_t bytes) const {
    std::vector<CopyDescriptor> out;
    for (std::uint64_t at = 0; at + bytes <= moved_bytes; at += bytes) {
      // NOLINTNEXTLINE(performance-no-int-to-ptr): named, not touched
      auto* device = reinterpret_cast<std::byte*>(memory_) + 2 * at;
      std::byte* host = static_cast<std::byte*>(host_) + at;
      out.push_back(direction == CopyDirection::load ? CopyDescriptor{device, host, bytes}
                                                     : CopyDescriptor{host, device, bytes});
    }
    return out;
  }

 private:
  const cuda::Driver& driver_;
  cuda::Device device_;
  cuda::Context context_ = nullptr;
  cuda::DevicePointer memory_ = 0;
  void* host_ = MAP_FAILED;
};

using Clock = std::chrono::steady_clock;

// The best of some repeats; the longest time there is if a copy fails.
Clock::duration time_of(CudaCopyEngine& engine, CopyDirection direction,
                        const std::vector<CopyDescriptor>& copies) {
  Clock::duration best = Clock::duration::max();
  const std::uint64_t id = 1;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    const CopyOperation op{id, direction, copies, {}};
    if (!engine.submit({{}, std::span(&op, 1)}).ok()) return Clock::duration::max();
    if (engine.wait(std::span(&id, 1), std::chrono::seconds(10)) != Code::ok) {
      return Clock::duration::max();
    }
    const auto spent = Clock::now() - begin;
    CopyCompletion done;
    if (engine.poll(std::span(&done, 1)) != 1 || done.status != Code::ok) {
      return Clock::duration::max();
    }
    best = std::min(best, spent);
  }
  return best;
}

using Times = std::array<std::array<Clock::duration, std::size(sizes)>, 2>;

// Of one way at each size, by direction. Not available: longest times.
Status times_of(const CudaCopyOptions& base, CopyPath path, const Ground& ground, Times& out) {
  CudaCopyOptions o = base;
  o.path = path;
  o.fault = nullptr;
  o.on_ended = nullptr;
  o.numa_node = -1;
  auto made = CudaCopyEngine::create(o);
  if (!made.ok()) return made.error();
  CudaCopyEngine& engine = *made.value();
  if (Status s = engine.pin(ground.host(), {2 * moved_bytes}, {4096}); !s.ok()) return s;
  for (const CopyDirection direction : {CopyDirection::load, CopyDirection::store}) {
    for (std::size_t i = 0; i < std::size(sizes); ++i) {
      out[static_cast<std::size_t>(direction)][i] =
          time_of(engine, direction, ground.copies(direction, sizes[i]));
    }
  }
  return {};
}

// The smallest size at which batches are as fast; above all sizes if the kernel always wins.
Bytes border(const Times& kernel, const Times& batch, CopyDirection direction) {
  const auto d = static_cast<std::size_t>(direction);
  for (std::size_t i = 0; i < std::size(sizes); ++i) {
    if (batch[d][i] <= kernel[d][i]) return {sizes[i]};
  }
  return {2 * sizes[std::size(sizes) - 1]};
}

}  // namespace

Status calibrate(CudaCopyOptions& options) {
  const bool load = options.kernel_below_load == kernel_below_measured;
  const bool store = options.kernel_below_store == kernel_below_measured;
  if (load) options.kernel_below_load = kernel_below_default;
  if (store) options.kernel_below_store = kernel_below_default;
  if (options.stepped || (!load && !store)) return {};
  auto driver = cuda::Driver::load(options.driver);
  if (!driver.ok()) return driver.error();
  cuda::Device device = 0;
  if (const auto r = driver.value()->device_get(&device, options.device);
      r != cuda::driver_success) {
    return driver.value()->error(r, fmt::format("no device {}", options.device), Code::unsupported);
  }
  Ground ground(*driver.value(), device);
  if (Status s = ground.open(); !s.ok()) return s;
  Times kernel{};
  Times batch{};
  if (Status s = times_of(options, CopyPath::kernel, ground, kernel); !s.ok()) return s;
  if (Status s = times_of(options, CopyPath::batch, ground, batch); !s.ok()) return s;
  if (load) options.kernel_below_load = border(kernel, batch, CopyDirection::load);
  if (store) options.kernel_below_store = border(kernel, batch, CopyDirection::store);
  return {};
}

}  // namespace kvc
