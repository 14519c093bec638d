#include "cuda/cuda_copy_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <system_error>

#include "cuda/cuda_copy_core.h"
#include "cuda/kernel/kernel_image.h"

namespace kvc {

using copy_detail::none;
using cuda::ContextScope;
using cuda::Driver;
using cuda::driver_success;
using cuda::DriverResult;
using std::chrono::nanoseconds;

namespace {

// How often a stepped engine looks at a device that does not move before it says so.
constexpr std::uint32_t idle_looks_max = 64;
// How long wait() sleeps between its own looks.
constexpr std::chrono::microseconds wait_look{50};
constexpr std::uint32_t part_copies_preferred = 8192;

Status check(const CudaCopyOptions& o) {
  if (o.operations_max == 0 || o.runs_max == 0 || o.captures_max == 0 || o.pieces_max == 0 ||
      o.copies_per_piece_max == 0 || o.register_bytes_max.n == 0) {
    return {Code::arg, "cuda copy engine: every reservation must be above 0"};
  }
  if (o.stream_entries_max < 8 || o.operations_max > (1U << 30U) ||
      o.runs_max > (std::uint64_t{1} << 36U)) {
    return {Code::arg,
            fmt::format("cuda copy engine with {} entries of a stream (at least 8), {} operations "
                        "and {} runs (at most 2^30 and 2^36)",
                        o.stream_entries_max, o.operations_max, o.runs_max)};
  }
  return {};
}

Status check_fence(const Fence& fence, const cuda::CudaCaptures& captures) {
  if (fence.kind == FenceKind::counter &&
      (fence.counter == nullptr || reinterpret_cast<std::uintptr_t>(fence.counter) % 8 != 0)) {
    return {Code::arg, fmt::format("fence counter {} is null or not aligned to 8 bytes",
                                   static_cast<const void*>(fence.counter))};
  }
  if (fence.kind == FenceKind::captured &&
      !captures.known(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(fence.handle)))) {
    return {Code::arg, fmt::format("captured fence {} is not known",
                                   reinterpret_cast<std::uintptr_t>(fence.handle))};
  }
  return {};
}

}  // namespace

// The context is retained, streams and events made, the kernel loaded if there is one.
Status CudaCopyEngine::Core::open() {
  const Driver& d = *driver;
  int count = 0;
  if (const DriverResult r = d.device_count(&count); r != driver_success) {
    return d.error(r, "cannot count devices", Code::unsupported);
  }
  if (options.device < 0 || options.device >= count) {
    return {Code::unsupported,
            fmt::format("no device {}: {} has {}", options.device, d.path, count)};
  }
  DriverResult r = d.device_get(&device, options.device);
  char name[128] = {};
  if (r == driver_success) r = d.device_name(name, sizeof name, device);
  device_name = name;
  int same = 0;
  if (r == driver_success) r = d.device_attribute(&same, cuda::attribute_same_host_pointer, device);
  same_pointer = same != 0;
  if (r == driver_success) r = d.context_retain(&context, device);
  if (r != driver_success) {
    context = nullptr;
    return d.error(r, fmt::format("cannot use device {}", options.device));
  }
  const ContextScope scope(d, context);
  if (scope.result() != driver_success) return d.error(scope.result(), "its context");
  int least = 0;
  int greatest = 0;
  r = d.stream_priorities(&least, &greatest);
  // Compute wins: copies have the lowest priority there is.
  for (Lane& l : lanes) {
    if (r == driver_success) r = d.stream_create(&l.stream, cuda::stream_non_blocking, least);
    for (Piece& p : l.ring) {
      if (r == driver_success) r = d.event_create(&p.done, cuda::event_disable_timing);
    }
  }
  if (r != driver_success) return d.error(r, "cannot make streams and events");
  if (Status s = captures.open(d, least); !s.ok()) return s;
  load_kernel();
  return {};
}

// Without the kernel everything works, and describe says why there is none.
void CudaCopyEngine::Core::load_kernel() {
  const Driver& d = *driver;
  const void* image = d.own_kernel_image != nullptr ? d.own_kernel_image : cuda::kernel_image();
  if (image == nullptr) {
    without_kernel = "built without it (KVC_CUDA=OFF)";
    return;
  }
  if (!same_pointer) {
    without_kernel = "the device does not see host memory at the host's addresses";
    return;
  }
  const std::size_t bytes = sizeof(cuda::Fragment) * options.copies_per_piece_max * tables_max;
  DriverResult r = d.module_load(&module, image);
  if (r != driver_success) module = nullptr;
  if (r == driver_success) r = d.module_function(&function, module, cuda::fragments_kernel);
  for (Lane& l : lanes) {
    void* tables = nullptr;
    if (r == driver_success) {
      r = d.host_alloc(&tables, bytes, cuda::host_alloc_portable | cuda::host_alloc_device_map);
    }
    if (r == driver_success) l.tables = static_cast<cuda::Fragment*>(tables);
  }
  if (r == driver_success) return;
  function = nullptr;
  without_kernel = d.error(r, "it does not load").text;
}

