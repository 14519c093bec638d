// A device that is fake, a compute stream on it, memory at both ends, and the CUDA backend between.
#pragma once
#include <sys/mman.h>

#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/cuda_copy_engine.h"
#include "cuda/fake/fake_control.h"
#include "cuda/tests/copy_helpers.h"

namespace kvc::copy_test {

inline std::string fake_path() { return KVC_LIB_DIR "/libkvc_fake_cuda.so"; }

inline kvc_fake_options seeded(std::uint64_t seed) {
  kvc_fake_options o{};
  o.seed = seed;
  return o;
}

// Page-aligned host memory, as an arena's.
class HostPages {
 public:
  explicit HostPages(std::size_t bytes)
      : bytes_(bytes),
        base_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (base_ == MAP_FAILED) throw std::runtime_error("no memory for a test");
  }
  HostPages(const HostPages&) = delete;
  HostPages& operator=(const HostPages&) = delete;
  ~HostPages() { ::munmap(base_, bytes_); }
  [[nodiscard]] std::byte* at(std::size_t offset) const {
    return static_cast<std::byte*>(base_) + offset;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* base_;
};

// Work of the compute stream: writes bytes to a place of the device, and says so.
struct Compute {
  cuda::FakeControl* control = nullptr;
  std::byte* to = nullptr;
  std::vector<std::byte> bytes;  // empty: reads `reads` bytes of it
  std::size_t reads = 0;
  std::vector<std::byte> seen;

  static void run(void* self) {
    auto& c = *static_cast<Compute*>(self);
    if (c.bytes.empty()) {
      c.control->access(c.to, c.reads, 0);
      c.seen.assign(c.to, c.to + c.reads);
    } else {
      c.control->access(c.to, c.bytes.size(), 1);
      std::memcpy(c.to, c.bytes.data(), c.bytes.size());
    }
  }
};

class FakeWorld {
 public:
  static constexpr std::size_t device_bytes = std::size_t{1} << 20;

  explicit FakeWorld(kvc_fake_options fake = {}, CudaCopyOptions options = {},
                     std::size_t host_bytes = std::size_t{1} << 20)
      : host(host_bytes) {
    auto loaded = cuda::Driver::load(fake_path());
    if (!loaded.ok()) throw std::runtime_error(loaded.error().text);
    driver = loaded.value();
    if (!control.find(*driver)) throw std::runtime_error("the fake has no control entries");
    control.reset(&fake);
    options.driver = fake_path();
    options.stepped = true;
    auto made = CudaCopyEngine::create(options);
    if (!made.ok()) throw std::runtime_error(made.error().text);
    engine = std::move(made.value());
    if (Status s = engine->pin(host.at(0), {host.bytes()}, {4096}); !s.ok()) {
      throw std::runtime_error(s.text);
    }
    check(driver->context_retain(&context, 0));
    check(driver->context_push(context));
    check(driver->stream_create(&compute, cuda::stream_non_blocking, 0));
    check(driver->event_create(&event, cuda::event_disable_timing));
    check(driver->device_alloc(&memory, device_bytes));
    std::memset(device(0), 0, device_bytes);
  }
  FakeWorld(const FakeWorld&) = delete;
  FakeWorld& operator=(const FakeWorld&) = delete;
  ~FakeWorld() {
    control.hold(compute, 0);
    engine.reset();
    static_cast<void>(driver->stream_synchronize(compute));
    static_cast<void>(driver->device_free(memory));
    static_cast<void>(driver->event_destroy(event));
    static_cast<void>(driver->stream_destroy(compute));
    cuda::Context popped = nullptr;
    static_cast<void>(driver->context_pop(&popped));
    static_cast<void>(driver->context_release(0));
    control.reset(nullptr);
  }

  static void check(cuda::DriverResult r) {
    if (r != cuda::driver_success)
      throw std::runtime_error("the fake answers " + std::to_string(r));
  }
  [[nodiscard]] std::byte* device(std::size_t offset) const {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the fake's device memory is host memory
    return reinterpret_cast<std::byte*>(memory) + offset;
  }
  // The compute stream writes; the bytes are there when it gets to it.
  void computes(Compute& c, std::size_t offset, std::vector<std::byte> bytes) {
    c = {&control, device(offset), std::move(bytes), 0, {}};
    launch(c);
  }
  void reads(Compute& c, std::size_t offset, std::size_t bytes) {
    c = {&control, device(offset), {}, bytes, {}};
    launch(c);
  }
  // The world keeps what is queued: it runs as late as in the world's destructor.
  void launch(const Compute& c) {
    queued.push_back(std::make_unique<Compute>(c));
    check(control.launch(compute, Compute::run, queued.back().get()));
  }
  [[nodiscard]] Fence event_now() const {
    check(driver->event_record(event, compute));
    return {FenceKind::cuda_event, nullptr, 0, event};
  }
  [[nodiscard]] Fence stream_now() const { return {FenceKind::cuda_stream, nullptr, 0, compute}; }
  // Host code touches memory itself.
  void host_reads(const void* p, std::size_t bytes) { control.access(p, bytes, 0); }
  void host_writes(const void* p, std::size_t bytes) { control.access(p, bytes, 1); }

  // Until nothing moves.
  std::vector<CopyCompletion> drain() {
    std::vector<CopyCompletion> out;
    for (;;) {
      const auto some = poll_all(*engine);
      out.insert(out.end(), some.begin(), some.end());
      if (some.empty() && engine->pump(1) == 0 && control.run(1) == 0) return out;
    }
  }
  [[nodiscard]] std::string faults() const {
    std::string out;
    for (const std::string& f : control.all_faults()) out += f + "\n";
    return out;
  }
  [[nodiscard]] kvc_fake_counts counts() const {
    kvc_fake_counts c{};
    control.counters(&c);
    return c;
  }

  std::vector<std::unique_ptr<Compute>> queued;
  HostPages host;
  std::shared_ptr<const cuda::Driver> driver;
  cuda::FakeControl control;
  std::unique_ptr<CudaCopyEngine> engine;
  cuda::Context context = nullptr;
  cuda::Stream compute = nullptr;
  cuda::Event event = nullptr;
  cuda::DevicePointer memory = 0;
};

}  // namespace kvc::copy_test
