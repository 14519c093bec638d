// The driver's entries over FakeDevice, and the control entries.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "cuda/fake/fake_device.h"
#include "cuda/kernel/copy_fragments.h"

// Hidden is the rule of this tree; these are what the library is for.
#define KVC_FAKE_EXPORT extern "C" __attribute__((visibility("default")))

using namespace kvc::cuda;  // NOLINT(google-build-using-namespace): a file of entries
using kvc::cuda::fake::Command;
using kvc::cuda::fake::Copy;
using kvc::cuda::fake::FakeDevice;
using kvc::cuda::fake::Range;

namespace {

// Runs `body` under the lock, unless the entry fails at its beginning.
template <class Body>
DriverResult entry(const char* name, Body&& body) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  if (const DriverResult r = d.enter(name); r != driver_success) return r;
  return body(d);
}

// The same for what a stream is given.
template <class Body>
DriverResult on_stream(const char* name, Stream s, Body&& body) {
  return entry(name, [&](FakeDevice& d) -> DriverResult {
    if (const DriverResult r = d.check(s, name); r != driver_success) return r;
    return body(d);
  });
}

std::uint64_t address_of(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

constexpr std::uint64_t page = 4096;

const char* name_of(DriverResult r) {
  switch (r) {
    case driver_success:
      return "CUDA_SUCCESS";
    case driver_invalid_value:
      return "CUDA_ERROR_INVALID_VALUE";
    case driver_out_of_memory:
      return "CUDA_ERROR_OUT_OF_MEMORY";
    case driver_invalid_context:
      return "CUDA_ERROR_INVALID_CONTEXT";
    case driver_invalid_handle:
      return "CUDA_ERROR_INVALID_HANDLE";
    case driver_not_ready:
      return "CUDA_ERROR_NOT_READY";
    case driver_already_registered:
      return "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
    case driver_not_registered:
      return "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
    case driver_launch_failed:
      return "CUDA_ERROR_LAUNCH_FAILED";
    default:
      return "CUDA_ERROR_UNKNOWN";
  }
}

}  // namespace

KVC_FAKE_EXPORT DriverResult cuInit(unsigned) {
  return entry("cuInit", [](FakeDevice&) { return driver_success; });
}

KVC_FAKE_EXPORT DriverResult cuDriverGetVersion(int* out) {
  *out = 13000;
  return driver_success;
}

KVC_FAKE_EXPORT DriverResult cuGetErrorName(DriverResult r, const char** out) {
  *out = name_of(r);
  return driver_success;
}

KVC_FAKE_EXPORT DriverResult cuGetErrorString(DriverResult r, const char** out) {
  *out = r == driver_success ? "no error" : "the fake device was told to, or was used wrongly";
  return driver_success;
}