// Whatever was issued is over when this returns; a fence that the device never reaches would keep
// it here (docs/cuda.md).
void CudaCopyEngine::Core::close() {
  if (context == nullptr) return;
  const Driver& d = *driver;
  {
    const ContextScope scope(d, context);
    for (const Lane& l : lanes) {
      if (l.stream != nullptr && waits(CudaWait::close)) {
        static_cast<void>(d.stream_synchronize(l.stream));
      }
    }
    pins.clear(d);
    captures.close(d);
    for (Lane& l : lanes) {
      if (l.tables != nullptr) static_cast<void>(d.host_free(l.tables));
      for (const Piece& p : l.ring) {
        if (p.done != nullptr) static_cast<void>(d.event_destroy(p.done));
      }
      if (l.stream != nullptr) static_cast<void>(d.stream_destroy(l.stream));
    }
    if (module != nullptr) static_cast<void>(d.module_unload(module));
  }
  static_cast<void>(d.context_release(device));
  context = nullptr;
}

CudaCopyEngine::CudaCopyEngine() = default;

Result<std::unique_ptr<CudaCopyEngine>> CudaCopyEngine::create(const CudaCopyOptions& options) {
  if (Status s = check(options); !s.ok()) return s;
  auto driver = Driver::load(options.driver);
  if (!driver.ok()) return driver.error();
  try {
    std::unique_ptr<CudaCopyEngine> engine(new CudaCopyEngine());
    engine->core_ = std::make_unique<Core>(options);
    Core& core = *engine->core_;
    core.driver = std::move(driver.value());
    if (Status s = core.open(); !s.ok()) return s;
    if (!options.stepped) core.watcher = std::thread([&core] { core.watch(); });
    return engine;
  } catch (const std::bad_alloc&) {
    return {Code::full, fmt::format("no memory for a copy engine of {} operations and {} runs",
                                    options.operations_max, options.runs_max)};
  } catch (const std::system_error& e) {
    return {Code::full, fmt::format("cuda copy engine: cannot start a thread: {}", e.what())};
  }
}

CudaCopyEngine::~CudaCopyEngine() {
  if (core_ == nullptr) return;
  {
    const std::lock_guard<std::mutex> lock(core_->mutex);
    core_->stopping = true;
  }
  core_->changed.notify_all();
  if (core_->watcher.joinable()) core_->watcher.join();
  core_->close();
}

Status CudaCopyEngine::attach(CopyDevice device, std::int32_t ordinal) {
  if (device == CopyDevice::cuda && ordinal == core_->options.device) return {};
  return {Code::unsupported,
          fmt::format("this copy engine serves CUDA device {}, not device kind {} number {}",
                      core_->options.device, static_cast<std::int32_t>(device), ordinal)};
}

std::string CudaCopyEngine::describe() const {
  const Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  std::string out =
      fmt::format("copies by CUDA device {} ({}), driver {} of {}: ", c.options.device,
                  c.device_name, c.driver->version, c.driver->path);
  out += c.batch_usable() ? "batched copies" : "one call per copy";
  if (c.kernel_usable()) {
    out += fmt::format(", the kernel below {} bytes a fragment (loads) and {} (stores)",
                       c.options.kernel_below_load.n, c.options.kernel_below_store.n);
  } else if (!c.without_kernel.empty()) {
    out += fmt::format("; no kernel: {}", c.without_kernel);
  }
  return out;
}

std::string CudaCopyEngine::take_trouble() {
  const std::lock_guard<std::mutex> lock(core_->mutex);
  return std::exchange(core_->trouble, {});
}

std::uint32_t CudaCopyEngine::part_copies() const {
  // A part must fit with room to spare, or jobs would go one after the other.
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(part_copies_preferred, (core_->options.runs_max + 3) / 4));
}

bool CudaCopyEngine::stepped() const { return core_->options.stepped; }

