// The CUDA driver, loaded at run time: one library of this project works on machines with and
// without a GPU, and tests load a fake of it by path (cuda/fake).
#pragma once
#include <memory>
#include <string>

#include "cuda/driver/cuda_types.h"
#include "plugin/core/result.h"

// X(member, name for cuGetProcAddress, exported name, parameters). What must be there:
#define KVC_CUDA_ENTRIES(X)                                                                        \
  X(init, "cuInit", "cuInit", (unsigned))                                                          \
  X(driver_version, "cuDriverGetVersion", "cuDriverGetVersion", (int*))                            \
  X(error_name, "cuGetErrorName", "cuGetErrorName", (DriverResult, const char**))                  \
  X(error_string, "cuGetErrorString", "cuGetErrorString", (DriverResult, const char**))            \
  X(device_count, "cuDeviceGetCount", "cuDeviceGetCount", (int*))                                  \
  X(device_get, "cuDeviceGet", "cuDeviceGet", (Device*, int))                                      \
  X(device_name, "cuDeviceGetName", "cuDeviceGetName", (char*, int, Device))                       \
  X(device_attribute, "cuDeviceGetAttribute", "cuDeviceGetAttribute", (int*, int, Device))         \
  X(context_retain, "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", (Context*, Device))    \
  X(context_release, "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", (Device))        \
  X(context_push, "cuCtxPushCurrent", "cuCtxPushCurrent_v2", (Context))                            \
  X(context_pop, "cuCtxPopCurrent", "cuCtxPopCurrent_v2", (Context*))                              \
  X(stream_priorities, "cuCtxGetStreamPriorityRange", "cuCtxGetStreamPriorityRange", (int*, int*)) \
  X(stream_create, "cuStreamCreateWithPriority", "cuStreamCreateWithPriority",                     \
    (Stream*, unsigned, int))                                                                      \
  X(stream_destroy, "cuStreamDestroy", "cuStreamDestroy_v2", (Stream))                             \
  X(stream_synchronize, "cuStreamSynchronize", "cuStreamSynchronize", (Stream))                    \
  X(stream_wait_event, "cuStreamWaitEvent", "cuStreamWaitEvent", (Stream, Event, unsigned))        \
  X(event_create, "cuEventCreate", "cuEventCreate", (Event*, unsigned))                            \
  X(event_destroy, "cuEventDestroy", "cuEventDestroy_v2", (Event))                                 \
  X(event_record, "cuEventRecord", "cuEventRecord", (Event, Stream))                               \
  X(event_query, "cuEventQuery", "cuEventQuery", (Event))                                          \
  X(event_synchronize, "cuEventSynchronize", "cuEventSynchronize", (Event))                        \
  X(device_alloc, "cuMemAlloc", "cuMemAlloc_v2", (DevicePointer*, std::size_t))                    \
  X(device_free, "cuMemFree", "cuMemFree_v2", (DevicePointer))                                     \
  X(device_memset, "cuMemsetD8Async", "cuMemsetD8Async",                                           \
    (DevicePointer, unsigned char, std::size_t, Stream))                                           \
  X(host_alloc, "cuMemHostAlloc", "cuMemHostAlloc", (void**, std::size_t, unsigned))               \
  X(host_free, "cuMemFreeHost", "cuMemFreeHost", (void*))                                          \
  X(host_register, "cuMemHostRegister", "cuMemHostRegister_v2", (void*, std::size_t, unsigned))    \
  X(host_unregister, "cuMemHostUnregister", "cuMemHostUnregister", (void*))                        \
  X(copy_to_device, "cuMemcpyHtoDAsync", "cuMemcpyHtoDAsync_v2",                                   \
    (DevicePointer, const void*, std::size_t, Stream))                                             \
  X(copy_to_host, "cuMemcpyDtoHAsync", "cuMemcpyDtoHAsync_v2",                                     \
    (void*, DevicePointer, std::size_t, Stream))                                                   \
  X(module_load, "cuModuleLoadData", "cuModuleLoadData", (Module*, const void*))                   \
  X(module_unload, "cuModuleUnload", "cuModuleUnload", (Module))                                   \
  X(module_function, "cuModuleGetFunction", "cuModuleGetFunction",                                 \
    (Function*, Module, const char*))                                                              \
  X(launch, "cuLaunchKernel", "cuLaunchKernel",                                                    \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,       \
     void**, void**))

namespace kvc::cuda {

// Threads:    load from one thread; the entries from any, as the driver allows.
// Owns:       the loaded library, closed with the last copy of the pointer that load gave.
// Invariants: every entry but copy_batch is set.
struct Driver {
#define KVC_CUDA_MEMBER(member, name, symbol, parameters) \
  DriverResult(*member) parameters = nullptr;
  KVC_CUDA_ENTRIES(KVC_CUDA_MEMBER)
#undef KVC_CUDA_MEMBER

  // cuMemcpyBatchAsync as of 12.8 (with the index of the copy that failed); null: this driver is
  // older. Not for the default stream.
  DriverResult (*copy_batch)(DevicePointer* to, DevicePointer* from, std::size_t* sizes,
                             std::size_t count, BatchAttributes* attributes,
                             std::size_t* attribute_from, std::size_t attribute_count,
                             std::size_t* failed, Stream stream) = nullptr;
  int version = 0;   // 1000 * major + 10 * minor
  std::string path;  // as it was given to load
  void* library = nullptr;
  // A kernel image that the library brings itself (the fake does): instead of the built one.
  const void* own_kernel_image = nullptr;

  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  ~Driver();

  // Loads the library at `path` (as dlopen finds it; empty: libcuda.so.1), resolves the entries
  // (through cuGetProcAddress where the driver has it) and initialises it. The driver keeps no
  // error behind after a failed call, so there is none to take away; one that killed the context
  // comes back from every later call. Errors: unsupported (no such library, an entry missing, no
  // device), with the loader's or the driver's text.
  static Result<std::shared_ptr<const Driver>> load(const std::string& path);

  // `code` with `what`, and name, number and text that the driver has for `result`.
  [[nodiscard]] Status error(DriverResult result, const std::string& what,
                             Code code = Code::io) const;
};

// The given context is the calling thread's while this lives.
//
// Threads: the one that made it. Owns: a place on the thread's stack of contexts.
class ContextScope {
 public:
  ContextScope(const Driver& driver, Context context)
      : driver_(driver), result_(driver.context_push(context)) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    Context popped = nullptr;
    if (result_ == driver_success) driver_.context_pop(&popped);
  }
  [[nodiscard]] DriverResult result() const { return result_; }

 private:
  const Driver& driver_;
  DriverResult result_;
};

}  // namespace kvc::cuda