KVC_FAKE_EXPORT DriverResult cuDeviceGetCount(int* out) {
  return entry("cuDeviceGetCount", [&](FakeDevice& d) {
    *out = static_cast<int>(d.options.devices);
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuDeviceGet(Device* out, int ordinal) {
  return entry("cuDeviceGet", [&](FakeDevice& d) -> DriverResult {
    if (ordinal < 0 || ordinal >= static_cast<int>(d.options.devices)) return driver_invalid_device;
    *out = ordinal;
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuDeviceGetName(char* out, int bytes, Device) {
  constexpr std::string_view name = "kvc fake device";
  const std::size_t n = std::min(name.size(), static_cast<std::size_t>(bytes - 1));
  std::memcpy(out, name.data(), n);
  out[n] = '\0';
  return driver_success;
}

KVC_FAKE_EXPORT DriverResult cuDeviceGetAttribute(int* out, int attribute, Device) {
  return entry("cuDeviceGetAttribute", [&](FakeDevice& d) {
    *out = attribute == attribute_same_host_pointer ? (d.options.other_host_pointer == 0 ? 1 : 0)
           : attribute == attribute_compute_capability_major ? 9
                                                             : 0;
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuDevicePrimaryCtxRetain(Context* out, Device device) {
  return entry("cuDevicePrimaryCtxRetain", [&](FakeDevice& d) { return d.retain(out, device); });
}

KVC_FAKE_EXPORT DriverResult cuDevicePrimaryCtxRelease_v2(Device device) {
  return entry("cuDevicePrimaryCtxRelease", [&](FakeDevice& d) { return d.release(device); });
}

KVC_FAKE_EXPORT DriverResult cuCtxPushCurrent_v2(Context context) {
  return entry("cuCtxPushCurrent", [&](FakeDevice& d) -> DriverResult {
    if (context == nullptr || context->retained == 0) {
      d.fault("a context is pushed that nobody retains");
      return driver_invalid_context;
    }
    d.stack().push_back(context);
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuCtxPopCurrent_v2(Context* out) {
  FakeDevice& d = FakeDevice::get();
  if (d.stack().empty()) return driver_invalid_context;
  *out = d.stack().back();
  d.stack().pop_back();
  return driver_success;
}

KVC_FAKE_EXPORT DriverResult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return entry("cuCtxGetStreamPriorityRange", [&](FakeDevice&) {
    *least = 0;
    *greatest = -5;
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuStreamCreateWithPriority(Stream* out, unsigned, int) {
  return entry("cuStreamCreate", [&](FakeDevice& d) { return d.make_stream(out); });
}

KVC_FAKE_EXPORT DriverResult cuStreamDestroy_v2(Stream s) {
  return entry("cuStreamDestroy", [&](FakeDevice& d) { return d.drop_stream(s); });
}

KVC_FAKE_EXPORT DriverResult cuStreamSynchronize(Stream s) {
  return on_stream("cuStreamSynchronize", s, [&](FakeDevice& d) { return d.wait_for(s); });
}

KVC_FAKE_EXPORT DriverResult cuStreamWaitEvent(Stream s, Event e, unsigned) {
  return on_stream("cuStreamWaitEvent", s, [&](FakeDevice& d) -> DriverResult {
    if (const DriverResult r = d.check(e, "cuStreamWaitEvent"); r != driver_success) return r;
    ++d.counters.waits;
    Command c;
    c.kind = Command::Kind::wait;
    c.mark = e->last;
    return d.push(s, std::move(c));
  });
}

KVC_FAKE_EXPORT DriverResult cuEventCreate(Event* out, unsigned) {
  return entry("cuEventCreate", [&](FakeDevice& d) { return d.make_event(out); });
}

KVC_FAKE_EXPORT DriverResult cuEventDestroy_v2(Event e) {
  return entry("cuEventDestroy", [&](FakeDevice& d) { return d.drop_event(e); });
}

KVC_FAKE_EXPORT DriverResult cuEventRecord(Event e, Stream s) {
  return on_stream("cuEventRecord", s, [&](FakeDevice& d) -> DriverResult {
    if (const DriverResult r = d.check(e, "cuEventRecord"); r != driver_success) return r;
    ++d.counters.records;
    Command c;
    c.kind = Command::Kind::record;
    c.mark = std::make_shared<kvc::cuda::fake::Mark>();
    e->last = c.mark;
    return d.push(s, std::move(c));
  });
}

KVC_FAKE_EXPORT DriverResult cuEventQuery(Event e) {
  return entry("cuEventQuery", [&](FakeDevice& d) -> DriverResult {
    if (const DriverResult r = d.check(e, "cuEventQuery"); r != driver_success) return r;
    return d.query(e);
  });
}

KVC_FAKE_EXPORT DriverResult cuEventSynchronize(Event e) {
  return entry("cuEventSynchronize", [&](FakeDevice& d) -> DriverResult {
    if (const DriverResult r = d.check(e, "cuEventSynchronize"); r != driver_success) return r;
    return d.wait_for(e);
  });
}

namespace {

DriverResult allocate(FakeDevice& d, Range::Kind kind, std::size_t bytes, std::uint64_t& out) {
  if (d.current() == nullptr) return driver_invalid_context;
  if (bytes == 0) return driver_invalid_value;
  const std::size_t rounded = (bytes + page - 1) / page * page;
  void* p = std::aligned_alloc(page, rounded);
  if (p == nullptr) return driver_out_of_memory;
  out = address_of(p);
  return d.add_memory(out, {bytes, kind, d.current(), true});
}

}  // namespace

KVC_FAKE_EXPORT DriverResult cuMemAlloc_v2(DevicePointer* out, std::size_t bytes) {
  return entry("cuMemAlloc",
               [&](FakeDevice& d) { return allocate(d, Range::Kind::device, bytes, *out); });
}

KVC_FAKE_EXPORT DriverResult cuMemFree_v2(DevicePointer p) {
  return entry("cuMemFree", [&](FakeDevice& d) { return d.drop_memory(p, Range::Kind::device); });
}

KVC_FAKE_EXPORT DriverResult cuMemHostAlloc(void** out, std::size_t bytes, unsigned) {
  return entry("cuMemHostAlloc", [&](FakeDevice& d) {
    std::uint64_t address = 0;
    const DriverResult r = allocate(d, Range::Kind::host, bytes, address);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): it was a pointer a moment ago
    *out = reinterpret_cast<void*>(address);
    return r;
  });
}

KVC_FAKE_EXPORT DriverResult cuMemFreeHost(void* p) {
  return entry("cuMemFreeHost",
               [&](FakeDevice& d) { return d.drop_memory(address_of(p), Range::Kind::host); });
}

KVC_FAKE_EXPORT DriverResult cuMemHostRegister_v2(void* p, std::size_t bytes, unsigned) {
  return entry("cuMemHostRegister", [&](FakeDevice& d) -> DriverResult {
    if (d.current() == nullptr) return driver_invalid_context;
    if (bytes == 0 || bytes > d.options.register_bytes_max) return driver_invalid_value;
    return d.add_memory(address_of(p), {bytes, Range::Kind::registered, d.current(), false});
  });
}

KVC_FAKE_EXPORT DriverResult cuMemHostUnregister(void* p) {
  return entry("cuMemHostUnregister", [&](FakeDevice& d) {
    return d.drop_memory(address_of(p), Range::Kind::registered);
  });
}

KVC_FAKE_EXPORT DriverResult cuMemsetD8Async(DevicePointer to, unsigned char value,
                                             std::size_t bytes, Stream s) {
  return on_stream("cuMemsetD8Async", s, [&](FakeDevice& d) {
    Command c;
    c.kind = Command::Kind::fill;
    c.value = value;
    c.copies.push_back({to, 0, bytes, {}, false});
    return d.push(s, std::move(c));
  });
}

KVC_FAKE_EXPORT DriverResult cuMemcpyHtoDAsync_v2(DevicePointer to, const void* from,
                                                  std::size_t bytes, Stream s) {
  return on_stream("cuMemcpyHtoDAsync", s, [&](FakeDevice& d) {
    ++d.counters.single_copies;
    return d.push_copies(s, {{to, address_of(from), bytes, {}, false}}, false);
  });
}

KVC_FAKE_EXPORT DriverResult cuMemcpyDtoHAsync_v2(void* to, DevicePointer from, std::size_t bytes,
                                                  Stream s) {
  return on_stream("cuMemcpyDtoHAsync", s, [&](FakeDevice& d) {
    ++d.counters.single_copies;
    return d.push_copies(s, {{address_of(to), from, bytes, {}, false}}, false);
  });
}

namespace {

DriverResult copy_batch(DevicePointer* to, DevicePointer* from, std::size_t* sizes,
                        std::size_t count, BatchAttributes* attributes, std::size_t*,
                        std::size_t attribute_count, std::size_t* failed, Stream s) {
  if (failed != nullptr) *failed = SIZE_MAX;
  return on_stream("cuMemcpyBatchAsync", s, [&](FakeDevice& d) -> DriverResult {
    if (count == 0 || attribute_count != 1) return driver_invalid_value;
    ++d.counters.batch_calls;
    d.counters.batch_copies += count;
    std::vector<Copy> copies(count);
    for (std::size_t i = 0; i < count; ++i) {
      if (sizes[i] == 0) {
        if (failed != nullptr) *failed = i;
        return driver_invalid_value;
      }
      copies[i].dst = to[i];
      copies[i].src = from[i];
      copies[i].bytes = sizes[i];
    }
    return d.push_copies(s, std::move(copies), attributes->source_order == SourceOrder::any);
  });
}

}  // namespace

KVC_FAKE_EXPORT DriverResult cuModuleLoadData(Module* out, const void* image) {
  return entry("cuModuleLoadData", [&](FakeDevice& d) -> DriverResult {
    if (d.current() == nullptr) return driver_invalid_context;
    if (image == nullptr) return driver_invalid_value;
    *out = new ModuleTag{d.current()};
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuModuleUnload(Module m) {
  delete m;
  return driver_success;
}

KVC_FAKE_EXPORT DriverResult cuModuleGetFunction(Function* out, Module m, const char* name) {
  return entry("cuModuleGetFunction", [&](FakeDevice&) -> DriverResult {
    if (std::string_view(name) != fragments_kernel) return driver_not_found;
    static FunctionTag function;
    function.context = m->context;
    *out = &function;
    return driver_success;
  });
}

KVC_FAKE_EXPORT DriverResult cuLaunchKernel(Function, unsigned grid, unsigned, unsigned,
                                            unsigned block, unsigned, unsigned, unsigned, Stream s,
                                            void** parameters, void**) {
  return on_stream("cuLaunchKernel", s, [&](FakeDevice& d) -> DriverResult {
    if (grid == 0 || block != fragment_block) return driver_invalid_value;
    ++d.counters.launches;
    ++d.counters.submissions;
    Command c;
    c.kind = Command::Kind::fragments;
    std::memcpy(&c.table, parameters[0], sizeof c.table);
    std::memcpy(&c.count, parameters[1], sizeof c.count);
    c.groups = grid * (block / fragment_lanes);
    // Who launches has just written the table.
    d.access(c.table, c.count * sizeof(Fragment), true);
    return d.push(s, std::move(c));
  });
}

KVC_FAKE_EXPORT DriverResult cuGetProcAddress_v2(const char* name, void** out, int version,
                                                 std::uint64_t, int* status) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  *out = nullptr;
  if (status != nullptr) *status = 1;  // not found
  if (std::string_view(name) != "cuMemcpyBatchAsync" || d.options.without_batch != 0 ||
      version < 12080 || version >= 13000) {
    return driver_not_found;
  }
  *out = reinterpret_cast<void*>(&copy_batch);
  if (status != nullptr) *status = 0;
  return driver_success;
}

// Stands for a kernel that this device can load (Driver::own_kernel_image).
extern "C" __attribute__((visibility("default"))) const char kvc_kernel_image[];
const char kvc_kernel_image[] = "the fake runs cuda/kernel/copy_fragments.h itself";

KVC_FAKE_EXPORT void kvc_fake_reset(const kvc_fake_options* o) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  d.reset(o == nullptr ? kvc_fake_options{} : *o);
}

KVC_FAKE_EXPORT std::uint64_t kvc_fake_run(std::uint64_t budget) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  return d.run(budget);
}

KVC_FAKE_EXPORT std::uint64_t kvc_fake_run_stream(Stream s, std::uint64_t budget, int calls) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  return d.run_stream(s, budget, calls != 0);
}

KVC_FAKE_EXPORT void kvc_fake_hold(Stream s, int on) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  s->held = on != 0;
}

KVC_FAKE_EXPORT DriverResult kvc_fake_launch(Stream s, void (*fn)(void*), void* arg) {
  return on_stream("kvc_fake_launch", s, [&](FakeDevice& d) {
    Command c;
    c.kind = Command::Kind::call;
    c.fn = fn;
    c.arg = arg;
    return d.push(s, std::move(c));
  });
}

KVC_FAKE_EXPORT void kvc_fake_access(const void* p, std::size_t bytes, int writes) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  d.access(address_of(p), bytes, writes != 0);
}

KVC_FAKE_EXPORT std::uint64_t kvc_fake_faults() {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  return d.faults();
}

KVC_FAKE_EXPORT const char* kvc_fake_fault_text(std::uint64_t i) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  return d.fault_text(i);
}

KVC_FAKE_EXPORT void kvc_fake_counters(kvc_fake_counts* out) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  *out = d.counters;
}

KVC_FAKE_EXPORT std::uint64_t kvc_fake_accesses(kvc_fake_access_record* out, std::uint64_t max) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  const auto& all = d.accesses();
  std::copy_n(all.begin(), std::min<std::uint64_t>(max, all.size()), out);
  return all.size();
}

KVC_FAKE_EXPORT void kvc_fake_fail(const char* name, std::uint64_t nth, DriverResult result) {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  d.fail(name, nth, result);
}

KVC_FAKE_EXPORT void kvc_fake_kill() {
  FakeDevice& d = FakeDevice::get();
  const std::lock_guard<std::recursive_mutex> lock(d.mutex);
  d.kill();
}