Result<Fence> CudaCopyEngine::capture(const Fence& fence) {
  if (fence.kind != FenceKind::cuda_event && fence.kind != FenceKind::cuda_stream) return fence;
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  const ContextScope scope(*c.driver, c.context);
  if (scope.result() != driver_success) return c.driver->error(scope.result(), "its context");
  const auto taken = c.captures.take(*c.driver, fence, !c.waits(CudaWait::event_fence_caught));
  if (!taken.ok()) return taken.error();
  Fence out;
  out.kind = FenceKind::captured;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): a number in the handle's place
  out.handle = reinterpret_cast<void*>(static_cast<std::uintptr_t>(taken.value()));
  return out;
}

void CudaCopyEngine::release(const Fence& fence) {
  if (fence.kind != FenceKind::captured) return;
  const std::lock_guard<std::mutex> lock(core_->mutex);
  core_->captures.drop(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(fence.handle)));
}

Code CudaCopyEngine::fence_of(const CopyMark& mark, std::uint64_t operations, Fence& out) {
  const std::lock_guard<std::mutex> lock(core_->mutex);
  return core_->fence_of(mark, operations, out);
}

Status CudaCopyEngine::submit(const CopyBatch& batch) {
  // One that the caller did not capture stands for this moment too.
  if (batch.fence.kind == FenceKind::cuda_event || batch.fence.kind == FenceKind::cuda_stream) {
    const Result<Fence> fence = capture(batch.fence);
    if (!fence.ok()) return fence.error();
    const Status s = submit({fence.value(), batch.operations});
    release(fence.value());
    return s;
  }
  const Result<copy_detail::BatchSize> size = copy_detail::size_of(batch);
  if (!size.ok()) return size.error();
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  if (Status s = check_fence(batch.fence, c.captures); !s.ok()) return s;
  if (Status s = copy_detail::reserve(c.queue, batch, size.value()); !s.ok()) return s;
  const bool captured = batch.fence.kind == FenceKind::captured;
  c.commit(batch, captured ? static_cast<std::uint32_t>(
                                 reinterpret_cast<std::uintptr_t>(batch.fence.handle))
                           : none);
  c.counters.runs += size.value().runs;
  c.advance();
  c.changed.notify_all();
  return {};
}

std::size_t CudaCopyEngine::poll(std::span<CopyCompletion> out) {
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  c.advance();
  return c.ends.report(out);
}

Code CudaCopyEngine::wait(std::span<const std::uint64_t> ops, nanoseconds timeout) {
  Core& c = *core_;
  if (c.options.stepped) {
    for (;;) {
      {
        const std::lock_guard<std::mutex> lock(c.mutex);
        if (!c.any_open(ops)) return Code::ok;
      }
      if (pump(1) == 0) {
        const std::lock_guard<std::mutex> lock(c.mutex);
        return c.any_open(ops) ? Code::deadline : Code::ok;
      }
    }
  }
  std::unique_lock<std::mutex> lock(c.mutex);
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    c.advance();
    if (!c.any_open(ops)) return Code::ok;
    const nanoseconds spent = std::chrono::steady_clock::now() - begin;
    if (spent >= timeout) return Code::deadline;
    c.changed.wait_for(lock, std::min<nanoseconds>(wait_look, timeout - spent));
  }
}

// A piece of work is a look at the device after which something has moved: the device works by
// itself, this only takes note and hands over what was waiting.
std::uint64_t CudaCopyEngine::pump(std::uint64_t budget) {
  Core& c = *core_;
  if (!c.options.stepped) return 0;
  const std::lock_guard<std::mutex> lock(c.mutex);
  std::uint64_t did = 0;
  while (did < budget) {
    bool moved = c.advance();
    for (std::uint32_t i = 0; !moved && c.open_at_device() && i < idle_looks_max; ++i) {
      moved = c.advance();
    }
    if (!moved) break;
    ++did;
  }
  return did;
}

Status CudaCopyEngine::pin(void* base, Bytes size, Bytes row) {
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  const ContextScope scope(*c.driver, c.context);
  if (scope.result() != driver_success) return c.driver->error(scope.result(), "its context");
  return c.pins.add(*c.driver, base, size, row, c.options.register_bytes_max, c.options.numa_node);
}

void CudaCopyEngine::unpin() {
  Core& c = *core_;
  const std::lock_guard<std::mutex> lock(c.mutex);
  const ContextScope scope(*c.driver, c.context);
  c.pins.clear(*c.driver);
}

CudaCopyCounters CudaCopyEngine::counters() const {
  const std::lock_guard<std::mutex> lock(core_->mutex);
  CudaCopyCounters out = core_->counters;
  out.operations_ok = core_->ends.ok();
  out.operations_failed = core_->ends.failed();
  return out;
}

}  // namespace kvc
